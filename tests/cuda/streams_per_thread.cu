/* Built with --default-stream per-thread: each pthread's default stream is its own. */
#include <pthread.h>

#include "check.h"
#include "gate.h"

__global__ static void add_one(unsigned *cell)
{
    *cell += 1;
}

static struct gate gate;
static unsigned *cells;
static int held_query, free_result, held_result;

static void *held_thread(void *unused)
{
    (void)unused;
    held_result = cudaLaunchHostFunc(0, gate_hold, &gate);
    add_one<<<1, 1>>>(cells);
    held_query = cudaStreamQuery(0);
    held_result |= cudaStreamSynchronize(0);
    return NULL;
}

static void *free_thread(void *unused)
{
    (void)unused;
    for (int i = 0; i < 10; i++) {
        add_one<<<1, 1>>>(cells + 1);
    }
    free_result = cudaStreamSynchronize(cudaStreamPerThread);
    return NULL;
}

int main(void)
{
    pthread_t a, b;
    unsigned host[2];

    check_begin("streams_per_thread");
    RT(cudaMalloc((void **)&cells, 2 * sizeof(unsigned)));
    RT(cudaMemset(cells, 0, 2 * sizeof(unsigned)));
    add_one<<<1, 1>>>(cells);
    RT(cudaDeviceSynchronize());
    pthread_create(&a, NULL, held_thread, NULL);
    check_true(gate_wait_entered(&gate), "first thread's default stream is held");
    pthread_create(&b, NULL, free_thread, NULL);
    pthread_join(b, NULL);
    check_code(free_result, cudaSuccess, "second thread's default stream goes on");
    add_one<<<1, 1>>>(cells + 1);
    check_code(cudaStreamSynchronize(0), cudaSuccess, "so does the main thread's");
    gate_open(&gate);
    pthread_join(a, NULL);
    check_code(held_query, cudaErrorNotReady, "query in the held thread");
    check_code(held_result, cudaSuccess, "first thread ends well");
    RT(cudaDeviceSynchronize());
    RT(cudaMemcpy(host, cells, sizeof(host), cudaMemcpyDeviceToHost));
    check_int(host[0], 2, "count of the first thread");
    check_int(host[1], 11, "count of the others");
    return check_end();
}
