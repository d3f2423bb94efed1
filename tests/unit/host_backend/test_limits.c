/* A session's own limits: what it may hold of each device, and what it is shown. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static struct weir_tenant tenant;
static struct weir_worker told = {.link = -1};
static struct weir_programs programs;

/* Of a tenant whose quota is not in the way. */
static struct weir_session *session_with(uint64_t first, uint64_t second)
{
    struct weir_session *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->about = calloc(1, sizeof *s->about);
    assert_non_null(s->about);
    weir_account_limit_set(&tenant.account, WEIR_ACCOUNT_DEVICE_MEMORY, UINT64_MAX);
    weir_account_limit_set(&tenant.account, WEIR_ACCOUNT_OF_DEVICE, UINT64_MAX);
    weir_account_limit_set(&tenant.account, WEIR_ACCOUNT_OF_DEVICE + 1, UINT64_MAX);
    tenant.programs = &programs;
    tenant.worker = &told;
    s->tenant = &tenant;
    s->worker = &told;
    s->about->wish.memory_bytes[0] = first;
    s->about->wish.memory_bytes[1] = second;
    return s;
}

static void session_free(struct weir_session *s)
{
    free(s->about);
    free(s);
}

/* What charging would give; nothing stays charged. */
static CUresult may_charge(struct weir_session *s, uint64_t bytes)
{
    CUresult result = weir_session_charge(s, 0, WEIR_ACCOUNT_DEVICE_MEMORY, bytes);

    if (result == CUDA_SUCCESS) {
        weir_tenant_release(s->tenant, 0, bytes);
    }
    return result;
}

static void charge_without_a_wish_is_held_to_the_quota_alone(void **state)
{
    struct weir_session *s = session_with(0, 0);

    (void)state;
    assert_int_equal(may_charge(s, UINT64_MAX), CUDA_SUCCESS);
    weir_account_limit_set(&tenant.account, WEIR_ACCOUNT_DEVICE_MEMORY, 4 * MIB);
    assert_int_equal(may_charge(s, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(may_charge(s, 4 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    session_free(s);
}

/* The first is told at once, those that follow soon are counted for the tenant's row. */
static void refusals_are_told_and_counted(void **state)
{
    struct weir_session *s = session_with(8 * MIB, 0);
    struct weir_link_message message;
    int ends[2], fd;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    told.link = ends[0];
    memset(&tenant.refusals, 0, sizeof tenant.refusals);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(may_charge(s, 9 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    }
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_EVENT);
    assert_int_equal(message.event.kind, WEIR_EVENT_ALLOCATION_REFUSED);
    assert_int_equal(message.event.bytes, 9 * MIB);
    assert_int_equal(message.event.n, 1);
    assert_int_equal(weir_link_receive(ends[1], &message, &fd), WEIR_ERR_AGAIN);
    assert_int_equal(weir_refusals_take(&tenant, WEIR_ACCOUNT_DEVICE_MEMORY), 4);
    assert_int_equal(weir_refusals_take(&tenant, WEIR_ACCOUNT_DEVICE_MEMORY), 0);
    told.link = -1;
    close(ends[0]);
    close(ends[1]);
    session_free(s);
}

static void charge_is_held_to_the_wish_of_each_device(void **state)
{
    struct weir_session *s = session_with(4 * MIB, 0);

    (void)state;
    assert_int_equal(may_charge(s, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(may_charge(s, 4 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(may_charge(s, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    weir_session_hold(s, 1, 100 * MIB);
    weir_session_hold(s, 0, 3 * MIB);
    assert_int_equal(may_charge(s, MIB), CUDA_SUCCESS);
    assert_int_equal(may_charge(s, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(atomic_load(&s->about->held_bytes) == 103 * MIB);
    weir_session_let_go(s, 0, 3 * MIB);
    assert_int_equal(may_charge(s, 4 * MIB), CUDA_SUCCESS);
    assert_true(atomic_load(&s->about->held_bytes) == 100 * MIB);
    session_free(s);
}

static void pinned_memory_has_a_limit_of_its_own(void **state)
{
    struct weir_session *s = session_with(MIB, 0);

    (void)state;
    weir_account_limit_set(&tenant.account, WEIR_ACCOUNT_PINNED_MEMORY, 8 * MIB);
    assert_int_equal(weir_session_charge(s, 0, WEIR_ACCOUNT_PINNED_MEMORY, 8 * MIB), CUDA_SUCCESS);
    assert_int_equal(weir_session_charge(s, 0, WEIR_ACCOUNT_PINNED_MEMORY, 1),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(may_charge(s, MIB), CUDA_SUCCESS);
    weir_account_release(&tenant.account, WEIR_ACCOUNT_PINNED_MEMORY, 8 * MIB);
    session_free(s);
}

static void limit_info_only_lowers(void **state)
{
    struct weir_session *s = session_with(8 * MIB, 0);
    uint64_t left = 100 * MIB, total = 200 * MIB;

    (void)state;
    weir_session_limit_info(s, 1, &left, &total);
    assert_true(left == 100 * MIB && total == 200 * MIB);
    weir_session_hold(s, 0, 3 * MIB);
    weir_session_limit_info(s, 0, &left, &total);
    assert_true(left == 5 * MIB && total == 8 * MIB);
    left = MIB; /* the tenant has less left than this session might hold */
    total = 4 * MIB;
    weir_session_limit_info(s, 0, &left, &total);
    assert_true(left == MIB && total == 4 * MIB);
    session_free(s);
}

static void limit_info_of_a_monitor_is_its_process(void **state)
{
    static struct weir_worker worker;
    static struct weir_tenant other = {.index = 1};
    struct weir_session *s[4];
    uint64_t left = 100 * MIB, total = 100 * MIB;

    (void)state;
    pthread_mutex_init(&worker.lock, NULL);
    for (int i = 0; i < 4; i++) {
        s[i] = session_with(8 * MIB, 0);
        s[i]->worker = &worker;
        s[i]->tenant = i == 3 ? &other : &tenant;
        s[i]->about->pid = i == 2 ? 8 : 7;
        s[i]->next = i > 0 ? s[i - 1] : NULL;
        weir_session_hold(s[i], 0, i == 0 ? 0 : MIB << i);
    }
    s[0]->about->monitor = true; /* beside s[1]; s[2] is another process, s[3] another tenant's */
    worker.sessions = s[3];
    weir_session_limit_info(s[0], 0, &left, &total);
    assert_true(left == 6 * MIB && total == 8 * MIB);
    for (int i = 0; i < 4; i++) {
        session_free(s[i]);
    }
    pthread_mutex_destroy(&worker.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charge_without_a_wish_is_held_to_the_quota_alone),
        cmocka_unit_test(refusals_are_told_and_counted),
        cmocka_unit_test(charge_is_held_to_the_wish_of_each_device),
        cmocka_unit_test(pinned_memory_has_a_limit_of_its_own),
        cmocka_unit_test(limit_info_only_lowers),
        cmocka_unit_test(limit_info_of_a_monitor_is_its_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
