/* Descriptors that stand for pools: found by their token, gone with their last copy. */
#include "host_backend/worker/memory/directory.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "../../lib/tl_cmocka.h"
#include "base/fd_pass.h"
#include "proto/wire/export.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t pool[16] = "a pool's name...";
static struct weir_worker worker;
static struct weir_tenant *tenant;
static int link_ends[2]; /* the worker's, the supervisor's */

static int set_up(void **state)
{
    struct weir_tenant_config config = {.name = "a", .weight = 1, .sessions_max = 1};

    (void)state;
    memset(&worker, 0, sizeof worker);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link_ends), 0);
    worker.directory = weir_directory_create(link_ends[0]);
    assert_non_null(worker.directory);
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
    weir_directory_destroy(worker.directory);
    close(link_ends[0]);
    close(link_ends[1]);
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
    struct weir_vmm_alloc *no_memory;
    uint8_t found[16];
    int fd = export(&message), copy = dup(fd);

    (void)state;
    assert_int_equal(weir_export_find_alloc(tenant, message.token, &no_memory),
                     CUDA_ERROR_INVALID_VALUE);
    close(fd);
    weir_exports_look(&worker);
    assert_int_equal(weir_export_find_name(tenant, message.token, found), CUDA_SUCCESS);
    assert_memory_equal(found, pool, sizeof pool);
    close(copy);
    weir_exports_look(&worker);
    assert_int_equal(weir_export_find_name(tenant, message.token, found), CUDA_ERROR_INVALID_VALUE);
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

/* Takes what is published, and answers that it is entered; gives the copy of our end. */
static void *supervisor(void *user)
{
    struct weir_link_message message;
    int *ret_copy = user;

    assert_int_equal(weir_link_receive(link_ends[1], &message, ret_copy), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_PUBLISH);
    assert_int_equal(message.entry.kind, WEIR_ENTRY_POOL);
    message.entry.status = WEIR_OK;
    weir_directory_answered(&worker, &message.entry, -1);
    return NULL;
}

/* Closing alone would leave the copy in the epoll set, with what is freed. */
static void it_goes_although_the_supervisor_has_a_copy(void **state)
{
    static struct weir_account_page page;
    struct weir_export_message message;
    struct epoll_event event;
    int copy = -1, fd;
    pthread_t thread;

    (void)state;
    tenant->account.page = &page;
    tenant->has_others = true;
    assert_int_equal(pthread_create(&thread, NULL, supervisor, &copy), 0);
    fd = export(&message);
    pthread_join(thread, NULL);
    tenant->account.page = NULL; /* which is no mapping of its own */
    assert_true(copy >= 0);
    close(fd);
    weir_exports_look(&worker);
    assert_null(tenant->exports);
    assert_int_equal(epoll_wait(weir_directory_watch_fd(&worker), &event, 1, 0), 0);
    close(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(token_is_found_until_the_last_copy_is_closed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nothing_can_be_sent_to_our_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_goes_although_the_supervisor_has_a_copy, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(exports_of_a_tenant_go_with_it, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
