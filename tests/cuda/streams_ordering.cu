/* Legacy default, blocking and non-blocking streams: who waits for whom, shown with a held stream.
 */
#include "check.h"
#include "gate.h"

__global__ static void slow(unsigned *out, unsigned rounds)
{
    unsigned v = *out;
    for (unsigned i = 0; i < rounds; i++) {
        v = v * 1664525u + 1013904223u;
    }
    *out = v;
}

__global__ static void copy_plus(const unsigned *from, unsigned *to, unsigned add)
{
    *to = *from + add;
}

static unsigned slow_result(unsigned v, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        v = v * 1664525u + 1013904223u;
    }
    return v;
}

static unsigned read_word(const unsigned *device)
{
    unsigned v = 0;
    to_host(&v, device, 1);
    return v;
}

/* Results prove the order: each step reads what the step before wrote. */
static void order_by_results(unsigned *cell, cudaStream_t blocking, cudaStream_t other)
{
    const unsigned rounds = 100000;
    unsigned want = slow_result(5, rounds), start = 5;
    cudaEvent_t event;

    RT(cudaMemcpy(cell, &start, sizeof(start), cudaMemcpyHostToDevice));
    slow<<<1, 1, 0, blocking>>>(cell, rounds);
    copy_plus<<<1, 1>>>(cell, cell + 1, 1);
    copy_plus<<<1, 1, 0, other>>>(cell + 1, cell + 2, 1);
    RT(cudaStreamSynchronize(other));
    check_int(read_word(cell + 1), want + 1, "legacy stream waits for a blocking stream");
    check_int(read_word(cell + 2), want + 2, "a blocking stream waits for the legacy stream");

    RT(cudaMemcpy(cell, &start, sizeof(start), cudaMemcpyHostToDevice));
    RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    slow<<<1, 1, 0, blocking>>>(cell, rounds);
    RT(cudaEventRecord(event, blocking));
    RT(cudaStreamWaitEvent(other, event, 0));
    copy_plus<<<1, 1, 0, other>>>(cell, cell + 3, 3);
    RT(cudaStreamSynchronize(other));
    check_int(read_word(cell + 3), want + 3, "a stream waits for an event of another");
    RT(cudaEventDestroy(event));
}

/* With `held` standing at a gate: what can go on, and what cannot. */
static void order_by_gate(unsigned *cell, cudaStream_t held, cudaStream_t free_stream)
{
    struct gate gate = {0, 0};
    cudaEvent_t legacy_done;
    unsigned start = 40;

    RT(cudaMemcpy(cell, &start, sizeof(start), cudaMemcpyHostToDevice));
    RT(cudaEventCreate(&legacy_done));
    RT(cudaDeviceSynchronize());
    RT(cudaLaunchHostFunc(held, gate_hold, &gate));
    copy_plus<<<1, 1, 0, held>>>(cell, cell + 1, 1);
    check_true(gate_wait_entered(&gate), "the blocking stream has reached its host function");
    check_code(cudaStreamQuery(held), cudaErrorNotReady, "query of the held stream");
    copy_plus<<<1, 1, 0, free_stream>>>(cell, cell + 2, 2);
    check_code(cudaStreamSynchronize(free_stream), cudaSuccess, "a non-blocking stream goes on");
    check_code(cudaStreamQuery(free_stream), cudaSuccess, "and is idle then");
    copy_plus<<<1, 1>>>(cell + 1, cell + 3, 100);
    RT(cudaEventRecord(legacy_done, cudaStreamLegacy));
    check_code(cudaEventQuery(legacy_done), cudaErrorNotReady, "the legacy stream waits");
    gate_open(&gate);
    RT(cudaEventSynchronize(legacy_done));
    check_code(cudaStreamQuery(held), cudaSuccess, "both done after the gate opens");
    check_int(read_word(cell + 2), 42, "result of the non-blocking stream");
    check_int(read_word(cell + 3), 141, "result of the legacy stream");
    RT(cudaEventDestroy(legacy_done));
}

int main(void)
{
    cudaStream_t blocking, other, free_stream;
    unsigned flags = 99;

    check_begin("streams_ordering");
    unsigned *cell = device_new<unsigned>(8);
    RT(cudaStreamCreate(&blocking));
    RT(cudaStreamCreate(&other));
    RT(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
    RT(cudaStreamGetFlags(free_stream, &flags));
    check_int(flags, cudaStreamNonBlocking, "flags of a non-blocking stream");
    RT(cudaStreamGetFlags(blocking, &flags));
    check_int(flags, cudaStreamDefault, "flags of a blocking stream");
    order_by_results(cell, blocking, other);
    order_by_gate(cell, blocking, free_stream);
    RT(cudaStreamDestroy(blocking));
    RT(cudaStreamDestroy(other));
    RT(cudaStreamDestroy(free_stream));
    RT(cudaDeviceSynchronize());
    return check_end();
}
