/* Parts of a device by green contexts: see part.h. */
#include "host_backend/worker/device/part.h"

#include "base/thread.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/streams.h"
#include "proto/driver_table.h"
#include <stdlib.h>

struct weir_part {
    struct weir_parts *parts;
    CUgreenCtx green;            /* NULL: the place in the table is free */
    CUcontext context;           /* the same green context, in the form that graph nodes need */
    uint32_t sm_first, sm_count; /* as in struct weir_sched_place */
    uint32_t users;              /* users of the part; the table's lock guards all counts */
    uint64_t found;              /* value of parts->finds when the part was last found */
};

struct weir_parts {
    const struct weir_driver *driver;
    CUdevice device;
    pthread_mutex_t lock;
    uint64_t finds;
    bool keeps_order; /* the driver was seen to order streams of parts with other streams */
    struct weir_part part[WEIR_PARTS_MAX];
};

/* ---------------------------------------------------------------- dividing the device */

/* Divide the SMs into the first sms SMs and the others. */
static bool split(const struct weir_driver *d, CUdevice device, uint32_t sms,
                  CUdevResource *ret_first, CUdevResource *ret_rest)
{
    CUdevResource whole;
    unsigned groups = 1;

    return d->cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
           sms < whole.sm.smCount &&
           d->cuDevSmResourceSplitByCount(ret_first, &groups, &whole, ret_rest, 0, sms) ==
               CUDA_SUCCESS &&
           groups == 1 && ret_first->sm.smCount == sms &&
           ret_rest->sm.smCount == whole.sm.smCount - sms;
}

bool weir_part_is_possible(const struct weir_driver *driver, CUdevice device, uint32_t sms)
{
    CUdevResource first, rest;

    return split(driver, device, sms, &first, &rest);
}

static bool make_context(struct weir_part *part, const struct weir_parts *parts)
{
    const struct weir_driver *d = parts->driver;
    CUdevResource first, rest;
    CUdevResourceDesc desc;
    bool is_rest = part->sm_first != 0;
    bool made = split(d, parts->device, is_rest ? part->sm_first : part->sm_count, &first, &rest) &&
                (!is_rest || rest.sm.smCount == part->sm_count) &&
                d->cuDevResourceGenerateDesc(&desc, is_rest ? &rest : &first, 1) == CUDA_SUCCESS &&
                d->cuGreenCtxCreate(&part->green, desc, parts->device,
                                    CU_GREEN_CTX_DEFAULT_STREAM) == CUDA_SUCCESS;

    return made && d->cuCtxFromGreenCtx(&part->context, part->green) == CUDA_SUCCESS;
}

static CUresult make_stream(const struct weir_part *part, int priority, CUstream *ret_stream)
{
    return part->parts->driver->cuGreenCtxStreamCreate(ret_stream, part->green,
                                                       CU_STREAM_NON_BLOCKING, priority);
}

/* Can streams of the part and of the primary context wait for each other's events? */
static bool keeps_order(const struct weir_part *part)
{
    const struct weir_driver *d = part->parts->driver;
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

/* ---------------------------------------------------------------- the table */

struct weir_parts *weir_parts_create(const struct weir_driver *driver, CUdevice device)
{
    struct weir_parts *parts = calloc(1, sizeof *parts);

    if (parts) {
        parts->driver = driver;
        parts->device = device;
        pthread_mutex_init(&parts->lock, NULL);
    }
    return parts;
}

static void unmake(struct weir_part *part)
{
    if (part->green) {
        (void)part->parts->driver->cuGreenCtxDestroy(part->green);
    }
    *part = (struct weir_part){0};
}

void weir_parts_destroy(struct weir_parts *parts)
{
    if (!parts) {
        return;
    }
    for (uint32_t i = 0; i < WEIR_PARTS_MAX; i++) {
        unmake(&parts->part[i]);
    }
    pthread_mutex_destroy(&parts->lock);
    free(parts);
}

static struct weir_part *find_locked(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count)
{
    for (uint32_t i = 0; i < WEIR_PARTS_MAX; i++) {
        struct weir_part *part = &parts->part[i];

        if (part->green && part->sm_first == sm_first && part->sm_count == sm_count) {
            part->users++;
            part->found = ++parts->finds;
            return part;
        }
    }
    return NULL;
}

struct weir_part *weir_parts_find(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count)
{
    WEIR_LOCKED(&parts->lock);
    return find_locked(parts, sm_first, sm_count);
}

void weir_part_use(struct weir_part *part)
{
    WEIR_LOCKED(&part->parts->lock);
    part->users++;
}

void weir_part_put(struct weir_part *part)
{
    if (part) {
        pthread_mutex_lock(&part->parts->lock);
        part->users--;
        pthread_mutex_unlock(&part->parts->lock);
    }
}

/* Find a free place, or the part that was found longest ago. NULL: all parts are in use. */
static struct weir_part *oldest_locked(struct weir_parts *parts, bool unused)
{
    struct weir_part *oldest = NULL;

    for (uint32_t i = 0; i < WEIR_PARTS_MAX; i++) {
        struct weir_part *part = &parts->part[i];

        if ((!unused || part->users == 0) && (!oldest || part->found < oldest->found)) {
            oldest = part;
        }
    }
    return oldest;
}

const struct weir_part *weir_parts_oldest(struct weir_parts *parts)
{
    WEIR_LOCKED(&parts->lock);
    return oldest_locked(parts, false);
}

static enum weir_status make_locked(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count,
                                    struct weir_part **ret_part)
{
    struct weir_part *part = oldest_locked(parts, true);

    WEIR_FAIL_IF(!part, WEIR_ERR_AGAIN);
    unmake(part);
    *part = (struct weir_part){.parts = parts, .sm_first = sm_first, .sm_count = sm_count};
    if (!make_context(part, parts) || !(parts->keeps_order || keeps_order(part))) {
        unmake(part);
        return WEIR_ERR_UNSUPPORTED;
    }
    parts->keeps_order = true;
    *ret_part = find_locked(parts, sm_first, sm_count);
    return WEIR_OK;
}

enum weir_status weir_parts_make(struct weir_parts *parts, uint32_t sm_first, uint32_t sm_count,
                                 struct weir_part **ret_part)
{
    enum weir_status status = WEIR_OK;

    WEIR_LOCKED(&parts->lock);
    *ret_part = find_locked(parts, sm_first, sm_count);
    if (!*ret_part) {
        status = make_locked(parts, sm_first, sm_count, ret_part);
    }
    return status;
}

CUcontext weir_part_context(const struct weir_part *part)
{
    return part->context;
}

uint32_t weir_part_sms(const struct weir_part *part)
{
    return part->sm_count;
}

/* ---------------------------------------------------------------- moving */

void weir_part_attribute_set(struct weir_host_stream *stream, CUlaunchAttributeID id)
{
    stream->part.set |= 1u << id;
    stream->part.lacks |= 1u << id;
}

/* Copy attributes. Some drivers lack some of them in a green context: a refused one is left out. */
static void copy_attributes(const struct weir_driver *d, struct weir_host_stream *stream)
{
    struct weir_stream_part *p = &stream->part;

    for (unsigned id = 0; p->lacks != 0; id++, p->lacks >>= 1) {
        CUlaunchAttributeValue value;

        if ((p->lacks & 1) != 0 &&
            d->cuStreamGetAttribute(stream->o.native, (CUlaunchAttributeID)id, &value) ==
                CUDA_SUCCESS) {
            (void)d->cuStreamSetAttribute(p->stream, (CUlaunchAttributeID)id, &value);
        }
    }
}

static CUresult move_in(const struct weir_driver *d, struct weir_host_stream *stream,
                        struct weir_part *part, int priority)
{
    struct weir_stream_part *p = &stream->part;

    if (!p->part) {
        WEIR_TRY(make_stream(part, priority, &p->stream));
        weir_part_use(part);
        p->part = part;
        p->priority = priority;
        p->lacks = p->set;
    }
    if (!p->in) {
        WEIR_TRY(weir_order_join(d, &stream->join, stream->o.native, p->stream));
        p->in = true;
    }
    weir_host_stream_set_priority(d, p->stream, &p->priority, priority);
    copy_attributes(d, stream);
    return CUDA_SUCCESS;
}

CUresult weir_part_move(const struct weir_driver *driver, struct weir_host_stream *stream,
                        struct weir_part *part, int priority)
{
    struct weir_stream_part *p = &stream->part;

    if (part) {
        return move_in(driver, stream, part, priority);
    }
    if (p->in) {
        WEIR_TRY(weir_order_join(driver, &stream->join, p->stream, stream->o.native));
        p->in = false;
    }
    return CUDA_SUCCESS;
}

void weir_part_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream)
{
    struct weir_stream_part *p = &stream->part;

    if (p->part) {
        (void)driver->cuStreamDestroy_v2(p->stream);
        weir_part_put(p->part);
        *p = (struct weir_stream_part){.set = p->set};
    }
}
