/*
 * Getters, setters and forwards that no other program calls: what was set or made is what is given
 * back, and an out pointer must be there.
 */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 64 };

static unsigned char bytes[N], back[N];

static void host_function(void *user)
{
    (void)user;
}

static void contexts(CUcontext context)
{
    CUdevice device = -1;
    CUfunc_cache cache;
    CUsharedconfig shared;

    DRV(CU(CtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_SHARED));
    DRV(CU(CtxGetCacheConfig)(&cache));
    check_code(CU(CtxGetCacheConfig)(NULL), CUDA_ERROR_INVALID_VALUE,
               "nowhere for a cache's preference");
    DRV(CU(CtxSetSharedMemConfig)(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    DRV(CU(CtxGetSharedMemConfig)(&shared));
    check_int(shared, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE, "banks of shared memory");
    DRV(CU(CtxResetPersistingL2Cache)());
    DRV(cu.CtxGetDevice(&device));
    check_int(device, 0, "device of the context");
    check_code(CU(CtxGetId)(context, NULL), CUDA_ERROR_INVALID_VALUE, "nowhere for an id");
}

static void device(void)
{
    CUuuid first, second;
    CUdevprop prop;
    int major = 0, minor = 0, value = 0;

    DRV(CU(DeviceGetUuid)(&first, 0));
    DRV(cu.DeviceGetUuid_v2(&second, 0));
    check_true(memcmp(&first, &second, sizeof(first)) == 0, "both versions of the UUID");
    DRV(CU(DeviceComputeCapability)(&major, &minor, 0));
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    check_int(major, value, "compute capability");
    DRV(CU(DeviceGetProperties)(&prop, 0));
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 0));
    check_int(prop.maxThreadsDim[2], value, "properties: blocks");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0));
    check_int(prop.maxGridSize[0], value, "properties: grids");
    DRV(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    check_int(prop.SIMDWidth, value, "properties: warps");
    check_code(CU(DeviceGetProperties)(NULL, 0), CUDA_ERROR_INVALID_VALUE,
               "nowhere for properties");
}

static int filled_with(CUdeviceptr memory, size_t offset, const void *pattern, size_t n,
                       size_t times)
{
    int good = 1;

    DRV(cu.MemcpyDtoH_v2(back, memory, sizeof(back)));
    for (size_t i = 0; i < times; i++) {
        good &= memcmp(back + offset + i * n, pattern, n) == 0;
    }
    return good;
}

static void memsets(CUdeviceptr memory, CUstream stream)
{
    const unsigned short half = 0x1234;
    const unsigned int word = 0x12345678;

    DRV(CU(MemsetD16Async)(memory, half, 4, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(memory, 0, &half, 2, 4), "halves");
    DRV(CU(MemsetD2D8Async)(memory, 16, 7, 3, 2, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(memory, 16, "\7\7\7", 3, 1), "rows of bytes");
    DRV(CU(MemsetD2D16_v2)(memory, 32, half, 2, 2));
    check_true(filled_with(memory, 32, &half, 2, 2), "rows of halves");
    DRV(CU(MemsetD2D16Async)(memory, 16, half, 1, 3, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(memory, 32, &half, 2, 1), "rows of halves in a stream");
    DRV(CU(MemsetD2D32Async)(memory, 32, word, 2, 2, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(memory, 32, &word, 4, 2), "rows of words in a stream");
}

/* Host memory to an array, from there to another one and to the device, and back by arrays. */
static void rows_of_arrays(CUdeviceptr memory, CUstream stream)
{
    const CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = N, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray a, b;

    DRV(cu.Array3DCreate_v2(&a, &shape));
    DRV(cu.Array3DCreate_v2(&b, &shape));
    DRV(CU(MemcpyHtoA_v2)(a, 0, bytes, N));
    DRV(CU(MemcpyAtoA_v2)(b, 0, a, 0, N));
    DRV(CU(MemcpyAtoD_v2)(memory, b, 8, N - 8));
    check_true(filled_with(memory, 0, bytes + 8, N - 8, 1), "from an array to the device");
    DRV(CU(MemcpyDtoA_v2)(a, 4, memory, 8));
    memset(back, 0, sizeof(back));
    DRV(CU(MemcpyAtoH_v2)(back, a, 4, 8));
    check_true(memcmp(back, bytes + 8, 8) == 0, "from the device to an array");
    DRV(CU(MemcpyHtoAAsync_v2)(b, 0, bytes, 16, stream));
    memset(back, 0, sizeof(back));
    DRV(CU(MemcpyAtoHAsync_v2)(back, b, 0, 16, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(memcmp(back, bytes, 16) == 0, "through an array in a stream");
    DRV(cu.ArrayDestroy(a));
    DRV(cu.ArrayDestroy(b));
}

static void between_contexts(CUcontext context, CUdeviceptr from, CUdeviceptr to, CUstream stream)
{
    CUDA_MEMCPY3D_PEER c;

    memset(&c, 0, sizeof(c));
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcContext = c.dstContext = context;
    c.srcDevice = from;
    c.dstDevice = to;
    c.srcPitch = c.dstPitch = 16;
    c.srcHeight = c.dstHeight = 2;
    c.WidthInBytes = 8;
    c.Height = c.Depth = 2;
    DRV(cu.MemcpyHtoD_v2(from, bytes, N));
    DRV(CU(Memcpy3DPeer)(&c));
    check_true(filled_with(to, 48, bytes + 48, 8, 1), "a box between contexts");
    c.srcXInBytes = 8;
    DRV(CU(Memcpy3DPeerAsync)(&c, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(to, 48, bytes + 56, 8, 1), "a box between contexts in a stream");
}

static void streams(CUcontext context, CUdeviceptr memory, CUstream stream)
{
    CUcontext found = NULL;
    CUstreamAttrValue value;
    unsigned long long word = 0;

    DRV(CU(StreamGetCtx)(stream, &found));
    check_true(found == context, "context of a stream");
    check_code(CU(StreamGetCtx)(stream, NULL), CUDA_ERROR_INVALID_VALUE, "nowhere for a context");
    DRV(CU(StreamGetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    DRV(CU(StreamWriteValue64_v2)(stream, memory, 0x123456789aull, 0));
    DRV(CU(StreamWaitValue64_v2)(stream, memory, 0x123456789aull, CU_STREAM_WAIT_VALUE_EQ));
    DRV(CU(StreamSynchronize)(stream));
    DRV(cu.MemcpyDtoH_v2(&word, memory, sizeof(word)));
    check_true(word == 0x123456789aull, "a value that a stream wrote");
}

/* What a node is given back as, in the graph and with other parameters. */
static void nodes(CUcontext context, CUdeviceptr from, CUdeviceptr to)
{
    CUDA_MEMSET_NODE_PARAMS set = {.dst = to,
                                   .value = 5,
                                   .elementSize = 1,
                                   .width = 16,
                                   .height = 1},
                            set_back;
    CUDA_HOST_NODE_PARAMS function = {.fn = host_function, .userData = back}, function_back;
    CUDA_MEMCPY3D copy, copy_back;
    CUgraphNode fill, move, call;
    CUgraphExec exec;
    CUstream stream;
    CUgraph graph;

    memset(&copy, 0, sizeof(copy));
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to + 16;
    copy.WidthInBytes = 16;
    copy.Height = copy.Depth = 1;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddMemsetNode(&fill, graph, NULL, 0, &set, context));
    DRV(cu.GraphAddMemcpyNode(&move, graph, NULL, 0, &copy, context));
    DRV(cu.GraphAddHostNode(&call, graph, NULL, 0, &function));
    set.value = 6;
    function.userData = bytes;
    copy.srcDevice = from + 16;
    DRV(CU(GraphMemsetNodeSetParams)(fill, &set));
    DRV(CU(GraphHostNodeSetParams)(call, &function));
    DRV(CU(GraphMemcpyNodeSetParams)(move, &copy));
    DRV(CU(GraphMemsetNodeGetParams)(fill, &set_back));
    DRV(CU(GraphHostNodeGetParams)(call, &function_back));
    DRV(CU(GraphMemcpyNodeGetParams)(move, &copy_back));
    check_int(set_back.value, 6, "value of a memset node");
    check_true(function_back.fn == host_function && function_back.userData == bytes,
               "function of a host node");
    check_true(copy_back.srcDevice == from + 16 && copy_back.WidthInBytes == 16,
               "source of a copy node");
    check_code(CU(GraphMemsetNodeGetParams)(fill, NULL), CUDA_ERROR_INVALID_VALUE,
               "nowhere for parameters");
    check_code(CU(GraphMemsetNodeGetParams)(call, &set_back), CUDA_ERROR_INVALID_VALUE,
               "parameters of another type");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    set.value = 9;
    copy.srcDevice = from + 32;
    DRV(CU(GraphExecMemsetNodeSetParams)(exec, fill, &set, context));
    DRV(CU(GraphExecMemcpyNodeSetParams)(exec, move, &copy, context));
    DRV(CU(GraphUpload)(exec, stream));
    DRV(cu.MemcpyHtoD_v2(from, bytes, N));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(CU(StreamSynchronize)(stream));
    check_true(filled_with(to, 0, "\11\11\11\11", 4, 4), "new value in an executable graph");
    check_true(filled_with(to, 16, bytes + 32, 16, 1), "new source in an executable graph");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
}

static void functions(void)
{
    CUlibrary library, found = NULL;
    CUfunction listed[16] = {NULL};
    CUkernel kernels[16] = {NULL};
    CUmodule module;
    unsigned int count = 0;
    const char *name = NULL;
    int known = 0;

    DRV(cu.ModuleLoadData(&module, basic_ptx));
    DRV(CU(FuncSetSharedMemConfig)(driver_function(module, "fill"),
                                   CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    DRV(CU(ModuleGetFunctionCount)(&count, module));
    check_int(count, 9, "functions of a module");
    DRV(CU(ModuleEnumerateFunctions)(listed, 9, module));
    for (unsigned i = 0; i < count; i++) {
        DRV(cu.FuncGetName(&name, listed[i]));
        known += strcmp(name, "fill") == 0;
    }
    check_int(known, 1, "one of them by name");
    DRV(cu.LibraryLoadData(&library, basic_ptx, NULL, NULL, 0, NULL, NULL, 0));
    DRV(CU(LibraryEnumerateKernels)(kernels, 9, library));
    DRV(CU(KernelGetLibrary)(&found, kernels[8]));
    check_true(found == library, "library of a kernel");
    DRV(CU(KernelSetCacheConfig)(kernels[0], CU_FUNC_CACHE_PREFER_L1, 0));
    DRV(cu.LibraryUnload(library));
    DRV(cu.ModuleUnload(module));
}

static void objects(void)
{
    const CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 8, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_RESOURCE_DESC resource, resource_back;
    CUDA_TEXTURE_DESC sampler, sampler_back;
    CUDA_RESOURCE_VIEW_DESC view;
    CUtexObject texture;
    CUarray array;

    DRV(CU(ArrayCreate_v2)(&array, &shape));
    memset(&resource, 0, sizeof(resource));
    memset(&sampler, 0, sizeof(sampler));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    sampler.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
    DRV(cu.TexObjectCreate(&texture, &resource, &sampler, NULL));
    DRV(CU(TexObjectGetResourceDesc)(&resource_back, texture));
    DRV(CU(TexObjectGetTextureDesc)(&sampler_back, texture));
    check_true(resource_back.resType == CU_RESOURCE_TYPE_ARRAY &&
                   resource_back.res.array.hArray == array,
               "array of a texture object");
    check_int(sampler_back.addressMode[1], CU_TR_ADDRESS_MODE_CLAMP,
              "addressing of a texture object");
    check_code(CU(TexObjectGetResourceViewDesc)(&view, texture), CUDA_SUCCESS, "it has no view");
    DRV(cu.TexObjectDestroy(texture));
    DRV(cu.ArrayDestroy(array));
}

int main(void)
{
    CUcontext context = driver_begin("drv_described");
    CUdeviceptr first, second;
    CUstream stream;

    for (int i = 0; i < N; i++) {
        bytes[i] = (unsigned char)(i + 1);
    }
    DRV(cu.MemAlloc_v2(&first, N));
    DRV(cu.MemAlloc_v2(&second, N));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    contexts(context);
    device();
    memsets(first, stream);
    rows_of_arrays(first, stream);
    between_contexts(context, first, second, stream);
    streams(context, first, stream);
    nodes(context, first, second);
    functions();
    objects();
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.MemFree_v2(first));
    DRV(cu.MemFree_v2(second));
    return driver_end();
}
