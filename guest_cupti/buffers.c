/*
 * The program's buffers, the records in them, and their clock.
 *
 * A record is written into the current buffer under one lock. A full buffer is handed to the
 * program after the lock is released, so that its function may call this library. Until then times
 * are those of this machine's monotonic clock: the program may have its own clock of any rate,
 * which is known only after a while.
 */
#include "base/status.h"
#include "guest_cupti/lib.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define FULL_MAX 64u      /* most full buffers on their way to the program */
#define RATE_NS  1000000u /* two readings this far apart give the rate of the program's clock */
#define STEP_NS  1000     /* larger errors of the program's clock are corrected */
#define READS    8        /* readings of both clocks, of which the closest pair counts */
#define NS_PER_S 1000000000ull

struct buffer {
    uint8_t *bytes;
    size_t size, used;
    size_t records_left; /* records that the program still allows; SIZE_MAX: any number */
};

/* Readings of both clocks at one time. */
struct reading {
    uint64_t ns, stamp;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static struct buffer now;
static struct buffer full[FULL_MAX];
static uint32_t n_full;
static CUpti_TimestampCallbackFunc program_clock; /* NULL: the time of day, in ns */
static struct reading first, last;
static uint64_t dropped; /* atomic */

/* ---------------------------------------------------------------- time */

uint64_t weir_cupti_clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t stamp_now(void)
{
    return program_clock ? program_clock() : weir_cupti_clock_ns(CLOCK_REALTIME);
}

static struct reading read_clocks(void)
{
    struct reading best = {0, 0};
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < READS; i++) {
        uint64_t before_ns = weir_cupti_clock_ns(CLOCK_MONOTONIC);
        uint64_t stamp = stamp_now();
        uint64_t took_ns = weir_cupti_clock_ns(CLOCK_MONOTONIC) - before_ns;
        if (took_ns < best_ns) {
            best_ns = took_ns;
            best = (struct reading){before_ns + took_ns / 2, stamp};
        }
    }
    return best;
}

static void start_clock_locked(CUpti_TimestampCallbackFunc clock)
{
    program_clock = clock;
    first = last = read_clocks();
}

/* Ticks of the program's clock in a nanosecond. */
static double rate(void)
{
    return (double)(int64_t)(last.stamp - first.stamp) / (double)(last.ns - first.ns);
}

static uint64_t to_stamp(uint64_t ns)
{
    return last.stamp + (uint64_t)(int64_t)((double)(int64_t)(ns - last.ns) * rate());
}

/* Correct the rate if the error exceeds that of a reading. Each correction is a step: the same time
 * would differ from one buffer to the next. */
static void read_again_locked(void)
{
    struct reading read = read_clocks();
    while (read.ns - first.ns < RATE_NS) { /* once, at most */
        read = read_clocks();
    }
    double off = last.ns == first.ns ? STEP_NS + 1
                                     : (double)(int64_t)(read.stamp - to_stamp(read.ns)) / rate();
    if (off > STEP_NS || off < -STEP_NS) {
        last = read;
    }
}

/* ---------------------------------------------------------------- records */

static size_t bytes_of(CUpti_ActivityKind kind)
{
    switch ((int)kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return sizeof(CUpti_ActivityOverhead3);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        return sizeof(CUpti_ActivityGraphTrace2);
    case CUPTI_ACTIVITY_KIND_MARKER:
        return sizeof(CUpti_ActivityMarker2);
    case CUPTI_ACTIVITY_KIND_MARKER_DATA:
        return sizeof(CUpti_ActivityMarkerData2);
    case CUPTI_ACTIVITY_KIND_DEVICE:
        return sizeof(CUpti_ActivityDevice5);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
        return sizeof(CUpti_ActivityContext3);
    case CUPTI_ACTIVITY_KIND_STREAM:
        return sizeof(CUpti_ActivityStream);
    default:
        return 0;
    }
}

/* Find the record's *ret_n consecutive times. */
static uint64_t *times_of(void *record, int *ret_n)
{
    *ret_n = 2;
    switch ((int)((CUpti_Activity *)record)->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return &((CUpti_ActivityMemcpy6 *)record)->start;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return &((CUpti_ActivityMemset4 *)record)->start;
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        *ret_n = 3;
        return &((CUpti_ActivityKernel10 *)record)->start;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        return &((CUpti_ActivityAPI *)record)->start;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
        return &((CUpti_ActivityOverhead3 *)record)->start;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return &((CUpti_ActivitySynchronization2 *)record)->start;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        return &((CUpti_ActivityGraphTrace2 *)record)->start;
    case CUPTI_ACTIVITY_KIND_MARKER:
        *ret_n = 1;
        return &((CUpti_ActivityMarker2 *)record)->timestamp;
    default:
        *ret_n = 0;
        return NULL;
    }
}

/* Convert the times of the buffer's records to the program's clock. */
static void stamp_locked(const struct buffer *buffer)
{
    read_again_locked();
    for (size_t at = 0; at < buffer->used;) {
        int n;
        void *record = buffer->bytes + at;
        uint64_t *times = times_of(record, &n);
        for (int i = 0; i < n; i++) {
            times[i] = to_stamp(times[i]);
        }
        at += bytes_of(((CUpti_Activity *)record)->kind);
    }
}

static void end_buffer_locked(void)
{
    if (now.bytes) {
        stamp_locked(&now);
        full[n_full++] = now;
        now.bytes = NULL;
    }
}

static bool begin_buffer_locked(void)
{
    uint8_t *bytes = NULL;
    size_t size = 0, records = 0;
    if (!request || n_full == FULL_MAX) {
        return false;
    }
    request(&bytes, &size, &records);
    if (!bytes || size < sizeof(CUpti_ActivityKernel10)) {
        return false;
    }
    now =
        (struct buffer){.bytes = bytes, .size = size, .records_left = records ? records : SIZE_MAX};
    return true;
}

void *weir_cupti_record(CUpti_ActivityKind kind)
{
    size_t bytes = bytes_of(kind);
    if (now.bytes && (now.size - now.used < bytes || !now.records_left)) {
        end_buffer_locked();
    }
    if (!now.bytes && !begin_buffer_locked()) {
        weir_cupti_dropped(1);
        return NULL;
    }
    CUpti_Activity *record = (CUpti_Activity *)(void *)(now.bytes + now.used);
    memset(record, 0, bytes);
    record->kind = kind;
    now.used += bytes;
    now.records_left--;
    return record;
}

void weir_cupti_dropped(uint64_t n)
{
    __atomic_fetch_add(&dropped, n, __ATOMIC_RELAXED);
}

void weir_cupti_lock(void)
{
    pthread_mutex_lock(&lock);
}

void weir_cupti_unlock(void)
{
    struct buffer given[FULL_MAX];
    uint32_t n = n_full;
    CUpti_BuffersCallbackCompleteFunc take = complete;
    memcpy(given, full, n * sizeof full[0]);
    n_full = 0;
    pthread_mutex_unlock(&lock);
    for (uint32_t i = 0; i < n; i++) {
        take(NULL, 0, given[i].bytes, given[i].size, given[i].used);
    }
}

/* ---------------------------------------------------------------- entry points */

WEIR_CUPTI_EXPORT CUptiResult
cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                               CUpti_BuffersCallbackCompleteFunc funcBufferCompleted);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityFlush(CUcontext context, uint32_t streamId,
                                                 uint32_t flag);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer,
                                                         size_t validBufferSizeBytes,
                                                         CUpti_Activity **record);
WEIR_CUPTI_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context,
                                                                uint32_t streamId, size_t *n);
WEIR_CUPTI_EXPORT CUptiResult
cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetTimestamp(uint64_t *timestamp);

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc funcBufferRequested,
                                           CUpti_BuffersCallbackCompleteFunc funcBufferCompleted)
{
    WEIR_FAIL_IF(!funcBufferRequested || !funcBufferCompleted, CUPTI_ERROR_INVALID_PARAMETER);
    weir_cupti_lock();
    request = funcBufferRequested;
    complete = funcBufferCompleted;
    if (!first.ns) {
        start_clock_locked(program_clock);
    }
    weir_cupti_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag; /* incomplete records are not in buffers, so there is nothing to force */
    WEIR_FAIL_IF(!complete, CUPTI_ERROR_INVALID_OPERATION);
    weir_cupti_work_take();
    weir_cupti_lock();
    end_buffer_locked();
    weir_cupti_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlush(CUcontext context, uint32_t streamId, uint32_t flag)
{
    (void)context;
    (void)streamId;
    return cuptiActivityFlushAll(flag);
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t validBufferSizeBytes,
                                       CUpti_Activity **record)
{
    WEIR_FAIL_IF(!buffer || !record, CUPTI_ERROR_INVALID_PARAMETER);
    uint8_t *at = *record ? (uint8_t *)*record + bytes_of((*record)->kind) : buffer;
    WEIR_FAIL_IF(at < buffer || at >= buffer + validBufferSizeBytes, CUPTI_ERROR_MAX_LIMIT_REACHED);
    WEIR_FAIL_IF(!bytes_of(((CUpti_Activity *)(void *)at)->kind), CUPTI_ERROR_INVALID_KIND);
    *record = (CUpti_Activity *)(void *)at;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId, size_t *n)
{
    (void)context;
    (void)streamId;
    WEIR_FAIL_IF(!n, CUPTI_ERROR_INVALID_PARAMETER);
    *n = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc funcTimestamp)
{
    WEIR_FAIL_IF(!funcTimestamp, CUPTI_ERROR_INVALID_PARAMETER);
    weir_cupti_lock();
    end_buffer_locked(); /* its records belong to the old clock */
    start_clock_locked(funcTimestamp);
    weir_cupti_unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    WEIR_FAIL_IF(!timestamp, CUPTI_ERROR_INVALID_PARAMETER);
    *timestamp = stamp_now();
    return CUPTI_SUCCESS;
}
