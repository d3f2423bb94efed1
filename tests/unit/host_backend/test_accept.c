/* Accepting connections with no descriptors left: who is told what; and nobody polls for ever. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"
#include "proto/wire/control.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LIMIT 64

static struct fixture {
    struct weir_supervisor sup;
    struct rlimit before;
    struct sockaddr_un address;
    int listen_fd;
    int filler[LIMIT];
    int n;
} f;

static int client(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&f.address, sizeof f.address), 0);
    return fd;
}

/* From now on no descriptor is left. */
static void use_up(void)
{
    struct rlimit low = {LIMIT, f.before.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((f.filler[f.n] = dup(f.listen_fd)) >= 0) {
        f.n++;
    }
}

static bool is_ready(void)
{
    struct pollfd p = {.fd = f.listen_fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &f.before), 0);
    f.address.sun_family = AF_UNIX;
    snprintf(f.address.sun_path + 1, sizeof f.address.sun_path - 1, "weir-test-accept-%d",
             (int)getpid());
    f.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(f.listen_fd >= 0);
    assert_int_equal(bind(f.listen_fd, (struct sockaddr *)&f.address, sizeof f.address), 0);
    assert_int_equal(listen(f.listen_fd, 16), 0);
    weir_sup_reserve_fill(&f.sup);
    assert_int_equal(f.sup.reserve.n, WEIR_SUP_RESERVE);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < f.n; i++) {
        close(f.filler[i]);
    }
    close(f.listen_fd);
    weir_sup_reserve_close(&f.sup);
    return setrlimit(RLIMIT_NOFILE, &f.before);
}

static void guests_are_told_and_nothing_stays_ready(void **state)
{
    char said[WEIR_CONTROL_MAX_BYTES];
    int guest = client();

    (void)state;
    use_up();
    for (int i = 0; i < 3; i++) {
        assert_true(is_ready());
        assert_int_equal(weir_sup_accept_guest(&f.sup, f.listen_fd, NULL, NULL), -1);
        assert_false(is_ready());
        assert_true(recv(guest, said, sizeof said, 0) > 0); /* a refusal, and then the end */
        assert_int_equal(recv(guest, said, sizeof said, 0), 0);
        assert_int_equal(f.sup.reserve.n, WEIR_SUP_RESERVE);
        assert_int_equal(f.sup.reserve.refused, i + 1);
        close(guest);
        guest = i < 2 ? client() : -1;
    }
}

static void operators_get_in_but_never_the_last_one(void **state)
{
    int clients[WEIR_SUP_RESERVE + 1], inside[WEIR_SUP_RESERVE];

    (void)state;
    for (unsigned i = 0; i <= WEIR_SUP_RESERVE; i++) {
        clients[i] = client();
    }
    use_up();
    for (unsigned i = 0; i < WEIR_SUP_RESERVE - 1; i++) {
        inside[i] = weir_sup_accept_operator(&f.sup, f.listen_fd, SOCK_CLOEXEC);
        assert_true(inside[i] >= 0);
    }
    assert_int_equal(weir_sup_accept_operator(&f.sup, f.listen_fd, SOCK_CLOEXEC), -1);
    assert_int_equal(f.sup.reserve.n, 1);
    close(inside[0]); /* what one leaves is put by for the next */
    weir_sup_reserve_fill(&f.sup);
    assert_int_equal(f.sup.reserve.n, 2);
    inside[0] = weir_sup_accept_operator(&f.sup, f.listen_fd, SOCK_CLOEXEC);
    assert_true(inside[0] >= 0);
    for (unsigned i = 0; i < WEIR_SUP_RESERVE - 1; i++) {
        close(inside[i]);
    }
    for (unsigned i = 0; i <= WEIR_SUP_RESERVE; i++) {
        close(clients[i]);
    }
}

/* They hang up, and come again when there is room. */
static void operators_for_whom_there_is_none_do_not_stay_ready(void **state)
{
    int clients[WEIR_SUP_RESERVE], inside[WEIR_SUP_RESERVE];
    char said[8];

    (void)state;
    for (unsigned i = 0; i < WEIR_SUP_RESERVE; i++) {
        clients[i] = client();
    }
    use_up();
    for (unsigned i = 0; i < WEIR_SUP_RESERVE; i++) {
        assert_true(is_ready());
        inside[i] = weir_sup_accept_operator(&f.sup, f.listen_fd, SOCK_CLOEXEC);
    }
    assert_int_equal(inside[WEIR_SUP_RESERVE - 1], -1);
    assert_int_equal(recv(clients[WEIR_SUP_RESERVE - 1], said, sizeof said, MSG_DONTWAIT), 0);
    assert_false(is_ready());
    assert_int_equal(f.sup.reserve.n, 1);
    for (unsigned i = 0; i < WEIR_SUP_RESERVE; i++) {
        close(inside[i]);
        close(clients[i]);
    }
}

static void who_asks_whose_gpu_it_is_is_told_without_descriptors(void **state)
{
    char said[64] = "";
    int other = client();

    (void)state;
    snprintf(f.sup.config.run_dir, sizeof f.sup.config.run_dir, "/run/other");
    f.sup.claims.of[0].fd = f.listen_fd;
    f.sup.claims.n = 1;
    use_up();
    weir_sup_claim_answer(&f.sup, 0);
    assert_false(is_ready());
    assert_true(recv(other, said, sizeof said - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(said, "/run/other");
    close(other);
}

static void with_descriptors_left_guests_get_in(void **state)
{
    int guest = client(), fd = weir_sup_accept_guest(&f.sup, f.listen_fd, NULL, NULL);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(f.sup.reserve.refused, 0);
    assert_int_equal(weir_sup_accept_guest(&f.sup, f.listen_fd, NULL, NULL),
                     -1); /* there is nobody */
    assert_int_equal(f.sup.reserve.refused, 0);
    close(fd);
    close(guest);
}

/* Offer this many pieces of a tenant's memory; how many are held then. */
static size_t keep(uint32_t tenant, int n)
{
    struct weir_link_chunk chunk = {.tenant_index = tenant};
    size_t before = f.sup.chunks.n_kept;

    for (int i = 0; i < n; i++) {
        int fd = dup(f.listen_fd);

        assert_true(fd >= 0);
        chunk.id = tenant * 1000u + (unsigned)i;
        weir_sup_keep(&f.sup, 0, &chunk, fd);
    }
    return f.sup.chunks.n_kept - before;
}

static void kept_memory_of_a_tenant_leaves_some_for_all_else(void **state)
{
    struct rlimit low = {2048, f.before.rlim_max};

    (void)state;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    weir_sup_chunks_init(&f.sup);
    assert_int_equal(keep(0, 600), 512 + 2); /* a quarter of all, and a share of its own */
    assert_int_equal(keep(1, 10), 2);
    assert_int_equal(keep(WEIR_CONFIG_TENANTS_MAX, 1), 0);
    weir_sup_drop(&f.sup, 0, 0);
    assert_int_equal(keep(0, 10), 1);
    weir_sup_drop_all(&f.sup, 0);
    assert_int_equal(f.sup.chunks.n_kept, 0);
    assert_int_equal(keep(1, 600), 512 + 2);
    weir_sup_drop_all(&f.sup, 0);
    free(f.sup.chunks.kept);
    f.sup.chunks.kept = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(guests_are_told_and_nothing_stays_ready, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operators_get_in_but_never_the_last_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operators_for_whom_there_is_none_do_not_stay_ready, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_asks_whose_gpu_it_is_is_told_without_descriptors,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(with_descriptors_left_guests_get_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kept_memory_of_a_tenant_leaves_some_for_all_else, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
