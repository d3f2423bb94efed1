/* Launches. The call checks geometry and resources, since programs find limits so. */
#include "base/log.h"
#include "softgpu/driver/driver.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BLOCK_THREADS 1024u
#define MAX_PARAM_BYTES   32764u

static CUresult check_geometry(const struct weir_soft_launch_args *args,
                               const struct weir_soft_function *function)
{
    const struct weir_exec_kernel_info *info = function->info;
    const unsigned *g = args->grid, *b = args->block;
    if (g[0] == 0 || g[1] == 0 || g[2] == 0 || b[0] == 0 || b[1] == 0 || b[2] == 0 ||
        g[0] > 2147483647u || g[1] > 65535 || g[2] > 65535 || b[0] > 1024 || b[1] > 1024 ||
        b[2] > 64) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t threads = b[0] * b[1] * b[2];
    WEIR_FAIL_IF(threads > MAX_BLOCK_THREADS || threads > info->max_threads,
                 CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++) {
        WEIR_FAIL_IF(info->required_block[i] != 0 && info->required_block[i] != b[i],
                     CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static CUresult check_resources(const struct weir_soft_launch_args *args,
                                const struct weir_soft_ctx *ctx,
                                const struct weir_soft_function *function, bool cooperative)
{
    const struct weir_exec_kernel_info *info = function->info;
    if (info->unsupported) {
        weir_log_warn("softgpu: kernel %s cannot run: %s", info->name, info->unsupported);
        return info->launches ? CUDA_ERROR_CDP_NOT_SUPPORTED : CUDA_ERROR_NOT_SUPPORTED;
    }
    WEIR_FAIL_IF(args->shared_bytes > (unsigned)function->max_dynamic_shared,
                 CUDA_ERROR_INVALID_VALUE);
    uint32_t threads = args->block[0] * args->block[1] * args->block[2];
    uint32_t per_sm =
        weir_exec_occupancy(ctx->device->engine, function->kernel, threads, args->shared_bytes);
    WEIR_FAIL_IF(per_sm == 0, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    uint64_t blocks = (uint64_t)args->grid[0] * args->grid[1] * args->grid[2];
    uint32_t n_sms = args->sms ? weir_exec_sms_count(args->sms) : ctx->device->usable_sms;
    WEIR_FAIL_IF(cooperative && blocks > (uint64_t)per_sm * n_sms,
                 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return CUDA_SUCCESS;
}

static CUresult read_extra(void **extra, const void **ret_data, size_t *ret_bytes)
{
    const void *data = NULL;
    const size_t *bytes = NULL;
    for (int i = 0; i < 4 && extra[0] != CU_LAUNCH_PARAM_END; i += 2, extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            data = extra[1];
        } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    WEIR_FAIL_IF(!bytes || (!data && *bytes != 0), CUDA_ERROR_INVALID_VALUE);
    *ret_data = data;
    *ret_bytes = *bytes;
    return CUDA_SUCCESS;
}

static CUresult pack_params(struct weir_soft_op_kernel *k, const struct weir_soft_launch_args *args)
{
    const struct weir_exec_kernel_info *info = k->function->info;
    k->params_bytes = info->param_bytes;
    k->params = calloc(1, info->param_bytes + 8u);
    k->pointers = calloc(info->n_params + 1u, sizeof(void *));
    WEIR_FAIL_IF(!k->params || !k->pointers, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < info->n_params; i++) {
        k->pointers[i] = (char *)k->params + info->params[i].offset;
    }
    if (args->extra) {
        const void *data;
        size_t bytes;
        WEIR_TRY(read_extra(args->extra, &data, &bytes));
        WEIR_FAIL_IF(bytes > MAX_PARAM_BYTES, CUDA_ERROR_INVALID_VALUE);
        if (bytes > 0) {
            memcpy(k->params, data, WEIR_MIN(bytes, info->param_bytes));
        }
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(info->n_params > 0 && !args->params, CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < info->n_params; i++) {
        WEIR_FAIL_IF(!args->params[i], CUDA_ERROR_INVALID_VALUE);
        memcpy(k->pointers[i], args->params[i], info->params[i].bytes);
    }
    return CUDA_SUCCESS;
}

/* Blocks of a cluster: with cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED), and without. */
#define MAX_CLUSTER          16u
#define MAX_PORTABLE_CLUSTER 8u

CUresult weir_soft_attribute_check(unsigned id, const CUlaunchAttributeValue *v)
{
    WEIR_FAIL_IF(id >= WEIR_SOFT_LAUNCH_ATTRIBUTES, CUDA_ERROR_INVALID_VALUE);
    if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
        (v->clusterDim.x > MAX_CLUSTER || v->clusterDim.y > MAX_CLUSTER ||
         v->clusterDim.z > MAX_CLUSTER ||
         v->clusterDim.x * v->clusterDim.y * v->clusterDim.z > MAX_CLUSTER)) {
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
        v->deviceUpdatableKernelNode.deviceUpdatable != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* Read the launch attributes. Those that only tune performance are accepted and have no effect. */
static CUresult take_attributes(struct weir_soft_op_kernel *k, const CUlaunchAttribute *attributes,
                                unsigned n)
{
    WEIR_FAIL_IF(n > 0 && !attributes, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < n; i++) {
        unsigned id = (unsigned)attributes[i].id;
        const CUlaunchAttributeValue *v = &attributes[i].value;
        WEIR_TRY(weir_soft_attribute_check(id, v));
        if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            k->cooperative = v->cooperative != 0;
        } else if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            k->priority = v->priority;
        }
        k->attributes[id] = *v;
        k->attributes_set |= 1u << id;
    }
    return CUDA_SUCCESS;
}

/* Check that clusters divide the grid, have the kernel's size, and are not too large. */
static CUresult check_cluster(const struct weir_soft_op_kernel *k,
                              const struct weir_soft_function *function)
{
    const uint32_t *required = function->info->required_cluster;
    bool set = (k->attributes_set & 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) != 0;
    const CUlaunchAttributeValue *v = &k->attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION];
    const uint32_t asked[3] = {set ? v->clusterDim.x : 0, set ? v->clusterDim.y : 0,
                               set ? v->clusterDim.z : 0};
    uint32_t n = 1;
    for (int d = 0; d < 3; d++) {
        uint32_t size = asked[d] != 0 ? asked[d] : required[d] != 0 ? required[d] : 1;
        if ((required[d] != 0 && size != required[d]) || k->grid[d] % size != 0 ||
            size > MAX_CLUSTER) {
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        n *= size;
    }
    uint32_t most = function->non_portable_cluster ? MAX_CLUSTER : MAX_PORTABLE_CLUSTER;
    return n <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult weir_soft_launch_make(struct weir_soft_ctx *ctx, const struct weir_soft_launch_args *args,
                               struct weir_soft_op **ret_op)
{
    struct weir_soft_function *function;
    WEIR_FAIL_IF(args->params && args->extra, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_function_find(args->function, ctx, &function));
    WEIR_TRY(check_geometry(args, function));
    struct weir_soft_op *op = weir_soft_op_new(WEIR_SOFT_OP_KERNEL, ctx);
    WEIR_FAIL_IF(!op, CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_soft_op_kernel *k = &op->kernel;
    k->function = weir_soft_object_ref(function);
    k->handle = args->function;
    memcpy(k->grid, args->grid, sizeof(k->grid));
    memcpy(k->block, args->block, sizeof(k->block));
    k->shared_bytes = args->shared_bytes;
    k->cooperative = args->cooperative;
    if (args->sms) {
        k->in_part = true;
        k->sms = *args->sms;
    }
    CUresult result = take_attributes(k, args->attributes, args->n_attributes);
    WEIR_THEN(result, check_cluster(k, function));
    WEIR_THEN(result, check_resources(args, ctx, function, k->cooperative));
    WEIR_THEN(result, pack_params(k, args));
    if (result != CUDA_SUCCESS) {
        weir_soft_op_put(op);
        return result;
    }
    *ret_op = op;
    return CUDA_SUCCESS;
}

static CUresult launch(struct weir_soft_launch_args *args, CUstream stream_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_stream *stream;
    struct weir_soft_op *op;
    WEIR_TRY(weir_soft_stream_find(stream_handle, &stream));
    struct weir_soft_ctx *current;
    WEIR_TRY(weir_soft_ctx_current(&current));
    WEIR_FAIL_IF(stream->object.ctx->device != current->device, CUDA_ERROR_INVALID_HANDLE);
    args->sms = stream->green ? &stream->green->sms : NULL;
    WEIR_TRY(weir_soft_launch_make(stream->object.ctx, args, &op));
    CUevent events[2] = {NULL, NULL};
    const struct weir_soft_op_kernel *k = &op->kernel;
    if ((k->attributes_set >> CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT & 1u) != 0) {
        events[0] = k->attributes[CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT].programmaticEvent.event;
    }
    if ((k->attributes_set >> CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT & 1u) != 0) {
        events[1] =
            k->attributes[CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT].launchCompletionEvent.event;
    }
    WEIR_TRY(weir_soft_stream_submit(stream, op));
    for (int i = 0; i < 2; i++) {
        struct weir_soft_event *event;
        if (events[i]) {
            WEIR_TRY(weir_soft_event_find(events[i], &event));
            WEIR_TRY(weir_soft_event_record(event, stream, 0));
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                  unsigned int bx, unsigned int by, unsigned int bz,
                                  unsigned int shared_bytes, CUstream stream, void **params,
                                  void **extra)
{
    struct weir_soft_launch_args args = {.function = f,
                                         .grid = {gx, gy, gz},
                                         .block = {bx, by, bz},
                                         .shared_bytes = shared_bytes,
                                         .params = params,
                                         .extra = extra};
    return launch(&args, stream);
}

CUresult weir_soft_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                                    void **extra, CUstream default_stream)
{
    WEIR_FAIL_IF(!config, CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_launch_args args = {
        .function = f,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
        .params = params,
        .extra = extra,
        .attributes = config->attrs,
        .n_attributes = config->numAttrs};
    return launch(&args, config->hStream ? config->hStream : default_stream);
}

CUresult weir_soft_cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
                                             unsigned int gz, unsigned int bx, unsigned int by,
                                             unsigned int bz, unsigned int shared_bytes,
                                             CUstream stream, void **params)
{
    struct weir_soft_launch_args args = {.function = f,
                                         .grid = {gx, gy, gz},
                                         .block = {bx, by, bz},
                                         .shared_bytes = shared_bytes,
                                         .cooperative = true,
                                         .params = params};
    return launch(&args, stream);
}
