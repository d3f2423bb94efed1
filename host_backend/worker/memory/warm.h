/*
 * What a driver does once in a process, at the first call of a kind: load its compiler of PTX, make
 * queues for launches and copies, map the first memory. A worker has it done before it says that it
 * is ready, so that no program waits for it.
 *
 * Private to host_backend/worker. Source: docs/design/workers.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_WARM_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_WARM_H

struct weir_worker;

/**
 * Make the calls that a program's first kernel makes, on the worker's first device, and hold a
 * window of addresses for the tenant that comes first. What fails is logged and left to the
 * program.
 *
 * Waits for the GPU for 50 ms at most: other contexts may have it.
 *
 * @thread main, before there are sessions. The first device's context is current.
 */
void weir_worker_warm_up(struct weir_worker *worker);

#endif
