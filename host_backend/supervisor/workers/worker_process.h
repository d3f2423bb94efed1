/*
 * How a process becomes a worker, or the gate process: worker_process.c.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_PROCESS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_PROCESS_H

#include "base/status.h"
#include <sys/types.h>

struct weir_supervisor;
struct weir_sup_log;
struct weir_sup_worker;

/* Descriptors for a worker process; borrowed. */
struct weir_sup_ends {
    int link;     /* the process's end of its link */
    int listener; /* a worker's socket for ZeroMQ; -1: none */
    int log;      /* the process's end of the pipe for its log (worker_log.h) */
};

/**
 * Fork a process that becomes a worker, or the gate process.
 * @param worker  the worker to start; NULL: the gate process.
 * @return its pid; -1: the fork failed
 * @thread main
 */
pid_t weir_sup_fork(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                    const struct weir_sup_ends *ends);

/**
 * Start this program again as another of its processes.
 * @param worker    the worker to start; NULL: the gate process.
 * @param listener  as of weir_sup_fork().
 * @param ret_link  gives our end of the link to it.
 * @param ret_log   gives the reader of its log.
 * @return WEIR_OK, WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @return WEIR_ERR_TOO_BIG  the system allows no further process.
 * @thread main
 */
enum weir_status weir_sup_spawn(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                                int listener, pid_t *ret_pid, int *ret_link,
                                struct weir_sup_log **ret_log) WEIR_MUST_CHECK;

#endif
