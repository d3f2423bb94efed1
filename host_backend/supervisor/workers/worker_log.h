/*
 * The log of a worker or the gate process: its standard output and error. Each process has a pipe
 * of its own, of which the supervisor reads the other end: it completes each line and passes it on
 * to the host's log, within the rate of the worker's tenant. So no process can write to the log, or
 * keep others from it.
 *
 * The log's reader may be slow or gone: a write never waits, and fails without a signal.
 *
 * All functions: @thread main
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_LOG_H
#define WEIR_HOST_BACKEND_SUPERVISOR_WORKERS_WORKER_LOG_H

#include "base/status.h"
#include "host_backend/loop/loop.h"
#include <stdint.h>

struct weir_supervisor;
struct weir_sup_log;
struct weir_sup_worker;

/**
 * Make a pipe.
 * @param ret_log  gives what reads it, for weir_sup_log_free() or weir_sup_log_close().
 * @param ret_fd   gives the end for the process that writes.
 * @return WEIR_OK, WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 */
enum weir_status weir_sup_log_open(struct weir_sup_log **ret_log, int *ret_fd) WEIR_MUST_CHECK;
/** Close it; what is in it is lost. NULL: nothing happens. */
void weir_sup_log_free(struct weir_sup_log *log);

/** Log what a worker has written, but no more than a few lines. @param worker  NULL: the gate
 * process. */
void weir_sup_log_read(struct weir_supervisor *sup, struct weir_sup_worker *worker);
/** Call weir_sup_log_read() for all processes. */
void weir_sup_logs_read(struct weir_supervisor *sup);
/** The process has ended: log the rest, and close the pipe. Does nothing if it is closed. */
void weir_sup_log_close(struct weir_supervisor *sup, struct weir_sup_worker *worker);
/**
 * Watch what a process writes, or wake the loop when that is to be read again.
 * @param worker  NULL: the gate process.
 * @param handle  is to call weir_sup_log_read(); it gets `sup` and index.
 */
void weir_sup_log_watch(struct weir_supervisor *sup, struct weir_sup_worker *worker,
                        struct weir_host_loop *loop, weir_host_loop_fn handle, int index);

#endif
