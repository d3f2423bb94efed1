/*
 * Warms up the driver. At the first call of a kind in a process, a driver loads its PTX compiler,
 * makes queues for launches and copies, or maps the first memory. A worker makes such calls before
 * it reports that it is ready, so that no program waits for this.
 *
 * Private to host_backend/worker. Source: docs/design/workers.md
 */
#pragma once

struct weir_worker;

/**
 * Make the calls that a program's first kernel makes, on the worker's first device, and reserve a
 * window of addresses for the first tenant. Failures are logged; the program's own calls will try
 * again.
 *
 * Waits for the GPU for 50 ms at most, since other contexts may be using it.
 *
 * @thread main, before there are sessions. The first device's context is current.
 */
void weir_worker_warm_up(struct weir_worker *worker);
