/* How a process becomes a worker, the gate process or an MPS daemon: spawn.c. */
#pragma once

#include "host_backend/keeper/keep.h"

/**
 * Fork a process that executes a program.
 * @param spawn  as weir_keep_spawn_row() gives it.
 * @param words  of the message, after the row; end: behind the last.
 * @param fds    spawn->n_fds of them, and then the program's file with by_file; borrowed.
 * @return its pid; -1: see errno @thread main, of a process with one thread
 */
pid_t weir_keep_fork(const struct weir_keep_spawn *spawn, char *words, const char *end,
                     const int *fds);
