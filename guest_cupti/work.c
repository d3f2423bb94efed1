/*
 * Work on the device: each call is remembered with the work that it launched. When the host's
 * record of the work comes, both become a record for the program.
 *
 * A host's record may come before its call is remembered, since another thread may take records
 * while the call returns. Such records wait in a list. For the host a large copy is several pieces;
 * they become one record when all bytes have come. If the host has no records left for a call, the
 * call is forgotten: its work was captured, or moved no data on the device.
 *
 * A graph's nodes become known only by the host's records.
 *
 * Records are taken when the program flushes, and by every TAKE_CALLS-th call, so that the host's
 * room for them is never half full. A graph counts by its nodes. While their number is unknown,
 * each launch of the graph takes records at once.
 */
#include "base/grow.h"
#include "base/search.h"
#include "base/thread.h"
#include "guest_cupti/lib.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_CALLS (WEIR_PROFILE_RECORDS_MAX / 8)
#define BUCKETS    4096u
#define EARLY_MAX  WEIR_PROFILE_RECORDS_MAX
#define NAMES      1024u
#define BATCH                                                                                      \
    32u /* how many records are made each time the lock is taken; the smallest buffers hold as     \
           many */
#define WAIT_MIN_NS  10000u /* shorter waits, such as for passing the gate, are not recorded */
#define GRAPHS       256u
#define NODE_KERNELS 251u  /* a prime: handles are addresses, which have zeros at the end */
#define NAME_BYTES   8192u /* of a kernel in a graph; a longer name is cut */
#define NODES_CALL   8u    /* the host has room for so many times more nodes than calls */
#define TAKE_ROUNDS  64u   /* most replies to one take; the host keeps less than they hold */

struct call {
    struct call *next; /* in its bucket, or among free ones */
    uint32_t number;
    uint32_t open;               /* pieces of work that have no record yet */
    bool kernels, copies, fills; /* records wanted when the call was made: */
    bool graphs;                 /* of these, and of graphs as wholes */
    bool is_begun;               /* a piece of a copy has come; `merged` has all pieces so far */
    struct weir_profile_work work;
    struct weir_profile_record merged;
};

struct name {
    struct name *next;
    char text[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct call *buckets[BUCKETS];
static uint32_t n_calls;
static struct call *free_calls;
static struct name *kernel_names[NAMES];
static struct weir_profile_record *early; /* records that came before their call; owned */
static uint32_t n_early, room_early;
static uint64_t host_dropped; /* as the host last said */
static uint32_t last_added;   /* the newest call's number */

/* How many records a graph's launch makes: a table by handle, where a new graph replaces an old
 * one. */
static struct graph_nodes {
    uint64_t graph;
    uint32_t n;
} graph_nodes[GRAPHS];

static struct node_kernel {
    uint64_t function;              /* handle; 0: none yet */
    const char *name;               /* kept */
    struct weir_profile_work about; /* static shared and local bytes, registers */
} node_kernels[NODE_KERNELS];

static uint32_t calls_since_take; /* atomic */

/* ---------------------------------------------------------------- calls */

/* Copy the kernel's name to memory that is never freed, as records refer to it. */
static const char *keep_name_locked(const char *name)
{
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++) {
        hash = hash * 33 + (uint8_t)*c;
    }
    for (struct name *n = kernel_names[hash % NAMES]; n; n = n->next) {
        if (strcmp(n->text, name) == 0) {
            return n->text;
        }
    }
    struct name *kept = malloc(sizeof *kept + strlen(name) + 1);
    if (!kept) {
        return "";
    }
    strcpy(kept->text, name);
    kept->next = kernel_names[hash % NAMES];
    kernel_names[hash % NAMES] = kept;
    return kept->text;
}

const char *weir_cupti_keep_name(const char *name)
{
    WEIR_LOCKED(&lock);
    return keep_name_locked(name);
}

static struct call **place_locked(uint32_t number)
{
    struct call **at = &buckets[number % BUCKETS];
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

static void forget_locked(struct call **at)
{
    struct call *call = *at;
    *at = call->next;
    WEIR_PUSH(free_calls, call);
    n_calls--;
}

/* Compare numbers, which have 31 bits and wrap around. */
static bool is_later(uint32_t than, uint32_t number)
{
    return (int32_t)((number - than) << 1) > 0;
}

/* The number of calls that this one counts as for TAKE_CALLS. */
static uint32_t weight_locked(const struct weir_profile_work *work)
{
    const struct graph_nodes *known = &graph_nodes[work->graph % GRAPHS];
    if (work->what != WEIR_PROFILE_LAUNCH_GRAPH) {
        return 1;
    }
    return known->graph == work->graph ? 1 + known->n / NODES_CALL : TAKE_CALLS;
}

static void note_nodes_locked(uint64_t graph, uint32_t n)
{
    struct graph_nodes *known = &graph_nodes[graph % GRAPHS];
    if (known->graph != graph || known->n < n) {
        *known = (struct graph_nodes){graph, n};
    }
}

void weir_cupti_work_add(const struct weir_profile_call *call)
{
    pthread_mutex_lock(&lock);
    /* One call of the runtime may make several driver calls, which all have its number. The last
     * one that has work describes it. */
    struct call **at = place_locked(call->number), *mine = *at;
    if (!mine) {
        mine = free_calls ? free_calls : malloc(sizeof *mine);
        free_calls = mine && mine == free_calls ? mine->next : free_calls;
        if (mine) {
            memset(mine, 0, sizeof *mine);
            mine->number = call->number;
            mine->next = *at;
            *at = mine;
            n_calls++;
        }
    }
    if (mine) {
        mine->open++;
        mine->kernels = weir_cupti_wants(CUPTI_ACTIVITY_KIND_KERNEL) ||
                        weir_cupti_wants(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        mine->copies = weir_cupti_wants(CUPTI_ACTIVITY_KIND_MEMCPY);
        mine->fills = weir_cupti_wants(CUPTI_ACTIVITY_KIND_MEMSET);
        mine->graphs = weir_cupti_wants(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
        last_added = is_later(last_added, call->number) ? call->number : last_added;
        mine->work = call->work;
        mine->work.kernel = call->work.kernel ? keep_name_locked(call->work.kernel) : NULL;
    }
    uint32_t weight = weight_locked(&call->work);
    pthread_mutex_unlock(&lock);
    if (!mine) {
        weir_cupti_dropped(1);
    }
    if (__atomic_add_fetch(&calls_since_take, weight, __ATOMIC_RELAXED) >= TAKE_CALLS) {
        weir_cupti_work_take();
    }
}

/* ---------------------------------------------------------------- records */

/* A number that only this node has; 0: the work is not a graph's node. */
static uint64_t node_id(const struct weir_profile_work *work,
                        const struct weir_profile_record *from)
{
    return from->node ? work->graph << 32 | from->node : 0;
}

/* What is known of a function, in a table by handle: a graph has few functions and many nodes. */
static const struct node_kernel *node_kernel_locked(uint64_t function)
{
    struct node_kernel *known = &node_kernels[function % NODE_KERNELS];
    if (known->function != function) {
        char name[NAME_BYTES];
        memset(&known->about, 0, sizeof known->about);
        weir_cupti_session()->kernel(function, name, sizeof name, &known->about);
        known->name = keep_name_locked(name);
        known->function = function;
    }
    return known;
}

/* Describe a node of a launched graph as if a call had launched its kernel, copy or fill. */
static struct weir_profile_work node_work_locked(const struct weir_profile_work *launch,
                                                 const struct weir_profile_record *from)
{
    struct weir_profile_work work = *launch;
    work.what = WEIR_PROFILE_LAUNCH;
    work.is_async = true;
    work.value = from->value;
    work.shared_bytes = from->shared_bytes;
    memcpy(work.grid, from->grid, sizeof work.grid);
    memcpy(work.block, from->block, sizeof work.block);
    work.source =
        from->class == WEIR_PROFILE_H2D ? WEIR_PROFILE_MEMORY_UNKNOWN : WEIR_PROFILE_MEMORY_DEVICE;
    work.target =
        from->class == WEIR_PROFILE_D2H ? WEIR_PROFILE_MEMORY_UNKNOWN : WEIR_PROFILE_MEMORY_DEVICE;
    if (from->function) {
        const struct node_kernel *kernel = node_kernel_locked(from->function);
        work.kernel = kernel->name;
        work.static_shared_bytes = kernel->about.static_shared_bytes;
        work.local_bytes = kernel->about.local_bytes;
        work.registers = kernel->about.registers;
    }
    return work;
}

static void record_kernel(const struct weir_profile_work *work,
                          const struct weir_profile_record *from)
{
    CUpti_ActivityKernel10 *record = weir_cupti_record(weir_cupti_wants(CUPTI_ACTIVITY_KIND_KERNEL)
                                                           ? CUPTI_ACTIVITY_KIND_KERNEL
                                                           : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (!record) {
        return;
    }
    record->registersPerThread = (uint16_t)work->registers;
    record->start = from->begin_ns;
    record->end = record->completed = from->end_ns;
    record->deviceId = work->device;
    record->contextId = work->context;
    record->streamId = work->stream;
    record->gridX = (int32_t)work->grid[0];
    record->gridY = (int32_t)work->grid[1];
    record->gridZ = (int32_t)work->grid[2];
    record->blockX = (int32_t)work->block[0];
    record->blockY = (int32_t)work->block[1];
    record->blockZ = (int32_t)work->block[2];
    record->staticSharedMemory = (int32_t)work->static_shared_bytes;
    record->dynamicSharedMemory = (int32_t)work->shared_bytes;
    record->localMemoryPerThread = work->local_bytes;
    record->correlationId = from->call;
    record->gridId = (int64_t)from->call;
    record->name = work->what == WEIR_PROFILE_LAUNCH_GRAPH ? "CUDA graph"
                   : work->kernel                          ? work->kernel
                                                           : "";
    record->graphId = (uint32_t)work->graph;
    record->graphNodeId = node_id(work, from);
    record->channelID = UINT32_MAX;
    record->channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
    record->clusterX = work->cluster[0];
    record->clusterY = work->cluster[1];
    record->clusterZ = work->cluster[2];
}

/* The kind of memory of one side. on_device: by the host's class of the copy it is on the
 * device. */
static uint8_t memory_kind(enum weir_profile_memory memory, bool on_device)
{
    static const uint8_t kinds[] = {
        [WEIR_PROFILE_MEMORY_UNKNOWN] = CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN,
        [WEIR_PROFILE_MEMORY_PAGEABLE] = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE,
        [WEIR_PROFILE_MEMORY_PINNED] = CUPTI_ACTIVITY_MEMORY_KIND_PINNED,
        [WEIR_PROFILE_MEMORY_DEVICE] = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE,
        [WEIR_PROFILE_MEMORY_ARRAY] = CUPTI_ACTIVITY_MEMORY_KIND_ARRAY,
        [WEIR_PROFILE_MEMORY_MANAGED] = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED,
    };
    if (memory == WEIR_PROFILE_MEMORY_PAGEABLE && on_device) {
        return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE; /* an address from a struct is not looked up */
    }
    return kinds[memory];
}

static void record_copy(const struct weir_profile_work *work,
                        const struct weir_profile_record *from)
{
    CUpti_ActivityMemcpy6 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_MEMCPY);
    if (!record) {
        return;
    }
    record->copyKind = from->class == WEIR_PROFILE_H2D   ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                       : from->class == WEIR_PROFILE_D2H ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                         : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    record->srcKind = memory_kind(work->source, from->class != WEIR_PROFILE_H2D);
    record->dstKind = memory_kind(work->target, from->class != WEIR_PROFILE_D2H);
    record->flags = work->is_async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
    record->bytes = from->bytes;
    record->start = from->begin_ns;
    record->end = from->end_ns;
    record->deviceId = work->device;
    record->contextId = work->context;
    record->streamId = work->stream;
    record->correlationId = from->call;
    record->graphId = (uint32_t)work->graph;
    record->graphNodeId = node_id(work, from);
    record->channelID = UINT32_MAX;
    record->channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
    record->copyCount = 1;
}

static void record_fill(const struct weir_profile_work *work,
                        const struct weir_profile_record *from)
{
    CUpti_ActivityMemset4 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_MEMSET);
    if (!record) {
        return;
    }
    record->value = work->value;
    record->bytes = from->bytes;
    record->start = from->begin_ns;
    record->end = from->end_ns;
    record->deviceId = work->device;
    record->contextId = work->context;
    record->streamId = work->stream;
    record->correlationId = from->call;
    record->flags = work->is_async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : 0;
    record->memoryKind = /* as CUPTI says of nodes */
        from->node ? CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record->graphId = (uint32_t)work->graph;
    record->graphNodeId = node_id(work, from);
    record->channelID = UINT32_MAX;
    record->channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
}

static void record_graph(const struct weir_profile_work *work,
                         const struct weir_profile_record *from)
{
    CUpti_ActivityGraphTrace2 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    if (record) {
        record->correlationId = from->call;
        record->start = from->begin_ns;
        record->end = from->end_ns;
        record->deviceId = record->endDeviceId = work->device;
        record->contextId = record->endContextId = work->context;
        record->streamId = work->stream;
        record->graphId = (uint32_t)work->graph;
    }
}

/* Record the wait in the gate as a wait for a full command buffer: such waits occur natively, too,
 * and profilers show them. */
static void record_gate(const struct weir_profile_work *work,
                        const struct weir_profile_record *from)
{
    static struct weir_cupti_gate causes[WEIR_PROFILE_CAUSES] = {
        [WEIR_PROFILE_ALONE] = {.cause = "own work"},
        [WEIR_PROFILE_OWN] = {.cause = "own work"},
        [WEIR_PROFILE_LIMIT] = {.cause = "SM limit"},
        [WEIR_PROFILE_CLASS] = {.cause = "higher class"},
        [WEIR_PROFILE_TURN] = {.cause = "others' turn"},
        [WEIR_PROFILE_STARVED] = {.cause = "starved others"},
        [WEIR_PROFILE_FLIGHT] = {.cause = "work in flight"},
        [WEIR_PROFILE_DOMAIN] = {.cause = "other context"},
        [WEIR_PROFILE_LINGER] = {.cause = "kept for another"},
        [WEIR_PROFILE_IDLE] = {.cause = "idle"},
    };
    if (from->waited_ns < WAIT_MIN_NS || !weir_cupti_wants(CUPTI_ACTIVITY_KIND_OVERHEAD)) {
        return;
    }
    CUpti_ActivityOverhead3 *record = weir_cupti_record(CUPTI_ACTIVITY_KIND_OVERHEAD);
    if (record) {
        record->overheadKind = CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL;
        record->objectKind = CUPTI_ACTIVITY_OBJECT_STREAM;
        record->objectId.deviceId = work->device;
        record->objectId.contextId = work->context;
        record->objectId.streamId = work->stream;
        record->start = from->arrived_ns;
        record->end = from->arrived_ns + from->waited_ns;
        record->correlationId = from->call;
        record->overheadData =
            &causes[from->cause < WEIR_PROFILE_CAUSES ? from->cause : WEIR_PROFILE_ALONE];
    }
}

static void merge(struct weir_profile_record *into, const struct weir_profile_record *piece)
{
    into->begin_ns = WEIR_MIN(piece->begin_ns, into->begin_ns);
    into->end_ns = WEIR_MAX(piece->end_ns, into->end_ns);
    into->bytes += piece->bytes;
}

/* Add a piece to its copy; *piece becomes the whole copy. @return false: more pieces will come */
static bool complete_copy(struct call *call, struct weir_profile_record *piece)
{
    if (call->is_begun) {
        merge(&call->merged, piece);
        *piece = call->merged;
    }
    call->merged = *piece;
    call->is_begun = piece->bytes < call->work.bytes;
    return !call->is_begun;
}

/* Make the program's records from a host's record whose call is known. Both locks are held. */
static void make_locked(struct call **at, struct weir_profile_record *piece)
{
    struct call *call = *at;
    bool is_copy = piece->class == WEIR_PROFILE_H2D || piece->class == WEIR_PROFILE_D2H ||
                   piece->class == WEIR_PROFILE_D2D;
    bool is_of_graph = piece->class == WEIR_PROFILE_GRAPH || piece->node;
    struct weir_profile_work of_node;
    const struct weir_profile_work *work = &call->work;
    if (piece->node) {
        of_node = node_work_locked(&call->work, piece);
        work = &of_node;
    }
    record_gate(work, piece);
    if (is_copy && !piece->node && !complete_copy(call, piece)) {
        return;
    }
    if (is_copy && call->copies) {
        record_copy(work, piece);
    } else if (piece->class == WEIR_PROFILE_MEMSET && call->fills) {
        record_fill(work, piece);
    } else if (piece->class == WEIR_PROFILE_GRAPH && call->graphs) {
        record_graph(work, piece);
    } else if ((piece->class == WEIR_PROFILE_KERNEL || piece->class == WEIR_PROFILE_GRAPH) &&
               call->kernels) {
        record_kernel(work, piece);
    }
    if (is_of_graph) { /* the number of its records is unknown */
        note_nodes_locked(work->graph, piece->node);
    } else if (--call->open == 0) {
        forget_locked(at);
    }
}

/* ---------------------------------------------------------------- taking */

static void keep_early_locked(const struct weir_profile_record *record)
{
    if (n_early == EARLY_MAX || !WEIR_GROW(early, n_early, room_early)) {
        weir_cupti_dropped(1);
        return;
    }
    early[n_early++] = *record;
}

/* Make records from some of the host's; keep those whose call is not known yet. */
static void make_some(const struct weir_profile_record *records, uint32_t n, int64_t shift_ns)
{
    weir_cupti_lock();
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n; i++) {
        struct weir_profile_record record = records[i];
        struct call **at = place_locked(record.call);
        record.begin_ns += (uint64_t)shift_ns;
        record.end_ns += (uint64_t)shift_ns;
        record.arrived_ns += (uint64_t)shift_ns;
        if (*at) {
            make_locked(at, &record);
        } else {
            keep_early_locked(&record);
        }
    }
    pthread_mutex_unlock(&lock);
    weir_cupti_unlock();
}

static void make_all(const struct weir_profile_record *records, uint32_t n, int64_t shift_ns)
{
    for (uint32_t i = 0; i < n; i += BATCH) {
        make_some(&records[i], n - i < BATCH ? n - i : BATCH, shift_ns);
    }
}

/* Functions that are unloaded later may leave their handles to others. */
static void forget_node_kernels(void)
{
    WEIR_LOCKED(&lock);
    for (uint32_t i = 0; i < NODE_KERNELS; i++) {
        node_kernels[i].function = 0;
    }
}

/* Try again the records that came before their call. */
static void make_early(void)
{
    pthread_mutex_lock(&lock);
    struct weir_profile_record *records = early;
    uint32_t n = n_early;
    early = NULL;
    n_early = room_early = 0;
    pthread_mutex_unlock(&lock);
    make_all(records, n, 0);
    free(records);
}

/* Forget the calls up to this number: all their work has ended, and its records were taken. */
static void forget_until(uint32_t number)
{
    WEIR_LOCKED(&lock);
    for (uint32_t i = 0; i < BUCKETS && n_calls; i++) {
        for (struct call **at = &buckets[i]; *at;) {
            if (!is_later(number, (*at)->number)) {
                forget_locked(at);
            } else {
                at = &(*at)->next;
            }
        }
    }
}

/* @return false: the host has no more records of ended work */
static bool take_some(const struct weir_profile_table *session)
{
    struct weir_profile_taken taken;
    uint64_t dropped = 0;
    pthread_mutex_lock(&lock);
    uint32_t until = last_added;
    pthread_mutex_unlock(&lock);
    if (session->take(&taken) != CUDA_SUCCESS) {
        return false;
    }
    make_all(taken.records, taken.n, taken.shift_ns);
    pthread_mutex_lock(&lock);
    if (taken.dropped > host_dropped) {
        dropped = taken.dropped - host_dropped;
        host_dropped = taken.dropped;
    }
    pthread_mutex_unlock(&lock);
    weir_cupti_dropped(dropped);
    if (!taken.pending) {
        forget_until(until);
    }
    return taken.n && taken.pending;
}

void weir_cupti_work_take(void)
{
    const struct weir_profile_table *session = weir_cupti_session();
    __atomic_store_n(&calls_since_take, 0, __ATOMIC_RELAXED);
    forget_node_kernels();
    make_early();
    for (uint32_t i = 0; session && i < TAKE_ROUNDS && take_some(session); i++) {
    }
}
