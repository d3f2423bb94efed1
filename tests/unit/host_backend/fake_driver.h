/* A driver that records what it is asked, one letter and its arguments a call. */
#ifndef WEIR_TESTS_UNIT_HOST_BACKEND_FAKE_DRIVER_H
#define WEIR_TESTS_UNIT_HOST_BACKEND_FAKE_DRIVER_H

#include "proto/driver_table.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char fake_log[4096];
static uintptr_t fake_next;
static int fake_live; /* objects made and not destroyed */
static CUstream fake_capturing;
static atomic_size_t fake_registered_bytes; /* by all registrations so far */
static atomic_int fake_refusals;            /* registrations still to be refused */

static void fake_note(const char *what, const void *a, const void *b)
{
    size_t n = strlen(fake_log);

    snprintf(fake_log + n, sizeof fake_log - n, "%s%s(%d,%d)", n != 0 ? " " : "", what,
             (int)(uintptr_t)a, (int)(uintptr_t)b);
}

static CUresult fake_set_current(CUcontext context)
{
    fake_note("current", context, NULL);
    return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    fake_note("record", event, stream);
    return CUDA_SUCCESS;
}

static CUresult fake_wait_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    fake_note("wait", stream, event);
    return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
    (void)event;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_create(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_create_priority(CUstream *ret, unsigned flags, int priority)
{
    (void)priority;
    return fake_stream_create(ret, flags);
}

static CUresult fake_stream_destroy(CUstream stream)
{
    (void)stream;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_ok(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    *ret =
        stream == fake_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult fake_write32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream;
    (void)flags;
    *(uint32_t *)(uintptr_t)address = value; /* the GPU is quick */
    return CUDA_SUCCESS;
}

static CUresult fake_register(void *p, size_t bytes, unsigned flags)
{
    (void)p;
    (void)flags;
    if (fake_refusals > 0) {
        fake_refusals--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_registered_bytes += bytes;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *p)
{
    (void)p;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
    (void)flags;
    *ret = (uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult fake_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    (void)dst;
    (void)src;
    (void)bytes;
    fake_note("copy", stream, NULL);
    return CUDA_SUCCESS;
}

static CUresult fake_graph_create(CUgraph *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUgraph)++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_graph_destroy(CUgraph graph)
{
    (void)graph;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_add_empty(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                               size_t n)
{
    (void)graph;
    (void)dependencies;
    (void)n;
    *ret = (CUgraphNode)++fake_next;
    return CUDA_SUCCESS;
}

static void fake_driver_init(struct weir_driver *d)
{
    memset(d, 0, sizeof *d);
    fake_log[0] = 0;
    fake_registered_bytes = 0;
    fake_refusals = 0;
    fake_next = 100;
    fake_live = 0;
    fake_capturing = NULL;
    d->cuCtxSetCurrent = fake_set_current;
    d->cuEventCreate = fake_event_create;
    d->cuEventRecord = fake_event_record;
    d->cuEventDestroy_v2 = fake_event_destroy;
    d->cuStreamWaitEvent = fake_wait_event;
    d->cuStreamCreate = fake_stream_create;
    d->cuStreamCreateWithPriority = fake_stream_create_priority;
    d->cuStreamDestroy_v2 = fake_stream_destroy;
    d->cuStreamQuery = fake_stream_ok;
    d->cuStreamSynchronize = fake_stream_ok;
    d->cuStreamIsCapturing = fake_is_capturing;
    d->cuStreamWriteValue32_v2 = fake_write32;
    d->cuMemHostRegister_v2 = fake_register;
    d->cuMemHostUnregister = fake_unregister;
    d->cuMemHostGetDevicePointer_v2 = fake_device_pointer;
    d->cuMemcpyAsync = fake_copy;
    d->cuGraphCreate = fake_graph_create;
    d->cuGraphDestroy = fake_graph_destroy;
    d->cuGraphAddEmptyNode = fake_add_empty;
}

#endif
