/* A part of a device by a green context: see part.h. */
#include "host_backend/worker/device/part.h"

#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/streams.h"
#include "proto/driver_table.h"
#include <stdlib.h>

struct weir_part {
    const struct weir_driver *driver;
    CUgreenCtx ctx; /* NULL: not made */
    uint32_t sms;   /* the number of SMs that was asked for */
};

/* ---------------------------------------------------------------- making */

/* The device's SMs in groups as small as it allows. NULL: it cannot be divided. */
static CUdevResource *split(const struct weir_driver *d, CUdevice device, unsigned *ret_n)
{
    CUdevResource whole, *groups;
    unsigned n = 0;

    if (d->cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
        d->cuDevSmResourceSplitByCount(NULL, &n, &whole, NULL, 0, 1) != CUDA_SUCCESS || n == 0) {
        return NULL;
    }
    groups = calloc(n, sizeof *groups);
    if (!groups || d->cuDevSmResourceSplitByCount(groups, &n, &whole, NULL, 0, 1) != CUDA_SUCCESS) {
        free(groups);
        return NULL;
    }
    *ret_n = n;
    return groups;
}

/* How many of the first groups have sms SMs together. 0: only all groups together have as many. */
static unsigned groups_with(const CUdevResource *group, unsigned groups, uint32_t sms)
{
    unsigned n = 0;

    for (uint32_t have = 0; n < groups && have < sms; n++) {
        have += group[n].sm.smCount;
    }
    return n < groups ? n : 0;
}

bool weir_part_is_possible(const struct weir_driver *driver, CUdevice device, uint32_t sms)
{
    unsigned groups = 0;
    CUdevResource *group = split(driver, device, &groups);
    bool possible = groups_with(group, groups, sms) != 0;

    free(group);
    return possible;
}

/* A green context of the first groups. */
static bool make_context(struct weir_part *part, CUdevice device)
{
    const struct weir_driver *d = part->driver;
    unsigned groups = 0;
    CUdevResource *group = split(d, device, &groups);
    unsigned n = groups_with(group, groups, part->sms);
    CUdevResourceDesc desc;
    bool good =
        n > 0 && d->cuDevResourceGenerateDesc(&desc, group, n) == CUDA_SUCCESS &&
        d->cuGreenCtxCreate(&part->ctx, desc, device, CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS;

    free(group);
    return good;
}

static CUresult make_stream(const struct weir_part *part, int priority, CUstream *ret_stream)
{
    return part->driver->cuGreenCtxStreamCreate(ret_stream, part->ctx, CU_STREAM_NON_BLOCKING,
                                                priority);
}

/* Do streams of the part and of the primary context take each other's events? */
static bool keeps_order(const struct weir_part *part)
{
    const struct weir_driver *d = part->driver;
    CUstream there = NULL, here = NULL;
    CUevent event = NULL;
    bool good = make_stream(part, 0, &there) == CUDA_SUCCESS &&
                d->cuStreamCreate(&here, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                weir_order_join(d, &event, here, there) == CUDA_SUCCESS &&
                weir_order_join(d, &event, there, here) == CUDA_SUCCESS &&
                d->cuStreamSynchronize(here) == CUDA_SUCCESS;

    if (event) {
        (void)d->cuEventDestroy_v2(event);
    }
    if (here) {
        (void)d->cuStreamDestroy_v2(here);
    }
    if (there) {
        (void)d->cuStreamDestroy_v2(there);
    }
    return good;
}

enum weir_status weir_part_create(const struct weir_driver *driver, CUdevice device, uint32_t sms,
                                  struct weir_part **ret_part)
{
    struct weir_part *part = calloc(1, sizeof *part);

    if (!part) {
        return WEIR_ERR_NO_MEMORY;
    }
    part->driver = driver;
    part->sms = sms;
    if (!make_context(part, device) || !keeps_order(part)) {
        weir_part_destroy(part);
        return WEIR_ERR_UNSUPPORTED;
    }
    *ret_part = part;
    return WEIR_OK;
}

void weir_part_destroy(struct weir_part *part)
{
    if (!part) {
        return;
    }
    if (part->ctx) {
        (void)part->driver->cuGreenCtxDestroy(part->ctx);
    }
    free(part);
}

uint32_t weir_part_sms(const struct weir_part *part)
{
    return part->sms;
}

/* ---------------------------------------------------------------- moving */

void weir_part_attribute_set(struct weir_host_stream *stream, CUlaunchAttributeID id)
{
    stream->part.set |= 1u << id;
}

/* Some drivers lack attributes in a green context: an attribute that is refused is left out. */
static void copy_attributes(const struct weir_driver *d, struct weir_host_stream *stream)
{
    struct weir_stream_part *p = &stream->part;

    for (unsigned id = 0; p->set != 0; id++, p->set >>= 1) {
        CUlaunchAttributeValue value;

        if ((p->set & 1) != 0 && d->cuStreamGetAttribute(stream->o.native, (CUlaunchAttributeID)id,
                                                         &value) == CUDA_SUCCESS) {
            (void)d->cuStreamSetAttribute(p->stream, (CUlaunchAttributeID)id, &value);
        }
    }
}

CUresult weir_part_move(const struct weir_part *part, struct weir_host_stream *stream, bool in,
                        int priority)
{
    struct weir_stream_part *p = &stream->part;

    if (in && !p->stream) {
        WEIR_TRY(make_stream(part, priority, &p->stream));
        p->priority = priority;
    }
    if (in) {
        weir_host_stream_set_priority(part->driver, p->stream, &p->priority, priority);
        copy_attributes(part->driver, stream);
    }
    if (p->in != in) {
        WEIR_TRY(weir_order_join(part->driver, &stream->join, weir_host_stream_at(stream),
                                 in ? p->stream : stream->o.native));
        p->in = in;
    }
    return CUDA_SUCCESS;
}

void weir_part_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream)
{
    if (stream->part.stream) {
        (void)driver->cuStreamDestroy_v2(stream->part.stream);
        stream->part = (struct weir_stream_part){0};
    }
}
