/* What run.c, run_pool.c and run_watch.c share. */
#ifndef WEIR_HOST_BACKEND_WORKER_RUNS_RUN_PRIVATE_H
#define WEIR_HOST_BACKEND_WORKER_RUNS_RUN_PRIVATE_H

#include "host_backend/worker/runs/run.h"
#include "ptx/twin/control_block.h"
#include <pthread.h>

#define WEIR_RUN_CHUNK_SLOTS  256u
#define WEIR_RUN_CHUNKS_MAX   64u
#define WEIR_RUN_LANES_MAX    32u /* bits of weir_run.lanes */
#define WEIR_RUN_PARAMS_BYTES 512u

struct weir_run {
    struct weir_run *next, *previous; /* the list of runs under way, the oldest first */
    struct weir_runs *runs;
    struct weir_run_chunk *chunk;
    uint32_t slot;
    uint32_t refs; /* refs and all members below: under the runs' lock */
    enum weir_run_state state;
    bool linked;      /* the run is in the list */
    bool plain;       /* never restricted, stopped or resized: the first grid does all the work */
    bool first_gone;  /* the grid in the guest's stream has ended */
    bool begun;       /* a block has begun */
    bool no_stop;     /* do not stop the run: its owner is ending, or it did not stop before */
    bool withdrawn;   /* the run stops for good (weir_runs_withdraw()) */
    bool let_on;      /* a withdrawn run's stream has been told to go on */
    bool want_resume; /* resume once the run has stopped and there is a lane */
    bool want_grow;   /* launch more grids once the run has begun */
    bool want_ask;    /* ask for the place again once the device has reached what a lane asks */
    bool sure;        /* a grid exists, or is to come, that nothing keeps from finishing the run */
    bool sent;        /* such a grid was launched since a caller wants the device idle */
    bool replaced;    /* the place differs from the one in the parameters */
    bool stuck;       /* the run was told to stop too long ago */
    bool told_finished;
    int priority; /* priority of the guest's stream at the launch */
    uint32_t restarts;
    uint32_t ways;  /* further lanes that were tried since one was reached */
    uint32_t lanes; /* bit mask of the lanes that have a grid of the run */
    uint32_t next_block, done_blocks, workers; /* as last read from the device */
    uint64_t started_ns, finished_ns, stop_ns, lease_end_ns;
    struct weir_run_place place;
    struct weir_run_params p; /* p.arguments points into params below */
    struct weir_ptx_form_args args;
    CUevent before;  /* owned by the slot: recorded before the first grid */
    CUevent first;   /* owned by the slot: recorded behind the first grid */
    uint8_t *params; /* the twin's parameters: inside, or from malloc() */
    uint8_t inside[WEIR_RUN_PARAMS_BYTES];
};

enum weir_run_chunk_state {
    WEIR_RUN_CHUNK_OPEN,    /* slots are handed out in order */
    WEIR_RUN_CHUNK_FULL,    /* no slot is left; lasts until all the chunk's runs have ended */
    WEIR_RUN_CHUNK_ZEROING, /* lasts until the event */
    WEIR_RUN_CHUNK_READY,
};

/* Control blocks, and what goes with each. They are zeroed all together. */
struct weir_run_chunk {
    CUdeviceptr control; /* WEIR_RUN_CHUNK_SLOTS of struct weir_ptx_control */
    uint32_t *passed;    /* host memory, written by the GPU: not 0 when the stream has gone on */
    CUdeviceptr passed_dptr;
    enum weir_run_chunk_state state;
    uint32_t used, live;
    CUevent zeroed;
    struct weir_run runs[WEIR_RUN_CHUNK_SLOTS];
};

/* A stream of ours for further grids of a run. */
struct weir_run_lane {
    CUstream stream;
    int priority;    /* the run's stream priority: a grid must not overtake others' blocks */
    CUevent asked;   /* recorded in the control stream before the grid */
    CUevent reached; /* recorded right before the grid */
    CUevent event;   /* recorded behind the grid */
    bool is_reached;
    uint64_t given_ns;    /* when the grid was put into the lane */
    struct weir_run *run; /* NULL: free */
};

struct weir_runs {
    const struct weir_driver *driver;
    CUcontext context;
    uint32_t sms;
    struct weir_run_streams *streams;
    CUstream control; /* stream for stopping, resizing and reading */
    CUstream keeping; /* stream for zeroing */
    uint32_t *words;  /* host memory for reading: {next, ask, done, workers, finished} */

    pthread_mutex_t lock; /* guards what follows; driver calls that do not wait are made under it */
    pthread_cond_t work;  /* the watcher has something to look at */
    pthread_cond_t ended; /* a run is gone or goes on */
    pthread_t watcher;
    bool watching, quit, idle;
    struct weir_run_chunk *chunks[WEIR_RUN_CHUNKS_MAX];
    uint32_t n_chunks, open; /* open is the index of the chunk in use */
    struct weir_run_lane lanes[WEIR_RUN_LANES_MAX];
    uint32_t n_lanes;
    struct weir_run *first, *last; /* the list of runs under way */
    uint32_t idle_wanted;          /* number of callers that want every run to finish without us */
    uint32_t starting;             /* runs that began to start before idle_wanted grew */
    struct weir_runs_counts counts;
};

/* run_pool.c */

/** A slot with a control block of zeroes and one reference, or NULL. */
struct weir_run *weir_run_take_locked(struct weir_runs *runs);
/** Drop a reference; the slot is used again when its whole chunk is. */
void weir_run_drop_locked(struct weir_run *run);
/** Zero chunks whose runs have all ended, and find those that are zeroed. */
void weir_run_chunks_look_locked(struct weir_runs *runs);
/** Is one being zeroed? */
bool weir_run_chunks_busy_locked(const struct weir_runs *runs);
void weir_run_chunks_finish(struct weir_runs *runs);
/** Make the first lanes. */
bool weir_run_lanes_init(struct weir_runs *runs);
/** A free lane, for this run; or NULL: all are in use. */
struct weir_run_lane *weir_run_lane_take_locked(struct weir_run *run);
/** Lanes whose grids have ended are free again. */
void weir_run_lanes_look_locked(struct weir_runs *runs);
void weir_run_lanes_finish(struct weir_runs *runs);
/** Has the device got to the grids of the run that are in lanes? True of none, too. */
bool weir_run_lanes_are_reached_locked(struct weir_run *run);
/** Has it got to none of them, for long? */
bool weir_run_lanes_are_blocked_locked(struct weir_run *run);

static inline CUdeviceptr weir_run_control(const struct weir_run *run)
{
    return run->chunk->control + run->slot * sizeof(struct weir_ptx_control);
}

/* run.c */

/** Is one stopped, or about to be? */
bool weir_runs_any_stopped_locked(const struct weir_runs *runs);

/** Put one more grid of a run into a stream. */
CUresult weir_run_launch(struct weir_run *run, CUstream stream);
/** Start a further grid on a lane. CUDA_ERROR_NOT_READY: there is none free. */
CUresult weir_run_again_locked(struct weir_run *run);
CUresult weir_run_resume_locked(struct weir_run *run);
/** Write what the kernel is asked for, in the order of a stream. */
CUresult weir_run_ask(struct weir_run *run, CUstream stream, bool stop);

/* run_watch.c */
void *weir_runs_watch(void *runs);

#endif
