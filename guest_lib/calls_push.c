/*
 * A remote guest sends the host its counts: about once a second, in a thread that has to wait for a
 * call, and when the process ends. No extra thread does this, so an idle program sends nothing.
 */
#include "guest_lib/calls.h"
#include "guest_lib/entry.h"
#include "proto/calls_log_table.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>

#define PUSH_PERIOD_NS WEIR_NS_PER_S

static uint64_t pushed_ns; /* atomic */

static void push(void)
{
    struct weir_stats_row *rows = calloc(WEIR_SYMBOL_COUNT, sizeof *rows);
    uint32_t n = 0;
    for (int i = 0; rows && i < WEIR_SYMBOL_COUNT; i++) {
        struct weir_stats_row *row = &rows[n];
        weir_calls_sum((enum weir_symbol)i, &row->counts);
        if (row->counts.guest | row->counts.posted | row->counts.waited) {
            strncpy(row->name, weir_calls_log_symbols[i].name, sizeof row->name - 1);
            n++;
        }
    }
    if (n) {
        struct weir_op_stats_put_in in = {.data = (const void *)rows,
                                          .n_data = n * (uint32_t)sizeof *rows};
        /* A dead host receives nothing. */
        (void)weir_call_stats_put(weir_guest_channel(), &in, NULL);
    }
    free(rows);
}

void weir_calls_push(uint64_t now_ns)
{
    uint64_t last_ns = __atomic_load_n(&pushed_ns, __ATOMIC_RELAXED);
    if (weir_guest_phase_now() != WEIR_PHASE_READY || !weir_guest.channel.remote ||
        now_ns - last_ns < PUSH_PERIOD_NS ||
        !__atomic_compare_exchange_n(&pushed_ns, &last_ns, now_ns, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED)) {
        return;
    }
    push();
}

void weir_calls_push_last(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (weir_guest_phase_now() == WEIR_PHASE_READY && weir_guest.channel.remote) {
        push();
    }
}
