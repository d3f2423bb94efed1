/*
 * Does a graph run at the priority of the stream that it is launched into?
 *
 *     graph_levels [--brief]     on the libcuda.so.1 that the loader finds
 *
 * A graph of small kernels is captured, instantiated with and without USE_NODE_PRIORITY, and
 * launched into streams of each priority, with nothing beside it, beside kernels of the same
 * process that fill the GPU, and beside such kernels of another process (to be run natively and
 * under an MPS server). The kernels that fill have the priority that Weir gives to the normal
 * class. A line for each says how long the graph took. A stream has its priority from its creation
 * (made), or changed later by cuStreamSetAttribute (set), as a worker does it.
 *
 * At the end: what cuStreamSetAttribute costs, and a launch into a stream whose priority changes
 * before each.
 *
 * --brief has few and short kernels, for softgpu. Nothing is asserted.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS      256u
#define NODES        60u    /* kernels of the graph, as of a ResNet-18 */
#define NODE_BLOCKS  16u    /* .. of so many blocks */
#define NODE_ROUNDS  2000u  /* some us of a kernel on an H200 */
#define FILL_ROUNDS  40000u /* 0.1 ms or so of a block */
#define FILL_WAVES   8u
#define FILLS        12u /* kernels queued before each launch of the graph: longer than it takes */
#define NORMAL_LEVEL 2   /* above the least: host_backend/worker/device/gates.c */
#define SAMPLES      40u
#define LAUNCHES     500u

#define PROGRAM "graph_levels"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetName)                                                                             \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxGetStreamPriorityRange)                                                                 \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                                 \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreateWithPriority)                                                                  \
    F(cuStreamDestroy_v2)                                                                          \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamSetAttribute)                                                                        \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphExecDestroy)                                                                          \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphLaunch)                                                                               \
    F(cuMemAlloc_v2)

#include "tests/bench/cu.h"

/* spin: counts to `rounds`, and leaves the number. */
static const char text[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                           ".visible .entry spin(.param .u64 out, .param .u32 rounds)\n{\n"
                           "    .reg .pred %q<1>;\n    .reg .b32 %r<2>;\n    .reg .b64 %d<2>;\n"
                           "    ld.param.u64 %d0, [out];\n    ld.param.u32 %r0, [rounds];\n"
                           "    mov.u32 %r1, 0;\n"
                           "again:\n"
                           "    add.u32 %r1, %r1, 1;\n    setp.lt.u32 %q0, %r1, %r0;\n"
                           "    @%q0 bra again;\n"
                           "    cvta.to.global.u64 %d1, %d0;\n    st.global.u32 [%d1], %r1;\n"
                           "    ret;\n}\n";

enum beside { NOTHING, OWN_KERNELS, ANOTHERS_KERNELS };

static struct {
    bool brief;
    CUfunction spin;
    CUdeviceptr out;
    unsigned fill_blocks;
    int least, greatest; /* stream priorities */
    CUstream fill;
} b;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static CUstream make_stream(int priority)
{
    CUstream stream;

    CHECK(cu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
    return stream;
}

static void set_priority(CUstream stream, int priority)
{
    CUlaunchAttributeValue value;

    memset(&value, 0, sizeof value);
    value.priority = priority;
    CHECK(cu.cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
}

static void spin(CUstream stream, unsigned blocks, unsigned rounds)
{
    unsigned n = b.brief ? rounds / 1000 : rounds;
    void *parameters[] = {&b.out, &n};

    CHECK(cu.cuLaunchKernel(b.spin, blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL));
}

static void begin(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    int sms, per_sm, normal;

    (void)load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK(cu.cuModuleLoadData(&module, text));
    CHECK(cu.cuModuleGetFunction(&b.spin, module, "spin"));
    CHECK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, b.spin, (int)THREADS, 0));
    CHECK(cu.cuMemAlloc_v2(&b.out, 4));
    CHECK(cu.cuCtxGetStreamPriorityRange(&b.least, &b.greatest));
    b.fill_blocks = (b.brief ? 1 : FILL_WAVES) * (unsigned)(sms * per_sm);
    normal = b.least - NORMAL_LEVEL;
    b.fill = make_stream(normal < b.greatest ? b.greatest : normal);
}

/* The other process: keeps the GPU full until it is killed. */
static void fill_for_ever(int ready_fd)
{
    begin();
    for (bool told = false;; told = true) {
        for (unsigned i = 0; i < FILLS; i++) {
            spin(b.fill, b.fill_blocks, FILL_ROUNDS);
        }
        CHECK(cu.cuStreamSynchronize(b.fill)); /* a short gap each time */
        if (!told && write(ready_fd, "r", 1) != 1) {
            exit(1);
        }
    }
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;

    return (a > c) - (a < c);
}

static CUgraphExec make_graph(int priority, unsigned long long flags)
{
    CUstream stream = make_stream(priority);
    CUgraphExec exec;
    CUgraph graph;

    CHECK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (unsigned i = 0; i < NODES; i++) {
        spin(stream, NODE_BLOCKS, NODE_ROUNDS);
    }
    CHECK(cu.cuStreamEndCapture(stream, &graph));
    CHECK(cu.cuGraphInstantiateWithFlags(&exec, graph, flags));
    CHECK(cu.cuGraphDestroy(graph));
    CHECK(cu.cuStreamDestroy_v2(stream));
    return exec;
}

static void measure(CUgraphExec exec, CUstream stream, enum beside beside, double *ret_p50_us,
                    double *ret_p90_us)
{
    unsigned samples = b.brief ? 2 : SAMPLES;
    double us[SAMPLES];

    for (unsigned i = 0; i < samples; i++) {
        double from_us;

        for (unsigned k = 0; beside == OWN_KERNELS && k < FILLS; k++) {
            spin(b.fill, b.fill_blocks, FILL_ROUNDS);
        }
        from_us = now_us();
        CHECK(cu.cuGraphLaunch(exec, stream));
        CHECK(cu.cuStreamSynchronize(stream));
        us[i] = now_us() - from_us;
        CHECK(cu.cuStreamSynchronize(b.fill));
    }
    qsort(us, samples, sizeof *us, by_value);
    *ret_p50_us = us[samples / 2];
    *ret_p90_us = us[samples * 9 / 10];
}

/* One graph into a stream of each priority, made so or set. */
static void each_priority(enum beside beside, int captured, bool nodes)
{
    static const char *const words[] = {"nothing", "own-kernels", "anothers-kernels"};
    CUgraphExec exec =
        make_graph(captured, nodes ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);

    for (int set = 0; set < 2; set++) {
        for (int priority = b.least; priority >= b.greatest; priority--) {
            CUstream stream = make_stream(set ? b.least : priority);
            double p50_us, p90_us;

            if (set) {
                set_priority(stream, priority);
            }
            measure(exec, stream, beside, &p50_us, &p90_us);
            printf("beside=%-16s captured_at=%2d use_node_priority=%d stream_priority=%2d by=%s "
                   "graph_us_p50=%.0f p90=%.0f\n",
                   words[beside], captured, nodes, priority, set ? "set " : "made", p50_us, p90_us);
            fflush(stdout);
            CHECK(cu.cuStreamDestroy_v2(stream));
        }
    }
    CHECK(cu.cuGraphExecDestroy(exec));
}

static void all_ways(enum beside beside)
{
    each_priority(beside, b.least, false);
    each_priority(beside, b.greatest, false); /* captured elsewhere: is that seen? */
    each_priority(beside, b.least, true);
    each_priority(beside, b.greatest, true);
}

static void costs(void)
{
    CUgraphExec exec = make_graph(b.least, 0);
    CUstream stream = make_stream(b.least);
    unsigned launches = b.brief ? 4 : LAUNCHES;
    double set_us = 0, launch_us[2] = {0, 0};

    for (unsigned i = 0; i < 2 * launches; i++) {
        bool changes = i >= launches;
        double from_us = now_us(), launch_from_us;

        if (changes) {
            set_priority(stream, i % 2 != 0 && b.greatest < b.least ? b.least - 1 : b.least);
        }
        launch_from_us = now_us();
        set_us += changes ? launch_from_us - from_us : 0;
        CHECK(cu.cuGraphLaunch(exec, stream));
        launch_us[changes] += now_us() - launch_from_us;
        CHECK(cu.cuStreamSynchronize(stream));
    }
    printf("cuStreamSetAttribute_us=%.2f cuGraphLaunch_us=%.2f after_a_change_us=%.2f\n",
           set_us / launches, launch_us[0] / launches, launch_us[1] / launches);
}

/* A process that fills the GPU after a word of this one; forked before this one has a context. */
static pid_t fork_other(int *ret_go_fd, int *ret_ready_fd)
{
    int go[2], ready[2];
    pid_t other;
    char byte;

    if (pipe(go) != 0 || pipe(ready) != 0 || (other = fork()) < 0) {
        perror(PROGRAM);
        exit(1);
    }
    if (other == 0) {
        close(go[1]);
        if (read(go[0], &byte, 1) != 1) {
            exit(1);
        }
        fill_for_ever(ready[1]);
    }
    close(go[0]);
    close(ready[1]);
    *ret_go_fd = go[1];
    *ret_ready_fd = ready[0];
    return other;
}

int main(int argc, char **argv)
{
    int go_fd, ready_fd;
    pid_t other;
    char byte;

    b.brief = argc > 1 && strcmp(argv[1], "--brief") == 0;
    if (argc > 2 || (argc == 2 && !b.brief)) {
        fprintf(stderr, "usage: " PROGRAM " [--brief]\n");
        return 2;
    }
    other = fork_other(&go_fd, &ready_fd);
    begin();
    all_ways(NOTHING);
    all_ways(OWN_KERNELS);
    costs();
    if (write(go_fd, "g", 1) == 1 && read(ready_fd, &byte, 1) == 1) {
        all_ways(ANOTHERS_KERNELS);
    } else {
        fprintf(stderr, PROGRAM ": the other process does not fill the GPU\n");
    }
    (void)kill(other, SIGKILL);
    (void)waitpid(other, NULL, 0);
    return 0;
}
