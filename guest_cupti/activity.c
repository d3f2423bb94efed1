/*
 * The Activity API: the kinds of records that the program wants, and the records about a call
 * itself: the call, the program's ids for it (external correlation), its waiting, and the devices,
 * context or stream that it made.
 */
#include "base/status.h"
#include "guest_cupti/lib.h"

#include <string.h>
#include <unistd.h>

#define IDS_MAX     1024u /* CUPTI's function numbers are less than this */
#define NAMES_DEPTH 64u   /* external correlation ids that a thread may push; CUPTI has no limit */
#define NAME_KINDS  ((uint32_t)CUPTI_EXTERNAL_CORRELATION_KIND_SIZE)
#define KIND_BIT(k) (UINT64_C(1) << (unsigned int)(k))

/* Kinds that this library supports: made from the host's records, and from calls. */
#define WORK_KINDS                                                                                 \
    (KIND_BIT(CUPTI_ACTIVITY_KIND_MEMCPY) | KIND_BIT(CUPTI_ACTIVITY_KIND_MEMSET) |                 \
     KIND_BIT(CUPTI_ACTIVITY_KIND_KERNEL) | KIND_BIT(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) |      \
     KIND_BIT(CUPTI_ACTIVITY_KIND_GRAPH_TRACE))
#define MARKER_KINDS                                                                               \
    (KIND_BIT(CUPTI_ACTIVITY_KIND_MARKER) | KIND_BIT(CUPTI_ACTIVITY_KIND_MARKER_DATA))
#define KINDS                                                                                      \
    (WORK_KINDS | MARKER_KINDS | KIND_BIT(CUPTI_ACTIVITY_KIND_DRIVER) |                            \
     KIND_BIT(CUPTI_ACTIVITY_KIND_RUNTIME) | KIND_BIT(CUPTI_ACTIVITY_KIND_OVERHEAD) |              \
     KIND_BIT(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) | KIND_BIT(CUPTI_ACTIVITY_KIND_DEVICE) |        \
     KIND_BIT(CUPTI_ACTIVITY_KIND_CONTEXT) | KIND_BIT(CUPTI_ACTIVITY_KIND_STREAM) |                \
     KIND_BIT(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION))

static uint64_t kinds; /* atomic; a bit for each kind that is wanted */
static uint64_t unwanted_driver[IDS_MAX / 64], unwanted_runtime[IDS_MAX / 64]; /* atomic; by id */

/* The external correlation ids that the thread has pushed: a stack for each kind. */
static __thread struct {
    uint64_t ids[NAME_KINDS][NAMES_DEPTH];
    uint32_t depth[NAME_KINDS]; /* may exceed NAMES_DEPTH: further ids are only counted */
} names;

bool weir_cupti_activities(void)
{
    return (__atomic_load_n(&kinds, __ATOMIC_RELAXED) & ~MARKER_KINDS) != 0;
}

bool weir_cupti_wants(CUpti_ActivityKind kind)
{
    return (__atomic_load_n(&kinds, __ATOMIC_RELAXED) & KIND_BIT(kind)) != 0;
}

bool weir_cupti_wants_work(void)
{
    return (__atomic_load_n(&kinds, __ATOMIC_RELAXED) & WORK_KINDS) != 0;
}

/* ---------------------------------------------------------------- records of a call */

static bool is_wanted(const uint64_t *unwanted, uint32_t id)
{
    return id < IDS_MAX && !(__atomic_load_n(&unwanted[id / 64], __ATOMIC_RELAXED) >> id % 64 & 1);
}

static void record_names(uint32_t number)
{
    for (uint32_t kind = 0; kind < NAME_KINDS; kind++) {
        uint32_t depth = WEIR_MIN(names.depth[kind], NAMES_DEPTH);
        CUpti_ActivityExternalCorrelation *record =
            depth ? weir_cupti_record(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) : NULL;
        if (record) {
            record->externalKind = kind;
            record->externalId = names.ids[kind][depth - 1];
            record->correlationId = number;
        }
    }
}

static void record_call(CUpti_ActivityKind kind, uint32_t id, uint32_t number, uint64_t start_ns,
                        uint64_t end_ns, int result)
{
    CUpti_ActivityAPI *record = weir_cupti_record(kind);
    if (record) {
        record->cbid = id;
        record->start = start_ns;
        record->end = end_ns;
        record->processId = (uint32_t)getpid();
        record->threadId = weir_cupti_thread();
        record->correlationId = number;
        record->returnValue = (uint32_t)result;
    }
}

/* The type of a record of a wait; 0: the call does not wait. */
static const uint32_t sync_types[] = {
    [WEIR_PROFILE_WAIT_CONTEXT] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE,
    [WEIR_PROFILE_WAIT_STREAM] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE,
    [WEIR_PROFILE_WAIT_EVENT] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE,
    [WEIR_PROFILE_STREAM_WAITS] = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
};

static void record_wait(const struct weir_profile_call *call)
{
    bool of_stream =
        call->work.what == WEIR_PROFILE_WAIT_STREAM || call->work.what == WEIR_PROFILE_STREAM_WAITS;
    CUpti_ActivitySynchronization2 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    if (record) {
        record->type = sync_types[call->work.what];
        record->start = call->start_ns;
        record->end = call->end_ns;
        record->correlationId = call->number;
        record->contextId = call->work.context;
        record->streamId = of_stream ? call->work.stream : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
        record->cudaEventId =
            call->work.event ? (uint32_t)call->work.event : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
        record->returnValue = (uint32_t)call->result;
    }
}

/* ---------------------------------------------------------------- devices, contexts, streams */

static uint32_t maker; /* number of the call that made it, or 0; guarded by weir_cupti_lock() */

static void record_device(uint32_t ordinal, const struct weir_profile_device *device)
{
    static const struct {
        size_t offset;
        CUdevice_attribute attribute;
    } members[] = {
#define M(member, attribute)                                                                       \
    {offsetof(CUpti_ActivityDevice5, member), CU_DEVICE_ATTRIBUTE_##attribute},
#include "guest_cupti/device_members.def"
#undef M
    };
    CUpti_ActivityDevice5 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_DEVICE);
    const int *a = device->attributes;
    int warp = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE] > 0 ? a[CU_DEVICE_ATTRIBUTE_WARP_SIZE] : 1;
    if (!record) {
        return;
    }
    for (size_t i = 0; i < WEIR_COUNT(members); i++) {
        memcpy((char *)record + members[i].offset, &a[members[i].attribute], sizeof a[0]);
    }
    record->maxWarpsPerMultiprocessor =
        (uint32_t)(a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] / warp);
    /* Two transfers in each cycle of the memory's clock (kHz), of as many bits as its bus has. */
    record->globalMemoryBandwidth = 2 * (uint64_t)a[CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] *
                                    (uint64_t)a[CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] / 8;
    record->globalMemorySize = device->bytes;
    record->id = ordinal;
    record->uuid = *device->uuid;
    record->name = strdup(device->name); /* the program frees it */
    record->isCudaVisible = 1;
    record->gpuInstanceId = record->computeInstanceId = UINT32_MAX; /* no part of a MIG GPU */
}

static void record_devices(void)
{
    struct weir_profile_device device;
    for (int i = 0; weir_cupti_session()->device(i, &device); i++) {
        record_device((uint32_t)i, &device);
    }
}

static void record_context(const struct weir_profile_work *stream)
{
    CUpti_ActivityContext3 *record =
        stream->is_null ? weir_cupti_record(CUPTI_ACTIVITY_KIND_CONTEXT) : NULL;
    if (record) {
        record->contextId = stream->context;
        record->deviceId = stream->device;
        record->computeApiKind = CUPTI_ACTIVITY_COMPUTE_API_CUDA;
        record->nullStreamId = (uint16_t)stream->stream;
    }
}

static void record_stream(const struct weir_profile_work *stream)
{
    CUpti_ActivityStream *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_STREAM);
    if (record) {
        record->contextId = stream->context;
        record->streamId = stream->stream;
        record->priority = (uint32_t)stream->priority;
        record->flag = stream->is_null           ? CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL
                       : stream->is_non_blocking ? CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING
                                                 : CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT;
        record->correlationId = maker;
    }
}

static void record_made(const struct weir_profile_call *call)
{
    weir_cupti_lock();
    maker = call->number;
    if (call->work.what == WEIR_PROFILE_START && weir_cupti_wants(CUPTI_ACTIVITY_KIND_DEVICE)) {
        record_devices();
    }
    if (call->work.is_new && weir_cupti_wants(CUPTI_ACTIVITY_KIND_CONTEXT)) {
        record_context(&call->work);
    }
    if (call->work.is_new && weir_cupti_wants(CUPTI_ACTIVITY_KIND_STREAM)) {
        record_stream(&call->work);
    }
    weir_cupti_unlock();
}

/* ---------------------------------------------------------------- calls */

static bool has_work(const struct weir_profile_call *call)
{
    return call->work.what == WEIR_PROFILE_LAUNCH || call->work.what == WEIR_PROFILE_LAUNCH_GRAPH ||
           call->work.what == WEIR_PROFILE_COPY || call->work.what == WEIR_PROFILE_FILL;
}

void weir_cupti_driver_called(const struct weir_profile_call *call)
{
    uint32_t id = weir_cupti_driver_id(call);
    bool told = !call->in_runtime && weir_cupti_wants(CUPTI_ACTIVITY_KIND_DRIVER) && id &&
                is_wanted(unwanted_driver, id);
    bool named = !call->in_runtime && weir_cupti_wants(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    bool waited = call->result == CUDA_SUCCESS && sync_types[call->work.what] &&
                  weir_cupti_wants(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    if (call->work.what == WEIR_PROFILE_START || call->work.is_new) {
        record_made(call);
    }
    if (told || named || waited) {
        weir_cupti_lock();
        if (named && (told || call->work.what != WEIR_PROFILE_NOTHING)) {
            record_names(call->number);
        }
        if (told) {
            record_call(CUPTI_ACTIVITY_KIND_DRIVER, id, call->number, call->start_ns, call->end_ns,
                        (int)call->result);
        }
        if (waited) {
            record_wait(call);
        }
        weir_cupti_unlock();
    }
    if (has_work(call) && weir_cupti_wants_work()) {
        weir_cupti_work_add(call);
    }
}

void weir_cupti_runtime_called(const struct weir_profile_runtime *call)
{
    bool told =
        weir_cupti_wants(CUPTI_ACTIVITY_KIND_RUNTIME) && is_wanted(unwanted_runtime, call->id);
    bool named = weir_cupti_wants(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    if (!told && !named) {
        return;
    }
    weir_cupti_lock();
    if (named) {
        record_names(call->number);
    }
    if (told) {
        record_call(CUPTI_ACTIVITY_KIND_RUNTIME, call->id, call->number, call->start_ns,
                    call->end_ns, call->result ? *call->result : 0);
    }
    weir_cupti_unlock();
}

/* ---------------------------------------------------------------- entry points */

WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable);
WEIR_CUPTI_EXPORT CUptiResult
cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id);
WEIR_CUPTI_EXPORT CUptiResult
cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *lastId);
WEIR_CUPTI_EXPORT CUptiResult cuptiSetThreadIdType(uint32_t type);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivitySetAttribute(uint32_t attr, size_t *valueSize,
                                                        void *value);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t time);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t enable);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityEnableLaunchAttributes(uint8_t enable);

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    WEIR_FAIL_IF((int)kind <= CUPTI_ACTIVITY_KIND_INVALID || (int)kind >= 64,
                 CUPTI_ERROR_INVALID_KIND);
    if (kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        return CUPTI_SUCCESS; /* here copies between contexts are MEMCPY, too */
    }
    WEIR_FAIL_IF(!(KINDS & KIND_BIT(kind)), CUPTI_ERROR_NOT_SUPPORTED);
    WEIR_FAIL_IF(!weir_cupti_session(), CUPTI_ERROR_NOT_INITIALIZED);
    __atomic_fetch_or(&kinds, KIND_BIT(kind), __ATOMIC_RELAXED);
    weir_cupti_watch();
    return CUPTI_SUCCESS;
}

/* Only here what exists already has records. */
CUptiResult cuptiActivityEnableAndDump(CUpti_ActivityKind kind)
{
    WEIR_TRY(cuptiActivityEnable(kind));
    weir_cupti_lock();
    maker = 0;
    if (kind == CUPTI_ACTIVITY_KIND_DEVICE) {
        record_devices();
    } else if (kind == CUPTI_ACTIVITY_KIND_CONTEXT || kind == CUPTI_ACTIVITY_KIND_STREAM) {
        weir_cupti_session()->streams(kind == CUPTI_ACTIVITY_KIND_CONTEXT ? record_context
                                                                          : record_stream);
    }
    weir_cupti_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    WEIR_FAIL_IF((int)kind <= CUPTI_ACTIVITY_KIND_INVALID || (int)kind >= 64,
                 CUPTI_ERROR_INVALID_KIND);
    __atomic_fetch_and(&kinds, ~KIND_BIT(kind), __ATOMIC_RELAXED);
    weir_cupti_watch();
    return CUPTI_SUCCESS;
}

static CUptiResult want(uint64_t *unwanted, uint32_t id, bool enable)
{
    WEIR_FAIL_IF(!id || id >= IDS_MAX, CUPTI_ERROR_INVALID_PARAMETER);
    if (enable) {
        __atomic_fetch_and(&unwanted[id / 64], ~(UINT64_C(1) << id % 64), __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_or(&unwanted[id / 64], UINT64_C(1) << id % 64, __ATOMIC_RELAXED);
    }
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable)
{
    return want(unwanted_driver, cbid, enable != 0);
}

CUptiResult cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable)
{
    return want(unwanted_runtime, cbid, enable != 0);
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    uint32_t k = (uint32_t)kind;
    WEIR_FAIL_IF(!k || k >= NAME_KINDS, CUPTI_ERROR_INVALID_PARAMETER);
    if (names.depth[k] < NAMES_DEPTH) {
        names.ids[k][names.depth[k]] = id;
    }
    names.depth[k]++;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *lastId)
{
    uint32_t k = (uint32_t)kind;
    WEIR_FAIL_IF(!k || k >= NAME_KINDS, CUPTI_ERROR_INVALID_PARAMETER);
    WEIR_FAIL_IF(!names.depth[k], CUPTI_ERROR_QUEUE_EMPTY);
    names.depth[k]--;
    if (lastId) {
        *lastId = names.depth[k] < NAMES_DEPTH ? names.ids[k][names.depth[k]] : 0;
    }
    return CUPTI_SUCCESS;
}

/* Of both types a thread's number in the system. */
CUptiResult cuptiSetThreadIdType(uint32_t type)
{
    return type < CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE ? CUPTI_SUCCESS
                                                     : CUPTI_ERROR_INVALID_PARAMETER;
}

/* Ignore attributes: they set sizes of NVIDIA's buffers on the device, which are not used here. */
CUptiResult cuptiActivitySetAttribute(uint32_t attr, size_t *valueSize, void *value)
{
    (void)attr;
    return valueSize && value ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

/* Ignore the period: the program gets records only when it flushes, and when a buffer is full. */
CUptiResult cuptiActivityFlushPeriod(uint32_t time)
{
    return time ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

/* Accept, but leave the timestamps 0, CUPTI's value for times that it could not collect. */
CUptiResult cuptiActivityEnableLatencyTimestamps(uint8_t enable)
{
    (void)enable;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable)
{
    return enable ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t enable)
{
    (void)enable; /* all of them are made */
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableLaunchAttributes(uint8_t enable)
{
    return enable ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}
