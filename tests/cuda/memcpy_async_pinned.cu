/* Asynchronous copies in several streams: upload, compute, download, from and to pinned memory. */
#include "check.h"

enum { STREAMS = 4, CHUNK = 20000, ROUNDS = 3 };

__global__ static void twist(unsigned *data, unsigned key)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < CHUNK) {
        data[i] = data[i] * 5 + key;
    }
}

int main(void)
{
    unsigned *in = NULL, *out = NULL, *want = host_new<unsigned>(STREAMS * CHUNK);
    unsigned *device[STREAMS];
    cudaStream_t stream[STREAMS];
    uint32_t seed = 66;

    check_begin("memcpy_async_pinned");
    RT(cudaMallocHost((void **)&in, STREAMS * CHUNK * sizeof(unsigned)));
    RT(cudaMallocHost((void **)&out, STREAMS * CHUNK * sizeof(unsigned)));
    for (int s = 0; s < STREAMS; s++) {
        RT(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
        RT(cudaMalloc((void **)&device[s], CHUNK * sizeof(unsigned)));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STREAMS * CHUNK; i++) {
            in[i] = check_random(&seed);
            want[i] = in[i] * 5 + (unsigned)(round + i / CHUNK);
        }
        for (int s = 0; s < STREAMS; s++) {
            size_t bytes = CHUNK * sizeof(unsigned);
            RT(cudaMemcpyAsync(device[s], in + s * CHUNK, bytes, cudaMemcpyHostToDevice,
                               stream[s]));
            twist<<<(CHUNK + 255) / 256, 256, 0, stream[s]>>>(device[s], (unsigned)(round + s));
            RT(cudaMemcpyAsync(out + s * CHUNK, device[s], bytes, cudaMemcpyDeviceToHost,
                               stream[s]));
        }
        for (int s = 0; s < STREAMS; s++) {
            RT(cudaStreamSynchronize(stream[s]));
        }
        check_words(out, want, STREAMS * CHUNK, "upload, compute, download in four streams");
    }
    for (int s = 0; s < STREAMS; s++) {
        RT(cudaFree(device[s]));
        RT(cudaStreamDestroy(stream[s]));
    }
    RT(cudaFreeHost(in));
    RT(cudaFreeHost(out));
    return check_end();
}
