/* A kernel of a collective operation: ranks wait for each other on their GPUs. ptx/collective.ptx is made from this file. */

/* What a rank has for all: words 0 .. 15 of rank 0's say how far each rank is; from word 64 on are the rank's values. */
enum { VALUES = 64 };

__device__ static void meet(volatile unsigned *flags, unsigned me, unsigned ranks, unsigned round)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        flags[me] = round;
        for (unsigned i = 0; i < ranks; i++) {
            while ((int)(flags[i] - round) < 0) {
            }
        }
        __threadfence_system();
    }
    __syncthreads();
}

/* out[i] becomes the sum of all ranks' values [i]; one block. *round counts this rank's operations. */
extern "C" __global__ void all_reduce(unsigned *const *blocks, unsigned me, unsigned ranks, unsigned *round, unsigned *out,
                                      unsigned n)
{
    volatile unsigned *flags = blocks[0];
    unsigned first = *round + 1;
    meet(flags, me, ranks, first);
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        unsigned sum = 0;
        for (unsigned r = 0; r < ranks; r++) {
            sum += ((volatile unsigned *)blocks[r])[VALUES + i];
        }
        out[i] = sum;
    }
    meet(flags, me, ranks, first + 1);
    if (threadIdx.x == 0) {
        *round = first + 1;
    }
}

extern "C" __global__ void bump(unsigned *block, unsigned n)
{
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
        block[VALUES + i]++;
    }
}
