/* A driver that records what it is asked, one letter and its arguments a call. */
#pragma once

#include "proto/driver_table.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char fake_log[4096];
static atomic_uintptr_t fake_next;
static int fake_live; /* objects made and not destroyed */
static CUstream fake_capturing;
static CUgraph fake_captured;               /* what capture_info shows of it */
static atomic_size_t fake_registered_bytes; /* by all registrations so far */
static atomic_int fake_refusals;            /* registrations still to be refused */
static atomic_bool fake_stuck;              /* streams wait for a value at FAKE_VMM_BASE */
static atomic_int fake_full, fake_opened;   /* contexts still to be refused; that were made */
static atomic_bool fake_elsewhere;          /* reservations are not where they were wanted */

#define FAKE_CONTEXTS  100 /* of the first device; the next has the next */
#define FAKE_LIMIT     8
#define FAKE_VMM_BASE  (UINT64_C(1) << 40)
#define FAKE_VMM_BYTES (UINT64_C(1) << 40)

static pthread_mutex_t fake_log_lock = PTHREAD_MUTEX_INITIALIZER;

static void fake_note(const char *what, const void *a, const void *b)
{
    size_t n;

    pthread_mutex_lock(&fake_log_lock);
    n = strlen(fake_log);
    snprintf(fake_log + n, sizeof fake_log - n, "%s%s(%d,%d)", n != 0 ? " " : "", what,
             (int)(uintptr_t)a, (int)(uintptr_t)b);
    pthread_mutex_unlock(&fake_log_lock);
}

/* Where in the log a call stands, from 1; 0: it was not made. While others write. */
static inline size_t fake_noted(const char *call)
{
    const char *at;
    size_t place;

    pthread_mutex_lock(&fake_log_lock);
    at = strstr(fake_log, call);
    place = at ? (size_t)(at - fake_log) + 1 : 0;
    pthread_mutex_unlock(&fake_log_lock);
    return place;
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

static CUresult fake_event_query(CUevent event)
{
    (void)event;
    return fake_stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* No event was recorded. A session that rests for a moment asks. */
static CUresult fake_event_elapsed(float *ret_ms, CUevent start, CUevent end)
{
    (void)ret_ms;
    (void)start;
    (void)end;
    return CUDA_ERROR_INVALID_HANDLE;
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

static CUresult fake_stream_query(CUstream stream)
{
    (void)stream;
    return fake_stuck ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fake_wait32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream;
    (void)value;
    (void)flags;
    if (address == FAKE_VMM_BASE) { /* elsewhere the value is there */
        fake_stuck = true;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    *ret =
        stream == fake_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static inline CUresult fake_capture_begin(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    fake_capturing = stream;
    return CUDA_SUCCESS;
}

static inline CUresult fake_capture_info(CUstream stream, CUstreamCaptureStatus *status,
                                         cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                         const CUgraphEdgeData **edges, size_t *n)
{
    (void)stream;
    (void)nodes;
    (void)edges;
    *id = 1;
    *n = 0;
    *graph = fake_captured;
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

static CUresult fake_write32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    (void)stream;
    (void)flags;
    if (address >= FAKE_VMM_BASE && address < FAKE_VMM_BASE + FAKE_VMM_BYTES) {
        fake_note("write", NULL, NULL);
        fake_stuck = fake_stuck && address != FAKE_VMM_BASE;
    } else {
        *(uint32_t *)(uintptr_t)address = value; /* the GPU is quick */
    }
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

static CUresult fake_add_memops(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                                size_t n, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    (void)params;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult fake_destroy_node(CUgraphNode node)
{
    (void)node;
    return CUDA_SUCCESS;
}

static CUresult fake_condition(CUgraphConditionalHandle *ret, CUgraph graph, CUcontext context,
                               unsigned value, unsigned flags)
{
    (void)graph;
    (void)context;
    (void)value;
    (void)flags;
    *ret = ++fake_next;
    return CUDA_SUCCESS;
}

/* Only conditional nodes; their bodies go with them. */
static CUresult fake_add_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                              const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
    static CUgraph bodies[2];

    (void)edges;
    bodies[0] = (CUgraph)++fake_next;
    bodies[1] = (CUgraph)++fake_next;
    params->conditional.phGraph_out = bodies;
    return fake_add_empty(ret, graph, dependencies, n);
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr address,
                             unsigned long long flags)
{
    (void)bytes;
    (void)alignment;
    (void)flags;
    *ret = fake_elsewhere ? UINT64_C(1) << 45 : address;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_address_free(CUdeviceptr address, size_t bytes)
{
    (void)address;
    (void)bytes;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_memory_create(CUmemGenericAllocationHandle *ret, size_t bytes,
                                   const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)bytes;
    (void)prop;
    (void)flags;
    *ret = ++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_memory_release(CUmemGenericAllocationHandle memory)
{
    (void)memory;
    fake_live--;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle memory, unsigned long long flags)
{
    (void)address;
    (void)bytes;
    (void)offset;
    (void)memory;
    (void)flags;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                            size_t n)
{
    (void)address;
    (void)bytes;
    fake_note("access", (const void *)(uintptr_t)access->flags, (const void *)n);
    return CUDA_SUCCESS;
}

static CUresult fake_memset8(CUdeviceptr address, unsigned char value, size_t bytes,
                             CUstream stream)
{
    (void)address;
    (void)value;
    (void)bytes;
    (void)stream;
    return CUDA_SUCCESS;
}

/* The newest array's; a level of a mipmapped array has it divided. */
static CUDA_ARRAY3D_DESCRIPTOR fake_array;
static atomic_uint_least64_t fake_cleared_bytes; /* by copies into arrays */

static CUresult fake_array_create(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    fake_note("array", NULL, NULL);
    fake_array = *desc;
    *ret = (CUarray)++fake_next;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_array_destroy(CUarray array)
{
    (void)array;
    fake_note("no-array", NULL, NULL);
    fake_live--;
    return CUDA_SUCCESS;
}

/* Surfaces get numbers so far apart. */
static uint32_t fake_surface_step;
static uint64_t fake_surface_last;

static CUresult fake_surface_create(CUsurfObject *ret, const CUDA_RESOURCE_DESC *resource)
{
    (void)resource;
    *ret = fake_surface_last += fake_surface_step;
    fake_live++;
    return CUDA_SUCCESS;
}

static CUresult fake_surface_destroy(CUsurfObject surface)
{
    (void)surface;
    fake_live--;
    return CUDA_SUCCESS;
}

#define FAKE_LEVELS 3

static CUresult fake_mipmap_create(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                   unsigned n_levels)
{
    (void)n_levels;
    return fake_array_create((CUarray *)ret, desc);
}

static CUresult fake_mipmap_destroy(CUmipmappedArray mipmap)
{
    return fake_array_destroy((CUarray)mipmap);
}

static CUresult fake_mipmap_level(CUarray *ret, CUmipmappedArray mipmap, unsigned level)
{
    (void)mipmap;
    *ret = (CUarray)(uintptr_t)level;
    return level < FAKE_LEVELS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_array_descriptor(CUDA_ARRAY3D_DESCRIPTOR *ret, CUarray array)
{
    unsigned level = (uintptr_t)array < FAKE_LEVELS ? (unsigned)(uintptr_t)array : 0;

    *ret = fake_array;
    ret->Width >>= level;
    ret->Height >>= level;
    return CUDA_SUCCESS;
}

static CUresult fake_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    const uint8_t *from = copy->srcHost;
    uint64_t zeroes = 0;

    (void)stream;
    if (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        uint64_t bytes = copy->WidthInBytes * copy->Height * copy->Depth;

        for (uint64_t i = 0; i < bytes; i++) {
            zeroes += from[i] == 0;
        }
    }
    atomic_fetch_add(&fake_cleared_bytes, zeroes);
    return CUDA_SUCCESS;
}

static CUresult fake_get_current(CUcontext *ret)
{
    *ret = (CUcontext)FAKE_CONTEXTS;
    return CUDA_SUCCESS;
}

static CUresult fake_set_flags(CUdevice device, unsigned flags)
{
    (void)device;
    (void)flags;
    return CUDA_SUCCESS;
}

static CUresult fake_retain(CUcontext *ret, CUdevice device)
{
    if (fake_full > 0) {
        fake_full--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_opened++;
    *ret = (CUcontext)(uintptr_t)(FAKE_CONTEXTS + device);
    return CUDA_SUCCESS;
}

static CUresult fake_get_limit(size_t *ret, CUlimit limit)
{
    (void)limit;
    *ret = FAKE_LIMIT;
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
    fake_captured = NULL;
    fake_stuck = fake_elsewhere = false;
    fake_full = fake_opened = 0;
    fake_cleared_bytes = 0;
    d->cuCtxGetCurrent = fake_get_current;
    d->cuCtxGetLimit = fake_get_limit;
    d->cuDevicePrimaryCtxSetFlags_v2 = fake_set_flags;
    d->cuDevicePrimaryCtxRetain = fake_retain;
    d->cuCtxSetCurrent = fake_set_current;
    d->cuEventCreate = fake_event_create;
    d->cuEventRecord = fake_event_record;
    d->cuEventQuery = fake_event_query;
    d->cuEventElapsedTime_v2 = fake_event_elapsed;
    d->cuEventDestroy_v2 = fake_event_destroy;
    d->cuStreamWaitEvent = fake_wait_event;
    d->cuStreamCreate = fake_stream_create;
    d->cuStreamCreateWithPriority = fake_stream_create_priority;
    d->cuStreamDestroy_v2 = fake_stream_destroy;
    d->cuStreamQuery = fake_stream_query;
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
    d->cuGraphAddBatchMemOpNode = fake_add_memops;
    d->cuGraphDestroyNode = fake_destroy_node;
    d->cuGraphConditionalHandleCreate = fake_condition;
    d->cuGraphAddNode_v2 = fake_add_node;
    d->cuStreamWaitValue32_v2 = fake_wait32;
    d->cuMemAddressReserve = fake_reserve;
    d->cuMemAddressFree = fake_address_free;
    d->cuMemCreate = fake_memory_create;
    d->cuMemRelease = fake_memory_release;
    d->cuMemMap = fake_map;
    d->cuMemUnmap = fake_address_free;
    d->cuMemSetAccess = fake_access;
    d->cuMemsetD8Async = fake_memset8;
    d->cuArray3DCreate_v2 = fake_array_create;
    d->cuArrayDestroy = fake_array_destroy;
    d->cuSurfObjectCreate = fake_surface_create;
    d->cuSurfObjectDestroy = fake_surface_destroy;
    fake_surface_step = 1;
    fake_surface_last = 0;
    d->cuMipmappedArrayCreate = fake_mipmap_create;
    d->cuMipmappedArrayDestroy = fake_mipmap_destroy;
    d->cuMipmappedArrayGetLevel = fake_mipmap_level;
    d->cuArray3DGetDescriptor_v2 = fake_array_descriptor;
    d->cuMemcpy3DAsync_v2 = fake_copy_3d;
}
