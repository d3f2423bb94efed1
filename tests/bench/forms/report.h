/*
 * What was measured, as plain data in memory that the measuring process shares with the one that
 * started it: if the former ends before its time, what it had found is not lost.
 */
#pragma once

#include "tests/bench/forms/forms.h"

#include <stdio.h>

#define WEIR_FORMS_MAX_KERNELS  16u
#define WEIR_FORMS_MAX_VARIANTS 32u
#define WEIR_FORMS_NONE         UINT32_MAX

/* What is asked of the chosen form: issue 4, and FLEP's evaluation. */
#define WEIR_FORMS_GOAL_MEAN_PCT  1.0
#define WEIR_FORMS_GOAL_WORST_PCT 4.0
#define WEIR_FORMS_GOAL_P50_US    15.0 /* above one block */
#define WEIR_FORMS_GOAL_P99_US    40.0
#define WEIR_FORMS_GOAL_SAVED_PCT 31.0
#define WEIR_FORMS_GOAL_RESIZE_US 50.0

#define WEIR_FORMS_LATE_US 10.0 /* a thread that spins and is not seen for so long did not run */

/* A form with its setting: blocks of a task. */
struct weir_forms_variant {
    uint32_t build; /* enum weir_forms_build */
    uint32_t setting;
};

/* The way in which the worker would launch a kernel after a while, of any input. */
struct weir_forms_choice {
    bool is_made;
    uint32_t build;                            /* enum weir_forms_build */
    uint64_t kernel_ns;                        /* of a block, as the worker measures it */
    uint64_t block_ns[WEIR_FORMS_BUILD_COUNT]; /* .. of each build that the worker may launch */
};

struct weir_forms_timing {
    struct weir_forms_variant variant;
    bool ran;
    bool equal;           /* every word of the outputs is what the original wrote */
    uint32_t differences; /* words, where not */
    bool in_bounds;       /* if not equal: right by the host's computation all the same */
    double us;            /* median */
    double ratio;         /* median of the ratios to the original's time in the same round */
    double spread;        /* half of the distance between the quartiles of these */
};

/* Median, 99th percentile and maximum, microseconds. */
struct weir_forms_times {
    uint32_t n;
    double p50, p99, max;
};

/* Ways in which the host can write a word into the device's memory. */
enum weir_forms_way {
    WEIR_FORMS_WAY_WRITE, /* cuStreamWriteValue32 */
    WEIR_FORMS_WAY_SET,   /* cuMemsetD32Async */
    WEIR_FORMS_WAY_COPY,  /* cuMemcpyHtoDAsync, from pinned memory */
    WEIR_FORMS_WAY_COUNT
};

/* "write" .. */
extern const char *const weir_forms_way_names[WEIR_FORMS_WAY_COUNT];

struct weir_forms_stops {
    struct weir_forms_variant variant;
    struct weir_forms_times
        latency;                    /* from the host's decision to the GPU free, seen by the host */
    struct weir_forms_times device; /* of that, from the write to the end, by the GPU's clock */
    uint32_t host_late;             /* of these, with the host's thread held up at some point */
    uint32_t runs;                  /* from begin to end */
    uint32_t wrong;                 /* of these, with other results than the original */
    int64_t blocks_twice;           /* done more than there are, of all runs */
    double lost_us;                 /* of the form's time, for each stop */
};

/* Stopped, moved, resized and resumed at random, with other work between. */
struct weir_forms_mixed {
    uint32_t runs, starts, wrong;
    int64_t blocks_twice;
};

struct weir_forms_resizes {
    struct weir_forms_times shrink; /* until no worker is on the SMs that were given up */
    struct weir_forms_times grow;   /* until all SMs hold workers again */
    uint32_t per_sm, sms_kept, sms;
    uint32_t wrong;
};

struct weir_forms_spatial {
    uint32_t sms_needed;
    double alone_us;     /* the large kernel undisturbed */
    double other_us;     /* the small kernel alone */
    double all_us;       /* the large one when it yields all SMs, decision to decision */
    double some_us;      /* .. only those needed */
    double other_all_us; /* the small one, from the decision to its end */
    double other_some_us;
    uint32_t n;
    uint32_t wrong;
};

enum weir_forms_state {
    WEIR_FORMS_NOT_BEGUN,
    WEIR_FORMS_BEGUN,
    WEIR_FORMS_DONE,
    WEIR_FORMS_FAILED,
    WEIR_FORMS_SKIPPED
};

/* A kernel with an input of a size. */
struct weir_forms_item {
    uint32_t state; /* enum weir_forms_state */
    char note[256]; /* what failed */
    uint32_t blocks;
    double original_us;
    double block_us; /* of one block among as many as fit on the GPU */
    uint32_t n_timings;
    struct weir_forms_timing timings[WEIR_FORMS_MAX_VARIANTS];
    uint32_t rounds;
    uint32_t candidates; /* bit per timing: what the worker would try */
    uint32_t chosen;     /* index of timings, or WEIR_FORMS_NONE */
    struct weir_forms_stops stops, ticket_stops;
    struct weir_forms_mixed mixed;
    struct weir_forms_resizes resizes;
    struct weir_forms_spatial spatial;
};

struct weir_forms_results {
    char device[128];
    int32_t driver_version;
    int32_t sms;
    uint32_t stop_by;                                   /* enum weir_forms_way */
    struct weir_forms_times ways[WEIR_FORMS_WAY_COUNT]; /* there and back, the GPU idle */
    struct {
        struct weir_forms_facts facts[WEIR_FORMS_BUILD_COUNT];
        double make_ms, load_ms;
        struct weir_forms_choice choice; /* with the large input, for all others */
        uint32_t unusable;               /* bit per form that faulted or hung */
    } kernels[WEIR_FORMS_MAX_KERNELS];
    struct weir_forms_item items[WEIR_FORMS_MAX_KERNELS][WEIR_FORMS_SIZE_COUNT];
    volatile uint32_t started; /* form that was started last */
    volatile uint32_t begun;   /* items looked at so far, the present one included */
    volatile uint64_t beat_ns; /* when the measuring process last said that it lives */
};

/** Sort and summarise n samples. */
struct weir_forms_times weir_forms_times_of(double *samples, uint32_t n);

/** Where lines of JSON go. */
void weir_forms_json_open(FILE *out);

/** Write a line: {"kind": kind, fields}; fields in printf's form, JSON. */
void weir_forms_json(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** "persistent 4" .. */
const char *weir_forms_variant_text(const struct weir_forms_variant *variant, char text[32]);

/** Write all as Markdown. */
void weir_forms_markdown(const struct weir_forms_results *results, FILE *out);

/** How many items failed, or compared unequal. */
uint32_t weir_forms_failures(const struct weir_forms_results *results);
