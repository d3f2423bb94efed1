/*
 * Tensor maps: what the manual forbids is refused, and a map depends on its arguments alone: the
 * same ones give the same bytes, and another address put in is as if it had been there at first.
 */
#include "check_driver.h"

enum { RANK = 3 };

struct tensor {
    CUdeviceptr address;
    cuuint64_t dims[5], strides[4];
    cuuint32_t box[5], steps[5];
    CUtensorMapSwizzle swizzle;
    CUtensorMapDataType type;
    cuuint32_t rank;
};

static CUdeviceptr memory;

static struct tensor good_tensor(void)
{
    struct tensor t = {
        .address = memory,
        .dims = {64, 32, 4},
        .strides = {64 * 2, 64 * 2 * 32},
        .box = {64, 16, 1},
        .steps = {1, 1, 1},
        .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
        .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        .rank = RANK,
    };
    return t;
}

static CUresult encode(const struct tensor *t, CUtensorMap *map)
{
    return cu.TensorMapEncodeTiled(map, t->type, t->rank, (void *)(size_t)t->address, t->dims,
                                   t->strides, t->box, t->steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   t->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void expect_refused(const struct tensor *t, const char *what)
{
    CUtensorMap map;

    check_true(encode(t, &map) == CUDA_ERROR_INVALID_VALUE, what);
}

static void refusals(void)
{
    struct tensor t = good_tensor();

    t.address += 8;
    expect_refused(&t, "an address that is not a multiple of 16");
    t = good_tensor();
    t.rank = 0;
    expect_refused(&t, "rank 0");
    t = good_tensor();
    t.dims[1] = 0;
    expect_refused(&t, "an empty dimension");
    t = good_tensor();
    t.strides[0] = 72;
    expect_refused(&t, "a stride that is not a multiple of 16");
    t = good_tensor();
    t.box[1] = 257;
    expect_refused(&t, "a box side of more than 256");
    t = good_tensor();
    t.steps[1] = 9;
    expect_refused(&t, "an element stride of more than 8");
    t = good_tensor();
    t.dims[0] = 128;
    t.strides[0] = 256;
    t.strides[1] = 256 * 32;
    t.box[0] = 128;
    expect_refused(&t, "a box wider than its swizzle");
}

int main(void)
{
    static CUtensorMap a, b, c;
    struct tensor t;
    const int lower[] = {0, 0}, upper[] = {0, 0};
    const cuuint64_t dims[] = {64, 16, 16, 2};
    const cuuint64_t strides[] = {128, 128 * 16, 128 * 256};
    const cuuint32_t steps[] = {1, 1, 1, 1};

    CUdevice device;
    int major;

    driver_begin("drv_tensor_map");
    DRV(cu.CtxGetDevice(&device));
    DRV(cu.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    if (major < 9) {
        check_skip("no tensor maps before compute capability 9.0");
    }
    DRV(cu.MemAlloc_v2(&memory, 1 << 20));
    t = good_tensor();
    DRV(encode(&t, &a));
    memset(&b, 0xa5, sizeof(b));
    DRV(encode(&t, &b));
    check_true(memcmp(&a, &b, sizeof(a)) == 0, "the same arguments, the same map");
    t.address += 4096;
    DRV(encode(&t, &c));
    check_true(memcmp(&a, &c, sizeof(a)) != 0, "another address, another map");
    DRV(cu.TensorMapReplaceAddress(&b, (void *)(size_t)t.address));
    check_true(memcmp(&b, &c, sizeof(b)) == 0, "an address replaced");
    t = good_tensor();
    t.box[1] = 8;
    DRV(encode(&t, &c));
    check_true(memcmp(&a, &c, sizeof(a)) != 0, "another box, another map");
    refusals();
    t = good_tensor();
    memset(&b, 0, sizeof(b));
    DRV(encode(&t, &b));
    check_true(memcmp(&a, &b, sizeof(a)) == 0, "the first map once more");

    DRV(cu.TensorMapEncodeIm2col(
        &a, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)(size_t)memory, dims, strides, lower, upper,
        64, 32, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    DRV(cu.TensorMapEncodeIm2col(
        &b, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)(size_t)memory, dims, strides, lower, upper,
        64, 16, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    check_true(memcmp(&a, &b, sizeof(a)) != 0, "im2col maps by their pixels");
    check_true(cu.TensorMapEncodeIm2col(
                   &b, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)(size_t)memory, dims, strides,
                   lower, upper, 64, 16, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_ERROR_INVALID_VALUE,
               "im2col of rank 2");
    DRV(cu.MemFree_v2(memory));
    return driver_end();
}
