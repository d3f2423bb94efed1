/*
 * The gate process: the schedulers of all GPUs, for all workers.
 *
 * The process knows no CUDA. Workers post events into their ports (host_backend/gate/port.h); the
 * schedulers decide; grants, orders and news go back the same way. GPUs have no number here: a
 * worker names each of its devices by UUID, and queues of one UUID share one scheduler, whichever
 * worker they come from. The supervisor names the GPUs and their properties.
 *
 * What comes from a port is hostile input: it is copied once and checked. An invalid request is
 * dropped and counted. A worker can only disturb the order of its own work: the supervisor says
 * which tenants it serves, and learned durations are separate for each tenant.
 *
 * One thread does everything. It sleeps when there is nothing to decide.
 *
 * Source: docs/design/gate.md
 */
#pragma once

#include "host_backend/config/control.h"
#include "host_backend/config/link.h"
#include "host_backend/gate/gate.h"
#include "sched/policy.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_gate_process;

struct weir_gate_process_params {
    const struct weir_sched_settings *settings; /* borrowed for the call */
    const struct weir_policy_set *policies;     /* borrowed for the call */
    struct weir_spin_page *spin;                /* borrowed: says who may spin */
};

/** @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO @thread any */
enum weir_status weir_gate_process_create(const struct weir_gate_process_params *params,
                                          struct weir_gate_process **ret_process) WEIR_MUST_CHECK;
/** Save the learned durations and free everything. Accepts NULL. @thread owner */
void weir_gate_process_destroy(struct weir_gate_process *process);

/** Make a GPU of the host known. Requests about other GPUs are refused. Naming a GPU again changes
 * nothing. @thread owner */
void weir_gate_process_gpu(struct weir_gate_process *process, const struct weir_link_gpu *gpu);

/**
 * Add a worker's port.
 *
 * @param id       identifies the port until it is removed; no other port has it.
 * @param tenant   the slot of a tenant whose queues the port may have; -1: none yet.
 * @param domain   the domain of the worker's contexts, as for weir_sched_queue_add().
 * @param port_fd  borrowed.
 * @param bell_fd  borrowed.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_INVALID, WEIR_ERR_VERSION, WEIR_ERR_NO_MEMORY,
 * WEIR_ERR_IO
 * @thread owner
 */
enum weir_status weir_gate_process_port_add(struct weir_gate_process *process, uint32_t id,
                                            int32_t tenant, uint32_t domain, int port_fd,
                                            int bell_fd) WEIR_MUST_CHECK;
/** Let a port have queues of one more known tenant, until that tenant is removed.
 * @thread owner */
void weir_gate_process_port_tenant(struct weir_gate_process *process, uint32_t id, uint32_t tenant);
/** The worker is gone: withdraw its work. Does nothing if there is no such port.
 * @thread owner */
void weir_gate_process_port_remove(struct weir_gate_process *process, uint32_t id);

/**
 * Use this file for learned durations. Call it at most once, before the first port.
 * @param fd for reading and writing; owned by the process from now on.
 * @thread owner
 */
void weir_gate_process_times(struct weir_gate_process *process, int fd);

/**
 * Set a tenant's settings on all GPUs, including those that are added later.
 * @param slot its number, below WEIR_CONFIG_TENANTS_MAX.
 * @param settings borrowed for the call.
 * @thread owner
 */
void weir_gate_process_tenant_set(struct weir_gate_process *process, uint32_t slot,
                                  const struct weir_tenant_config *settings);
/** Remove a tenant and withdraw its queues. @thread owner */
void weir_gate_process_tenant_remove(struct weir_gate_process *process, uint32_t slot);
/** Put other policies in force. @thread owner */
void weir_gate_process_policies_set(struct weir_gate_process *process,
                                    const struct weir_policy_set *policies);

/** Fill a row with the SM time that a tenant has used on all GPUs, and how often it waited.
 * @return false: there is no such tenant. @thread owner */
bool weir_gate_process_usage(struct weir_gate_process *process, uint32_t slot,
                             struct weir_status_tenant *row);

typedef void (*weir_gate_use_fn)(void *user, const struct weir_link_use *use);
/** Report what each live session has used, and then what programs have used. @thread owner */
void weir_gate_process_uses(struct weir_gate_process *process, weir_gate_use_fn tell, void *user);

/** Fill a row about the use of a GPU. @param gpu as below. @return false: there is no such GPU.
 * @thread owner */
bool weir_gate_process_device(struct weir_gate_process *process, uint32_t gpu,
                              struct weir_status_device *row);

/** Fill a row about a GPU's predictions. @param gpu as below. @return false: there is no such GPU.
 * @thread owner */
bool weir_gate_process_prediction(struct weir_gate_process *process, uint32_t gpu,
                                  struct weir_status_prediction *row);

/**
 * Begin to record a GPU's schedule trace. During the recording no work passes undecided.
 *
 * @param gpu   0: the GPU that a worker named first, and so on.
 * @param fd    takes it; a regular file.
 * @param text  gets the result: "recording ...", or "error: ...".
 * @thread owner
 */
void weir_gate_process_trace_start(struct weir_gate_process *process, uint64_t gpu, int fd,
                                   char *text, size_t bytes);
/** End all recordings. @param text  gets a summary of the files' contents. @thread owner */
void weir_gate_process_trace_stop(struct weir_gate_process *process, char *text, size_t bytes);

/**
 * Serve until handle() says to stop.
 *
 * @param fd       handle() is called whenever this can be read.
 * @param handle   returns false to stop.
 * @return WEIR_OK, WEIR_ERR_IO
 * @thread owner: everything here is called from handle(), or while nothing runs
 */
enum weir_status weir_gate_process_run(struct weir_gate_process *process, int fd,
                                       bool (*handle)(void *user), void *user);
