/*
 * Launches: the hottest path of the library.
 *
 * A launch whose configuration is certainly valid is posted. If the driver might refuse it (too
 * many threads, too much shared memory, clusters, cooperative), the guest waits for the driver's
 * result, which autotuners expect at once. The shapes of such launches that succeeded are kept with
 * the function, and later launches of the same shape are posted. A shape contains everything on
 * which the result depends, which mostly excludes the grid.
 */
#include "guest_lib/launch.h"
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
#include "guest_lib/register.h"
#include "guest_lib/stream.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

/* A launch of any kind. */
struct request {
    struct weir_launch_dims dims;
    CUstream stream;
    uint32_t flags;
    CUlaunchAttribute *attributes; /* this call's own copy */
    uint32_t n_attributes;
    void **params;
    void **extra;
};

static bool within(const uint32_t dims[3], const struct weir_guest_device *device,
                   CUdevice_attribute first)
{
    return !WEIR_ANY(i, 3, !dims[i] || dims[i] > (uint32_t)device->attributes[(int)first + i]);
}

/* Is the grid a multiple of the clusters? 0, 0, 0 means no clusters. */
static bool divides(const uint32_t cluster[3], const uint32_t grid[3])
{
    return !cluster[0] || (cluster[1] && cluster[2] && grid[0] % cluster[0] == 0 &&
                           grid[1] % cluster[1] == 0 && grid[2] % cluster[2] == 0);
}

/* Get the cluster size with which a kernel was compiled, if it has one. */
static void compiled_cluster(const struct weir_guest_function *function, uint32_t ret_cluster[3])
{
    for (int i = 0; i < 3; i++) {
        int id = (int)CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i;
        ret_cluster[i] =
            (function->attribute_mask >> id & 1) ? (uint32_t)function->attributes[id] : 0;
    }
}

/* Is the configuration valid, apart from what attributes and flags may change? */
static bool dims_good(const struct weir_guest_function *function,
                      const struct weir_launch_dims *dims, const struct weir_guest_ctx *ctx)
{
    const struct weir_guest_device *device = &weir_guest.devices[ctx->device];
    uint32_t cluster[3];
    compiled_cluster(function, cluster);
    return within(dims->block, device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) &&
           within(dims->grid, device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) &&
           divides(cluster, dims->grid);
}

/* Would the driver certainly accept the launch? If not, the guest waits for its result; that is no
 * error. */
static bool surely_good(struct weir_guest_function *function, const struct weir_launch_dims *dims,
                        const struct weir_guest_ctx *ctx)
{
    const uint32_t needed = 1u << CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK |
                            1u << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    struct weir_function_view view;
    if (!weir_function_on(function, ctx->device, &view) ||
        (__atomic_load_n(view.mask, __ATOMIC_ACQUIRE) & needed) != needed) {
        return false;
    }
    uint64_t threads = (uint64_t)dims->block[0] * dims->block[1] * dims->block[2];
    int32_t max_threads = __atomic_load_n(&view.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
                                          __ATOMIC_RELAXED);
    int32_t max_shared = __atomic_load_n(
        &view.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES], __ATOMIC_RELAXED);
    return threads <= (uint64_t)max_threads && dims->shared_bytes <= (uint32_t)max_shared &&
           dims_good(function, dims, ctx);
}

/*
 * Is the driver's result the same for every grid? It is if the grid is within the device's bounds
 * and a multiple of the clusters, except for cooperative launches, which must fit on the device at
 * once.
 */
static bool any_grid(const struct weir_guest_function *function, const struct request *request,
                     const struct weir_guest_ctx *ctx)
{
    if (request->flags || !dims_good(function, &request->dims, ctx)) {
        return false;
    }
    for (uint32_t i = 0; i < request->n_attributes; i++) {
        const CUlaunchAttributeValue *value = &request->attributes[i].value;
        bool cluster = request->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        const uint32_t dims[3] = {value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
        if (cluster && !divides(dims, request->dims.grid)) {
            return false;
        }
        if ((request->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value->cooperative) ||
            request->attributes[i].id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) {
            return false;
        }
    }
    return true;
}

/* Find the event in an attribute; NULL: the attribute has none. */
static CUevent *event_in(CUlaunchAttribute *attribute)
{
    switch ((unsigned int)attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return &attribute->value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return &attribute->value.launchCompletionEvent.event;
    default:
        return NULL;
    }
}

/* Hash everything that the driver's result depends on; 0 stands for "none". */
static uint64_t shape_of(const struct weir_guest_function *function, const struct request *request,
                         const struct weir_guest_ctx *ctx)
{
    struct {
        struct weir_launch_dims dims;
        uint32_t flags;
        CUdevice device;
        uint32_t epoch;
        CUlaunchAttribute attributes[WEIR_LAUNCH_ATTRIBUTES_MAX];
    } shape;
    size_t bytes = offsetof(__typeof__(shape), attributes) +
                   request->n_attributes * sizeof(shape.attributes[0]);
    memset(&shape, 0, bytes);
    shape.dims = request->dims;
    if (any_grid(function, request, ctx)) {
        memset(shape.dims.grid, 0, sizeof(shape.dims.grid));
    }
    shape.flags = request->flags;
    shape.device = ctx->device;
    shape.epoch = __atomic_load_n(&function->epoch, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < request->n_attributes; i++) {
        shape.attributes[i] = request->attributes[i];
        CUevent *event = event_in(&shape.attributes[i]);
        if (event) {
            *event = NULL; /* the shape is the same for any event */
        }
    }
    uint64_t hash = weir_hash64_of(&shape, bytes);
    return hash ? hash : 1;
}

/* Returns how many bytes of an attribute's value matter; 0: the attribute is not sent. */
static size_t attribute_bytes(CUlaunchAttributeID id)
{
    const CUlaunchAttributeValue *v = NULL;
    switch ((unsigned int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return sizeof(v->accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return sizeof(v->cooperative);
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return sizeof(v->syncPolicy);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        return sizeof(v->clusterDim);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return sizeof(v->clusterSchedulingPolicyPreference);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return sizeof(v->programmaticStreamSerializationAllowed);
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        return sizeof(v->priority);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return sizeof(v->memSyncDomainMap);
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return sizeof(v->memSyncDomain);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        return sizeof(v->preferredClusterDim);
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return sizeof(v->sharedMemCarveout);
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return sizeof(v->nvlinkUtilCentricScheduling);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return sizeof(v->programmaticEvent);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return sizeof(v->launchCompletionEvent);
    default:
        return 0; /* these attributes have handles for use on the device */
    }
}

CUresult weir_launch_attributes(const CUlaunchAttribute *attributes, uint32_t count,
                                CUlaunchAttribute *ret_attributes, uint32_t *ret_count)
{
    uint32_t kept = 0;
    WEIR_FAIL_IF(count && !attributes, CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < count; i++) {
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_IGNORE ||
            (attributes[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
             !attributes[i].value.deviceUpdatableKernelNode.deviceUpdatable)) {
            continue;
        }
        size_t bytes = attribute_bytes(attributes[i].id);
        WEIR_FAIL_IF(!bytes, CUDA_ERROR_NOT_SUPPORTED);
        WEIR_FAIL_IF(kept == WEIR_LAUNCH_ATTRIBUTES_MAX, CUDA_ERROR_INVALID_VALUE);
        /* Clear the bytes behind the value, which come from the caller's stack: shapes are compared
         * by bytes. */
        memset(&ret_attributes[kept], 0, sizeof(ret_attributes[kept]));
        ret_attributes[kept].id = attributes[i].id;
        memcpy(&ret_attributes[kept].value, &attributes[i].value, bytes);
        kept++;
    }
    *ret_count = kept;
    return CUDA_SUCCESS;
}

/* Read the buffer that `extra` names; its pairs may come in any order. */
static CUresult read_extra(void **extra, const void **ret_data, size_t *ret_bytes)
{
    const void *data = NULL;
    const size_t *bytes = NULL;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            data = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = extra[i + 1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    WEIR_FAIL_IF(!bytes || (*bytes && !data) || *bytes > WEIR_LAUNCH_PARAMS_MAX,
                 CUDA_ERROR_INVALID_VALUE);
    *ret_data = data;
    *ret_bytes = *bytes;
    return CUDA_SUCCESS;
}

/* @return false: an argument is missing */
static bool pack(const struct weir_guest_function *function, void **params, uint8_t *buffer)
{
    memset(buffer, 0, function->param_bytes);
    for (uint32_t i = 0; i < function->n_params; i++) {
        WEIR_FAIL_IF(!params[i], false);
        memcpy(buffer + function->params[i].offset, params[i], function->params[i].bytes);
    }
    return true;
}

CUresult weir_launch_params(const struct weir_guest_function *function, void **params, void **extra,
                            struct weir_launch_buffer *buffer)
{
    buffer->allocated = NULL;
    buffer->data = NULL;
    buffer->bytes = 0;
    if (extra) {
        size_t bytes;
        CUresult result =
            params ? CUDA_ERROR_INVALID_VALUE : read_extra(extra, &buffer->data, &bytes);
        if (result == CUDA_SUCCESS) {
            buffer->bytes = (uint32_t)bytes;
            result = weir_register_reach_words(buffer->data, bytes);
        }
        return result;
    }
    if (!function->n_params) {
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!params, CUDA_ERROR_INVALID_VALUE);
    uint8_t *to = buffer->small;
    if (function->param_bytes > sizeof(buffer->small)) {
        to = buffer->allocated = malloc(function->param_bytes);
        WEIR_FAIL_IF(!to, CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (!pack(function, params, to)) {
        free(buffer->allocated);
        return CUDA_ERROR_INVALID_VALUE;
    }
    buffer->data = to;
    buffer->bytes = function->param_bytes;
    CUresult result = weir_register_reach_words(to, buffer->bytes);
    if (result != CUDA_SUCCESS) {
        free(buffer->allocated);
    }
    return result;
}

static CUresult send(struct weir_guest_function *function, const struct request *request,
                     struct weir_guest_stream *stream, const struct weir_launch_buffer *buffer)
{
    const struct weir_op_launch_in in = {
        .f = function->handle,
        .grid = {request->dims.grid[0], request->dims.grid[1], request->dims.grid[2]},
        .block = {request->dims.block[0], request->dims.block[1], request->dims.block[2]},
        .shared_bytes = request->dims.shared_bytes,
        .flags = request->flags,
        .s = stream->handle,
        .attributes = request->attributes,
        .n_attributes = request->n_attributes,
        .params = buffer->data,
        .n_params = buffer->bytes,
    };
    bool special = request->flags || request->n_attributes;
    bool good = !special && surely_good(function, &request->dims, stream->ctx);
    uint64_t shape = good ? 0 : shape_of(function, request, stream->ctx);
    uint64_t *known = &function->good_shapes[shape % WEIR_FUNCTION_SHAPES];
    if (!good) {
        good = __atomic_load_n(known, __ATOMIC_RELAXED) == shape;
    }
    if (good && !weir_guest_capturing()) {
        return weir_post_launch(weir_guest_channel(), &in);
    }
    CUresult result = weir_call_launch(weir_guest_channel(), &in, NULL);
    if (result == CUDA_SUCCESS && shape) {
        __atomic_store_n(known, shape, __ATOMIC_RELAXED);
    }
    return result;
}

/* With several devices, the stream must belong to the current device, and a module's function to
 * the stream's device. Reads a kernel's properties on this device once. */
static CUresult check_device(struct weir_guest_function *function,
                             const struct weir_guest_stream *stream)
{
    CUdevice device = stream->ctx->device;
    if (device != weir_device_current() ||
        (function->module && function->module->ctx->device != device)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    int value;
    WEIR_TRY(
        weir_function_attribute(function, device, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &value));
    return weir_function_attribute(function, device,
                                   CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &value);
}

/* Like send(), for a launch with an event in its attributes; there is at most one. */
static CUresult send_with_event(struct weir_guest_function *function, const struct request *request,
                                struct weir_guest_stream *stream,
                                const struct weir_launch_buffer *buffer)
{
    struct weir_guest_event *event;
    CUevent *place = NULL;
    for (uint32_t i = 0; i < request->n_attributes; i++) {
        CUevent *found = event_in(&request->attributes[i]);
        WEIR_FAIL_IF(found && place, CUDA_ERROR_NOT_SUPPORTED);
        place = found ? found : place;
    }
    if (!place) {
        return send(function, request, stream, buffer);
    }
    CUresult result = weir_event_get(*place, &event);
    WEIR_THEN(result, weir_event_launch_begin(event, stream));
    return result != CUDA_SUCCESS
               ? result
               : weir_event_launch_end(event, stream, send(function, request, stream, buffer));
}

static CUresult launch(CUfunction f, const struct request *request)
{
    struct weir_guest_function *function = weir_function_get(f);
    struct weir_guest_stream *stream;
    struct weir_launch_buffer buffer;
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_guest_stream_get(request->stream, &stream));
    if (weir_guest.n_devices > 1) {
        WEIR_TRY(check_device(function, stream));
    }
    WEIR_TRY(weir_managed_before_launch());
    WEIR_TRY(weir_launch_params(function, request->params, request->extra, &buffer));
    if (weir_guest_capturing()) {
        weir_register_note_graph();
    }
    weir_register_before_launch();
    weir_guest_stream_work_begin(stream);
    CUresult result = send_with_event(function, request, stream, &buffer);
    free(buffer.allocated);
    return weir_guest_stream_work_end(stream, result);
}

CUresult weir_guest_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams, void **extra)
{
    const struct request request = {
        .dims = {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
        .stream = hStream,
        .params = kernelParams,
        .extra = extra,
    };
    return launch(f, &request);
}

CUresult weir_guest_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX,
                                              unsigned int gridDimY, unsigned int gridDimZ,
                                              unsigned int blockDimX, unsigned int blockDimY,
                                              unsigned int blockDimZ, unsigned int sharedMemBytes,
                                              CUstream hStream, void **kernelParams)
{
    const struct request request = {
        .dims = {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
        .stream = hStream,
        .flags = WEIR_LAUNCH_COOPERATIVE,
        .params = kernelParams,
    };
    return launch(f, &request);
}

CUresult weir_guest_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f,
                                     void **kernelParams, void **extra, CUstream default_stream)
{
    CUlaunchAttribute attributes[WEIR_LAUNCH_ATTRIBUTES_MAX];
    uint32_t count;
    WEIR_FAIL_IF(!config, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_launch_attributes(config->attrs, config->numAttrs, attributes, &count));
    const struct request request = {
        .dims = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
        .stream = config->hStream ? config->hStream : default_stream,
        .attributes = attributes,
        .n_attributes = count,
        .params = kernelParams,
        .extra = extra,
    };
    return launch(f, &request);
}
