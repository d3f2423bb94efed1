/* Copies of registered memory: their order, and when pages are shared for speed. */
#include "e2e_registered.h"

#include <pthread.h>
#include <unistd.h>

#define WORDS 20000u

static CUdeviceptr device;
static unsigned *host;

static void set_host(void *user)
{
    host[0] = host[WORDS - 1] = (unsigned)(uintptr_t)user;
}

static unsigned on_device(unsigned i)
{
    unsigned word = 0;

    DRV(cu.MemcpyDtoH_v2(&word, device + 4ull * i, 4));
    return word;
}

static void to_device(CUstream stream)
{
    DRV(cu.MemcpyHtoDAsync_v2(device, host, WORDS * 4, stream));
}

static void from_device(CUstream stream)
{
    DRV(cu.MemcpyDtoHAsync_v2(host, device, WORDS * 4, stream));
}

/* What the stream is given behind a wait is not done before, and no call waits for it. */
static void behind_a_wait(CUstream stream)
{
    unsigned *pinned;

    DRV(cu.MemHostAlloc((void **)&pinned, 4096, 0));
    pinned[0] = 0;
    host[0] = host[WORDS - 1] = 1;
    DRV(cu.MemsetD32_v2(device, 50, WORDS));
    DRV(cu.CtxSynchronize());
    DRV(cu.StreamWaitValue32_v2(stream, (uintptr_t)pinned, 1, CU_STREAM_WAIT_VALUE_GEQ));
    to_device(stream);
    DRV(mix(device, WORDS, 1, 1, stream));
    from_device(stream);
    check_int((int)cu.StreamQuery(stream), CUDA_ERROR_NOT_READY, "the calls do not wait");
    check_true(host[0] == 1 && host[WORDS - 1] == 1, "nothing is written before its time");
    host[0] = host[WORDS - 1] = 7;
    __atomic_store_n(&pinned[0], 1, __ATOMIC_RELEASE);
    DRV(cu.StreamSynchronize(stream));
    check_true(host[0] == 8 && host[WORDS - 1] == 8, "the source is read in its turn");
    DRV(cu.MemFreeHost(pinned));
}

static void through_functions(CUstream stream)
{
    DRV(cu.LaunchHostFunc(stream, set_host, (void *)100));
    to_device(stream);
    DRV(mix(device, WORDS, 1, 1, stream));
    from_device(stream);
    to_device(stream);
    DRV(cu.LaunchHostFunc(stream, set_host, (void *)500));
    DRV(mix(device, WORDS, 1, 1, stream));
    DRV(cu.StreamSynchronize(stream));
    check_int(on_device(0), 102, "functions and copies keep the stream's order");
    check_int(host[WORDS - 1], 500, "and the last function");
}

/* An event that is recorded behind a copy is done when the bytes are there. */
static void events_behind(CUstream stream, CUstream other)
{
    CUevent event;

    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned i = 0; i < 20; i++) {
        DRV(cu.MemsetD32Async(device, i, WORDS, stream));
        from_device(stream);
        DRV(cu.EventRecord(event, stream));
        if (i % 2) {
            DRV(cu.StreamWaitEvent(other, event, 0));
            DRV(cu.MemcpyHtoDAsync_v2(device + 4, host + WORDS - 1, 4, other));
            DRV(cu.StreamSynchronize(other));
            check_int(on_device(1), i, "another stream behind an event");
        } else {
            DRV(cu.EventSynchronize(event));
            check_int(host[WORDS - 1], i, "an event behind a copy");
        }
        memset(host, 0xff, WORDS * 4);
    }
    DRV(cu.EventDestroy_v2(event));
}

/* A synchronous copy comes after an asynchronous one of the same memory. */
static void synchronous_behind(CUstream stream)
{
    for (unsigned i = 0; i < 10; i++) {
        DRV(cu.MemsetD32Async(device, i, WORDS, NULL));
        from_device(NULL);
        DRV(cu.MemcpyHtoD_v2(device, host, WORDS * 4));
        check_int(on_device(WORDS - 1), i, "a synchronous copy behind one that is not");
    }
    DRV(cu.StreamSynchronize(stream));
}

/* Between two registered ranges, in the stream's order. */
static void within_the_program(CUstream stream)
{
    unsigned *second = (unsigned *)(void *)pages(1);

    DRV(cu.MemHostRegister_v2(second, PAGE, 0));
    DRV(cu.LaunchHostFunc(stream, set_host, (void *)33));
    DRV(cu.MemcpyDtoDAsync_v2((uintptr_t)second, (uintptr_t)host, 64, stream));
    DRV(cu.LaunchHostFunc(stream, set_host, (void *)34));
    DRV(cu.StreamSynchronize(stream));
    check_int(second[0], 33, "from one range to another");
    DRV(cu.MemHostUnregister(second));
}

/* Two ranges beside each other, of which one is shared, copied as one. */
static void across_ranges(void)
{
    char *at = pages(4);
    CUdeviceptr reached, memory;

    DRV(cu.MemHostRegister_v2(at, 2 * PAGE, 0));
    DRV(cu.MemHostRegister_v2(at + 2 * PAGE, 2 * PAGE, 0));
    DRV(cu.MemHostGetDevicePointer_v2(&reached, at + 2 * PAGE, 0));
    DRV(cu.MemAlloc_v2(&memory, 4 * PAGE));
    for (int i = 0; i < 4 * PAGE; i++) {
        at[i] = (char)(i / 64);
    }
    DRV(cu.MemcpyHtoDAsync_v2(memory, at, 4 * PAGE, NULL));
    DRV(cu.StreamSynchronize(NULL));
    memset(at, 0, 4 * PAGE);
    DRV(cu.MemcpyDtoHAsync_v2(at, memory, 4 * PAGE, NULL));
    DRV(cu.StreamSynchronize(NULL));
    int good = 1;
    for (int i = 0; i < 4 * PAGE; i++) {
        good &= at[i] == (char)(i / 64);
    }
    check_true(good, "a copy over two ranges");
    DRV(cu.MemHostUnregister(at));
    DRV(cu.MemHostUnregister(at + 2 * PAGE));
    DRV(cu.MemFree_v2(memory));
}

static void begin(size_t bytes)
{
    host = (unsigned *)(void *)(pages(bytes / PAGE + 2) + 100);
    DRV(cu.MemAlloc_v2(&device, bytes));
    DRV(cu.MemHostRegister_v2(host, bytes, 0));
}

static void scenario_order(void)
{
    CUstream stream, other;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int shared = 0; shared < 2; shared++) {
        CUdeviceptr reached;

        begin(WORDS * 4);
        if (shared) {
            DRV(cu.MemHostGetDevicePointer_v2(&reached, host, 0));
        }
        behind_a_wait(stream);
        through_functions(stream);
        events_behind(stream, other);
        synchronous_behind(stream);
        within_the_program(stream);
        DRV(cu.MemHostUnregister(host));
        DRV(cu.MemFree_v2(device));
    }
    across_ranges();
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(other));
}

/* Copies alone replace nothing; many of the same memory do. */
static void scenario_steady(void)
{
    const size_t bytes = 2u << 20;
    bool replaced = false;
    CUresult result = CUDA_SUCCESS;

    begin(bytes);
    DRV(cu.MemcpyHtoDAsync_v2(device, host, bytes, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_true(!is_replaced(host), "one copy replaces nothing");
    for (int i = 0; i < 4 && result == CUDA_SUCCESS; i++) {
        result = cu.MemcpyDtoHAsync_v2(host, device, bytes, NULL);
        replaced |= is_replaced(host);
    }
    DRV(cu.StreamSynchronize(NULL));
    check_code((int)result, CUDA_SUCCESS, "copies");
    printf("replaced %d\n", replaced);
    DRV(cu.MemHostUnregister(host));
    check_private((char *)host - 100, bytes, "steady");
}

/* More than goes through the arena at a time, behind work. */
static void scenario_large(void)
{
    const size_t bytes = 100u << 20, words = bytes / 4;
    CUstream stream;

    begin(bytes);
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < words; i++) {
        host[i] = (unsigned)i;
    }
    DRV(mix(device, 1, 1, 1, stream));
    DRV(cu.MemcpyHtoDAsync_v2(device, host, bytes, stream));
    DRV(mix(device, (unsigned)words, 1, 1, stream));
    DRV(cu.MemcpyDtoHAsync_v2(host, device, bytes, stream));
    DRV(cu.StreamSynchronize(stream));
    size_t bad = 0;
    for (size_t i = 0; i < words; i++) {
        bad += host[i] != i + 1;
    }
    check_int((long long)bad, 0, "a large range, there and back");
    DRV(cu.MemcpyHtoD_v2(device, host, bytes));
    DRV(mix(device, (unsigned)words, 1, 1, NULL));
    DRV(mix((uintptr_t)host, (unsigned)words, 1, 2, NULL));
    DRV(cu.CtxSynchronize());
    check_true(host[0] == 3 && host[words - 1] == words + 2, "a kernel on all of it");
    DRV(cu.MemHostUnregister(host));
    check_true(host[0] == 3 && host[words - 1] == words + 2, "unregistered");
    check_private((char *)host - 100, bytes, "large");
    DRV(cu.StreamDestroy_v2(stream));
}

/* A range that is larger than the tenant may have the GPU reach: copies go on, and launches of
 * others. */
static void scenario_quota(void)
{
    const size_t bytes = 64u << 20;
    CUdeviceptr reached;

    begin(bytes);
    for (int i = 0; i < 3; i++) {
        DRV(cu.MemcpyHtoDAsync_v2(device, host, bytes, NULL));
        DRV(cu.MemcpyDtoHAsync_v2(host, device, bytes, NULL));
    }
    DRV(cu.StreamSynchronize(NULL));
    printf("reached %d\n", (int)cu.MemHostGetDevicePointer_v2(&reached, host, 0));
    DRV(cu.MemHostUnregister(host));
    DRV(cu.MemHostRegister_v2(host, bytes, MAPPED));
    DRV(mix(device, 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_true(!is_replaced(host), "pages that cannot be shared stay");
    DRV(cu.MemHostUnregister(host));
    DRV(cu.MemFree_v2(device));
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {{"order", scenario_order},
                                                {"steady", scenario_steady},
                                                {"large", scenario_large},
                                                {"quota", scenario_quota}};

    return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
