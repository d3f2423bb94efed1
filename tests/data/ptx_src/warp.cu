// Warp primitives, cooperative groups, inline assembly with scopes and labels.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void warp(int *x)
{
    int v = x[threadIdx.x];
    v += __shfl_xor_sync(~0u, v, 1) + __shfl_down_sync(~0u, v, 2) + __shfl_up_sync(~0u, v, 3);
    v += __shfl_sync(~0u, v, 5) + __ballot_sync(~0u, v > 3) + __any_sync(~0u, v) + __all_sync(~0u, v);
    v += __match_any_sync(~0u, v);
    int pred;
    v += __match_all_sync(~0u, v, &pred) + pred + __activemask();
    v += __syncthreads_count(v) + __syncthreads_and(v) + __syncthreads_or(v);
    __syncwarp();
    x[threadIdx.x] = v;
}
extern "C" __global__ void groups(int *x)
{
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int v = cg::reduce(tile, x[block.thread_rank()], cg::plus<int>());
    auto active = cg::coalesced_threads();
    x[block.thread_rank()] = v + active.shfl(v, 0);
}
extern "C" __global__ void grid(int *x)
{
    cg::grid_group g = cg::this_grid();
    x[g.thread_rank()]++;
    g.sync();
    x[g.thread_rank()] += x[0];
}
extern "C" __global__ void assembly(unsigned *x)
{
    unsigned a = x[0], b = x[1], c, d;
    asm volatile("{ .reg .pred p; .reg .b32 t<4>; setp.ne.u32 p, %1, 0; mov.u32 t0, %2;\n"
                 "AGAIN: @!p bra DONE; add.u32 t1, t0, 1; mov.u32 t0, t1;\n"
                 "setp.lt.u32 p, t0, 100; bra.uni AGAIN;\n"
                 "DONE: mov.u32 %0, t0; }" : "=r"(c) : "r"(a), "r"(b));
    asm volatile("{ .reg .pred p, q; .reg .b32 t<8>; setp.ne.and.u32 p|q, %1, 0, !q;\n"
                 "mov.u32 t5, %2; @!p bra DONE; add.u32 t5, t5, 7;\n"
                 "DONE: selp.u32 %0, t5, %2, q; }" : "=r"(d) : "r"(a), "r"(b));
    asm volatile("{ .reg .v2 .u32 v; ld.global.v2.u32 v, [%0]; st.global.u32 [%0+8], v.x; }" ::"l"(x));
    asm volatile("add.cc.u32 %0, %1, %2; addc.u32 %0, %0, 0;" : "+r"(c) : "r"(a), "r"(b));
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(a) : "r"(c), "r"(d), "r"(b));
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(b) : "r"(c), "r"(a));
    asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(d) : "r"(c), "r"(a), "r"(b));
    asm("vadd.u32.u32.u32 %0, %1.b0, %2.h1;" : "=r"(c) : "r"(a), "r"(b));
    x[2] = a + b + c + d;
}
