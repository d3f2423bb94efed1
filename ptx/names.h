/*
 * The symbol table of the parser: names in nested scopes. Private to ptx/.
 *
 * One chained hash table holds every visible name. A new name goes to the head of its chain, so the
 * innermost meaning is found first; closing a scope undoes its insertions in reverse order, and
 * each of them is then at the head of its chain. Keys are hashed with SipHash and a random key, so
 * no text can make the chains long. Entries are reused, so memory is bounded by the most names
 * visible at one time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weir_ptx_name_kind {
    WEIR_PTX_NAME_REG,   /* one register, or a vector of them */
    WEIR_PTX_NAME_RANGE, /* prefix<count>: the key is the prefix */
    WEIR_PTX_NAME_VAR,
    WEIR_PTX_NAME_FUNC,
    WEIR_PTX_NAME_LABEL,
    WEIR_PTX_NAME_TABLE,
    WEIR_PTX_NAME_MARK, /* only marks that the name is taken */
};

struct weir_ptx_name {
    struct weir_ptx_name *chain; /* next in the bucket, or in the free list */
    struct weir_ptx_name *older; /* the entry that was inserted before this one */
    const char *text;            /* borrowed */
    uint32_t len;
    uint32_t depth; /* scope in which the name was declared */
    uint64_t hash;
    uint8_t kind;   /* enum weir_ptx_name_kind */
    uint8_t type;   /* REG, RANGE */
    uint8_t vec;    /* REG, RANGE: 1, 2, 4 */
    uint32_t count; /* RANGE */
    uint32_t id;    /* LABEL; REG and RANGE: number of the declaration, see regmap */
    uint32_t line;
    void *object; /* VAR, FUNC, TABLE */
};

/* Owner thread only. */
struct weir_ptx_names {
    struct weir_ptx_name **buckets;
    size_t n_buckets;
    size_t n_names;
    struct weir_ptx_name *newest;
    struct weir_ptx_name *free_list;
    uint32_t depth;
    uint64_t key[2];
};

/** @return false when out of memory; finish is safe either way */
bool weir_ptx_names_init(struct weir_ptx_names *names);
void weir_ptx_names_finish(struct weir_ptx_names *names);

void weir_ptx_names_open(struct weir_ptx_names *names);
void weir_ptx_names_close(struct weir_ptx_names *names);

/** Find the innermost entry of a name (ranges are searched separately); NULL: none. */
struct weir_ptx_name *weir_ptx_names_find(const struct weir_ptx_names *names, const char *text,
                                          size_t len, bool range);

/**
 * Declare a name in the innermost scope. It does not look for duplicates.
 * @return the entry, to be filled by the caller, or NULL when out of memory.
 */
struct weir_ptx_name *weir_ptx_names_add(struct weir_ptx_names *names, const char *text, size_t len,
                                         enum weir_ptx_name_kind kind);

/* A map from (declaration, member) to register id. It is separate, so that a range only costs
 * memory for used members. */
struct weir_ptx_regmap {
    struct weir_ptx_regmap_slot {
        uint64_t key; /* 0: free */
        uint32_t id;
    } * slots;
    size_t n_slots;
    size_t n_used;
    uint64_t seed;
};

/** Find the place of a key (never 0), or make it with id UINT32_MAX; NULL: out of memory. */
uint32_t *weir_ptx_regmap_get(struct weir_ptx_regmap *map, uint64_t key);
void weir_ptx_regmap_finish(struct weir_ptx_regmap *map);
