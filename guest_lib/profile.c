/*
 * While a watcher is set, it is told of each call when the call begins and after it has returned,
 * with the work that the call gave to the device. That is read from the call's arguments after it
 * has succeeded. The watcher is not told of calls that it makes itself.
 */
#include "guest_lib/profile.h"

#include "base/clock.h"
#include "base/log.h"
#include "guest_lib/calls_log.h"
#include "guest_lib/cupti.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "proto/calls_log_table.h"
#include "proto/common/common.h"
#include "proto/common/ctx_stack.h"
#include "proto/guest_calls.h"
#include "proto/profile/session_table.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 16 /* most arguments that a watcher is told; no export has more */

static const struct weir_profile_watch *watch; /* atomic; NULL: no watcher */
static enum weir_profile_wish wish;            /* atomic; what the host is to record */
static uint32_t last_number;                   /* atomic */

/* This thread's calls. (The number that its requests carry is in weir_calls_thread.) */
static __thread struct {
    uint32_t number;  /* of the driver's call under way */
    uint32_t runtime; /* number of the runtime's call under way; 0: none */
    uint64_t runtime_start_ns;
    uint64_t before; /* the newest id of an object when the driver's call began */
    bool in_watcher; /* the watcher runs, and calls functions itself */
} mine;

/* ---------------------------------------------------------------- what a symbol does */

struct symbol_about {
    uint8_t what;           /* enum weir_profile_what */
    int8_t stream;          /* index of the argument that is a stream; -1: there is none */
    int8_t bytes;           /* index of the argument with a copy's size; -1: not one argument */
    bool is_async;          /* the copy or fill is asynchronous */
    bool is_thread;         /* NULL means the thread's own stream */
    uint8_t source, target; /* of a copy: enum weir_profile_memory; UNKNOWN: look up the address */
};

_Static_assert((int)WEIR_SYMBOL_COUNT <= (int)WEIR_PROFILE_SYMBOLS, "numbers of symbols");
static struct symbol_about about[WEIR_SYMBOL_COUNT];
static pthread_once_t about_once = PTHREAD_ONCE_INIT;

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static uint8_t what_of(const char *name)
{
    static const struct {
        const char *begins;
        uint8_t what;
    } kinds[] = {
        {"cuLaunchKernel", WEIR_PROFILE_LAUNCH},
        {"cuLaunchCooperativeKernel", WEIR_PROFILE_LAUNCH},
        {"cuGraphLaunch", WEIR_PROFILE_LAUNCH_GRAPH},
        {"cuMemcpy", WEIR_PROFILE_COPY},
        {"cuMemset", WEIR_PROFILE_FILL},
        {"cuCtxSynchronize", WEIR_PROFILE_WAIT_CONTEXT},
        {"cuStreamSynchronize", WEIR_PROFILE_WAIT_STREAM},
        {"cuEventSynchronize", WEIR_PROFILE_WAIT_EVENT},
        {"cuStreamWaitEvent", WEIR_PROFILE_STREAM_WAITS},
        {"cuInit", WEIR_PROFILE_START},
        {"cuCtxCreate", WEIR_PROFILE_MAKE_CONTEXT},
        {"cuDevicePrimaryCtxRetain", WEIR_PROFILE_MAKE_CONTEXT},
        {"cuStreamCreate", WEIR_PROFILE_MAKE_STREAM},
    };
    size_t at = WEIR_FIRST(i, WEIR_COUNT(kinds), begins(name, kinds[i].begins));
    return at < WEIR_COUNT(kinds) ? kinds[at].what : WEIR_PROFILE_NOTHING;
}

/* Find the sides of a copy that the function's name tells. */
static void sides_of(const char *name, struct symbol_about *ret)
{
    static const struct {
        const char *text;
        uint8_t source, target;
    } ways[] = {
        {"AtoH", WEIR_PROFILE_MEMORY_ARRAY, WEIR_PROFILE_MEMORY_UNKNOWN},
        {"HtoA", WEIR_PROFILE_MEMORY_UNKNOWN, WEIR_PROFILE_MEMORY_ARRAY},
        {"AtoD", WEIR_PROFILE_MEMORY_ARRAY, WEIR_PROFILE_MEMORY_DEVICE},
        {"DtoA", WEIR_PROFILE_MEMORY_DEVICE, WEIR_PROFILE_MEMORY_ARRAY},
        {"AtoA", WEIR_PROFILE_MEMORY_ARRAY, WEIR_PROFILE_MEMORY_ARRAY},
    };
    for (size_t i = 0; i < WEIR_COUNT(ways); i++) {
        if (begins(name + strlen("cuMemcpy"), ways[i].text)) {
            ret->source = ways[i].source;
            ret->target = ways[i].target;
        }
    }
}

/* Find the index of an argument by name; -1: there is none. */
static int8_t argument_named(const struct weir_calls_log_symbol *symbol, const char *name)
{
    for (int k = 0; k < symbol->n_args; k++) {
        if (strcmp(weir_calls_log_args[symbol->first + k].name, name) == 0) {
            return (int8_t)k;
        }
    }
    return -1;
}

static void learn_symbols(void)
{
    for (int i = 0; i < WEIR_SYMBOL_COUNT; i++) {
        const struct weir_calls_log_symbol *symbol = &weir_calls_log_symbols[i];
        size_t length = strlen(symbol->name);
        about[i].what = what_of(symbol->name);
        about[i].is_async = strstr(symbol->name, "Async") != NULL;
        about[i].is_thread = length > 5 && (strcmp(symbol->name + length - 5, "_ptsz") == 0 ||
                                            strcmp(symbol->name + length - 5, "_ptds") == 0);
        about[i].stream = argument_named(symbol, "hStream");
        about[i].bytes = argument_named(symbol, "ByteCount");
        if (about[i].what == WEIR_PROFILE_COPY) {
            sides_of(symbol->name, &about[i]);
        }
    }
}

static uint8_t bytes_of(const struct weir_calls_log_item *arg)
{
    return arg->by == WEIR_CALLS_LOG_BY_VALUE ? (uint8_t)weir_calls_log_value_bytes(arg)
                                              : sizeof(void *);
}

/* ---------------------------------------------------------------- a call's work */

static enum weir_profile_memory memory_at(uint64_t address)
{
    struct weir_mem mem;
    if (!weir_mem_find(address, &mem)) {
        return WEIR_PROFILE_MEMORY_PAGEABLE;
    }
    if (mem.on_host) {
        return WEIR_PROFILE_MEMORY_PINNED;
    }
    switch (mem.kind) {
    case WEIR_MEM_PINNED:
    case WEIR_MEM_REGISTERED:
    case WEIR_MEM_HOST:
        return WEIR_PROFILE_MEMORY_PINNED;
    case WEIR_MEM_MANAGED:
        return WEIR_PROFILE_MEMORY_MANAGED;
    case WEIR_MEM_DEVICE:
    case WEIR_MEM_MODULE:
    case WEIR_MEM_IMPORTED:
    case WEIR_MEM_MAPPED:
    default:
        return WEIR_PROFILE_MEMORY_DEVICE;
    }
}

static uint32_t attribute(const struct weir_guest_function *function, CUfunction_attribute which)
{
    return function->attribute_mask >> which & 1 ? (uint32_t)function->attributes[which] : 0;
}

static void describe_kernel(const void *handle, struct weir_profile_work *work)
{
    const struct weir_guest_function *function = weir_function_get(handle);
    if (!function) {
        return;
    }
    work->kernel = function->name;
    work->static_shared_bytes = attribute(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    work->local_bytes = attribute(function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    work->registers = attribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS);
}

/* Describe the launch's configuration. @return its stream */
static CUstream describe_config(const CUlaunchConfig *config, struct weir_profile_work *work)
{
    const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const uint32_t block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    memcpy(work->grid, grid, sizeof grid);
    memcpy(work->block, block, sizeof block);
    work->shared_bytes = config->sharedMemBytes;
    for (uint32_t i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            work->cluster[0] = config->attrs[i].value.clusterDim.x;
            work->cluster[1] = config->attrs[i].value.clusterDim.y;
            work->cluster[2] = config->attrs[i].value.clusterDim.z;
        }
    }
    return config->hStream;
}

/* @return the launch's stream, which may be NULL */
static CUstream describe_launch(enum weir_symbol symbol, const uint64_t *words,
                                struct weir_profile_work *work)
{
    if (begins(weir_calls_log_symbols[symbol].name, "cuLaunchKernelEx")) {
        describe_kernel((const void *)(uintptr_t)words[1], work);
        return describe_config((const CUlaunchConfig *)(uintptr_t)words[0], work);
    }
    describe_kernel((const void *)(uintptr_t)words[0], work);
    for (int i = 0; i < 3; i++) {
        work->grid[i] = (uint32_t)words[1 + i];
        work->block[i] = (uint32_t)words[4 + i];
    }
    work->shared_bytes = (uint32_t)words[7];
    return (CUstream)(uintptr_t)words[8];
}

static void place(const struct weir_guest_stream *stream, struct weir_profile_work *work)
{
    work->stream = (uint32_t)stream->id;
    work->context = (uint32_t)stream->ctx->id;
    work->device = (uint32_t)stream->ctx->device;
    work->is_new = stream->id > mine.before;
    work->is_null = stream->legacy;
    work->is_non_blocking = (stream->flags & CU_STREAM_NON_BLOCKING) != 0;
    work->priority = stream->priority;
}

static void describe_stream(CUstream handle, bool is_thread, struct weir_profile_work *work)
{
    struct weir_guest_stream *stream;
    handle = handle ? handle : is_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (weir_guest_stream_get(handle, &stream) == CUDA_SUCCESS) {
        place(stream, work);
    }
}

/* Describe the NULL stream of a context, which may not be current. */
static void describe_context(CUcontext handle, struct weir_profile_work *work)
{
    const struct weir_guest_ctx *ctx = weir_ctx_get(handle);
    const struct weir_guest_stream *stream =
        ctx ? __atomic_load_n(&ctx->legacy, __ATOMIC_ACQUIRE) : NULL;
    if (stream) {
        place(stream, work);
    }
}

/* Describe what a call did. It was successful, so its arguments point to valid memory. */
static void describe(enum weir_symbol symbol, const uint64_t *words, struct weir_profile_work *work)
{
    const struct symbol_about *of = &about[symbol];
    CUstream stream = of->stream >= 0 ? (CUstream)(uintptr_t)words[of->stream] : NULL;
    work->what = (enum weir_profile_what)of->what;
    work->is_async = of->is_async;
    switch (work->what) {
    case WEIR_PROFILE_LAUNCH:
        stream = describe_launch(symbol, words, work);
        break;
    case WEIR_PROFILE_LAUNCH_GRAPH:
        work->graph = words[0];
        break;
    case WEIR_PROFILE_COPY:
        work->source = of->source ? (enum weir_profile_memory)of->source : memory_at(words[1]);
        work->target = of->target ? (enum weir_profile_memory)of->target : memory_at(words[0]);
        work->bytes = of->bytes >= 0 ? words[of->bytes] : 0;
        break;
    case WEIR_PROFILE_FILL:
        work->value = (uint32_t)words[1];
        break;
    case WEIR_PROFILE_WAIT_EVENT:
        work->event = words[0];
        break;
    case WEIR_PROFILE_STREAM_WAITS:
        work->event = words[1];
        break;
    case WEIR_PROFILE_START:
        work->what = mine.before ? WEIR_PROFILE_NOTHING : WEIR_PROFILE_START;
        return;
    case WEIR_PROFILE_MAKE_CONTEXT:
        describe_context(*(const CUcontext *)(uintptr_t)words[0], work);
        return;
    case WEIR_PROFILE_MAKE_STREAM:
        stream = *(const CUstream *)(uintptr_t)words[0];
        break;
    case WEIR_PROFILE_NOTHING:
    case WEIR_PROFILE_WAIT_CONTEXT:
    case WEIR_PROFILE_WAIT_STREAM:
    default:
        break;
    }
    describe_stream(stream, of->is_thread, work);
    weir_calls_leave(&weir_calls_thread); /* the call that would do this at its end has ended */
}

/* ---------------------------------------------------------------- calls */

static const struct weir_profile_watch *watcher(void)
{
    return __atomic_load_n(&watch, __ATOMIC_ACQUIRE); /* W1 */
}

static uint32_t next_number(void)
{
    uint32_t number;
    do {
        number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED) & ~WEIR_PROFILE_WHOLE_GRAPHS;
    } while (!number);
    return number;
}

/* Fill in what is known of a call before it is made. */
static void name_call(enum weir_symbol symbol, const uint64_t *words, uint8_t bytes[ARGS_MAX],
                      struct weir_profile_call *call)
{
    const struct weir_calls_log_symbol *log = &weir_calls_log_symbols[symbol];
    memset(call, 0, sizeof *call);
    call->name = log->name;
    call->symbol = (uint32_t)symbol;
    call->words = words;
    call->word_bytes = bytes;
    call->n_words = WEIR_MIN(log->n_args, ARGS_MAX);
    for (uint32_t i = 0; i < call->n_words; i++) {
        bytes[i] = bytes_of(&weir_calls_log_args[log->first + i]);
    }
}

void weir_guest_profile_begin(struct weir_calls_thread *thread, enum weir_symbol symbol,
                              const uint64_t *words)
{
    WEIR_GUEST_KEEP_ERRNO;
    const struct weir_profile_watch *now = watcher();
    const struct weir_calls_thread before = *thread;
    struct weir_profile_call call;
    uint8_t bytes[ARGS_MAX];
    if (!now || mine.in_watcher) {
        return;
    }
    mine.number = mine.runtime ? mine.runtime : next_number();
    mine.before = __atomic_load_n(&weir_guest.objects.next_id, __ATOMIC_RELAXED);
    if (!mine.runtime) {
        name_call(symbol, words, bytes, &call);
        call.number = mine.number;
        call.start_ns = before.start_ns;
        mine.in_watcher = true;
        now->entered(&call);
        mine.in_watcher = false;
        /* The watcher may have made calls. */
        thread->caller = before.caller;
        thread->start_ns = before.start_ns;
    }
    thread->marks = before.marks | WEIR_CALLS_TOLD;
    enum weir_profile_wish wanted = __atomic_load_n(&wish, __ATOMIC_RELAXED);
    thread->profile = wanted == WEIR_PROFILE_WISH_NOTHING ? 0
                      : wanted == WEIR_PROFILE_WISH_WORK  ? mine.number
                                                          : mine.number | WEIR_PROFILE_WHOLE_GRAPHS;
}

void weir_guest_profile_end(enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    WEIR_GUEST_KEEP_ERRNO;
    const struct weir_calls_last last = weir_calls_last();
    const struct weir_profile_watch *now = watcher();
    struct weir_profile_call call;
    uint8_t bytes[ARGS_MAX];
    if (!now || !(last.marks & WEIR_CALLS_TOLD)) {
        return;
    }
    name_call(symbol, words, bytes, &call);
    call.number = mine.number;
    call.in_runtime = mine.runtime != 0;
    call.result = result;
    call.start_ns = last.start_ns;
    call.end_ns = last.start_ns + last.ns;
    if (result == CUDA_SUCCESS && about[symbol].what != WEIR_PROFILE_NOTHING) {
        describe(symbol, words, &call.work);
    }
    mine.in_watcher = true;
    now->left(&call);
    mine.in_watcher = false;
}

/* ---------------------------------------------------------------- the runtime */

static void runtime_called(const struct weir_common_runtime_call *call)
{
    const struct weir_profile_watch *now = watcher();
    struct weir_profile_runtime about_call = {.name = call->name,
                                              .id = call->id,
                                              .is_end = call->site != 0,
                                              .params = call->params,
                                              .result = call->result,
                                              .scratch = call->scratch,
                                              .context = call->context,
                                              .symbol = call->symbol};
    if (!now || mine.in_watcher) {
        return;
    }
    if (!about_call.is_end) {
        mine.runtime = next_number();
        mine.runtime_start_ns = weir_clock_now_ns();
    } else if (!mine.runtime) {
        return; /* it began before there was a watcher */
    }
    about_call.number = mine.runtime;
    about_call.start_ns = mine.runtime_start_ns;
    about_call.end_ns = about_call.is_end ? weir_clock_now_ns() : 0;
    mine.in_watcher = true;
    now->runtime(&about_call);
    mine.in_watcher = false;
    mine.runtime = about_call.is_end ? 0 : mine.runtime;
}

/* ---------------------------------------------------------------- the table */

static void table_watch(const struct weir_profile_watch *new_watch, enum weir_profile_wish new_wish)
{
    pthread_once(&about_once, learn_symbols);
    __atomic_store_n(&wish, new_wish, __ATOMIC_RELAXED);
    /* W1: publishes about[] and the watch. */
    __atomic_store_n(&watch, new_watch, __ATOMIC_RELEASE);
    weir_calls_watch(new_watch != NULL);
    weir_common_watch_runtime(new_watch ? runtime_called : NULL);
}

/*
 * How far the host's clock is ahead, if it is another machine's. The host reads its clock while a
 * call waits, so on one machine that time lies between the call's beginning and end. Otherwise the
 * shortest call so far gives the best estimate.
 */
static struct {
    struct weir_lock lock; /* guards what follows */
    uint64_t took_ns;      /* the shortest call; 0: none was seen on another clock */
    int64_t ahead_ns;
} host_clock;

static int64_t clock_shift_ns(uint64_t before_ns, uint64_t host_ns, uint64_t after_ns)
{
    WEIR_GUEST_LOCKED(&host_clock.lock);
    if (host_ns >= before_ns && host_ns <= after_ns) {
        host_clock.took_ns = 0;
        host_clock.ahead_ns = 0;
    } else if (!host_clock.took_ns || after_ns - before_ns < host_clock.took_ns) {
        host_clock.took_ns = after_ns - before_ns;
        host_clock.ahead_ns = (int64_t)(host_ns - before_ns - host_clock.took_ns / 2);
    }
    return -host_clock.ahead_ns;
}

static CUresult table_take(struct weir_profile_taken *ret_taken)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_op_profile_take_out out;
    memset(ret_taken, 0, sizeof *ret_taken);
    WEIR_TRY(WEIR_GUEST_ENTER(cuCtxSynchronize));
    uint64_t before_ns = weir_clock_now_ns();
    WEIR_TRY(weir_call_profile_take(weir_guest_channel(), NULL, &out));
    WEIR_FAIL_IF(out.n_records % sizeof *ret_taken->records != 0, CUDA_ERROR_UNKNOWN);
    ret_taken->records = out.records;
    ret_taken->n = out.n_records / (uint32_t)sizeof *ret_taken->records;
    ret_taken->shift_ns = clock_shift_ns(before_ns, out.now_ns, weir_clock_now_ns());
    ret_taken->pending = out.pending;
    ret_taken->dropped = out.dropped;
    return CUDA_SUCCESS;
}

static void table_kernel(uint64_t function, char *name, size_t bytes,
                         struct weir_profile_work *work)
{
    weir_functions_keep(true);
    describe_kernel((const void *)(uintptr_t)function, work);
    (void)snprintf(name, bytes, "%s", work->kernel ? work->kernel : "");
    weir_functions_keep(false);
    work->kernel = name;
    weir_calls_leave(&weir_calls_thread); /* this is no export, which would leave by itself */
}

static uint32_t table_context_number(CUcontext context)
{
    const struct weir_guest_ctx *ctx = NULL;
    if (weir_guest_phase_now() == WEIR_PHASE_READY) {
        ctx = weir_ctx_get(context ? context : weir_ctx_stack_current());
    }
    return ctx ? (uint32_t)ctx->id : 0;
}

static uint32_t table_stream_number(CUcontext context, CUstream handle)
{
    struct weir_guest_stream *stream = NULL;
    struct weir_guest_ctx *ctx;
    CUresult result = WEIR_GUEST_ENTER(cuStreamGetId);
    if (result != CUDA_SUCCESS) {
        return 0;
    }
    if (!handle || handle == CU_STREAM_LEGACY) {
        stream = weir_ctx_resolve(context, &ctx) == CUDA_SUCCESS ? ctx->legacy : NULL;
    } else if (weir_guest_stream_get(handle, &stream) != CUDA_SUCCESS) {
        stream = NULL;
    }
    uint32_t number = stream ? (uint32_t)stream->id : 0;
    weir_calls_leave(&weir_calls_thread); /* this is no export, which would leave by itself */
    return number;
}

static int table_device_of(CUcontext context)
{
    const struct weir_guest_ctx *ctx =
        weir_guest_phase_now() == WEIR_PHASE_READY ? weir_ctx_get(context) : NULL;
    return ctx ? ctx->device : -1;
}

static void tell_stream(weir_handle handle, void *object, void *user)
{
    struct weir_profile_work work;
    void (**tell)(const struct weir_profile_work *) = user;
    (void)handle;
    memset(&work, 0, sizeof work);
    place(object, &work);
    (*tell)(&work);
}

static void table_streams(void (*tell)(const struct weir_profile_work *stream))
{
    if (weir_guest_phase_now() == WEIR_PHASE_READY) {
        weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_STREAM], tell_stream, &tell);
    }
}

static bool table_device(int ordinal, struct weir_profile_device *ret_device)
{
    const struct weir_guest_device *device =
        weir_guest_phase_now() == WEIR_PHASE_READY ? weir_guest_device_get(ordinal) : NULL;
    WEIR_FAIL_IF(!device, false);
    *ret_device = (struct weir_profile_device){device->name, &device->uuid, device->attributes,
                                               device->total_bytes};
    return true;
}

bool weir_guest_profile_table(const CUuuid *id, const void **ret_table)
{
    static const uint8_t uuid[16] = WEIR_PROFILE_TABLE_UUID;
    static const struct weir_profile_table table = {.table_bytes = sizeof table,
                                                    .version = WEIR_PROFILE_TABLE_VERSION,
                                                    .watch = table_watch,
                                                    .take = table_take,
                                                    .kernel = table_kernel,
                                                    .context_number = table_context_number,
                                                    .stream_number = table_stream_number,
                                                    .device_of = table_device_of,
                                                    .streams = table_streams,
                                                    .device = table_device};
    if (memcmp(id->bytes, uuid, sizeof uuid) != 0) {
        return false;
    }
    *ret_table = &table;
    return true;
}

void weir_guest_profile_start(void)
{
    int (*profile)(const char *path);
    const char *wanted = getenv("WEIR_PROFILE");
    if (!wanted || !*wanted) {
        return;
    }
    void *library = weir_guest_cupti_load("libcupti.so.13");
    *(void **)&profile = library ? dlsym(library, "cuptiWeirProfile") : NULL;
    if (!profile || profile(wanted) != 0) {
        weir_log_error("guest: no profile is written, since %s cannot be %s",
                       profile ? wanted : "libcupti.so.13", profile ? "opened" : "loaded");
    }
}

void weir_guest_profile_in_child(void)
{
    __atomic_store_n(&watch, NULL, __ATOMIC_RELEASE);
    weir_calls_watch(false);
    weir_common_watch_runtime(NULL);
    memset(&mine, 0, sizeof mine);
}
