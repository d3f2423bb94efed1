/* The other half of link_main.cu. */
extern "C" {

__device__ int part_offset = 1000;

__device__ __noinline__ int part_value(int x)
{
    return x * x - 7;
}
}
