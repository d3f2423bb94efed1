/* Registered memory in the guest: what is asked of the host, when, and what is answered without it.
 * This host makes no memory: whatever is to be shared stays as it is. */
#include "guest_lib/memory.h"
#include "guest_lib/register.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_hand.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_host.h"
#include <string.h>
#include <sys/mman.h>

#define OK(call)  assert_int_equal((call), CUDA_SUCCESS)
#define PAGE      4096u
#define MIB       (1u << 20)
#define MAPPED    CU_MEMHOSTREGISTER_DEVICEMAP
#define READ_ONLY CU_MEMHOSTREGISTER_READ_ONLY

static char *memory; /* of MIB bytes; each test leaves nothing registered */
static struct tl_host *host;

static int start(void **state)
{
    CUcontext ctx;
    (void)state;
    host = tl_host_start();
    OK(weir_guest_cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(weir_guest_cuCtxSetCurrent(ctx));
    memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_int_equal(weir_register_private_count, 0);
    munmap(memory, MIB);
    weir_ctx_stack_set(NULL);
    tl_host_stop(host);
    return 0;
}

static CUresult add(uint64_t offset, uint64_t bytes, unsigned int flags)
{
    return weir_guest_cuMemHostRegister_v2(memory + offset, bytes, flags);
}

static CUresult drop(uint64_t offset)
{
    return weir_guest_cuMemHostUnregister(memory + offset);
}

/* How often pages were to be shared. */
static unsigned int asked(void)
{
    tl_host_drain();
    return tl_host_count(host, WEIR_OP_host_replace);
}

static void registering_and_unregistering_send_nothing(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < MIB; at += 100) {
        OK(add(at, at + 100 < MIB ? 100 : MIB - at, 0));
    }
    for (uint64_t at = 0; at < MIB; at += 100) {
        OK(drop(at));
    }
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_host_replace), 0);
    assert_int_equal(tl_host_count(host, WEIR_OP_host_register), 0);
    assert_int_equal(tl_host_count(host, WEIR_OP_host_unregister), 0);
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
}

static void ranges_may_share_a_page_but_no_byte(void **state)
{
    (void)state;
    OK(add(1000, 1000, 0));
    OK(add(2000, 10, 0));
    OK(add(999, 1, 0));
    assert_int_equal(add(1999, 1, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(add(0, MIB, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(drop(1001), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(drop(3000), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(drop(1000));
    OK(add(1000, 1000, 0));
    OK(drop(999));
    OK(drop(1000));
    OK(drop(2000));
}

static void memory_that_the_driver_could_not_pin_is_refused(void **state)
{
    void *pinned;
    CUdeviceptr device;
    (void)state;
    mprotect(memory + PAGE, PAGE, PROT_READ);
    mprotect(memory + 3 * PAGE, PAGE, PROT_NONE);
    munmap(memory + 5 * PAGE, PAGE);
    assert_int_equal(add(0, 2 * PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    OK(add(0, 2 * PAGE, READ_ONLY));
    OK(drop(0));
    assert_int_equal(add(3 * PAGE, 1, READ_ONLY), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(add(4 * PAGE, 2 * PAGE, READ_ONLY), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemHostRegister_v2(memory, 1ull << 46, 0),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(weir_guest_cuMemHostRegister_v2(memory, UINT64_MAX / 2, 0),
                     CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuMemAlloc_v2(&device, PAGE));
    assert_int_equal(weir_guest_cuMemHostRegister_v2((void *)(uintptr_t)device, 64, 0),
                     CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuMemHostAlloc(&pinned, PAGE, 0));
    assert_int_equal(weir_guest_cuMemHostRegister_v2(pinned, 64, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuMemFreeHost(pinned));
    OK(weir_guest_cuMemFree_v2(device));
}

static void words_in_ranges_are_found_and_others_are_not(void **state)
{
    struct {
        char before; /* the words are where they are */
        uint64_t words[4];
    } __attribute__((packed)) data = {0, {1, UINT64_MAX, 0, 0}};
    (void)state;
    OK(add(100, 80, 0));
    data.words[2] = (uintptr_t)memory + 99;
    data.words[3] = (uintptr_t)memory + 181;
    OK(weir_register_reach_words(data.words, sizeof(data.words)));
    assert_int_equal(asked(), 0);
    data.words[3] = (uintptr_t)memory + 180; /* its end: a kernel may count downwards */
    assert_int_equal(weir_register_reach_words(data.words, sizeof(data.words)),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(asked(), 1);
    assert_int_equal(weir_register_reach_words(&data.words[3], 7), CUDA_SUCCESS);
    data.words[0] = (uintptr_t)memory + 100;
    assert_int_equal(weir_register_reach_words(data.words, 8), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(asked(), 2);
    OK(drop(100));
    OK(weir_register_reach_words(data.words, sizeof(data.words)));
    assert_int_equal(asked(), 2);
}

static void a_launch_shares_adjacent_pages_as_one_and_asks_once(void **state)
{
    (void)state;
    for (unsigned int i = 0; i < 10; i++) {
        OK(add(i * PAGE + 8, i == 9 ? 8 : PAGE, MAPPED)); /* each reaches into the next page */
    }
    OK(add(20 * PAGE, 8, MAPPED));
    OK(add(30 * PAGE, 8, 0));
    weir_register_before_launch();
    assert_int_equal(asked(), 2);
    weir_register_before_launch();
    assert_int_equal(asked(), 2);
    OK(add(40 * PAGE, 8, MAPPED));
    OK(drop(40 * PAGE));
    weir_register_before_launch();
    assert_int_equal(asked(), 2);
    for (unsigned int i = 0; i < 10; i++) {
        OK(drop(i * PAGE + 8));
    }
    OK(drop(20 * PAGE));
    OK(drop(30 * PAGE));
}

static void copies_share_a_range_when_it_pays_and_try_once(void **state)
{
    uint64_t at = (uintptr_t)memory;
    (void)state;
    OK(add(0, MIB / 2, 0));
    for (int i = 0; i < 4; i++) {
        OK(weir_register_note_copy(at, MIB / 4, true, false));
    }
    assert_int_equal(asked(), 0);
    for (int i = 0; i < 4; i++) {
        OK(weir_register_note_copy(at + 8, 8, false, true));
    }
    assert_int_equal(asked(), 1);
    OK(drop(0));
    OK(add(0, 64, READ_ONLY));
    assert_int_equal(weir_register_note_copy(at, 8, true, false), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 17; i++) { /* small asynchronous ones are not for nothing */
        OK(weir_register_note_copy(at, 8, false, true));
    }
    assert_int_equal(asked(), 2);
    OK(drop(0));
}

static void what_is_not_shared_is_copied_as_one(void **state)
{
    struct weir_guest_copy_side side;
    (void)state;
    OK(add(0, PAGE, 0));
    OK(add(PAGE, PAGE, 0));
    assert_int_equal(weir_register_alike((uintptr_t)memory + 8, 2 * PAGE), 2 * PAGE);
    OK(weir_copy_classify((uintptr_t)memory + 8, 2 * PAGE - 8, &side));
    assert_int_equal(side.kind, WEIR_COPY_PAGEABLE);
    assert_true(side.registered);
    OK(weir_copy_classify((uintptr_t)memory + 2 * PAGE, 8, &side));
    assert_false(side.registered);
    assert_int_equal(weir_copy_classify((uintptr_t)memory + PAGE, PAGE + 1, &side),
                     CUDA_ERROR_INVALID_VALUE); /* beyond what is registered */
    OK(drop(0));
    OK(drop(PAGE));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(registering_and_unregistering_send_nothing),
        TEST(ranges_may_share_a_page_but_no_byte),
        TEST(memory_that_the_driver_could_not_pin_is_refused),
        TEST(words_in_ranges_are_found_and_others_are_not),
        TEST(a_launch_shares_adjacent_pages_as_one_and_asks_once),
        TEST(copies_share_a_range_when_it_pays_and_try_once),
        TEST(what_is_not_shared_is_copied_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
