/* Stream priorities, identities, attributes, and waiting for events in chains of streams. */
#include "check.h"

enum { LINKS = 12 };

__global__ static void step(unsigned *value, unsigned add)
{
    *value = *value * 3 + add;
}

static void priorities(void)
{
    int least = 0, greatest = 0, priority = 99;
    cudaStream_t stream;

    RT(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check_true(greatest <= least, "numerically lower is higher");
    RT(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    RT(cudaStreamGetPriority(stream, &priority));
    check_true(priority == greatest, "highest priority kept");
    RT(cudaStreamDestroy(stream));
    RT(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
    RT(cudaStreamGetPriority(stream, &priority));
    check_true(priority == greatest, "too high a priority is clamped");
    RT(cudaStreamDestroy(stream));
    RT(cudaStreamCreate(&stream));
    RT(cudaStreamGetPriority(stream, &priority));
    check_int(priority, 0, "priority of an ordinary stream");
    RT(cudaStreamDestroy(stream));
}

/* Each stream waits for the one before it; the event object is the same, recorded anew. */
static void chain(void)
{
    cudaStream_t stream[LINKS];
    cudaEvent_t event;
    unsigned want = 1, start = 1;
    unsigned *value = to_device(&start, 1);

    RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < LINKS; i++) {
        RT(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
    }
    for (unsigned round = 0; round < 5; round++) {
        for (int i = 0; i < LINKS; i++) {
            RT(cudaStreamWaitEvent(stream[i], event, 0));
            step<<<1, 1, 0, stream[i]>>>(value, round + (unsigned)i);
            RT(cudaEventRecord(event, stream[i]));
            want = want * 3 + round + (unsigned)i;
        }
    }
    RT(cudaEventSynchronize(event));
    check_device(value, &want, 1, "sixty steps through twelve streams");
    for (int i = 0; i < LINKS; i++) {
        RT(cudaStreamDestroy(stream[i]));
    }
    RT(cudaEventDestroy(event));
}

static void identities(void)
{
    cudaStream_t a, b;
    unsigned long long id_a = 0, id_b = 0, again = 0;
    int device = -1;

    RT(cudaStreamCreate(&a));
    RT(cudaStreamCreate(&b));
    RT(cudaStreamGetId(a, &id_a));
    RT(cudaStreamGetId(b, &id_b));
    RT(cudaStreamGetId(a, &again));
    check_true(id_a != id_b && id_a == again, "identities differ and stay");
    RT(cudaStreamGetDevice(a, &device));
    check_int(device, 0, "device of a stream");
    check_code(cudaStreamQuery(a), cudaSuccess, "an empty stream is ready");
    RT(cudaStreamDestroy(a));
    RT(cudaStreamDestroy(b));
}

int main(void)
{
    check_begin("streams_misc");
    priorities();
    chain();
    identities();
    return check_end();
}
