/* An array, a texture object that reads it, and a surface object that writes it. */
#include "check_driver.h"

CHECK_EMBED(sample_ptx, "sample.ptx");

enum { W = 40, H = 24 };

static float host[H][W], back[H][W];

static void copy(CUarray array, void *memory, int to_array)
{
    CUDA_MEMCPY2D_v2 c;

    memset(&c, 0, sizeof(c));
    c.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    c.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    c.srcHost = c.dstHost = memory;
    c.srcArray = c.dstArray = array;
    c.srcPitch = c.dstPitch = sizeof(host[0]);
    c.WidthInBytes = sizeof(host[0]);
    c.Height = H;
    DRV(cu.Memcpy2D_v2(&c));
}

int main(void)
{
    CUmodule module;
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR_v2 shape;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampler;
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    CUdeviceptr out;
    int width = W, height = H, good = 1;

    driver_begin("drv_texture");
    for (int i = 0; i < W * H; i++) {
        host[i / W][i % W] = (float)i * 0.25f;
    }
    DRV(cu.ModuleLoadData(&module, sample_ptx));
    memset(&shape, 0, sizeof(shape));
    shape.Width = W;
    shape.Height = H;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    DRV(cu.Array3DCreate_v2(&array, &shape));
    copy(array, host, 1);
    copy(array, back, 0);
    check_true(memcmp(host, back, sizeof(host)) == 0, "into the array and out");

    memset(&resource, 0, sizeof(resource));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    memset(&sampler, 0, sizeof(sampler));
    sampler.addressMode[0] = sampler.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
    sampler.filterMode = CU_TR_FILTER_MODE_POINT;
    DRV(cu.TexObjectCreate(&texture, &resource, &sampler, NULL));
    DRV(cu.MemAlloc_v2(&out, sizeof(back)));
    void *params[] = {&texture, &out, &width, &height};
    DRV(cu.LaunchKernel(driver_function(module, "sample"), 3, 2, 1, 16, 16, 1, 0, NULL, params,
                        NULL));
    memset(back, 0, sizeof(back));
    DRV(cu.MemcpyDtoH_v2(back, out, sizeof(back)));
    check_true(memcmp(host, back, sizeof(host)) == 0, "read through a texture object");
    DRV(cu.TexObjectDestroy(texture));

    DRV(cu.SurfObjectCreate(&surface, &resource));
    void *paint_params[] = {&surface, &width, &height};
    DRV(cu.LaunchKernel(driver_function(module, "paint"), 3, 2, 1, 16, 16, 1, 0, NULL, paint_params,
                        NULL));
    DRV(cu.CtxSynchronize());
    copy(array, back, 0);
    for (int i = 0; i < W * H; i++) {
        good &= back[i / W][i % W] == (float)(i % W * 100 + i / W);
    }
    check_true(good, "written through a surface object");
    DRV(cu.SurfObjectDestroy(surface));
    DRV(cu.ArrayDestroy(array));
    DRV(cu.MemFree_v2(out));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
