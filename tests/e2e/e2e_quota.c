/*
 * The tenant's quota as a program meets it.
 *
 * e2e_quota check QUOTA   what is shown, what is refused, and that everything works afterwards.
 * e2e_quota shows QUOTA   the short form of that: what is shown, half can be had, more is refused.
 * e2e_quota hold BYTES    take so much (in one piece), print "held", and keep it until stdin ends.
 * e2e_quota flood BYTES N   the same N times, as fast as it goes.
 * e2e_quota arrays QUOTA  arrays: cleared, refused over the quota, gone with their context.
 * e2e_quota each BYTES N   device N has this quota of its own: shown, kept by memory of every kind.
 * e2e_quota fails BYTES   so much must be refused with CUDA_ERROR_OUT_OF_MEMORY just now.
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#define SLACK_BYTES (4u << 20) /* free memory may be this much less than what was not taken */

static void check_kernel_works(const char *when)
{
    CUmodule module;
    CUdeviceptr memory;
    uint32_t words[256];
    uint32_t n = 256;
    uint32_t a = 2;
    uint32_t b = 9;
    memset(words, 0, sizeof(words));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, sizeof(words)));
    DRV(cu.MemcpyHtoD_v2(memory, words, sizeof(words)));
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(driver_function(module, "mix"), 2, 128, NULL, params);
    DRV(cu.MemcpyDtoH_v2(words, memory, sizeof(words)));
    check_int(words[255], 9, when);
    DRV(cu.MemFree_v2(memory));
    DRV(cu.ModuleUnload(module));
}

static void check_shown(size_t quota)
{
    size_t total = 0;
    size_t free_bytes = 0;
    DRV(cu.DeviceTotalMem_v2(&total, 0));
    check_int((long long)total, (long long)quota, "cuDeviceTotalMem is the quota");
    total = 0;
    DRV(cu.MemGetInfo_v2(&free_bytes, &total));
    check_int((long long)total, (long long)quota, "cuMemGetInfo's total is the quota");
    check_true(free_bytes <= quota && free_bytes + SLACK_BYTES >= quota,
               "cuMemGetInfo's free is what nobody holds");
}

static void check_limits(size_t quota)
{
    CUdeviceptr half = 0;
    CUdeviceptr rest = 0;
    CUdeviceptr small = 0;
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    check_code(cu.MemAlloc_v2(&half, quota + (2u << 20)), CUDA_ERROR_OUT_OF_MEMORY,
               "more than the quota");
    check_code(cu.MemAlloc_v2(&half, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY,
               "more than any device has");
    check_code(cu.MemAlloc_v2(&half, quota / 2), CUDA_SUCCESS, "half of the quota");
    DRV(cu.MemGetInfo_v2(&before, &total));
    check_true(before <= quota / 2, "the half is no longer free");
    check_code(cu.MemAlloc_v2(&rest, quota / 4 * 3), CUDA_ERROR_OUT_OF_MEMORY,
               "three quarters when a half is taken");
    DRV(cu.MemGetInfo_v2(&after, &total));
    check_int((long long)after, (long long)before, "a refused allocation takes nothing");
    check_code(cu.MemAlloc_v2(&small, 1u << 20), CUDA_SUCCESS, "a small one still fits");
    check_kernel_works("a kernel works with memory almost full");
    DRV(cu.MemFree_v2(small));
    DRV(cu.MemFree_v2(half));
    check_code(cu.MemAlloc_v2(&rest, quota / 4 * 3), CUDA_SUCCESS,
               "three quarters when the half is free again");
    DRV(cu.MemFree_v2(rest));
}

/* Take pieces until nothing is left, give all back, and do it again: nothing may get lost. */
static void check_exhaustion(size_t quota)
{
    enum { MAX_PIECES = 4096 };
    static CUdeviceptr pieces[MAX_PIECES];
    const size_t piece_bytes = 8u << 20;
    int counts[2] = {0, 0};
    for (int turn = 0; turn < 2; turn++) {
        int n = 0;
        CUresult result = CUDA_SUCCESS;
        while (n < MAX_PIECES) {
            result = cu.MemAlloc_v2(&pieces[n], piece_bytes);
            if (result != CUDA_SUCCESS) {
                break;
            }
            n++;
        }
        check_code(result, CUDA_ERROR_OUT_OF_MEMORY, "piece by piece until nothing is left");
        check_true((size_t)n * piece_bytes <= quota, "no more than the quota was given");
        check_true((size_t)n * piece_bytes >= quota / 4 * 3, "most of the quota could be had");
        counts[turn] = n;
        while (n > 0) {
            DRV(cu.MemFree_v2(pieces[--n]));
        }
    }
    check_int(counts[1], counts[0], "as many pieces the second time");
}

static void check_pool(size_t quota)
{
    CUdeviceptr memory = 0;
    CUresult result = cu.MemAllocAsync(&memory, quota + (2u << 20), NULL);
    check_code(result, CUDA_ERROR_OUT_OF_MEMORY, "more than the quota from the pool");
    DRV(cu.MemAllocAsync(&memory, 1u << 20, NULL));
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.CtxSynchronize());
}

/* The pool's own allocations are not the only ones that get what was freed. */
static void check_freed_pool_memory(size_t quota)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CUdeviceptr memory;
    CUdeviceptr other;
    DRV(cu.MemPoolCreate(&pool, &props));
    DRV(cu.MemAllocAsync(&memory, quota / 4 * 3, NULL));
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_shown(quota);
    DRV(cu.MemAllocAsync(&memory, quota / 4 * 3, NULL));
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_code(cu.MemAllocFromPoolAsync(&other, quota / 4 * 3, pool, NULL), CUDA_SUCCESS,
               "another pool gets what was freed");
    DRV(cu.MemPoolDestroy(pool));
    DRV(cu.MemFreeAsync(other, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_code(cu.MemAlloc_v2(&memory, quota / 4 * 3), CUDA_SUCCESS,
               "cuMemAlloc gets what was freed in a destroyed pool");
    DRV(cu.MemFree_v2(memory));
}

/* Whoever compiles it: nobody knows how large it is. */
static void check_unknown_variable(void)
{
    static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".global .notyet a;\n.visible .entry k() { ret; }\n";
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof(log)};
    CUmodule module;
    check_code(cu.ModuleLoadDataEx(&module, ptx, 2, options, values), CUDA_ERROR_NOT_SUPPORTED,
               "a variable of unknown size");
    check_true(strstr(log, "variable cannot be read") != NULL, "the log says why");
}

static int is_zero(CUarray array, size_t width, size_t height, size_t depth)
{
    static unsigned char host[1 << 20];
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = array,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = host,
                       .dstPitch = width,
                       .dstHeight = height,
                       .WidthInBytes = width,
                       .Height = height,
                       .Depth = depth};
    int zero = 1;
    memset(host, 1, sizeof(host));
    DRV(cu.Memcpy3D_v2(&c));
    for (size_t i = 0; i < width * height * depth; i++) {
        zero &= host[i] == 0;
    }
    return zero;
}

static void check_cleared(void)
{
    static const CUDA_ARRAY3D_DESCRIPTOR shapes[] = {
        {1000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0},
        {100, 60, 0, CU_AD_FORMAT_HALF, 4, 0},
        {33, 17, 5, CU_AD_FORMAT_FLOAT, 2, 0},
        {40, 0, 3, CU_AD_FORMAT_UNSIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED},
        {16, 16, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}};
    static const size_t texel_bytes[] = {1, 8, 8, 2, 4};
    CUmipmappedArray mipmap;
    CUarray array;
    for (int i = 0; i < 5; i++) {
        const CUDA_ARRAY3D_DESCRIPTOR *s = &shapes[i];
        DRV(cu.Array3DCreate_v2(&array, s));
        check_true(is_zero(array, s->Width * texel_bytes[i], s->Height ? s->Height : 1,
                           s->Depth ? s->Depth : 1),
                   "a new array has zeroes only");
        DRV(cu.ArrayDestroy(array));
    }
    DRV(cu.MipmappedArrayCreate(&mipmap, &shapes[1], 3));
    for (unsigned level = 0; level < 3; level++) {
        DRV(cu.MipmappedArrayGetLevel(&array, mipmap, level));
        check_true(is_zero(array, (100 >> level) * 8, 60 >> level, 1),
                   "so has each level of a mipmapped one");
    }
}

/* On the device an array of one row takes as much as one of eight. */
static void check_flat(size_t quota)
{
    CUDA_ARRAY3D_DESCRIPTOR flat = {65536, 0, 0, CU_AD_FORMAT_FLOAT, 4, 0};
    size_t fit = quota / (65536 * 16 * 8);
    CUarray array;
    for (size_t i = 0; i < fit; i++) {
        DRV(cu.Array3DCreate_v2(&array, &flat));
    }
    check_code(cu.Array3DCreate_v2(&array, &flat), CUDA_ERROR_OUT_OF_MEMORY,
               "an array of one row counts eight times");
    DRV(cu.ArrayDestroy(array));
}

/* They get what was freed of other memory, and the guest library keeps for the next. */
static void check_room(size_t quota)
{
    const CUDA_ARRAY3D_DESCRIPTOR most = {
        4096, quota / 4096 / 16 * 15 / 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray mipmap;
    CUdeviceptr memory;
    CUarray array;
    DRV(cu.MemAlloc_v2(&memory, 1u << 20));
    DRV(cu.MemFree_v2(memory));
    check_code(cu.Array3DCreate_v2(&array, &most), CUDA_SUCCESS, "an array of most of the quota");
    DRV(cu.ArrayDestroy(array));
    DRV(cu.MemAllocAsync(&memory, quota / 4, NULL));
    DRV(cu.MemFreeAsync(memory, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_code(cu.MipmappedArrayCreate(&mipmap, &most, 1), CUDA_SUCCESS, "a mipmapped one");
    DRV(cu.MipmappedArrayDestroy(mipmap));
}

/* Nobody destroys them but the resets. */
static void check_resets(size_t quota)
{
    const CUDA_ARRAY3D_DESCRIPTOR third = {1024, quota / 1024 / 4 / 3, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY3D_DESCRIPTOR all = third;
    CUmipmappedArray mipmap;
    CUarray array;
    CUcontext context;
    all.Height *= 3;
    all.Height++;
    for (int i = 0; i < 4; i++) {
        check_code(cu.Array3DCreate_v2(&array, &third), CUDA_SUCCESS, "a third of the quota");
        check_code(cu.Array3DCreate_v2(&array, &all), CUDA_ERROR_OUT_OF_MEMORY, "more than all");
        check_code(cu.MipmappedArrayCreate(&mipmap, &third, 2), CUDA_SUCCESS, "with two levels");
        check_code(cu.Array3DCreate_v2(&array, &third), CUDA_ERROR_OUT_OF_MEMORY, "a third more");
        DRV(cu.CtxSetCurrent(NULL));
        DRV(cu.DevicePrimaryCtxRelease_v2(0));
        DRV(cu.DevicePrimaryCtxRetain(&context, 0));
        DRV(cu.CtxSetCurrent(context));
        check_true(cu.ArrayDestroy(array) != CUDA_SUCCESS, "an array of before is gone");
    }
}

static void hold(size_t bytes)
{
    CUdeviceptr memory;
    DRV(cu.MemAlloc_v2(&memory, bytes));
    printf("held\n");
    while (getchar() != EOF) {
    }
    DRV(cu.MemFree_v2(memory));
}

/* A quota of one device: what others have and this program has elsewhere does not count. */
static void check_each(size_t quota, int number)
{
    const CUDA_ARRAY3D_DESCRIPTOR most = {
        4096, quota / 4096 / 4 * 17 / 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = number}};
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    CUdevice device;
    CUdeviceptr half;
    CUdeviceptr rest;
    CUarray array;
    size_t total = 0;
    size_t free_bytes = 0;
    DRV(cu.DeviceGet(&device, number));
    DRV(cu.DevicePrimaryCtxRetain(&context, device));
    DRV(cu.CtxSetCurrent(context));
    DRV(cu.DeviceTotalMem_v2(&total, device));
    check_int((long long)total, (long long)quota, "cuDeviceTotalMem is the device's quota");
    DRV(cu.MemGetInfo_v2(&free_bytes, &total));
    check_int((long long)total, (long long)quota, "cuMemGetInfo's total is the device's quota");
    check_true(free_bytes <= quota, "no more is free");
    check_code(cu.MemAlloc_v2(&rest, quota + (2u << 20)), CUDA_ERROR_OUT_OF_MEMORY, "more");
    check_code(cu.Array3DCreate_v2(&array, &most), CUDA_ERROR_OUT_OF_MEMORY, "more as an array");
    check_code(cu.MemCreate(&handle, ((quota >> 21) + 1) << 21, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY,
               "more as a handle");
    check_code(cu.MemAlloc_v2(&half, quota / 2), CUDA_SUCCESS, "half of the device's quota");
    check_code(cu.MemAlloc_v2(&rest, quota / 4 * 3), CUDA_ERROR_OUT_OF_MEMORY,
               "three quarters when a half is taken");
    DRV(cu.MemFree_v2(half));
    check_code(cu.MemAlloc_v2(&rest, quota / 4 * 3), CUDA_SUCCESS, "when the half is free again");
    DRV(cu.MemFree_v2(rest));
    DRV(cu.DevicePrimaryCtxRelease_v2(device));
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr,
                "usage: e2e_quota check|shows|arrays|hold|fails BYTES, or flood|each BYTES N\n");
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 0);
    driver_begin("e2e_quota");
    if (strcmp(argv[1], "check") == 0) {
        check_shown(bytes);
        check_limits(bytes);
        check_exhaustion(bytes);
        check_pool(bytes);
        check_freed_pool_memory(bytes);
        check_unknown_variable();
        check_kernel_works("a kernel works at the end");
    } else if (strcmp(argv[1], "shows") == 0) {
        check_shown(bytes);
        check_limits(bytes);
    } else if (strcmp(argv[1], "arrays") == 0) {
        check_cleared();
        check_room(bytes);
        check_resets(bytes);
        check_flat(bytes);
    } else if (strcmp(argv[1], "each") == 0) {
        check_each(bytes, argc == 4 ? (int)strtol(argv[3], NULL, 0) : 0);
    } else if (strcmp(argv[1], "hold") == 0) {
        hold(bytes);
    } else {
        CUdeviceptr memory = 0;
        for (long n = argc == 4 ? strtol(argv[3], NULL, 0) : 1; n > 0; n--) {
            check_code(cu.MemAlloc_v2(&memory, bytes), CUDA_ERROR_OUT_OF_MEMORY, "refused");
        }
        check_kernel_works("a kernel works all the same");
    }
    return driver_end();
}
