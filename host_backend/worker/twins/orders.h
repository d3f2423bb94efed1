/*
 * Connects the gate with runs: executes the gate's orders to stop, resume and resize, and reports
 * to the gate what happens to the runs. The struct weir_forms_order of a launch lies in its item's
 * weir_gate_item_room().
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/twins/forms.h"

/* The ops for weir_gates_create(): the functions of runs, and the room that they need in an
 * item. */
extern const struct weir_gate_ops weir_orders_of_runs;
#define WEIR_ORDERS_ROOM sizeof(struct weir_forms_order)

/**
 * Prepare the launch of work that the scheduler may stop. weir_forms_launch() must follow, once.
 * @return for weir_forms_launch(); NULL: the work passed without a decision and is never stopped
 * @thread session
 */
struct weir_forms_order *weir_orders_begin(const struct weir_gate_pass *pass);
