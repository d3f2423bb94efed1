/*
 * NVIDIA's libcupti in the worker: see cupti.h.
 *
 * libcupti fills buffers with records. An external correlation record has a driver call's number in
 * the process, and the id that the calling thread had pushed; records of the work that the call
 * gave have the number. So the ids of the last calls are kept by number, and a record is copied to
 * its sink as soon as its buffer is complete. A record without an id is of the worker's own work.
 *
 * libcupti calls on_request() and on_complete() on a thread that flushes, which holds no lock, or
 * on one of its own.
 */
#include "host_backend/worker/profile/cupti.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/thread.h"
#include "proto/profile/cupti_abi.h"
#include "proto/profile/record.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_BYTES (1u << 20)
#define CALLS        65536u /* each of a session's open pieces of work may be four calls */
#define SINK_MAX     (9u * WEIR_PROFILE_RECORDS_MAX) /* what profile.c keeps, and a flush more */
#define NAMES        1024u
#define RECENT       256u
#define KIND         CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0

#define FUNCTIONS(X)                                                                               \
    X(cuptiActivityRegisterTimestampCallback, (CUpti_TimestampCallbackFunc))                       \
    X(cuptiActivityRegisterCallbacks,                                                              \
      (CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc))                       \
    X(cuptiActivityEnable, (CUpti_ActivityKind))                                                   \
    X(cuptiActivityDisable, (CUpti_ActivityKind))                                                  \
    X(cuptiActivityFlushAll, (uint32_t))                                                           \
    X(cuptiActivityGetNumDroppedRecords, (CUcontext, uint32_t, size_t *))                          \
    X(cuptiActivityGetNextRecord, (uint8_t *, size_t, CUpti_Activity **))                          \
    X(cuptiActivityPushExternalCorrelationId, (CUpti_ExternalCorrelationKind, uint64_t))           \
    X(cuptiActivityPopExternalCorrelationId, (CUpti_ExternalCorrelationKind, uint64_t *))

#define MEMBER(name, args) CUptiResult(*name) args;
static struct {
    FUNCTIONS(MEMBER)
} lib; /* set once, before state is WORKS */
#undef MEMBER

/* External correlation records come only with records of calls. */
static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_DRIVER,
                                           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                           CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                           CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMCPY2,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
#define N_KINDS WEIR_COUNT(kinds)

struct records {
    struct weir_cupti_record *at; /* owned */
    uint32_t n, room;
};

struct weir_cupti_sink {
    struct weir_cupti_sink *next;
    uint32_t number;
    uint32_t lost;
    struct records fresh, taken; /* since the last weir_cupti_take(), and by it */
};

struct call {
    uint32_t number;
    uint32_t next; /* in its bucket: index in the ring + 1; 0: none */
    uint64_t id;
};

/* The last CALLS calls with an id. */
struct calls {
    uint32_t n; /* all that ever came */
    uint32_t buckets[CALLS];
    struct call ring[CALLS];
};

struct name {
    struct name *next;
    char text[];
};

/* Held while the library is loaded, and while activities are switched, which may complete buffers:
 * taken before the lock. */
static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;
static enum { UNTRIED, WORKS, USELESS } state; /* guarded by it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct weir_cupti_sink *sinks;
static uint32_t last_sink;
static struct calls *calls; /* NULL while nobody records */
static struct name *names[NAMES];
static const char *recent[RECENT]; /* kept names, by the address of the library's own */

/* ---------------------------------------------------------------- calls and names */

static void note_call_locked(uint32_t number, uint64_t id)
{
    uint32_t at = calls->n++ % CALLS;
    struct call *call = &calls->ring[at];

    if (calls->n > CALLS) { /* the oldest call goes: the last one in its bucket */
        uint32_t *next = &calls->buckets[call->number % CALLS];

        while (*next != at + 1) {
            next = &calls->ring[*next - 1].next;
        }
        *next = 0;
    }
    *call = (struct call){number, calls->buckets[number % CALLS], id};
    calls->buckets[number % CALLS] = at + 1;
}

/* @return 0: the call had no id */
static uint64_t id_locked(uint32_t number)
{
    uint32_t at = calls->buckets[number % CALLS];

    while (at != 0 && calls->ring[at - 1].number != number) {
        at = calls->ring[at - 1].next;
    }
    return at != 0 ? calls->ring[at - 1].id : 0;
}

/* Copy a name: the library's own may go with its module. @return NULL: no memory */
static const char *keep_name_locked(const char *text)
{
    const char **known = &recent[(uintptr_t)text / 8 % RECENT];
    uint32_t hash = 5381;

    if (*known && strcmp(*known, text) == 0) {
        return *known;
    }
    for (const char *c = text; *c; c++) {
        hash = hash * 33 + (uint8_t)*c;
    }
    struct name *name = WEIR_LINKED(n, names[hash % NAMES], strcmp(n->text, text) == 0);
    if (!name && (name = malloc(sizeof *name + strlen(text) + 1))) {
        strcpy(name->text, text);
        name->next = names[hash % NAMES];
        names[hash % NAMES] = name;
    }
    *known = name ? name->text : NULL;
    return *known;
}

static void forget_locked(void)
{
    free(calls);
    calls = NULL;
    memset(recent, 0, sizeof recent);
    for (uint32_t i = 0; i < NAMES; i++) {
        for (struct name *next; names[i]; names[i] = next) {
            next = names[i]->next;
            free(names[i]);
        }
    }
}

/* ---------------------------------------------------------------- records */

static struct weir_cupti_record *add(struct records *records)
{
    return records->n < 2 * SINK_MAX && WEIR_GROW(records->at, records->n, records->room)
               ? &records->at[records->n++]
               : NULL;
}

/* Add a record to the sink of the call's owner. @return NULL: the call has no owner, or its sink no
 * room */
static struct weir_cupti_record *record_of_locked(uint32_t call, uint64_t node,
                                                  enum weir_profile_class class, uint64_t begin_ns,
                                                  uint64_t end_ns)
{
    uint64_t id = id_locked(call);
    struct weir_cupti_sink *sink = sinks;
    struct weir_cupti_record *record;

    while (sink && sink->number != id >> 32) {
        sink = sink->next;
    }
    if (!sink || sink->fresh.n >= SINK_MAX || !(record = add(&sink->fresh))) {
        if (sink) {
            sink->lost++;
        }
        return NULL;
    }
    /* A node's number has that of its graph in the upper half. */
    *record = (struct weir_cupti_record){.begin_ns = begin_ns,
                                         .end_ns = end_ns,
                                         .id = (uint32_t)id,
                                         .node = node != 0 ? (uint32_t)node + 1 : 0,
                                         .class = (uint8_t) class};
    return record;
}

static void add_kernel_locked(const CUpti_ActivityKernel10 *from)
{
    struct weir_cupti_record *record = record_of_locked(
        from->correlationId, from->graphNodeId, WEIR_PROFILE_KERNEL, from->start, from->end);

    if (record) {
        record->name = from->name ? keep_name_locked(from->name) : NULL;
        record->shared_bytes = (uint32_t)from->dynamicSharedMemory;
        record->grid[0] = (uint32_t)from->gridX;
        record->grid[1] = (uint32_t)from->gridY;
        record->grid[2] = (uint32_t)from->gridZ;
        record->block[0] = (uint32_t)from->blockX;
        record->block[1] = (uint32_t)from->blockY;
        record->block[2] = (uint32_t)from->blockZ;
    }
}

static void add_copy_locked(const CUpti_ActivityMemcpy6 *from)
{
    enum weir_profile_class class =
        from->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? WEIR_PROFILE_H2D
        : from->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? WEIR_PROFILE_D2H
                                                            : WEIR_PROFILE_D2D;
    struct weir_cupti_record *record =
        record_of_locked(from->correlationId, from->graphNodeId, class, from->start, from->end);

    if (record) {
        record->bytes = from->bytes;
    }
}

static void add_peer_copy_locked(const CUpti_ActivityMemcpyPtoP4 *from)
{
    struct weir_cupti_record *record = record_of_locked(from->correlationId, from->graphNodeId,
                                                        WEIR_PROFILE_D2D, from->start, from->end);

    if (record) {
        record->bytes = from->bytes;
    }
}

static void add_memset_locked(const CUpti_ActivityMemset4 *from)
{
    struct weir_cupti_record *record = record_of_locked(
        from->correlationId, from->graphNodeId, WEIR_PROFILE_MEMSET, from->start, from->end);

    if (record) {
        record->bytes = from->bytes;
        record->value = from->value;
    }
}

static void add_locked(const CUpti_Activity *record)
{
    const void *from = record;
    const CUpti_ActivityExternalCorrelation *external = from;

    switch ((int)record->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        note_call_locked(external->correlationId, external->externalId);
        break;
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        add_kernel_locked(from);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        add_copy_locked(from);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        add_peer_copy_locked(from);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        add_memset_locked(from);
        break;
    default:
        break;
    }
}

static void on_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *buffer = malloc(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void on_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                        size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;

    (void)size;
    (void)lib.cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
    pthread_mutex_lock(&lock);
    for (struct weir_cupti_sink *sink = sinks; sink; sink = sink->next) {
        sink->lost += (uint32_t)dropped; /* anybody's */
    }
    while (calls && valid != 0 &&
           lib.cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        add_locked(record);
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---------------------------------------------------------------- the library */

static bool find_functions(void *library)
{
    bool found = true;

#define FIND(name, args)                                                                           \
    *(void **)&lib.name = dlsym(library, #name);                                                   \
    found = found && lib.name;
    FUNCTIONS(FIND)
#undef FIND
    return found && !dlsym(library, "cuptiWeirProfile"); /* Weir's own is for guests */
}

static bool try_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (library && !find_functions(library)) {
        dlclose(library);
        library = NULL;
    }
    /* It is never closed: its threads and what it hooked into the driver stay. */
    return library != NULL;
}

/* Where the toolkit has it, the newest version first. */
static bool find_library(const char *wanted, char *ret_path, size_t bytes)
{
    static const char *const folders[] = {"/usr/local/cuda/extras/CUPTI/lib64/",
                                          "/usr/local/cuda/targets/x86_64-linux/lib/",
                                          "/usr/local/cuda/targets/sbsa-linux/lib/", ""};

    (void)snprintf(ret_path, bytes, "%s", wanted);
    if (strcmp(wanted, "auto") != 0) {
        return try_library(wanted);
    }
    for (int major = 13; major >= 12; major--) {
        for (size_t i = 0; i < WEIR_COUNT(folders); i++) {
            (void)snprintf(ret_path, bytes, "%slibcupti.so.%d", folders[i], major);
            if (try_library(ret_path)) {
                return true;
            }
        }
    }
    return false;
}

static CUptiResult switch_on(void)
{
    CUptiResult result = CUPTI_SUCCESS;

    for (size_t i = 0; i < N_KINDS && result == CUPTI_SUCCESS; i++) {
        result = lib.cuptiActivityEnable(kinds[i]);
    }
    return result;
}

static void switch_off(void)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        (void)lib.cuptiActivityDisable(kinds[i]);
    }
}

/* Load the library, and see whether it records. */
static void load(const char *wanted)
{
    char path[256];
    uint64_t began_ns = weir_clock_now_ns();

    state = USELESS;
    if (!find_library(wanted, path, sizeof path)) {
        weir_log_info("profile: there is no libcupti, so times of short kernels are too long and "
                      "graphs are one record wanted=%s",
                      wanted);
        return;
    }
    CUptiResult result = lib.cuptiActivityRegisterTimestampCallback(weir_clock_now_ns);
    if (result == CUPTI_SUCCESS) {
        result = lib.cuptiActivityRegisterCallbacks(on_request, on_complete);
    }
    if (result == CUPTI_SUCCESS) {
        result = switch_on();
        switch_off();
    }
    if (result != CUPTI_SUCCESS) {
        weir_log_warn("profile: libcupti does not work with this driver, so times of short kernels "
                      "are too long and graphs are one record path=%s result=%d",
                      path, (int)result);
        return;
    }
    state = WORKS;
    weir_log_info("profile: libcupti is loaded path=%s us=%llu", path,
                  (unsigned long long)((weir_clock_now_ns() - began_ns) / WEIR_NS_PER_US));
}

/* Add a sink to the list. @return false: no memory */
static bool add_sink(struct weir_cupti_sink *sink)
{
    WEIR_LOCKED(&lock);
    if (!calls) {
        calls = calloc(1, sizeof *calls);
    }
    bool added = calls != NULL;
    if (added) {
        sink->number = ++last_sink != 0 ? last_sink : ++last_sink;
        WEIR_PUSH(sinks, sink);
    }
    return added;
}

struct weir_cupti_sink *weir_cupti_open(const char *wanted)
{
    struct weir_cupti_sink *sink = calloc(1, sizeof *sink);

    WEIR_FAIL_IF(!sink, NULL);
    WEIR_LOCKED(&switching);
    if (state == UNTRIED) {
        load(wanted);
    }
    bool first = !sinks; /* changes only while switching is held */
    if (state != WORKS || !add_sink(sink)) {
        free(sink);
        sink = NULL;
    } else if (first) {
        (void)switch_on(); /* worked once */
    }
    return sink;
}

void weir_cupti_close(struct weir_cupti_sink *sink)
{
    struct weir_cupti_sink **at = &sinks;

    if (!sink) {
        return;
    }
    pthread_mutex_lock(&switching);
    if (sinks == sink && !sink->next) {
        switch_off();
        (void)lib.cuptiActivityFlushAll(0); /* or the next sinks would have to read old buffers */
    }
    pthread_mutex_lock(&lock);
    while (*at != sink) {
        at = &(*at)->next;
    }
    *at = sink->next;
    if (!sinks) {
        forget_locked();
    }
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&switching);
    free(sink->fresh.at);
    free(sink->taken.at);
    free(sink);
}

/* ---------------------------------------------------------------- use */

void weir_cupti_push(const struct weir_cupti_sink *sink, uint32_t id)
{
    (void)lib.cuptiActivityPushExternalCorrelationId(KIND, (uint64_t)sink->number << 32 | id);
}

void weir_cupti_pop(void)
{
    (void)lib.cuptiActivityPopExternalCorrelationId(KIND, NULL);
}

const struct weir_cupti_record *weir_cupti_take(struct weir_cupti_sink *sink, uint32_t *ret_n,
                                                uint32_t *ret_lost)
{
    (void)lib.cuptiActivityFlushAll(0);
    pthread_mutex_lock(&lock);
    struct records taken = sink->fresh;
    sink->fresh = sink->taken;
    sink->fresh.n = 0;
    sink->taken = taken;
    *ret_lost = sink->lost;
    sink->lost = 0;
    pthread_mutex_unlock(&lock);
    *ret_n = taken.n;
    return taken.at;
}

bool weir_cupti_was_used(void)
{
    WEIR_LOCKED(&switching);
    return state == WORKS;
}
