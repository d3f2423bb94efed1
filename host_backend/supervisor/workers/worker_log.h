/*
 * The log of a worker or the gate process: its standard output and error. Each process writes to a
 * pipe of its own, which the supervisor reads: it completes each line and passes it on to the
 * host's log, within the rate limit of the worker's tenant. So no process can write to the log
 * itself, or block others.
 *
 * The log's reader may be slow or gone: a write never waits, and fails without a signal.
 *
 * All functions: @thread main
 */
#pragma once

#include "base/status.h"
#include "host_backend/loop/loop.h"
#include <stdint.h>

struct weir_supervisor;
struct weir_sup_log;
struct weir_sup_worker;

/**
 * Make a pipe.
 * @param ret_log  gives the reading side, for weir_sup_log_free() or weir_sup_log_close().
 * @param ret_fd   gives the end for the process that writes.
 * @return WEIR_OK, WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 */
enum weir_status weir_sup_log_open(struct weir_sup_log **ret_log, int *ret_fd) WEIR_MUST_CHECK;
/** Read on where the last supervisor has stopped. @param fd  the reading side, taken; -1: there is
 * none. @return NULL: no memory, or no pipe */
struct weir_sup_log *weir_sup_log_adopt(int fd);
/** The reading side, borrowed. */
int weir_sup_log_fd(const struct weir_sup_log *log);
/** Close the pipe; unread lines are lost. Accepts NULL. */
void weir_sup_log_free(struct weir_sup_log *log);

/** Log the lines that a worker has written, but only a few at a time. @param worker NULL: the gate
 * process. */
void weir_sup_log_read(struct weir_supervisor *sup, struct weir_sup_worker *worker);
/** Call weir_sup_log_read() for all processes. */
void weir_sup_logs_read(struct weir_supervisor *sup);
/** The process has ended: log the remaining lines, and close the pipe. Does nothing if it is
 * closed. */
void weir_sup_log_close(struct weir_supervisor *sup, struct weir_sup_worker *worker);
/**
 * Watch a process's pipe, or wake the loop when it may be read again.
 * @param worker  NULL: the gate process.
 * @param handle  is to call weir_sup_log_read(); it gets `sup` and index.
 */
void weir_sup_log_watch(struct weir_supervisor *sup, struct weir_sup_worker *worker,
                        struct weir_host_loop *loop, weir_host_loop_fn handle, int index);
