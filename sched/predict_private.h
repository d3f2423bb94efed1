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
    uint32_t chain;        /* index + 1 of the next in the bucket */
    uint32_t newer, older; /* index + 1 */
    bool supposed;         /* the model is of disturbed observations */
    uint32_t seen;         /* undisturbed ones */
    uint32_t agreed;       /* of the last of them, with what had been said before */
    uint64_t size;         /* of the last one */
    struct model model;
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
    uint32_t bucket_mask;
    uint32_t newest, oldest; /* index + 1 */
    uint32_t *bucket;        /* index + 1 */
    struct entry *entry;
    uint64_t asked, known, learned;
    struct errors kernels, copies;
};

/* The entry of a key, made if `make`, moved to the newest; NULL: there is none. */
struct entry *predict_entry(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                            bool make);

#endif
