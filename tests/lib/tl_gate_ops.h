/*
 * A session as a gate sees it, and the worker around it: it has nothing but items, each with a mark
 * behind it.
 */
#pragma once

#include "host_backend/gate/gate.h"
#include <stdatomic.h>

/* What a queue's session must begin with, if its operations are those below. */
struct tl_gate_session {
    uint64_t number; /* its program's name is "program-" and the lower half of this */
    atomic_bool over;
};

extern const struct weir_gate_session_ops tl_gate_session_ops;
extern const struct weir_gate_ops tl_gate_ops;
extern atomic_uint tl_gate_deaf; /* so often a gate has found that the process reads nothing */

/* For sessions that do more. */
bool tl_gate_is_over(void *session);
void tl_gate_rests(void *session, bool rests);
uint32_t tl_gate_sm_limit_pct(void *session);
