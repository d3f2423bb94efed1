/* [forms] of weir.toml: whether and how kernels get twins. A value type without pointers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WEIR_FORMS_PATH_BYTES 256

/* The values are explained in docs/design/preemption.md, "Which form". */
enum weir_forms_mode {
    WEIR_FORMS_OFF,
    WEIR_FORMS_AUTO,
    WEIR_FORMS_ALWAYS,
    WEIR_FORMS_EXPLORE,
    WEIR_FORMS_DEFAULT, /* AUTO where a scheduler has several tenants; else OFF */
};

/* A tenant's own setting. DEFAULT means the host's mode. */
enum weir_forms_wish {
    WEIR_FORMS_WISH_DEFAULT,
    WEIR_FORMS_WISH_OFF,
    WEIR_FORMS_WISH_AUTO,
    WEIR_FORMS_WISH_ALWAYS,
};

/* Which PTX text twins are made from. */
enum weir_forms_ptx {
    WEIR_FORMS_PTX_SAME, /* only the text from which the original's code was made */
    WEIR_FORMS_PTX_ANY,  /* any text that the GPU could run */
};

/* Which twins a kernel gets. */
enum weir_forms_twins {
    WEIR_FORMS_TWINS_BEST, /* one */
    WEIR_FORMS_TWINS_ALL,  /* one twin of each admitted form */
};

struct weir_forms_config {
    enum weir_forms_mode mode;
    enum weir_forms_ptx ptx;
    enum weir_forms_twins twins;
    uint32_t seed;                         /* random seed of the mode explore */
    char compiler[WEIR_FORMS_PATH_BYTES];  /* path of ptxas; "auto": look for it; "driver" */
    char cache_dir[WEIR_FORMS_PATH_BYTES]; /* "": the default folder of caches; "none": no cache */
    uint64_t cache_bytes;                  /* limit of the sum of all files */
    uint64_t compile_memory_bytes;         /* memory that ptxas may use for one text */
    uint32_t compile_s; /* seconds of processor time for a program's text; 0: no limit */
};

/** The mode that applies to a tenant. @thread any */
static inline enum weir_forms_mode weir_forms_mode_of(enum weir_forms_mode mode,
                                                      enum weir_forms_wish wish)
{
    switch (wish) {
    case WEIR_FORMS_WISH_OFF:
        return WEIR_FORMS_OFF;
    case WEIR_FORMS_WISH_AUTO:
        return WEIR_FORMS_AUTO;
    case WEIR_FORMS_WISH_ALWAYS:
        return WEIR_FORMS_ALWAYS;
    case WEIR_FORMS_WISH_DEFAULT:
    default:
        return mode;
    }
}
