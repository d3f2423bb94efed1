/*
 * A program that uses CUPTI as Kineto does, through the libcupti.so.13 that the loader finds.
 *
 *     e2e_cupti rows [early | late LIBRARY]  kernels, copies, a fill; as another_cupti.h says
 *     e2e_cupti graph      the same of graphs, where the host has a libcupti; whole: where not
 *     e2e_cupti nvtx       markers, as NVTX's headers make them
 *     e2e_cupti ranges     markers and a kernel, without CUPTI
 *     e2e_cupti resources  devices, contexts and streams, those that come and those that are there
 *     e2e_cupti many N     N launches: all are recorded; dropped without buffers
 *     e2e_cupti callbacks  entries and exits of calls, with their arguments
 *     e2e_cupti twice      records of the second time alone; nothing while it is off
 *     e2e_cupti tenant N   prints "ready", then N launches, whose grid names N
 *     e2e_cupti refused    what is not there says so
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/another_cupti.h"
#include "tests/e2e/kernels.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (64u << 10)
#define WORDS        5000u
#define CUSTOM0      3
#define SLACK        200000 /* ticks: 100 us, twice as far as an anchor may be off (profile.c) */
#define STEP         2000   /* ticks: 1 us, by which times may step where the clock is corrected */
#define LAUNCH_ID    307    /* CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel */

static CUptiResult (*enable)(CUpti_ActivityKind);
static CUptiResult (*enable_and_dump)(CUpti_ActivityKind);
static CUptiResult (*disable)(CUpti_ActivityKind);
static CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc,
                                         CUpti_BuffersCallbackCompleteFunc);
static CUptiResult (*flush_all)(uint32_t);
static CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*n_dropped)(CUcontext, uint32_t, size_t *);
static CUptiResult (*push_id)(CUpti_ExternalCorrelationKind, uint64_t);
static CUptiResult (*pop_id)(CUpti_ExternalCorrelationKind, uint64_t *);
static CUptiResult (*use_clock)(CUpti_TimestampCallbackFunc);
static CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
static CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
static CUptiResult (*enable_domain)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain);
static CUptiResult (*callback_name)(CUpti_CallbackDomain, uint32_t, const char **);
static CUptiResult (*stream_id)(CUcontext, CUstream, uint8_t, uint32_t *);
static CUptiResult (*refused)(void);

static void load(void)
{
    static const struct {
        const char *name;
        void *to;
    } functions[] = {{"cuptiActivityEnable", &enable},
                     {"cuptiActivityEnableAndDump", &enable_and_dump},
                     {"cuptiActivityDisable", &disable},
                     {"cuptiActivityRegisterCallbacks", &register_callbacks},
                     {"cuptiActivityFlushAll", &flush_all},
                     {"cuptiActivityGetNextRecord", &next_record},
                     {"cuptiActivityGetNumDroppedRecords", &n_dropped},
                     {"cuptiActivityPushExternalCorrelationId", &push_id},
                     {"cuptiActivityPopExternalCorrelationId", &pop_id},
                     {"cuptiActivityRegisterTimestampCallback", &use_clock},
                     {"cuptiSubscribe", &subscribe},
                     {"cuptiUnsubscribe", &unsubscribe},
                     {"cuptiEnableDomain", &enable_domain},
                     {"cuptiGetCallbackName", &callback_name},
                     {"cuptiGetStreamIdEx", &stream_id},
                     {"cuptiProfilerInitialize", &refused}};
    void *library = dlopen("libcupti.so.13", RTLD_NOW);
    check_true(library != NULL, "libcupti.so.13");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = another_find(library, functions[i].name);
        check_true(found != NULL, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

/* ---------------------------------------------------------------- records */

enum { KERNELS_KEPT = 64 };

static struct {
    uint32_t by_kind[CUPTI_ACTIVITY_KIND_COUNT];
    uint32_t kernels;
    bool in_order; /* kernels: times, and correlation ids */
    uint64_t last_end;
    uint32_t last_id;
    CUpti_ActivityKernel10 kernel[KERNELS_KEPT];
    CUpti_ActivityMemcpy6 copy[8];
    CUpti_ActivityMemset4 fill;
    CUpti_ActivityGraphTrace2 graph;
    CUpti_ActivityAPI launch; /* the last call of cuLaunchKernel */
    CUpti_ActivityExternalCorrelation named;
    CUpti_ActivitySynchronization2 waited;
    uint32_t n, at[CUPTI_ACTIVITY_KIND_COUNT]; /* the place of the first record of a kind */
    CUpti_ActivityDevice5 device[4];
    CUpti_ActivityContext3 context[4];
    CUpti_ActivityStream stream[8];
} rows;
static struct {
    CUpti_ActivityMarker2 marker[32];
    CUpti_ActivityMarkerData2 data[32];
    uint32_t n_markers, n_data;
} nvtx;
static uint32_t n_requested, n_completed;
static bool gives_buffers = true;

static void requested(uint8_t **buffer, size_t *size, size_t *max)
{
    *buffer = gives_buffers ? aligned_alloc(8, BUFFER_BYTES) : NULL;
    *size = gives_buffers ? BUFFER_BYTES : 0;
    *max = 0;
    n_requested += gives_buffers;
}

static void keep(const CUpti_Activity *record)
{
    const void *at = record;
    uint32_t n = rows.by_kind[record->kind]++;
    rows.at[record->kind] = n ? rows.at[record->kind] : rows.n;
    rows.n++;
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *kernel = at;
        rows.in_order = rows.in_order && kernel->start < kernel->end &&
                        kernel->start + STEP >= rows.last_end &&
                        kernel->correlationId + (kernel->graphNodeId != 0) > rows.last_id;
        rows.last_end = kernel->end;
        rows.last_id = kernel->correlationId;
        rows.kernel[n % KERNELS_KEPT] = *kernel;
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        memcpy(&rows.copy[n % 8], at, sizeof rows.copy[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
        memcpy(&rows.graph, at, sizeof rows.graph);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        memcpy(&rows.fill, at, sizeof rows.fill);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        memcpy(&rows.named, at, sizeof rows.named);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
        memcpy(&rows.waited, at, sizeof rows.waited);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MARKER) {
        memcpy(&nvtx.marker[nvtx.n_markers++ % 32], at, sizeof nvtx.marker[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MARKER_DATA) {
        memcpy(&nvtx.data[nvtx.n_data++ % 32], at, sizeof nvtx.data[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_DEVICE) {
        memcpy(&rows.device[n % 4], at, sizeof rows.device[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
        memcpy(&rows.context[n % 4], at, sizeof rows.context[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_STREAM) {
        memcpy(&rows.stream[n % 8], at, sizeof rows.stream[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER &&
               ((const CUpti_ActivityAPI *)at)->cbid == LAUNCH_ID) {
        memcpy(&rows.launch, at, sizeof rows.launch);
    }
}

static void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                      size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped;
    (void)context;
    (void)stream;
    check_true(valid <= size, "a buffer's valid bytes");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "asked while a buffer is completed");
    check_int((long long)dropped, 0, "nothing is dropped");
    while (next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        keep(record);
    }
    free(buffer);
    n_completed++;
}

/* A clock of the program's that ticks twice in a nanosecond. */
static uint64_t own_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 2 * ((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

static CUcontext context;
static CUfunction mix;
static CUdeviceptr memory;

static void begin(void)
{
    CUmodule module;
    another_load("early");
    context = driver_begin("e2e_cupti");
    another_load("late");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    load();
    another_check();
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    check_int(register_callbacks(requested, completed), CUPTI_SUCCESS, "register callbacks");
}

static void record(bool on)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               CUPTI_ACTIVITY_KIND_DRIVER,
                                               CUPTI_ACTIVITY_KIND_RUNTIME,
                                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                               CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                               CUPTI_ACTIVITY_KIND_OVERHEAD};
    memset(&rows, 0, on ? sizeof rows : 0);
    rows.in_order = on ? true : rows.in_order;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_int((on ? enable : disable)(kinds[i]), CUPTI_SUCCESS, "enable or disable a kind");
    }
}

static void launch(uint32_t n, CUstream stream)
{
    uint32_t a = 1, b = 0;
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(mix, (n + 127) / 128, 128, stream, params);
}

/* ---------------------------------------------------------------- scenarios */

static void scenario_rows(void)
{
    static uint32_t words[WORDS];
    void *pinned;
    CUstream stream;
    uint32_t id;
    uint64_t popped, before, after;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(CU(MemAllocHost_v2)(&pinned, sizeof words));
    check_int(stream_id(NULL, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(use_clock(own_clock), CUPTI_SUCCESS, "a clock of the program's");
    record(true);
    check_int(push_id(CUSTOM0, 77), CUPTI_SUCCESS, "push");
    before = own_clock();
    for (int i = 0; i < 10; i++) {
        launch(WORDS, stream);
    }
    DRV(cu.StreamSynchronize(stream));
    after = own_clock();
    check_int(pop_id(CUSTOM0, &popped), CUPTI_SUCCESS, "pop");
    check_int((long long)popped, 77, "the id that was pushed");
    check_int(pop_id(CUSTOM0, &popped), CUPTI_ERROR_QUEUE_EMPTY, "pop once more");
    DRV(cu.MemcpyHtoD_v2(memory, words, sizeof words));
    DRV(CU(MemcpyDtoHAsync_v2)(pinned, memory, 4000, stream));
    DRV(cu.MemsetD32_v2(memory, 7, 100));
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(1), CUPTI_SUCCESS, "flush");
    const CUpti_ActivityKernel10 *kernel = &rows.kernel[9];
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 10, "kernels");
    check_true(rows.in_order, "kernels are in order");
    check_true(kernel->name && strcmp(kernel->name, "mix") == 0, "the kernel's name");
    check_int(kernel->gridX, (WORDS + 127) / 128, "its grid");
    check_int(kernel->blockX, 128, "its blocks");
    check_int(kernel->streamId, id, "its stream");
    check_true(rows.kernel[0].start + SLACK > before && kernel->end < after + SLACK,
               "times of the own clock");
    check_int(rows.launch.correlationId, kernel->correlationId, "the launch's correlation id");
    check_true(rows.launch.start < kernel->start, "a kernel begins after its launch");
    check_int(rows.launch.threadId, gettid(), "the launch's thread");
    check_int((long long)rows.named.externalId, 77, "the external id");
    check_int(rows.named.correlationId > kernel->correlationId, 1, "of the last named call");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION], 11, "named calls");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], 2, "copies");
    check_int((long long)rows.copy[0].bytes, sizeof words, "bytes to the device");
    check_int(rows.copy[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, "to the device");
    check_int(rows.copy[0].srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, "from pageable memory");
    check_int(rows.copy[0].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, "to its memory");
    check_int((long long)rows.copy[1].bytes, 4000, "bytes from the device");
    check_int(rows.copy[1].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, "to pinned memory");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMSET], 1, "fills");
    check_int((long long)rows.fill.bytes, 400, "bytes of the fill");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION], 2, "waits");
    check_int(rows.waited.type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, "of all");
    check_int(n_requested, n_completed, "each buffer comes back");
}

/* ---------------------------------------------------------------- graphs */

#define GRAPH_LAUNCHES 5
#define CHAIN          400u
#define CHAIN_LAUNCHES 100u /* the host keeps 131,072 nodes that have not been taken */

static CUevent forked, joined;

/* Two kernels, two branches of a kernel and of a copy, and a fill behind both. */
static void diamond(CUstream stream, CUstream side, void *pinned)
{
    launch(WORDS, stream);
    launch(1, stream);
    DRV(cu.EventRecord(forked, stream));
    DRV(cu.StreamWaitEvent(side, forked, 0));
    launch(200, side);
    DRV(CU(MemcpyDtoHAsync_v2)(pinned, memory, 4000, stream));
    DRV(cu.EventRecord(joined, side));
    DRV(cu.StreamWaitEvent(stream, joined, 0));
    DRV(CU(MemsetD32Async)(memory, 7, 100, stream));
}

static CUgraphExec captured_diamond(CUstream stream, CUstream side, void *pinned)
{
    CUgraph graph;
    CUgraphExec exec;
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    diamond(stream, side, pinned);
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph)); /* as PyTorch does */
    return exec;
}

static CUgraphExec first_diamond(CUstream *stream, CUstream *side, void **pinned)
{
    DRV(cu.StreamCreate(stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(side, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    DRV(CU(MemAllocHost_v2)(pinned, WORDS * sizeof(uint32_t)));
    return captured_diamond(*stream, *side, *pinned);
}

static void record_end(void)
{
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
}

static void check_diamonds(uint32_t n)
{
    uint32_t blocks = 0;
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 3 * n, "kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], n, "copies");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMSET], n, "fills");
    for (uint32_t i = 0; i < 3 * n; i++) {
        const CUpti_ActivityKernel10 *kernel = &rows.kernel[i];
        blocks += (uint32_t)kernel->gridX;
        check_true(kernel->name && strcmp(kernel->name, "mix") == 0, "the kernel's name");
        check_int(kernel->blockX, 128, "its blocks");
        check_true(kernel->start <= kernel->end, "its times");
        check_true(kernel->correlationId == rows.kernel[i - i % 3].correlationId, "its launch");
        check_int(kernel->streamId, rows.kernel[0].streamId, "its stream");
    }
    check_int(blocks, n * ((WORDS + 127) / 128 + 1 + 2), "the kernels' grids");
    check_int((long long)rows.copy[0].bytes, 4000, "bytes of the copy");
    check_int(rows.copy[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, "from the device");
    check_int((long long)rows.fill.bytes, 400, "bytes of the fill");
    check_int(rows.fill.value, 7, "its value");
}

/* Branches run side by side, and nothing starts before what it depends on has ended. */
static void check_order(void)
{
    for (uint32_t i = 0; i < GRAPH_LAUNCHES; i++) {
        const CUpti_ActivityKernel10 *kernel = &rows.kernel[3 * i];
        check_true(kernel[0].end <= kernel[1].start, "the second kernel follows the first");
        check_true(kernel[1].end <= kernel[2].start, "the branch follows both");
        check_true(kernel[1].end <= rows.copy[i].start, "so does the other branch");
        check_true(i == 0 || kernel[-1].end <= kernel[0].start, "launches follow each other");
        check_true(kernel[0].graphId != 0 && kernel[0].graphId == rows.copy[i].graphId,
                   "its graph");
        check_true(kernel[0].graphNodeId != kernel[1].graphNodeId &&
                       kernel[1].graphNodeId != kernel[2].graphNodeId && kernel[0].graphNodeId != 0,
                   "nodes have ids");
        check_true(kernel[0].graphNodeId == rows.kernel[0].graphNodeId, "the same in each launch");
    }
    check_true(rows.fill.start >= rows.copy[GRAPH_LAUNCHES - 1].end, "the fill follows the copy");
    check_true(rows.fill.start >= rows.kernel[3 * GRAPH_LAUNCHES - 1].end, "and the branch");
}

/* A graph is one record of another kind, if that is wanted. */
static void check_wholes(CUgraphExec exec, CUstream stream)
{
    uint32_t id;
    check_int(stream_id(NULL, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS, "enable graphs");
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    launch(1, stream);
    record_end();
    check_int(disable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS, "disable graphs");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_GRAPH_TRACE], 2, "graphs");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "other kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], 0, "their copies");
    check_true(rows.graph.start < rows.graph.end && rows.graph.end <= rows.kernel[0].start,
               "the second graph's time");
    check_true(rows.graph.correlationId < rows.kernel[0].correlationId, "its launch");
    check_int(rows.graph.streamId, id, "its stream");
    check_true(rows.graph.graphId != 0, "its graph");
}

static void check_updates(CUgraphExec exec, CUstream stream, CUstream side, void *pinned)
{
    CUgraph graph;
    CUgraphExecUpdateResultInfo info;
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    diamond(stream, side, pinned);
    DRV(cu.StreamEndCapture(stream, &graph));
    record(true);
    DRV(CU(GraphExecUpdate_v2)(exec, graph, &info));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(CU(GraphExecUpdate_v2)(exec, graph, &info));
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_diamonds(2);
    DRV(cu.GraphDestroy(graph));
}

static void scenario_graph(void)
{
    CUstream stream, side, third;
    void *pinned;
    uint32_t first;
    DRV(cu.StreamCreate(&third, CU_STREAM_NON_BLOCKING));
    CUgraphExec exec = first_diamond(&stream, &side, &pinned);
    DRV(cu.GraphLaunch(exec, stream)); /* before anybody records */
    record(true);
    for (int i = 0; i < GRAPH_LAUNCHES; i++) { /* nobody waits in between */
        DRV(cu.GraphLaunch(exec, stream));
    }
    record_end();
    check_diamonds(GRAPH_LAUNCHES);
    check_order();
    record(true);
    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphLaunch(exec, i % 2 ? third : stream));
        DRV(cu.CtxSynchronize());
    }
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 9, "in several streams");
    check_wholes(exec, stream);
    check_updates(exec, stream, side, pinned);
    memset(pinned, 0, WORDS * sizeof(uint32_t));
    DRV(cu.MemsetD32_v2(memory, 3, WORDS));
    DRV(cu.CtxSynchronize()); /* the graph's stream does not wait for the memset */
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphExecDestroy(exec)); /* while it runs */
    record_end();
    check_diamonds(1);
    DRV(cu.MemcpyDtoH_v2(&first, memory, sizeof first));
    check_int(first, 7, "what the graph's last node wrote");
    check_int(*(const uint32_t *)pinned, 3, "what it copied before");
}

/* Where the host knows no times of nodes. */
static void scenario_whole(void)
{
    CUstream stream, side;
    void *pinned;
    CUgraphExec exec = first_diamond(&stream, &side, &pinned);
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "a row for the whole");
    check_true(rows.kernel[0].name && strcmp(rows.kernel[0].name, "CUDA graph") == 0, "its name");
    check_wholes(exec, stream);
}

/* Far more nodes than one reply can have. */
static void scenario_chain(void)
{
    CUstream stream;
    CUgraph graph, child, whole;
    CUgraphNode node;
    CUgraphExec exec;
    size_t dropped;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (uint32_t i = 0; i < CHAIN; i++) {
        launch(1, stream);
    }
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    record(true);
    for (uint32_t i = 0; i < CHAIN_LAUNCHES; i++) {
        DRV(cu.GraphLaunch(exec, stream));
    }
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], CHAIN * CHAIN_LAUNCHES,
              "all kernels of a chain");
    check_true(rows.in_order, "they are in order");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "dropped");
    check_int((long long)dropped, 0, "none is dropped");
    DRV(cu.GraphCreate(&whole, 0));
    DRV(cu.GraphCreate(&child, 0));
    DRV(cu.GraphAddChildGraphNode(&node, child, NULL, 0, graph));
    DRV(cu.GraphAddChildGraphNode(&node, whole, NULL, 0, child));
    DRV(cu.GraphAddChildGraphNode(&node, whole, &node, 1, graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, whole, 0));
    record(true);
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    record_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 4 * CHAIN, "of child graphs");
    check_true(rows.in_order, "in order, too");
}

/* ---------------------------------------------------------------- devices, contexts, streams */

static const CUpti_ActivityKind resource_kinds[] = {
    CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};

static void resources(CUptiResult (*by)(CUpti_ActivityKind))
{
    memset(&rows, 0, sizeof rows);
    for (int i = 0; i < 4; i++) {
        check_int(by(resource_kinds[i]), CUPTI_SUCCESS, "enable a kind");
    }
}

static void resources_end(void)
{
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    for (int i = 0; i < 4; i++) {
        check_int(disable(resource_kinds[i]), CUPTI_SUCCESS, "disable a kind");
    }
}

static void check_device(const CUpti_ActivityDevice5 *device)
{
    const struct {
        uint32_t value;
        CUdevice_attribute attribute;
    } some[] = {{device->numMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                {device->computeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                {device->l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
                {device->maxGridDimZ, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
                {device->maxWarpsPerMultiprocessor * device->numThreadsPerWarp,
                 CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR}};
    char name[256];
    CUuuid uuid;
    size_t bytes;
    int value;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        DRV(cu.DeviceGetAttribute(&value, some[i].attribute, (CUdevice)device->id));
        check_int(some[i].value, value, "an attribute of the device");
    }
    DRV(cu.DeviceGetName(name, sizeof name, (CUdevice)device->id));
    DRV(cu.DeviceGetUuid_v2(&uuid, (CUdevice)device->id));
    DRV(cu.DeviceTotalMem_v2(&bytes, (CUdevice)device->id));
    check_true(device->name && strcmp(device->name, name) == 0, "its name");
    check_true(memcmp(&device->uuid, &uuid, sizeof uuid) == 0, "its UUID");
    check_int((long long)device->globalMemorySize, (long long)bytes, "its memory");
    check_int(device->isCudaVisible, 1, "it is visible");
    free((void *)(uintptr_t)device->name); /* as CUPTI says */
}

static void check_stream(uint32_t i, CUcontext of, CUstream stream, uint32_t flag, int priority)
{
    const CUpti_ActivityStream *record = &rows.stream[i];
    uint32_t id;
    check_int(stream_id(of, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(record->streamId, id, "the stream");
    check_int(record->flag, flag, "its kind");
    check_int((int)record->priority, priority, "its priority");
}

/* The records of what comes. */
static void check_new_resources(CUstream streams[2])
{
    CUcontext primary, other;
    CUmodule module;
    int n_devices;
    resources(enable);
    context = driver_begin("e2e_cupti");
    DRV(cu.StreamCreateWithPriority(&streams[0], CU_STREAM_NON_BLOCKING, -1));
    DRV(cu.StreamCreate(&streams[1], 0));
    DRV(cu.CtxCreate_v2(&other, 0, 0));
    DRV(cu.CtxPopCurrent_v2(NULL));
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0)); /* it is there already */
    DRV(cu.Init(0));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    launch(WORDS, streams[0]);
    DRV(cu.CtxSynchronize());
    resources_end();
    DRV(cu.DeviceGetCount(&n_devices));
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE], n_devices, "devices");
    check_device(&rows.device[0]);
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 2, "contexts");
    check_int(rows.context[0].deviceId, 0, "the context's device");
    check_int(rows.context[0].computeApiKind, CUPTI_ACTIVITY_COMPUTE_API_CUDA, "it is CUDA's");
    check_int(rows.context[0].nullStreamId, rows.stream[0].streamId, "its NULL stream");
    check_int(rows.stream[0].contextId, rows.context[0].contextId, "which is in it");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "streams, two of them NULL");
    check_stream(0, context, NULL, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL, 0);
    check_stream(1, context, streams[0], CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING, -1);
    check_stream(2, context, streams[1], CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, 0);
    check_stream(3, other, NULL, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL, 0);
    for (int i = 0; i < 4; i++) {
        check_true(rows.stream[i].correlationId > (i ? rows.stream[i - 1].correlationId : 0) &&
                       rows.stream[i].correlationId < rows.kernel[0].correlationId,
                   "the call that made the stream");
    }
    for (int i = 0; i < 3; i++) {
        check_true(rows.at[resource_kinds[i]] < rows.at[resource_kinds[i + 1]],
                   "devices, contexts and streams come before what is in them");
    }
}

static void scenario_resources(void)
{
    CUstream streams[3];
    CUcontext primary;
    uint32_t id;
    load();
    check_int(register_callbacks(requested, completed), CUPTI_SUCCESS, "register callbacks");
    check_new_resources(streams);
    resources(enable); /* what is there already has no records, */
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0));
    launch(1, CU_STREAM_PER_THREAD); /* but this stream is new */
    launch(1, CU_STREAM_PER_THREAD);
    check_int(stream_id(context, CU_STREAM_PER_THREAD, 0, &id), CUPTI_SUCCESS, "a stream's id");
    DRV(cu.CtxSynchronize());
    resources_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE], 0, "no device is new");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 0, "no context is new");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 1, "the thread's stream is");
    check_int(rows.stream[0].streamId, id, "its id");
    DRV(cu.StreamDestroy_v2(streams[1]));
    resources(enable_and_dump); /* all that is there */
    resources_end();
    check_true(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE] > 0, "devices");
    check_device(&rows.device[0]);
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 2, "contexts");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "streams");
    check_int(rows.stream[0].correlationId, 0, "no call made them now");
    DRV(cu.StreamCreate(&streams[2], 0));
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "nobody wants another");
}

/* ---------------------------------------------------------------- NVTX */

/* What NVTX's headers compile into a program: functions by numbers, which a tool may replace. */
typedef void (*any_fn)(void);

static void nothing(void)
{
}

static any_fn core[16], core2[16];
static any_fn *core_table[16], *core2_table[16];

static int table_of(int module, any_fn ***ret_table, unsigned int *ret_size)
{
    *ret_table = module == 1 ? core_table : core2_table;
    *ret_size = 16;
    return module == 1 || module == 5;
}

static const void *export_table(uint32_t id)
{
    static const struct {
        size_t bytes;
        int (*table_of)(int, any_fn ***, unsigned int *);
    } callbacks = {sizeof callbacks, table_of};
    return id == 1 ? &callbacks : NULL;
}

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static void nvtx_use(const char *path)
{
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(const void *(*)(uint32_t));
    check_true(library != NULL, "the library for NVTX");
    *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    check_true(initialize != NULL, "InitializeInjectionNvtx2");
    for (int i = 0; i < 16; i++) {
        core[i] = core2[i] = nothing;
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    check_int(initialize(export_table), 1, "NVTX is taken over");
    check_int(initialize(NULL), 0, "without a table it is not");
}

static void check_marker(uint32_t i, uint32_t flags, const char *name, const char *domain)
{
    const CUpti_ActivityMarker2 *marker = &nvtx.marker[i];
    check_int(marker->flags, flags, "a marker's flags");
    check_true(name ? marker->name && strcmp(marker->name, name) == 0 : !marker->name, "its name");
    check_true(domain ? marker->domain && strcmp(marker->domain, domain) == 0 : !marker->domain,
               "its domain");
    check_int(marker->objectKind, CUPTI_ACTIVITY_OBJECT_THREAD, "it is of a thread");
    check_int(marker->objectId.threadId, gettid(), "of this one");
    check_true(i == 0 || marker->timestamp >= nvtx.marker[i - 1].timestamp, "its time");
}

#define CALL(function, type) ((type)(function))

static void make_markers(void)
{
    char name[] = "outer";
    const void *(*create)(const char *) = CALL(core2[12], const void *(*)(const char *));
    const void *domain = create("a domain");
    const void *text = CALL(core2[10], const void *(*)(const void *, const char *))(domain, "said");
    const struct attributes at = {.version = 3,
                                  .size = sizeof at,
                                  .category = 5,
                                  .color_type = 1,
                                  .color = 0xff112233,
                                  .payload_type = 5,
                                  .payload = 0xfffffff9, /* -7 of 32 bits */
                                  .message_type = 3,
                                  .message = text};
    check_true(create("a domain") == domain, "one domain of a name");
    check_int(CALL(core[9], int (*)(const char *))(name), 0, "depth of the first range");
    strcpy(name, "other"); /* names are copied */
    check_int(CALL(core[9], int (*)(const char *))("inner"), 1, "depth of the second range");
    check_int(CALL(core2[4], int (*)(const void *, const void *))(domain, &at), 0, "in its domain");
    CALL(core[2], void (*)(const char *))("now");
    check_int(CALL(core[11], int (*)(void))(), 1, "the inner one ends");
    check_int(CALL(core2[5], int (*)(const void *))(domain), 0, "the domain's ends");
    check_true(CALL(core2[5], int (*)(const void *))(domain) < 0, "it has no other");
    check_int(CALL(core[11], int (*)(void))(), 0, "the outer one ends");
    uint64_t id = CALL(core[5], uint64_t(*)(const char *))("started");
    CALL(core[7], void (*)(uint64_t))(id);
}

static void scenario_nvtx(void)
{
    nvtx_use("libcupti.so.13");
    make_markers(); /* nobody wants to know */
    CALL(core[9], int (*)(const char *))("begun before");
    check_int(enable(CUPTI_ACTIVITY_KIND_MARKER), CUPTI_SUCCESS, "enable markers");
    check_int(enable(CUPTI_ACTIVITY_KIND_MARKER_DATA), CUPTI_SUCCESS, "and their data");
    CALL(core[11], int (*)(void))();
    make_markers();
    CALL(core[3], void (*)(const wchar_t *))(L"w\u00ef\u20ac\U0001f600");
    check_int(disable(CUPTI_ACTIVITY_KIND_MARKER), CUPTI_SUCCESS, "disable markers");
    check_true(CALL(core2[13], const void *(*)(const wchar_t *))(L"a domain") ==
                   CALL(core2[12], const void *(*)(const char *))("a domain"),
               "one domain of a name in wide characters");
    make_markers();
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(nvtx.n_markers, 10, "markers");
    check_int(nvtx.n_data, 6, "data");
    check_marker(0, CUPTI_ACTIVITY_FLAG_MARKER_START, "outer", NULL);
    check_marker(1, CUPTI_ACTIVITY_FLAG_MARKER_START, "inner", NULL);
    check_marker(2, CUPTI_ACTIVITY_FLAG_MARKER_START, "said", "a domain");
    check_marker(3, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, "now", NULL);
    check_marker(4, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(5, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, "a domain");
    check_marker(6, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(7, CUPTI_ACTIVITY_FLAG_MARKER_START, "started", NULL);
    check_marker(8, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(9, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS,
                 "w\xc3\xaf\xe2\x82\xac\xf0\x9f\x98\x80", NULL);
    check_int(nvtx.marker[4].id, nvtx.marker[1].id, "a range has one number");
    check_int(nvtx.marker[5].id, nvtx.marker[2].id, "in domains, too");
    check_int(nvtx.marker[6].id, nvtx.marker[0].id, "and the outer one");
    check_int(nvtx.marker[8].id, nvtx.marker[7].id, "and one that is started");
    check_int(nvtx.data[2].id, nvtx.marker[2].id, "data of a range");
    check_int(nvtx.data[2].category, 5, "its category");
    check_int(nvtx.data[2].color, 0xff112233, "its colour");
    check_int(nvtx.data[2].flags, CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB, "which is one");
    check_int(nvtx.data[2].payloadKind, CUPTI_METRIC_VALUE_KIND_INT64, "its payload's kind");
    check_int((long long)nvtx.data[2].payload, -7, "its payload");
    check_int(nvtx.data[0].flags, CUPTI_ACTIVITY_FLAG_MARKER_COLOR_NONE, "no colour");
}

/* A program that has NVTX and no profiler: its ranges are for `weir profile`. */
static void scenario_ranges(void)
{
    CUmodule module;
    nvtx_use(getenv("NVTX_INJECTION64_PATH")); /* perhaps before cuInit */
    context = driver_begin("e2e_cupti");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    make_markers();
    CALL(core[9], int (*)(const char *))("with \"work\"");
    launch(WORDS, NULL);
    DRV(cu.CtxSynchronize());
    CALL(core[11], int (*)(void))();
}

static void scenario_many(uint32_t n)
{
    size_t dropped;
    record(true);
    for (uint32_t i = 0; i < n; i++) {
        launch(1, NULL);
    }
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], n, "all kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DRIVER], n + 1, "all calls");
    check_true(rows.in_order, "kernels are in order");
    gives_buffers = false;
    record(true);
    launch(1, NULL);
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush without buffers");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "dropped");
    check_int((long long)dropped, 4, "two calls, a wait and a kernel are dropped");
}

static struct {
    uint32_t n[2];
    uint32_t ids[2];
    uint32_t grid;
    CUfunction function;
    uint64_t scratch;
    int result;
    uint32_t n_contexts;
    CUcontext context;
} seen;

static void called_back(void *user, CUpti_CallbackDomain domain, uint32_t id, const void *at)
{
    const CUpti_CallbackData *data = at;
    const struct {
        CUfunction f;
        unsigned int gridDimX;
    } *params = data->functionParams;
    const char *name;
    check_true(user == &seen, "the subscriber's data");
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
        seen.n_contexts++;
        seen.context = ((const CUpti_ResourceData *)at)->context;
    }
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id != LAUNCH_ID) {
        return;
    }
    check_int(callback_name(domain, id, &name), CUPTI_SUCCESS, "a callback's name");
    check_true(strcmp(name, "cuLaunchKernel") == 0, "it is the launch");
    seen.n[data->callbackSite]++;
    seen.ids[data->callbackSite] = data->correlationId;
    seen.grid = params->gridDimX;
    seen.function = params->f;
    if (data->callbackSite == CUPTI_API_ENTER) {
        *data->correlationData = 4711;
    } else {
        seen.scratch = *data->correlationData;
        memcpy(&seen.result, data->functionReturnValue, sizeof seen.result);
    }
}

static void scenario_callbacks(void)
{
    CUpti_SubscriberHandle handle, other;
    CUcontext primary, made;
    seen.result = -1;
    check_int(subscribe(&handle, called_back, &seen), CUPTI_SUCCESS, "subscribe");
    check_int(subscribe(&other, called_back, NULL), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
              "a second subscriber");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 0, "nothing is enabled");
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS, "enable");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 1, "entries");
    check_int(seen.n[CUPTI_API_EXIT], 1, "exits");
    check_true(seen.ids[0] != 0 && seen.ids[0] == seen.ids[1], "one correlation id");
    check_int(seen.grid, (WORDS + 127) / 128, "an argument");
    check_true(seen.function == mix, "another one");
    check_int((long long)seen.scratch, 4711, "what the entry left for the exit");
    check_int(seen.result, CUDA_SUCCESS, "the result");
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_RESOURCE), CUPTI_SUCCESS, "resources");
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0));
    check_int(seen.n_contexts, 0, "it is there already");
    DRV(cu.CtxCreate_v2(&made, 0, 0));
    check_int(seen.n_contexts, 1, "a context is made");
    check_true(seen.context == made, "which one");
    DRV(cu.CtxDestroy_v2(made));
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_NVTX), CUPTI_ERROR_NOT_SUPPORTED, "NVTX");
    check_int(unsubscribe(handle), CUPTI_SUCCESS, "unsubscribe");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 1, "nobody subscribes");
}

#define PAUSE 2400000000u /* ticks: 1.2 s; after a second the host does not record any more */

static void scenario_twice(void)
{
    for (int round = 0; round < 2; round++) {
        record(true);
        launch(WORDS, NULL);
        DRV(cu.CtxSynchronize());
        record(false);
        uint64_t end = own_clock() + PAUSE;
        do {
            launch(WORDS, NULL);
            DRV(cu.CtxSynchronize());
        } while (own_clock() < end);
        check_int(flush_all(0), CUPTI_SUCCESS, "flush");
        check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "kernels of this round");
    }
}

static void scenario_tenant(uint32_t n)
{
    record(true);
    printf("ready\n");
    fflush(stdout);
    for (uint32_t i = 0; i < n; i++) {
        launch(n, NULL); /* the grid names the tenant */
    }
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], n, "own kernels");
    check_true(rows.in_order, "kernels are in order");
    for (uint32_t i = 0; i < KERNELS_KEPT && i < n; i++) {
        check_int(rows.kernel[i].gridX, (n + 127) / 128, "no other tenant's kernel");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 0;
    if (strcmp(what, "ranges") == 0) {
        scenario_ranges();
        return driver_end();
    }
    if (strcmp(what, "resources") == 0) {
        scenario_resources();
        return driver_end();
    }
    another.arguments = argc > 3 ? argv + 2 : NULL;
    begin();
    if (strcmp(what, "rows") == 0) {
        scenario_rows();
    } else if (strcmp(what, "graph") == 0) {
        scenario_graph();
        scenario_chain();
    } else if (strcmp(what, "whole") == 0) {
        scenario_whole();
    } else if (strcmp(what, "nvtx") == 0) {
        scenario_nvtx();
    } else if (strcmp(what, "many") == 0) {
        scenario_many(n);
    } else if (strcmp(what, "callbacks") == 0) {
        scenario_callbacks();
    } else if (strcmp(what, "twice") == 0) {
        scenario_twice();
    } else if (strcmp(what, "tenant") == 0) {
        scenario_tenant(n);
    } else if (strcmp(what, "refused") == 0) {
        check_int(refused(), CUPTI_ERROR_NOT_SUPPORTED, "counters");
        check_int(enable((CUpti_ActivityKind)30), CUPTI_ERROR_NOT_SUPPORTED, "sampling");
        check_int(enable(CUPTI_ACTIVITY_KIND_MEMCPY2), CUPTI_SUCCESS, "what is there as MEMCPY");
    } else {
        fprintf(stderr, "usage: as e2e_cupti.c says\n");
        return 2;
    }
    return driver_end();
}
