/* Types and functions that predict.c and predict_file.c share. */
#pragma once

#include "sched/predict.h"
#include "sched/tuning.h"

/*
 * Sums over observations of size x and time y. Each is weighted 1 / y^2, so that the line through
 * them has the least relative error: 2 % of a copy of 4 bytes counts like 2 % of 4 GB. Where the
 * same size takes different times (one kernel, other arguments) that line is below their mean, and
 * sums of predictions would be too small. So the line is raised until its predictions of all
 * observations sum up to the observed times. The unweighted sums serve for this.
 */
struct model {
    double w, wx, wy, wxx, wxy;
    double n, x, y; /* not weighted */
    uint64_t samples;
};

struct entry {
    uint64_t key;
    uint32_t class;        /* enum weir_sched_class */
    uint32_t owner;        /* index of its owner */
    uint32_t chain;        /* index + 1 of the next entry in the bucket or the free list */
    uint32_t newer, older; /* index + 1 of the owner's next newer and older entry */
    bool supposed;         /* the model comes from disturbed observations */
    uint32_t seen;         /* number of undisturbed observations */
    uint32_t agreed;       /* how many of them in a row agreed with the prediction */
    uint64_t size;         /* size in the last observation */
    struct model model;
};

/* An owner of keys. The first has no name and owns the keys that belong to nobody. */
struct owner {
    char name[WEIR_PREDICT_NAME_BYTES];
    bool in_use;
    uint32_t count;          /* number of its entries */
    uint32_t newest, oldest; /* index + 1 of its most and least recently used entry */
};

/* Errors of predictions, counted in bins that grow by 2^(1/16) each from 2^-10 on. */
#define ERROR_BINS       256u
#define ERROR_BIN_FIRST  (-10.0)
#define ERROR_BINS_TWICE 16.0

struct errors {
    double sum;
    uint64_t count;
    uint32_t bin[ERROR_BINS];
};

struct weir_predict {
    uint32_t capacity, count;
    uint32_t made, free; /* entries ever used; index + 1 of the first free one */
    uint32_t bucket_mask;
    uint32_t *bucket; /* index + 1 of an entry */
    struct entry *entry;
    struct owner *owner;
    uint32_t n_owners, owners_room;
    uint64_t asked, known, learned;
    struct errors kernels, copies;
};

/* Find a key's entry, or make it if `make`, and make it its owner's newest; NULL: there is none. */
struct entry *predict_entry(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                            bool make);
/* Index of a key's owner; 0: nobody. */
uint32_t predict_owner_of(const struct weir_predict *predict, uint64_t key);
/* Index of the owner with a name, which is made if there is none; 0: there is no room. */
uint32_t predict_owner_named(struct weir_predict *predict, const char *name);

bool predict_is_sure(const struct entry *entry);
