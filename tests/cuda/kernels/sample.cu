/* Reads a texture object and writes a surface object; ptx/sample.ptx is made from this file. */
extern "C" __global__ void sample(cudaTextureObject_t texture, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        out[y * width + x] = tex2D<float>(texture, x + 0.5f, y + 0.5f);
    }
}

extern "C" __global__ void paint(cudaSurfaceObject_t surface, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        surf2Dwrite((float)(x * 100 + y), surface, x * (int)sizeof(float), y);
    }
}
