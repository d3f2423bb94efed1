/* What a part of the supervisor waits for, and what it does with what has come. */
#pragma once

#include "../../lib/tl_cmocka.h"
#include "host_backend/supervisor/state/supervisor.h"

typedef void (*loop_watch_fn)(struct weir_supervisor *sup, struct weir_host_loop *loop);

static struct weir_host_loop *loop_begin(struct weir_supervisor *sup, loop_watch_fn watch,
                                         uint64_t now_ns)
{
    struct weir_host_loop *loop = NULL;

    assert_int_equal(weir_host_loop_create(4096, &loop), WEIR_OK);
    weir_host_loop_begin(loop, now_ns);
    watch(sup, loop);
    return loop;
}

/* How long the supervisor would sleep. */
__attribute__((unused)) static int loop_wait_ms(struct weir_supervisor *sup, loop_watch_fn watch,
                                                uint64_t now_ns)
{
    struct weir_host_loop *loop = loop_begin(sup, watch, now_ns);
    int wait_ms = weir_host_loop_wait_ms(loop);

    weir_host_loop_destroy(loop);
    return wait_ms;
}

/* Handle what has come by now. */
__attribute__((unused)) static void loop_turn(struct weir_supervisor *sup, loop_watch_fn watch)
{
    struct weir_host_loop *loop = loop_begin(sup, watch, 1);
    uint64_t woken_ns;

    weir_host_loop_wake(loop, 0);
    assert_int_equal(weir_host_loop_turn(loop, &woken_ns), WEIR_OK);
    weir_host_loop_destroy(loop);
}
