/* Events: elapsed times that make sense, queries, and the errors of misuse. */
#include "check.h"
#include "gate.h"

__global__ static void slow(unsigned *out, unsigned rounds)
{
    unsigned v = 1;
    for (unsigned i = 0; i < rounds; i++) {
        v = v * 1664525u + 1013904223u;
    }
    *out = v;
}

static void times(unsigned *device)
{
    cudaEvent_t start, middle, end;
    float first = -1, second = -1, whole = -1, back = 1;

    RT(cudaEventCreate(&start));
    RT(cudaEventCreate(&middle));
    RT(cudaEventCreate(&end));
    slow<<<1, 1>>>(device, 10);
    RT(cudaDeviceSynchronize());
    /* A software device may be interrupted in the short one: one undisturbed try is enough. */
    for (int i = 0; i < 10 && (i == 0 || second <= first); i++) {
        RT(cudaEventRecord(start));
        slow<<<1, 1>>>(device, 20000);
        RT(cudaEventRecord(middle));
        slow<<<1, 1>>>(device, 400000);
        RT(cudaEventRecord(end));
        RT(cudaEventSynchronize(end));
        RT(cudaEventElapsedTime(&first, start, middle));
        RT(cudaEventElapsedTime(&second, middle, end));
    }
    RT(cudaEventElapsedTime(&whole, start, end));
    RT(cudaEventElapsedTime(&back, end, start));
    check_true(first > 0 && second > 0, "times are positive");
    check_true(second > first, "twenty times the work takes longer");
    check_true(fabs(whole - (first + second)) < 0.01 * whole + 0.01, "parts add up to the whole");
    check_true(back < 0, "the other way round it is negative");
    RT(cudaEventDestroy(start));
    RT(cudaEventDestroy(middle));
    RT(cudaEventDestroy(end));
}

static void misuse(void)
{
    cudaEvent_t fresh, recorded, untimed;
    float ms = 0;

    RT(cudaEventCreate(&fresh));
    RT(cudaEventCreate(&recorded));
    RT(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    check_code(cudaEventQuery(fresh), cudaSuccess, "query of an event never recorded");
    check_code(cudaEventSynchronize(fresh), cudaSuccess, "wait for an event never recorded");
    RT(cudaEventRecord(recorded));
    RT(cudaEventRecord(untimed));
    RT(cudaDeviceSynchronize());
    check_code(cudaEventElapsedTime(&ms, fresh, recorded), cudaErrorInvalidResourceHandle,
               "elapsed time of an event never recorded");
    check_code(cudaEventElapsedTime(&ms, untimed, recorded), cudaErrorInvalidResourceHandle,
               "elapsed time without timing");
    check_code(cudaEventQuery(untimed), cudaSuccess, "query without timing");
    check_code(cudaEventCreateWithFlags(&fresh, 0xff00), cudaErrorInvalidValue, "unknown flags");
    (void)cudaGetLastError();
    RT(cudaEventDestroy(recorded));
    RT(cudaEventDestroy(untimed));
}

static void held(unsigned *device)
{
    struct gate gate = {0, 0};
    cudaStream_t stream;
    cudaEvent_t before, after;
    float ms = -1;

    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RT(cudaEventCreate(&before));
    RT(cudaEventCreateWithFlags(&after, cudaEventBlockingSync));
    RT(cudaEventRecord(before, stream));
    RT(cudaLaunchHostFunc(stream, gate_hold, &gate));
    slow<<<1, 1, 0, stream>>>(device, 10);
    RT(cudaEventRecord(after, stream));
    RT(cudaEventSynchronize(before));
    check_true(gate_wait_entered(&gate), "stream held");
    check_code(cudaEventQuery(before), cudaSuccess, "event before the held work");
    check_code(cudaEventQuery(after), cudaErrorNotReady, "event after it");
    check_code(cudaEventElapsedTime(&ms, before, after), cudaErrorNotReady,
               "elapsed time while it runs");
    (void)cudaGetLastError();
    gate_open(&gate);
    check_code(cudaEventSynchronize(after), cudaSuccess, "wait for it");
    check_code(cudaEventQuery(after), cudaSuccess, "query then");
    RT(cudaEventElapsedTime(&ms, before, after));
    check_true(ms > 0, "elapsed time then");
    RT(cudaEventDestroy(before));
    RT(cudaEventDestroy(after));
    RT(cudaStreamDestroy(stream));
}

int main(void)
{
    check_begin("events_timing");
    unsigned *device = device_new<unsigned>(1);
    times(device);
    misuse();
    held(device);
    return check_end();
}
