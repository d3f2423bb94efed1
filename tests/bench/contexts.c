/*
 * What CUDA_DEVICE_MAX_CONNECTIONS costs and gives: how many contexts a GPU takes, how fast they
 * are made, and how many streams of one context get along without each other.
 *
 *     contexts start N          N processes at once, a context each: how many, and when the last
 *                               is ready
 *     contexts end HOW N        the same, and how long until all have ended; HOW is release (of the
 *                               context, then exit), exit, or kill
 *     contexts fill MAX         one process after the other: how many contexts the GPU takes
 *     contexts fill FIRST MAX   the same; the first ones have 8 connections, the others 2
 *     contexts meet STREAMS     a kernel in each stream waits for the kernels in all others
 *     contexts held HELD STREAMS
 *                               HELD streams wait for a value, as a stream does that waits for a
 *                               stopped kernel: how many of STREAMS others go on meanwhile
 *     contexts late VALUE HELD STREAMS
 *                               the same; the variable is set between cuInit and the context
 *
 * Run each with the variable set to 1, 2, 8, 32 and not at all, natively and under MPS. A line of
 * figures each; nothing is asserted.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "contexts"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuDevicePrimaryCtxRelease_v2)                                                                \
    F(cuCtxSetCurrent)                                                                             \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemHostGetDevicePointer_v2)                                                                \
    F(cuStreamCreate)                                                                              \
    F(cuStreamQuery)                                                                               \
    F(cuStreamWaitValue32_v2)                                                                      \
    F(cuLaunchKernel)
#include "cu.h"

#define PROCESSES_MAX 256
#define STREAMS_MAX   128
#define LIMIT_S       60.0
#define HELD_S        0.3

/* meet adds one to a word and waits until n have, or until its patience is at an end: then it
 * leaves a mark in the next word. done sets a word. */
static const char ptx[] = ".version 6.4\n.target sm_50\n.address_size 64\n"
                          ".visible .entry meet(.param .u64 word, .param .u32 n)\n{\n"
                          ".reg .u64 %rd<4>;\n.reg .u32 %r<8>;\n.reg .pred %p<3>;\n"
                          "ld.param.u64 %rd1, [word];\nld.param.u32 %r1, [n];\n"
                          "cvta.to.global.u64 %rd2, %rd1;\n"
                          "atom.global.add.u32 %r2, [%rd2], 1;\n"
                          "mov.u32 %r3, 0;\n"
                          "again:\n"
                          "ld.volatile.global.u32 %r4, [%rd2];\n"
                          "setp.ge.u32 %p1, %r4, %r1;\n"
                          "@%p1 bra met;\n"
                          "add.u32 %r3, %r3, 1;\n"
                          "setp.lt.u32 %p2, %r3, 1000000;\n"
                          "@%p2 bra again;\n"
                          "mov.u32 %r5, 1;\n"
                          "atom.global.add.u32 %r6, [%rd2+4], %r5;\n"
                          "met:\nret;\n}\n"
                          ".visible .entry done(.param .u64 word)\n{\n"
                          ".reg .u64 %rd<3>;\n.reg .u32 %r<2>;\n"
                          "ld.param.u64 %rd1, [word];\ncvta.to.global.u64 %rd2, %rd1;\n"
                          "mov.u32 %r1, 1;\nst.global.u32 [%rd2], %r1;\nret;\n}\n";

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- one process's context */

/* What the children tell the parent. */
static struct board {
    atomic_int go, quit;
    bool releases; /* a child its context, before it exits */
    struct row {
        atomic_int result; /* 1 + a CUresult; 0: not known yet */
        double ready_s;
    } rows[PROCESSES_MAX];
} * board;

static CUresult make_context(void)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr memory;
    CUdevice device;
    CUresult result = cu.cuInit(0);

    if (result == CUDA_SUCCESS) {
        result = cu.cuDeviceGet(&device, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = cu.cuDevicePrimaryCtxRetain(&context, device);
    }
    if (result == CUDA_SUCCESS) {
        result = cu.cuCtxSetCurrent(context);
    }
    if (result == CUDA_SUCCESS) {
        result = cu.cuModuleLoadData(&module, ptx);
    }
    return result == CUDA_SUCCESS ? cu.cuMemAlloc_v2(&memory, 1 << 20) : result;
}

static pid_t start_child(struct row *row)
{
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    (void)load_driver();
    while (!atomic_load(&board->go)) {
        usleep(100);
    }
    int result = (int)make_context();
    row->ready_s = now_s();
    atomic_store(&row->result, 1 + result);
    while (!atomic_load(&board->quit)) {
        usleep(2000);
    }
    if (board->releases) {
        (void)cu.cuDevicePrimaryCtxRelease_v2(0);
    }
    _exit(0);
}

static void end_children(const pid_t *pids, int n)
{
    atomic_store(&board->quit, 1);
    for (int i = 0; i < n; i++) {
        (void)waitpid(pids[i], NULL, 0);
    }
}

static int end(const char *how, pid_t *pids, int n)
{
    double begin_s = now_s();

    board->releases = strcmp(how, "release") == 0;
    for (int i = 0; i < n && strcmp(how, "kill") == 0; i++) {
        (void)kill(pids[i], SIGKILL);
    }
    end_children(pids, n);
    printf("end %d by %s: the last after %.2f s\n", n, how, now_s() - begin_s);
    return 0;
}

/* @param how  to end them, and to say how long that takes; NULL: that is not asked */
static int start(int n, const char *how)
{
    pid_t pids[PROCESSES_MAX];
    double begin_s, last_s = 0;
    int good = 0, error = 0;

    for (int i = 0; i < n; i++) {
        pids[i] = start_child(&board->rows[i]);
    }
    usleep(300 * 1000);
    begin_s = now_s();
    atomic_store(&board->go, 1);
    for (int i = 0; i < n; i++) {
        while (atomic_load(&board->rows[i].result) == 0 && now_s() - begin_s < LIMIT_S) {
            usleep(1000);
        }
        if (atomic_load(&board->rows[i].result) == 1) {
            double s = board->rows[i].ready_s - begin_s;

            good++;
            last_s = s > last_s ? s : last_s;
        } else {
            error = atomic_load(&board->rows[i].result) - 1;
        }
    }
    printf("start %d: %d ready, the last after %.2f s, error of the others %d\n", n, good, last_s,
           error);
    if (how) {
        return end(how, pids, n);
    }
    end_children(pids, n);
    return 0;
}

/* @param first  how many have 8 connections; the others have 2. -1: as the variable says */
static int fill(int first, int most)
{
    pid_t pids[PROCESSES_MAX];
    double begin_s = now_s(), last_s = 0;
    int n = 0, error = 0;

    atomic_store(&board->go, 1);
    while (n < most && error == 0 && now_s() - begin_s < LIMIT_S) {
        double s = now_s();

        if (first >= 0) {
            setenv("CUDA_DEVICE_MAX_CONNECTIONS", n < first ? "8" : "2", 1);
        }
        pids[n] = start_child(&board->rows[n]);
        while (atomic_load(&board->rows[n].result) == 0 && now_s() - s < LIMIT_S) {
            usleep(1000);
        }
        error = atomic_load(&board->rows[n].result) - 1;
        last_s = now_s() - s;
        n++;
    }
    printf("fill: %d contexts in %.1f s, the last took %.2f s, then error %d\n",
           error != 0 ? n - 1 : n, now_s() - begin_s, last_s, error);
    end_children(pids, n);
    return 0;
}

/* ---------------------------------------------------------------- streams of one context */

struct streams {
    CUfunction meet, done;
    uint32_t *words;
    CUdeviceptr at;
    CUstream stream[STREAMS_MAX], held[STREAMS_MAX];
};

static void open_streams(struct streams *s, int n, int held, const char *late)
{
    CUcontext context;
    CUmodule module;
    CUdevice device;

    (void)load_driver();
    CHECK(cu.cuInit(0));
    if (late) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", late, 1);
    }
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuModuleLoadData(&module, ptx));
    CHECK(cu.cuModuleGetFunction(&s->meet, module, "meet"));
    CHECK(cu.cuModuleGetFunction(&s->done, module, "done"));
    CHECK(cu.cuMemHostAlloc((void **)&s->words, 65536, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cu.cuMemHostGetDevicePointer_v2(&s->at, s->words, 0));
    memset(s->words, 0, 65536);
    for (int i = 0; i < held; i++) {
        CHECK(cu.cuStreamCreate(&s->held[i], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < n; i++) {
        CHECK(cu.cuStreamCreate(&s->stream[i], CU_STREAM_NON_BLOCKING));
    }
}

static int count_finished(const CUstream *streams, int n)
{
    int finished = 0;

    for (int i = 0; i < n; i++) {
        finished += cu.cuStreamQuery(streams[i]) == CUDA_SUCCESS;
    }
    return finished;
}

static int meet(int n)
{
    static struct streams s;
    double begin_s;

    open_streams(&s, n, 0, NULL);
    for (int round = 0; round < 2; round++) { /* the first loads the kernel */
        uint32_t wanted = round == 0 ? 1 : (uint32_t)n;
        void *params[] = {&s.at, &wanted};

        s.words[0] = s.words[1] = 0;
        begin_s = now_s();
        for (int i = 0; i < (round == 0 ? 1 : n); i++) {
            CHECK(cu.cuLaunchKernel(s.meet, 1, 1, 1, 1, 1, 1, 0, s.stream[i], params, NULL));
        }
        while (count_finished(s.stream, n) < n && now_s() - begin_s < LIMIT_S) {
        }
    }
    printf("meet: %d of %d streams run side by side (%.3f s)\n", s.words[1] == 0 ? n : 0, n,
           now_s() - begin_s);
    return 0;
}

static int held(int held_n, int n, const char *late)
{
    static struct streams s;
    double begin_s;
    int finished;

    open_streams(&s, n, held_n, late);
    CUdeviceptr out = s.at + 4096, key = s.at + 64;
    void *params[] = {&out};

    CHECK(cu.cuLaunchKernel(s.done, 1, 1, 1, 1, 1, 1, 0, s.stream[0], params, NULL));
    while (count_finished(s.stream, 1) < 1) {
    }
    for (int i = 0; i < held_n; i++) {
        CHECK(cu.cuStreamWaitValue32_v2(s.held[i], key, 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cu.cuLaunchKernel(s.done, 1, 1, 1, 1, 1, 1, 0, s.held[i], params, NULL));
    }
    for (int i = 0; i < n; i++) {
        CHECK(cu.cuLaunchKernel(s.done, 1, 1, 1, 1, 1, 1, 0, s.stream[i], params, NULL));
    }
    begin_s = now_s();
    while (count_finished(s.stream, n) < n && now_s() - begin_s < HELD_S) {
    }
    finished = count_finished(s.stream, n);
    __atomic_store_n(&s.words[16], 1, __ATOMIC_RELEASE);
    while (count_finished(s.held, held_n) < held_n && now_s() - begin_s < LIMIT_S) {
    }
    printf("held: %d of %d streams go on while %d wait\n", finished, n, held_n);
    return 0;
}

/* ---------------------------------------------------------------- begin */

static int usage(void)
{
    fprintf(stderr,
            "contexts start N | end HOW N | fill [FIRST] MAX | meet STREAMS | held HELD STREAMS | "
            "late VALUE HELD STREAMS\n");
    return 2;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[argc - 1]) : 0, first = argc > 3 ? atoi(argv[argc - 2]) : 0;

    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || n < 1) {
        return usage();
    }
    if (argc == 3 && n <= PROCESSES_MAX && strcmp(argv[1], "start") == 0) {
        return start(n, NULL);
    }
    if (argc == 4 && n <= PROCESSES_MAX && strcmp(argv[1], "end") == 0) {
        return start(n, argv[2]);
    }
    if (argc == 3 && n <= PROCESSES_MAX && strcmp(argv[1], "fill") == 0) {
        return fill(-1, n);
    }
    if (argc == 4 && n <= PROCESSES_MAX && first >= 0 && strcmp(argv[1], "fill") == 0) {
        return fill(first, n);
    }
    if (argc == 3 && n <= STREAMS_MAX && strcmp(argv[1], "meet") == 0) {
        return meet(n);
    }
    if (argc == 4 && n <= STREAMS_MAX && first >= 0 && first <= STREAMS_MAX &&
        strcmp(argv[1], "held") == 0) {
        return held(first, n, NULL);
    }
    if (argc == 5 && n <= STREAMS_MAX && first >= 0 && first <= STREAMS_MAX &&
        strcmp(argv[1], "late") == 0) {
        return held(first, n, argv[2]);
    }
    return usage();
}
