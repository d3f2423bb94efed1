/* Textures, matrices, ldmatrix, mbarriers; the .ptx beside is what nvcc 13.0 made of it for sm_80. */
#include <cuda/barrier>
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void fetch2d(cudaTextureObject_t t, const float *xy, float4 *out)
{
    int i = threadIdx.x;
    out[i] = tex2D<float4>(t, xy[2 * i], xy[2 * i + 1]);
}

extern "C" __global__ void fetch1d(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = tex1Dfetch<float>(t, (int)threadIdx.x - 2);
}

extern "C" __global__ void surface_copy(cudaSurfaceObject_t from, cudaSurfaceObject_t to)
{
    int x = threadIdx.x % 8;
    int y = threadIdx.x / 8;
    float v = surf2Dread<float>(from, x * 4, y);
    surf2Dwrite(v * 2.0f, to, x * 4, y);
}

extern "C" __global__ void wmma_f16(const half *a, const half *b, const float *c, float *d)
{
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    load_matrix_sync(fc, c, 16, mem_row_major);
    mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++) {
        fc.x[i] *= 2.0f;
    }
    store_matrix_sync(d, fc, 16, mem_row_major);
}

/* m16n8k16 with A through ldmatrix: the layouts of both must agree with PTX's. */
extern "C" __global__ void mma_f16(const half *a, const half *b, float *d)
{
    __shared__ half s[16 * 16];
    unsigned t = threadIdx.x;
    for (int i = t; i < 256; i += 32) {
        s[i] = a[i];
    }
    __syncwarp();
    unsigned address = (unsigned)__cvta_generic_to_shared(&s[(t % 16) * 16 + (t / 16) * 8]);
    unsigned ra[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
                 : "r"(address));
    unsigned rb[2];
    for (int r = 0; r < 2; r++) {
        half2 v = __halves2half2(b[((t % 4) * 2 + r * 8) * 8 + t / 4],
                                 b[((t % 4) * 2 + 1 + r * 8) * 8 + t / 4]);
        rb[r] = *(unsigned *)&v;
    }
    float c[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; i++) {
        d[(t / 4 + 8 * (i / 2)) * 8 + 2 * (t % 4) + i % 2] = c[i];
    }
}

extern "C" __global__ void block_barrier(int *out)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int s[128];
    int t = threadIdx.x;
    if (t == 0) {
        init(&bar, blockDim.x);
    }
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        s[t] = t + round;
        bar.arrive_and_wait();
        out[t] += s[(t + 37) % 128];
        bar.arrive_and_wait();
    }
}

extern "C" __global__ void warp_ops(unsigned *out)
{
    unsigned t = threadIdx.x;
    out[t] = __reduce_add_sync(0xffffffffu, t);
    out[32 + t] = __reduce_max_sync(t < 16 ? 0xffffu : 0xffff0000u, t);
    out[64 + t] = __match_any_sync(0xffffffffu, t % 5);
    int agreed;
    out[96 + t] = __match_all_sync(0xffffffffu, 7u, &agreed) + (unsigned)agreed;
    if (t % 2 == 0) {
        out[128 + t] = __activemask();
    }
}

extern "C" __global__ void async_copy(const int4 *in, int4 *out)
{
    __shared__ int4 s[64];
    unsigned a = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a), "l"(in + threadIdx.x));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
