/*
 * Device resources: the SMs of a device, cut into parts for green contexts.
 *
 * A resource is a struct that the program keeps. The bytes reserved for the driver say which SMs it
 * has and which cut it came from; they are checked whenever the program passes a resource. A cut
 * reserves nothing: two identical cuts give the same parts, and green contexts of both share their
 * SMs.
 *
 * The SMs are ordered so that those of one host thread are neighbours, and a part is a run of
 * neighbours. So different parts run on different threads, if there are enough. As on a GPU, a
 * part's %smid values have gaps. A part has a multiple of two SMs, or any number with
 * CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING. Compute capability 9.0 has multiples of eight,
 * which could not cut a device of 8 SMs.
 */
#include "softgpu/driver/driver.h"

#include <string.h>

#define PART_SMS 2u
#define MAGIC    0x72697357u

/* Contents of the driver's bytes in a CUdevResource. */
struct resource_data {
    uint32_t magic;
    int device;
    uint64_t cut; /* number of the cut (one call) that made it; 0: none */
    struct weir_exec_sms sms;
};
_Static_assert(sizeof(struct resource_data) <= sizeof(((CUdevResource *)0)->_internal_padding),
               "the driver's own bytes");

/* ------------------------------------------------------------------ to and from the program */

static uint32_t step_of(uint32_t n_sms, unsigned flags)
{
    return n_sms < PART_SMS || (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0
               ? 1
               : PART_SMS;
}

static void resource_write(CUdevResource *resource, const struct resource_data *data,
                           unsigned flags)
{
    uint32_t n_sms = weir_exec_sms_count(&data->sms);
    memset(resource, 0, sizeof(*resource));
    if (n_sms == 0) { /* the remainder is empty */
        resource->type = CU_DEV_RESOURCE_TYPE_INVALID;
        return;
    }
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    memcpy(resource->_internal_padding, data, sizeof(*data));
    resource->sm.smCount = n_sms;
    resource->sm.minSmPartitionSize = step_of(n_sms, flags);
    resource->sm.smCoscheduledAlignment = step_of(n_sms, flags);
}

static CUresult resource_read(const CUdevResource *resource, struct resource_data *ret_data)
{
    WEIR_FAIL_IF(resource->type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    memcpy(ret_data, resource->_internal_padding, sizeof(*ret_data));
    const struct weir_soft_device *device =
        ret_data->magic == MAGIC ? weir_soft_device_at(ret_data->device) : NULL;
    if (!device || resource->sm.smCount == 0 ||
        resource->sm.smCount != weir_exec_sms_count(&ret_data->sms)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t sm = device->sm_count; sm < WEIR_EXEC_MAX_SMS; sm++) {
        WEIR_FAIL_IF(weir_exec_sms_has(&ret_data->sms, sm), CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_resource_get(const struct weir_soft_device *device,
                                const struct weir_exec_sms *sms, CUdevResource *resource,
                                CUdevResourceType type)
{
    struct resource_data data = {.magic = MAGIC, .device = device->ordinal};
    WEIR_FAIL_IF(!resource, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    for (uint32_t sm = 0; sm < device->sm_count; sm++) {
        if (weir_exec_sms_has(sms ? sms : &device->sms, sm)) {
            weir_exec_sms_add(&data.sms, sm);
        }
    }
    resource_write(resource, &data, 0);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceGetDevResource(CUdevice dev, CUdevResource *resource,
                                          CUdevResourceType type)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    return !device ? CUDA_ERROR_INVALID_DEVICE
                   : weir_soft_resource_get(device, NULL, resource, type);
}

CUresult weir_soft_cuCtxGetDevResource(CUcontext handle, CUdevResource *resource,
                                       CUdevResourceType type)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_find(handle, &ctx));
    return weir_soft_resource_get(ctx->device, NULL, resource, type);
}

/* ------------------------------------------------------------------ cuts */

/* The next `n` SMs of a resource, from this place of the device's row on. */
static struct weir_exec_sms take_sms(const struct weir_soft_device *device,
                                     const struct weir_exec_sms *from, uint32_t *place, uint32_t n)
{
    struct weir_exec_sms taken = {{0}};
    for (; n > 0 && *place < device->sm_count; ++*place) {
        uint32_t sm = weir_exec_sm_at(device->engine, *place);
        if (weir_exec_sms_has(from, sm)) {
            weir_exec_sms_add(&taken, sm);
            n--;
        }
    }
    return taken;
}

static CUresult check_flags(const struct weir_soft_device *device, unsigned flags)
{
    /* Both flags concern cluster sizes, but here any cluster runs on one host thread. */
    unsigned known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    if (device->compute_capability >= 90) {
        known |= CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    }
    return (flags & ~known) != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult weir_soft_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *n_groups,
                                               const CUdevResource *input, CUdevResource *remaining,
                                               unsigned int flags, unsigned int least)
{
    WEIR_SOFT_LOCKED();
    struct resource_data whole;
    WEIR_FAIL_IF(!n_groups || !input || (result && *n_groups == 0), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(resource_read(input, &whole));
    struct weir_soft_device *device = weir_soft_device_at(whole.device);
    struct weir_exec_device *engine;
    WEIR_TRY(check_flags(device, flags));
    uint32_t n_sms = weir_exec_sms_count(&whole.sms), step = step_of(n_sms, flags);
    WEIR_FAIL_IF(least > n_sms, CUDA_ERROR_INVALID_VALUE);
    uint32_t size = least <= step ? step : (least + step - 1) / step * step;
    WEIR_FAIL_IF(whole.cut != 0 || size > n_sms, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    WEIR_TRY(weir_soft_device_engine(device, &engine));
    uint32_t n = n_sms / size, place = 0;
    if (result && *n_groups < n) {
        n = *n_groups;
    }
    struct resource_data part = {.magic = MAGIC, .device = whole.device};
    part.cut = weir_soft_next_id();
    for (uint32_t i = 0; i < n; i++) {
        part.sms = take_sms(device, &whole.sms, &place, size);
        if (result) {
            resource_write(&result[i], &part, flags);
        }
    }
    if (remaining) { /* the output may overlap the input, which has been read already */
        part.sms = take_sms(device, &whole.sms, &place, n_sms);
        resource_write(remaining, &part, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING);
    }
    *n_groups = n;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ descriptors */

struct same_desc {
    const struct weir_soft_device *device;
    const struct weir_exec_sms *sms;
    struct weir_soft_resource_desc *found;
};

static void compare_desc(void *object, void *user)
{
    struct weir_soft_resource_desc *desc = object;
    struct same_desc *same = user;
    if (desc->device == same->device && memcmp(&desc->sms, same->sms, sizeof(desc->sms)) == 0) {
        same->found = desc;
    }
}

/* Descriptors never change and nothing destroys them: there is one for each set of SMs. */
static CUresult desc_of(struct weir_soft_device *device, const struct weir_exec_sms *sms,
                        CUdevResourceDesc *ret)
{
    struct same_desc same = {.device = device, .sms = sms};
    weir_soft_object_visit(WEIR_SOFT_RESOURCE_DESC, compare_desc, &same);
    if (!same.found) {
        same.found = weir_soft_object_new(WEIR_SOFT_RESOURCE_DESC, sizeof(*same.found), NULL, NULL);
        WEIR_FAIL_IF(!same.found, CUDA_ERROR_OUT_OF_MEMORY);
        same.found->device = device;
        same.found->sms = *sms;
    }
    *ret = (CUdevResourceDesc)same.found;
    return CUDA_SUCCESS;
}

/* Add a resource to a sum. All must come from one cut, and none may occur twice. */
static CUresult sum_up(struct resource_data *sum, const struct resource_data *part)
{
    WEIR_FAIL_IF(part->device != sum->device || part->cut == 0 || part->cut != sum->cut,
                 CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    for (uint32_t sm = 0; sm < WEIR_EXEC_MAX_SMS; sm++) {
        if (weir_exec_sms_has(&part->sms, sm)) {
            WEIR_FAIL_IF(weir_exec_sms_has(&sum->sms, sm),
                         CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
            weir_exec_sms_add(&sum->sms, sm);
        }
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDevResourceGenerateDesc(CUdevResourceDesc *ret, CUdevResource *resources,
                                             unsigned int n)
{
    WEIR_SOFT_LOCKED();
    struct resource_data sum, part;
    WEIR_FAIL_IF(!ret || !resources || n == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(resource_read(&resources[0], &sum));
    for (unsigned i = 1; i < n; i++) {
        WEIR_TRY(resource_read(&resources[i], &part));
        WEIR_TRY(sum_up(&sum, &part));
    }
    return desc_of(weir_soft_device_at(sum.device), &sum.sms, ret);
}
