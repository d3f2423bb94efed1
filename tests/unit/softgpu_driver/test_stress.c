/*
 * Many threads at once: each allocates, launches, copies and frees on streams of its own and on one
 * that all share, and what it reads back must be what its kernels computed. WEIR_TEST_SECONDS makes
 * it run longer (sanitizers).
 */
#include "support.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define THREADS   8
#define MAX_INTS  4096u
#define MAX_STEPS 6u

struct worker {
    pthread_t thread;
    CUcontext ctx;
    CUstream shared;
    double until;
    uint32_t seed;
    uint32_t rounds;
    const char *failed; /* what went wrong, or NULL */
    int value;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t draw(struct worker *w, uint32_t below)
{
    w->seed = w->seed * 1664525u + 1013904223u;
    return (w->seed >> 8) % below;
}

/* cmocka's assertions belong to the main thread: note the first failure and stop. */
static bool good(struct worker *w, const char *what, int value)
{
    if (value != 0 && !w->failed) {
        w->failed = what;
        w->value = value;
    }
    return !w->failed;
}
#define MUST(call)                                                                                 \
    if (!good(w, #call, (int)(call))) {                                                            \
        return;                                                                                    \
    }

/* n ints of 1, times 3 for each of some launches, and back. */
static void compute(struct worker *w, CUfunction scale, CUstream stream, bool pooled)
{
    static const int powers[MAX_STEPS + 1] = {1, 3, 9, 27, 81, 243, 729};
    int values[MAX_INTS];
    int n = (int)(1 + draw(w, MAX_INTS));
    uint32_t steps = draw(w, MAX_STEPS + 1);
    size_t bytes = (size_t)n * sizeof(int);
    unsigned block = 32u << draw(w, 4);
    CUdeviceptr data;
    if (pooled) {
        MUST(cuMemAllocAsync(&data, bytes, stream));
    } else {
        MUST(cuMemAlloc_v2(&data, bytes));
    }
    void *params[] = {&data, &n};
    MUST(cuMemsetD32Async(data, 1, (size_t)n, stream));
    for (uint32_t s = 0; s < steps; s++) {
        MUST(cuLaunchKernel(scale, ((unsigned)n + block - 1) / block, 1, 1, block, 1, 1, 0, stream,
                            params, NULL));
    }
    MUST(cuMemcpyDtoHAsync_v2(values, data, bytes, stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
        MUST(values[i] != powers[steps]);
    }
    if (pooled) {
        MUST(cuMemFreeAsync(data, stream));
    } else {
        MUST(cuMemFree_v2(data));
    }
}

/* One stream's work waits for another's. */
static void across(struct worker *w, CUfunction scale, CUstream own)
{
    CUdeviceptr data;
    CUevent event;
    int n = 1, out = 0;
    void *params[] = {&data, &n};
    MUST(cuMemAlloc_v2(&data, sizeof(int)));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemsetD32Async(data, 5, 1, own));
    MUST(cuEventRecord(event, own));
    MUST(cuStreamWaitEvent(w->shared, event, 0));
    MUST(cuLaunchKernel(scale, 1, 1, 1, 1, 1, 1, 0, w->shared, params, NULL));
    MUST(cuEventRecord(event, w->shared));
    MUST(cuEventSynchronize(event));
    MUST(cuMemcpyDtoH_v2(&out, data, sizeof(out)));
    MUST(out != 15);
    MUST(cuEventDestroy_v2(event));
    MUST(cuMemFree_v2(data));
}

static void life_of_a_module(struct worker *w, const char *text)
{
    CUmodule module;
    CUfunction scale;
    CUstream stream;
    MUST(cuModuleLoadData(&module, text));
    MUST(cuModuleGetFunction(&scale, module, "scale"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t k = 0; k < 16 && now() < w->until && !w->failed; k++) {
        switch (draw(w, 4)) {
        case 0:
            compute(w, scale, w->shared, false);
            break;
        case 1:
            compute(w, scale, stream, true);
            break;
        case 2:
            across(w, scale, stream);
            break;
        default:
            compute(w, scale, stream, false);
            break;
        }
        w->rounds++;
    }
    MUST(cuStreamDestroy_v2(stream));
    MUST(cuModuleUnload(module));
}

static void *work(void *arg)
{
    struct worker *w = arg;
    size_t bytes;
    char *text = sample_read("scale.ptx", &bytes);
    good(w, "cuCtxSetCurrent", (int)cuCtxSetCurrent(w->ctx));
    while (!w->failed && now() < w->until) {
        life_of_a_module(w, text);
    }
    free(text);
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    const char *seconds = getenv("WEIR_TEST_SECONDS");
    double until = now() + (seconds ? atof(seconds) : 1.0);
    CUcontext ctx;
    CUstream shared;
    OK(cuCtxGetCurrent(&ctx));
    OK(cuStreamCreate(&shared, CU_STREAM_NON_BLOCKING));
    for (uint32_t k = 0; k < THREADS; k++) {
        workers[k] = (struct worker){.ctx = ctx, .shared = shared, .until = until, .seed = k};
        assert_int_equal(pthread_create(&workers[k].thread, NULL, work, &workers[k]), 0);
    }
    for (uint32_t k = 0; k < THREADS; k++) {
        pthread_join(workers[k].thread, NULL);
    }
    for (uint32_t k = 0; k < THREADS; k++) {
        if (workers[k].failed) {
            fail_msg("thread %u, round %u: %s: %d", k, workers[k].rounds, workers[k].failed,
                     workers[k].value);
        }
        assert_true(workers[k].rounds > 0);
    }
    OK(cuStreamDestroy_v2(shared));
}

/* Every kernel waits for the one launched after it:
 * all must be resident, on a device of two SMs. */
static void kernels_of_many_streams_wait_for_each_other(void **state)
{
    (void)state;
    enum { STREAMS = 32, BLOCKS = 3 };
    static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry relay(.param .u64 p)\n{\n"
                               ".reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred %p<2>;\n"
                               "ld.param.u64 %rd1, [p];\n"
                               "L: ld.volatile.global.u32 %r1, [%rd1+4];\n"
                               "setp.lt.u32 %p1, %r1, 3;\n"
                               "@%p1 bra L;\n"
                               "red.global.add.u32 [%rd1], 1;\n"
                               "ret;\n}\n";
    CUmodule module;
    CUdeviceptr flags;
    CUstream streams[STREAMS];
    unsigned out[STREAMS + 1], last = BLOCKS;
    OK(cuModuleLoadData(&module, text));
    CUfunction relay = sample_function(module, "relay");
    OK(cuMemAlloc_v2(&flags, sizeof(out)));
    OK(cuMemsetD32_v2(flags, 0, STREAMS + 1));
    for (unsigned k = 0; k < STREAMS; k++) {
        CUdeviceptr own = flags + k * sizeof(unsigned);
        void *params[] = {&own};
        OK(cuStreamCreate(&streams[k], CU_STREAM_NON_BLOCKING));
        OK(cuLaunchKernel(relay, BLOCKS, 1, 1, 1, 1, 1, 0, streams[k], params, NULL));
    }
    assert_int_equal(cuStreamQuery(streams[0]), CUDA_ERROR_NOT_READY);
    CUstream copy;
    OK(cuStreamCreate(&copy, CU_STREAM_NON_BLOCKING));
    OK(cuMemcpyHtoDAsync_v2(flags + STREAMS * sizeof(unsigned), &last, sizeof(last), copy));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(out, flags, sizeof(out)));
    for (unsigned k = 0; k <= STREAMS; k++) {
        assert_int_equal(out[k], BLOCKS);
    }
    for (unsigned k = 0; k < STREAMS; k++) {
        OK(cuStreamDestroy_v2(streams[k]));
    }
    OK(cuStreamDestroy_v2(copy));
    OK(cuMemFree_v2(flags));
    OK(cuModuleUnload(module));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(kernels_of_many_streams_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}
