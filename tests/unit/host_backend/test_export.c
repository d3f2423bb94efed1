/* Descriptors that stand for pools: found by their token, gone with their last copy. */
#include "host_backend/worker/session/tenant.h"
#include "host_backend/worker/session/vmm.h"
#include "host_backend/worker/session/worker.h"

#include "../../lib/tl_cmocka.h"
#include "base/fd_pass.h"
#include "proto/wire/export.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t pool[16] = "a pool's name...";
static struct weir_worker worker;
static struct weir_tenant *tenant;

static int set_up(void **state)
{
    struct weir_tenant_config config = {.name = "a", .weight = 1, .sessions_max = 1};

    (void)state;
    memset(&worker, 0, sizeof worker);
    worker.exports_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(worker.exports_fd >= 0);
    pthread_mutex_init(&worker.lock, NULL);
    tenant = weir_tenant_create(&worker, 0, &config);
    assert_non_null(tenant);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_tenant_destroy(tenant);
    pthread_mutex_destroy(&worker.lock);
    close(worker.exports_fd);
    return 0;
}

static int export(struct weir_export_message *ret_message)
{
    int fd;

    assert_int_equal(weir_export_create(tenant, NULL, pool, &fd), CUDA_SUCCESS);
    assert_int_equal(recv(fd, ret_message, sizeof *ret_message, MSG_PEEK), sizeof *ret_message);
    return fd;
}

static void token_is_found_until_the_last_copy_is_closed(void **state)
{
    struct weir_export_message message;
    uint8_t found[16];
    int fd = export(&message), copy = dup(fd);

    (void)state;
    assert_null(weir_export_find_alloc(tenant, message.token)); /* it is no memory */
    close(fd);
    weir_exports_look(&worker);
    assert_true(weir_export_find_name(tenant, message.token, found));
    assert_memory_equal(found, pool, sizeof pool);
    close(copy);
    weir_exports_look(&worker);
    assert_false(weir_export_find_name(tenant, message.token, found));
    assert_null(tenant->exports);
}

/* A descriptor that waits at our end would outlive the guest; nothing reads there. */
static void nothing_can_be_sent_to_our_end(void **state)
{
    struct weir_export_message message;
    int fd = export(&message);

    (void)state;
    /* its own end, to be kept there */
    (void)!weir_fd_send(fd, &message, sizeof message, fd, MSG_DONTWAIT);
    close(fd);
    weir_exports_look(&worker);
    assert_null(tenant->exports);
}

static void exports_of_a_tenant_go_with_it(void **state)
{
    struct weir_export_message message;
    char byte;
    int fd = export(&message);

    (void)state;
    weir_exports_drop_all(tenant);
    assert_null(tenant->exports);
    assert_int_equal(recv(fd, &message, sizeof message, 0), sizeof message);
    assert_int_equal(recv(fd, &byte, 1, 0), 0); /* our end is closed */
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(token_is_found_until_the_last_copy_is_closed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_sent_to_our_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exports_of_a_tenant_go_with_it, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
