/* What predict.c and predict_file.c share. */
#ifndef WEIR_SCHED_PREDICT_PRIVATE_H
#define WEIR_SCHED_PREDICT_PRIVATE_H

#include "sched/predict.h"

/*
 * Weighted sums over what was seen of size x and time y, each weighted 1 / y^2, so that the line
 * through them has the least relative error: 2 % of a copy of 4 bytes counts like 2 % of 4 GB.
 * Where the same size takes different times (one kernel, other arguments) that is below their mean,
 * and sums of predictions would be too small: so the line is raised until what it says of all that
 * was seen comes to what all took, for which there are the sums that are not weighted.
 */
struct model {
    double w, wx, wy, wxx, wxy;
    double n, x, y; /* not weighted */
    double error;   /* mean relative error of what was predicted before each observation */
    uint64_t samples;
};

struct entry {
    uint64_t key;
    uint32_t class;        /* enum weir_sched_class */
    uint32_t owner;        /* its place */
    uint32_t chain;        /* index + 1 of the next in the bucket, or in the free list */
    uint32_t newer, older; /* index + 1, of the same owner */
    bool supposed;         /* the model is of disturbed observations */
    uint32_t seen;         /* undisturbed ones */
    uint32_t agreed;       /* of the last of them, with what had been said before */
    uint64_t size;         /* of the last one */
    struct model model;
};

/* Whose keys they are. The first has no name: keys of nobody in particular. */
struct owner {
    char name[WEIR_PREDICT_NAME_BYTES];
    bool in_use;
    uint32_t count;          /* of its entries */
    uint32_t newest, oldest; /* index + 1 */
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
    uint32_t made, free; /* entries that were ever in use; of those that are not: index + 1 */
    uint32_t bucket_mask;
    uint32_t *bucket; /* index + 1 */
    struct entry *entry;
    struct owner *owner;
    uint32_t n_owners, owners_room;
    uint64_t asked, known, learned;
    struct errors kernels, copies;
};

/* The entry of a key, made if `make`, moved to its owner's newest; NULL: there is none. */
struct entry *predict_entry(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                            bool make);
/* Whose key that is. */
uint32_t predict_owner_of(const struct weir_predict *predict, uint64_t key);
/* Of a name, made if there is none; 0: there is no room for it. */
uint32_t predict_owner_named(struct weir_predict *predict, const char *name);

bool predict_is_sure(const struct entry *entry);

#endif
