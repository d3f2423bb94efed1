/*
 * What a program sees when its host goes away: threads that each do one kind of thing until it
 * fails.
 *
 * Prints "ready" when all are at work, then one line a thread, "lost KIND ERROR MONOTONIC_NS", with
 * the time of the first error; then every thread tries everything else once, which must fail too
 * and at once ("after KIND CALL" if not). Ends with PASS.
 *
 *     e2e_lost [ROUNDS of the long kernels]
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"
#include "tests/lib/tl_lived.h"

#include <pthread.h>
#include <time.h>

#define BYTES       (1u << 20)
#define SPIN_ROUNDS 2000000 /* a while in softgpu, no time at all on a GPU */
#define SLOW_NS     1000000000ull

static CUcontext context;
static CUfunction mix;
static CUfunction spin;
static uint32_t spin_rounds = SPIN_ROUNDS;
static pthread_barrier_t all_ready;
static pthread_barrier_t all_done;

struct work {
    const char *kind;
    CUresult (*step)(struct work *w);
    CUstream stream;
    CUevent event;
    CUdeviceptr memory;
    char *buffer;
    void *pinned;
    pthread_t thread;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static CUresult launch(CUfunction function, struct work *w, uint32_t count)
{
    uint32_t one = 1;
    void *params[] = {&w->memory, &count, &one, &one};
    return cu.LaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, w->stream, params, NULL);
}

static CUresult step_launch_sync(struct work *w)
{
    CUresult result = launch(mix, w, 64);
    return result ? result : cu.StreamSynchronize(w->stream);
}

static CUresult step_long_wait(struct work *w)
{
    CUresult result = launch(spin, w, spin_rounds);
    return result ? result : cu.StreamSynchronize(w->stream);
}

static CUresult step_event_wait(struct work *w)
{
    CUresult result = launch(spin, w, spin_rounds / 4);
    result = result ? result : cu.EventRecord(w->event, w->stream);
    return result ? result : cu.EventSynchronize(w->event);
}

static CUresult step_copy_in(struct work *w)
{
    return cu.MemcpyHtoD_v2(w->memory, w->buffer, BYTES);
}

static CUresult step_copy_out(struct work *w)
{
    return cu.MemcpyDtoH_v2(w->buffer, w->memory, BYTES);
}

static CUresult step_copy_pinned(struct work *w)
{
    CUresult result = cu.MemcpyDtoHAsync_v2(w->pinned, w->memory, BYTES, w->stream);
    return result ? result : cu.StreamSynchronize(w->stream);
}

static CUresult step_allocate(struct work *w)
{
    CUdeviceptr memory;
    (void)w;
    CUresult result = cu.MemAlloc_v2(&memory, 64u << 20);
    return result ? result : cu.MemFree_v2(memory);
}

static CUresult step_query(struct work *w)
{
    CUresult result = cu.EventRecord(w->event, w->stream);
    while (result == CUDA_SUCCESS && (result = cu.EventQuery(w->event)) == CUDA_ERROR_NOT_READY) {
        result = CUDA_SUCCESS;
    }
    if (result) {
        return result;
    }
    result = cu.StreamQuery(w->stream);
    return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static CUresult step_module(struct work *w)
{
    CUmodule module;
    (void)w;
    CUresult result = cu.ModuleLoadData(&module, e2e_ptx);
    return result ? result : cu.ModuleUnload(module);
}

static struct work works[] = {
    {.kind = "launch_sync", .step = step_launch_sync},
    {.kind = "long_wait", .step = step_long_wait},
    {.kind = "event_wait", .step = step_event_wait},
    {.kind = "copy_in", .step = step_copy_in},
    {.kind = "copy_out", .step = step_copy_out},
    {.kind = "copy_pinned", .step = step_copy_pinned},
    {.kind = "allocate", .step = step_allocate},
    {.kind = "query", .step = step_query},
    {.kind = "module", .step = step_module},
};
#define N_WORKS (sizeof(works) / sizeof(works[0]))

/* StreamQuery may say "not ready" for work that will never end; nothing else may pretend. */
static void everything_fails_now(const struct work *w)
{
    for (size_t i = 0; i < N_WORKS; i++) {
        struct work probe = *w;
        struct tl_lived start = tl_lived_now();
        CUresult result = works[i].step(&probe);
        if (result == CUDA_SUCCESS) {
            check_detail(0, works[i].kind, "succeeds after the host was lost");
        }
        if (tl_lived_since_ns(start) > SLOW_NS) {
            check_detail(0, works[i].kind, "takes more than a second after the host was lost");
        }
    }
}

static void *run(void *arg)
{
    struct work *w = arg;
    CUresult result = cu.CtxSetCurrent(context);
    result = result ? result : w->step(w);
    pthread_barrier_wait(&all_ready);
    while (result == CUDA_SUCCESS) {
        result = w->step(w);
    }
    printf("lost %s %d %llu\n", w->kind, (int)result, (unsigned long long)now_ns());
    everything_fails_now(w);
    pthread_barrier_wait(&all_done); /* the lived time is that of threads that live */
    return NULL;
}

int main(int argc, char **argv)
{
    CUmodule module;
    if (argc > 1) {
        spin_rounds = (uint32_t)strtoul(argv[1], NULL, 10);
    }
    context = driver_begin("e2e_lost");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    spin = driver_function(module, "spin");
    pthread_barrier_init(&all_ready, NULL, N_WORKS + 1);
    pthread_barrier_init(&all_done, NULL, N_WORKS);
    for (size_t i = 0; i < N_WORKS; i++) {
        struct work *w = &works[i];
        DRV(cu.StreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
        DRV(cu.EventCreate(&w->event, CU_EVENT_DISABLE_TIMING));
        DRV(cu.MemAlloc_v2(&w->memory, BYTES));
        DRV(cu.MemHostAlloc(&w->pinned, BYTES, 0));
        w->buffer = calloc(1, BYTES);
        if (!w->buffer || pthread_create(&w->thread, NULL, run, w)) {
            check_die("no thread");
        }
    }
    pthread_barrier_wait(&all_ready);
    printf("ready\n");
    for (size_t i = 0; i < N_WORKS; i++) {
        pthread_join(works[i].thread, NULL);
    }
    return check_end();
}
