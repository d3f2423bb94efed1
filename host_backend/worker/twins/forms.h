/*
 * Kernel forms in a worker: makes twins of the modules that guests load, and launches them.
 *
 * Sessions call these functions from their own threads. When forms are off, each call only checks a
 * pointer. The threads of this folder, a builder and an explorer for each device that needs them,
 * never touch a session. runs/run.h has the launches themselves.
 *
 * Source: docs/design/preemption.md
 */
#pragma once

#include "host_backend/worker/code/jit.h"
#include "host_backend/worker/runs/run.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/session.h"
#include "proto/ops.h"
#include <stdio.h>

struct weir_forms;
struct weir_forms_kernel;
struct weir_forms_module;
struct weir_worker;

/** The callbacks for sessions while there are forms. */
extern const struct weir_session_hooks weir_forms_hooks;

/**
 * The worker's driver must be open. Starts no thread.
 * @param compiler  borrowed until weir_forms_destroy().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_forms_create(struct weir_worker *worker,
                                   const struct weir_forms_config *config,
                                   const struct weir_compiler *compiler,
                                   struct weir_forms **ret_forms) WEIR_MUST_CHECK;

/** No session may be left. Waits for a running compiler. Accepts NULL. */
void weir_forms_destroy(struct weir_forms *forms);

/** The runs of a device, or NULL while it has none. @thread any */
struct weir_runs *weir_forms_runs_of(struct weir_forms *forms, uint32_t device);

/** Longest wait of a look-up of code for stopped kernels; then it is made nevertheless. */
#define WEIR_FORMS_LOOK_UP_NS WEIR_NS_PER_S

/**
 * Call this before a driver call that may wait for the whole device. It resumes all stopped runs,
 * and none is stopped until weir_forms_device_idle_end(). It waits for them for limit_ns at most.
 * Costs a lock for each device with runs.
 * @param ret_idle  for weir_forms_device_idle_end(), also after false
 * @return false: a stopped run does not resume
 * @thread any with the context, holding no lock
 */
bool weir_forms_device_idle_begin(struct weir_forms *forms, uint64_t limit_ns, uint32_t *ret_idle);
/** @param idle value from the begin function. @thread any */
void weir_forms_device_idle_end(struct weir_forms *forms, uint32_t idle);

/* ---- a module's life (module_life.c) */

/**
 * A module or library was loaded: make its twins, if the tenant's kernels may have twins.
 * @param options  the guest's own, without logs; borrowed.
 */
void weir_forms_loaded(struct weir_session *session, struct weir_host_module *module,
                       const struct weir_jit_options *options);

/**
 * A module is about to be unloaded.
 * @return true   some of its runs have not ended: the driver's module is unloaded after them.
 * @return false  the caller unloads the driver's module.
 */
bool weir_forms_unloading(struct weir_session *session, struct weir_host_module *module);

/** The guest has set an attribute of a function. */
void weir_forms_attribute_set(struct weir_session *session, struct weir_host_function *function);

/** The session ends: resume its runs, and stop none again. Call it before waiting for streams. */
void weir_forms_session_ends(struct weir_session *session);
/** The session ends, and no other process depends on its runs: stop them for good. To be called
 * instead of weir_forms_session_ends(). */
void weir_forms_session_withdraw(struct weir_session *session);
/** The session is gone: free its list of exposures. */
void weir_forms_session_gone(struct weir_session *session);

/* ---- constants (module_variables.c) */

/** The guest got the address of a module's variable. */
void weir_forms_exposed(struct weir_session *session, struct weir_host_module *module,
                        CUdeviceptr address, size_t bytes);

/** An operation is about to write memory: note it if a module's variable lies there. This is called
 * a touch. */
void weir_forms_touch(struct weir_session *session, uint64_t address, uint64_t bytes);
/** Work in this stream writes the touched variables. The session must have exposures, also for the
 * next function. */
void weir_forms_wrote(struct weir_session *session, struct weir_host_stream *stream);
/** The touched variables will be written at an unknown time. */
void weir_forms_wrote_unseen(struct weir_session *session);
/** Do the arguments of a kernel, or of a graph's kernel, contain the address of a constant? */
void weir_forms_arguments(struct weir_session *session, const uint8_t *arguments, uint32_t bytes);

/** Work in this stream writes the touched variables, if there are any. */
static inline void weir_forms_written(struct weir_session *session, struct weir_host_stream *stream)
{
    if (__builtin_expect(session->exposures != NULL, 0)) {
        weir_forms_wrote(session, stream);
    }
}

/* ---- launches (launch.c) */

/*
 * A launch whose run the caller wants to stop, resume and resize. It belongs to the caller; what it
 * points to must live until ended().
 */
struct weir_forms_order {
    struct weir_run_place place; /* the SMs that it may use; the callee chooses task_blocks */
    uint32_t beside_bytes;       /* as in weir_gate_pass */
    void *item;                  /* first argument of both functions */
    void (*notify)(void *item, struct weir_run *run, enum weir_run_event event);
    void (*ended)(void *item); /* called when the run has ended, also if it cannot be started */
    struct weir_run *run;      /* set at the launch; the caller gets a reference */
    void *kernel;              /* used by this folder alone */
};

/* What happened to a session's launches, as counters. */
enum weir_forms_launched {
#define WEIR_FORMS_ROW(name, key) WEIR_FORMS_LAUNCHED_##name,
#include "host_backend/worker/twins/counts.def"
#undef WEIR_FORMS_ROW
};
/** Count a launch; does nothing if forms are off. @thread session */
void weir_forms_note(struct weir_session *session, enum weir_forms_launched what);

/**
 * Draw a random number in the mode "explore".
 * @return false  the mode is not "explore".
 */
bool weir_forms_explores(struct weir_session *session, uint64_t *ret_draw);

/**
 * Rows of `weir stats`: a session's launches; the runs of a worker's devices.
 *
 * @param launched  counters of a session, live or ended; WEIR_FORMS_LAUNCHED_COUNT of them.
 * @thread any
 */
void weir_forms_write_launched(FILE *out, const uint64_t *launched);
void weir_forms_write_runs(FILE *out, struct weir_forms *forms);

/** Count an order to stop a launch that cannot be stopped, as it is not a run. @thread any */
void weir_forms_stop_missed(struct weir_forms *forms, uint32_t device);

/* The form chosen for a launch. The session's thread uses it until its next operation. */
struct weir_forms_choice {
    struct weir_forms_kernel *kernel;
    enum weir_ptx_form form;
    int variant;         /* enum weir_forms_variant */
    bool look_always;    /* tasks are long: worker blocks look for orders before each task */
    bool times_original; /* no twin was chosen, and the original is to be timed */
    bool divisible;      /* none was chosen, but one would be in a division by blocks */
    uint32_t task_blocks, blocks_per_sm;
    uint64_t block_bytes; /* an SM's shared memory that a block takes */
    uint64_t blocks, workers;
};

/**
 * Is there a twin that suits this launch?
 *
 * @param a function whose `forms` is not NULL.
 * @param native    the driver's function on the current device.
 * @param cost_pct  how many percent slower than the original it may be; UINT32_MAX: any slowdown.
 */
bool weir_forms_choose(struct weir_session *session, struct weir_host_function *function,
                       CUfunction native, const struct weir_host_stream *stream,
                       const struct weir_op_launch_in *in, uint32_t cost_pct,
                       struct weir_forms_choice *ret_choice);

/**
 * The scheduler granted a launch a place; 0, 0: the whole device. The kernel's next launches are
 * chosen accordingly. @thread session
 */
void weir_forms_granted(const struct weir_forms_choice *choice, uint32_t sm_count,
                        uint32_t block_limit);

/**
 * The original is launched, because weir_forms_choose() chose no twin. Decide whether to time it.
 * @param choice  the result of that call.
 * @return true: weir_forms_original_given() must follow.
 */
bool weir_forms_original_begins(struct weir_session *session,
                                const struct weir_forms_choice *choice,
                                struct weir_host_stream *stream);
/** @param given the driver has accepted the launch. */
void weir_forms_original_given(struct weir_session *session, const struct weir_forms_choice *choice,
                               struct weir_host_stream *stream, bool given);

/** Does the tenant use twins only if the scheduler may want to stop the kernel? */
bool weir_forms_is_auto(const struct weir_session *session,
                        const struct weir_host_function *function);

/**
 * Launch a kernel as a twin.
 *
 * @param choice  result of weir_forms_choose() in this operation.
 * @param stream  already ordered behind earlier work.
 * @param order   borrowed until its ended(); NULL: the run is never stopped.
 * @return true   the kernel was launched.
 * @return false  the caller launches the original; ended() was called.
 */
bool weir_forms_launch(struct weir_session *session, const struct weir_forms_choice *choice,
                       struct weir_host_stream *stream, const struct weir_op_launch_in *in,
                       struct weir_forms_order *order);
