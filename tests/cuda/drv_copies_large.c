/* Copies of many megabytes and odd lengths, to the device and back,
 * from several threads at once. */
#include <pthread.h>

#include "check_driver.h"

enum { THREADS = 3, ROUNDS = 2 };

static const size_t sizes[THREADS] = {(33u << 20) + 12345, (9u << 20) + 7, (256u << 10) + 1};

static CUcontext context;
static const char *outcome[THREADS];

static unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (i >> 16) + seed);
}

static const char *copy_around(unsigned char *host, size_t bytes, CUdeviceptr device,
                               CUstream stream, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        host[i] = byte_at(i, seed);
    }
    if (cu.MemcpyHtoDAsync_v2(device, host, bytes, stream) || cu.StreamSynchronize(stream)) {
        return "copy to the device failed";
    }
    memset(host, 0, bytes);
    if (seed % 2 ? cu.MemcpyDtoH_v2(host, device, bytes)
                 : cu.MemcpyDtoHAsync_v2(host, device, bytes, stream)) {
        return "copy from the device failed";
    }
    if (cu.StreamSynchronize(stream)) {
        return "synchronising failed";
    }
    for (size_t i = 0; i < bytes; i++) {
        if (host[i] != byte_at(i, seed)) {
            return "another byte came back";
        }
    }
    return NULL;
}

static void *work(void *argument)
{
    unsigned id = (unsigned)(uintptr_t)argument;
    unsigned char *host = (unsigned char *)malloc(sizes[id]);
    const char *wrong = NULL;
    CUdeviceptr device;
    CUstream stream;

    if (!host || cu.CtxSetCurrent(context) || cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) ||
        cu.MemAlloc_v2(&device, sizes[id])) {
        outcome[id] = "set-up failed";
        return NULL;
    }
    for (unsigned round = 0; round < ROUNDS && !wrong; round++) {
        wrong = copy_around(host, sizes[id], device, stream, id * ROUNDS + round);
    }
    if (cu.MemFree_v2(device) || cu.StreamDestroy_v2(stream)) {
        wrong = wrong ? wrong : "taking down failed";
    }
    free(host);
    outcome[id] = wrong;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    char label[32];

    context = driver_begin("drv_copies_large");
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        snprintf(label, sizeof(label), "%zu bytes", sizes[i]);
        check_detail(!outcome[i], label, !outcome[i] ? "" : outcome[i]);
    }
    return driver_end();
}
