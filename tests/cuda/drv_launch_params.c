/* The two ways to give parameters, their layout, and launches that must be refused. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

struct mixed_value {
    double real;
    char tag;
};

/* The parameter block of `mixed`, as its layout rules give it. */
struct mixed_block {
    char c;
    short s;
    struct mixed_value v;
    int i;
    long long l;
    CUdeviceptr out;
};

static int sees(CUdeviceptr out, double c, double s, double real, double tag, double i, double l)
{
    double got[6];
    const double want[6] = {c, s, real, tag, i, l};

    DRV(cu.MemcpyDtoH_v2(got, out, sizeof(got)));
    DRV(cu.MemsetD8_v2(out, 0, sizeof(got)));
    return memcmp(got, want, sizeof(got)) == 0;
}

static void layout(CUfunction mixed)
{
    const size_t offsets[] = {0, 2, 8, 24, 32, 40}, sizes[] = {1, 2, 16, 4, 8, 8};
    size_t offset = 0, bytes = 0;
    int good = 1;

    for (size_t i = 0; i < 6; i++) {
        DRV(cu.FuncGetParamInfo(mixed, i, &offset, &bytes));
        good &= offset == offsets[i] && bytes == sizes[i];
    }
    check_true(good, "offsets and sizes of six parameters");
    check_code(cu.FuncGetParamInfo(mixed, 6, &offset, &bytes), CUDA_ERROR_INVALID_VALUE,
               "a seventh parameter");
}

/* As NCCL launches: room for 4 KiB of parameters, of which the block has the first. */
static void short_block(CUdeviceptr out)
{
    static const char ptx[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry tail(.param .u64 out, .param .align 8 .b8 rest[4096])\n"
        "{ .reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
        "ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;\n"
        "ld.param.u32 %r1, [rest+4]; st.global.u32 [%rd1], %r1; ret; }\n";
    struct {
        CUdeviceptr out;
        unsigned rest[2];
    } block = {out, {5, 6}};
    size_t bytes = sizeof(block);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    unsigned got = 0;
    CUmodule module;

    DRV(cu.ModuleLoadData(&module, ptx));
    DRV(cu.LaunchKernel(driver_function(module, "tail"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    DRV(cu.MemcpyDtoH_v2(&got, out, sizeof(got)));
    check_int(got, 6, "a block that ends before the last parameter does");
    DRV(cu.ModuleUnload(module));
}

/* One of the kernel's parameters, which are three, has no place. */
static void hole(CUfunction fill, void **params)
{
    CUDA_KERNEL_NODE_PARAMS node = {.func = fill,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1};
    CUgraphExec exec;
    CUgraph graph;
    CUgraphNode made, other;

    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddKernelNode_v2(&made, graph, NULL, 0, &node));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        void *holed[] = {params[0], params[1], params[2]};
        holed[i] = NULL;
        node.kernelParams = holed;
        check_code(cu.LaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, holed, NULL),
                   CUDA_ERROR_INVALID_VALUE, "a launch without one of its parameters");
        check_code(cu.LaunchKernelEx(&config, fill, holed, NULL), CUDA_ERROR_INVALID_VALUE,
                   "one with attributes");
        check_code(cu.LaunchCooperativeKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, holed),
                   CUDA_ERROR_INVALID_VALUE, "a cooperative one");
        check_code(cu.GraphAddKernelNode_v2(&other, graph, NULL, 0, &node),
                   CUDA_ERROR_INVALID_VALUE, "a node");
        check_code(cu.GraphKernelNodeSetParams_v2(made, &node), CUDA_ERROR_INVALID_VALUE,
                   "a node's new parameters");
        check_code(cu.GraphExecKernelNodeSetParams_v2(exec, made, &node), CUDA_ERROR_INVALID_VALUE,
                   "those of an executable graph's node");
    }
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

static void refused(CUfunction fill, CUfunction limited, void **params)
{
    size_t bytes = 16;
    char block[16] = {0};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};

    check_code(cu.LaunchKernel(fill, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL),
               CUDA_ERROR_INVALID_VALUE, "1025 threads");
    check_code(cu.LaunchKernel(fill, 0, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
               CUDA_ERROR_INVALID_VALUE, "empty grid");
    check_code(cu.LaunchKernel(fill, 1, 1, 70000, 32, 1, 1, 0, NULL, params, NULL),
               CUDA_ERROR_INVALID_VALUE, "grid z over 65535");
    check_code(cu.LaunchKernel(fill, 1, 1, 1, 32, 1, 1, 1 << 20, NULL, params, NULL),
               CUDA_ERROR_INVALID_VALUE, "1 MB of shared memory");
    check_code(cu.LaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, params, extra),
               CUDA_ERROR_INVALID_VALUE, "both forms of parameters");
    check_true(cu.LaunchKernel(limited, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL) != CUDA_SUCCESS,
               "more threads than the kernel allows");
    check_true(cu.LaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL) != CUDA_SUCCESS,
               "no kernel");
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "none of these is sticky");
}

int main(void)
{
    CUmodule module;
    CUfunction mixed, fill;
    CUdeviceptr out;
    char c = -3;
    short s = 1000;
    struct mixed_value v = {0.5, 'w'};
    int i = -70000;
    long long l = 1ll << 40;
    struct mixed_block block;
    size_t bytes = sizeof(block);

    driver_begin("drv_launch_params");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    mixed = driver_function(module, "mixed");
    fill = driver_function(module, "fill");
    DRV(cu.MemAlloc_v2(&out, 4096));
    layout(mixed);
    void *params[] = {&c, &s, &v, &i, &l, &out};
    driver_launch(mixed, 1, 1, NULL, params);
    check_true(sees(out, -3, 1000, 0.5, 'w', -70000, 1099511627776.0), "array of pointers");

    memset(&block, 0, sizeof(block));
    block.c = 9;
    block.s = -9;
    block.v.real = 2.25;
    block.v.tag = 'k';
    block.i = 123;
    block.l = -5;
    block.out = out;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    DRV(cu.LaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    memset(&block, 0xff, sizeof(block));
    check_true(sees(out, 9, -9, 2.25, 'k', 123, -5), "one block, changed right after the call");
    block = (struct mixed_block){.c = 1, .s = 2, .v = {3, 4}, .i = 5, .l = 6, .out = out};
    void *swapped[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, &block,
                       CU_LAUNCH_PARAM_END};
    DRV(cu.LaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, swapped));
    check_true(sees(out, 1, 2, 3, 4, 5, 6), "size before pointer");

    short_block(out);

    CUlaunchConfig config;
    memset(&config, 0, sizeof(config));
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    DRV(cu.LaunchKernelEx(&config, mixed, params, NULL));
    check_true(sees(out, -3, 1000, 0.5, 'w', -70000, 1099511627776.0), "cuLaunchKernelEx");
    driver_launch(driver_function(module, "nothing"), 3, 64, NULL, NULL);
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "a kernel without parameters");
    unsigned value = 1, n = 8;
    void *fill_params[] = {&out, &value, &n};
    hole(fill, fill_params);
    refused(fill, driver_function(module, "limited"), fill_params);
    DRV(cu.MemFree_v2(out));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
