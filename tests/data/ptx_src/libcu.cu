// libcu++: barriers, semaphores, latches, pipelines, memcpy_async, atomics of several scopes and sizes.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void staged(const int *in, int *out, int n)
{
    __shared__ int stage[2][128];
    auto block = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    for (int i = 0; i < n; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, stage[i & 1], in + i * 128, sizeof stage[0], pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        out[i * 128 + threadIdx.x] = stage[i & 1][127 - threadIdx.x];
        pipe.consumer_release();
    }
}
extern "C" __global__ void group_copy(const int *in, int *out)
{
    __shared__ int stage[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, stage, in + blockIdx.x * 256, sizeof stage);
    cg::wait(block);
    out[blockIdx.x * 256 + threadIdx.x] = stage[threadIdx.x ^ 1];
}
extern "C" __global__ void guarded(cuda::binary_semaphore<cuda::thread_scope_device> *s, int *x)
{
    s->acquire();
    *x += blockIdx.x;
    s->release();
}
extern "C" __global__ void latched(cuda::latch<cuda::thread_scope_device> *all, int *x)
{
    x[blockIdx.x] = threadIdx.x;
    all->arrive_and_wait();
}
extern "C" __global__ void floats(cuda::atomic<float, cuda::thread_scope_device> *f,
                                  cuda::atomic<short, cuda::thread_scope_block> *s,
                                  cuda::atomic<double, cuda::thread_scope_system> *d)
{
    f->fetch_add(1.5f);
    s->fetch_or(3);
    d->fetch_max(2.5);
}
