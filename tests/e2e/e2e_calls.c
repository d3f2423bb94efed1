/*
 * A known number of calls of each class.
 *
 * e2e_calls N THREADS [fork]: the main thread makes N launches, N copies back and N round trips,
 * asks N times where a variable lies and gives a graph's kernel new arguments N times, and one
 * block that is too large; each of the threads makes N queries of the current device. With "fork" a
 * child calls cuDriverGetVersion, too. Prints "done" and waits for the end of stdin.
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const char variable_ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                                   ".visible .global .align 4 .u32 variable;\n";
static int n;
static CUcontext context;

static void *query(void *unused)
{
    CUdevice device;
    (void)unused;
    DRV(cu.CtxSetCurrent(context));
    for (int i = 0; i < n; i++) {
        DRV(cu.CtxGetDevice(&device));
    }
    return NULL;
}

static void ask_for_variable(void)
{
    CUlibrary library;
    CUdeviceptr first = 0;
    CUdeviceptr again = 0;
    size_t bytes;
    DRV(cu.LibraryLoadData(&library, variable_ptx, NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < n; i++) {
        DRV(cu.LibraryGetGlobal(i ? &again : &first, &bytes, library, "variable"));
        check_true(bytes == 4 && (i == 0 || again == first), "the same variable");
    }
    DRV(cu.LibraryUnload(library));
}

static void set_arguments(CUfunction mix, void **params)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = mix,
                                      .gridDimX = 2,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 128,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < n; i++) {
        DRV(cu.GraphExecKernelNodeSetParams_v2(exec, node, &kernel));
    }
    kernel.blockDimX = 1 << 20;
    check_code(cu.GraphExecKernelNodeSetParams_v2(exec, node, &kernel), CUDA_ERROR_INVALID_VALUE,
               "a block that is too large");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

int main(int argc, char **argv)
{
    n = argc > 1 ? atoi(argv[1]) : 10;
    int n_threads = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t threads[64];
    CUmodule module;
    CUdeviceptr memory;
    uint32_t words[256];
    size_t free_bytes;
    size_t total_bytes;
    uint32_t count = 256;
    uint32_t a = 2;
    uint32_t b = 9;
    void *params[] = {&memory, &count, &a, &b};
    driver_begin("e2e_calls");
    DRV(cu.CtxGetCurrent(&context));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, sizeof(words)));
    memset(words, 0, sizeof(words));
    DRV(cu.MemcpyHtoD_v2(memory, words, sizeof(words)));
    CUfunction mix = driver_function(module, "mix");
    for (int i = 0; i < n; i++) {
        driver_launch(mix, 2, 128, NULL, params);
    }
    for (int i = 0; i < n; i++) {
        DRV(cu.MemcpyDtoH_v2(words, memory, sizeof(words)));
        DRV(cu.MemGetInfo_v2(&free_bytes, &total_bytes));
    }
    ask_for_variable();
    set_arguments(mix, params);
    for (int i = 0; i < n_threads && i < 64; i++) {
        pthread_create(&threads[i], NULL, query, NULL);
    }
    for (int i = 0; i < n_threads && i < 64; i++) {
        pthread_join(threads[i], NULL);
    }
    if (argc > 3 && strcmp(argv[3], "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            int version;
            _exit(cu.DriverGetVersion(&version) == CUDA_SUCCESS ? 0 : 1);
        }
        int status = 1;
        waitpid(child, &status, 0);
        check_int(status, 0, "the child's version");
    }
    printf("done\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return driver_end();
}
