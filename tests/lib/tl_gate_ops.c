#include "tests/lib/tl_gate_ops.h"

#include <inttypes.h>
#include <stdio.h>

atomic_uint tl_gate_deaf;

bool tl_gate_is_over(void *session)
{
    return atomic_load(&((struct tl_gate_session *)session)->over);
}

void tl_gate_rests(void *session, bool rests)
{
    (void)session;
    (void)rests;
}

static bool attend(void *session)
{
    (void)session;
    return false;
}

static void name(void *session, uint64_t *ret_number, char *ret_program)
{
    const struct tl_gate_session *s = session;

    *ret_number = s->number;
    (void)snprintf(ret_program, WEIR_GATE_PROGRAM_BYTES, "program-%" PRIu32, (uint32_t)s->number);
}

uint32_t tl_gate_sm_limit_pct(void *session)
{
    (void)session;
    return 100;
}

/* Each item gets its mark when it is given, so nothing is unmarked. */
static void mark_all(void *session, struct weir_gate_queue *queue)
{
    (void)session;
    (void)queue;
}

static void thread_begins(void *user)
{
    (void)user;
}

static void describe(const void *item, char *text, size_t bytes)
{
    (void)item;
    (void)snprintf(text, bytes, "run=0");
}

static void item_gone(void *item)
{
    (void)item;
}

static void deaf(void *user)
{
    (void)user;
    atomic_fetch_add(&tl_gate_deaf, 1);
}

const struct weir_gate_session_ops tl_gate_session_ops = {.is_over = tl_gate_is_over,
                                                          .attend = attend,
                                                          .rests = tl_gate_rests,
                                                          .name = name,
                                                          .sm_limit_pct = tl_gate_sm_limit_pct,
                                                          .mark_all = mark_all};
const struct weir_gate_ops tl_gate_ops = {
    .thread_begins = thread_begins, .describe = describe, .item_gone = item_gone, .deaf = deaf};
