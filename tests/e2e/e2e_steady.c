/*
 * A program that works all the time and checks every result: the tenant that must not notice what
 * another one does.
 *
 * Each round goes once through memory, copies, launches on two streams, events and, every eighth
 * round, a captured graph. Prints "round N" at most every 20 ms, and at the start the address of a
 * block that it holds all the time and looks after ("block ADDRESS BYTES"). Ends when stdin does.
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <poll.h>
#include <time.h>

#define BLOCK_WORDS 4096u
#define MAX_WORDS   16384u
#define PRINT_MS    20

static CUfunction mix;
static CUstream streams[2];
static uint32_t seed = 12345;
static uint32_t host[MAX_WORDS];
static uint32_t want[MAX_WORDS];

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int stdin_ended(void)
{
    struct pollfd wait = {0, POLLIN, 0};
    return poll(&wait, 1, 0) != 0;
}

static void launch(CUdeviceptr memory, uint32_t n, uint32_t a, uint32_t b, CUstream stream)
{
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(mix, (n + 127) / 128, 128, stream, params);
}

static void fill(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        host[i] = want[i] = check_random(&seed);
    }
}

static void compare(uint32_t n, long round, const char *what)
{
    for (uint32_t i = 0; i < n; i++) {
        if (host[i] != want[i]) {
            check_die("round %ld, %s: [%u] is 0x%x, expected 0x%x", round, what, i, host[i],
                      want[i]);
        }
    }
}

/* Allocate, copy in, two launches in two streams ordered by an event, copy out, free. */
static void round_plain(long round)
{
    CUdeviceptr memory;
    CUevent event;
    uint32_t n = 1 + check_random(&seed) % MAX_WORDS;
    fill(n);
    DRV(cu.MemAlloc_v2(&memory, n * sizeof(uint32_t)));
    DRV(cu.EventCreate(&event, CU_EVENT_DEFAULT));
    DRV(cu.MemcpyHtoD_v2(memory, host, n * sizeof(uint32_t)));
    launch(memory, n, 3, 1, streams[0]);
    DRV(cu.EventRecord(event, streams[0]));
    DRV(cu.StreamWaitEvent(streams[1], event, 0));
    launch(memory, n, 5, 2, streams[1]);
    DRV(cu.StreamSynchronize(streams[1]));
    memset(host, 0, n * sizeof(uint32_t));
    DRV(cu.MemcpyDtoH_v2(host, memory, n * sizeof(uint32_t)));
    for (uint32_t i = 0; i < n; i++) {
        want[i] = (want[i] * 3 + 1) * 5 + 2;
    }
    compare(n, round, "two streams");
    DRV(cu.EventDestroy_v2(event));
    DRV(cu.MemFree_v2(memory));
}

/* A captured graph of a memset and two launches. */
static void round_graph(long round)
{
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphExec exec;
    uint32_t n = 1000;
    DRV(cu.MemAlloc_v2(&memory, n * sizeof(uint32_t)));
    DRV(cu.StreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(cu.MemsetD32Async(memory, (uint32_t)round, n, streams[0]));
    launch(memory, n, 2, 1, streams[0]);
    launch(memory, n, 2, 1, streams[0]);
    DRV(cu.StreamEndCapture(streams[0], &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, streams[0]));
    DRV(cu.StreamSynchronize(streams[0]));
    DRV(cu.MemcpyDtoH_v2(host, memory, n * sizeof(uint32_t)));
    for (uint32_t i = 0; i < n; i++) {
        want[i] = ((uint32_t)round * 2 + 1) * 2 + 1;
    }
    compare(n, round, "graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.MemFree_v2(memory));
}

static CUdeviceptr make_block(void)
{
    CUdeviceptr block;
    DRV(cu.MemAlloc_v2(&block, BLOCK_WORDS * sizeof(uint32_t)));
    for (uint32_t i = 0; i < BLOCK_WORDS; i++) {
        host[i] = i * 2654435761u;
    }
    DRV(cu.MemcpyHtoD_v2(block, host, BLOCK_WORDS * sizeof(uint32_t)));
    printf("block 0x%llx %zu\n", (unsigned long long)block, BLOCK_WORDS * sizeof(uint32_t));
    return block;
}

static void look_after(CUdeviceptr block, long round)
{
    DRV(cu.MemcpyDtoH_v2(host, block, BLOCK_WORDS * sizeof(uint32_t)));
    for (uint32_t i = 0; i < BLOCK_WORDS; i++) {
        want[i] = i * 2654435761u;
    }
    compare(BLOCK_WORDS, round, "the block that nobody else may touch");
}

int main(void)
{
    CUmodule module;
    driver_begin("e2e_steady");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.StreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    CUdeviceptr block = make_block();
    long round = 0;
    long printed_ms = 0;
    long slowest_ms = 0;
    for (; !stdin_ended(); round++) {
        long start_ms = now_ms();
        round_plain(round);
        if (round % 8 == 0) {
            round_graph(round);
        }
        look_after(block, round);
        long end_ms = now_ms();
        slowest_ms = end_ms - start_ms > slowest_ms ? end_ms - start_ms : slowest_ms;
        if (end_ms - printed_ms >= PRINT_MS || round == 0) {
            printf("round %ld\n", round);
            printed_ms = end_ms;
        }
    }
    printf("rounds %ld slowest_ms %ld\n", round, slowest_ms);
    DRV(cu.MemFree_v2(block));
    DRV(cu.StreamDestroy_v2(streams[0]));
    DRV(cu.StreamDestroy_v2(streams[1]));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
