/* Streams, memory and copies of the guest library against a worker in a thread. */
#include "guest_lib/callback.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "guest_lib/stream.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_host.h"
#include "tests/lib/tl_lived.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOO_MUCH (UINT64_C(1023) << 20) /* with another allocation, more than tl_host grants */

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static int start(void **state)
{
    CUcontext ctx;
    *state = tl_host_start();
    OK(weir_guest_cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(weir_guest_cuCtxSetCurrent(ctx));
    return 0;
}

static int stop(void **state)
{
    weir_ctx_stack_set(NULL);
    tl_host_stop(*state);
    return 0;
}

/* ---------------------------------------------------------------- contexts */

static void primary_handle_is_settable_before_retain(void **state)
{
    (void)state;
    CUcontext ctx, again;
    int active;
    unsigned int flags;
    OK(weir_guest_cuDevicePrimaryCtxRelease_v2(0));
    OK(weir_guest_cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_false(active);
    assert_int_equal(weir_guest_cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    OK(weir_guest_cuCtxGetCurrent(&ctx));
    OK(weir_guest_cuCtxSetCurrent(ctx));
    OK(weir_guest_cuDevicePrimaryCtxRetain(&again, 0));
    assert_ptr_equal(ctx, again);
    OK(weir_guest_cuCtxSynchronize());
}

static void destroyed_context_is_told_from_no_context(void **state)
{
    (void)state;
    CUcontext made, popped;
    OK(weir_guest_cuCtxCreate_v2(&made, 0, 0));
    OK(weir_guest_cuCtxPushCurrent_v2(made));
    OK(weir_guest_cuCtxDestroy_v2(made)); /* pops itself once */
    assert_int_equal(weir_guest_cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(weir_guest_cuCtxSetCurrent(made), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(weir_guest_cuCtxPopCurrent_v2(&popped));
    assert_ptr_equal(popped, made);
    OK(weir_guest_cuCtxPopCurrent_v2(NULL));
    assert_int_equal(weir_guest_cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(weir_guest_cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(weir_guest_cuCtxSetCurrent((CUcontext)0x1234), CUDA_ERROR_INVALID_CONTEXT);
}

static void context_destroy_returns_its_chunks(void **state)
{
    struct tl_host *host = *state;
    CUcontext made;
    CUdeviceptr ptr;
    void *pinned;
    OK(weir_guest_cuCtxCreate_v2(&made, 0, 0));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 1 << 20));
    OK(weir_guest_cuMemAllocHost_v2(&pinned, 1 << 20));
    assert_int_equal(tl_host_chunks(host), 2);
    OK(weir_guest_cuCtxDestroy_v2(made));
    assert_int_equal(tl_host_chunks(host), 0);
    assert_int_equal(weir_guest_cuPointerGetAttribute(&ptr, CU_POINTER_ATTRIBUTE_CONTEXT, ptr),
                     CUDA_ERROR_INVALID_VALUE);
}

/* ---------------------------------------------------------------- streams */

static void idle_stream_needs_no_message(void **state)
{
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr ptr;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuStreamSynchronize(s));
    OK(weir_guest_cuStreamQuery(s));
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
    OK(weir_guest_cuStreamSynchronize(s));
    OK(weir_guest_cuStreamSynchronize(s));
    OK(weir_guest_cuStreamQuery(s));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 1);
    OK(weir_guest_cuStreamDestroy_v2(s));
    assert_int_equal(weir_guest_cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
}

static void query_is_not_ready_until_the_mark_is_seen(void **state)
{
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr ptr;
    OK(weir_guest_cuStreamCreate(&s, 0));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
    assert_int_equal(weir_guest_cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    assert_int_equal(weir_guest_cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    assert_int_equal(weir_guest_cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuStreamQuery(s));
    OK(weir_guest_cuStreamSynchronize(CU_STREAM_LEGACY));
    OK(weir_guest_cuCtxSynchronize());
}

static void query_right_after_the_work_does_not_wait(void **state)
{
    enum { TRIES = 100 };
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr ptr;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    for (int i = 0; i < TRIES; i++) { /* this thread may lose its core between the two calls */
        OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
        CUresult result = weir_guest_cuStreamQuery(s);
        assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
        while (result == CUDA_ERROR_NOT_READY) { /* a loop of queries comes to its end */
            result = weir_guest_cuStreamQuery(s);
        }
        OK(result);
    }
    tl_host_drain();
    assert_true(tl_host_count(host, WEIR_OP_stream_query) < TRIES);
    assert_true(tl_host_count(host, WEIR_OP_stream_mark) > 0);
    assert_true(tl_host_count(host, WEIR_OP_stream_mark) <= TRIES);
    OK(weir_guest_cuMemFree_v2(ptr));
    OK(weir_guest_cuStreamDestroy_v2(s));
}

static void query_long_after_the_work_asks_the_host(void **state)
{
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr ptr;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
    usleep(1000); /* far more than "just now" */
    OK(weir_guest_cuStreamQuery(s));
    OK(weir_guest_cuStreamQuery(s));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_query), 1);
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 0);
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
    usleep(1000);
    for (int i = 0; i < 3; i++) { /* the first asks and marks, the others look */
        assert_int_equal(weir_guest_cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    }
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_query), 2);
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_mark), 1);
    tl_host_hold(host, false);
    OK(weir_guest_cuStreamQuery(s));
    OK(weir_guest_cuMemFree_v2(ptr));
    OK(weir_guest_cuStreamDestroy_v2(s));
}

static void legacy_stream_ignores_non_blocking_streams(void **state)
{
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr ptr;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(ptr, 7, 4096, s));
    OK(weir_guest_cuStreamQuery(CU_STREAM_LEGACY));
    assert_int_equal(weir_guest_cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuCtxSynchronize());
    OK(weir_guest_cuStreamQuery(s));
}

static void *own_stream_thread(void *arg)
{
    CUcontext ctx = arg;
    unsigned long long *id = malloc(sizeof *id);
    assert_non_null(id);
    OK(weir_guest_cuCtxSetCurrent(ctx));
    OK(weir_guest_cuStreamGetId(CU_STREAM_PER_THREAD, id));
    return id;
}

static void per_thread_streams_are_per_thread(void **state)
{
    struct tl_host *host = *state;
    CUcontext ctx;
    unsigned long long mine, again;
    void *theirs;
    pthread_t thread;
    OK(weir_guest_cuCtxGetCurrent(&ctx));
    OK(weir_guest_cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    OK(weir_guest_cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    assert_true(mine == again);
    pthread_create(&thread, NULL, own_stream_thread, ctx);
    pthread_join(thread, &theirs);
    assert_true(*(unsigned long long *)theirs != mine);
    free(theirs);
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_create), 2);
    assert_int_equal(tl_host_count(host, WEIR_OP_stream_destroy), 1);
}

/* ---------------------------------------------------------------- errors and ends */

static void deferred_error_is_reported_once_sticky_for_ever(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr ptr;
    CUstream s;
    OK(weir_guest_cuStreamCreate(&s, 0));
    tl_host_fail(host, CUDA_ERROR_INVALID_VALUE, false);
    assert_int_equal(weir_guest_cuStreamSynchronize(s), CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuStreamSynchronize(s));
    tl_host_fail(host, CUDA_ERROR_ILLEGAL_ADDRESS, true);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_guest_cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(weir_guest_cuMemAlloc_v2(&ptr, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

static void lost_host_is_an_error_not_a_hang(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr ptr;
    CUstream s;
    OK(weir_guest_cuStreamCreate(&s, 0));
    OK(weir_guest_cuMemAlloc_v2(&ptr, 4096));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(ptr, 1, 4096, s));
    tl_host_kill(host);
    struct tl_lived before = tl_lived_now();
    assert_int_equal(weir_guest_cuStreamSynchronize(s), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_true(tl_lived_since_ns(before) < WEIR_NS_PER_S);
    assert_int_equal(weir_guest_cuMemAlloc_v2(&ptr, 64 << 20), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void forked_child_is_not_initialized(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* The library registers its handler in cuInit; tests start without it. */
        __atomic_store_n(&weir_guest.phase, WEIR_PHASE_FORKED, __ATOMIC_RELEASE);
        _exit(WEIR_GUEST_ENTER(cuMemAlloc_v2) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(WEIR_GUEST_ENTER(cuMemAlloc_v2), CUDA_SUCCESS);
}

/* ---------------------------------------------------------------- memory */

static void alloc_and_free_reuse_a_chunk(void **state)
{
    struct tl_host *host = *state;
    CUdeviceptr ptrs[20], extra, base;
    size_t size, pitch;
    for (int i = 0; i < 20; i++) {
        OK(weir_guest_cuMemAlloc_v2(&ptrs[i], 1 << 20));
        assert_int_equal(ptrs[i] % 512, 0);
    }
    assert_int_equal(tl_host_chunks(host), 1);
    OK(weir_guest_cuMemGetAddressRange_v2(&base, &size, ptrs[3] + 5));
    assert_true(base == ptrs[3] && size == 1 << 20);
    OK(weir_guest_cuMemAlloc_v2(&extra, 100 << 20));
    assert_int_equal(tl_host_chunks(host), 2);
    OK(weir_guest_cuMemFree_v2(extra));
    assert_int_equal(tl_host_chunks(host), 1); /* a large chunk is not kept */
    for (int i = 0; i < 20; i++) {
        OK(weir_guest_cuMemFree_v2(ptrs[i]));
    }
    assert_int_equal(tl_host_chunks(host), 1); /* one empty chunk is */
    assert_int_equal(weir_guest_cuMemFree_v2(ptrs[0]), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuMemFree_v2(0));
    assert_int_equal(weir_guest_cuMemAlloc_v2(&extra, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemAlloc_v2(&extra, 1ull << 45), CUDA_ERROR_OUT_OF_MEMORY);
    OK(weir_guest_cuMemAllocPitch_v2(&extra, &pitch, 100, 10, 4));
    assert_int_equal(pitch, 512);
}

static void pointer_attributes_single_and_plural(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    void *pinned;
    int host_byte;
    unsigned int type = 9, managed = 9;
    int ordinal = 9;
    uint64_t value = 9, host = 9;
    OK(weir_guest_cuMemAlloc_v2(&ptr, 1000));
    OK(weir_guest_cuMemHostAlloc(&pinned, 1000, 0));
    OK(weir_guest_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + 999));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(
        weir_guest_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, ptr),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                      (CUdeviceptr)(uintptr_t)&host_byte),
                     CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &value, &host, &managed, &ordinal};
    OK(weir_guest_cuPointerGetAttributes(5, ids, data, (CUdeviceptr)(uintptr_t)&host_byte));
    assert_true(type == 0 && value == 0 && managed == 0 && ordinal == -2);
    assert_true(host == (uintptr_t)&host_byte); /* driver 580 */
    OK(weir_guest_cuPointerGetAttributes(5, ids, data, (CUdeviceptr)(uintptr_t)pinned + 8));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    assert_true(value == (uintptr_t)pinned + 8 && host == value && ordinal == 0);
}

static void fill_pattern(uint8_t *data, size_t bytes, unsigned int seed)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(i * 31 + seed + (i >> 8));
    }
}

static void pageable_round_trip_of_all_sizes(void **state)
{
    (void)state;
    /* The arena has 4 MiB: the largest sizes go through it several times over. */
    const size_t sizes[] = {1, 4, 4096, 65536, 65537, 1 << 20, (5 << 20) + 3, 9 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *out = malloc(sizes[i]), *in = calloc(1, sizes[i]);
        CUdeviceptr ptr;
        fill_pattern(out, sizes[i], (unsigned int)i);
        OK(weir_guest_cuMemAlloc_v2(&ptr, sizes[i]));
        OK(weir_guest_cuMemcpyHtoDAsync_v2(ptr, out, sizes[i], CU_STREAM_PER_THREAD));
        OK(weir_guest_cuMemcpyDtoHAsync_v2(in, ptr, sizes[i], CU_STREAM_PER_THREAD));
        if (memcmp(in, out, sizes[i]) != 0) {
            fail_msg("size %zu came back changed", sizes[i]);
        }
        OK(weir_guest_cuMemFree_v2(ptr));
        free(out);
        free(in);
    }
}

static void copies_outside_allocations_are_refused(void **state)
{
    (void)state;
    CUdeviceptr ptr;
    uint8_t host[64];
    OK(weir_guest_cuMemAlloc_v2(&ptr, 64));
    assert_int_equal(weir_guest_cuMemcpyHtoD_v2(ptr, host, 65, CU_STREAM_LEGACY),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemcpyHtoD_v2(ptr + 60, host, 5, CU_STREAM_LEGACY),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemcpyDtoH_v2(host, 0x40, 4, CU_STREAM_LEGACY),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemsetD8_v2(ptr, 0, 65, CU_STREAM_LEGACY),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_guest_cuMemsetD32_v2(ptr + 1, 0, 1, CU_STREAM_LEGACY),
                     CUDA_ERROR_INVALID_VALUE);
}

static void pitched_copy_packs_and_unpacks(void **state)
{
    (void)state;
    enum { W = 3000, H = 1700, PITCH = 4096, HOST_PITCH = 3333 };
    CUdeviceptr ptr;
    uint8_t *out = malloc(HOST_PITCH * H), *in = calloc(1, HOST_PITCH * H);
    OK(weir_guest_cuMemAlloc_v2(&ptr, (size_t)PITCH * H));
    fill_pattern(out, HOST_PITCH * H, 5);
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = out,
                          .srcPitch = HOST_PITCH,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = ptr,
                          .dstPitch = PITCH,
                          .WidthInBytes = W,
                          .Height = H};
    OK(weir_guest_cuMemcpy2D_v2(&copy, CU_STREAM_LEGACY));
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = ptr,
                           .srcPitch = PITCH,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = in,
                           .dstPitch = HOST_PITCH,
                           .WidthInBytes = W,
                           .Height = H};
    OK(weir_guest_cuMemcpy2DUnaligned_v2(&copy, CU_STREAM_LEGACY));
    for (int y = 0; y < H; y++) {
        assert_memory_equal(in + y * HOST_PITCH, out + y * HOST_PITCH, W);
        assert_int_equal(in[y * HOST_PITCH + W], 0);
    }
    copy.Height = H + 1;
    assert_int_equal(weir_guest_cuMemcpy2D_v2(&copy, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
    free(out);
    free(in);
}

static void pool_reuses_in_stream_order_only(void **state)
{
    struct tl_host *host = *state;
    CUstream a, b;
    CUdeviceptr p, q, r;
    CUmemoryPool pool;
    uint64_t used;
    OK(weir_guest_cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemAllocAsync(&p, 10000, a));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(p, 1, 10000, a));
    OK(weir_guest_cuMemFreeAsync(p, a));
    OK(weir_guest_cuMemAllocAsync(&q, 10000, b));
    assert_true(q != p); /* stream a may still use it */
    OK(weir_guest_cuMemAllocAsync(&r, 10000, a));
    assert_true(r == p); /* its own stream may have it at once */
    OK(weir_guest_cuDeviceGetDefaultMemPool(&pool, 0));
    OK(weir_guest_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 2 * 10240);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuMemFreeAsync(q, b));
    assert_int_equal(weir_guest_cuMemFreeAsync(q, b), CUDA_ERROR_INVALID_VALUE);
    OK(weir_guest_cuMemFree_v2(r));
    OK(weir_guest_cuCtxSynchronize());
    OK(weir_guest_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
    OK(weir_guest_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
}

static void freed_pool_memory_is_given_back_when_memory_is_short(void **state)
{
    struct tl_host *host = *state;
    CUstream s;
    CUdeviceptr p, none;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemAllocAsync(&p, 64 << 20, s));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(p, 1, 1 << 20, s));
    OK(weir_guest_cuMemFreeAsync(p, s));
    assert_int_equal(weir_guest_cuMemAlloc_v2(&none, TOO_MUCH), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(tl_host_chunks(host), 1); /* the stream may still use it */
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuStreamSynchronize(s));
    assert_int_equal(weir_guest_cuMemAlloc_v2(&none, TOO_MUCH), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(tl_host_chunks(host), 0);
}

static void destroying_a_pool_waits_for_nothing(void **state)
{
    struct tl_host *host = *state;
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUstream s;
    CUdeviceptr p, q;
    size_t free_bytes;
    OK(weir_guest_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(weir_guest_cuMemPoolCreate(&pool, &props));
    OK(weir_guest_cuMemAllocFromPoolAsync(&p, 64 << 20, pool, s));
    OK(weir_guest_cuMemAllocFromPoolAsync(&q, 64 << 20, pool, s));
    tl_host_hold(host, true);
    OK(weir_guest_cuMemsetD8Async(p, 1, 1 << 20, s));
    OK(weir_guest_cuMemFreeAsync(p, s));
    alarm(10);
    OK(weir_guest_cuMemPoolDestroy(pool));
    alarm(0);
    tl_host_drain();
    tl_host_hold(host, false);
    OK(weir_guest_cuMemFreeAsync(q, s)); /* used until then */
    OK(weir_guest_cuStreamSynchronize(s));
    OK(weir_guest_cuMemGetInfo_v2(&free_bytes, NULL));
    assert_int_equal(tl_host_chunks(host), 0);
}

/* ---------------------------------------------------------------- threads */

static void count_call(void *user)
{
    __atomic_add_fetch((unsigned int *)user, 1, __ATOMIC_RELEASE);
}

static void host_functions_run_in_order_and_are_answered(void **state)
{
    struct tl_host *host = *state;
    unsigned int calls = 0;
    for (int i = 0; i < 20; i++) {
        OK(weir_guest_cuLaunchHostFunc(CU_STREAM_LEGACY, count_call, &calls));
    }
    while (tl_host_count(host, WEIR_OP_host_func_done) < 20) {
        tl_host_drain();
    }
    assert_int_equal(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 20);
}

/* Else the runner would wait for it for ever, and copies would take the slower way. */
static atomic_size_t refused_bytes; /* of malloc(); 0: none */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return bytes != 0 && bytes == atomic_load(&refused_bytes) ? NULL : __real_malloc(bytes);
}

static void a_host_function_without_memory_ends_the_session(void **state)
{
    const struct weir_op_echo_in in = {.value = 7};
    struct weir_op_echo_out out;
    unsigned int calls = 0;
    CUresult result;
    (void)state;
    OK(weir_guest_cuLaunchHostFunc(CU_STREAM_LEGACY, count_call, &calls));
    while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) == 0) {
        tl_host_drain();
    }
    atomic_store(&refused_bytes, 32); /* what callback.c keeps of a call */
    (void)weir_guest_cuLaunchHostFunc(CU_STREAM_LEGACY, count_call, &calls);
    alarm(10); /* else its stream would wait for ever */
    do {
        result = weir_call_echo(weir_guest_channel(), &in, &out);
    } while (result == CUDA_SUCCESS);
    alarm(0);
    atomic_store(&refused_bytes, 0);
    assert_int_equal(result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(__atomic_load_n(&calls, __ATOMIC_ACQUIRE), 1);
}

static void a_refused_host_function_is_forgotten(void **state)
{
    struct tl_host *host = *state;
    unsigned int calls = 0, refused = 0;
    struct weir_op_host_func_in in = {0};
    tl_host_refuse_functions(host);
    OK(weir_guest_cuLaunchHostFunc(CU_STREAM_LEGACY, count_call, &calls));
    tl_host_drain();
    assert_int_equal(tl_host_count(host, WEIR_OP_host_func), 1);
    while (weir_callbacks_pending()) { /* the test's time limit ends it otherwise */
        tl_host_drain();
    }
    OK(weir_callback_add(count_call, count_call, &refused, true, &in.token));
    OK(weir_post_host_func(weir_guest_channel(), &in));
    while (__atomic_load_n(&refused, __ATOMIC_ACQUIRE) == 0) {
        tl_host_drain();
    }
    assert_false(weir_callbacks_pending());
    assert_int_equal(refused, 1);
    assert_int_equal(calls, 0);
    assert_int_equal(tl_host_count(host, WEIR_OP_host_func_done), 0);
}

struct echo_job {
    CUcontext ctx;
    uint64_t first;
};

static void *echo_thread(void *arg)
{
    const struct echo_job *job = arg;
    OK(weir_guest_cuCtxSetCurrent(job->ctx));
    for (uint64_t i = 0; i < 500; i++) {
        struct weir_op_echo_out out = {0};
        OK(weir_channel_call(weir_guest_channel(), WEIR_OP_echo,
                             &(struct weir_op_echo_in){.value = job->first + i}, &out));
        assert_true(out.value == job->first + i);
        if (i % 16 == 0) {
            CUdeviceptr ptr;
            OK(weir_guest_cuMemAllocAsync(&ptr, 4096, CU_STREAM_PER_THREAD));
            OK(weir_guest_cuMemsetD8Async(ptr, 1, 4096, CU_STREAM_PER_THREAD));
            OK(weir_guest_cuMemFreeAsync(ptr, CU_STREAM_PER_THREAD));
            OK(weir_guest_cuStreamSynchronize(CU_STREAM_PER_THREAD));
        }
    }
    return NULL;
}

static void replies_find_their_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct echo_job jobs[THREADS];
    CUcontext ctx;
    OK(weir_guest_cuCtxGetCurrent(&ctx));
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (struct echo_job){ctx, (uint64_t)i << 32};
        pthread_create(&threads[i], NULL, echo_thread, &jobs[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(weir_guest_cuCtxSynchronize());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(primary_handle_is_settable_before_retain),
        TEST(destroyed_context_is_told_from_no_context),
        TEST(context_destroy_returns_its_chunks),
        TEST(idle_stream_needs_no_message),
        TEST(query_is_not_ready_until_the_mark_is_seen),
        TEST(query_right_after_the_work_does_not_wait),
        TEST(query_long_after_the_work_asks_the_host),
        TEST(legacy_stream_ignores_non_blocking_streams),
        TEST(per_thread_streams_are_per_thread),
        TEST(deferred_error_is_reported_once_sticky_for_ever),
        TEST(lost_host_is_an_error_not_a_hang),
        TEST(forked_child_is_not_initialized),
        TEST(alloc_and_free_reuse_a_chunk),
        TEST(pointer_attributes_single_and_plural),
        TEST(pageable_round_trip_of_all_sizes),
        TEST(copies_outside_allocations_are_refused),
        TEST(pitched_copy_packs_and_unpacks),
        TEST(pool_reuses_in_stream_order_only),
        TEST(freed_pool_memory_is_given_back_when_memory_is_short),
        TEST(destroying_a_pool_waits_for_nothing),
        TEST(host_functions_run_in_order_and_are_answered),
        TEST(a_host_function_without_memory_ends_the_session),
        TEST(a_refused_host_function_is_forgotten),
        TEST(replies_find_their_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
