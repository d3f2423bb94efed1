// f16, bf16, wmma, and (from compute_80 and 90) mma, cp.async, mbarrier, clusters.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void halves(__half *h, __half2 *h2, __nv_bfloat16 *b, __nv_bfloat162 *b2)
{
    h[0] = __hfma(h[1], h[2], h[3]) + hsqrt(h[4]);
    h2[0] = __hfma2(h2[1], h2[2], h2[3]);
    if (__hgt(h[5], h[6])) {
        h[7] = __float2half(3.5f);
    }
    b[0] = __float2bfloat16(__bfloat162float(b[1]) * 2);
    b2[0] = __hmul2(b2[1], b2[2]);
    atomicAdd(h2, h2[5]);
}
extern "C" __global__ void tensor(const __half *a, const __half *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
#if __CUDA_ARCH__ >= 800
extern "C" __global__ void ampere(float *d, const unsigned *a, void *g)
{
    __shared__ __align__(128) int buffer[512];
    unsigned s = (unsigned)__cvta_generic_to_shared(buffer), r0, r1, r2, r3;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(s), "l"(g));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::);
    asm volatile("ldmatrix.sync.aligned.x4.m8n8.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(s));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(r0), "r"(r1), "r"(r2), "r"(r3), "r"(a[0]), "r"(a[1]));
    d[4] = __reduce_add_sync(~0u, r0);
}
#endif
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) hopper(int *x, const int *src)
{
    __shared__ __align__(16) int data[64];
    __shared__ __align__(8) unsigned long long bar;
    unsigned b = (unsigned)__cvta_generic_to_shared(&bar), s = (unsigned)__cvta_generic_to_shared(data);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b));
        asm volatile("fence.mbarrier_init.release.cluster;" ::);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(b));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                     "256, [%2];" ::"r"(s), "l"(src), "r"(b));
    }
    asm volatile("{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], 0;\n"
                 "@P1 bra.uni DONE; bra.uni LAB_WAIT; DONE: }" ::"r"(b));
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::);
    unsigned rank, remote, elected;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(s), "r"(rank ^ 1));
    asm volatile("{ .reg .pred P; elect.sync _|P, 0xFFFFFFFF; selp.u32 %0, 1, 0, P; }" : "=r"(elected));
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::);
    x[threadIdx.x] = data[threadIdx.x & 63] + remote + elected;
}
#endif
