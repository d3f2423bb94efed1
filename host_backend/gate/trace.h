/*
 * Recording what a device's scheduler is told and decides (sched/trace/trace.h), from a request to
 * the next.
 *
 * Source: docs/design/simulation.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_TRACE_H
#define WEIR_HOST_BACKEND_GATE_TRACE_H

#include <stdint.h>

struct weir_worker;

/**
 * Begin to record a device. While that lasts, nothing passes beside the scheduler.
 *
 * What came of it is in worker->trace_text: "recording ...", or "error: ...".
 *
 * @param device  of the worker's list.
 * @param fd      takes it; a regular file.
 * @thread the worker's main thread
 */
void weir_gates_trace_start(struct weir_worker *worker, uint32_t device, int fd);

/** End all recordings; worker->trace_text says what is in the files. @thread main */
void weir_gates_trace_stop(struct weir_worker *worker);

#endif
