/* Modules, launches, what is refused at a launch, and what a fault leaves behind. */
#include "support.h"

static void launch_scale(CUfunction scale, CUdeviceptr data, int n)
{
    void *params[] = {&data, &n};
    OK(cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
}

static void kernel_of_each_container_computes(void **state)
{
    (void)state;
    static const char *const names[] = {"scale.ptx", "plain.fatbin", "zstd.fatbin", "lz4.fatbin"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CUmodule module = sample_module(names[i]);
        CUdeviceptr data;
        int values[64];
        OK(cuMemAlloc_v2(&data, sizeof(values)));
        OK(cuMemsetD32_v2(data, 7, 64));
        launch_scale(sample_function(module, "scale"), data, 63);
        OK(cuMemcpyDtoH_v2(values, data, sizeof(values)));
        assert_int_equal(values[0], 21);
        assert_int_equal(values[62], 21);
        assert_int_equal(values[63], 7);
        OK(cuMemFree_v2(data));
        OK(cuModuleUnload(module));
        assert_int_equal(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    }
}

static void global_can_be_found_and_written(void **state)
{
    (void)state;
    CUmodule module = sample_module("scale.ptx");
    CUdeviceptr factor, data;
    size_t bytes;
    int five = 5, out = 1;
    OK(cuModuleGetGlobal_v2(&factor, &bytes, module, "factor"));
    assert_int_equal(bytes, 4);
    assert_int_equal(cuModuleGetGlobal_v2(&factor, NULL, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    OK(cuMemcpyHtoD_v2(factor, &five, 4));
    OK(cuMemAlloc_v2(&data, 4));
    OK(cuMemcpyHtoD_v2(data, &out, 4));
    launch_scale(sample_function(module, "scale"), data, 1);
    OK(cuMemcpyDtoH_v2(&out, data, 4));
    assert_int_equal(out, 5);
    OK(cuMemFree_v2(data));
    OK(cuModuleUnload(module));
}

static void launch_beyond_a_limit_is_refused_and_not_sticky(void **state)
{
    (void)state;
    CUmodule module = sample_module("scale.ptx");
    CUfunction scale = sample_function(module, "scale");
    CUdeviceptr data = 0;
    int n = 0;
    void *params[] = {&data, &n};
    static const struct {
        unsigned grid[3], block[3], shared;
        CUresult result;
    } rows[] = {
        {{0, 1, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 65536, 1}, {1, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {0, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {1025, 1, 1}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {1, 1, 65}, 0, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {32, 1, 1}, 49153, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1}, {32, 1, 1}, 49152, CUDA_SUCCESS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(cuLaunchKernel(scale, rows[i].grid[0], rows[i].grid[1], rows[i].grid[2],
                                        rows[i].block[0], rows[i].block[1], rows[i].block[2],
                                        rows[i].shared, NULL, params, NULL),
                         rows[i].result);
    }
    assert_int_equal(cuLaunchKernel(scale, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel((CUfunction)&n, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(
        cuFuncSetAttribute(scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449),
        CUDA_ERROR_INVALID_VALUE);
    OK(cuFuncSetAttribute(scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(cuLaunchKernel(scale, 1, 1, 1, 32, 1, 1, 100000, NULL, params, NULL));
    assert_int_equal(cuLaunchCooperativeKernel(scale, 100000, 1, 1, 32, 1, 1, 0, NULL, params),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(module));
}

static void fault_is_sticky_until_the_context_is_reset(void **state)
{
    (void)state;
    CUmodule module = sample_module("scale.ptx");
    CUdeviceptr wild = 0x10, data;
    CUcontext ctx;
    void *params[] = {&wild};
    OK(cuMemAlloc_v2(&data, 256));
    OK(cuLaunchKernel(sample_function(module, "poke"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuMemAlloc_v2(&data, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(0));
    assert_int_equal(cuMemAlloc_v2(&data, 1), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuMemAlloc_v2(&data, 1));
    OK(cuMemFree_v2(data));
    assert_int_equal(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
}

static void overrun_into_the_gap_faults(void **state)
{
    (void)state;
    CUcontext ctx;
    CUmodule module = sample_module("scale.ptx");
    CUdeviceptr a, b;
    OK(cuMemAlloc_v2(&a, 256));
    OK(cuMemAlloc_v2(&b, 256));
    launch_scale(sample_function(module, "scale"), a + 4, 64);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
}

static void machine_code_alone_has_no_image_for_the_device(void **state)
{
    (void)state;
    size_t bytes;
    CUmodule module;
    CUlibrary library;
    char *data = sample_read("cubin.fatbin", &bytes);
    assert_int_equal(cuModuleLoadData(&module, data), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuLibraryLoadData(&library, data, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
    free(data);
}

static void library_kernel_stands_for_its_function(void **state)
{
    (void)state;
    size_t bytes;
    char *data = sample_read("zstd.fatbin", &bytes);
    CUlibrary library;
    CUkernel kernel, all[4];
    CUfunction function;
    unsigned count;
    int threads;
    OK(cuLibraryLoadData(&library, data, NULL, NULL, 0, NULL, NULL, 0));
    free(data);
    OK(cuLibraryGetKernelCount(&count, library));
    assert_int_equal(count, 2);
    OK(cuLibraryEnumerateKernels(all, 4, library));
    OK(cuLibraryGetKernel(&kernel, library, "scale"));
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "absent"), CUDA_ERROR_NOT_FOUND);
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    assert_int_equal(threads, 1024);
    CUdeviceptr d;
    int out = 4;
    OK(cuMemAlloc_v2(&d, 4));
    OK(cuMemcpyHtoD_v2(d, &out, 4));
    launch_scale((CUfunction)kernel, d, 1);
    OK(cuMemcpyDtoH_v2(&out, d, 4));
    assert_int_equal(out, 12);
    OK(cuMemFree_v2(d));
    OK(cuLibraryUnload(library));
    assert_int_equal(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_HANDLE);
}

static CUmodule module_of_text(const char *directive, const char *name)
{
    char text[512];
    CUmodule module;
    snprintf(text, sizeof(text),
             ".version 8.0\n.target sm_90\n.address_size 64\n"
             ".visible .entry %s() %s\n{ ret; }\n",
             name, directive);
    OK(cuModuleLoadData(&module, text));
    return module;
}

static CUresult launch_as_cluster(CUfunction f, unsigned size)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {size, 1, 1}};
    const CUlaunchConfig config = {.gridDimX = 4,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    return cuLaunchKernelEx(&config, f, NULL, NULL);
}

static void cluster_is_checked_against_grid_and_kernel(void **state)
{
    (void)state;
    CUmodule alone = module_of_text("", "alone");
    CUmodule pairs = module_of_text(".reqnctapercluster 1, 2", "pairs");
    CUmodule single = module_of_text(".explicitcluster .reqnctapercluster 1", "single");
    CUfunction f = sample_function(alone, "alone");
    int value;
    OK(launch_as_cluster(f, 1));
    OK(launch_as_cluster(f, 2));
    assert_int_equal(launch_as_cluster(f, 3), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    assert_int_equal(launch_as_cluster(f, 32), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    f = sample_function(pairs, "pairs");
    OK(cuLaunchKernel(f, 2, 2, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(cuLaunchKernel(f, 2, 3, 1, 32, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_CLUSTER_SIZE);
    assert_int_equal(launch_as_cluster(f, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, f));
    assert_int_equal(value, 2);
    f = sample_function(single, "single");
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, f));
    assert_int_equal(value, 1);
    OK(launch_as_cluster(f, 1));
    OK(cuCtxSynchronize());
    OK(cuModuleUnload(alone));
    OK(cuModuleUnload(pairs));
    OK(cuModuleUnload(single));
}

static void cluster_attribute_of_a_node_is_checked(void **state)
{
    (void)state;
    CUmodule module = module_of_text("", "alone");
    CUDA_KERNEL_NODE_PARAMS params = {.func = sample_function(module, "alone"),
                                      .gridDimX = 2,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1};
    CUlaunchAttributeValue two = {.clusterDim = {2, 1, 1}};
    CUlaunchAttributeValue many = {.clusterDim = {8, 8, 1}};
    CUgraph graph;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
    assert_int_equal(
        cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &many),
        CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &two));
    OK(cuGraphDestroy(graph));
    OK(cuModuleUnload(module));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_of_each_container_computes),
        cmocka_unit_test(global_can_be_found_and_written),
        cmocka_unit_test(launch_beyond_a_limit_is_refused_and_not_sticky),
        cmocka_unit_test(fault_is_sticky_until_the_context_is_reset),
        cmocka_unit_test(overrun_into_the_gap_faults),
        cmocka_unit_test(machine_code_alone_has_no_image_for_the_device),
        cmocka_unit_test(library_kernel_stands_for_its_function),
        cmocka_unit_test(cluster_is_checked_against_grid_and_kernel),
        cmocka_unit_test(cluster_attribute_of_a_node_is_checked),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}
