/* Parts of a device by green contexts: see part.h. */
#include "host_backend/worker/session/part.h"

#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/session/order.h"
#include "proto/driver_table.h"
#include <stdlib.h>

struct part {
    uint32_t sms;
    CUgreenCtx ctx;
};

struct weir_parts {
    const struct weir_driver *driver;
    int priority;
    uint32_t n;
    struct part part[WEIR_PARTS_MAX]; /* larger ones later */
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
    if (groups == NULL ||
        d->cuDevSmResourceSplitByCount(groups, &n, &whole, NULL, 0, 1) != CUDA_SUCCESS) {
        free(groups);
        return NULL;
    }
    *ret_n = n;
    return groups;
}

/* A part of the first groups. */
static bool add_part(struct weir_parts *parts, CUdevice device, CUdevResource *groups, unsigned n)
{
    const struct weir_driver *d = parts->driver;
    struct part *part = &parts->part[parts->n];
    CUdevResourceDesc desc;

    part->sms = 0;
    for (unsigned i = 0; i < n; i++) {
        part->sms += groups[i].sm.smCount;
    }
    if (d->cuDevResourceGenerateDesc(&desc, groups, n) != CUDA_SUCCESS ||
        d->cuGreenCtxCreate(&part->ctx, desc, device, CU_GREEN_CTX_DEFAULT_STREAM) !=
            CUDA_SUCCESS) {
        return false;
    }
    parts->n++;
    return true;
}

static CUresult make_stream(const struct weir_parts *parts, uint32_t i, CUstream *ret_stream)
{
    return parts->driver->cuGreenCtxStreamCreate(ret_stream, parts->part[i].ctx,
                                                 CU_STREAM_NON_BLOCKING, parts->priority);
}

/* Do streams of the parts and of the primary context take each other's events? */
static bool keeps_order(const struct weir_parts *parts)
{
    const struct weir_driver *d = parts->driver;
    CUstream there = NULL, here = NULL;
    CUevent event = NULL;
    bool good = make_stream(parts, 0, &there) == CUDA_SUCCESS &&
                d->cuStreamCreate(&here, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                weir_order_join(d, &event, here, there) == CUDA_SUCCESS &&
                weir_order_join(d, &event, there, here) == CUDA_SUCCESS &&
                d->cuStreamSynchronize(here) == CUDA_SUCCESS;

    if (event != NULL) {
        (void)d->cuEventDestroy_v2(event);
    }
    if (here != NULL) {
        (void)d->cuStreamDestroy_v2(here);
    }
    if (there != NULL) {
        (void)d->cuStreamDestroy_v2(there);
    }
    return good;
}

enum weir_status weir_parts_create(const struct weir_driver *driver, CUdevice device, int priority,
                                   struct weir_parts **ret_parts)
{
    struct weir_parts *parts = calloc(1, sizeof *parts);
    CUdevResource *groups;
    unsigned n = 0, step;
    bool good;

    if (parts == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    parts->driver = driver;
    parts->priority = priority;
    groups = split(driver, device, &n);
    step = n / (WEIR_PARTS_MAX + 1) + 1;
    good = groups != NULL && n > 1;
    for (unsigned i = step; good && i < n && parts->n < WEIR_PARTS_MAX; i += step) {
        good = add_part(parts, device, groups, i);
    }
    free(groups);
    if (!good || !keeps_order(parts)) {
        weir_parts_destroy(parts);
        return WEIR_ERR_UNSUPPORTED;
    }
    *ret_parts = parts;
    return WEIR_OK;
}

void weir_parts_destroy(struct weir_parts *parts)
{
    if (parts == NULL) {
        return;
    }
    for (uint32_t i = 0; i < parts->n; i++) {
        (void)parts->driver->cuGreenCtxDestroy(parts->part[i].ctx);
    }
    free(parts);
}

/* ---------------------------------------------------------------- moving */

/* The first part with so many SMs; parts->n: none has, or all are asked for. */
static uint32_t part_with(const struct weir_parts *parts, uint32_t sms)
{
    uint32_t i = sms != 0 ? 0 : parts->n;

    while (i < parts->n && parts->part[i].sms < sms) {
        i++;
    }
    return i;
}

CUresult weir_parts_move(const struct weir_parts *parts, struct weir_host_stream *stream,
                         uint32_t sms)
{
    uint32_t i = part_with(parts, sms);
    CUstream to = stream->o.native;
    struct weir_stream_parts *p;

    sms = i < parts->n ? parts->part[i].sms : 0;
    if (stream->parts == NULL ? sms == 0 : stream->parts->sms == sms) {
        return CUDA_SUCCESS;
    }
    if (stream->parts == NULL) {
        stream->parts = calloc(1, sizeof *stream->parts);
        if (stream->parts == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        stream->parts->at = stream->o.native;
    }
    p = stream->parts;
    if (i < parts->n) {
        if (p->stream[i] == NULL) {
            WEIR_TRY(make_stream(parts, i, &p->stream[i]));
        }
        to = p->stream[i];
    }
    WEIR_TRY(weir_order_join(parts->driver, &stream->join, p->at, to));
    p->at = to;
    p->sms = sms;
    return CUDA_SUCCESS;
}

void weir_parts_stream_gone(const struct weir_driver *driver, struct weir_host_stream *stream)
{
    struct weir_stream_parts *p = stream->parts;

    if (p == NULL) {
        return;
    }
    for (uint32_t i = 0; i < WEIR_PARTS_MAX; i++) {
        if (p->stream[i] != NULL) {
            (void)driver->cuStreamDestroy_v2(p->stream[i]);
        }
    }
    free(p);
    stream->parts = NULL;
}
