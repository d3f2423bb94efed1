/* Stream-ordered allocation: order, reuse across streams, the default pool and an own pool. */
#include "check.h"

__global__ static void fill(int *data, int n, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = value + i;
    }
}

__global__ static void check_fill(const int *data, int n, int value, unsigned *bad)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && data[i] != value + i) {
        atomicAdd(bad, 1u);
    }
}

/* Many short-lived blocks in two streams; each must keep its contents until it is freed. */
static void churn(unsigned *bad)
{
    cudaStream_t a, b;
    cudaEvent_t freed;
    unsigned wrong = 1;

    RT(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    RT(cudaEventCreateWithFlags(&freed, cudaEventDisableTiming));
    for (int round = 0; round < 20; round++) {
        int n = 1000 + round * 777, *p = NULL, *q = NULL;
        RT(cudaMallocAsync((void **)&p, n * sizeof(int), a));
        fill<<<(n + 127) / 128, 128, 0, a>>>(p, n, round);
        RT(cudaMallocAsync((void **)&q, n * sizeof(int), a));
        fill<<<(n + 127) / 128, 128, 0, a>>>(q, n, -round);
        check_fill<<<(n + 127) / 128, 128, 0, a>>>(p, n, round, bad);
        RT(cudaFreeAsync(p, a));
        RT(cudaEventRecord(freed, a));
        RT(cudaStreamWaitEvent(b, freed, 0));
        RT(cudaMallocAsync((void **)&p, n * sizeof(int), b));
        fill<<<(n + 127) / 128, 128, 0, b>>>(p, n, 5 * round);
        check_fill<<<(n + 127) / 128, 128, 0, b>>>(q, n, -round, bad);
        check_fill<<<(n + 127) / 128, 128, 0, b>>>(p, n, 5 * round, bad);
        RT(cudaFreeAsync(p, b));
        RT(cudaFreeAsync(q, b));
    }
    RT(cudaStreamSynchronize(a));
    RT(cudaStreamSynchronize(b));
    to_host(&wrong, bad, 1);
    check_int(wrong, 0, "blocks keep their contents until freed");
    RT(cudaStreamDestroy(a));
    RT(cudaStreamDestroy(b));
    RT(cudaEventDestroy(freed));
}

static void attributes(cudaMemPool_t pool, const char *label)
{
    uint64_t used = 1, reserved = 0, keep = 8u << 20, seen = 0, high = 0;
    void *p = NULL;
    char line[96];

    RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    RT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &seen));
    snprintf(line, sizeof(line), "%s: release threshold kept", label);
    check_true(seen == keep, line);
    RT(cudaMallocFromPoolAsync(&p, 1u << 20, pool, 0));
    RT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    RT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    snprintf(line, sizeof(line), "%s: one MiB used, at least that reserved", label);
    check_true(used >= (1u << 20) && used < (4u << 20) && reserved >= used, line);
    RT(cudaMemsetAsync(p, 1, 1u << 20, 0));
    RT(cudaFreeAsync(p, 0));
    RT(cudaStreamSynchronize(0));
    RT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    RT(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &high));
    snprintf(line, sizeof(line), "%s: nothing used after the free", label);
    check_true(used == 0 && high >= (1u << 20), line);
    RT(cudaMemPoolTrimTo(pool, 0));
}

int main(void)
{
    cudaMemPool_t pool, current;
    cudaMemPoolProps properties;

    check_begin("pools_async");
    if (!device_attribute(cudaDevAttrMemoryPoolsSupported)) {
        check_skip("no memory pools");
    }
    unsigned *bad = device_new<unsigned>(1);
    churn(bad);
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT(cudaDeviceGetMemPool(&current, 0));
    check_true(pool == current, "the default pool is current");
    attributes(pool, "default pool");
    memset(&properties, 0, sizeof(properties));
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    RT(cudaMemPoolCreate(&pool, &properties));
    attributes(pool, "own pool");
    RT(cudaDeviceSetMemPool(0, pool));
    RT(cudaDeviceGetMemPool(&current, 0));
    check_true(pool == current, "own pool made current");
    churn(bad);
    RT(cudaDeviceGetDefaultMemPool(&current, 0));
    RT(cudaDeviceSetMemPool(0, current));
    RT(cudaMemPoolDestroy(pool));
    void *p = NULL;
    RT(cudaMallocAsync(&p, 4096, 0));
    check_code(cudaFree(p), cudaSuccess, "cudaFree of a pool's block");
    return check_end();
}
