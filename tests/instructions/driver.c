/* See driver.h. */
#include "tests/instructions/driver.h"

#include "proto/cuda_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDriverGetVersion)                                                                          \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetName)                                                                             \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuModuleLoadDataEx)                                                                          \
    F(cuModuleUnload)                                                                              \
    F(cuModuleGetFunction)                                                                         \
    F(cuLaunchKernel)                                                                              \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemcpyHtoD_v2)                                                                             \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemsetD8_v2)                                                                               \
    F(cuGetErrorName)

static struct {
#define F(name) __typeof__(name) *name;
    FUNCTIONS(F)
#undef F
} cu;

static const char *error_name(CUresult code)
{
    const char *name = NULL;
    return cu.cuGetErrorName(code, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

static void must(CUresult code, const char *what)
{
    if (code != CUDA_SUCCESS) {
        fprintf(stderr, "instructions: %s: %s\n", what, error_name(code));
        exit(77);
    }
}

void driver_open(const char *library, struct driver_device *ret_device)
{
    setenv("CUDA_CACHE_DISABLE", "1", 1); /* translate anew, and leave nothing behind */
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "instructions: %s\n", dlerror());
        exit(77);
    }
#define F(name)                                                                                    \
    *(void **)&cu.name = dlsym(handle, #name);                                                     \
    if (!cu.name) {                                                                                \
        fprintf(stderr, "instructions: %s has no " #name "\n", library);                           \
        exit(77);                                                                                  \
    }
    FUNCTIONS(F)
#undef F
    CUdevice device;
    CUcontext context;
    int major = 0;
    int minor = 0;
    must(cu.cuInit(0), "cuInit");
    must(cu.cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cu.cuDriverGetVersion(&ret_device->driver_version), "cuDriverGetVersion");
    must(cu.cuDeviceGetName(ret_device->name, sizeof ret_device->name, device), "cuDeviceGetName");
    must(cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
         "cuDeviceGetAttribute");
    must(cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
         "cuDeviceGetAttribute");
    ret_device->capability = major * 10 + minor;
    must(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

struct text {
    char *to;
    size_t bytes;
};

static enum driver_outcome failed(struct text why, const char *what, CUresult code, bool broken)
{
    snprintf(why.to, why.bytes, "%s: %s", what, error_name(code));
    return broken ? DRIVER_BROKEN : DRIVER_REFUSED;
}

static CUresult load(const char *text, CUmodule *ret_module, char *log, size_t log_bytes)
{
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)log_bytes};
    log[0] = '\0';
    return cu.cuModuleLoadDataEx(ret_module, text, 2, options, values);
}

static enum driver_outcome launch(const struct test_case *c, CUfunction kernel, CUdeviceptr in,
                                  CUdeviceptr out, void *outputs, struct text why)
{
    uint32_t threads = c->threads;
    void *params[] = {&in, &out, &threads};
    CUresult code = cu.cuLaunchKernel(kernel, c->threads / c->block, 1, 1, c->block, 1, 1, 0, NULL,
                                      params, NULL);
    if (code != CUDA_SUCCESS) {
        return failed(why, "cuLaunchKernel", code, false);
    }
    code = cu.cuCtxSynchronize();
    if (code != CUDA_SUCCESS) {
        return failed(why, "the kernel", code, true);
    }
    code = cu.cuMemcpyDtoH_v2(outputs, out, case_output_bytes(c));
    return code == CUDA_SUCCESS ? DRIVER_OK : failed(why, "cuMemcpyDtoH", code, true);
}

static enum driver_outcome run_module(const struct test_case *c, CUmodule module,
                                      const uint64_t *inputs, void *outputs, struct text why)
{
    CUfunction kernel;
    CUdeviceptr in = 0;
    CUdeviceptr out = 0;
    size_t in_bytes = case_input_bytes(c) + 8;
    CUresult code = cu.cuModuleGetFunction(&kernel, module, "test");
    if (code != CUDA_SUCCESS) {
        return failed(why, "cuModuleGetFunction", code, false);
    }
    must(cu.cuMemAlloc_v2(&in, in_bytes), "cuMemAlloc");
    must(cu.cuMemAlloc_v2(&out, case_output_bytes(c)), "cuMemAlloc");
    must(cu.cuMemsetD8_v2(out, 0xee, case_output_bytes(c)), "cuMemsetD8");
    must(cu.cuMemcpyHtoD_v2(in, inputs, case_input_bytes(c) + 8), "cuMemcpyHtoD");
    enum driver_outcome outcome = launch(c, kernel, in, out, outputs, why);
    if (outcome != DRIVER_BROKEN) {
        must(cu.cuMemFree_v2(in), "cuMemFree");
        must(cu.cuMemFree_v2(out), "cuMemFree");
    }
    return outcome;
}

enum driver_outcome driver_run(const struct test_case *c, const uint64_t *inputs, void *outputs,
                               char *why, size_t why_bytes)
{
    struct text text = {why, why_bytes};
    char log[1000];
    CUmodule module;
    CUresult code = load(c->text, &module, log, sizeof log);
    if (code != CUDA_SUCCESS) {
        log[strcspn(log, "\n")] = '\0';
        snprintf(why, why_bytes, "does not load: %s %s", error_name(code), log);
        return DRIVER_REFUSED;
    }
    enum driver_outcome outcome = run_module(c, module, inputs, outputs, text);
    if (outcome != DRIVER_BROKEN) {
        must(cu.cuModuleUnload(module), "cuModuleUnload");
    }
    return outcome;
}
