/* Types and functions that run.c, run_pool.c and run_watch.c share. */
#pragma once

#include "base/thread.h"
#include "host_backend/worker/runs/run.h"
#include "ptx/twin/control_block.h"

#define WEIR_RUN_CHUNK_SLOTS  256u
#define WEIR_RUN_CHUNKS_MAX   64u
#define WEIR_RUN_LANES_MAX    32u /* bits of weir_run.lanes */
#define WEIR_RUN_PARAMS_BYTES 512u

struct weir_run {
    struct weir_run *next, *previous; /* the list of runs under way, the oldest first */
    struct weir_runs *runs;
    struct weir_run_chunk *chunk;
    uint32_t slot;
    uint32_t refs; /* the runs' lock guards refs and all members below */
    enum weir_run_state state;
    bool linked;     /* the run is in the list */
    bool plain;      /* never restricted, stopped or resized: the first grid does all the work */
    bool first_gone; /* the grid in the guest's stream has ended */
    bool begun;      /* a block has begun */
    bool sure;       /* a grid exists, or will, that certainly finishes the run */
    bool sent;       /* such a grid was launched after a caller asked for an idle device */
    bool replaced;   /* the place differs from the one in the parameters */
    struct {
        bool resume; /* resume the run once it has stopped and there is a lane */
        bool grow;   /* launch more grids once the run has begun */
        bool ask;    /* write the place again once the device has reached the lane's order */
    } want;
    struct {
        bool no_stop;   /* never stop it: its owner is ending, or it did not stop before */
        bool withdrawn; /* the run stops for good (weir_runs_withdraw()) */
        bool let_on;    /* the stream of the withdrawn run was allowed to continue */
        bool stuck;     /* the run was told to stop too long ago */
        bool told_finished;
    } end;
    int priority; /* priority of the guest's stream at the launch */
    uint32_t restarts;
    uint32_t ways;  /* further lanes that were tried since the device reached one */
    uint32_t lanes; /* bit mask of the lanes that have a grid of the run */
    struct {
        uint32_t next, done, workers;
    } blocks; /* as last read from the device */
    struct {
        uint64_t started_ns, finished_ns, stop_ns, lease_end_ns;
    } time;
    struct weir_run_place place;
    struct weir_run_params p; /* p.arguments points into params below */
    struct weir_ptx_form_args args;
    struct {
        CUevent before; /* recorded before the first grid */
        CUevent first;  /* recorded behind the first grid */
    } events;           /* owned by the slot */
    uint8_t *params;    /* the twin's parameters: inside, or from malloc() */
    uint8_t inside[WEIR_RUN_PARAMS_BYTES];
};

enum weir_run_chunk_state {
    WEIR_RUN_CHUNK_OPEN,    /* slots are handed out in order */
    WEIR_RUN_CHUNK_FULL,    /* no slot is left, and some of its runs have not ended */
    WEIR_RUN_CHUNK_ZEROING, /* zeroing has begun, and its event is pending */
    WEIR_RUN_CHUNK_READY,
};

/* Control blocks, with what belongs to each. They are zeroed together. */
struct weir_run_chunk {
    CUdeviceptr control; /* WEIR_RUN_CHUNK_SLOTS of struct weir_ptx_control */
    uint32_t *passed;    /* host memory that the GPU writes: not 0 once the stream continued */
    CUdeviceptr passed_dptr;
    enum weir_run_chunk_state state;
    uint32_t used, live;
    CUevent zeroed;
    struct weir_run runs[WEIR_RUN_CHUNK_SLOTS];
};

/* A stream of the worker for further grids of runs. */
struct weir_run_lane {
    CUstream stream;
    int priority;    /* the run's stream priority: its grid must not pass others' blocks */
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
    pthread_cond_t ended; /* a run has ended or continues */
    pthread_t watcher;
    bool watching, quit, idle;
    struct weir_run_chunk *chunks[WEIR_RUN_CHUNKS_MAX];
    uint32_t n_chunks, open; /* open is the index of the chunk in use */
    struct weir_run_lane lanes[WEIR_RUN_LANES_MAX];
    uint32_t n_lanes;
    struct weir_run *first, *last; /* the list of runs under way */
    uint32_t idle_wanted;          /* callers that need every run to finish by itself */
    uint32_t starting;             /* runs whose start began before idle_wanted grew */
    struct weir_runs_counts counts;
};

/* run_pool.c */

/** Take a slot with a zeroed control block and one reference; NULL: none. */
struct weir_run *weir_run_take_locked(struct weir_runs *runs);
/** Drop a reference; the slot is reused together with its whole chunk. */
void weir_run_drop_locked(struct weir_run *run);
/** Zero chunks whose runs have all ended, and mark the chunks that are zeroed. */
void weir_run_chunks_look_locked(struct weir_runs *runs);
/** Is a chunk being zeroed? */
bool weir_run_chunks_busy_locked(const struct weir_runs *runs);
void weir_run_chunks_finish(struct weir_runs *runs);
/** Make the first lanes. */
bool weir_run_lanes_init(struct weir_runs *runs);
/** Take a free lane for this run; NULL: all are in use. */
struct weir_run_lane *weir_run_lane_take_locked(struct weir_run *run);
/** Free the lanes whose grids have ended. */
void weir_run_lanes_look_locked(struct weir_runs *runs);
void weir_run_lanes_finish(struct weir_runs *runs);
/** Has the device reached the run's grids in lanes? True if there are none. */
bool weir_run_lanes_are_reached_locked(struct weir_run *run);
/** Has it reached none of these grids for long? */
bool weir_run_lanes_are_blocked_locked(struct weir_run *run);

static inline CUdeviceptr weir_run_control(const struct weir_run *run)
{
    return run->chunk->control + run->slot * sizeof(struct weir_ptx_control);
}

/* run.c */

/** Is a run stopped, or about to be? */
bool weir_runs_any_stopped_locked(const struct weir_runs *runs);

/** Start a further grid on a lane. CUDA_ERROR_NOT_READY: no lane is free. */
CUresult weir_run_again_locked(struct weir_run *run);
CUresult weir_run_resume_locked(struct weir_run *run);
/** Write orders to the kernel, as an operation of a stream. */
CUresult weir_run_ask(struct weir_run *run, CUstream stream, bool stop);

/* run_watch.c */
void *weir_runs_watch(void *runs);
