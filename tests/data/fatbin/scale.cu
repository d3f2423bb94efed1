/* The source of the samples here; see README.md. */
extern "C" __device__ int factor = 3;
extern "C" __global__ void scale(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] *= factor;
    }
}
extern "C" __global__ void poke(int *where)
{
    *where = 1;
}
