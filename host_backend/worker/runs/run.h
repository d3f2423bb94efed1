/*
 * Runs: launches in ticket or persistent form. A run can be stopped, resumed, moved to other SMs
 * and resized while it is on the device.
 *
 * Each device has one struct weir_runs, which is internally locked. A run has a reference count.
 * The launch holds one reference until nothing on the device can touch the run any more; every
 * other pointer needs one of its own. A thread, the watcher, observes the runs, and calls notify
 * without holding a lock.
 *
 * Source: docs/design/preemption.md
 */
#pragma once

#include "base/status.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "ptx/analysis.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_run;
struct weir_run_streams;
struct weir_runs;

enum weir_run_state {
    WEIR_RUN_RUNNING,  /* the run is running, or its stream has not reached it yet */
    WEIR_RUN_STOPPING, /* the run was told to stop, but some blocks still run */
    WEIR_RUN_STOPPED,  /* no block runs, and the run's stream waits */
    WEIR_RUN_FINISHED, /* all blocks have ended, and the run's stream has continued */
};

enum weir_run_event {
    WEIR_RUN_HAS_STOPPED,
    WEIR_RUN_HAS_RESUMED, /* sent also when the watcher resumes the run at the end of its lease */
    WEIR_RUN_HAS_FINISHED,
    WEIR_RUN_DOES_NOT_STOP, /* the run did not stop in time and continues; never stop this kernel */
};

/* The SMs that a run may use, and how. */
struct weir_run_place {
    uint32_t sm_first;
    uint32_t sm_count;    /* the SMs */
    uint32_t block_limit; /* most blocks on an SM; 0: as many as fit. Persistent form only */
    uint32_t task_blocks; /* blocks that a worker block takes at once; 0: 1. Fixed at the start */
};

/* All members are borrowed for the call of weir_run_start(). */
struct weir_run_params {
    enum weir_ptx_form form; /* TICKET, PERSISTENT */
    CUfunction twin;
    CUfunction finish;    /* ticket form: the kernel named WEIR_PTX_FINISH_NAME */
    uint32_t args_offset; /* offset of struct weir_ptx_form_args in the twin's parameters */
    uint32_t param_bytes; /* size of all the twin's parameters */
    uint32_t grid[3];     /* grid of the program's own launch */
    uint32_t block[3];
    bool look_always;         /* persistent: worker blocks look for orders before each task */
    uint32_t shared_bytes;    /* how many of the twin's blocks fit on an SM; 1 or more */
    uint32_t blocks_per_sm;   /* how many of the twin's blocks fit on an SM; 1 or more */
    const uint8_t *arguments; /* the kernel's arguments, packed */
    uint32_t argument_bytes;
    CUstream stream;
    struct weir_run_place place;
    bool timed;        /* copied to weir_run_info, without other effect */
    const void *owner; /* identifies the owner for weir_runs_release(); never dereferenced */
    void *user;        /* first argument of notify and ended; must live until ended() */
    void (*notify)(void *user, struct weir_run *run, enum weir_run_event event); /* or NULL */
    void (*ended)(void *user); /* called when the run is gone, or when the start fails; or NULL */
};

struct weir_run_info {
    enum weir_run_state state;
    bool begun;             /* a block had begun when the watcher last looked */
    bool timed;             /* from weir_run_params */
    bool plain;             /* the run always had all SMs, and was never stopped or resized */
    uint32_t blocks_per_sm; /* from weir_run_params */
    uint32_t total;         /* number of blocks of the grid */
    uint32_t done_blocks;   /* exact once stopped or finished, else as of the last look */
    uint32_t workers;       /* persistent: worker blocks on the device at the last look */
    uint32_t grids;         /* grids beside the first that have not ended */
    uint64_t started_ns;    /* when the run was put into its stream */
    uint64_t finished_ns;   /* when the run's end was seen */
    struct weir_run_place place;
};

/**
 * Make the runs of a device.
 *
 * @param context  of the device; current in the calling thread.
 * @param sms      its SMs.
 * @param streams  of programs in this context; borrowed (run_streams.h).
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER
 * @thread any with the context
 */
enum weir_status weir_runs_create(const struct weir_driver *driver, CUcontext context, uint32_t sms,
                                  struct weir_run_streams *streams,
                                  struct weir_runs **ret_runs) WEIR_MUST_CHECK;

/** All runs must have ended, or the context be dead. Accepts NULL. @thread any with the context */
void weir_runs_destroy(struct weir_runs *runs);

/**
 * Put a run into a stream. Later work in the stream waits until the run has finished.
 *
 * @param ret_run  gives a reference; NULL: the caller needs none.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_PERMITTED  too many streams have work: a stopped run might find no
 *                                   connection to resume. As with the next:
 * @return an error of the driver: nothing was launched; the caller may launch the original instead.
 * @thread any with the context; not on a stream under capture
 */
CUresult weir_run_start(struct weir_runs *runs, const struct weir_run_params *params,
                        struct weir_run **ret_run);

/**
 * Tell a run to stop. HAS_STOPPED or HAS_FINISHED follows. A second call only renews the lease.
 *
 * @param lease_ns  the watcher resumes the run after this time, unless it was resumed before.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_PERMITTED  the run's owner is ending, or the run has finished.
 * @return CUDA_ERROR_NOT_READY      not now: weir_runs_device_idle_begin() is in force.
 * @return an error of the driver
 * @thread any with the context
 */
CUresult weir_run_stop(struct weir_run *run, uint64_t lease_ns);

/** Let a run go on: now, or as soon as it has stopped. @thread any with the context */
CUresult weir_run_resume(struct weir_run *run);

/**
 * Change the SMs that a run may use. Blocks on other SMs finish their task and leave; new blocks
 * start on the added SMs. A stopped run is resumed at the new place. place.task_blocks cannot
 * change.
 * @return CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED (ticket form), or an error of the driver
 * @thread any with the context
 */
CUresult weir_run_resize(struct weir_run *run, const struct weir_run_place *place);

/** @thread any */
void weir_run_query(struct weir_run *run, struct weir_run_info *ret_info);
void weir_run_put(struct weir_run *run);

/** Resume all runs of an owner (NULL: all runs), and never stop them again.
 * @thread any with the context */
void weir_runs_release(struct weir_runs *runs, const void *owner);

/**
 * Stop all runs of an owner for good: blocks that have not begun are never executed, and streams
 * continue once the blocks that have begun have ended. Nothing in these streams may depend on what
 * the runs would have computed. Does not wait; weir_runs_wait() does.
 * @thread any with the context
 */
void weir_runs_withdraw(struct weir_runs *runs, const void *owner);

/**
 * Resume all stopped runs, and refuse to stop any until weir_runs_device_idle_end().
 *
 * For driver calls that may wait for all work on the device while they hold the driver's locks
 * (loading and unloading code, registering memory): a stopped run could not be resumed during such
 * a call, and both would wait for ever. A run that its stream has not reached yet does no harm,
 * since it is not stopped when it begins.
 *
 * @param limit_ns  how long to wait for runs that only this process can resume; 0: not at all.
 * @return true     every run will finish by itself.
 * @return false    a run may not; weir_runs_device_idle_end() must be called all the same.
 * @thread any with the context
 */
bool weir_runs_device_idle_begin(struct weir_runs *runs, uint64_t limit_ns) WEIR_MUST_CHECK;
/** @thread any */
void weir_runs_device_idle_end(struct weir_runs *runs);

/** Wait until all runs of an owner (NULL: all runs) are gone. @return false: timed out */
bool weir_runs_wait(struct weir_runs *runs, const void *owner, uint64_t timeout_ns);

struct weir_runs_counts {
#define WEIR_RUNS_ROW(name) uint64_t name;
#include "host_backend/worker/runs/counts.def"
#undef WEIR_RUNS_ROW
    uint32_t flying;
};

/** Count an order to stop a launch that is not a run. @thread any */
void weir_runs_stop_missed(struct weir_runs *runs);
/** @thread any */
void weir_runs_count(struct weir_runs *runs, struct weir_runs_counts *ret_counts);

/** Are there runs on the device, including stopped ones? Accepts NULL: no. @thread any */
bool weir_runs_are_under_way(struct weir_runs *runs);

/** Any run on the device, with a reference; NULL: there is none. @param pick  any number. @thread
 * any */
struct weir_run *weir_runs_pick(struct weir_runs *runs, uint32_t pick);
