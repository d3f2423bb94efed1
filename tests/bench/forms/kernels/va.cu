/* Vector addition: streams memory, short blocks. */
extern "C" __global__ void va(const float *a, const float *b, float *sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        sum[i] = a[i] + b[i];
    }
}
