/*
 * A model of a GPU, on a virtual clock: kernels on SMs, a copy engine for each direction.
 *
 * Work goes through one queue per stream. Each kernel is a fluid: it holds shares of SMs, and its
 * rate follows from them. The model does not schedule: the caller decides what starts, stops and
 * changes its size. The same calls give the same times.
 *
 * Owner thread only. Source: docs/design/simulation.md
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most SMs of a model. */
#define WEIR_SIM_SMS_MAX 512u

/* The columns of gpus.def, which explains them. */
struct weir_sim_gpu_params {
    const char *name;
    const char *about;
    uint32_t sms;
    uint64_t h2d_mb_s;
    uint64_t d2h_mb_s;
    uint64_t launch_ns;
    uint64_t notice_ns;
    uint64_t h2d_ns;
    uint64_t d2h_ns;
    uint64_t stop_ns;
    uint64_t resume_ns;
    uint64_t drain_ps; /* for each warp */
    uint64_t switch_ns;
    uint64_t wake_ns; /* this and spin_ns are used by the caller that starts work */
    uint64_t spin_ns;
};

/**
 * Find parameters by name, with settings behind it: "h200" or "h200,sms=66,stop_ns=5000".
 *
 * @param text        a name of gpus.def, then any of its columns with another value.
 * @param ret_params  on success; its texts are static.
 * @param ret_error   256 bytes; what is wrong, else untouched.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no such GPU), WEIR_ERR_INVALID (setting)
 * @thread any
 */
enum weir_status weir_sim_gpu_find(const char *text, struct weir_sim_gpu_params *ret_params,
                                   char *ret_error) WEIR_MUST_CHECK;

/**
 * Change one figure.
 * @param text  "stop_ns=5000", of so many characters: a column of gpus.def.
 * @return WEIR_OK, WEIR_ERR_INVALID (no such column, or not a value of it)
 * @thread any
 */
enum weir_status weir_sim_gpu_set(struct weir_sim_gpu_params *params, const char *text,
                                  size_t length) WEIR_MUST_CHECK;

/** The i-th row of gpus.def, or NULL behind the last. @thread any */
const struct weir_sim_gpu_params *weir_sim_gpu_at(size_t i);

enum weir_sim_engine {
    WEIR_SIM_COMPUTE,
    WEIR_SIM_H2D,
    WEIR_SIM_D2H,
    WEIR_SIM_ENGINES,
};

/* A piece of work as the GPU sees it. */
struct weir_sim_work {
    enum weir_sim_engine engine;
    uint64_t owner;    /* its tenant; only passed on to the watcher */
    uint32_t stream;   /* work of one stream runs in the order of its starts */
    uint32_t rank;     /* stream priority: the higher one gets SMs first */
    bool graph;        /* compute: a CUDA graph of small kernels; see gpu_share.c */
    uint32_t context;  /* compute: kernels of one context only are on the SMs at a time */
    uint64_t delay_ns; /* time until it is launched */
    uint64_t bytes;    /* size of a copy */
    uint64_t sm_ns;    /* compute: SM-nanoseconds of all its blocks, undisturbed */
    uint32_t blocks;   /* compute; 1 or more */
    uint32_t block_threads;
    uint32_t blocks_per_sm; /* how many fit on an SM; 1 or more */
    uint32_t task_blocks;   /* persistent form: blocks of a task, which a stop waits for; 0: 1 */
    bool one_shot;          /* ticket form: at a stop the other blocks begin and end at once */
    bool has_peers;         /* compute: from its beginning until weir_sim_gpu_release() it only
                               holds its SMs, since it waits for kernels on other GPUs */
    /* need: the part of its blocks on an SM that is enough for full speed (0 means 1). memory:
     * the part of the GPU's bandwidth that it uses alone. Both 0 .. 1. */
    double need;
    double memory;
};

/* The SMs for a unit; sm_count 0: all of them; block_limit 0: as many blocks on an SM as fit. */
struct weir_sim_place {
    uint32_t sm_first;
    uint32_t sm_count;
    uint32_t block_limit;
};

enum weir_sim_event_kind {
    WEIR_SIM_FINISHED, /* the host knows this notice_ns later than the GPU */
    WEIR_SIM_STOPPED,
    WEIR_SIM_BEGUN, /* work that has peers holds SMs for the first time; told at once */
};

struct weir_sim_event {
    enum weir_sim_event_kind kind;
    uint64_t id;          /* as given to start */
    uint64_t at_ns;       /* when the host knows */
    uint64_t begun_ns;    /* when the work first began to run on the GPU */
    uint64_t ended_ns;    /* when the work finished or stopped there */
    uint32_t done_blocks; /* compute: blocks done */
};

/* A unit held a share of each SM in [sm_first, sm_first + sm_count) for a time. */
struct weir_sim_hold {
    uint64_t id;
    uint64_t owner;
    uint64_t from_ns;
    uint64_t to_ns;
    uint32_t sm_first;
    uint32_t sm_count;
    float share; /* part of each SM, 0 .. 1 */
};

/* The use of the GPU until now. */
struct weir_sim_usage {
    uint64_t now_ns;
    double sm_ns;                       /* SM-nanoseconds held */
    double peers_sm_ns;                 /* of these, held by work that waited for its peers */
    double dram_ns;                     /* full-bandwidth nanoseconds */
    double engine_ns[WEIR_SIM_ENGINES]; /* busy time; for compute: any kernel at work */
    double idle_sm_ns; /* SM-nanoseconds free while compute was started or stopping */
    uint64_t switches; /* number of context changes */
};

/* Called with every piece of SM time held; NULL: not wanted. */
typedef void (*weir_sim_hold_fn)(void *user, const struct weir_sim_hold *hold);

struct weir_sim_gpu;

/**
 * @param params  copied.
 * @return WEIR_OK, WEIR_ERR_INVALID (no SMs, too many, no bandwidth), WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_sim_gpu_create(const struct weir_sim_gpu_params *params,
                                     struct weir_sim_gpu **ret_gpu) WEIR_MUST_CHECK;

/** Accepts NULL. */
void weir_sim_gpu_destroy(struct weir_sim_gpu *gpu);

/** Set the function that gets SM time held from now on. */
void weir_sim_gpu_watch(struct weir_sim_gpu *gpu, weir_sim_hold_fn hold, void *user);

/**
 * Put work into its stream.
 *
 * @param id  the caller's; not in use by work that has not finished.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_INVALID (geometry, place)
 */
enum weir_status weir_sim_gpu_start(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                    const struct weir_sim_work *work,
                                    const struct weir_sim_place *place) WEIR_MUST_CHECK;

/** Compute only. WEIR_SIM_STOPPED follows, or WEIR_SIM_FINISHED. WEIR_ERR_NOT_FOUND */
enum weir_status weir_sim_gpu_stop(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id);

/** Resume work that is stopping or stopped. WEIR_ERR_NOT_FOUND, WEIR_ERR_INVALID (place) */
enum weir_status weir_sim_gpu_resume(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                     const struct weir_sim_place *place);

/** Compute only, any time. WEIR_ERR_NOT_FOUND, WEIR_ERR_INVALID (place) */
enum weir_status weir_sim_gpu_resize(struct weir_sim_gpu *gpu, uint64_t now_ns, uint64_t id,
                                     const struct weir_sim_place *place);

/** The peers of work that has begun are there: it makes progress. WEIR_ERR_NOT_FOUND */
enum weir_status weir_sim_gpu_release(struct weir_sim_gpu *gpu, uint64_t id);

/** The time of the next event if nothing else is called; UINT64_MAX: none. */
uint64_t weir_sim_gpu_next_ns(const struct weir_sim_gpu *gpu);

/** Let time pass up to to_ns, which must be no later than weir_sim_gpu_next_ns(). */
void weir_sim_gpu_pass(struct weir_sim_gpu *gpu, uint64_t to_ns);

/**
 * Let time pass up to to_ns or to the next event, whichever is earlier.
 *
 * @return true: ret_event happened, and the time is ret_event->at_ns. false: the time is to_ns.
 */
bool weir_sim_gpu_advance(struct weir_sim_gpu *gpu, uint64_t to_ns,
                          struct weir_sim_event *ret_event);

/** End the run: report to the watcher the SM time held until now. */
void weir_sim_gpu_end(struct weir_sim_gpu *gpu);

void weir_sim_gpu_usage(const struct weir_sim_gpu *gpu, struct weir_sim_usage *ret_usage);
