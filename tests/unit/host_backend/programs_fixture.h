/* Four workers of a supervisor's, and programs that wait for one. */
#pragma once

#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/machines/private.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/workers.h"
#include "loop_turn.h"

#include "base/clock.h"
#include "proto/wire/control.h"
#include "proto/wire/control_codec.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SPARE, BUSY, KEPT, SHARED, N };

static struct weir_supervisor sup;
static struct weir_spin_page page, pages[N];
static int links[N]; /* the workers' ends */

static int set_up(void **state)
{
    const struct weir_sup_worker workers[N] = {
        [SPARE] = {.kind = WEIR_WORKER_PROGRAM, .tenant = -1, .program = {.native = true}},
        [BUSY] = {.kind = WEIR_WORKER_PROGRAM, .tenant = 0, .program = {.busy = true}},
        [KEPT] = {.kind = WEIR_WORKER_PROGRAM, .tenant = 0},
        [SHARED] = {.kind = WEIR_WORKER_SHARED, .tenant = -1}};

    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.listener = &weir_worker_events;
    memset(pages, 0, sizeof pages);
    sup.spin.page = &page;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        sup.tenants[i].index = i;
    }
    for (int i = 0; i < N; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
            return 1;
        }
        sup.workers[i] = workers[i];
        sup.workers[i].used = sup.workers[i].ready = true;
        sup.workers[i].link = pair[0];
        sup.workers[i].spin_page = &pages[i];
        links[i] = pair[1];
    }
    sup.workers[KEPT].program.idle_since_ns = weir_clock_now_ns();
    sup.config.workers.idle_s = 10;
    sup.tenants[0].used = true;
    sup.tenants[0].config.isolation = WEIR_ISOLATION_PROGRAM;
    sup.tenants[0].config.sm_limit_pct = 100;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        close(sup.workers[i].link);
        close(links[i]);
    }
    return 0;
}

/* A program of this tenant's that has said hello and waits for a worker. @return its end */
static int have_pending(uint32_t tenant)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sup.programs.pending[0] = (struct weir_sup_pending){.used = true,
                                                        .fd = pair[0],
                                                        .said_hello = true,
                                                        .since_ns = weir_clock_now_ns(),
                                                        .guest = {.tenant_index = tenant}};
    return pair[1];
}

/* The guest's library reads this. */
static void was_told(int end, enum weir_status reason, const char *why)
{
    struct weir_welcome *welcome;
    uint8_t bytes[4096];
    ssize_t n = recv(end, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0) { /* ECONNRESET, once: nobody has read its hello */
        n = recv(end, bytes, sizeof bytes, MSG_DONTWAIT);
    }
    assert_true(n > 0);
    assert_int_equal(weir_welcome_decode(bytes, (size_t)n, &welcome), WEIR_OK);
    assert_int_equal(welcome->status, reason);
    assert_non_null(strstr(welcome->message, why));
    weir_welcome_destroy(welcome);
    close(end);
}
