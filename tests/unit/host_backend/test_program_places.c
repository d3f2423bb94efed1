/* Programs that wait for a worker: whose places others get, and what the log says of it. */
#include "programs_fixture.h"

/* ---------------------------------------------------------------- places of those who wait */

/* Programs of a tenant's that wait, in all places from the first to before the last. */
static void fill_places(uint32_t tenant, size_t first, size_t last, bool said_hello)
{
    sup.tenants[tenant] = sup.tenants[0];
    sup.tenants[tenant].index = tenant;
    for (size_t i = first; i < last; i++) {
        sup.programs.pending[i] = (struct weir_sup_pending){.used = true,
                                                            .fd = -1,
                                                            .said_hello = said_hello,
                                                            .since_ns = 1000 - i,
                                                            .guest = {.tenant_index = tenant}};
    }
}

/* A connection of a tenant's comes. @param spoke  it has said hello. @return its end */
static int arrive(uint32_t tenant, bool spoke)
{
    const struct weir_hello hello = {
        .protocol = WEIR_PROTOCOL, .n_transports = 1, .transports = {"shm"}};
    const struct weir_link_guest guest = {.tenant_index = tenant};
    struct weir_control_bytes bytes;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    if (spoke) {
        assert_int_equal(weir_hello_encode(&hello, &bytes), WEIR_OK);
        assert_int_equal(send(pair[1], bytes.bytes, bytes.len, 0), bytes.len);
        free(bytes.bytes);
    }
    weir_sup_program_arrived(&sup, &sup.tenants[tenant], pair[0], &guest);
    return pair[1];
}

static uint32_t n_places(uint32_t tenant)
{
    uint32_t n = 0;

    for (size_t i = 0; i < WEIR_PENDING_MAX; i++) {
        n += sup.programs.pending[i].used && sup.programs.pending[i].guest.tenant_index == tenant;
    }
    return n;
}

static void who_is_silent_gives_way_of_who_has_most_of_them(void **state)
{
    (void)state;
    fill_places(1, 0, 200, false);
    fill_places(2, 200, 300, false);
    fill_places(3, 300, WEIR_PENDING_MAX, true);
    int oldest = arrive(0, true); /* that of number 199 is the oldest, and says so */
    assert_int_equal(n_places(1), 199);
    assert_true(sup.programs.pending[199].used &&
                sup.programs.pending[199].guest.tenant_index == 0);
    close(arrive(0, false)); /* also for one that is silent itself, of a holder that has few */
    assert_int_equal(n_places(1), 198);
    close(arrive(1, true));
    assert_int_equal(n_places(1), 198);
    close(arrive(3, true)); /* and for one that has most places, all of which have spoken */
    assert_int_equal(n_places(1), 197);
    assert_int_equal(n_places(2), 100);
    close(oldest);
}

static void who_has_most_places_gives_way_where_all_have_spoken(void **state)
{
    int pair[2], end;

    (void)state;
    fill_places(1, 0, 300, true);
    fill_places(2, 300, WEIR_PENDING_MAX, true);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    sup.programs.pending[0].fd = pair[0]; /* the youngest */
    end = arrive(0, true);
    was_told(pair[1], WEIR_ERR_AGAIN, "others come first");
    assert_int_equal(sup.tenants[1].refused.sessions, 0);
    assert_int_equal(n_places(1), 299);
    assert_int_equal(n_places(0), 1);
    was_told(arrive(1, true), WEIR_ERR_FULL, "their part of these");
    was_told(arrive(0, false), WEIR_ERR_AGAIN, "as many programs wait");
    for (int i = 0; i < 400; i++) {
        close(arrive(0, true));
    }
    assert_in_range(n_places(0), WEIR_PENDING_MAX / 3, WEIR_PENDING_MAX / 3 + 1);
    assert_in_range(n_places(1), WEIR_PENDING_MAX / 3, WEIR_PENDING_MAX / 3 + 1);
    close(end);
}

/* Lines in a log that is a file in memory. */
static uint32_t n_lines(int log)
{
    static char text[1u << 20];
    ssize_t n = pread(log, text, sizeof text, 0);
    uint32_t lines = 0;

    for (ssize_t i = 0; i < n; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

static void turn_away(uint32_t tenant)
{
    int end = have_pending(tenant);

    weir_sup_turn_away(&sup, &sup.programs.pending[0], WEIR_ERR_PEER, 999, "not a hello");
    close(end);
}

static void a_tenant_that_is_refused_in_a_loop_does_not_fill_the_log(void **state)
{
    int log = memfd_create("log", MFD_CLOEXEC);
    char spec[64];

    (void)state;
    snprintf(spec, sizeof spec, "warn:/proc/self/fd/%d", log);
    assert_int_equal(weir_log_init(spec, "test"), WEIR_OK);
    for (int i = 0; i < 2 * WEIR_LOG_RATE_LINES; i++) {
        turn_away(0);
    }
    assert_int_equal(n_lines(log), WEIR_LOG_RATE_LINES + 1); /* it says that there are more */
    turn_away(1);
    assert_int_equal(n_lines(log), WEIR_LOG_RATE_LINES + 2);
    assert_int_equal(weir_log_init("none", "test"), WEIR_OK);
    close(log);
}

static void machines_that_come_in_a_loop_do_not_fill_the_log(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof address;
    int log = memfd_create("log", MFD_CLOEXEC);
    char spec[64];

    (void)state;
    snprintf(spec, sizeof spec, "warn:/proc/self/fd/%d", log);
    assert_int_equal(weir_log_init(spec, "test"), WEIR_OK);
    assert_true(weir_sup_machines_open(&sup));
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        sup.machines->vms[i].id = 1;
    }
    sup.tenants[0].vm_listen_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(sup.tenants[0].vm_listen_fd, (struct sockaddr *)&address,
                          sizeof address.sun_family), /* a name of the kernel's */
                     0);
    assert_int_equal(listen(sup.tenants[0].vm_listen_fd, 1), 0);
    assert_int_equal(getsockname(sup.tenants[0].vm_listen_fd, (struct sockaddr *)&address, &bytes),
                     0);
    for (int i = 0; i < 2 * WEIR_LOG_RATE_LINES; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);

        assert_int_equal(connect(fd, (struct sockaddr *)&address, bytes), 0);
        weir_sup_vm_accept(&sup, &sup.tenants[0]);
        close(fd);
    }
    assert_int_equal(n_lines(log), WEIR_LOG_RATE_LINES + 1);
    assert_int_equal(weir_log_init("none", "test"), WEIR_OK);
    close(sup.tenants[0].vm_listen_fd);
    close(log);
    weir_sup_machines_close(&sup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_silent_gives_way_of_who_has_most_of_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_has_most_places_gives_way_where_all_have_spoken, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_that_is_refused_in_a_loop_does_not_fill_the_log,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(machines_that_come_in_a_loop_do_not_fill_the_log, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
