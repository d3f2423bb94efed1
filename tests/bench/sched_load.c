/*
 * A tenant's load, of kernels that take a given time: what the scheduler's measurements and tests
 * run.
 *
 *     sched_load calibrate --us T                rounds of a block so that a kernel takes T, alone
 *     sched_load loop --rounds R ...             one kernel behind the other until the time is over
 *     sched_load pulse --rounds R --gap-us G ... one kernel, wait for it, a pause, again
 *     sched_load copy --bytes N --way h2d|d2h    copies, one behind the other: pinned, or
 * --pageable sched_load tasks --rounds R TASK...        copies and kernels of applications, when
 * told
 *
 * A kernel has --waves times as many blocks as the GPU holds; a block counts to R and touches no
 * memory, so the GPU's time is the same whoever else uses its caches. It is PTX with a plain grid:
 * a host that makes twins can stop it between blocks. With --waves 1 nothing waits and nothing can
 * be stopped. With --graph N loop and pulse launch a graph of N such kernels, one behind the other,
 * in place of a kernel; what is said of kernels below then holds for graphs.
 *
 * Kernels that have finished are counted with an event every --batch launches, so that at most
 * --depth of those batches are in the queue. Prints
 *
 *     ready                                         then waits for a line on stdin with --wait
 *     graph of N kernels instantiated in T us       before that, with --graph
 *     slot MILLISECONDS KERNELS                     every --slot-ms: finished since the last one
 *     latency us p50 P p99 P max M mean A n N       pulse
 *     total KERNELS SECONDS rounds R blocks B
 *
 * A TASK is TO:KERNELS:FROM, bytes to the device, kernels of R rounds, bytes back (no more than
 * TO); each has a stream. A line on stdin names a time in milliseconds and tasks, which are given
 * to their streams one after the other from then on ("1234.5 2 0 1"); "done BEGIN END" says when
 * the first was begun and the last had ended, and that the bytes came back.
 *
 * Times are of CLOCK_MONOTONIC since boot, so lines of several processes can be put side by side.
 * Loads libcuda.so.1 by name: the environment decides what is measured.
 */
#include "tests/bench/timing.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "sched_load"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxGetStreamPriorityRange)                                                                 \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                 \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreateWithPriority)                                                                  \
    F(cuStreamSynchronize)                                                                         \
    F(cuEventCreate)                                                                               \
    F(cuEventRecord)                                                                               \
    F(cuEventSynchronize)                                                                          \
    F(cuEventElapsedTime)                                                                          \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphLaunch)                                                                               \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemcpyHtoDAsync_v2)                                                                        \
    F(cuMemcpyDtoHAsync_v2)

#include "tests/bench/cu.h"

#define THREADS   256u
#define DEPTH_MAX 64

static const char ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                          ".visible .entry spin(.param .u64 p, .param .u32 rounds)\n{\n"
                          "    .reg .pred %q<3>;\n    .reg .b32 %r<6>;\n    .reg .b64 %d<3>;\n"
                          "    ld.param.u64 %d0, [p];\n    ld.param.u32 %r0, [rounds];\n"
                          "    mov.u32 %r1, 0;\n"
                          "again:\n"
                          "    add.u32 %r1, %r1, 1;\n    setp.lt.u32 %q0, %r1, %r0;\n"
                          "    @%q0 bra again;\n"
                          "    mov.u32 %r2, %tid.x;\n    setp.ne.u32 %q1, %r2, 0;\n"
                          "    @%q1 bra done;\n"
                          "    mov.u32 %r3, %ctaid.x;\n    setp.ne.u32 %q2, %r3, 0;\n"
                          "    @%q2 bra done;\n"
                          "    cvta.to.global.u64 %d1, %d0;\n    st.global.u32 [%d1], %r1;\n"
                          "done:\n    ret;\n}\n";

static struct {
    const char *mode, *way;
    double us, seconds, gap_us, slot_ms;
    unsigned rounds, waves, blocks, batch, depth, smem, graph;
    size_t bytes;
    bool wait, high, pageable;
} o = {.way = "h2d",
       .us = 200,
       .seconds = 3,
       .gap_us = 1000,
       .slot_ms = 100,
       .waves = 8,
       .depth = 4,
       .bytes = 16u << 20};

static CUfunction spin;
static CUstream stream;
static CUdeviceptr word;
static CUgraphExec graph; /* NULL without --graph */

static void open_device(void)
{
    int sms = 0, per_sm = 0, least = 0, greatest = 0;
    CUcontext context;
    CUmodule module;
    CUdevice device;

    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK(cu.cuModuleLoadData(&module, ptx));
    CHECK(cu.cuModuleGetFunction(&spin, module, "spin"));
    CHECK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, spin, THREADS, o.smem));
    CHECK(cu.cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, o.high ? greatest : 0));
    CHECK(cu.cuMemAlloc_v2(&word, 4));
    if (o.blocks == 0) {
        o.blocks = (unsigned)(sms * (per_sm > 0 ? per_sm : 1)) * o.waves;
    }
}

static void launch(unsigned rounds)
{
    void *params[] = {&word, &rounds};

    CHECK(cu.cuLaunchKernel(spin, o.blocks, 1, 1, THREADS, 1, 1, o.smem, stream, params, NULL));
}

static void make_graph(void)
{
    CUgraph captured;
    double begin_ms;

    CHECK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned i = 0; i < o.graph; i++) {
        launch(o.rounds);
    }
    CHECK(cu.cuStreamEndCapture(stream, &captured));
    begin_ms = bench_now_ms();
    CHECK(cu.cuGraphInstantiateWithFlags(&graph, captured, 0));
    printf("graph of %u kernels instantiated in %.1f us\n", o.graph,
           (bench_now_ms() - begin_ms) * 1e3);
}

static void launch_one(void)
{
    if (graph) {
        CHECK(cu.cuGraphLaunch(graph, stream));
    } else {
        launch(o.rounds);
    }
}

/* ------------------------------------------------------------ calibrate */

/* Microseconds of one kernel, the shortest of a few batches. */
static double time_of(unsigned rounds)
{
    CUevent begin, end;
    double best = 1e12;

    CHECK(cu.cuEventCreate(&begin, 0));
    CHECK(cu.cuEventCreate(&end, 0));
    launch(rounds);
    for (int i = 0; i < 5; i++) {
        float ms = 0;

        CHECK(cu.cuEventRecord(begin, stream));
        for (int k = 0; k < 4; k++) {
            launch(rounds);
        }
        CHECK(cu.cuEventRecord(end, stream));
        CHECK(cu.cuEventSynchronize(end));
        CHECK(cu.cuEventElapsedTime(&ms, begin, end));
        best = (double)ms * 250 < best ? (double)ms * 250 : best;
    }
    return best;
}

static void calibrate(void)
{
    double rounds = 64;
    double took = time_of((unsigned)rounds);

    for (int i = 0; i < 12 && (took < o.us * 0.98 || took > o.us * 1.02); i++) {
        double factor = o.us / took;

        rounds *= factor > 16 ? 16 : factor < 1.0 / 16 ? 1.0 / 16 : factor;
        rounds = rounds < 1 ? 1 : rounds;
        took = time_of((unsigned)rounds);
    }
    printf("rounds %u us %.2f blocks %u\n", (unsigned)rounds, took, o.blocks);
}

/* ------------------------------------------------------------ counting */

static struct {
    double next_ms, begin_ms;
    unsigned long slot, total;
} count;

static void counted(unsigned kernels)
{
    double ms = bench_now_ms();

    for (; ms >= count.next_ms; count.next_ms += o.slot_ms) {
        printf("slot %.1f %lu\n", count.next_ms, count.slot);
        count.slot = 0;
    }
    count.slot += kernels;
    count.total += kernels;
}

static void begin(void)
{
    char line[16];

    launch(1); /* its code is loaded */
    CHECK(cu.cuStreamSynchronize(stream));
    if (o.graph != 0) {
        make_graph();
    }
    printf("ready\n");
    if (o.wait && !fgets(line, sizeof line, stdin)) {
        exit(0);
    }
    count.begin_ms = bench_now_ms();
    count.next_ms = count.begin_ms + o.slot_ms;
}

static void end(void)
{
    printf("total %lu %.4f rounds %u blocks %u\n", count.total,
           (bench_now_ms() - count.begin_ms) * 1e-3, o.rounds, o.blocks);
}

/* ------------------------------------------------------------ loop, copy */

static void batch_of_copies(void *host, CUdeviceptr device)
{
    for (unsigned i = 0; i < o.batch; i++) {
        CHECK(strcmp(o.way, "h2d") == 0 ? cu.cuMemcpyHtoDAsync_v2(device, host, o.bytes, stream)
                                        : cu.cuMemcpyDtoHAsync_v2(host, device, o.bytes, stream));
    }
}

static void loop(bool copies)
{
    CUevent events[DEPTH_MAX];
    CUdeviceptr device = 0;
    void *host = NULL;
    unsigned first = 0, n = 0;
    double end_ms;

    if (copies) {
        CHECK(cu.cuMemAlloc_v2(&device, o.bytes));
        host = o.pageable ? calloc(1, o.bytes) : NULL;
        if (!host) {
            CHECK(cu.cuMemHostAlloc(&host, o.bytes, 0));
        }
    }
    for (unsigned i = 0; i < o.depth; i++) {
        CHECK(cu.cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    begin();
    end_ms = count.begin_ms + o.seconds * 1e3;
    while (n != 0 || bench_now_ms() < end_ms) {
        if (n < o.depth && bench_now_ms() < end_ms) {
            if (copies) {
                batch_of_copies(host, device);
            }
            for (unsigned i = 0; i < o.batch && !copies; i++) {
                launch_one();
            }
            CHECK(cu.cuEventRecord(events[(first + n++) % o.depth], stream));
            continue;
        }
        CHECK(cu.cuEventSynchronize(events[first]));
        counted(o.batch);
        first = (first + 1) % o.depth;
        n--;
    }
    end();
}

/* ------------------------------------------------------------ pulse */

static void pulse(void)
{
    double end_ms;

    begin();
    end_ms = count.begin_ms + o.seconds * 1e3;
    while (bench_now_ms() < end_ms) {
        double start_ms = bench_now_ms();

        launch_one();
        CHECK(cu.cuStreamSynchronize(stream));
        bench_latency_add((bench_now_ms() - start_ms) * 1e3);
        counted(1);
        bench_pause_us(o.gap_us);
    }
    end();
    bench_latency_print();
}

/* ------------------------------------------------------------ tasks */

#define TASKS_MAX 16

static struct task {
    size_t to_bytes, from_bytes;
    unsigned kernels;
    CUstream stream;
    CUdeviceptr device;
    uint32_t *sent, *received; /* pinned */
} tasks[TASKS_MAX];

static unsigned n_tasks;

static void add_task(const char *text)
{
    struct task *task = &tasks[n_tasks];
    char rest;

    if (n_tasks == TASKS_MAX ||
        sscanf(text, "%zu:%u:%zu%c", &task->to_bytes, &task->kernels, &task->from_bytes, &rest) !=
            3 ||
        task->from_bytes < 4 || task->from_bytes > task->to_bytes) {
        fprintf(stderr, "sched_load: not a task, or too many: %s\n", text);
        exit(2);
    }
    n_tasks++;
}

static void prepare_task(struct task *task)
{
    CHECK(cu.cuStreamCreateWithPriority(&task->stream, CU_STREAM_NON_BLOCKING, 0));
    CHECK(cu.cuMemAlloc_v2(&task->device, task->to_bytes));
    CHECK(cu.cuMemHostAlloc((void **)&task->sent, task->to_bytes, 0));
    CHECK(cu.cuMemHostAlloc((void **)&task->received, task->from_bytes, 0));
    memset(task->sent, 0, task->to_bytes); /* pages are there */
    memset(task->received, 0, task->from_bytes);
}

static void give(struct task *task, uint32_t number)
{
    task->sent[0] = number;
    task->sent[task->from_bytes / 4 - 1] = number;
    CHECK(cu.cuMemcpyHtoDAsync_v2(task->device, task->sent, task->to_bytes, task->stream));
    stream = task->stream;
    for (unsigned k = 0; k < task->kernels; k++) {
        launch(o.rounds);
    }
    CHECK(cu.cuMemcpyDtoHAsync_v2(task->received, task->device, task->from_bytes, task->stream));
}

static void wait_for(const struct task *task, uint32_t number)
{
    CHECK(cu.cuStreamSynchronize(task->stream));
    if (task->received[0] != number || task->received[task->from_bytes / 4 - 1] != number) {
        fprintf(stderr, "sched_load: other bytes came back than were sent\n");
        exit(1);
    }
}

/* "MS TASK...": give these. False when it is none. */
static bool run_line(const char *line, uint32_t number)
{
    unsigned order[TASKS_MAX], n = 0;
    char *at;
    double begin_ms = strtod(line, &at);

    while (n < TASKS_MAX && at[strspn(at, " \n")] != 0) {
        char *rest;

        order[n] = (unsigned)strtoul(at, &rest, 10);
        if (rest == at || order[n++] >= n_tasks) {
            return false;
        }
        at = rest;
    }
    if (n == 0) {
        return false;
    }
    bench_wait_until_ms(begin_ms);
    begin_ms = bench_now_ms();
    for (unsigned i = 0; i < n; i++) {
        give(&tasks[order[i]], number);
    }
    for (unsigned i = 0; i < n; i++) {
        wait_for(&tasks[order[i]], number);
    }
    printf("done %.3f %.3f\n", begin_ms, bench_now_ms());
    return true;
}

static void run_tasks(void)
{
    char line[256];
    uint32_t number = 0;

    for (unsigned i = 0; i < n_tasks; i++) {
        prepare_task(&tasks[i]);
    }
    launch(1); /* its code is loaded */
    CHECK(cu.cuStreamSynchronize(stream));
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (!run_line(line, ++number)) {
            fprintf(stderr, "sched_load: not a time and tasks: %s\n", line);
            exit(2);
        }
    }
}

/* ------------------------------------------------------------ options */

static double number(const char *text)
{
    char *rest;
    double value = text ? strtod(text, &rest) : -1;

    if (!text || *text == 0 || *rest != 0 || value < 0) {
        fprintf(stderr, "sched_load: not a number: %s\n", text ? text : "(nothing)");
        exit(2);
    }
    return value;
}

static int option(char **argv)
{
    static const struct {
        const char *name;
        double *real;
        unsigned *whole;
    } numbers[] = {{"--us", &o.us, NULL},         {"--seconds", &o.seconds, NULL},
                   {"--gap-us", &o.gap_us, NULL}, {"--slot-ms", &o.slot_ms, NULL},
                   {"--rounds", NULL, &o.rounds}, {"--waves", NULL, &o.waves},
                   {"--blocks", NULL, &o.blocks}, {"--batch", NULL, &o.batch},
                   {"--depth", NULL, &o.depth},   {"--smem", NULL, &o.smem},
                   {"--graph", NULL, &o.graph}};

    if (strcmp(argv[0], "--wait") == 0) {
        o.wait = true;
        return 1;
    }
    if (strcmp(argv[0], "--high") == 0) {
        o.high = true;
        return 1;
    }
    if (strcmp(argv[0], "--pageable") == 0) {
        o.pageable = true;
        return 1;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(argv[0], numbers[i].name) == 0) {
            double value = number(argv[1]);

            if (numbers[i].real) {
                *numbers[i].real = value;
            } else {
                *numbers[i].whole = (unsigned)value;
            }
            return 2;
        }
    }
    if (strcmp(argv[0], "--bytes") == 0) {
        o.bytes = (size_t)number(argv[1]);
        return 2;
    }
    if (strcmp(argv[0], "--way") == 0 && argv[1]) {
        o.way = argv[1];
        return 2;
    }
    if (strcmp(o.mode, "tasks") == 0 && argv[0][0] != '-') {
        add_task(argv[0]);
        return 1;
    }
    fprintf(stderr, "sched_load: unknown option %s\n", argv[0]);
    exit(2);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        fprintf(stderr, "usage: sched_load calibrate|loop|pulse|copy|tasks [options]\n");
        return 2;
    }
    o.mode = argv[1];
    for (int i = 2; i < argc;) {
        i += option(&argv[i]);
    }
    if (o.batch == 0) { /* so that counting costs little, and a queue holds little */
        o.batch = o.us < 200 ? (unsigned)(200 / (o.us > 1 ? o.us : 1)) : 1;
    }
    o.depth = o.depth < 1 ? 1 : o.depth > DEPTH_MAX ? DEPTH_MAX : o.depth;
    o.slot_ms = o.slot_ms < 1 ? 1 : o.slot_ms;
    (void)load_driver();
    open_device();
    if (strcmp(o.mode, "calibrate") == 0) {
        calibrate();
    } else if (strcmp(o.mode, "loop") == 0 || strcmp(o.mode, "copy") == 0) {
        loop(strcmp(o.mode, "copy") == 0);
    } else if (strcmp(o.mode, "pulse") == 0) {
        pulse();
    } else if (strcmp(o.mode, "tasks") == 0) {
        run_tasks();
    } else {
        fprintf(stderr, "sched_load: no such mode: %s\n", o.mode);
        return 2;
    }
    return 0;
}
