/*
 * Orders of a gate about runs: what becomes of them, and what the gate hears of the runs.
 *
 * A launch as a twin that somebody looks after has a struct weir_forms_order; of an item of a gate
 * it lies in the item's room.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_ORDERS_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_ORDERS_H

#include "host_backend/gate/gate.h"
#include "host_backend/worker/twins/forms.h"

/* For weir_gates_create(): what is about runs, and WEIR_ORDERS_ROOM of each item. */
extern const struct weir_gate_ops weir_orders_of_runs;
#define WEIR_ORDERS_ROOM sizeof(struct weir_forms_order)

/**
 * How work that can be stopped is launched: for weir_forms_launch(), once, which must follow.
 * @return NULL  it passed beside the scheduler: nobody looks after it.
 * @thread session
 */
struct weir_forms_order *weir_orders_begin(const struct weir_gate_pass *pass);

#endif
