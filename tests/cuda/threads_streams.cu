/* Eight pthreads, each with its own stream, memory and events, all at once. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 8, N = 3000, ROUNDS = 12 };

__global__ static void mix(unsigned *data, unsigned key)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        data[i] = (data[i] ^ key) * 2654435761u;
    }
}

static const char *outcome[THREADS];

/* Returns what went wrong, or NULL; prints nothing, so that the output keeps its order. */
static const char *work(unsigned id)
{
    unsigned *want = (unsigned *)malloc(N * sizeof(unsigned)), *pinned = NULL, *device = NULL;
    cudaStream_t stream;
    cudaEvent_t event;

    if (cudaSetDevice(0) || cudaStreamCreate(&stream) || cudaEventCreate(&event) ||
        cudaMallocHost((void **)&pinned, N * sizeof(unsigned)) ||
        cudaMalloc((void **)&device, N * sizeof(unsigned))) {
        return "set-up failed";
    }
    for (unsigned i = 0; i < N; i++) {
        pinned[i] = want[i] = i * (id + 1);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (cudaMemcpyAsync(device, pinned, N * sizeof(unsigned), cudaMemcpyHostToDevice, stream)) {
            return "upload failed";
        }
        for (unsigned k = 0; k < 5; k++) {
            mix<<<(N + 127) / 128, 128, 0, stream>>>(device, id * 100 + k);
            if (cudaGetLastError()) {
                return "launch failed";
            }
        }
        if (cudaMemcpyAsync(pinned, device, N * sizeof(unsigned), cudaMemcpyDeviceToHost, stream) ||
            cudaEventRecord(event, stream) || cudaEventSynchronize(event)) {
            return "download failed";
        }
        for (unsigned i = 0; i < N; i++) {
            for (unsigned k = 0; k < 5; k++) {
                want[i] = (want[i] ^ (id * 100 + k)) * 2654435761u;
            }
        }
        if (memcmp(want, pinned, N * sizeof(unsigned)) != 0) {
            return "wrong result";
        }
    }
    if (cudaMalloc(NULL, 1) != cudaErrorInvalidValue ||
        cudaPeekAtLastError() != cudaErrorInvalidValue) {
        return "last error is not kept";
    }
    free(want);
    if (cudaFree(device) || cudaFreeHost(pinned) || cudaStreamDestroy(stream) ||
        cudaEventDestroy(event)) {
        return "clean-up failed";
    }
    return NULL;
}

static void *run(void *id)
{
    outcome[(intptr_t)id] = work((unsigned)(intptr_t)id);
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    char label[32];

    check_begin("threads_streams");
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_create(&thread[i], NULL, run, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        snprintf(label, sizeof(label), "thread %d", i);
        check_detail(outcome[i] == NULL, label, outcome[i] == NULL ? "" : outcome[i]);
    }
    check_code(cudaGetLastError(), cudaSuccess, "last error of another thread");
    RT(cudaDeviceSynchronize());
    return check_end();
}
