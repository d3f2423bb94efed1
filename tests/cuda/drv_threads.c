/* Four pthreads share one context and one module, each with its own stream. */
#include <pthread.h>

#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { THREADS = 4, N = 2000, STEPS = 30 };

static CUcontext context;
static CUfunction fill, chain;
static const char *outcome[THREADS];

static const char *work(unsigned id)
{
    unsigned *host = (unsigned *)malloc(N * sizeof(unsigned)), n = N, first = id * 1000;
    CUdeviceptr device = 0;
    CUstream stream;

    if (cu.CtxSetCurrent(context) || cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) ||
        cu.MemAlloc_v2(&device, N * sizeof(unsigned))) {
        return "set-up failed";
    }
    void *fill_params[] = {&device, &first, &n}, *chain_params[] = {&device, &n};
    if (cu.LaunchKernel(fill, (N + 63) / 64, 1, 1, 64, 1, 1, 0, stream, fill_params, NULL)) {
        return "first launch failed";
    }
    for (int i = 0; i < STEPS; i++) {
        if (cu.LaunchKernel(chain, (N + 63) / 64, 1, 1, 64, 1, 1, 0, stream, chain_params, NULL)) {
            return "launch failed";
        }
    }
    if (cu.MemcpyDtoHAsync_v2(host, device, N * sizeof(unsigned), stream) ||
        cu.StreamSynchronize(stream)) {
        return "copy failed";
    }
    for (unsigned i = 0; i < N; i++) {
        unsigned want = first + i;
        for (int k = 0; k < STEPS; k++) {
            want = want * 3 + 1;
        }
        if (host[i] != want) {
            return "wrong result";
        }
    }
    free(host);
    return cu.MemFree_v2(device) || cu.StreamDestroy_v2(stream) ? "clean-up failed" : NULL;
}

static void *run(void *id)
{
    outcome[(intptr_t)id] = work((unsigned)(intptr_t)id);
    return NULL;
}

int main(void)
{
    CUmodule module;
    pthread_t thread[THREADS];
    char label[32];

    context = driver_begin("drv_threads");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    fill = driver_function(module, "fill");
    chain = driver_function(module, "chain");
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_create(&thread[i], NULL, run, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        snprintf(label, sizeof(label), "thread %d", i);
        check_detail(!outcome[i], label, !outcome[i] ? "" : outcome[i]);
    }
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
