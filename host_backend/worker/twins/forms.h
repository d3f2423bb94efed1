/*
 * Kernel forms in a worker: twins of the modules that guests load, and launches of them.
 *
 * What sessions call, from their own threads; each call costs no more than a look at a pointer when
 * forms are off. The threads of this folder (a builder and a watcher per device that has work for
 * them) never touch a session. Runs are in runs/run.h.
 *
 * Source: docs/design/preemption.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_FORMS_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_FORMS_H

#include "host_backend/worker/runs/run.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/twins/compile.h"
#include "proto/ops.h"
#include <stdio.h>

struct weir_forms;
struct weir_forms_kernel;
struct weir_forms_module;
struct weir_worker;

/** For an open worker. Starts no thread. @return WEIR_OK, WEIR_ERR_NO_MEMORY */
enum weir_status weir_forms_create(struct weir_worker *worker,
                                   struct weir_forms **ret_forms) WEIR_MUST_CHECK;

/** No session may be left. Waits for a compiler that runs. Accepts NULL. */
void weir_forms_destroy(struct weir_forms *forms);

/** The runs of a device, or NULL while it has none. @thread any */
struct weir_runs *weir_forms_runs_of(struct weir_forms *forms, uint32_t device);

/**
 * Around a driver call that may wait for the whole device: no run is stopped meanwhile. Waits until
 * those that are go on, or until a limit: then the call is made all the same, and the log says so.
 * A look at a pointer when forms are off, a lock a device else.
 * @return for weir_forms_device_idle_end()
 * @thread any with the context, holding no lock
 */
uint32_t weir_forms_device_idle_begin(struct weir_forms *forms);
/** @param idle  what begin gave. @thread any */
void weir_forms_device_idle_end(struct weir_forms *forms, uint32_t idle);

/* ---- a module's life (module_life.c) */

/**
 * A module or library has been loaded: have its twins made, if the tenant's kernels get any.
 * @param options  the guest's own, without logs; borrowed.
 */
void weir_forms_loaded(struct weir_session *session, struct weir_host_module *module,
                       const struct weir_forms_options *options);

/**
 * It is about to be unloaded.
 * @return true   runs of it are under way: the driver's module will be unloaded behind them.
 * @return false  the caller unloads it.
 */
bool weir_forms_unloading(struct weir_session *session, struct weir_host_module *module);

/** The guest has set an attribute of a function. */
void weir_forms_attribute_set(struct weir_session *session, struct weir_host_function *function);

/** The session ends: its runs go on and are not stopped again.
 * Before its streams are waited for. */
void weir_forms_session_ends(struct weir_session *session);
/** The session is gone: nothing of its list is needed. */
void weir_forms_session_gone(struct weir_session *session);

/* ---- constants (module_variables.c) */

/** The guest was given the address of a module's variable. */
void weir_forms_exposed(struct weir_session *session, struct weir_host_module *module,
                        CUdeviceptr address, size_t bytes);

/** An operation is about to write memory: noted if it is a variable's. */
void weir_forms_touch(struct weir_session *session, uint64_t address, uint64_t bytes);
/** What was touched, if anything was, is being written by work just given to a stream. Of a session
 * with exposures, as is the next. */
void weir_forms_wrote(struct weir_session *session, struct weir_host_stream *stream);
/** What was touched, if anything was, is written by something that cannot be followed. */
void weir_forms_wrote_unseen(struct weir_session *session);
/** Arguments of a kernel, or of a graph's kernel: do they name a constant? */
void weir_forms_arguments(struct weir_session *session, const uint8_t *arguments, uint32_t bytes);

/** Work that writes it was given to a stream. */
static inline void weir_forms_written(struct weir_session *session, struct weir_host_stream *stream)
{
    if (__builtin_expect(session->exposures != NULL, 0)) {
        weir_forms_wrote(session, stream);
    }
}

/* ---- launches (launch.c) */

/*
 * A launch whose run somebody looks after. The owner's; what it points to lives until ended().
 */
struct weir_forms_order {
    struct weir_run_place place; /* where; task_blocks is chosen */
    void *item;                  /* handed to: */
    void (*notify)(void *item, struct weir_run *run, enum weir_run_event event);
    void (*ended)(void *item); /* nothing of the run is left; also when it cannot be started */
    struct weir_run *run;      /* gives a reference, once launched */
    void *kernel;              /* the forms' own */
};

/* What becomes of a session's launches, counted. */
enum weir_forms_launched {
#define WEIR_FORMS_ROW(name, key) WEIR_FORMS_LAUNCHED_##name,
#include "host_backend/worker/twins/counts.def"
#undef WEIR_FORMS_ROW
};
/** Count a launch; nothing where forms are off. @thread session */
void weir_forms_note(struct weir_session *session, enum weir_forms_launched what);

/**
 * Rows of `weir stats`: a session's launches; the runs of a worker's devices.
 *
 * @param launched  of a session, live or as kept; WEIR_FORMS_LAUNCHED_COUNT of them.
 * @thread any
 */
void weir_forms_write_launched(FILE *out, const uint64_t *launched);
void weir_forms_write_runs(FILE *out, struct weir_forms *forms);

/** A stop was wanted of something that is no run. @thread any */
void weir_forms_stop_missed(struct weir_forms *forms, uint32_t device);

/* A form for a launch. Session thread, until its next operation. */
struct weir_forms_choice {
    struct weir_forms_kernel *kernel;
    enum weir_ptx_form form;
    int variant;      /* enum weir_forms_variant */
    bool uses_matrix; /* instructions: tensor cores */
    bool look_always; /* tasks are long: workers look before each */
    uint32_t task_blocks, blocks_per_sm;
    uint64_t blocks, workers;
};

/**
 * Is there a twin, and is it wanted for this launch?
 *
 * @param function  its forms are not NULL.
 * @param native    its function on the current device.
 */
bool weir_forms_choose(struct weir_session *session, struct weir_host_function *function,
                       CUfunction native, const struct weir_host_stream *stream,
                       const struct weir_op_launch_in *in, struct weir_forms_choice *ret_choice);

/** Are forms used only where the scheduler wants to be able to stop? */
bool weir_forms_is_auto(const struct weir_session *session,
                        const struct weir_host_function *function);

/**
 * Launch a kernel as a twin.
 *
 * @param choice  weir_forms_choose()'s, of this operation.
 * @param stream  in order already.
 * @param order   borrowed until its ended(); NULL: nobody looks after it.
 * @return true   it is launched.
 * @return false  the caller launches the original; ended() was called.
 */
bool weir_forms_launch(struct weir_session *session, const struct weir_forms_choice *choice,
                       struct weir_host_stream *stream, const struct weir_op_launch_in *in,
                       struct weir_forms_order *order);

#endif
