/* 3D arrays through textures, and surface objects that kernels write and read. */
#include "check.h"

enum { W = 16, H = 8, D = 4 };

__global__ static void read_volume(cudaTextureObject_t t, int *out)
{
    int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    out[(z * H + y) * W + x] = tex3D<int>(t, (float)(W - 1 - x), (float)y, (float)(D - 1 - z));
}

__global__ static void paint(cudaSurfaceObject_t s)
{
    int x = threadIdx.x, y = threadIdx.y;
    surf2Dwrite(make_float2((float)x, (float)(y * 10)), s, x * (int)sizeof(float2), y);
}

__global__ static void shift(cudaSurfaceObject_t s)
{
    int x = threadIdx.x, y = threadIdx.y;
    float2 v = surf2Dread<float2>(s, x * (int)sizeof(float2), (y + 1) % H);
    __syncthreads();
    surf2Dwrite(make_float2(v.y, v.x), s, x * (int)sizeof(float2), y);
}

static void volume(void)
{
    int host[D][H][W], want[D][H][W];
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    cudaMemcpy3DParms copy;
    cudaResourceDesc resource;
    cudaTextureDesc texture;
    cudaTextureObject_t object;

    for (int i = 0; i < D * H * W; i++) {
        int x = i % W, y = i / W % H, z = i / W / H;
        host[z][y][x] = x + 100 * y - 10000 * z;
        want[z][y][x] = (W - 1 - x) + 100 * y - 10000 * (D - 1 - z);
    }
    RT(cudaMalloc3DArray(&array, &format, make_cudaExtent(W, H, D), 0));
    memset(&copy, 0, sizeof(copy));
    copy.srcPtr = make_cudaPitchedPtr(host, W * sizeof(int), W, H);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(W, H, D);
    copy.kind = cudaMemcpyHostToDevice;
    RT(cudaMemcpy3D(&copy));
    memset(&resource, 0, sizeof(resource));
    memset(&texture, 0, sizeof(texture));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    for (int i = 0; i < 3; i++) {
        texture.addressMode[i] = cudaAddressModeClamp;
    }
    texture.filterMode = cudaFilterModePoint;
    texture.readMode = cudaReadModeElementType;
    RT(cudaCreateTextureObject(&object, &resource, &texture, NULL));
    int *out = device_new<int>(D * H * W);
    read_volume<<<1, dim3(W, H, D)>>>(object, out);
    check_launch();
    check_device(out, &want[0][0][0], D * H * W, "3D texture");
    RT(cudaDestroyTextureObject(object));
    RT(cudaFreeArray(array));
}

static void surface(void)
{
    float2 back[H][W], want[H][W];
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    cudaResourceDesc resource;
    cudaSurfaceObject_t object;
    int same;

    RT(cudaMallocArray(&array, &format, W, H, cudaArraySurfaceLoadStore));
    memset(&resource, 0, sizeof(resource));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    RT(cudaCreateSurfaceObject(&object, &resource));
    paint<<<1, dim3(W, H)>>>(object);
    check_launch();
    for (int i = 0; i < W * H; i++) {
        want[i / W][i % W] = make_float2((float)(i % W), (float)(i / W * 10));
    }
    RT(cudaMemcpy2DFromArray(back, sizeof(back[0]), array, 0, 0, sizeof(back[0]), H,
                             cudaMemcpyDeviceToHost));
    same = memcmp(back, want, sizeof(back)) == 0;
    check_true(same, "surface written by a kernel");
    shift<<<1, dim3(W, H)>>>(object);
    check_launch();
    for (int i = 0; i < W * H; i++) {
        want[i / W][i % W] = make_float2((float)((i / W + 1) % H * 10), (float)(i % W));
    }
    RT(cudaMemcpy2DFromArray(back, sizeof(back[0]), array, 0, 0, sizeof(back[0]), H,
                             cudaMemcpyDeviceToHost));
    same = memcmp(back, want, sizeof(back)) == 0;
    check_true(same, "surface read and written");
    RT(cudaDestroySurfaceObject(object));
    RT(cudaFreeArray(array));
}

int main(void)
{
    check_begin("texture3d_surface");
    volume();
    surface();
    return check_end();
}
