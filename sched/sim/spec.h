/* The input of the generator: groups of identical tenants. */
#pragma once

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
    WEIR_SIM_LOOP,    /* think_ns after the last of `depth` tasks has finished */
    WEIR_SIM_POISSON, /* `rate` tasks a second, even if earlier ones have not finished */
    WEIR_SIM_BURST,   /* `burst` tasks at once, every period_ns */
};

#define WEIR_SIM_OWN_CONTEXT UINT32_MAX

struct weir_sim_group {
    uint32_t line; /* the group's place in the text */
    uint32_t column;
    char name[48];
    uint32_t tenants;
    struct weir_sim_range weight;
    enum weir_priority priority;
    uint32_t sm_limit;
    uint32_t min_share;
    uint32_t context; /* GPU context of all of them; WEIR_SIM_OWN_CONTEXT: one for each */
    struct {
        uint32_t n;     /* on each GPU */
        uint32_t gpu;   /* the first GPU that they are on */
        uint32_t ranks; /* above 1: the tenant is a job, with its streams on so many GPUs */
        uint32_t gpus;  /* so often, on further GPUs, each for itself */
    } streams;
    uint32_t keys;                   /* number of different kernels */
    struct weir_sim_range kernel_ns; /* duration alone, drawn for each key */
    struct weir_sim_range blocks;    /* of a kernel, by key; 0: eight times what the GPU holds */
    uint32_t blocks_per_sm;
    struct weir_sim_range graph_sms; /* SMs that its graphs need; 0: it launches kernels */
    uint32_t flags;                  /* the kernels' enum weir_sched_item_flags */
    double jitter; /* a launch's time differs from the kernel's by at most this part */
    double need, memory;
    uint32_t kernels; /* number of kernels of a task */
    struct {
        struct weir_sim_range h2d;      /* bytes before the kernels; 0: none */
        struct weir_sim_range d2h;      /* bytes behind the kernels; 0: none */
        uint64_t cut_bytes;             /* size of the pieces; 0: whole copies */
        struct weir_sim_range stage_ns; /* the next piece arrives this long after one began */
    } copies;
    enum weir_sim_arrivals arrivals;
    struct weir_sim_range think_ns;
    uint32_t depth; /* tasks that are sent before the stream waits for the first of them */
    double rate;
    uint32_t burst;
    uint64_t period_ns;
    uint64_t start_ns;
    uint64_t items; /* most items of each stream; 0: only the duration ends it */
    bool is_predicted;
};

/**
 * @param ret_groups  on success; the caller frees it with free().
 * @param ret_diag    on WEIR_ERR_SYNTAX.
 * @return WEIR_OK, WEIR_ERR_SYNTAX, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sim_spec_parse(const char *spec, struct weir_sim_group **ret_groups,
                                     uint32_t *ret_n, struct weir_diag *ret_diag) WEIR_MUST_CHECK;
