/*
 * Several devices in one process: the first and the last of them work apart and with each other.
 * With one device both are the same one, and what can only go wrong between two holds trivially.
 */
#include "check.h"

enum { N = 5000, MAX_DEVICES = 16 };

__device__ int bias;

__global__ static void fill(int *data, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        data[i] = value + i + bias;
    }
}

__global__ static void take(int *to, const int *from)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        to[i] = from[i] * 2;
    }
}

__global__ static void turn(int *data)
{
    extern __shared__ int room[];
    room[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

enum { BLOCKS = (N + 127) / 128 };

static int first, last, n_devices;
static int *data[MAX_DEVICES];
static cudaStream_t streams[MAX_DEVICES];

static bool holds(int device, const int *at, int factor, int start, int step)
{
    static int host[N];
    RT(cudaSetDevice(device));
    RT(cudaMemcpy(host, at, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        if (host[i] != factor * (start + step * i)) {
            return false;
        }
    }
    return true;
}

static void each_alone(void)
{
    bool good = true, info = true, here = true, pools = true, symbols = true;

    for (int d = 0; d < n_devices; d++) {
        size_t free_bytes = 0, total = 0;
        int now = -1, offset = 1000 * d, *async = NULL;
        cudaPointerAttributes attributes;
        cudaDeviceProp prop;

        RT(cudaSetDevice(d));
        RT(cudaGetDevice(&now));
        RT(cudaGetDeviceProperties(&prop, d));
        RT(cudaMemGetInfo(&free_bytes, &total));
        info = info && now == d && prop.name[0] != 0 && total > 0 && free_bytes <= total &&
               total <= prop.totalGlobalMem;
        RT(cudaMalloc(&data[d], N * sizeof(int)));
        RT(cudaPointerGetAttributes(&attributes, data[d]));
        here = here && attributes.device == d && attributes.type == cudaMemoryTypeDevice;
        RT(cudaStreamCreateWithFlags(&streams[d], cudaStreamNonBlocking));
        RT(cudaMemcpyToSymbol(bias, &offset, sizeof(offset)));
        RT(cudaMallocAsync(&async, N * sizeof(int), streams[d]));
        RT(cudaPointerGetAttributes(&attributes, async));
        pools = pools && attributes.device == d;
        fill<<<BLOCKS, 128, 0, streams[d]>>>(async, 1);
        RT(cudaFreeAsync(async, streams[d]));
    }
    for (int d = 0; d < n_devices; d++) {
        RT(cudaSetDevice(d));
        fill<<<BLOCKS, 128, 0, streams[d]>>>(data[d], d);
        RT(cudaGetLastError());
    }
    for (int d = 0; d < n_devices; d++) {
        int offset = -1;
        RT(cudaSetDevice(d));
        RT(cudaMemcpyFromSymbol(&offset, bias, sizeof(offset)));
        symbols = symbols && offset == 1000 * d;
        RT(cudaStreamSynchronize(streams[d]));
        good = good && holds(d, data[d], 1, d + 1000 * d, 1);
    }
    check_true(info, "every device shows its memory");
    check_true(here, "memory lies on the device that was current");
    check_true(pools, "and so does that of its pool");
    check_true(symbols, "a variable has a value on each device");
    check_true(good, "a kernel on a stream of each device");
}

static void between(void)
{
    cudaEvent_t done;
    int *copy = NULL;
    int start = 7 + 1000 * last;

    RT(cudaSetDevice(first));
    RT(cudaMalloc(&copy, N * sizeof(int)));
    RT(cudaSetDevice(last));
    RT(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    fill<<<BLOCKS, 128, 0, streams[last]>>>(data[last], 7);
    RT(cudaEventRecord(done, streams[last]));
    RT(cudaSetDevice(first));
    RT(cudaStreamWaitEvent(streams[first], done, 0));
    RT(cudaMemcpyPeerAsync(copy, first, data[last], last, N * sizeof(int), streams[first]));
    RT(cudaStreamSynchronize(streams[first]));
    check_true(holds(first, copy, 1, start, 1), "an event and a copy across");
    RT(cudaMemset(copy, 0, N * sizeof(int)));
    RT(cudaMemcpy(copy, data[last], N * sizeof(int), cudaMemcpyDefault));
    check_true(holds(first, copy, 1, start, 1), "cudaMemcpyDefault across");
    RT(cudaMemset(copy, 0, N * sizeof(int)));
    RT(cudaMemcpyPeer(copy, first, data[last], last, N * sizeof(int)));
    check_true(holds(first, copy, 1, start, 1), "cudaMemcpyPeer");
    RT(cudaSetDevice(last));
    RT(cudaMemcpy(data[last], copy, N * sizeof(int), cudaMemcpyDefault));
    check_true(holds(last, data[last], 1, start, 1), "and back, the other device being current");
    RT(cudaSetDevice(last));
    RT(cudaEventDestroy(done));
    RT(cudaFree(copy)); /* of the first device */
}

static void peers(void)
{
    int can = 0;
    int *copy = NULL;
    bool good = true, codes = true;

    if (first != last) {
        RT(cudaDeviceCanAccessPeer(&can, first, last));
    }
    RT(cudaSetDevice(first));
    RT(cudaMalloc(&copy, N * sizeof(int)));
    if (can) {
        codes = cudaDeviceEnablePeerAccess(last, 0) == cudaSuccess &&
                cudaDeviceEnablePeerAccess(last, 0) == cudaErrorPeerAccessAlreadyEnabled;
        (void)cudaGetLastError();
    }
    if (can || first == last) {
        take<<<BLOCKS, 128>>>(copy, data[last]);
        RT(cudaGetLastError());
        RT(cudaDeviceSynchronize());
        good = holds(first, copy, 2, 7 + 1000 * last, 1);
    }
    if (can) {
        RT(cudaSetDevice(first));
        codes = codes && cudaDeviceDisablePeerAccess(last) == cudaSuccess &&
                cudaDeviceDisablePeerAccess(last) == cudaErrorPeerAccessNotEnabled;
        (void)cudaGetLastError();
    }
    check_true(good, "a kernel reads the other device's memory, where it can");
    check_true(codes, "peer access is counted");
    RT(cudaFree(copy));
}

/* Not asked: a launch on another device's stream. Driver 580 runs it there. */
static void mistakes(void)
{
    cudaEvent_t event;
    bool record = true, peer = true;

    RT(cudaSetDevice(first));
    RT(cudaEventCreate(&event));
    if (first != last) {
        RT(cudaSetDevice(last));
        record = cudaEventRecord(event, streams[last]) == cudaErrorInvalidResourceHandle;
        (void)cudaGetLastError();
    }
    int can = 1;
    peer = cudaDeviceCanAccessPeer(&can, first, first) == cudaSuccess && can == 0;
    check_true(record, "an event of another device is refused");
    check_true(peer, "no device is its own peer");
    check_code(cudaSetDevice(n_devices), cudaErrorInvalidDevice, "one device too many");
    (void)cudaGetLastError();
    RT(cudaEventDestroy(event));
}

/* What is set of a kernel is set on one device. */
static void shared_memory(void)
{
    bool good = true;

    for (int d = 0; d < n_devices; d++) {
        const int threads = 512;
        const size_t bytes = 50000;
        int host[512];

        RT(cudaSetDevice(d));
        RT(cudaFuncSetAttribute(turn, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
        for (int i = 0; i < threads; i++) {
            host[i] = i + d;
        }
        RT(cudaMemcpy(data[d], host, sizeof(host), cudaMemcpyHostToDevice));
        turn<<<1, threads, bytes>>>(data[d]);
        RT(cudaGetLastError());
        RT(cudaMemcpy(host, data[d], sizeof(host), cudaMemcpyDeviceToHost));
        for (int i = 0; i < threads; i++) {
            good = good && host[i] == threads - 1 - i + d;
        }
    }
    check_true(good, "much shared memory on each device");
}

int main(void)
{
    check_begin("multi_device");
    RT(cudaGetDeviceCount(&n_devices));
    n_devices = n_devices < MAX_DEVICES ? n_devices : MAX_DEVICES;
    last = n_devices - 1;
    each_alone();
    between();
    peers();
    mistakes();
    shared_memory();
    for (int d = 0; d < n_devices; d++) {
        RT(cudaSetDevice(d));
        RT(cudaStreamDestroy(streams[d]));
        RT(cudaFree(data[d]));
        RT(cudaDeviceSynchronize());
    }
    return check_end();
}
