/*
 * What must not wait for a running kernel, or be wrong about a finished one: first copies of
 * pageable memory of every size in one stream while a kernel of another stream runs, and queries.
 */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { WORDS = 6 << 20, LIMIT_S = 10 };

/* In pinned memory, seen by program and kernels. */
struct flags {
    unsigned open;    /* by the program: the kernel may end */
    unsigned started; /* by kernels */
};

static volatile struct flags *flags;
static int gave_up;

__global__ static void hold(volatile struct flags *f)
{
    f->started = 1;
    while (f->open == 0) {
    }
}

__global__ static void touch(volatile struct flags *f)
{
    f->started = 1;
}

static int started(void)
{
    for (int i = 0; i < LIMIT_S * 1000 && !flags->started; i++) {
        usleep(1000);
    }
    return flags->started != 0;
}

/* So that a copy that does wait for the kernel is a failure and no hang. */
static void *open_at_last(void *arg)
{
    (void)arg;
    for (int i = 0; i < LIMIT_S * 100 && !flags->open; i++) {
        usleep(10000);
    }
    gave_up = !flags->open;
    flags->open = 1;
    return NULL;
}

static void copy_there_and_back(unsigned *device, const unsigned *in, unsigned *out, size_t words,
                                cudaStream_t stream)
{
    memset(out, 0, words * sizeof(unsigned));
    RT(cudaMemcpyAsync(device, in, words * sizeof(unsigned), cudaMemcpyHostToDevice, stream));
    RT(cudaMemcpyAsync(out, device, words * sizeof(unsigned), cudaMemcpyDeviceToHost, stream));
    RT(cudaStreamSynchronize(stream));
    check_words(out, in, words, "there and back while a kernel runs");
}

static void copy_beside(cudaStream_t running, cudaStream_t copying)
{
    static const size_t sizes[] = {16, 50000, 250000, 750000, 2 << 20, WORDS};
    unsigned *in = host_new<unsigned>(WORDS), *out = host_new<unsigned>(WORDS), *device;
    pthread_t watchdog;
    uint32_t seed = 5;

    for (int i = 0; i < WORDS; i++) {
        in[i] = check_random(&seed);
    }
    RT(cudaMalloc((void **)&device, WORDS * sizeof(unsigned)));
    flags->started = flags->open = 0;
    pthread_create(&watchdog, NULL, open_at_last, NULL);
    hold<<<1, 1, 0, running>>>((volatile struct flags *)flags);
    check_true(started(), "the kernel runs");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        copy_there_and_back(device, in, out, sizes[i], copying);
    }
    for (int i = 0; i < 3; i++) {
        check_code(cudaStreamQuery(running), cudaErrorNotReady, "query of the running kernel");
    }
    check_true(!gave_up, "copies did not wait for the kernel");
    flags->open = 1;
    pthread_join(watchdog, NULL);
    RT(cudaStreamSynchronize(running));
    check_code(cudaStreamQuery(running), cudaSuccess, "query of the ended kernel");
    RT(cudaFree(device));
}

/* Work that ended long ago is done for the very first query; a loop of queries sees any end. */
static void query(cudaStream_t stream)
{
    cudaError_t result = cudaErrorNotReady;

    flags->started = 0;
    touch<<<1, 1, 0, stream>>>((volatile struct flags *)flags);
    check_true(started(), "the kernel has run");
    usleep(100000);
    check_code(cudaStreamQuery(stream), cudaSuccess, "one query after a pause");
    flags->started = 0;
    touch<<<1, 1, 0, stream>>>((volatile struct flags *)flags);
    while (result == cudaErrorNotReady) {
        result = cudaStreamQuery(stream);
    }
    check_code(result, cudaSuccess, "a loop of queries");
    check_true(flags->started, "what was waited for has been done");
}

int main(void)
{
    cudaStream_t running, copying, blocking;

    check_begin("copies_beside_kernel");
    if (!device_attribute(cudaDevAttrCanMapHostMemory)) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    RT(cudaMallocHost((void **)&flags, sizeof(struct flags)));
    RT(cudaStreamCreateWithFlags(&running, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking));
    RT(cudaStreamCreate(&blocking));
    flags->open = 1; /* each kernel once: loading one would wait for the others */
    hold<<<1, 1, 0, running>>>((volatile struct flags *)flags);
    touch<<<1, 1, 0, running>>>((volatile struct flags *)flags);
    RT(cudaDeviceSynchronize());
    copy_beside(running, copying);
    query(running);
    query(blocking);
    query(0);
    RT(cudaStreamDestroy(running));
    RT(cudaStreamDestroy(copying));
    RT(cudaStreamDestroy(blocking));
    RT(cudaFreeHost((void *)flags));
    return check_end();
}
