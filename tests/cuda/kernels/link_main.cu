/* Half of a program that the driver links: calls a function of link_part.cu. */
extern "C" {

extern __device__ int part_value(int x);
extern __device__ int part_offset;

__global__ void link_main(int *out)
{
    out[threadIdx.x] = part_value((int)threadIdx.x) + part_offset;
}
}
