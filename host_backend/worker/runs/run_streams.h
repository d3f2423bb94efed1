/*
 * Counts the streams that have work beside runs: is a connection to the GPU left to resume a
 * stopped run? (run_streams.c says why.)
 *
 * There is one for each device, made before its first run, since any stream may wait. Internally
 * locked.
 *
 * Source: docs/design/preemption.md
 */
#pragma once

#include "host_backend/worker/state/hooks.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_run_streams;
struct weir_runs;

/**
 * @param connections  from the context to the GPU (CUDA_DEVICE_MAX_CONNECTIONS), 1 or more.
 * @return NULL: out of memory
 * @thread any
 */
struct weir_run_streams *weir_run_streams_create(const struct weir_driver *driver,
                                                 uint32_t connections);
/** All runs must have ended. Accepts NULL. @thread any */
void weir_run_streams_destroy(struct weir_run_streams *streams);

/**
 * Work of a program is about to be given to a stream. If runs are under way, and too few
 * connections to the GPU would be left, runs are resumed first, and not stopped any more. For a
 * stream that is known to have work, or without runs, this costs a load and a branch.
 *
 * @param runs   of the device; NULL: there are none yet.
 * @param told   the stream's own, until weir_run_streams_gone().
 * @param forks  the work has several streams inside: a graph.
 * @thread any with the context; not on a stream under capture
 */
void weir_run_streams_given(struct weir_run_streams *streams, struct weir_runs *runs,
                            struct weir_stream_told *told, CUstream stream, bool forks);
/** The driver's streams of this guest's stream are about to be destroyed. @thread any */
void weir_run_streams_gone(struct weir_run_streams *streams, struct weir_stream_told *told);

/** If a run in this stream were stopped, might it find no connection to resume? @thread any with
 * the context */
bool weir_run_streams_are_many(struct weir_run_streams *streams, CUstream stream);
