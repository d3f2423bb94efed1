/*
 * Runs: launches in ticket or persistent form that can be stopped, resumed, moved and resized while
 * they are under way. What the scheduler works with.
 *
 * One struct weir_runs per device, internally locked. A run is counted: one reference is the
 * launch's own, dropped when nothing on the device can touch it any more; whoever else keeps a
 * pointer has one of his own. A thread (the watcher) sees what became of runs; it calls notify with
 * no lock held.
 *
 * Source: docs/design/preemption.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_RUNS_RUN_H
#define WEIR_HOST_BACKEND_WORKER_RUNS_RUN_H

#include "base/status.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "ptx/analysis.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_run;
struct weir_runs;

enum weir_run_state {
    WEIR_RUN_RUNNING,  /* or not begun yet: its stream is not there */
    WEIR_RUN_STOPPING, /* told to stop; some blocks are still at work */
    WEIR_RUN_STOPPED,  /* no block is at work; the stream behind it waits */
    WEIR_RUN_FINISHED, /* all blocks are done and the stream goes on */
};

enum weir_run_event {
    WEIR_RUN_HAS_STOPPED,
    WEIR_RUN_HAS_RESUMED, /* also when the watcher did it: the lease was over */
    WEIR_RUN_HAS_FINISHED,
    WEIR_RUN_DOES_NOT_STOP, /* not within the bound: it runs on, its kernel should not be trusted */
};

/* Where a run may work, and how. */
struct weir_run_place {
    uint32_t sm_first;
    uint32_t sm_count;    /* 0: all SMs */
    uint32_t block_limit; /* blocks of it per SM, 0: as many as fit. Persistent form */
    uint32_t task_blocks; /* blocks that a worker takes at once, 0: 1. At the start only */
};

/* Borrowed for the call of weir_run_start(). */
struct weir_run_params {
    enum weir_ptx_form form; /* TICKET, PERSISTENT */
    CUfunction twin;
    CUfunction finish;    /* WEIR_PTX_FINISH_NAME; of a ticket form */
    uint32_t args_offset; /* of the twin */
    uint32_t param_bytes; /* of the twin */
    uint32_t grid[3];     /* as the program made it */
    uint32_t block[3];
    bool look_always;         /* persistent: workers look at what is asked before each task */
    uint32_t shared_bytes;    /* dynamic, of the twin */
    uint32_t blocks_per_sm;   /* of the twin that fit on an SM; 1 or more */
    const uint8_t *arguments; /* of the kernel, packed */
    uint32_t argument_bytes;
    CUstream stream;
    struct weir_run_place place;
    bool timed;        /* only told back */
    const void *owner; /* whose it is, for weir_runs_release(); not looked into */
    void *user;        /* notify's first argument; must live until ended() */
    void (*notify)(void *user, struct weir_run *run, enum weir_run_event event); /* or NULL */
    void (*ended)(void *user); /* nothing of it is left, also when start fails; or NULL */
};

struct weir_run_info {
    enum weir_run_state state;
    bool begun;             /* a block has been taken; as last seen */
    bool timed;             /* as given */
    bool plain;             /* it was never stopped, resized, or given less than all SMs */
    uint32_t blocks_per_sm; /* as given */
    uint32_t total;         /* blocks */
    uint32_t done_blocks;   /* when stopped or finished; else as last seen */
    uint32_t workers;       /* of persistent ones: that had not left; as last seen */
    uint32_t grids;         /* further ones that have not ended */
    uint64_t started_ns;    /* when it was put into its stream */
    uint64_t finished_ns;   /* when that was seen */
    struct weir_run_place place;
};

/**
 * Make the runs of a device.
 *
 * @param context  of the device; current in the calling thread.
 * @param sms      its SMs.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER
 * @thread any with the context
 */
enum weir_status weir_runs_create(const struct weir_driver *driver, CUcontext context, uint32_t sms,
                                  struct weir_runs **ret_runs) WEIR_MUST_CHECK;

/** All runs must have ended, or the context be dead. Accepts NULL. @thread any with the context */
void weir_runs_destroy(struct weir_runs *runs);

/**
 * Put a launch into a stream; what comes behind it there waits until it is finished.
 *
 * @param ret_run  gives a reference; NULL: not wanted.
 * @return CUDA_SUCCESS
 * @return the driver's  nothing was launched; the original may be.
 * @thread any with the context; not on a stream under capture
 */
CUresult weir_run_start(struct weir_runs *runs, const struct weir_run_params *params,
                        struct weir_run **ret_run);

/**
 * Tell a run to stop; HAS_STOPPED follows, or HAS_FINISHED. Told again, only the lease is new.
 *
 * @param lease_ns  the watcher resumes it after that, whatever the caller has forgotten.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_PERMITTED  its owner goes, or it has finished.
 * @return CUDA_ERROR_NOT_READY      not now: somebody wants the device idle.
 * @return the driver's
 * @thread any with the context
 */
CUresult weir_run_stop(struct weir_run *run, uint64_t lease_ns);

/** Let a run go on where it stopped, or as soon as it has. @thread any with the context */
CUresult weir_run_resume(struct weir_run *run);

/**
 * Change where a run may work. Blocks elsewhere end their task and go; on SMs that are new to it
 * others are started. Of a stopped run: how it will be resumed. place.task_blocks is not changed.
 * @return CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED (ticket form), the driver's
 * @thread any with the context
 */
CUresult weir_run_resize(struct weir_run *run, const struct weir_run_place *place);

/** @thread any */
void weir_run_query(struct weir_run *run, struct weir_run_info *ret_info);
void weir_run_put(struct weir_run *run);

/** Runs of an owner (NULL: all) are resumed and never stopped again.
 * @thread any with the context */
void weir_runs_release(struct weir_runs *runs, const void *owner);

/**
 * Until weir_runs_device_idle_end() no run is stopped: those that are go on, and stopping is
 * refused.
 *
 * For calls in which the driver may wait for all of the device's work (loading and unloading code,
 * registering memory) while it keeps others out: a stopped run would then wait for us, and we for
 * it. A run that its stream has not reached yet makes nobody wait: it will find that it may go on.
 *
 * @param limit_ns  how long to wait for runs that need us, in nanoseconds; 0: not at all.
 * @return true     each run comes to its end without us.
 * @return false    one still needs us; weir_runs_device_idle_end() is owed all the same.
 * @thread any with the context
 */
bool weir_runs_device_idle_begin(struct weir_runs *runs, uint64_t limit_ns) WEIR_MUST_CHECK;
/** @thread any */
void weir_runs_device_idle_end(struct weir_runs *runs);

/** Wait until nothing of an owner's (NULL: anybody's) runs is left. @return false: timed out */
bool weir_runs_wait(struct weir_runs *runs, const void *owner, uint64_t timeout_ns);

struct weir_runs_counts {
#define WEIR_RUNS_ROW(name) uint64_t name;
#include "host_backend/worker/runs/counts.def"
#undef WEIR_RUNS_ROW
    uint32_t flying;
};

/** A stop was wanted of something that was launched as no run. @thread any */
void weir_runs_stop_missed(struct weir_runs *runs);
/** @thread any */
void weir_runs_count(struct weir_runs *runs, struct weir_runs_counts *ret_counts);

/** One of the runs under way, with a reference, or NULL. @param pick  any number. @thread any */
struct weir_run *weir_runs_pick(struct weir_runs *runs, uint32_t pick);

#endif
