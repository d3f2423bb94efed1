/* How the keeper starts a worker, or the gate process: worker_process.c. */
#pragma once

#include "base/status.h"
#include <sys/types.h>

struct weir_book_row;
struct weir_supervisor;
struct weir_sup_log;
struct weir_sup_worker;

/**
 * Have the keeper start this program again as another of the host's processes.
 * @param worker    the worker to start; NULL: the gate process.
 * @param listener  a worker's socket for ZeroMQ; borrowed; -1: none.
 * @param page_fd   the page of spin.h that the process will get; borrowed.
 * @param ret_link  gives our end of the link to it.
 * @param ret_log   gives the reader of its log.
 * @return WEIR_OK, WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @return WEIR_ERR_FULL  the system allows no further process.
 * @thread main
 */
enum weir_status weir_sup_spawn(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                                int listener, int page_fd, pid_t *ret_pid, int *ret_link,
                                struct weir_sup_log **ret_log) WEIR_MUST_CHECK;

/**
 * Take over a process of the last supervisor.
 * @param worker       gives what the row says of a worker; NULL: the gate process.
 * @param ret_log      gives NULL if there is no memory: then its lines are lost.
 * @param ret_page_fd  gives its page's descriptor.
 * @return WEIR_OK
 * @return WEIR_ERR_VERSION  it speaks another version than this one and the last: end it.
 * @thread main
 */
enum weir_status weir_sup_adopt(struct weir_book_row *row, struct weir_sup_worker *worker,
                                int *ret_link, struct weir_sup_log **ret_log,
                                int *ret_page_fd) WEIR_MUST_CHECK;
