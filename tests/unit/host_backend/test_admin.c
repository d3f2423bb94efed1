/* host_backend/supervisor/admin.c: clients that are slow. The rest: tests/e2e. */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "loop_turn.h"

#include "../../lib/tl_lived.h"
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
    sup.gate.link = sup.admin.fd = -1;
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        sup.admin.clients[i].fd = -1;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) {
        return 1;
    }
    sup.admin.clients[0] = (struct weir_admin_client){
        .fd = pair[0], .asked = true, .looks = true, .stats = true, .gathering = 1};
    end = pair[1];
    sup.admin.gathering = sup.admin.gathering_stats = true;
    sup.admin.n_gatherings = 1;
    sup.admin.stats_text = calloc(1, TEXT_BYTES);
    sup.admin.stats_bytes = TEXT_BYTES;
    return sup.admin.stats_text ? 0 : 1;
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
    struct tl_lived begin = tl_lived_now();
    uint64_t begin_ns = weir_clock_now_ns();

    (void)state;
    weir_sup_admin_tick(&sup, begin_ns);
    assert_true(tl_lived_since_ns(begin) < WEIR_NS_PER_S / 2);
    assert_false(sup.admin.gathering);
    assert_true(sup.admin.clients[0].fd >= 0);
    assert_in_range(loop_wait_ms(&sup, weir_sup_admin_watch, begin_ns), 4000, 6000);
    weir_sup_admin_tick(&sup, begin_ns + 6 * WEIR_NS_PER_S); /* it has had time enough */
    assert_int_equal(sup.admin.clients[0].fd, -1);
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
        if (sup.admin.clients[0].fd >= 0) {
            loop_turn(&sup, weir_sup_admin_watch);
        }
    }
    assert_int_equal(got, TEXT_BYTES + END);
    assert_memory_equal(text + TEXT_BYTES, WEIR_STATUS_TEXT_END, END);
    assert_int_equal(sup.admin.clients[0].fd, -1);
}

/* ---------------------------------------------------------------- what a hostile worker answers */

/* Of a tenant's session, with texts that do not end. */
static void answer_row(const char *tenant, uint32_t type)
{
    struct weir_link_heard heard = {.message = {.type = type}, .fd = -1};
    struct weir_link_message *message = &heard.message;

    memset(&message->session_row, 'x', sizeof message->session_row);
    if (type == WEIR_LINK_ROW_SESSION) {
        memcpy(message->session_row.tenant, tenant, strlen(tenant) + 1);
    } else {
        memset(&message->tenant_row, 'x', sizeof message->tenant_row);
        memcpy(message->tenant_row.name, tenant, strlen(tenant) + 1);
    }
    weir_sup_hear(&sup, 0, &heard);
}

static void a_worker_answers_when_asked_and_about_its_own_tenants(void **state)
{
    (void)state;
    sup.workers[0] = (struct weir_sup_worker){.used = true, .tenant = -1};
    for (uint32_t i = 0; i < 2; i++) {
        sup.tenants[i] = (struct weir_sup_tenant){.used = true, .index = i, .worker = (int)i};
    }
    strcpy(sup.tenants[0].config.name, "a");
    strcpy(sup.tenants[1].config.name, "b");
    answer_row("a", WEIR_LINK_ROW_SESSION);
    assert_int_equal(sup.admin.gathered.n_sessions, 0); /* nobody has asked */
    sup.workers[0].answering = true;
    answer_row("b", WEIR_LINK_ROW_SESSION);
    answer_row("b", WEIR_LINK_ROW_TENANT);
    answer_row("nobody", WEIR_LINK_ROW_SESSION);
    assert_int_equal(sup.admin.gathered.n_sessions + sup.admin.gathered.n_tenants, 0);
    assert_int_equal(sup.tenants[1].refused.device, 0);
    answer_row("a", WEIR_LINK_ROW_TENANT);
    assert_int_equal(sup.admin.gathered.n_tenants, 1);
    for (int i = 0; i < 20000; i++) {
        answer_row("a", WEIR_LINK_ROW_SESSION);
    }
    assert_in_range(sup.admin.gathered.n_sessions, 1, 10000);
    assert_int_equal(strlen(sup.admin.gathered.sessions[0].program), WEIR_HOST_TEXT_BYTES - 1);
    assert_int_equal(strlen(sup.admin.gathered.sessions[0].transport),
                     sizeof sup.admin.gathered.sessions[0].transport - 1);
}

/* Reading from a pipe would wait for ever. */
static void statistics_come_in_a_file(void **state)
{
    struct weir_link_message message = {.type = WEIR_LINK_STATUS_END};
    int ends[2];

    (void)state;
    memset(&message.worker, 'x', sizeof message.worker);
    sup.workers[0] = (struct weir_sup_worker){.used = true, .tenant = -1, .answering = true};
    assert_int_equal(pipe(ends), 0);
    weir_sup_admin_row(&sup, 0, &message, ends[0]);
    assert_int_equal(sup.admin.stats_bytes, TEXT_BYTES);
    assert_int_equal(strlen(sup.workers[0].row.devices), sizeof sup.workers[0].row.devices - 1);
    assert_false(sup.workers[0].answering);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_client_that_does_not_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_reads_gets_all_of_its_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_answers_when_asked_and_about_its_own_tenants,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(statistics_come_in_a_file, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
