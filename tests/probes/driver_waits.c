/*
 * Which calls of the Driver API wait for the device, and whom do they keep waiting?
 *
 * All tenants of a worker share a context. While a tenant's kernel runs on and on, or a stream
 * waits for a value, a thread makes one call, and another goes on giving work to a third stream.
 * Printed for each call and situation: milliseconds of the call, and the longest that the bystander
 * waited, for its own calls and for its work. The device is released after HOLD_MS: what took that
 * long had waited for it.
 *
 *     driver_waits [CALL ...]       on the libcuda.so.1 that the loader finds
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HOLD_MS 120.0
#define BYTES   (4u << 20)

#define PROGRAM "driver_waits"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleUnload)                                                                              \
    F(cuModuleGetFunction)                                                                         \
    F(cuFuncSetAttribute)                                                                          \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreate)                                                                              \
    F(cuStreamDestroy_v2)                                                                          \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamQuery)                                                                               \
    F(cuStreamWaitValue32_v2)                                                                      \
    F(cuStreamWriteValue32_v2)                                                                     \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphExecDestroy)                                                                          \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphLaunch)                                                                               \
    F(cuEventCreate)                                                                               \
    F(cuEventDestroy_v2)                                                                           \
    F(cuEventRecord)                                                                               \
    F(cuEventSynchronize)                                                                          \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemAllocAsync)                                                                             \
    F(cuMemFreeAsync)                                                                              \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemFreeHost)                                                                               \
    F(cuMemHostRegister_v2)                                                                        \
    F(cuMemHostUnregister)                                                                         \
    F(cuMemAddressReserve)                                                                         \
    F(cuMemAddressFree)                                                                            \
    F(cuMemCreate)                                                                                 \
    F(cuMemMap)                                                                                    \
    F(cuMemSetAccess)                                                                              \
    F(cuMemUnmap)                                                                                  \
    F(cuMemRelease)                                                                                \
    F(cuMemExportToShareableHandle)                                                                \
    F(cuMemcpyHtoD_v2)                                                                             \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemcpyHtoDAsync_v2)                                                                        \
    F(cuMemsetD8Async)                                                                             \
    F(cuMemsetD8_v2)                                                                               \
    F(cuMemGetInfo_v2)                                                                             \
    F(cuArrayCreate_v2)                                                                            \
    F(cuArrayDestroy)

#include "tests/bench/cu.h"

/* spin waits until a word of pinned memory is not zero; nothing ends at once. */
static const char text[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                           ".visible .entry spin(.param .u64 word)\n{\n"
                           ".reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n.reg .pred %p<2>;\n"
                           "ld.param.u64 %rd1, [word];\n"
                           "AGAIN: ld.volatile.global.u32 %r1, [%rd1];\n"
                           "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\nret;\n}\n"
                           ".visible .entry nothing()\n{\nret;\n}\n";

enum { OPEN, SEEN, BYSTANDER, WORDS };

static struct {
    CUcontext context;
    CUfunction spin, nothing;
    CUstream held, bystander, caller;
    volatile uint32_t *words; /* pinned */
    CUdeviceptr device;
    uint8_t *pageable; /* page-aligned */
    void *pinned;
    /* What the calls work on; each is made before the device is held. */
    CUmodule module;
    CUfunction fresh;
    CUdeviceptr memory, place;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUarray array;
} b;

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---------------------------------------------------------------- the calls */

static const CUmemAllocationProp prop = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAccessDesc access_rw = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void nothing(void)
{
}

static void alloc(void)
{
    CHECK(cu.cuMemAlloc_v2(&b.memory, BYTES));
}

static void alloc_large(void)
{
    CHECK(cu.cuMemAlloc_v2(&b.memory, 256u << 20));
}

static void release(void)
{
    CHECK(cu.cuMemFree_v2(b.memory));
}

static void alloc_async(void)
{
    CHECK(cu.cuMemAllocAsync(&b.memory, BYTES, b.caller));
}

static void free_async(void)
{
    CHECK(cu.cuMemFreeAsync(b.memory, b.caller));
}

static void host_alloc(void)
{
    CHECK(cu.cuMemHostAlloc(&b.pinned, BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
}

static void host_free(void)
{
    CHECK(cu.cuMemFreeHost(b.pinned));
}

static void host_register(void)
{
    CHECK(cu.cuMemHostRegister_v2(b.pageable, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
}

static void host_unregister(void)
{
    CHECK(cu.cuMemHostUnregister(b.pageable));
}

static void reserve(void)
{
    CHECK(cu.cuMemAddressReserve(&b.place, BYTES, 0, 0, 0));
}

static void unreserve(void)
{
    CHECK(cu.cuMemAddressFree(b.place, BYTES));
}

static void create(void)
{
    CHECK(cu.cuMemCreate(&b.handle, BYTES, &prop, 0));
}

static void destroy(void)
{
    CHECK(cu.cuMemRelease(b.handle));
}

static void map(void)
{
    CHECK(cu.cuMemMap(b.place, BYTES, 0, b.handle, 0));
}

static void unmap(void)
{
    CHECK(cu.cuMemUnmap(b.place, BYTES));
}

static void set_access(void)
{
    CHECK(cu.cuMemSetAccess(b.place, BYTES, &access_rw, 1));
}

static void export_fd(void)
{
    int fd = -1;

    CHECK(cu.cuMemExportToShareableHandle(&fd, b.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0));
}

static void reserve_create(void)
{
    reserve();
    create();
}

static void reserve_create_map(void)
{
    reserve_create();
    map();
}

static void all_of_vmm(void)
{
    reserve_create_map();
    set_access();
}

static void unreserve_destroy(void)
{
    destroy();
    unreserve();
}

static void none_of_vmm(void)
{
    unmap();
    unreserve_destroy();
}

static void load(void)
{
    CHECK(cu.cuModuleLoadData(&b.module, text));
}

static void load_find(void)
{
    load();
    CHECK(cu.cuModuleGetFunction(&b.fresh, b.module, "nothing"));
}

static void unload(void)
{
    CHECK(cu.cuModuleUnload(b.module));
}

static void find(void)
{
    CHECK(cu.cuModuleGetFunction(&b.fresh, b.module, "nothing"));
}

static void launch_fresh(void)
{
    CHECK(cu.cuLaunchKernel(b.fresh, 1, 1, 1, 1, 1, 1, 0, b.caller, NULL, NULL));
}

static void load_find_launch(void)
{
    load_find();
    launch_fresh();
    CHECK(cu.cuStreamSynchronize(b.caller));
}

static void launch_known(void)
{
    CHECK(cu.cuLaunchKernel(b.nothing, 1, 1, 1, 1, 1, 1, 0, b.caller, NULL, NULL));
}

static void set_attribute(void)
{
    CHECK(cu.cuFuncSetAttribute(b.nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
}

static void stream_create(void)
{
    CHECK(cu.cuStreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
}

static void stream_destroy(void)
{
    CHECK(cu.cuStreamDestroy_v2(b.stream));
}

static void event_create(void)
{
    CHECK(cu.cuEventCreate(&b.event, CU_EVENT_DISABLE_TIMING));
}

static void event_destroy(void)
{
    CHECK(cu.cuEventDestroy_v2(b.event));
}

static void event_of_held(void)
{
    event_create();
}

static void wait_event(void)
{
    CHECK(cu.cuEventRecord(b.event, b.held));
    CHECK(cu.cuEventSynchronize(b.event));
}

static void wait_held(void)
{
    CHECK(cu.cuStreamSynchronize(b.held));
}

static void wait_all(void)
{
    CHECK(cu.cuCtxSynchronize());
}

static void capture(void)
{
    CHECK(cu.cuStreamBeginCapture_v2(b.caller, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 8; i++) {
        launch_known();
    }
    CHECK(cu.cuStreamEndCapture(b.caller, &b.graph));
}

static void instantiate(void)
{
    CHECK(cu.cuGraphInstantiateWithFlags(&b.exec, b.graph, 0));
}

static void capture_instantiate(void)
{
    capture();
    instantiate();
}

static void graph_launch(void)
{
    CHECK(cu.cuGraphLaunch(b.exec, b.caller));
}

static void exec_destroy(void)
{
    CHECK(cu.cuGraphExecDestroy(b.exec));
}

static void graph_destroy(void)
{
    CHECK(cu.cuGraphDestroy(b.graph));
}

static void graph_and_exec_destroy(void)
{
    exec_destroy();
    graph_destroy();
}

static void array_create(void)
{
    const CUDA_ARRAY_DESCRIPTOR about = {
        .Width = 256, .Height = 256, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

    CHECK(cu.cuArrayCreate_v2(&b.array, &about));
}

static void array_destroy(void)
{
    CHECK(cu.cuArrayDestroy(b.array));
}

static void copy_in(void)
{
    CHECK(cu.cuMemcpyHtoD_v2(b.device, b.pageable, BYTES));
}

static void copy_out(void)
{
    CHECK(cu.cuMemcpyDtoH_v2(b.pageable, b.device, BYTES));
}

static void copy_in_pageable_async(void)
{
    CHECK(cu.cuMemcpyHtoDAsync_v2(b.device, b.pageable, BYTES, b.caller));
}

static void set(void)
{
    CHECK(cu.cuMemsetD8_v2(b.device, 1, 4096));
}

static void info(void)
{
    size_t free_bytes, total;

    CHECK(cu.cuMemGetInfo_v2(&free_bytes, &total));
}

static const struct {
    const char *name;
    void (*before)(void), (*call)(void), (*after)(void);
} calls[] = {
    {"nothing", nothing, nothing, nothing},
    {"cuMemAlloc 4 MiB", nothing, alloc, release},
    {"cuMemAlloc 256 MiB", nothing, alloc_large, release},
    {"cuMemFree", alloc, release, nothing},
    {"cuMemAllocAsync", nothing, alloc_async, free_async},
    {"cuMemFreeAsync", alloc_async, free_async, nothing},
    {"cuMemHostAlloc", nothing, host_alloc, host_free},
    {"cuMemFreeHost", host_alloc, host_free, nothing},
    {"cuMemHostRegister", nothing, host_register, host_unregister},
    {"cuMemHostUnregister", host_register, host_unregister, nothing},
    {"cuMemAddressReserve", nothing, reserve, unreserve},
    {"cuMemCreate", nothing, create, destroy},
    {"cuMemMap", reserve_create, map, none_of_vmm},
    {"cuMemSetAccess", reserve_create_map, set_access, none_of_vmm},
    {"cuMemUnmap", all_of_vmm, unmap, unreserve_destroy},
    {"cuMemUnmap, no access", reserve_create_map, unmap, unreserve_destroy},
    {"cuMemRelease", create, destroy, nothing},
    {"cuMemAddressFree", reserve, unreserve, nothing},
    {"cuMemExportToShareableHandle", create, export_fd, destroy},
    {"cuModuleLoadData", nothing, load, unload},
    {"cuModuleGetFunction", load, find, unload},
    {"first launch", load_find, launch_fresh, unload},
    {"cuModuleUnload, never launched", load_find, unload, nothing},
    {"cuModuleUnload", load_find_launch, unload, nothing},
    {"cuLaunchKernel", nothing, launch_known, nothing},
    {"cuFuncSetAttribute", nothing, set_attribute, nothing},
    {"cuStreamCreate", nothing, stream_create, stream_destroy},
    {"cuStreamDestroy", stream_create, stream_destroy, nothing},
    {"cuEventCreate", nothing, event_create, event_destroy},
    {"cuEventDestroy", event_create, event_destroy, nothing},
    {"cuEventSynchronize, held", event_of_held, wait_event, event_destroy},
    {"cuStreamSynchronize, held", nothing, wait_held, nothing},
    {"cuCtxSynchronize", nothing, wait_all, nothing},
    {"cuGraphInstantiate", capture, instantiate, graph_and_exec_destroy},
    {"cuGraphLaunch", capture_instantiate, graph_launch, graph_and_exec_destroy},
    {"cuGraphExecDestroy", capture_instantiate, exec_destroy, graph_destroy},
    {"cuArrayCreate", nothing, array_create, array_destroy},
    {"cuArrayDestroy", array_create, array_destroy, nothing},
    {"cuMemcpyHtoD, legacy stream", nothing, copy_in, nothing},
    {"cuMemcpyDtoH, legacy stream", nothing, copy_out, nothing},
    {"cuMemcpyHtoDAsync, pageable", nothing, copy_in_pageable_async, nothing},
    {"cuMemsetD8, legacy stream", nothing, set, nothing},
    {"cuMemGetInfo", nothing, info, nothing},
};

/* ---------------------------------------------------------------- one call */

struct caller {
    void (*call)(void);
    double ms;
    atomic_int begun, done;
};

static void *make_call(void *arg)
{
    struct caller *c = arg;

    CHECK(cu.cuCtxSetCurrent(b.context));
    atomic_store(&c->begun, 1);
    double start = now_ms();

    c->call();
    c->ms = now_ms() - start;
    atomic_store(&c->done, 1);
    return NULL;
}

/* The bystander's launch, and a word behind it. */
static void give_work(double *ret_calls_ms, double *ret_work_ms, double until)
{
    static uint32_t number;
    double start = now_ms(), given;

    number++;
    CHECK(cu.cuLaunchKernel(b.nothing, 1, 1, 1, 1, 1, 1, 0, b.bystander, NULL, NULL));
    CHECK(cu.cuStreamWriteValue32_v2(b.bystander, (CUdeviceptr)(uintptr_t)&b.words[BYSTANDER],
                                     number, 0));
    given = now_ms();
    while (b.words[BYSTANDER] != number && now_ms() < until) {
    }
    double work = now_ms() - start;

    *ret_calls_ms = given - start > *ret_calls_ms ? given - start : *ret_calls_ms;
    *ret_work_ms = work > *ret_work_ms ? work : *ret_work_ms;
}

static _Atomic double held_ms; /* since when the device is held */

static void hold(int by_kernel)
{
    CUdeviceptr open = (CUdeviceptr)(uintptr_t)&b.words[OPEN];
    void *params[] = {&open};

    atomic_store(&held_ms, now_ms());
    b.words[OPEN] = 0;
    b.words[SEEN] = 0;
    CHECK(cu.cuStreamWriteValue32_v2(b.held, (CUdeviceptr)(uintptr_t)&b.words[SEEN], 1, 0));
    if (by_kernel) {
        CHECK(cu.cuLaunchKernel(b.spin, 1, 1, 1, 1, 1, 1, 0, b.held, params, NULL));
    } else {
        CHECK(cu.cuStreamWaitValue32_v2(b.held, open, 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cu.cuLaunchKernel(b.nothing, 1, 1, 1, 1, 1, 1, 0, b.held, NULL, NULL));
    }
    while (b.words[SEEN] == 0) {
    }
}

static void measure(size_t i, int by_kernel)
{
    struct caller c = {.call = calls[i].call};
    double calls_ms = 0, work_ms = 0;
    pthread_t thread;

    calls[i].before();
    hold(by_kernel);
    double end = now_ms() + HOLD_MS;

    if (pthread_create(&thread, NULL, make_call, &c) != 0) {
        exit(1);
    }
    while (!atomic_load(&c.begun)) {
    }
    /* What the other does only begins to keep others out when it has come that far. */
    while (now_ms() < end - HOLD_MS + 1) {
    }
    while (now_ms() < end) {
        give_work(&calls_ms, &work_ms, end);
        if (atomic_load(&c.done) && now_ms() > end - HOLD_MS + 5) {
            break;
        }
    }
    b.words[OPEN] = 1;
    pthread_join(thread, NULL);
    CHECK(cu.cuCtxSynchronize());
    calls[i].after();
    CHECK(cu.cuCtxSynchronize());
    printf("%s\t%s\t%.3f\t%.3f\t%.3f\n", calls[i].name, by_kernel ? "kernel" : "value", c.ms,
           calls_ms, work_ms);
    fflush(stdout);
}

/* The bystander's own calls may be kept waiting, so somebody else must release the device. */
static void *release_at_last(void *arg)
{
    (void)arg;
    for (;;) {
        struct timespec pause = {0, 10000000};

        nanosleep(&pause, NULL);
        if (b.words[OPEN] == 0 && now_ms() - atomic_load(&held_ms) > HOLD_MS * 1.5) {
            b.words[OPEN] = 1;
        }
    }
    return NULL;
}

static void open_device(void)
{
    CUdevice device;
    CUmodule module;
    void *words;

    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&b.context, device));
    CHECK(cu.cuCtxSetCurrent(b.context));
    CHECK(cu.cuModuleLoadData(&module, text));
    CHECK(cu.cuModuleGetFunction(&b.spin, module, "spin"));
    CHECK(cu.cuModuleGetFunction(&b.nothing, module, "nothing"));
    CHECK(cu.cuStreamCreate(&b.held, CU_STREAM_NON_BLOCKING));
    CHECK(cu.cuStreamCreate(&b.bystander, CU_STREAM_NON_BLOCKING));
    CHECK(cu.cuStreamCreate(&b.caller, CU_STREAM_NON_BLOCKING));
    CHECK(cu.cuMemHostAlloc(&words, WORDS * sizeof(uint32_t), CU_MEMHOSTALLOC_DEVICEMAP));
    b.words = words;
    CHECK(cu.cuMemAlloc_v2(&b.device, BYTES));
    b.pageable = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.pageable == MAP_FAILED) {
        exit(1);
    }
    memset(b.pageable, 1, BYTES);
    b.words[OPEN] = 1;
}

int main(int argc, char **argv)
{
    pthread_t releaser;
    double calls_ms = 0, work_ms = 0;

    (void)load_driver();
    open_device();
    if (pthread_create(&releaser, NULL, release_at_last, NULL) != 0) {
        return 1;
    }
    hold(1); /* every kernel and operation once, so that nothing is the first of its kind */
    b.words[OPEN] = 1;
    hold(0);
    b.words[OPEN] = 1;
    launch_known();
    give_work(&calls_ms, &work_ms, now_ms() + 1000);
    CHECK(cu.cuCtxSynchronize());
    printf("call\tdevice held by\tcall ms\tbystander's calls ms\tbystander's work ms\n");
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int wanted = argc < 2;

        for (int a = 1; a < argc; a++) {
            wanted |= strcmp(argv[a], calls[i].name) == 0;
        }
        for (int by_kernel = 0; wanted && by_kernel < 2; by_kernel++) {
            measure(i, by_kernel);
        }
    }
    return 0;
}
