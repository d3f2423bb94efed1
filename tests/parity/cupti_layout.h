/* Sizes, offsets and values of CUPTI's ABI, as one set of headers has them. */
#pragma once

struct cupti_row {
    const char *name;
    long long value;
};

#define S(type)         {"sizeof " #type, (long long)sizeof(type)},
#define F(type, member) {#type "." #member, (long long)offsetof(type, member)},
#define V(name)         {#name, (long long)(name)},

extern const struct cupti_row cupti_ours[], cupti_toolkit[]; /* the last name is NULL */
