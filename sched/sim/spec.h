/* What a line for the generator says: groups of tenants that are alike. */
#ifndef WEIR_SCHED_SIM_SPEC_H
#define WEIR_SCHED_SIM_SPEC_H

#include "base/status.h"
#include "sched/sched.h"
#include <stdbool.h>
#include <stdint.h>

/* A number that is drawn: from low to high, evenly among logarithms; or with an exponential
 * distribution of mean low. */
struct weir_sim_range {
    double low;
    double high;
    bool is_exponential;
};

enum weir_sim_arrivals {
    WEIR_SIM_LOOP,    /* the next when the last one (of `depth`) has finished, and think */
    WEIR_SIM_POISSON, /* rate tasks a second, whatever becomes of them */
    WEIR_SIM_BURST,   /* burst tasks at once, every period */
};

#define WEIR_SIM_OWN_CONTEXT UINT32_MAX

struct weir_sim_group {
    uint32_t line; /* where it begins in the text */
    uint32_t column;
    char name[48];
    uint32_t tenants;
    struct weir_sim_range weight;
    enum weir_priority priority;
    uint32_t sm_limit;
    uint32_t min_share;
    uint32_t context; /* GPU context of all of them; WEIR_SIM_OWN_CONTEXT: one for each */
    uint32_t streams;
    uint32_t keys;                   /* different kernels */
    struct weir_sim_range kernel_ns; /* alone; drawn for each key */
    struct weir_sim_range blocks;    /* likewise; 0: eight times what fits */
    uint32_t blocks_per_sm;
    struct weir_sim_range graph_sms; /* kernels are graphs that need so many SMs; 0: they are not */
    uint32_t flags;                  /* of the kernels: enum weir_sched_item_flags */
    double jitter; /* of each launch: its time lies within that part of the kernel's */
    double need, memory, tensor;
    uint32_t kernels;                /* of a task */
    struct weir_sim_range h2d_bytes; /* before them; 0: none */
    struct weir_sim_range d2h_bytes; /* behind them */
    uint64_t memory_bytes;           /* of a task */
    uint64_t cut_bytes;              /* copies come in pieces of so many; 0: whole */
    struct weir_sim_range stage_ns;  /* from the start of a piece until the next one comes */
    enum weir_sim_arrivals arrivals;
    struct weir_sim_range think_ns;
    uint32_t depth; /* tasks that are sent before the first of them is waited for */
    double rate;
    uint32_t burst;
    uint64_t period_ns;
    uint64_t start_ns;
    uint64_t items; /* that each of them sends, at most; 0: no end but the duration's */
    bool is_predicted;
};

/**
 * @param ret_groups  on success; free().
 * @param ret_diag    on WEIR_ERR_SYNTAX.
 * @return WEIR_OK, WEIR_ERR_SYNTAX, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sim_spec_parse(const char *spec, struct weir_sim_group **ret_groups,
                                     uint32_t *ret_n, struct weir_diag *ret_diag) WEIR_MUST_CHECK;

#endif
