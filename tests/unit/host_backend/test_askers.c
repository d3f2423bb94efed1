/* host_backend/supervisor/tenants/demand.c: who makes room where too many ask. The rest: e2e. */
#include "base/clock.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../lib/tl_cmocka.h"

enum { ALICE = 5, BOB = 6, BOBS = 0 };

static struct weir_supervisor sup;

/* All places are taken: the oldest is bob's, and all others are alice's, the later the younger. */
static int set_up(void **state)
{
    (void)state;
    memset(&sup, 0, sizeof sup);
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        sup.demand.clients[i] =
            (struct weir_sup_demand_client){.fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
                                            .deadline_ns = 1000 + (uint64_t)i,
                                            .uid = i == BOBS ? BOB : ALICE};
    }
    sup.demand.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        close(sup.demand.clients[i].fd);
    }
    close(sup.demand.fd);
    return 0;
}

static int ask(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_int_equal(getsockname(sup.demand.fd, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, bytes), 0);
    weir_sup_demand_accept(&sup);
    return fd;
}

static void the_oldest_makes_room_of_the_user_with_most(void **state)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)state;
    assert_int_equal(bind(sup.demand.fd, (const struct sockaddr *)&address,
                          sizeof address.sun_family), /* a name of the kernel's */
                     0);
    assert_int_equal(listen(sup.demand.fd, 4), 0);
    int first = ask(), second = ask();
    assert_int_equal(sup.demand.clients[BOBS].uid, BOB);
    assert_true(sup.demand.clients[BOBS].deadline_ns == 1000);
    for (int i = 1; i <= 2; i++) { /* this process's own are there */
        assert_int_equal(sup.demand.clients[i].uid, getuid());
        assert_true(sup.demand.clients[i].deadline_ns > weir_clock_now_ns());
    }
    assert_true(sup.demand.clients[3].deadline_ns == 1003);
    close(first);
    close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_makes_room_of_the_user_with_most, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
