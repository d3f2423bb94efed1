/*
 * A libcupti for softgpu, linked with it into one library: NVIDIA's works with NVIDIA's driver
 * only. A host that has this library as its softgpu and as its libcupti records softgpu's work.
 *
 * As with NVIDIA's, work that is given between a push and a pop of an external id has a correlation
 * id and, if calls of the driver are recorded, an external record that comes before its own.
 * Buffers come when they are full, or when they are flushed while no work is under way. softgpu's
 * lock guards everything.
 */
#include "proto/profile/cupti_abi.h"
#include "softgpu/driver/driver.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define DECLARE(name, ...) EXPORT CUptiResult name(__VA_ARGS__)
DECLARE(cuptiActivityRegisterTimestampCallback, CUpti_TimestampCallbackFunc);
DECLARE(cuptiActivityRegisterCallbacks, CUpti_BuffersCallbackRequestFunc,
        CUpti_BuffersCallbackCompleteFunc);
DECLARE(cuptiActivityEnable, CUpti_ActivityKind);
DECLARE(cuptiActivityDisable, CUpti_ActivityKind);
DECLARE(cuptiActivityFlushAll, uint32_t);
DECLARE(cuptiActivityGetNumDroppedRecords, CUcontext, uint32_t, size_t *);
DECLARE(cuptiActivityGetNextRecord, uint8_t *, size_t, CUpti_Activity **);
DECLARE(cuptiActivityPushExternalCorrelationId, CUpti_ExternalCorrelationKind, uint64_t);
DECLARE(cuptiActivityPopExternalCorrelationId, CUpti_ExternalCorrelationKind, uint64_t *);

static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static uint64_t enabled; /* bit per kind */
static uint8_t *buffer;
static size_t room, used;
static uint32_t last_number, under_way;

static __thread uint64_t pushed;           /* external id; 0: none */
static __thread uint32_t number_of_pushed; /* the call's; 0: none yet */

static size_t bytes_of(CUpti_ActivityKind kind)
{
    switch ((int)kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    default:
        return sizeof(CUpti_ActivityExternalCorrelation);
    }
}

static void hand_over(void)
{
    if (buffer) {
        complete(NULL, 0, buffer, room, used);
        buffer = NULL;
    }
}

/* Find room for a record, and zero it. @return NULL: the kind is not enabled, or the program gives
 * no buffer */
static void *record(CUpti_ActivityKind kind)
{
    size_t bytes = bytes_of(kind), max = 0;
    if ((enabled >> kind & 1) == 0) {
        return NULL;
    }
    if (buffer && used + bytes > room) {
        hand_over();
    }
    if (!buffer) {
        request(&buffer, &room, &max);
        used = 0;
    }
    if (!buffer || used + bytes > room) {
        return NULL;
    }
    CUpti_Activity *at = (void *)(buffer + used);
    memset(at, 0, bytes);
    at->kind = kind;
    used += bytes;
    return at;
}

static uint64_t given(void)
{
    under_way++;
    if (pushed == 0) {
        return ++last_number;
    }
    if (number_of_pushed == 0) {
        number_of_pushed = ++last_number;
        CUpti_ActivityExternalCorrelation *external =
            enabled >> CUPTI_ACTIVITY_KIND_DRIVER & 1
                ? record(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)
                : NULL;
        if (external) {
            external->externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
            external->externalId = pushed;
            external->correlationId = number_of_pushed;
        }
    }
    return number_of_pushed;
}

/* As the numbers of nodes of NVIDIA's: that of the graph is in the upper half. */
static uint64_t node_id(const struct weir_soft_task *task)
{
    return task->node ? UINT64_C(1) << 32 | (task->node - 1) : 0;
}

static bool is_host(uint64_t address)
{
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    return !alloc || alloc->kind == WEIR_SOFT_ALLOC_HOST ||
           alloc->kind == WEIR_SOFT_ALLOC_REGISTERED;
}

static void ended_kernel(const struct weir_soft_task *task)
{
    const struct weir_soft_op_kernel *k = &task->op->kernel;
    CUpti_ActivityKernel10 *to = record(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (to) {
        to->start = task->begun_ns;
        to->end = task->finished_ns;
        to->correlationId = (uint32_t)task->tag;
        to->graphNodeId = node_id(task);
        to->name = k->function->info->name;
        to->gridX = (int32_t)k->grid[0];
        to->gridY = (int32_t)k->grid[1];
        to->gridZ = (int32_t)k->grid[2];
        to->blockX = (int32_t)k->block[0];
        to->blockY = (int32_t)k->block[1];
        to->blockZ = (int32_t)k->block[2];
        to->dynamicSharedMemory = (int32_t)k->shared_bytes;
    }
}

static void ended_copy(const struct weir_soft_task *task)
{
    const struct weir_soft_copy *box = &task->op->copy.box;
    bool from_host = is_host(box->src), to_host = is_host(box->dst);
    CUpti_ActivityMemcpy6 *to = record(CUPTI_ACTIVITY_KIND_MEMCPY);
    if (to) {
        to->start = task->begun_ns;
        to->end = task->finished_ns;
        to->correlationId = (uint32_t)task->tag;
        to->graphNodeId = node_id(task);
        to->bytes = box->width_bytes * box->height * box->depth;
        to->copyKind = from_host == to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                       : to_host            ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                            : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    }
}

static void ended_set(const struct weir_soft_task *task)
{
    const CUDA_MEMSET_NODE_PARAMS *set = &task->op->set;
    CUpti_ActivityMemset4 *to = record(CUPTI_ACTIVITY_KIND_MEMSET);
    if (to) {
        to->start = task->begun_ns;
        to->end = task->finished_ns;
        to->correlationId = (uint32_t)task->tag;
        to->graphNodeId = node_id(task);
        to->bytes = (uint64_t)set->elementSize * set->width * set->height;
        to->value = set->value;
    }
}

static void ended(const struct weir_soft_task *task)
{
    if (task->tag == 0) {
        return; /* given before anybody watched */
    }
    under_way--;
    if (task->op->kind == WEIR_SOFT_OP_KERNEL) {
        ended_kernel(task);
    } else if (task->op->kind == WEIR_SOFT_OP_COPY) {
        ended_copy(task);
    } else if (task->op->kind == WEIR_SOFT_OP_SET) {
        ended_set(task);
    }
}

/* ---------------------------------------------------------------- the API */

/* Ignore the clock: softgpu's times are of the one that the worker names. */
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock)
{
    return clock ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                           CUpti_BuffersCallbackCompleteFunc on_complete)
{
    request = on_request;
    complete = on_complete;
    return CUPTI_SUCCESS;
}

static CUptiResult set_enabled(CUpti_ActivityKind kind, bool on)
{
    static const struct weir_soft_task_watcher watcher = {given, ended};
    weir_soft_lock();
    enabled = on ? enabled | UINT64_C(1) << kind : enabled & ~(UINT64_C(1) << kind);
    weir_soft_task_watcher = &watcher; /* for good: it counts what is under way */
    weir_soft_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    return set_enabled(kind, true);
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    return set_enabled(kind, false);
}

CUptiResult cuptiActivityFlushAll(uint32_t flags)
{
    (void)flags;
    weir_soft_lock();
    if (under_way == 0) {
        hand_over();
    }
    weir_soft_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *ret_n)
{
    (void)context;
    (void)stream;
    *ret_n = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t valid, CUpti_Activity **ret_record)
{
    uint8_t *at = (uint8_t *)*ret_record;
    at = at ? at + bytes_of((*ret_record)->kind) : from;
    if (at >= from + valid) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *ret_record = (CUpti_Activity *)(void *)at;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    (void)kind;
    pushed = id;
    number_of_pushed = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *ret_id)
{
    (void)kind;
    (void)ret_id;
    pushed = 0;
    return CUPTI_SUCCESS;
}
