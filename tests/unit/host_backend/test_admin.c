/* host_backend/supervisor/admin.c: clients that are slow. The rest: tests/e2e. */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "host_backend/config/status_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES (1u << 20) /* more than a socket takes */
#define END        (sizeof WEIR_STATUS_TEXT_END - 1)

static struct weir_supervisor sup;
static int end; /* the client's */

/* A client that has asked for statistics, of which there are some. */
static int set_up(void **state)
{
    const struct timeval limit = {1, 0};
    int pair[2];

    (void)state;
    memset(&sup, 0, sizeof sup);
    sup.gate.link = sup.admin_fd = -1;
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        sup.clients[i].fd = -1;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
        return 1;
    }
    sup.clients[0] = (struct weir_admin_client){
        .fd = pair[0], .asked = true, .looks = true, .stats = true, .gathering = 1};
    end = pair[1];
    sup.gathering = sup.gathering_stats = true;
    sup.n_gatherings = 1;
    sup.stats_text = calloc(1, TEXT_BYTES);
    sup.stats_bytes = TEXT_BYTES;
    return sup.stats_text != NULL ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    weir_sup_admin_close(&sup);
    close(end);
    return 0;
}

static void nobody_waits_for_a_client_that_does_not_read(void **state)
{
    uint64_t begin_ns = weir_clock_now_ns();

    (void)state;
    weir_sup_admin_tick(&sup, begin_ns);
    assert_true(weir_clock_now_ns() - begin_ns < WEIR_NS_PER_S / 2);
    assert_false(sup.gathering);
    assert_true(sup.clients[0].fd >= 0);
    assert_in_range(weir_sup_admin_wait_ms(&sup, begin_ns), 4000, 6000);
    weir_sup_admin_tick(&sup, begin_ns + 6 * WEIR_NS_PER_S); /* it has had time enough */
    assert_int_equal(sup.clients[0].fd, -1);
}

static void one_that_reads_gets_all_of_its_answer(void **state)
{
    static char text[TEXT_BYTES + 4096];
    size_t got = 0;
    ssize_t n;

    (void)state;
    weir_sup_admin_tick(&sup, weir_clock_now_ns());
    while ((n = recv(end, text + got, sizeof text - got, 0)) > 0) {
        got += (size_t)n;
        if (sup.clients[0].fd >= 0) {
            assert_true(weir_sup_admin_events(&sup.clients[0]) != 0);
            weir_sup_admin_serve(&sup, &sup.clients[0]);
        }
    }
    assert_int_equal(got, TEXT_BYTES + END);
    assert_memory_equal(text + TEXT_BYTES, WEIR_STATUS_TEXT_END, END);
    assert_int_equal(sup.clients[0].fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_client_that_does_not_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_reads_gets_all_of_its_answer, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
