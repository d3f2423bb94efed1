/* What a gate asks of a session that has nothing but items with a mark behind each: nothing. */
#ifndef WEIR_TESTS_LIB_TL_GATE_OPS_H
#define WEIR_TESTS_LIB_TL_GATE_OPS_H

#include "host_backend/gate/gate.h"

static inline bool tl_gate_attend(void *session)
{
    (void)session;
    return false;
}

static inline void tl_gate_rests(void *session, bool begins)
{
    (void)session;
    (void)begins;
}

/* Each item gets its mark when it is given, so nothing is unmarked. */
static inline void tl_gate_mark_all(void *session, struct weir_gate_queue *queue)
{
    (void)session;
    (void)queue;
}

static inline void tl_gate_thread_begins(void *user)
{
    (void)user;
}

static inline void tl_gate_item_gone(void *room)
{
    (void)room;
}

#endif
