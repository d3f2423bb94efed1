/* Attributes of functions and kernels, and occupancy. */
#include "softgpu/driver/forward.h"

#include <string.h>

static int optin_bytes(const struct weir_soft_device *device)
{
    int value = 0;
    (void)weir_soft_device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                     &value);
    return value;
}

static CUresult attribute_get(const struct weir_soft_function *f, CUfunction_attribute id,
                              int *value)
{
    const struct weir_exec_kernel_info *info = f->info;
    switch ((int)id) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)info->max_threads;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)info->static_shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)info->const_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)info->local_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)info->registers;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = (int)info->target;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = (int)f->object.ctx->device->compute_capability;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = f->max_dynamic_shared;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = f->carveout;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = f->non_portable_cluster;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = f->cluster_policy;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = info->cluster_must_be_set;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        *value = (int)info->required_cluster[0];
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        *value = (int)info->required_cluster[1];
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value = (int)info->required_cluster[2];
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult attribute_set(struct weir_soft_function *f, CUfunction_attribute id, int value)
{
    switch ((int)id) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 ||
            value > optin_bytes(f->object.ctx->device) - (int)f->info->static_shared_bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        f->max_dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        WEIR_FAIL_IF(value < -1 || value > 100, CUDA_ERROR_INVALID_VALUE);
        f->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        f->non_portable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        f->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_soft_function_here(CUfunction handle, struct weir_soft_function **ret_function)
{
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    return weir_soft_function_find(handle, ctx, ret_function);
}

CUresult weir_soft_cuFuncGetAttribute(int *value, CUfunction_attribute id, CUfunction handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!value, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_here(handle, &f));
    return attribute_get(f, id, value);
}

CUresult weir_soft_cuFuncSetAttribute(CUfunction handle, CUfunction_attribute id, int value)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_TRY(weir_soft_function_here(handle, &f));
    return attribute_set(f, id, value);
}

CUresult weir_soft_cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF((unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
                 CUDA_ERROR_INVALID_VALUE);
    return weir_soft_function_here(handle, &f);
}

CUresult weir_soft_function_parameter(const struct weir_soft_function *f, size_t index,
                                      size_t *offset, size_t *bytes)
{
    WEIR_FAIL_IF(!offset || index >= f->info->n_params, CUDA_ERROR_INVALID_VALUE);
    *offset = f->info->params[index].offset;
    WEIR_GIVE(bytes, f->info->params[index].bytes);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuFuncLoad(CUfunction handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    return weir_soft_function_here(handle, &f);
}

/* ------------------------------------------------------------------ kernels */

/* Find a kernel's function on a device, in the device's primary context or the current one. */
static CUresult kernel_function(CUkernel handle, CUdevice dev, struct weir_soft_kernel **ret_kernel,
                                struct weir_soft_function **ret_function)
{
    struct weir_soft_kernel *kernel = weir_soft_object_find(WEIR_SOFT_KERNEL, handle);
    struct weir_soft_device *device = weir_soft_device_at(dev);
    struct weir_soft_ctx *ctx;
    WEIR_FAIL_IF(!kernel, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    if (weir_soft_ctx_current(&ctx) != CUDA_SUCCESS || ctx->device != device) {
        ctx = device->primary;
    }
    *ret_kernel = kernel;
    return weir_soft_function_find(handle, ctx, ret_function);
}

CUresult weir_soft_cuKernelGetAttribute(int *value, CUfunction_attribute id, CUkernel handle,
                                        CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_kernel *kernel;
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!value, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(kernel_function(handle, dev, &kernel, &f));
    return attribute_get(f, id, value);
}

CUresult weir_soft_cuKernelSetAttribute(CUfunction_attribute id, int value, CUkernel handle,
                                        CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_kernel *kernel;
    struct weir_soft_function *f;
    WEIR_TRY(kernel_function(handle, dev, &kernel, &f));
    WEIR_TRY(attribute_set(f, id, value));
    kernel->max_dynamic_shared[dev] = f->max_dynamic_shared;
    kernel->carveout = f->carveout;
    kernel->cluster_policy = f->cluster_policy;
    kernel->non_portable_cluster = f->non_portable_cluster;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_kernel *kernel;
    struct weir_soft_function *f;
    WEIR_FAIL_IF((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(kernel_function(handle, dev, &kernel, &f));
    f->cache = config;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset,
                                        size_t *bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_kernel *kernel;
    struct weir_soft_function *f;
    WEIR_TRY(kernel_function(handle, 0, &kernel, &f));
    return weir_soft_function_parameter(f, index, offset, bytes);
}

/* ------------------------------------------------------------------ occupancy */

static int blocks_per_sm(const struct weir_soft_function *f, int threads, size_t shared_bytes)
{
    if (threads <= 0 || threads > (int)f->info->max_threads || shared_bytes > INT32_MAX) {
        return 0;
    }
    return (int)weir_exec_occupancy(f->object.ctx->device->engine, f->kernel, (uint32_t)threads,
                                    (uint32_t)shared_bytes);
}

CUresult weir_soft_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *n_blocks, CUfunction handle, int threads, size_t shared_bytes, unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!n_blocks || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_here(handle, &f));
    *n_blocks = blocks_per_sm(f, threads, shared_bytes);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block,
                                                             CUfunction handle,
                                                             CUoccupancyB2DSize shared_of,
                                                             size_t shared_bytes, int limit,
                                                             unsigned int flags)
{
    WEIR_FAIL_IF(!min_grid || !block || limit < 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE,
                 CUDA_ERROR_INVALID_VALUE);
    int max_threads, best = 0, best_threads = 0, sm_count = 0;
    WEIR_TRY(weir_soft_cuFuncGetAttribute(&max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                          handle));
    limit = limit == 0 || limit > max_threads ? max_threads : limit;
    for (int threads = limit; threads > 0; threads = (threads - 1) & ~31) {
        int n_blocks;
        size_t shared = shared_of ? shared_of(threads) : shared_bytes; /* no lock held */
        WEIR_TRY(weir_soft_cuOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, handle, threads,
                                                                       shared));
        if (n_blocks * threads > best) {
            best = n_blocks * threads;
            best_threads = threads;
        }
    }
    struct weir_soft_ctx *ctx;
    WEIR_SOFT_LOCKED();
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    sm_count = (int)ctx->device->usable_sms;
    *block = best_threads;
    *min_grid = best_threads == 0 ? 0 : best / best_threads * sm_count;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction handle,
                                                           int n_blocks, int threads)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!bytes || n_blocks <= 0 || threads <= 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_here(handle, &f));
    int high = optin_bytes(f->object.ctx->device) - (int)f->info->static_shared_bytes;
    WEIR_FAIL_IF(blocks_per_sm(f, threads, 0) < n_blocks, CUDA_ERROR_INVALID_VALUE);
    int low = 0;
    while (low < high) { /* find the most bytes with which n_blocks still fit */
        int mid = (low + high + 1) / 2;
        if (blocks_per_sm(f, threads, (size_t)mid) >= n_blocks) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    *bytes = (size_t)low;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle,
                                                      const CUlaunchConfig *config)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!size || !config, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_here(handle, &f));
    *size = f->non_portable_cluster ? 16 : 8;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuOccupancyMaxActiveClusters(int *n_clusters, CUfunction handle,
                                                const CUlaunchConfig *config)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_function *f;
    WEIR_FAIL_IF(!n_clusters || !config || (config->numAttrs > 0 && !config->attrs),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_here(handle, &f));
    int size = 1;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        WEIR_TRY(weir_soft_attribute_check((unsigned)a->id, &a->value));
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            size = (int)(a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z);
        }
    }
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
    int per_sm = threads > 1024 ? 0 : blocks_per_sm(f, (int)threads, config->sharedMemBytes);
    *n_clusters = per_sm * (int)f->object.ctx->device->usable_sms / WEIR_MAX(size, 1);
    return CUDA_SUCCESS;
}
