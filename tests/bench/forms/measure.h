/* The measurements. */
#pragma once

#include "tests/bench/forms/report.h"

/* Where and how to measure. */
struct weir_forms_bench {
    CUstream main;    /* of the kernel under measurement */
    CUstream other;   /* of its neighbours */
    CUstream control; /* of writes into control blocks */
    CUstream watcher;
    CUevent begin, end;
    CUevent stopped, freed; /* behind the write that stops, behind the kernel */
    uint32_t sms;
    uint32_t max_shared; /* that a block may ask for */
    bool quick;
    uint32_t n_stops;
    uint64_t seed;
    enum weir_forms_way stop_by;
    struct weir_forms_results *results;
};

/* One kernel with one input, loaded. */
struct weir_forms_subject {
    struct weir_forms_set *set;
    struct weir_forms_work *work;
    struct weir_forms_item *item;
    uint32_t unusable; /* bit per form that is left out */
};

/** Workers of a persistent form: as many as fit, but none without a task. */
uint32_t weir_forms_workers(const struct weir_forms_bench *bench,
                            const struct weir_forms_subject *subject,
                            const struct weir_forms_variant *variant);

/** What is asked of a variant that has the whole GPU:
 * something, where it looks before each task. */
uint32_t weir_forms_rest(const struct weir_forms_subject *subject,
                         const struct weir_forms_variant *variant);

/** In the main stream: the first count control blocks as they are before a launch of a variant. */
bool weir_forms_controls_begin(const struct weir_forms_bench *bench,
                               const struct weir_forms_subject *subject,
                               const struct weir_forms_variant *variant, uint32_t count);

/** The parameter of a start from the beginning. */
bool weir_forms_args(const struct weir_forms_subject *subject,
                     const struct weir_forms_variant *variant, uint32_t control,
                     struct weir_ptx_form_args *ret_args);

/** Run a variant from begin to end in the main stream, not waiting for it. */
bool weir_forms_run(const struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                    const struct weir_forms_variant *variant, uint32_t control);

/** Whether a form is one of the persistent ones. */
bool weir_forms_is_loop(uint32_t build);

/** Bits that look random. */
uint32_t weir_forms_random(struct weir_forms_bench *bench);

/**
 * Time the original and its twins in turn, for about budget_s. Fills the item's timings and what is
 * chosen.
 *
 * The choice is the worker's (host_backend/worker/twins/choose_variant.c): the persistent form as
 * it is, capped and roomy, with tasks as long as a stop may wait for, of which the fastest stays;
 * or ticket, where there is no other.
 *
 * @param choice  made here, if it is not; else it is that, and few others are timed.
 */
bool weir_forms_measure_overhead(struct weir_forms_bench *bench,
                                 const struct weir_forms_subject *subject,
                                 struct weir_forms_choice *choice, double budget_s);

/** Time the ways to write a word: until the host sees another word, written behind. */
bool weir_forms_measure_ways(struct weir_forms_bench *bench, uint32_t n);

/** Stop and resume a variant n_stops times, for at most budget_s. */
bool weir_forms_measure_stops(struct weir_forms_bench *bench,
                              const struct weir_forms_subject *subject,
                              const struct weir_forms_variant *variant, uint32_t n_stops,
                              double budget_s, struct weir_forms_stops *ret_stops);

/** Stop, run another kernel, move, resize and resume at random. Fills the item's mixed. */
bool weir_forms_measure_mixed(struct weir_forms_bench *bench,
                              const struct weir_forms_subject *subject, uint32_t runs,
                              double budget_s);

/** Resize the chosen form from all SMs to half of them and back. Fills the item's resizes. */
bool weir_forms_measure_resizes(struct weir_forms_bench *bench,
                                const struct weir_forms_subject *subject, uint32_t n,
                                double budget_s);

/** Yield all SMs, or only those needed, to a small kernel. Fills the item's spatial. */
bool weir_forms_measure_spatial(struct weir_forms_bench *bench,
                                const struct weir_forms_subject *subject, uint32_t n,
                                double budget_s);
