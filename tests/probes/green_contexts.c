/*
 * Can a green context hold a tenant's original kernels to a part of the SMs, within the one context
 * that all tenants share?
 *
 *     green_contexts [--brief] [QUESTION ...]     on the libcuda.so.1 that the loader finds
 *
 * A worker makes streams in a green context of some SMs (cuGreenCtxStreamCreate) and changes
 * nothing else: modules, memory and events are the primary context's
 * (host_backend/worker/device/part.h). Each question is something that must then hold, or that it
 * costs. Nothing is asserted: what the driver does is printed, a line an answer, with the CUresult
 * where a call failed.
 *
 * Which SMs a kernel ran on it says itself: each of its blocks leaves a mark for its %smid.
 *
 * --brief has its kernels take a thousandth of the time, for softgpu, whose times in a part say
 * nothing of a GPU's.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS    256u
#define WAVES      8u
#define SMS_MAX    1024u
#define ROUNDS     20000u /* some milliseconds of a kernel on an H200 */
#define ROUNDS_FEW 20u    /* softgpu takes as long for these */
#define TURNS      500
#define BYTES      (256u << 20)
#define BEST_OF    5
#define LAUNCHES   2000

#define PROGRAM "green_contexts"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetName)                                                                             \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDriverGetVersion)                                                                          \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuCtxGetStreamPriorityRange)                                                                 \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                 \
    F(cuLaunchKernel)                                                                              \
    F(cuLaunchCooperativeKernel)                                                                   \
    F(cuStreamCreateWithPriority)                                                                  \
    F(cuStreamDestroy_v2)                                                                          \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamQuery)                                                                               \
    F(cuStreamGetPriority)                                                                         \
    F(cuStreamSetAttribute)                                                                        \
    F(cuStreamGetCtx)                                                                              \
    F(cuStreamWaitEvent)                                                                           \
    F(cuStreamWaitValue32_v2)                                                                      \
    F(cuStreamWriteValue32_v2)                                                                     \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphExecDestroy)                                                                          \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphLaunch)                                                                               \
    F(cuEventCreate)                                                                               \
    F(cuEventRecord)                                                                               \
    F(cuEventSynchronize)                                                                          \
    F(cuEventElapsedTime)                                                                          \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemAllocAsync)                                                                             \
    F(cuMemFreeAsync)                                                                              \
    F(cuMemGetInfo_v2)                                                                             \
    F(cuMemsetD8Async)                                                                             \
    F(cuMemsetD32_v2)                                                                              \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemcpyDtoDAsync_v2)

/* Not every driver has these. */
#define OPTIONAL_FUNCTIONS(F)                                                                      \
    F(cuDeviceGetDevResource)                                                                      \
    F(cuDevSmResourceSplitByCount)                                                                 \
    F(cuDevResourceGenerateDesc)                                                                   \
    F(cuGreenCtxCreate)                                                                            \
    F(cuGreenCtxDestroy)                                                                           \
    F(cuGreenCtxStreamCreate)

#include "tests/bench/cu.h"

/* where: counts to `rounds`, which each block then leaves in marks[%smid]. */
static const char text[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                           ".visible .entry where(.param .u64 marks, .param .u32 rounds)\n{\n"
                           "    .reg .pred %q<3>;\n    .reg .b32 %r<4>;\n    .reg .b64 %d<4>;\n"
                           "    ld.param.u64 %d0, [marks];\n    ld.param.u32 %r0, [rounds];\n"
                           "    mov.u32 %r1, 0;\n"
                           "again:\n"
                           "    add.u32 %r1, %r1, 1;\n    setp.lt.u32 %q0, %r1, %r0;\n"
                           "    @%q0 bra again;\n"
                           "    mov.u32 %r2, %tid.x;\n    setp.ne.u32 %q1, %r2, 0;\n"
                           "    @%q1 bra done;\n"
                           "    cvta.to.global.u64 %d1, %d0;\n    mov.u32 %r3, %smid;\n"
                           "    mul.wide.u32 %d2, %r3, 4;\n    add.s64 %d3, %d1, %d2;\n"
                           "    st.global.u32 [%d3], %r1;\n"
                           "done:\n    ret;\n}\n";

static struct {
    bool brief;
    CUdevice device;
    CUcontext context;
    CUfunction where;
    unsigned sms, per_sm, rounds;
    int least, greatest; /* stream priorities */
    CUstream plain, other;
    CUevent begin, end, hop;
    CUdeviceptr marks, from, to;
    CUdevResource all;
} b;

/* A partition, and a stream in it. */
struct part {
    CUgreenCtx green;
    unsigned sms;
    CUstream stream;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---------------------------------------------------------------- partitions */

/* The first group of at least `wanted` SMs that the driver makes. */
static CUresult split(unsigned wanted, unsigned flags, CUdevResource *ret_group)
{
    CUdevResource rest;
    unsigned groups = 1;

    return cu.cuDevSmResourceSplitByCount(ret_group, &groups, &b.all, &rest, flags, wanted);
}

static CUresult make_green(unsigned wanted, unsigned flags, struct part *part)
{
    CUdevResource group;
    CUdevResourceDesc desc;
    CUresult result = split(wanted, flags, &group);

    if (result != CUDA_SUCCESS) {
        return result;
    }
    part->sms = group.sm.smCount;
    result = cu.cuDevResourceGenerateDesc(&desc, &group, 1);
    return result != CUDA_SUCCESS
               ? result
               : cu.cuGreenCtxCreate(&part->green, desc, b.device, CU_GREEN_CTX_DEFAULT_STREAM);
}

static CUresult make_stream(const struct part *part, unsigned flags, int priority, CUstream *ret)
{
    return cu.cuGreenCtxStreamCreate(ret, part->green, flags, priority);
}

static struct part make_part(unsigned wanted)
{
    struct part part = {0};

    CHECK(make_green(wanted, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, &part));
    CHECK(make_stream(&part, CU_STREAM_NON_BLOCKING, 0, &part.stream));
    return part;
}

static void drop_part(struct part *part)
{
    CHECK(cu.cuStreamSynchronize(part->stream));
    CHECK(cu.cuStreamDestroy_v2(part->stream));
    if (part->green) {
        CHECK(cu.cuGreenCtxDestroy(part->green));
    }
}

/* ---------------------------------------------------------------- kernels */

static void clear_marks(void)
{
    CHECK(cu.cuCtxSynchronize());
    CHECK(cu.cuMemsetD32_v2(b.marks, 0, SMS_MAX));
}

static unsigned count_marks(void)
{
    static unsigned marks[SMS_MAX];
    unsigned n = 0;

    CHECK(cu.cuCtxSynchronize());
    CHECK(cu.cuMemcpyDtoH_v2(marks, b.marks, sizeof marks));
    for (unsigned i = 0; i < SMS_MAX; i++) {
        n += marks[i] != 0;
    }
    return n;
}

static void launch(CUstream stream, unsigned blocks, unsigned rounds)
{
    void *params[] = {&b.marks, &rounds};

    CHECK(cu.cuLaunchKernel(b.where, blocks, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

/* Milliseconds of a kernel of WAVES waves of the whole GPU, the shortest of some. */
static double time_of(CUstream stream)
{
    double best = 1e9;

    for (int i = 0; i < BEST_OF; i++) {
        float ms = 0;

        CHECK(cu.cuEventRecord(b.begin, stream));
        launch(stream, b.sms * b.per_sm * WAVES, b.rounds);
        CHECK(cu.cuEventRecord(b.end, stream));
        CHECK(cu.cuEventSynchronize(b.end));
        CHECK(cu.cuEventElapsedTime(&ms, b.begin, b.end));
        best = (double)ms < best ? (double)ms : best;
    }
    return best;
}

static unsigned sms_of(CUstream stream)
{
    clear_marks();
    launch(stream, b.sms * b.per_sm * WAVES, b.rounds / 10 + 1);
    return count_marks();
}

/* ---------------------------------------------------------------- questions */

static void sizes(void)
{
    static const unsigned percent[] = {1, 5, 10, 25, 33, 50, 66, 75, 90, 99};

    printf("SMs %u, least partition %u, alignment %u\n", b.all.sm.smCount,
           b.all.sm.minSmPartitionSize, b.all.sm.smCoscheduledAlignment);
    for (size_t i = 0; i < sizeof percent / sizeof percent[0]; i++) {
        unsigned wanted = b.sms * percent[i] / 100;

        for (unsigned flags = 0; flags < 2; flags++) {
            CUdevResource group;
            CUresult result = split(wanted > 0 ? wanted : 1, flags, &group);

            printf("%2u %% = %3u SMs, flags %u: result %d, gets %u\n", percent[i], wanted, flags,
                   (int)result, result == CUDA_SUCCESS ? group.sm.smCount : 0);
        }
    }
}

static void creation(void)
{
    size_t before, after, total;
    struct part part[8] = {{0}};
    CUstream streams[16];
    double start, made, filled;

    CHECK(cu.cuMemGetInfo_v2(&before, &total));
    start = now_ms();
    for (int i = 0; i < 8; i++) {
        CHECK(make_green(b.sms / 2, 0, &part[i]));
    }
    made = now_ms();
    for (int i = 0; i < 16; i++) {
        CHECK(make_stream(&part[0], CU_STREAM_NON_BLOCKING, 0, &streams[i]));
    }
    filled = now_ms();
    CHECK(cu.cuMemGetInfo_v2(&after, &total));
    printf("a green context takes %.3f ms and %.2f MiB, a stream in it %.1f us\n",
           (made - start) / 8, ((double)before - (double)after) / 8 / (1 << 20),
           (filled - made) * 1e3 / 16);
    for (int i = 0; i < 16; i++) {
        CHECK(cu.cuStreamDestroy_v2(streams[i]));
    }
    start = now_ms();
    for (int i = 0; i < 8 && part[i].green; i++) {
        CHECK(cu.cuGreenCtxDestroy(part[i].green));
    }
    printf("destroying one takes %.3f ms\n", (now_ms() - start) / 8);
}

static void placement(void)
{
    static const unsigned percent[] = {10, 25, 50, 75};
    double all_ms = time_of(b.plain);

    printf("plain stream: %u SMs, %.3f ms\n", sms_of(b.plain), all_ms);
    for (size_t i = 0; i < sizeof percent / sizeof percent[0]; i++) {
        struct part part = make_part(b.sms * percent[i] / 100);
        double ms = time_of(part.stream);

        printf("%u %%: %u SMs given, %u seen, %.3f ms = %.3f of all SMs' speed, %.3f expected\n",
               percent[i], part.sms, sms_of(part.stream), ms, all_ms / ms,
               (double)part.sms / b.sms);
        drop_part(&part);
    }
}

static void stream_properties(void)
{
    struct part part = make_part(b.sms / 2);
    CUlaunchAttributeValue value;
    CUcontext context = NULL;
    CUstream stream = NULL;
    CUresult result;
    int priority = 99;

    result = make_stream(&part, 0, 0, &stream);
    printf("a blocking stream: result %d\n", (int)result);
    if (result == CUDA_SUCCESS) {
        CHECK(cu.cuStreamDestroy_v2(stream));
    }
    CHECK(make_stream(&part, CU_STREAM_NON_BLOCKING, b.greatest, &stream));
    CHECK(cu.cuStreamGetPriority(stream, &priority));
    printf("made with priority %d, says %d\n", b.greatest, priority);
    memset(&value, 0, sizeof value);
    value.priority = b.least;
    result = cu.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    CHECK(cu.cuStreamGetPriority(stream, &priority));
    printf("told priority %d: result %d, says %d\n", b.least, (int)result, priority);
    result = cu.cuStreamGetCtx(stream, &context);
    printf("cuStreamGetCtx: result %d, %s\n", (int)result,
           context == b.context ? "the primary context" : "another context");
    CHECK(cu.cuStreamDestroy_v2(stream));
    drop_part(&part);
}

/* Events, values and memory of the primary context, in a stream of the partition. */
static void stream_work(void)
{
    struct part part = make_part(b.sms / 2);
    CUdeviceptr memory = 0;
    float ms = 0;

    CHECK(cu.cuEventRecord(b.begin, b.plain));
    printf("waits for another's event: result %d\n",
           (int)cu.cuStreamWaitEvent(part.stream, b.begin, 0));
    launch(part.stream, b.sms, 1);
    printf("records an event: result %d\n", (int)cu.cuEventRecord(b.end, part.stream));
    printf("another waits for it: result %d\n", (int)cu.cuStreamWaitEvent(b.plain, b.end, 0));
    CHECK(cu.cuStreamSynchronize(b.plain));
    printf("time between the two: result %d\n", (int)cu.cuEventElapsedTime(&ms, b.begin, b.end));
    printf("writes a value: result %d\n",
           (int)cu.cuStreamWriteValue32_v2(part.stream, b.marks, 7, 0));
    printf("waits for one: result %d\n",
           (int)cu.cuStreamWaitValue32_v2(part.stream, b.marks, 7, CU_STREAM_WAIT_VALUE_EQ));
    printf("allocates: result %d\n", (int)cu.cuMemAllocAsync(&memory, 1 << 20, part.stream));
    printf("sets: result %d\n", (int)cu.cuMemsetD8Async(memory, 1, 1 << 20, part.stream));
    printf("frees: result %d\n", (int)cu.cuMemFreeAsync(memory, part.stream));
    printf("all of it ends: result %d\n", (int)cu.cuStreamSynchronize(part.stream));
    drop_part(&part);
}

static double gb_per_s(CUstream stream, bool copy)
{
    float ms = 0;

    CHECK(cu.cuEventRecord(b.begin, stream));
    for (int i = 0; i < 4; i++) {
        CHECK(copy ? cu.cuMemcpyDtoDAsync_v2(b.to, b.from, BYTES, stream)
                   : cu.cuMemsetD8Async(b.to, 3, BYTES, stream));
    }
    CHECK(cu.cuEventRecord(b.end, stream));
    CHECK(cu.cuEventSynchronize(b.end));
    CHECK(cu.cuEventElapsedTime(&ms, b.begin, b.end));
    return 4.0 * BYTES / 1e6 / (double)ms;
}

/* Are copies and memsets, which are kernels of the driver, held to the partition, too? */
static void memory_speed(void)
{
    struct part part = make_part(b.sms / 4);

    (void)gb_per_s(b.plain, true);
    printf("copies on the device: plain %.0f GB/s, on a quarter of the SMs %.0f\n",
           gb_per_s(b.plain, true), gb_per_s(part.stream, true));
    printf("memsets: plain %.0f GB/s, on a quarter of the SMs %.0f\n", gb_per_s(b.plain, false),
           gb_per_s(part.stream, false));
    drop_part(&part);
}

static void graph_of(CUstream captured, CUstream launched, const char *what)
{
    CUgraphExec exec;
    CUgraph graph;
    CUresult result;

    CHECK(cu.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(captured, b.sms * b.per_sm * WAVES, b.rounds / 10 + 1);
    result = cu.cuStreamEndCapture(captured, &graph);
    if (result != CUDA_SUCCESS) {
        printf("%s: capture gives %d\n", what, (int)result);
        return;
    }
    CHECK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    clear_marks();
    result = cu.cuGraphLaunch(exec, launched);
    printf("%s: result %d, ran on %u SMs\n", what, (int)result, count_marks());
    CHECK(cu.cuGraphExecDestroy(exec));
    CHECK(cu.cuGraphDestroy(graph));
}

static void graphs(void)
{
    struct part part = make_part(b.sms / 2);

    printf("the partition has %u SMs\n", part.sms);
    graph_of(b.plain, b.plain, "captured plain, launched plain");
    graph_of(part.stream, part.stream, "captured there, launched there");
    graph_of(b.plain, part.stream, "captured plain, launched there");
    graph_of(part.stream, b.plain, "captured there, launched plain");
    drop_part(&part);
}

/* A guest counts on all of the SMs that the device is said to have. */
static void cooperative(void)
{
    struct part part = make_part(b.sms / 2);
    unsigned rounds = 1;
    void *params[] = {&b.marks, &rounds};
    const unsigned sms[] = {part.sms, b.sms};

    for (int i = 0; i < 2; i++) {
        CUresult result = cu.cuLaunchCooperativeKernel(b.where, sms[i] * b.per_sm, 1, 1, THREADS, 1,
                                                       1, 0, part.stream, params);

        printf("cooperative, as many blocks as %u SMs hold: result %d, then %d\n", sms[i],
               (int)result, (int)cu.cuStreamSynchronize(part.stream));
    }
    drop_part(&part);
}

/* Does waiting for the context wait for the partition? */
static void waiting(void)
{
    struct part part = make_part(b.sms / 2);

    launch(part.stream, b.sms * b.per_sm * WAVES * 8, b.rounds);
    double start = now_ms();

    CHECK(cu.cuCtxSynchronize());
    printf("cuCtxSynchronize returns after %.2f ms, and the stream then says %d\n",
           now_ms() - start, (int)cu.cuStreamQuery(part.stream));
    drop_part(&part);
}

static double us_per_launch(CUstream stream)
{
    CHECK(cu.cuCtxSynchronize());
    double start = now_ms();

    for (int i = 0; i < LAUNCHES; i++) {
        launch(stream, 1, 1);
    }
    CHECK(cu.cuStreamSynchronize(stream));
    return (now_ms() - start) * 1e3 / LAUNCHES;
}

/* Small kernels, each behind the other's event. */
static double us_per_hop(CUstream one, CUstream two)
{
    CHECK(cu.cuCtxSynchronize());
    double start = now_ms();

    for (int i = 0; i < TURNS; i++) {
        launch(one, 1, 1);
        CHECK(cu.cuEventRecord(b.hop, one));
        CHECK(cu.cuStreamWaitEvent(two, b.hop, 0));
        launch(two, 1, 1);
        CHECK(cu.cuEventRecord(b.hop, two));
        CHECK(cu.cuStreamWaitEvent(one, b.hop, 0));
    }
    CHECK(cu.cuCtxSynchronize());
    return (now_ms() - start) * 1e3 / (2 * TURNS);
}

static void cost(void)
{
    struct part part = make_part(b.sms / 2), next = make_part(b.sms / 4);

    (void)us_per_launch(b.plain);
    printf("a launch of nothing: plain %.2f us, there %.2f us\n", us_per_launch(b.plain),
           us_per_launch(part.stream));
    (void)us_per_hop(b.plain, b.other);
    printf("from stream to stream: plain to plain %.2f us, plain to there %.2f us, "
           "there to another partition %.2f us\n",
           us_per_hop(b.plain, b.other), us_per_hop(b.plain, part.stream),
           us_per_hop(part.stream, next.stream));
    drop_part(&part);
    drop_part(&next);
}

/* A kernel there while a plain stream always has more: both at half speed, or one for the other? */
static void beside(void)
{
    struct part part = make_part(b.sms / 2), twin = make_part(b.sms / 2);
    double alone = time_of(part.stream), all = time_of(b.plain), start, there, both;

    for (int i = 0; i < BEST_OF * 4; i++) {
        launch(b.plain, b.sms * b.per_sm * WAVES, b.rounds);
    }
    there = time_of(part.stream);
    CHECK(cu.cuCtxSynchronize());
    printf("half of the SMs: alone %.3f ms, beside a plain stream's kernels %.3f ms "
           "(those take %.3f ms each, alone)\n",
           alone, there, all);
    start = now_ms();
    for (int i = 0; i < 4; i++) {
        launch(part.stream, b.sms * b.per_sm * WAVES, b.rounds);
        launch(twin.stream, b.sms * b.per_sm * WAVES, b.rounds);
    }
    CHECK(cu.cuCtxSynchronize());
    both = (now_ms() - start) / 4;
    printf("two partitions that were asked for alike: %.3f ms for one kernel of each "
           "(%.3f: they share SMs; %.3f: they do not)\n",
           both, 2 * alone, alone);
    drop_part(&part);
    drop_part(&twin);
}

static const struct {
    const char *name;
    void (*ask)(void);
} questions[] = {{"sizes", sizes},         {"creation", creation},
                 {"placement", placement}, {"properties", stream_properties},
                 {"work", stream_work},    {"memory", memory_speed},
                 {"graphs", graphs},       {"cooperative", cooperative},
                 {"waiting", waiting},     {"cost", cost},
                 {"beside", beside}};

/* ---------------------------------------------------------------- begin */

static void open_device(void)
{
    int sms = 0, per_sm = 0, version = 0;
    CUresult result;
    char name[96] = "";
    CUmodule module;

    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&b.device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&b.context, b.device));
    CHECK(cu.cuCtxSetCurrent(b.context));
    CHECK(cu.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, b.device));
    CHECK(cu.cuDeviceGetName(name, sizeof name, b.device));
    CHECK(cu.cuDriverGetVersion(&version));
    CHECK(cu.cuModuleLoadData(&module, text));
    CHECK(cu.cuModuleGetFunction(&b.where, module, "where"));
    CHECK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, b.where, THREADS, 0));
    CHECK(cu.cuCtxGetStreamPriorityRange(&b.least, &b.greatest));
    b.sms = (unsigned)sms;
    b.rounds = b.brief ? ROUNDS_FEW : ROUNDS;
    b.per_sm = per_sm > 0 ? (unsigned)per_sm : 1;
    CHECK(cu.cuStreamCreateWithPriority(&b.plain, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cu.cuStreamCreateWithPriority(&b.other, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cu.cuEventCreate(&b.begin, 0));
    CHECK(cu.cuEventCreate(&b.end, 0));
    CHECK(cu.cuEventCreate(&b.hop, CU_EVENT_DISABLE_TIMING));
    CHECK(cu.cuMemAlloc_v2(&b.marks, SMS_MAX * sizeof(unsigned)));
    CHECK(cu.cuMemAlloc_v2(&b.from, BYTES));
    CHECK(cu.cuMemAlloc_v2(&b.to, BYTES));
    result = cu.cuDeviceGetDevResource(b.device, &b.all, CU_DEV_RESOURCE_TYPE_SM);
    printf("%s, driver %d\n", name, version);
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "green_contexts: cuDeviceGetDevResource gave %d\n", (int)result);
        exit(EXIT_NONE);
    }
}

static bool is_asked(int argc, char **argv, const char *name)
{
    bool any = false, named = false;

    for (int i = 1; i < argc; i++) {
        any |= argv[i][0] != '-';
        named |= strcmp(argv[i], name) == 0;
    }
    return named || !any;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        b.brief |= strcmp(argv[i], "--brief") == 0;
    }
    if (!load_driver()) {
        fprintf(stderr, "green_contexts: this driver has none\n");
        exit(EXIT_NONE);
    }
    open_device();
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        if (is_asked(argc, argv, questions[i].name)) {
            printf("== %s\n", questions[i].name);
            questions[i].ask();
        }
    }
    CHECK(cu.cuMemFree_v2(b.from));
    CHECK(cu.cuMemFree_v2(b.to));
    return 0;
}
