/* What softgpu's driver tests share: a context, and a module with two small kernels. */
#pragma once

#include "proto/cuda_abi.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those before it. */
#include <cmocka.h>

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

static inline int enter_context(void **state)
{
    CUcontext ctx;
    (void)state;
    return cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS ||
           cuCtxSetCurrent(ctx) != CUDA_SUCCESS;
}

static inline int leave_context(void **state)
{
    (void)state;
    return cuDevicePrimaryCtxRelease_v2(0) != CUDA_SUCCESS;
}

/* A file of tests/data/fatbin, NUL behind it; the caller frees. */
static inline char *sample_read(const char *name, size_t *ret_bytes)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/fatbin/%s", WEIR_TEST_DATA, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = calloc(1, 65536);
    assert_non_null(data);
    *ret_bytes = fread(data, 1, 65535, file);
    fclose(file);
    return data;
}

static inline CUmodule sample_module(const char *name)
{
    size_t bytes;
    CUmodule module;
    char *data = sample_read(name, &bytes);
    OK(cuModuleLoadData(&module, data));
    free(data);
    return module;
}

static inline CUfunction sample_function(CUmodule module, const char *name)
{
    CUfunction function;
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static inline CUdevResource sms_whole(void)
{
    CUdevResource resource;
    OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    return resource;
}

/* Groups of so many SMs of device 0; how many there are. */
static inline uint32_t sms_cut(CUdevResource *groups, uint32_t n, uint32_t least)
{
    CUdevResource all = sms_whole();
    OK(cuDevSmResourceSplitByCount(groups, &n, &all, NULL, 0, least));
    return n;
}
