/* host_backend/worker/state/ending.c: what ended programs hold, and who waits for it. */
#include "host_backend/worker/state/ending.h"

#include "session_fixture.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUOTA (1u << 30)

/* ---------------------------------------------------------------- another program's memory */

static uint32_t other; /* its number */

/* Another program that has all of the quota but one unit. No session here has it. */
static void begin_other(uint32_t pid_here)
{
    other = weir_programs_add(f.tenant->programs, f.tenant->account.place, pid_here, "other");
    assert_true(weir_account_charge(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY, QUOTA - UNIT));
    weir_programs_hold(f.tenant->programs, other, QUOTA - UNIT);
}

static void give_back(void)
{
    weir_account_release(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY, QUOTA - UNIT);
    weir_programs_remove(f.tenant->programs, other);
}

/* A little later, when the session waits; the result is the same if it does not yet. */
static void *give_back_later(void *argument)
{
    (void)argument;
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    give_back();
    return NULL;
}

static CUresult create(uint32_t index, uint64_t bytes)
{
    struct weir_op_vmm_create_in in = {.h = name(WEIR_KIND_CHUNK, index), .bytes = bytes};

    return call(WEIR_OP_vmm_create, &in, NULL);
}

static uint64_t n_refused(void)
{
    return weir_refusals_take(f.tenant, WEIR_ACCOUNT_DEVICE_MEMORY);
}

static void memory_of_an_ended_program_is_waited_for(void **state)
{
    pthread_t thread;

    (void)state;
    begin_other(0);
    weir_programs_end(f.tenant->programs, other);
    assert_int_equal(pthread_create(&thread, NULL, give_back_later, NULL), 0);
    assert_int_equal(create(1, 2 * UNIT), CUDA_SUCCESS);
    pthread_join(thread, NULL);
    assert_int_equal(n_refused(), 0); /* nobody hears of the tries before */
}

static void memory_of_a_living_program_is_not(void **state)
{
    (void)state;
    begin_other((uint32_t)getpid());
    assert_int_equal(create(1, 2 * UNIT), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(f.session->op.lack == WEIR_LACK_REFUSED);
    assert_int_equal(create(1, UNIT), CUDA_SUCCESS);
    give_back();
}

/* The worker that has it has not noticed. */
static void a_program_whose_process_is_gone_has_ended(void **state)
{
    pid_t child = fork();
    pthread_t thread;

    (void)state;
    if (child == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    begin_other((uint32_t)child);
    assert_int_equal(pthread_create(&thread, NULL, give_back_later, NULL), 0);
    assert_int_equal(create(1, 2 * UNIT), CUDA_SUCCESS);
    pthread_join(thread, NULL);
}

static void who_has_waited_long_enough_is_refused_and_told_why(void **state)
{
    char why[WEIR_LINK_WHY_BYTES];

    (void)state;
    begin_other(0);
    weir_programs_end(f.tenant->programs, other);
    /* All but a little of the time is over. */
    atomic_fetch_sub(&f.tenant->programs->rows[other - 1].ended_ns,
                     WEIR_ENDING_NS - 50 * WEIR_NS_PER_MS);
    assert_int_equal(create(1, 2 * UNIT), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(f.session->op.lacks_since_ns != 0);
    weir_session_lack_text(f.session, "no", why, sizeof why);
    assert_non_null(strstr(why, "no; waited 0."));
    assert_non_null(strstr(why, "for 1 ended programs, which hold 1071644672 bytes"));
    give_back();
}

/* All that the other has is taken of the device, too. */
static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = UNIT;
    *ret_total = QUOTA;
    return CUDA_SUCCESS;
}

static void info_leaves_out_who_has_ended(void **state)
{
    struct weir_op_mem_info_in in = {0};
    struct weir_op_mem_info_out out = {0};
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    (void)state;
    begin_other(0);
    f.worker.platform.driver.cuMemGetInfo_v2 = mem_info;
    make_context();
    for (int ended = 0; ended < 2; ended++) {
        if (ended != 0) {
            weir_programs_end(f.tenant->programs, other);
        }
        assert_int_equal(send_op(WEIR_OP_mem_info, 0, &in), WEIR_OK);
        assert_int_equal(
            f.guest->ops->receive(f.guest, &record, &bulk, &bulk_bytes, 0, 5 * WEIR_NS_PER_S),
            WEIR_OK);
        assert_true(weir_ops[WEIR_OP_mem_info].out_decode(
            record + 1, record->len_bytes - sizeof *record, &out));
        await_handled();
        assert_true(out.total == QUOTA);
        assert_true(out.free == (ended != 0 ? QUOTA : UNIT));
    }
    give_back();
}

/* ---------------------------------------------------------------- a device that is full */

static struct {
    int link;           /* the supervisor's end */
    atomic_int n_tries; /* that the driver refuses; */
    atomic_int n_made;  /* those it was asked for */
    unsigned n_answers; /* for which the supervisor says that memory may come */
    unsigned n_asked;
} device;

static CUresult refuse_some(CUmemGenericAllocationHandle *ret, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (atomic_fetch_add(&device.n_made, 1) < atomic_load(&device.n_tries)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return fake_memory_create(ret, bytes, prop, flags);
}

/* As the supervisor: so many times it says that memory may come. */
static void *answer(void *argument)
{
    struct weir_link_message message;
    int fd;

    (void)argument;
    while (weir_link_receive(device.link, &message, &fd) == WEIR_OK) {
        if (message.type == WEIR_LINK_NO_MEMORY) {
            atomic_store(&spin_page.giving, device.n_asked++ < device.n_answers);
        } else if (message.type == WEIR_LINK_SYNC) {
            atomic_fetch_add(&spin_page.synced, 1);
        }
    }
    return NULL;
}

static CUresult create_on_full_device(int n_tries, unsigned n_answers)
{
    pthread_t thread;
    CUresult result;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    device.link = pair[1];
    device.n_answers = n_answers;
    device.n_asked = 0;
    atomic_store(&device.n_tries, n_tries);
    atomic_store(&device.n_made, 0);
    atomic_store(&spin_page.synced, f.worker.counts.syncs);
    f.worker.link = pair[0];
    f.worker.platform.driver.cuMemCreate = refuse_some;
    assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
    result = create(1, UNIT);
    f.worker.link = -1;
    close(pair[0]);
    pthread_join(thread, NULL);
    close(pair[1]);
    return result;
}

static void a_full_device_is_asked_as_long_as_memory_may_come(void **state)
{
    (void)state;
    assert_int_equal(create_on_full_device(6, 100), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&device.n_made), 7);
    assert_true(device.n_asked != 0);
}

static void a_full_device_is_refused_when_none_may_come(void **state)
{
    (void)state;
    assert_int_equal(create_on_full_device(1000, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(device.n_asked, 1);
    /* Who gave may have done so behind the last try. */
    assert_int_equal(create_on_full_device(1000, 2), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(device.n_asked, 4);
}

/* The driver frees what was freed last a moment later: nobody needs to be asked. */
static void a_device_that_is_full_for_a_moment_is_tried_again(void **state)
{
    (void)state;
    assert_int_equal(create_on_full_device(2, 0), CUDA_SUCCESS);
    assert_int_equal(device.n_asked, 0);
}

/* Of another tenant's, in this worker. */
static void a_program_that_ends_here_is_waited_for(void **state)
{
    (void)state;
    atomic_store(&spin_page.ending, 1);
    assert_int_equal(create_on_full_device(6, 0), CUDA_SUCCESS);
    assert_int_equal(device.n_asked, 0);
    atomic_store(&spin_page.ending, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_an_ended_program_is_waited_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(memory_of_a_living_program_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_program_whose_process_is_gone_has_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_has_waited_long_enough_is_refused_and_told_why, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(info_leaves_out_who_has_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_device_is_asked_as_long_as_memory_may_come, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_device_is_refused_when_none_may_come, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_device_that_is_full_for_a_moment_is_tried_again, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_program_that_ends_here_is_waited_for, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
