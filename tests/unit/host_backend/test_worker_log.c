/* host_backend/supervisor/workers/worker_log.c: what workers write, as the host's log has it. */
#include "../../lib/tl_cmocka.h"
#include "base/clock.h"
#include "base/log.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "loop_turn.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_WORKERS 3 /* of which two are one tenant's, and one is shared by two other tenants */

static struct weir_supervisor sup;
static int end_of[N_WORKERS]; /* the worker's; -1: closed */
static int log_file;
static char text[1u << 20];

static int set_up(void **state)
{
    static const int tenant_of[N_WORKERS] = {0, 0, -1};
    char spec[64];

    (void)state;
    memset(&sup, 0, sizeof sup);
    for (uint32_t i = 0; i < 3; i++) {
        sup.tenants[i] =
            (struct weir_sup_tenant){.used = true, .index = i, .worker = i == 0 ? -1 : 2};
        snprintf(sup.tenants[i].config.name, sizeof sup.tenants[i].config.name, "tenant%u", i);
        weir_log_rate_init(&sup.tenants[i].log_rate);
    }
    for (int i = 0; i < N_WORKERS; i++) {
        sup.workers[i] = (struct weir_sup_worker){.used = true, .link = -1, .tenant = tenant_of[i]};
        if (weir_sup_log_open(&sup.workers[i].log, &end_of[i]) != WEIR_OK) {
            return 1;
        }
    }
    log_file = memfd_create("log", MFD_CLOEXEC);
    snprintf(spec, sizeof spec, "info:/proc/self/fd/%d", log_file);
    return weir_log_init(spec, "weir serve") == WEIR_OK ? 0 : 1;
}

static void end_worker(int i)
{
    if (end_of[i] >= 0) {
        close(end_of[i]);
    }
    end_of[i] = -1;
    weir_sup_log_close(&sup, &sup.workers[i]);
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_WORKERS; i++) {
        end_worker(i);
    }
    close(log_file);
    return weir_log_init("none", NULL) == WEIR_OK ? 0 : 1;
}

static void worker_writes(int i, const char *bytes)
{
    assert_int_equal(write(end_of[i], bytes, strlen(bytes)), (ssize_t)strlen(bytes));
}

/* The log so far, without the times of its lines. */
static const char *log_text(void)
{
    static char all[sizeof text];
    ssize_t n = pread(log_file, all, sizeof all - 1, 0);
    char *to = text;

    all[n > 0 ? n : 0] = 0;
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        to += sprintf(to, "%s\n", strchr(line, ' ') + 1);
    }
    *to = 0;
    return text;
}

static unsigned n_lines(const char *which)
{
    unsigned n = 0;

    for (const char *at = log_text(); (at = strstr(at, which)); at++) {
        n++;
    }
    return n;
}

static void lines_pass_whole_and_under_the_workers_name(void **state)
{
    (void)state;
    worker_writes(0, "<6>first\n<4>sec");
    weir_sup_log_read(&sup, &sup.workers[0]);
    assert_string_equal(log_text(), "worker info first\n");
    worker_writes(0, "ond\nweir serve error supervisor: forged\n");
    worker_writes(2, "<3>of another\n");
    weir_sup_logs_read(&sup);
    assert_string_equal(log_text(),
                        "worker info first\nworker warn second\n"
                        "worker warn standard error: weir serve error supervisor: forged\n"
                        "worker error of another\n");
}

static void last_words_are_kept(void **state)
{
    (void)state;
    worker_writes(1, "<3>it dies\n<3>of this");
    end_worker(1);
    assert_null(sup.workers[1].log);
    assert_string_equal(log_text(), "worker error it dies\nworker error of this\n");
    weir_sup_log_close(&sup, &sup.workers[1]); /* once is enough */
}

static int n_reads;

static void read_log(void *user, int index)
{
    n_reads++;
    weir_sup_log_read(user, &sup.workers[index]);
}

static void watch_log(struct weir_supervisor *of, struct weir_host_loop *loop)
{
    weir_sup_log_watch(of, &of->workers[0], loop, read_log, 0);
}

static void an_end_does_not_wake_the_supervisor_again(void **state)
{
    (void)state;
    close(end_of[0]);
    end_of[0] = -1;
    n_reads = 0;
    loop_turn(&sup, watch_log);
    loop_turn(&sup, watch_log);
    assert_int_equal(n_reads, 1);
    assert_int_equal(loop_wait_ms(&sup, watch_log, weir_clock_now_ns()), -1);
}

static void a_line_without_end_is_cut(void **state)
{
    char longer[3001];

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[3000] = 0;
    worker_writes(0, longer);
    weir_sup_log_read(&sup, &sup.workers[0]);
    assert_int_equal(n_lines("worker warn standard error: xxx"), 2);
    end_worker(0);
    assert_int_equal(n_lines("worker warn standard error: xxx"), 3);
}

/* Write so many lines and have them read. */
static void flood(int worker, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        worker_writes(worker, "<6>flood\n");
        weir_sup_log_read(&sup, &sup.workers[worker]);
    }
}

static void a_tenants_workers_count_together(void **state)
{
    (void)state;
    flood(0, WEIR_LOG_RATE_LINES - 50);
    flood(1, WEIR_LOG_RATE_LINES - 50);
    assert_int_equal(n_lines("worker info flood"), WEIR_LOG_RATE_LINES);
    assert_int_equal(n_lines("weir serve warn log: "), 1);
    assert_int_equal(n_lines("more are left out tenant=tenant0"), 1);
    worker_writes(1, "<3>of another level\n");
    worker_writes(2, "<6>of another worker\n");
    weir_sup_logs_read(&sup);
    assert_int_equal(n_lines("worker error of another level"), 1);
    assert_int_equal(n_lines("worker info of another worker"), 1);
}

static void a_worker_of_several_may_write_as_much_as_they(void **state)
{
    (void)state;
    flood(2, 4 * WEIR_LOG_RATE_LINES);
    assert_int_equal(n_lines("worker info flood"), 3 * WEIR_LOG_RATE_LINES);
}

/* What it writes while it is not read it loses itself. */
static void who_writes_without_end_is_read_in_pieces(void **state)
{
    char line[900];
    uint64_t now_ns;
    unsigned n = 0;

    (void)state;
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    while (write(end_of[0], line, sizeof line) > 0) {
        n++;
    }
    assert_true(n > 5);
    weir_sup_log_read(&sup, &sup.workers[0]);
    assert_int_equal(n_lines("xxx\n"), 4096 / sizeof line);
    now_ns = weir_clock_now_ns();
    assert_true(loop_wait_ms(&sup, watch_log, now_ns - WEIR_NS_PER_S) > 0);
    assert_int_equal(loop_wait_ms(&sup, watch_log, now_ns + WEIR_NS_PER_S), -1); /* it is read */
    end_worker(0);
    assert_int_equal(n_lines("xxx\n"), n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_pass_whole_and_under_the_workers_name, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(last_words_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_does_not_wake_the_supervisor_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_line_without_end_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tenants_workers_count_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_of_several_may_write_as_much_as_they, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_writes_without_end_is_read_in_pieces, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
