/*
 * `weir profile`: uses this library's activities itself, for programs without a profiler. It writes
 * Chrome trace events, which Perfetto and chrome://tracing show: a row of calls and NVTX ranges for
 * each thread, one of work for each stream of a device, and beside it one of the stream's waits in
 * the gate.
 *
 * A program that registers buffers of its own takes the records over from then on.
 */
#include "base/status.h"
#include "guest_cupti/lib.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)
#define TEXT_BYTES   (64u << 10)
#define EVENT_BYTES  8192u /* room for one event; names are cut to NAME_BYTES */
#define NAME_BYTES   2048u
#define DEVICES      16u      /* of a tenant, at most */
#define GATE_ROW     1000000u /* a stream's number plus this is the row of its waits */

/* Entry points of other files. */
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, CUpti_Activity **record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n);
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name);
CUptiResult cuptiGetTimestamp(uint64_t *timestamp);

/** Record the program's calls and work from now on, and write them to a file at its end.
 * @param path  %p in it stands for the process's number. @thread any, once */
WEIR_CUPTI_EXPORT CUptiResult cuptiWeirProfile(const char *path);

static struct {
    int fd;
    pid_t pid;
    uint64_t zero; /* stamp at the begin */
    char text[TEXT_BYTES];
    size_t used;
} trace;

/* ---------------------------------------------------------------- text */

static void write_out(void)
{
    size_t done = 0;
    while (done < trace.used) {
        ssize_t n = write(trace.fd, trace.text + done, trace.used - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break; /* a full disk costs events, not the program */
        }
        done += (size_t)n;
    }
    trace.used = 0;
}

static void put(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *fmt, ...)
{
    va_list args;
    if (TEXT_BYTES - trace.used < EVENT_BYTES) {
        write_out();
    }
    va_start(args, fmt);
    int n = vsnprintf(trace.text + trace.used, EVENT_BYTES, fmt, args);
    va_end(args);
    trace.used += n > 0 && n < (int)EVENT_BYTES ? (size_t)n : 0;
}

/* Escape a name for a JSON string. */
static const char *quoted(const char *name, char text[NAME_BYTES])
{
    size_t n = 0;
    for (; *name && n + 2 < NAME_BYTES; name++) {
        if (*name == '"' || *name == '\\') {
            text[n++] = '\\';
        }
        text[n++] = (unsigned char)*name < ' ' ? '?' : *name;
    }
    text[n] = '\0';
    return text;
}

/* ---------------------------------------------------------------- events */

/* The first part of an event; its arguments and "}}" must follow. Devices are processes with
 * numbers of their own. */
static void put_event(const char *name, const char *kind, uint64_t start, uint64_t end,
                      uint32_t process, uint32_t row)
{
    char text[NAME_BYTES];
    uint64_t at = start > trace.zero ? start - trace.zero : 0, took = end > start ? end - start : 0;
    put(",\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,"
        "\"pid\":%u,\"tid\":%u,\"args\":{",
        quoted(name, text), kind, (unsigned long long)at / 1000, (unsigned long long)at % 1000,
        (unsigned long long)took / 1000, (unsigned long long)took % 1000, process, row);
}

static void put_call(const CUpti_ActivityAPI *record)
{
    bool is_runtime = record->kind == CUPTI_ACTIVITY_KIND_RUNTIME;
    const char *name = "?";
    (void)cuptiGetCallbackName(
        is_runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API, record->cbid, &name);
    put_event(name ? name : "?", is_runtime ? "runtime" : "driver", record->start, record->end,
              (uint32_t)trace.pid, record->threadId);
    put("\"correlation\":%u,\"result\":%u}}", record->correlationId, record->returnValue);
}

static void put_kernel(const CUpti_ActivityKernel10 *record)
{
    put_event(record->name, "kernel", record->start, record->end, record->deviceId,
              record->streamId);
    put("\"correlation\":%u,\"grid\":[%d,%d,%d],\"block\":[%d,%d,%d],\"registers\":%u,"
        "\"shared memory\":%d}}",
        record->correlationId, record->gridX, record->gridY, record->gridZ, record->blockX,
        record->blockY, record->blockZ, record->registersPerThread,
        record->staticSharedMemory + record->dynamicSharedMemory);
}

static void put_copy(const CUpti_ActivityMemcpy6 *record)
{
    put_event(record->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to device"
              : record->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy from device"
                                                                    : "copy on device",
              "memcpy", record->start, record->end, record->deviceId, record->streamId);
    put("\"correlation\":%u,\"bytes\":%llu}}", record->correlationId,
        (unsigned long long)record->bytes);
}

static void put_fill(const CUpti_ActivityMemset4 *record)
{
    put_event("fill", "memset", record->start, record->end, record->deviceId, record->streamId);
    put("\"correlation\":%u,\"bytes\":%llu}}", record->correlationId,
        (unsigned long long)record->bytes);
}

static void put_wait(const CUpti_ActivityOverhead3 *record)
{
    const struct weir_cupti_gate *gate = record->overheadData;
    char name[64];
    (void)snprintf(name, sizeof name, "waits: %s", gate->cause);
    put_event(name, "gate", record->start, record->end, record->objectId.deviceId,
              GATE_ROW + record->objectId.streamId);
    put("\"correlation\":%u}}", record->correlationId);
}

/* Write a range on its thread's row. One that may end on another thread has its own row. */
static void put_marker(const CUpti_ActivityMarker2 *record)
{
    char text[NAME_BYTES];
    bool ends = record->flags & CUPTI_ACTIVITY_FLAG_MARKER_END;
    uint64_t at = record->timestamp > trace.zero ? record->timestamp - trace.zero : 0;
    const char *phase = record->flags & CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS ? "i"
                        : record->pad                                            ? ends ? "e" : "b"
                        : ends                                                   ? "E"
                                                                                 : "B";
    put(",\n{\"ph\":\"%s\",\"cat\":\"nvtx\",\"id\":%u,\"ts\":%llu.%03llu,\"pid\":%u,\"tid\":%u",
        phase, record->id, (unsigned long long)at / 1000, (unsigned long long)at % 1000,
        (uint32_t)trace.pid, record->objectId.threadId);
    if (record->name) {
        put(",\"name\":\"%s\"", quoted(record->name, text));
    }
    if (record->domain) {
        put(",\"args\":{\"domain\":\"%s\"}", quoted(record->domain, text));
    }
    put("}");
}

static void requested(uint8_t **buffer, size_t *size, size_t *max)
{
    *buffer = malloc(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max = 0;
}

static void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                      size_t valid)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards trace */
    CUpti_Activity *record = NULL;
    (void)context;
    (void)stream;
    (void)size;
    pthread_mutex_lock(&lock);
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        const void *at = record;
        switch ((int)record->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            put_kernel(at);
            break;
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            put_copy(at);
            break;
        case CUPTI_ACTIVITY_KIND_MEMSET:
            put_fill(at);
            break;
        case CUPTI_ACTIVITY_KIND_OVERHEAD:
            put_wait(at);
            break;
        case CUPTI_ACTIVITY_KIND_MARKER:
            put_marker(at);
            break;
        default:
            put_call(at);
        }
    }
    write_out();
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---------------------------------------------------------------- begin and end */

static void finish(void)
{
    size_t dropped = 0;
    if (getpid() != trace.pid) {
        return; /* a forked child */
    }
    (void)cuptiActivityFlushAll(0);
    (void)cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
    if (dropped) {
        put(",\n{\"ph\":\"i\",\"s\":\"g\",\"name\":\"%zu records were lost\",\"ts\":0,\"pid\":%d,"
            "\"tid\":0}",
            dropped, (int)trace.pid);
    }
    put("\n]\n");
    write_out();
    (void)close(trace.fd);
}

/* Make the file's name: each %p becomes the process's number. */
static bool file_name(const char *pattern, char name[PATH_MAX])
{
    size_t used = 0;
    for (; *pattern && used < PATH_MAX - 16; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            used += (size_t)snprintf(name + used, 16, "%d", (int)getpid());
            pattern++;
        } else {
            name[used++] = *pattern;
        }
    }
    name[used] = '\0';
    return !*pattern;
}

CUptiResult cuptiWeirProfile(const char *path)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               CUPTI_ACTIVITY_KIND_RUNTIME,
                                               CUPTI_ACTIVITY_KIND_DRIVER,
                                               CUPTI_ACTIVITY_KIND_OVERHEAD,
                                               CUPTI_ACTIVITY_KIND_MARKER};
    char name[PATH_MAX];
    trace.fd =
        file_name(path, name) ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    WEIR_FAIL_IF(trace.fd < 0, CUPTI_ERROR_INVALID_PARAMETER);
    trace.pid = getpid();
    (void)cuptiActivityRegisterCallbacks(requested, completed);
    (void)cuptiGetTimestamp(&trace.zero);
    put("[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"calls\"}}",
        (int)trace.pid);
    for (uint32_t device = 0; device < DEVICES; device++) { /* numbers below those of processes */
        put(",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"GPU %u\"}}",
            device, device);
    }
    for (size_t i = 0; i < WEIR_COUNT(kinds); i++) {
        (void)cuptiActivityEnable(kinds[i]);
    }
    return atexit(finish) == 0 ? CUPTI_SUCCESS : CUPTI_ERROR_OUT_OF_MEMORY;
}
