/* Function attributes, names and modules, dynamic shared memory, occupancy. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

static int attribute(CUfunction function, CUfunction_attribute which)
{
    int value = -1;

    DRV(cu.FuncGetAttribute(&value, which, function));
    return value;
}

static void block_sum(CUfunction function)
{
    int in[512], out[2] = {0}, want[2] = {0};
    CUdeviceptr device_in, device_out;

    for (int i = 0; i < 512; i++) {
        in[i] = i * 3 - 100;
        want[i / 256] += in[i];
    }
    DRV(cu.MemAlloc_v2(&device_in, sizeof(in)));
    DRV(cu.MemAlloc_v2(&device_out, sizeof(out)));
    DRV(cu.MemcpyHtoD_v2(device_in, in, sizeof(in)));
    void *params[] = {&device_in, &device_out};
    DRV(cu.LaunchKernel(function, 2, 1, 1, 256, 1, 1, 256 * sizeof(int), NULL, params, NULL));
    DRV(cu.MemcpyDtoH_v2(out, device_out, sizeof(out)));
    check_true(out[0] == want[0] && out[1] == want[1], "launch with dynamic shared memory");
    DRV(cu.LaunchKernel(function, 2, 1, 1, 256, 1, 1, 60000, NULL, params, NULL));
    DRV(cu.MemcpyDtoH_v2(out, device_out, sizeof(out)));
    check_true(out[0] == want[0] && out[1] == want[1], "launch with 60000 bytes of it");
    DRV(cu.MemFree_v2(device_in));
    DRV(cu.MemFree_v2(device_out));
}

/* Code that is loaded ahead: launches wait for nothing then. */
static void load_ahead(CUfunction function)
{
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
    CUresult (*load)(CUfunction);
    CUresult (*is_loaded)(CUfunctionLoadingState *, CUfunction);

    *(void **)&load = check_driver_symbol(RTLD_DEFAULT, "cuFuncLoad");
    *(void **)&is_loaded = check_driver_symbol(RTLD_DEFAULT, "cuFuncIsLoaded");
    DRV(load(function));
    DRV(load(function));
    DRV(is_loaded(&state, function));
    check_int((int)state, CU_FUNCTION_LOADING_STATE_LOADED, "loaded ahead");
}

int main(void)
{
    CUmodule module, seen = NULL;
    CUfunction limited, sum, fill;
    const char *name = NULL;
    int blocks = 0, value = 0;

    driver_begin("drv_func_attributes");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    limited = driver_function(module, "limited");
    sum = driver_function(module, "block_sum");
    fill = driver_function(module, "fill");
    check_int(attribute(limited, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128, "launch bounds");
    check_int(attribute(limited, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 1024,
              "static shared memory");
    check_int(attribute(fill, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024, "no launch bounds");
    check_int(attribute(fill, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 0, "no shared memory");
    check_int(attribute(fill, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 0, "no local memory");
    check_int(attribute(fill, CU_FUNC_ATTRIBUTE_PTX_VERSION), 75, "PTX version");
    check_true(attribute(fill, CU_FUNC_ATTRIBUTE_BINARY_VERSION) >= 75, "binary version");
    value = attribute(fill, CU_FUNC_ATTRIBUTE_NUM_REGS);
    check_true(value > 0 && value <= 255, "registers");
    check_int(attribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 49152,
              "dynamic shared memory before it is asked for");
    DRV(cu.FuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    check_int(attribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 60000, "and after");
    check_code(cu.FuncSetAttribute(sum, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 24),
               CUDA_ERROR_INVALID_VALUE, "16 MB of it");
    check_code(cu.FuncGetAttribute(&value, (CUfunction_attribute)999, sum),
               CUDA_ERROR_INVALID_VALUE, "unknown attribute");
    load_ahead(sum);
    block_sum(sum);
    DRV(cu.FuncGetName(&name, sum));
    check_true(name && strcmp(name, "block_sum") == 0, "name");
    DRV(cu.FuncGetModule(&seen, sum));
    check_true(seen == module, "module");
    DRV(cu.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 1024, 0));
    check_true(blocks >= 1, "a block of 1024 fits an SM");
    DRV(cu.OccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 64, 0));
    check_true(value >= blocks, "smaller blocks fit at least as often");
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
