/*
 * A thread captures, and a call is made that is no part of the capture: by another thread, or by
 * itself. Each call waits implicitly for work of the context, or is one that no graph can contain.
 *
 * Beside a capture of mode THREAD_LOCAL or RELAXED another thread's call works, and the capture
 * stays good. Mode GLOBAL forbids other threads some calls; which, was seen on an H200 with driver
 * 580 (2026-11-29). Of the others this program asserts nothing.
 */
#include <pthread.h>
#include <stdbool.h>

#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 256, BYTES = N * sizeof(unsigned) };

static CUcontext context;
static CUmodule module;
static CUfunction chain;
static CUdeviceptr device, scratch, spare;
static CUstream captured, busy;
static CUevent recorded;
static void *pinned;
static unsigned char registered[4096] __attribute__((aligned(4096)));

static CUresult launch(CUstream stream)
{
    unsigned n = N;
    void *params[] = {stream == captured ? &device : &scratch, &n};

    return cu.LaunchKernel(chain, 1, 1, 1, N, 1, 1, 0, stream, params, NULL);
}

/* ---------------------------------------------------------------- the calls */

static CUresult nothing(void)
{
    return CUDA_SUCCESS;
}

static CUresult mem_alloc(void)
{
    CUdeviceptr made;

    return cu.MemAlloc_v2(&made, BYTES);
}

static CUresult mem_alloc_and_free(void)
{
    CUdeviceptr made;
    CUresult result = cu.MemAlloc_v2(&made, BYTES);

    return result == CUDA_SUCCESS ? cu.MemFree_v2(made) : result;
}

static CUresult mem_alloc_pitch(void)
{
    CUdeviceptr made;
    size_t pitch;

    return cu.MemAllocPitch_v2(&made, &pitch, 64, 4, 4);
}

static CUresult mem_alloc_managed(void)
{
    CUdeviceptr made;
    CUresult result = cu.MemAllocManaged(&made, BYTES, CU_MEM_ATTACH_GLOBAL);

    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_SUCCESS : result; /* not all drivers have it */
}

static CUresult mem_free(void)
{
    return cu.MemFree_v2(spare);
}

static CUresult mem_free_nothing(void)
{
    return cu.MemFree_v2(0);
}

static CUresult host_alloc(void)
{
    void *made;

    return cu.MemHostAlloc(&made, BYTES, 0);
}

static CUresult host_free(void)
{
    return cu.MemFreeHost(pinned);
}

static CUresult host_register(void)
{
    static unsigned char bytes[4096] __attribute__((aligned(4096)));
    CUresult result = cu.MemHostRegister_v2(bytes, sizeof(bytes), 0);

    return result == CUDA_SUCCESS ? cu.MemHostUnregister(bytes) : result;
}

static CUresult alloc_async(void)
{
    CUdeviceptr made;
    CUresult result = cu.MemAllocAsync(&made, BYTES, busy);

    return result == CUDA_SUCCESS ? cu.MemFreeAsync(made, busy) : result;
}

static CUresult event_query(void)
{
    CUresult result = cu.EventQuery(recorded);

    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static CUresult event_synchronize(void)
{
    return cu.EventSynchronize(recorded);
}

static CUresult event_life(void)
{
    CUevent event;
    CUresult result = cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING);

    result = result == CUDA_SUCCESS ? cu.EventRecord(event, busy) : result;
    return result == CUDA_SUCCESS ? cu.EventDestroy_v2(event) : result;
}

static CUresult stream_query(void)
{
    CUresult result = cu.StreamQuery(busy);

    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static CUresult stream_synchronize(void)
{
    return cu.StreamSynchronize(busy);
}

static CUresult stream_life(void)
{
    CUstream stream;
    CUresult result = cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    result = result == CUDA_SUCCESS ? launch(stream) : result;
    return result == CUDA_SUCCESS ? cu.StreamDestroy_v2(stream) : result;
}

static void CUDA_CB callback(CUstream stream, CUresult result, void *user)
{
    (void)stream;
    *(CUresult *)user = result;
}

static CUresult stream_callback(void)
{
    CUresult called = CUDA_ERROR_UNKNOWN;
    CUresult result = cu.StreamAddCallback(busy, callback, &called, 0);

    result = result == CUDA_SUCCESS ? cu.StreamSynchronize(busy) : result;
    return result == CUDA_SUCCESS ? called : result;
}

static CUresult work(void)
{
    CUresult result = launch(busy);

    return result == CUDA_SUCCESS ? cu.MemsetD32Async(scratch, 1, N, busy) : result;
}

static CUresult copy_in(void)
{
    unsigned words[N] = {0};

    return cu.MemcpyHtoD_v2(scratch, words, sizeof(words));
}

static CUresult copy_out(void)
{
    unsigned words[N];

    return cu.MemcpyDtoH_v2(words, scratch, sizeof(words));
}

static CUresult copy_async(void)
{
    unsigned words[N] = {0};
    CUresult result = cu.MemcpyHtoDAsync_v2(scratch, words, sizeof(words), busy);

    return result == CUDA_SUCCESS ? cu.MemcpyDtoHAsync_v2(words, scratch, sizeof(words), busy)
                                  : result;
}

static CUresult memory_set(void)
{
    return cu.MemsetD32_v2(scratch, 3, N);
}

static CUresult module_life(void)
{
    CUmodule loaded;
    CUfunction function;
    CUresult result = cu.ModuleLoadData(&loaded, basic_ptx);

    result = result == CUDA_SUCCESS ? cu.ModuleGetFunction(&function, loaded, "nothing") : result;
    result = result == CUDA_SUCCESS
                 ? cu.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, busy, NULL, NULL)
                 : result;
    return result == CUDA_SUCCESS ? cu.ModuleUnload(loaded) : result;
}

static CUresult graph_life(void)
{
    unsigned n = N;
    void *params[] = {&scratch, &n};
    CUDA_KERNEL_NODE_PARAMS node = {.func = chain,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = N,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;
    CUgraphNode made;
    CUresult result = cu.GraphCreate(&graph, 0);

    result =
        result == CUDA_SUCCESS ? cu.GraphAddKernelNode_v2(&made, graph, NULL, 0, &node) : result;
    result = result == CUDA_SUCCESS ? cu.GraphInstantiateWithFlags(&exec, graph, 0) : result;
    result = result == CUDA_SUCCESS ? cu.GraphLaunch(exec, busy) : result;
    result = result == CUDA_SUCCESS ? cu.GraphExecDestroy(exec) : result;
    return result == CUDA_SUCCESS ? cu.GraphDestroy(graph) : result;
}

static CUresult array_life(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR wanted = {
        .Width = 16, .Height = 16, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    CUarray array;
    CUresult result = cu.Array3DCreate_v2(&array, &wanted);

    return result == CUDA_SUCCESS ? cu.ArrayDestroy(array) : result;
}

static CUresult mapping_life(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t unit;

    DRV(cu.MemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUresult result = cu.MemCreate(&handle, unit, &prop, 0);
    result = result == CUDA_SUCCESS ? cu.MemAddressReserve(&at, unit, 0, 0, 0) : result;
    result = result == CUDA_SUCCESS ? cu.MemMap(at, unit, 0, handle, 0) : result;
    result = result == CUDA_SUCCESS ? cu.MemSetAccess(at, unit, &access, 1) : result;
    result = result == CUDA_SUCCESS ? cu.MemUnmap(at, unit) : result;
    result = result == CUDA_SUCCESS ? cu.MemRelease(handle) : result;
    return result == CUDA_SUCCESS ? cu.MemAddressFree(at, unit) : result;
}

static CUresult pool_life(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr made;
    CUresult result = cu.MemPoolCreate(&pool, &props);

    result = result == CUDA_SUCCESS ? cu.MemAllocFromPoolAsync(&made, BYTES, pool, busy) : result;
    result = result == CUDA_SUCCESS ? cu.MemFreeAsync(made, busy) : result;
    result = result == CUDA_SUCCESS ? cu.MemPoolTrimTo(pool, 0) : result;
    return result == CUDA_SUCCESS ? cu.MemPoolDestroy(pool) : result;
}

static CUresult context_life(void)
{
    CUcontext other;
    CUstream stream;
    CUresult result = cu.CtxCreate_v2(&other, 0, 0);

    result = result == CUDA_SUCCESS ? cu.StreamCreate(&stream, 0) : result;
    result = result == CUDA_SUCCESS ? cu.CtxSynchronize() : result;
    return result == CUDA_SUCCESS ? cu.CtxDestroy_v2(other) : result;
}

static CUresult memory_info(void)
{
    size_t free_bytes, total;

    return cu.MemGetInfo_v2(&free_bytes, &total);
}

static CUresult ipc_handle(void)
{
    CUipcMemHandle handle;

    return cu.IpcGetMemHandle(&handle, scratch);
}

static CUresult host_unregister(void)
{
    return cu.MemHostUnregister(registered);
}

static CUresult free_async(void)
{
    return cu.MemFreeAsync(spare, busy);
}

static CUresult legacy_status(void)
{
    CUstreamCaptureStatus status;

    return cu.StreamIsCapturing(NULL, &status);
}

static CUresult legacy_info(void)
{
    CUstreamCaptureStatus status;

    return cu.StreamGetCaptureInfo_v2(NULL, &status, NULL, NULL, NULL, NULL);
}

static CUresult context_synchronize(void)
{
    return cu.CtxSynchronize();
}

static CUresult set_limit(void)
{
    return cu.CtxSetLimit(CU_LIMIT_STACK_SIZE, 2048);
}

static CUresult other_capture(void)
{
    CUgraph graph = NULL;
    CUresult result = cu.StreamBeginCapture_v2(busy, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

    result = result == CUDA_SUCCESS ? launch(busy) : result;
    result = result == CUDA_SUCCESS ? cu.StreamEndCapture(busy, &graph) : result;
    return result == CUDA_SUCCESS ? cu.GraphDestroy(graph) : result;
}

enum refusal {
    NEVER,
    BY_MODE, /* as proto/api marks it */
    ALWAYS,  /* whatever the capture's mode */
    UNKNOWN, /* beside GLOBAL */
};

static const struct {
    const char *name;
    CUresult (*call)(void);
    enum refusal refused;
} calls[] = {
    {"nothing", nothing, NEVER},
    {"cuMemAlloc", mem_alloc, BY_MODE},
    {"cuMemAllocPitch", mem_alloc_pitch, BY_MODE},
    {"cuMemAllocManaged", mem_alloc_managed, BY_MODE},
    {"cuMemFree", mem_free, BY_MODE},
    {"cuMemFree of 0", mem_free_nothing, UNKNOWN},
    {"cuMemHostAlloc", host_alloc, BY_MODE},
    {"cuMemFreeHost", host_free, BY_MODE},
    {"cuMemHostRegister", host_register, BY_MODE},
    {"cuMemHostUnregister", host_unregister, BY_MODE},
    {"cuMemAllocAsync", alloc_async, BY_MODE},
    {"cuMemFreeAsync", free_async, BY_MODE},
    {"cuEventQuery", event_query, BY_MODE},
    {"cuEventSynchronize", event_synchronize, BY_MODE},
    {"an event's life", event_life, NEVER},
    {"cuStreamQuery", stream_query, BY_MODE},
    {"cuStreamSynchronize", stream_synchronize, BY_MODE},
    {"a stream's life", stream_life, NEVER},
    {"cuStreamAddCallback", stream_callback, UNKNOWN},
    {"cuStreamIsCapturing of the legacy stream", legacy_status, NEVER},
    {"cuStreamGetCaptureInfo of the legacy stream", legacy_info, NEVER},
    {"cuCtxSynchronize", context_synchronize, ALWAYS},
    {"cuCtxSetLimit", set_limit, BY_MODE},
    {"work in another stream", work, NEVER},
    {"cuMemcpyHtoD", copy_in, NEVER},
    {"cuMemcpyDtoH", copy_out, NEVER},
    {"copies in another stream", copy_async, NEVER},
    {"cuMemsetD32", memory_set, NEVER},
    {"a module's life", module_life, BY_MODE},
    {"a graph's life", graph_life, BY_MODE},
    {"an array's life", array_life, BY_MODE},
    {"a mapping's life", mapping_life, NEVER},
    {"a pool's life", pool_life, BY_MODE},
    {"a context's life", context_life, UNKNOWN},
    {"cuMemGetInfo", memory_info, NEVER},
    {"cuIpcGetMemHandle", ipc_handle, NEVER},
    {"another capture", other_capture, NEVER},
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* ---------------------------------------------------------------- beside a capture */

static const char *const modes[] = {"GLOBAL", "THREAD_LOCAL", "RELAXED"};

static void *in_thread(void *call)
{
    CUresult (*const made)(void) = *(CUresult(*const *)(void))call;

    if (cu.CtxSetCurrent(context) != CUDA_SUCCESS) {
        return (void *)(intptr_t)CUDA_ERROR_INVALID_CONTEXT;
    }
    return (void *)(intptr_t)made();
}

static CUresult by_another_thread(CUresult (*call)(void))
{
    pthread_t thread;
    void *result;

    if (pthread_create(&thread, NULL, in_thread, &call) != 0 ||
        pthread_join(thread, &result) != 0) {
        check_die("no thread");
    }
    return (CUresult)(intptr_t)result;
}

/* Make the call while the stream is captured, with work before the capture and in it. */
static void beside(unsigned which, CUstreamCaptureMode mode, CUresult want)
{
    CUgraph graph = NULL;
    char label[128];

    DRV(cu.MemAlloc_v2(&spare, BYTES));
    DRV(cu.MemHostAlloc(&pinned, BYTES, 0));
    DRV(cu.MemHostRegister_v2(registered, sizeof(registered), 0));
    DRV(launch(captured));
    DRV(launch(busy));
    DRV(cu.StreamBeginCapture_v2(captured, mode));
    DRV(launch(captured));
    CUresult got = by_another_thread(calls[which].call);
    CUresult end = cu.StreamEndCapture(captured, &graph);
    CUresult good = want == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    snprintf(label, sizeof(label), "%s beside %s", calls[which].name, modes[mode]);
    check_code(got, want, label);
    snprintf(label, sizeof(label), "the capture beside it");
    check_code(end, good, label);
    if (graph) {
        DRV(cu.GraphDestroy(graph));
    }
    bool done = got == CUDA_SUCCESS;
    if (!done || (calls[which].call != mem_free && calls[which].call != free_async)) {
        DRV(cu.MemFree_v2(spare));
    }
    if (!done || calls[which].call != host_free) {
        DRV(cu.MemFreeHost(pinned));
    }
    if (!done || calls[which].call != host_unregister) {
        DRV(cu.MemHostUnregister(registered));
    }
}

static void all_beside(unsigned flags)
{
    DRV(cu.StreamCreate(&captured, flags));
    for (unsigned i = 0; i < CALLS; i++) {
        bool legacy = calls[i].call == copy_in || calls[i].call == copy_out ||
                      calls[i].call == memory_set || calls[i].call == legacy_status ||
                      calls[i].call == legacy_info;
        if (legacy && flags == CU_STREAM_DEFAULT) {
            continue; /* use of the legacy stream, which is forbidden then */
        }
        for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
             mode++) {
            bool global = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            bool refused = calls[i].refused == ALWAYS || (calls[i].refused == BY_MODE && global);
            if (calls[i].refused != UNKNOWN || !global) {
                beside(i, (CUstreamCaptureMode)mode,
                       refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
            }
        }
    }
    DRV(cu.StreamDestroy_v2(captured));
}

/* ---------------------------------------------------------------- by the thread itself */

static void own_calls(void)
{
    static const struct {
        CUstreamCaptureMode capture, thread;
        bool allowed;
    } rows[] = {
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL, false},
        {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL, true},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false},
        {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, true},
        {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED, true},
    };
    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CUstreamCaptureMode mode = rows[i].thread;
        CUgraph graph = NULL;
        char label[64];
        DRV(cu.ThreadExchangeStreamCaptureMode(&mode));
        DRV(cu.StreamBeginCapture_v2(captured, rows[i].capture));
        DRV(launch(captured));
        snprintf(label, sizeof(label), "own cuMemAlloc in %s, the thread in %s",
                 modes[rows[i].capture], modes[rows[i].thread]);
        check_code(mem_alloc(),
                   rows[i].allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, label);
        check_code(cu.StreamEndCapture(captured, &graph),
                   rows[i].allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                   "the capture beside it");
        DRV(cu.ThreadExchangeStreamCaptureMode(&mode));
        if (graph) {
            DRV(cu.GraphDestroy(graph));
        }
    }
    DRV(cu.StreamDestroy_v2(captured));
}

/* A call of a thread whose own mode is not GLOBAL, beside another thread's GLOBAL capture. */
static CUresult alloc_of_a_local_thread(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

    DRV(cu.ThreadExchangeStreamCaptureMode(&mode));
    return mem_alloc();
}

static void local_thread(void)
{
    CUgraph graph = NULL;

    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    DRV(launch(captured));
    check_code(by_another_thread(alloc_of_a_local_thread), CUDA_SUCCESS,
               "a thread in THREAD_LOCAL beside GLOBAL");
    check_code(cu.StreamEndCapture(captured, &graph), CUDA_SUCCESS, "the capture beside it");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(captured));
}

/* ---------------------------------------------------------------- what is waited for */

/* Frees; then the work that an event was recorded behind must be done. */
static CUresult free_and_query(void)
{
    CUresult result = mem_free();

    return result == CUDA_SUCCESS ? cu.EventQuery(recorded) : result;
}

/* cuMemFree waits for what a stream was given before it was captured, or before it joined. */
static void waits_for_work_before(int joins, unsigned flags)
{
    CUfunction spin = driver_function(module, "spin");
    CUstream origin;
    unsigned seed = 1, rounds = 1u << 22; /* milliseconds */
    void *params[] = {&scratch, &seed, &rounds};
    CUgraph graph = NULL;

    DRV(cu.StreamCreate(&captured, flags));
    DRV(cu.StreamCreate(&origin, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&spare, BYTES));
    driver_launch(spin, 1, 1, captured, params);
    DRV(cu.EventRecord(recorded, captured));
    if (joins) {
        CUevent forked;
        DRV(cu.EventCreate(&forked, CU_EVENT_DISABLE_TIMING));
        DRV(cu.StreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
        DRV(cu.EventRecord(forked, origin));
        DRV(cu.StreamWaitEvent(captured, forked, 0));
        DRV(launch(captured));
        check_code(by_another_thread(free_and_query), CUDA_SUCCESS,
                   "cuMemFree waits for work from before a stream joined");
        DRV(cu.EventRecord(forked, captured));
        DRV(cu.StreamWaitEvent(origin, forked, 0));
        check_code(cu.StreamEndCapture(origin, &graph), CUDA_SUCCESS, "the capture beside it");
        DRV(cu.EventDestroy_v2(forked));
    } else {
        DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
        DRV(launch(captured));
        check_code(by_another_thread(free_and_query), CUDA_SUCCESS,
                   "cuMemFree waits for work from before the capture");
        check_code(cu.StreamEndCapture(captured, &graph), CUDA_SUCCESS, "the capture beside it");
    }
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(captured));
    DRV(cu.StreamDestroy_v2(origin));
}

/* ---------------------------------------------------------------- a data loader */

enum { CAPTURES = 60 };

static int ended; /* atomic */

/* Allocates and frees as fast as it can, as a data loader and a garbage collector do. */
static CUresult load(void)
{
    CUresult result = CUDA_SUCCESS;

    while (result == CUDA_SUCCESS && !__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
        result = mem_alloc_and_free();
        result = result == CUDA_SUCCESS ? copy_in() : result;
        result = result == CUDA_SUCCESS ? cu.MemHostAlloc(&pinned, BYTES, 0) : result;
        result = result == CUDA_SUCCESS ? cu.MemFreeHost(pinned) : result;
    }
    return result;
}

static void beside_a_loader(void)
{
    CUresult (*call)(void) = load;
    CUgraphExec exec;
    pthread_t thread;
    void *result;
    int good = 0;

    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    if (pthread_create(&thread, NULL, in_thread, &call) != 0) {
        check_die("no thread");
    }
    for (int i = 0; i < CAPTURES; i++) {
        CUgraph graph = NULL;
        DRV(launch(captured));
        DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CUresult work_result = launch(captured);
        good += cu.StreamEndCapture(captured, &graph) == CUDA_SUCCESS &&
                work_result == CUDA_SUCCESS &&
                cu.GraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS &&
                cu.GraphLaunch(exec, captured) == CUDA_SUCCESS &&
                cu.StreamSynchronize(captured) == CUDA_SUCCESS &&
                cu.GraphExecDestroy(exec) == CUDA_SUCCESS;
        if (graph) {
            DRV(cu.GraphDestroy(graph));
        }
    }
    __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
    pthread_join(thread, &result);
    check_int(good, CAPTURES, "good captures beside a loader");
    check_code((int)(intptr_t)result, CUDA_SUCCESS, "and the loader");
    DRV(cu.StreamDestroy_v2(captured));
}

/* ---------------------------------------------------------------- ends */

static void *end_in_thread(void *user)
{
    CUgraph graph = NULL;

    (void)user;
    DRV(cu.CtxSetCurrent(context));
    return (void *)(intptr_t)cu.StreamEndCapture(captured, &graph);
}

static void wrong_ends(void)
{
    CUstream joined;
    CUevent forked;
    CUgraph graph = NULL;
    pthread_t thread;
    void *result;

    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&joined, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(launch(captured));
    DRV(cu.EventRecord(forked, captured));
    DRV(cu.StreamWaitEvent(joined, forked, 0));
    DRV(launch(joined));
    check_code(cu.StreamEndCapture(joined, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
               "an end in the stream that joined");
    check_code(cu.StreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "breaks the capture");

    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(launch(captured));
    pthread_create(&thread, NULL, end_in_thread, NULL);
    pthread_join(thread, &result);
    check_code((int)(intptr_t)result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
               "an end by another thread");
    check_code(cu.StreamEndCapture(captured, &graph), CUDA_ERROR_ILLEGAL_STATE,
               "is the capture's end, too");

    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(launch(captured));
    pthread_create(&thread, NULL, end_in_thread, NULL);
    pthread_join(thread, &result);
    check_code((int)(intptr_t)result, CUDA_SUCCESS, "an end of RELAXED by another thread");

    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(launch(captured));
    DRV(cu.EventRecord(forked, captured));
    check_code(cu.EventQuery(forked), CUDA_ERROR_CAPTURED_EVENT, "a query of a captured event");
    check_code(cu.StreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "breaks the capture");
    DRV(cu.EventDestroy_v2(forked));
    DRV(cu.StreamDestroy_v2(joined));
    DRV(cu.StreamDestroy_v2(captured));
}

static void legacy_use(void)
{
    CUgraph graph = NULL;

    DRV(cu.StreamCreate(&captured, CU_STREAM_DEFAULT));
    DRV(cu.StreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    DRV(launch(captured));
    check_code(launch(NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "work in the legacy stream");
    check_code(cu.StreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "breaks a blocking stream's capture");
    DRV(cu.StreamDestroy_v2(captured));
}

static void into_a_graph(void)
{
    CUgraph graph, wrong = NULL;
    size_t n = 0;

    DRV(cu.StreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.StreamBeginCaptureToGraph(captured, graph, NULL, NULL, 0,
                                     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(launch(captured));
    check_code(cu.StreamEndCapture(captured, NULL), CUDA_SUCCESS,
               "the end of a capture into a graph, without a place for the graph");
    DRV(cu.GraphGetNodes(graph, NULL, &n));
    check_int((long long)n, 1, "its nodes");
    check_code(cu.StreamEndCapture(captured, &wrong), CUDA_ERROR_ILLEGAL_STATE, "a second end");
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(captured));
}

int main(void)
{
    context = driver_begin("drv_capture_threads");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    chain = driver_function(module, "chain");
    DRV(cu.MemAlloc_v2(&device, BYTES));
    DRV(cu.MemAlloc_v2(&scratch, BYTES));
    DRV(cu.StreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&recorded, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventRecord(recorded, busy));
    all_beside(CU_STREAM_NON_BLOCKING);
    all_beside(CU_STREAM_DEFAULT);
    own_calls();
    local_thread();
    for (int joins = 0; joins < 2; joins++) {
        waits_for_work_before(joins, CU_STREAM_NON_BLOCKING);
        waits_for_work_before(joins, CU_STREAM_DEFAULT);
    }
    beside_a_loader();
    wrong_ends();
    legacy_use();
    into_a_graph();
    DRV(cu.EventDestroy_v2(recorded));
    DRV(cu.StreamDestroy_v2(busy));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
