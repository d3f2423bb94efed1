/*
 * Weir's libcupti.so: its start, the calls from libcuda.so.1, and small entry points.
 *
 * The library knows nothing of hosts: everything comes through a table of Weir's libcuda.so.1
 * (proto/profile/session_table.h). It needs libc alone, prints nothing, and stays loaded.
 */
#include "guest_cupti/lib.h"

#include "base/status.h"
#include "proto/beside.h"
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static const struct weir_profile_table *table;           /* found once, then kept */

const struct weir_profile_table *weir_cupti_session(void)
{
    const struct weir_profile_table *found = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    if (found) {
        return found;
    }
    static const uint8_t id[16] = WEIR_PROFILE_TABLE_UUID;
    int saved = errno;
    pthread_mutex_lock(&lock);
    if (!table) {
        void *library = weir_libcuda_loaded();
        library =
            library ? library : weir_library_beside((uintptr_t)&weir_cupti_session, "libcuda.so.1");
        found = weir_libcuda_table(library, id, sizeof *found, WEIR_PROFILE_TABLE_VERSION);
        __atomic_store_n(&table, found, __ATOMIC_RELEASE);
    }
    found = table; /* libcuda.so.1 stays open, because the table lies in its memory */
    pthread_mutex_unlock(&lock);
    errno = saved;
    return found;
}

uint32_t weir_cupti_thread(void)
{
    static __thread uint32_t id;
    if (!id) {
        id = (uint32_t)syscall(SYS_gettid);
    }
    return id;
}

/* ---------------------------------------------------------------- what libcuda.so.1 tells */

static void entered(const struct weir_profile_call *call)
{
    weir_cupti_driver_callback(call, false);
}

static void left(const struct weir_profile_call *call)
{
    if (!call->in_runtime) {
        weir_cupti_driver_callback(call, true);
    }
    weir_cupti_driver_called(call);
}

static void runtime(const struct weir_profile_runtime *call)
{
    weir_cupti_runtime_callback(call);
    if (call->is_end) {
        weir_cupti_runtime_called(call);
    }
}

void weir_cupti_watch(void)
{
    static const struct weir_profile_watch watch = {
        .entered = entered, .left = left, .runtime = runtime};
    const struct weir_profile_table *session = weir_cupti_session();
    if (session) {
        session->watch(weir_cupti_activities() || weir_cupti_callbacks() ? &watch : NULL,
                       weir_cupti_wants(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) ? WEIR_PROFILE_WISH_GRAPHS
                       : weir_cupti_wants_work()                         ? WEIR_PROFILE_WISH_WORK
                                                 : WEIR_PROFILE_WISH_NOTHING);
    }
}

/* ---------------------------------------------------------------- small answers */

WEIR_CUPTI_EXPORT CUptiResult cuptiGetVersion(uint32_t *version);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **str);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **str);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetContextId(CUcontext context, uint32_t *contextId);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream,
                                               uint32_t *streamId);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream,
                                                 uint8_t perThreadStream, uint32_t *streamId);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *id);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t *id);
WEIR_CUPTI_EXPORT CUptiResult cuptiDeviceSupported(CUdevice dev, int *support);
WEIR_CUPTI_EXPORT CUptiResult cuptiGetLastError(void);

CUptiResult cuptiGetVersion(uint32_t *version)
{
    WEIR_FAIL_IF(!version, CUPTI_ERROR_INVALID_PARAMETER);
    *version = WEIR_CUPTI_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **str)
{
    static const struct {
        CUptiResult result;
        const char *name;
    } names[] = {
#define NAME(result) {result, #result}
        NAME(CUPTI_SUCCESS),
        NAME(CUPTI_ERROR_INVALID_PARAMETER),
        NAME(CUPTI_ERROR_INVALID_CONTEXT),
        NAME(CUPTI_ERROR_INVALID_OPERATION),
        NAME(CUPTI_ERROR_OUT_OF_MEMORY),
        NAME(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT),
        NAME(CUPTI_ERROR_MAX_LIMIT_REACHED),
        NAME(CUPTI_ERROR_NOT_INITIALIZED),
        NAME(CUPTI_ERROR_QUEUE_EMPTY),
        NAME(CUPTI_ERROR_INVALID_STREAM),
        NAME(CUPTI_ERROR_INVALID_KIND),
        NAME(CUPTI_ERROR_NOT_SUPPORTED),
        NAME(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
        NAME(CUPTI_ERROR_UNKNOWN),
#undef NAME
    };
    for (size_t i = 0; str && i < WEIR_COUNT(names); i++) {
        if (names[i].result == result) {
            *str = names[i].name;
            return CUPTI_SUCCESS;
        }
    }
    return CUPTI_ERROR_INVALID_PARAMETER; /* this library returns no other errors */
}

CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **str)
{
    if (str && result == CUPTI_ERROR_NOT_SUPPORTED) {
        *str = "Weir: not in a guest; use torch.profiler or another user of CUPTI's activities, or "
               "weir profile";
        return CUPTI_SUCCESS;
    }
    if (str && result == CUPTI_ERROR_NOT_INITIALIZED) {
        *str = "Weir: the program has no libcuda.so.1 of Weir; start it by weir run";
        return CUPTI_SUCCESS;
    }
    return cuptiGetResultString(result, str);
}

static CUptiResult give(uint32_t number, uint32_t *ret_number, CUptiResult error)
{
    WEIR_FAIL_IF(!ret_number, CUPTI_ERROR_INVALID_PARAMETER);
    *ret_number = number;
    return number ? CUPTI_SUCCESS : error;
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t *contextId)
{
    const struct weir_profile_table *session = weir_cupti_session();
    return session ? give(session->context_number(context), contextId, CUPTI_ERROR_INVALID_CONTEXT)
                   : CUPTI_ERROR_NOT_INITIALIZED;
}

CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                               uint32_t *streamId)
{
    const struct weir_profile_table *session = weir_cupti_session();
    CUstream meant = stream || !perThreadStream ? stream : CU_STREAM_PER_THREAD;
    return session
               ? give(session->stream_number(context, meant), streamId, CUPTI_ERROR_INVALID_STREAM)
               : CUPTI_ERROR_NOT_INITIALIZED;
}

CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId)
{
    return cuptiGetStreamIdEx(context, stream, 0, streamId);
}

CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId)
{
    const struct weir_profile_table *session = weir_cupti_session();
    int device = session ? session->device_of(context) : -1;
    if (!deviceId || device < 0) {
        return !deviceId ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_ERROR_INVALID_CONTEXT;
    }
    *deviceId = (uint32_t)device;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t *id)
{
    /* Handles count up from the index of a table, so their low halves differ. */
    return give((uint32_t)(uintptr_t)graphExec, id, CUPTI_ERROR_INVALID_PARAMETER);
}

/* JAX asks it of executable graphs. */
CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *id)
{
    return give((uint32_t)(uintptr_t)graph, id, CUPTI_ERROR_INVALID_PARAMETER);
}

CUptiResult cuptiDeviceSupported(CUdevice dev, int *support)
{
    (void)dev;
    WEIR_FAIL_IF(!support, CUPTI_ERROR_INVALID_PARAMETER);
    *support = weir_cupti_session() != NULL;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetLastError(void)
{
    return CUPTI_SUCCESS; /* no last error is kept: each function returns its own */
}
