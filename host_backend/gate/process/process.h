/*
 * The gate process: the schedulers of all GPUs, for all workers.
 *
 * It knows no CUDA. Workers post what happens into their ports (host_backend/gate/port.h); the
 * schedulers decide; grants, orders and news go back the same way. GPUs have no number here: a
 * worker names each of its devices by UUID, and queues of one UUID share one scheduler, whichever
 * worker they come from. Which GPUs there are, and what they can do, the supervisor says.
 *
 * What comes from a port is hostile input: it is copied once and checked. A request that makes no
 * sense is dropped and counted. A worker can harm the order of its own work, and nothing else.
 * Whose work it may name, the supervisor says; what is learned is kept apart by tenant.
 *
 * One thread does everything. It sleeps when there is nothing to decide.
 *
 * Source: docs/design/gate.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_PROCESS_PROCESS_H
#define WEIR_HOST_BACKEND_GATE_PROCESS_PROCESS_H

#include "host_backend/config/control.h"
#include "host_backend/config/link.h"
#include "host_backend/gate/gate.h"
#include "sched/policy.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_gate_process;

struct weir_gate_process_params {
    const struct weir_sched_settings *settings; /* borrowed for the call */
    const struct weir_policy_set *policies;     /* likewise */
    struct weir_spin_page *spin;                /* borrowed: who may spin now */
};

/** @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO @thread any */
enum weir_status weir_gate_process_create(const struct weir_gate_process_params *params,
                                          struct weir_gate_process **ret_process) WEIR_MUST_CHECK;
/** Save the learned durations and free everything. Accepts NULL. @thread owner */
void weir_gate_process_destroy(struct weir_gate_process *process);

/** A GPU that there is. Requests about others are refused. Named again it stays as it was.
 * @thread owner */
void weir_gate_process_gpu(struct weir_gate_process *process, const struct weir_link_gpu *gpu);

/**
 * A worker's port.
 *
 * @param id       names it until it is removed; not in use.
 * @param tenant   the slot of a tenant whose queues it may have; -1: nobody's yet.
 * @param domain   that its contexts are in, as of weir_sched_queue_add().
 * @param port_fd  borrowed.
 * @param bell_fd  borrowed.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_INVALID, WEIR_ERR_VERSION, WEIR_ERR_NO_MEMORY,
 *         WEIR_ERR_IO
 * @thread owner
 */
enum weir_status weir_gate_process_port_add(struct weir_gate_process *process, uint32_t id,
                                            int32_t tenant, uint32_t domain, int port_fd,
                                            int bell_fd) WEIR_MUST_CHECK;
/** It may have queues of this tenant, too, which is known. It has, until the tenant goes.
 * @thread owner */
void weir_gate_process_port_tenant(struct weir_gate_process *process, uint32_t id, uint32_t tenant);
/** The worker is gone: its work is withdrawn. Does nothing if there is no such port.
 * @thread owner */
void weir_gate_process_port_remove(struct weir_gate_process *process, uint32_t id);

/**
 * The file in which learned durations are kept. At most once, before the first port.
 * @param fd  for reading and writing; the process's from now on.
 * @thread owner
 */
void weir_gate_process_times(struct weir_gate_process *process, int fd);

/**
 * A tenant's settings, on all GPUs, those to come included.
 * @param slot      its number, below WEIR_CONFIG_TENANTS_MAX.
 * @param settings  borrowed for the call.
 * @thread owner
 */
void weir_gate_process_tenant_set(struct weir_gate_process *process, uint32_t slot,
                                  const struct weir_tenant_config *settings);
/** The tenant goes: its queues, if it has some, are withdrawn. @thread owner */
void weir_gate_process_tenant_remove(struct weir_gate_process *process, uint32_t slot);
/** Put other policies in force. @thread owner */
void weir_gate_process_policies_set(struct weir_gate_process *process,
                                    const struct weir_policy_set *policies);

/** Fill a row about a tenant: what it has used on all GPUs, and how often it waited.
 * @return false: there is none. @thread owner */
bool weir_gate_process_usage(struct weir_gate_process *process, uint32_t slot,
                             struct weir_status_tenant *row);

typedef void (*weir_gate_use_fn)(void *user, const struct weir_link_use *use);
/** Tell what each session that lives has used, and then what programs have. @thread owner */
void weir_gate_process_uses(struct weir_gate_process *process, weir_gate_use_fn tell, void *user);

/** Fill a row about what was used of a GPU. @param gpu  as below. @return false: there is none.
 * @thread owner */
bool weir_gate_process_device(struct weir_gate_process *process, uint32_t gpu,
                              struct weir_status_device *row);

/** Fill a row about a GPU's predictions. @param gpu  as below. @return false: there is none.
 * @thread owner */
bool weir_gate_process_prediction(struct weir_gate_process *process, uint32_t gpu,
                                  struct weir_status_prediction *row);

/**
 * Begin to record a GPU's schedule trace. Meanwhile its scheduler decides about all work.
 *
 * @param gpu   0: the GPU that a worker named first, and so on.
 * @param fd    takes it; a regular file.
 * @param text  gets the result: "recording ...", or "error: ...".
 * @thread owner
 */
void weir_gate_process_trace_start(struct weir_gate_process *process, uint64_t gpu, int fd,
                                   char *text, size_t bytes);
/** End all recordings. @param text  gets what is in the files. @thread owner */
void weir_gate_process_trace_stop(struct weir_gate_process *process, char *text, size_t bytes);

/**
 * Serve until it is told to stop.
 *
 * @param fd       heard as well: handle() is called whenever it can be read.
 * @param handle   returns false to stop.
 * @return WEIR_OK, WEIR_ERR_IO
 * @thread owner: everything here is called from handle(), or while nothing runs
 */
enum weir_status weir_gate_process_run(struct weir_gate_process *process, int fd,
                                       bool (*handle)(void *user), void *user);

#endif
