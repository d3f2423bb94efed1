/*
 * The state of softgpu's driver half, private to this folder.
 *
 * One lock (weir_soft_lock) guards every object below: API calls hold it while they look up objects
 * and queue work, and release it before they wait or call the program's code. Work itself (copies,
 * kernels, host functions) runs on worker threads with no lock held; see task.c.
 *
 * A handle is the address of an object in the handle table. A look-up reads an object only after
 * finding its address there, so invalid handles are refused.
 */
#pragma once

#include "base/status.h"
#include "proto/common/advice.h"
#include "proto/common/ctx_storage.h"
#include "softgpu/driver/cuda_types.h"
#include "softgpu/exec/exec.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_SOFT_MAX_DEVICES    8
#define WEIR_SOFT_MAX_LEVELS     16
#define WEIR_SOFT_DRIVER_VERSION 13000

/* ------------------------------------------------------------------ the lock */

void weir_soft_lock(void);
void weir_soft_unlock(void);
/** Wait for a condition with the lock held; false when the time (CLOCK_MONOTONIC) is over. */
bool weir_soft_lock_wait(pthread_cond_t *cond, const struct timespec *until);
/** With the lock held: until the next call, only this thread gets the lock again. */
void weir_soft_lock_keep_out(void);
void weir_soft_lock_let_in(void);
/** The calling thread runs tasks: nobody keeps it out. */
void weir_soft_lock_runs_tasks(void);
/** Take the lock before fork, let go of it on both sides after. */
void weir_soft_lock_at_fork(void (*child)(void));
static inline int weir_soft_lock_scope(void)
{
    weir_soft_lock();
    return 0;
}
static inline void weir_soft_unlock_scope(int *scope)
{
    (void)scope;
    weir_soft_unlock();
}
/* Hold the lock until the end of the block. */
#define WEIR_SOFT_LOCKED()                                                                         \
    __attribute__((cleanup(weir_soft_unlock_scope), unused)) int locked_scope =                    \
        weir_soft_lock_scope()

/* ------------------------------------------------------------------ objects and handles */

enum weir_soft_kind {
    WEIR_SOFT_CONTEXT = 1,
    WEIR_SOFT_STREAM,
    WEIR_SOFT_EVENT,
    WEIR_SOFT_MODULE,
    WEIR_SOFT_FUNCTION,
    WEIR_SOFT_LIBRARY,
    WEIR_SOFT_KERNEL,
    WEIR_SOFT_GRAPH,
    WEIR_SOFT_NODE,
    WEIR_SOFT_GRAPH_EXEC,
    WEIR_SOFT_POOL,
    WEIR_SOFT_ARRAY,
    WEIR_SOFT_MIPMAP,
    WEIR_SOFT_CHUNK,
    WEIR_SOFT_LINK,
    WEIR_SOFT_USER_OBJECT,
    WEIR_SOFT_RESOURCE_DESC,
    WEIR_SOFT_GREEN,
    WEIR_SOFT_KIND_COUNT
};

struct weir_soft_ctx;

/* First member of every object. Counted: the table has one reference, tasks and owners others. */
struct weir_soft_object {
    enum weir_soft_kind kind;
    uint32_t refs;
    struct weir_soft_ctx *ctx; /* context whose destruction also destroys the object; may be NULL */
    void (*release)(void *object); /* called with the lock held when refs reaches 0 */
};

/** Zeroed memory of an object with one reference, entered in the table. NULL without memory. */
void *weir_soft_object_new(enum weir_soft_kind kind, size_t bytes, struct weir_soft_ctx *ctx,
                           void (*release)(void *object));
/** The object of a handle, borrowed while the lock is held; NULL if it is not a live one. */
void *weir_soft_object_find(enum weir_soft_kind kind, const void *handle);
void *weir_soft_object_ref(void *object);
/** Drop a reference; accepts NULL. */
void weir_soft_object_put(void *object);
/** Take the handle out of the table and drop the table's reference. */
void weir_soft_object_retire(void *object);
/** Visit live objects of a kind; fn may retire the one that it is given. */
void weir_soft_object_visit(enum weir_soft_kind kind, void (*fn)(void *object, void *user),
                            void *user);

/* ------------------------------------------------------------------ devices */

struct weir_soft_device {
    int ordinal;
    char name[64];
    CUuuid uuid;
    int pci_bus;
    uint32_t compute_capability;
    uint32_t sm_count;
    bool under_mps; /* looks like a client of MPS */
    struct weir_exec_sms
        sms;             /* SMs that its contexts may use; an MPS client's contexts may use fewer */
    uint32_t usable_sms; /* number of these SMs */
    uint64_t total_bytes;
    uint64_t used_bytes;
    struct weir_exec_device *engine; /* made when the first module is loaded */
    struct weir_soft_ctx *primary;   /* made by cuInit, lives for ever */
    struct weir_soft_pool *default_pool;
    struct weir_soft_pool *current_pool;
    uint64_t graph_used_bytes, graph_high_bytes;
    int place_fd; /* the primary context's place among the contexts of all processes; -1: it has
                     none */
};

uint32_t weir_soft_device_count(void);
/** The device with an ordinal; NULL for a bad ordinal. */
struct weir_soft_device *weir_soft_device_at(int ordinal);
/* Count device memory that the process has allocated, or freed if the number is negative. */
void weir_soft_device_use(struct weir_soft_device *device, int64_t bytes);
uint64_t weir_soft_device_free_bytes(const struct weir_soft_device *device);
CUresult weir_soft_device_engine(struct weir_soft_device *device,
                                 struct weir_exec_device **ret_engine);
CUresult weir_soft_device_attribute(const struct weir_soft_device *device, int attribute,
                                    int *ret_value);
CUresult weir_soft_devices_init(void);
/** WEIR_SOFTGPU_WAITS: calls wait for the device as NVIDIA's do. */
bool weir_soft_device_waits(void);
/** Before a primary context becomes active; the lock is not held. */
CUresult weir_soft_device_make_room(struct weir_soft_device *device);
/** A primary context is gone: give back its place among the contexts of all processes. */
void weir_soft_device_give_room(struct weir_soft_device *device);
/** Smaller reservations of addresses are not where the caller wishes (WEIR_SOFTGPU_WISH). */
uint64_t weir_soft_device_wish_bytes(void);
/** Before memory of another process is opened, WEIR_SOFTGPU_IMPORT_MS pass. */
void weir_soft_device_import_slowly(void);
/** Before memory is freed, WEIR_SOFTGPU_FREE_MS pass; the lock is not held. */
void weir_soft_device_free_slowly(void);

/* True once the process exits: from then on nothing may wait. */
bool weir_soft_exiting(void);
void weir_soft_exit_begins(void);

/* ------------------------------------------------------------------ contexts */

#define WEIR_SOFT_LIMIT_COUNT 10

struct weir_soft_ctx {
    struct weir_soft_object object;
    struct weir_soft_device *device;
    bool primary;
    bool active;       /* usable: it was created, or is primary and retained */
    uint32_t retained; /* retain count of a primary context */
    uint32_t attached;
    unsigned flags;
    unsigned api_version;
    uint64_t id;
    CUresult sticky; /* a kernel faulted: every later call returns this error */
    /* An error that becomes sticky when a call asks about a stream or waits for one. */
    CUresult untold;
    uint32_t cancel;  /* read by running kernels */
    uint32_t closing; /* not 0: operations that wait for a memory value end without it */
    struct weir_soft_stream *legacy;
    struct weir_soft_stream *streams; /* list linked through next */
    struct weir_soft_task *tasks;     /* list of live tasks, linked through live_next */
    size_t limits[WEIR_SOFT_LIMIT_COUNT];
    CUfunc_cache cache_config;
    uint32_t n_captures;
    struct weir_coredump *coredump; /* the context's own settings; NULL: none */
    uint32_t peers;                 /* bit per device: cuCtxEnablePeerAccess */
    struct weir_ctx_storage storage;
};

/** A context by handle, or NULL. A handle from cuCtxFromGreenCtx stands for the primary context. */
struct weir_soft_ctx *weir_soft_ctx_of(CUcontext handle);
/** The calling thread's context, ready for work:
 * 201 without one, 709 destroyed, its sticky error. */
CUresult weir_soft_ctx_current(struct weir_soft_ctx **ret_ctx);
/** A context by handle; NULL means current. */
CUresult weir_soft_ctx_find(CUcontext handle, struct weir_soft_ctx **ret_ctx);
/** Make the device's primary context object; called once by cuInit. */
CUresult weir_soft_ctx_make_primary(struct weir_soft_device *device);
CUresult weir_soft_ctx_retain_primary(struct weir_soft_device *device);
/** 201 when nobody holds it. The last one's waits for its work, letting go of the lock. */
CUresult weir_soft_ctx_release_primary(struct weir_soft_device *device);
/** Work in the context has failed: the error is sticky. An assert is reported late. */
void weir_soft_ctx_kernel_failed(struct weir_soft_ctx *ctx, CUresult result);
/** Somebody asks about a stream or has waited for one. Gives the sticky error. */
CUresult weir_soft_ctx_tell(struct weir_soft_ctx *ctx);

/* ------------------------------------------------------------------ parts of a device */

/* Which SMs a green context will have. Immutable and never freed. */
struct weir_soft_resource_desc {
    struct weir_soft_object object;
    struct weir_soft_device *device;
    struct weir_exec_sms sms;
};

struct weir_soft_green {
    struct weir_soft_object object; /* its ctx is the device's primary context, which it retains */
    struct weir_exec_sms sms;
    uint64_t id;
    bool destroyed;              /* not 0: its streams return errors */
    struct weir_soft_task *held; /* counted: the task that its new streams wait for, or NULL */
};

/** A resource of these SMs, or of all where sms is NULL.
 * 1 without resource, 914 for other types. */
CUresult weir_soft_resource_get(const struct weir_soft_device *device,
                                const struct weir_exec_sms *sms, CUdevResource *resource,
                                CUdevResourceType type);

/* ------------------------------------------------------------------ the address space */

enum weir_soft_alloc_kind {
    WEIR_SOFT_ALLOC_DEVICE,
    WEIR_SOFT_ALLOC_MANAGED,
    WEIR_SOFT_ALLOC_HOST,       /* cuMemHostAlloc */
    WEIR_SOFT_ALLOC_REGISTERED, /* cuMemHostRegister */
    WEIR_SOFT_ALLOC_POOL,       /* cuMemAllocAsync */
    WEIR_SOFT_ALLOC_GRAPH,      /* memory of a graph's allocation node */
    WEIR_SOFT_ALLOC_MAPPED,     /* cuMemMap */
    WEIR_SOFT_ALLOC_IPC,        /* cuIpcOpenMemHandle */
    WEIR_SOFT_ALLOC_MODULE      /* a module's variables */
};

struct weir_soft_alloc {
    uint64_t base;
    uint64_t bytes;
    enum weir_soft_alloc_kind kind;
    struct weir_soft_ctx *ctx; /* borrowed: the context frees its allocations when it goes */
    struct weir_soft_device *device;
    unsigned flags;
    uint64_t id;
    uint64_t span_bytes; /* size of its range in the arena, or of its mapping */
    uint64_t map_base;   /* start of the mapping, for kinds that have their own */
    bool accessible;     /* it is entered in the memory map */
    bool freeing;        /* cuMemFreeAsync was called for it */
    bool graph_live;     /* GRAPH: a launch has allocated the memory and nothing has freed it */
    bool read_only;
    bool sync_memops;
    struct weir_soft_pool *pool;   /* POOL: counted */
    struct weir_soft_chunk *chunk; /* MAPPED: counted */
    uint64_t chunk_offset;
    struct weir_advice advice; /* MANAGED */
};

CUresult weir_soft_space_init(uint64_t arena_bytes);
/** Memory of the arena, entered in the memory map; counts against the device except MODULE. */
CUresult weir_soft_space_alloc(struct weir_soft_ctx *ctx, uint64_t bytes, uint64_t alignment,
                               enum weir_soft_alloc_kind kind, struct weir_soft_alloc **ret_alloc);
/** Enter memory that exists already (host, registered, mapped, IPC). */
CUresult weir_soft_space_adopt(const struct weir_soft_alloc *like, uint32_t access,
                               struct weir_soft_alloc **ret_alloc);
/** Give it up: the memory map, the arena, mappings. */
void weir_soft_space_free(struct weir_soft_alloc *alloc);
/** The allocation that holds an address, or NULL. */
struct weir_soft_alloc *weir_soft_space_find(uint64_t address);
struct weir_soft_alloc *weir_soft_space_at(uint64_t base);
/** True when nothing is entered in [base, base + bytes). */
bool weir_soft_space_is_empty(uint64_t base, uint64_t bytes);
CUresult weir_soft_space_set_accessible(struct weir_soft_alloc *alloc, bool accessible);
/** Visit all allocations of a context; fn may free the one it is given. */
void weir_soft_space_visit(struct weir_soft_ctx *ctx, void (*fn)(struct weir_soft_alloc *alloc));
/** The arena's descriptor (-1: private memory) and base. */
int weir_soft_space_arena(uint64_t *ret_base);
bool weir_soft_space_in_arena(uint64_t address);
uint64_t weir_soft_next_id(void);

/* A physical chunk of cuMemCreate: a file in memory. */
struct weir_soft_chunk {
    struct weir_soft_object object;
    int fd;
    uint64_t bytes;
    CUmemAllocationProp prop;
    struct weir_soft_device *device; /* NULL: host memory */
    uint32_t handles;                /* how many times the program holds the handle */
};

struct weir_soft_pool {
    struct weir_soft_object object;
    struct weir_soft_device *device;
    CUmemPoolProps props;
    bool is_default;
    int reuse[3];
    uint64_t threshold;
    uint64_t used, used_high, reserved, reserved_high;
};
CUresult weir_soft_pool_make(struct weir_soft_device *device, const CUmemPoolProps *props,
                             struct weir_soft_pool **ret_pool);
void weir_soft_pool_account(struct weir_soft_pool *pool, int64_t bytes);

/* ------------------------------------------------------------------ operations */

enum weir_soft_op_kind {
    WEIR_SOFT_OP_EMPTY,
    WEIR_SOFT_OP_KERNEL,
    WEIR_SOFT_OP_COPY,
    WEIR_SOFT_OP_SET,
    WEIR_SOFT_OP_HOST,
    WEIR_SOFT_OP_CALLBACK,
    WEIR_SOFT_OP_RECORD, /* a graph's record of an event */
    WEIR_SOFT_OP_WAIT,   /* a graph's wait for an event */
    WEIR_SOFT_OP_MEMOPS,
    WEIR_SOFT_OP_ALLOC, /* a graph's allocation */
    WEIR_SOFT_OP_FREE,
    WEIR_SOFT_OP_IPC_SIGNAL,
    WEIR_SOFT_OP_IPC_WAIT
};

/* A copy of a box between two addresses. */
struct weir_soft_copy {
    uint64_t src, dst;
    uint64_t src_row_bytes, src_slice_bytes;
    uint64_t dst_row_bytes, dst_slice_bytes;
    uint64_t width_bytes, height, depth;
};

#define WEIR_SOFT_LAUNCH_ATTRIBUTES 24u /* attributes with ids below this are kept */

struct weir_soft_op_kernel {
    struct weir_soft_function *function; /* counted */
    void *handle;                        /* the CUfunction or CUkernel that the program gave */
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    bool cooperative;
    bool in_part; /* it runs only on the SMs in `sms` */
    struct weir_exec_sms sms;
    int priority;
    void *params;    /* packed; owned */
    void **pointers; /* for cuGraphKernelNodeGetParams; owned */
    uint32_t params_bytes;
    CUlaunchAttributeValue attributes[WEIR_SOFT_LAUNCH_ATTRIBUTES];
    uint32_t attributes_set; /* bit per id */
};

/* What a stream or a graph node does. Immutable once queued; reference-counted, because a graph can
 * launch it often. */
struct weir_soft_op {
    enum weir_soft_op_kind kind;
    uint32_t refs;
    struct weir_soft_ctx *ctx;
    union {
        struct weir_soft_op_kernel kernel;
        struct {
            struct weir_soft_copy box;
            CUDA_MEMCPY3D asked;
            struct weir_soft_array *arrays[2]; /* counted */
            void *staged;                      /* owned copy of pageable source bytes */
            bool mapped[2];                    /* this side lay in a mapping of cuMemMap */
        } copy;
        CUDA_MEMSET_NODE_PARAMS set;
        struct {
            CUhostFn fn;
            void *user;
        } host;
        struct {
            CUstreamCallback fn;
            void *user;
            CUstream stream;
        } callback;
        struct weir_soft_event *event; /* counted; RECORD and WAIT */
        struct {
            CUstreamBatchMemOpParams *items; /* owned */
            uint32_t n_items;
            unsigned flags;
        } memops;
        struct {
            CUDA_MEM_ALLOC_NODE_PARAMS asked;
            struct weir_soft_graph_memory *memory; /* counted */
        } alloc;
        struct {
            uint64_t address;
            uint64_t id; /* id of the allocation, in case its address is reused */
        } free;
        struct {
            struct weir_soft_event *event; /* counted */
            uint64_t value;
        } ipc;
    };
};

struct weir_soft_op *weir_soft_op_new(enum weir_soft_op_kind kind, struct weir_soft_ctx *ctx);
void weir_soft_op_put(struct weir_soft_op *op);
/** May a node of a graph be this? Refuses a copy or fill that names memory of the host which was
 * mapped by cuMemMap. NVIDIA's driver (580) takes the node for one of the CPU's, and dies in its
 * launch, or fills nothing once other memory is mapped there. */
CUresult weir_soft_node_allows(const struct weir_soft_op *op);
/** Do it; called by a worker with no lock held. */
CUresult weir_soft_op_run(const struct weir_soft_op *op);
/** Check memory operations and copy them into an operation. */
CUresult weir_soft_memops_make(struct weir_soft_ctx *ctx, unsigned count,
                               const CUstreamBatchMemOpParams *items, unsigned flags,
                               struct weir_soft_op **ret_op);
void weir_soft_box_copy(const struct weir_soft_copy *box);

/* ------------------------------------------------------------------ tasks */

/* One run of an operation: a node of the graph of all queued work. */
struct weir_soft_task {
    uint32_t done; /* futex; 1 when finished */
    uint32_t refs;
    uint32_t n_waits; /* number of unfinished predecessors, +1 while the task is being built */
    uint32_t n_next, cap_next;
    struct weir_soft_task **next; /* counted */
    struct weir_soft_task *queue_next;
    struct weir_soft_task *live_next, **live_prev;
    struct weir_soft_op *op; /* NULL: the task only marks a point */
    struct weir_soft_ctx *ctx;
    /* Reference to the user objects of the graph launch that ends with this task. */
    struct weir_soft_users *users;
    int priority;
    uint32_t node; /* in an executable graph: its node's number, from 1; 0: in none */
    uint64_t tag;  /* from the watcher */
    uint64_t begun_ns, finished_ns;
    CUresult result;
};

/* Who is told of kernels, copies and fills; NULL: nobody. For tests' libcupti, which is linked
 * with this driver. The driver's lock guards it, and is held during the calls. */
struct weir_soft_task_watcher {
    uint64_t (*given)(void);                          /* returns the task's tag */
    void (*ended)(const struct weir_soft_task *task); /* its operation has run */
};
extern const struct weir_soft_task_watcher *weir_soft_task_watcher;

/** A task with one reference for the caller; starts after weir_soft_task_start().
 * NULL: no memory. */
struct weir_soft_task *weir_soft_task_new(struct weir_soft_ctx *ctx, struct weir_soft_op *op,
                                          int priority);
/** Order it after another; NULL or finished ones do not count. False: no memory. */
bool weir_soft_task_after(struct weir_soft_task *task, struct weir_soft_task *earlier);
void weir_soft_task_start(struct weir_soft_task *task);
void weir_soft_task_put(struct weir_soft_task *task);
/** Wait with the lock held on entry and exit; lets go of it meanwhile. */
void weir_soft_task_wait_unlocked(struct weir_soft_task *task);
/** Order a mark after all live work of a context; caller puts it. */
struct weir_soft_task *weir_soft_task_barrier(struct weir_soft_ctx *ctx);
/** Wait for everything that may use memory of the context: freeing synchronises. Lets go of the
 * lock meanwhile, so what the caller looked up before may be gone. */
void weir_soft_ctx_settle(struct weir_soft_ctx *ctx);
/** As the function above, but no other thread of the program gets the lock meanwhile. */
void weir_soft_ctx_wait_keeping_out(struct weir_soft_ctx *ctx);
/** Wait as the function above, if WEIR_SOFTGPU_WAITS is set: NVIDIA's driver does so when it loads
 * or unloads code. */
void weir_soft_ctx_wait_for_code(struct weir_soft_ctx *ctx);
static inline bool weir_soft_task_is_done(const struct weir_soft_task *task)
{
    return !task || __atomic_load_n(&task->done, __ATOMIC_ACQUIRE) != 0;
}
void weir_soft_tasks_forget(void);

/* ------------------------------------------------------------------ streams, events, capture */

struct weir_soft_nodes { /* a growing set of nodes */
    struct weir_soft_node **at;
    CUgraphEdgeData *edges;
    uint32_t n, cap;
};

struct weir_soft_capture {
    struct weir_soft_graph *graph; /* counted */
    uint64_t id;
    CUstreamCaptureMode mode;
    bool invalidated;
    bool own_graph;
    struct weir_soft_stream *origin; /* borrowed; the capture ends with it */
    struct weir_soft_nodes left;     /* last nodes of joined streams that were destroyed */
    pthread_t thread;                /* thread that began the capture */
    struct weir_soft_capture *next;  /* next in the list of all captures */
    uint32_t refs;
};

struct weir_soft_stream {
    struct weir_soft_object object;
    struct weir_soft_stream *next; /* next in the context's list, which counts the stream */
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy, per_thread, zombie;
    struct weir_soft_green *green;     /* counted; NULL: on all SMs */
    struct weir_soft_task *tail;       /* counted */
    struct weir_soft_capture *capture; /* counted */
    struct weir_soft_nodes capture_nodes;
    CUstreamAttrValue policy_window, sync_policy, sync_domain, sync_domain_map;
};

struct weir_soft_event {
    struct weir_soft_object object;
    unsigned flags;
    bool recorded;
    struct weir_soft_task *task;       /* counted */
    struct weir_soft_capture *capture; /* counted: the capture in which the event was recorded */
    struct weir_soft_nodes capture_nodes;
    struct weir_soft_shared_event *shared; /* mapped page of an interprocess event, or NULL */
    int shared_fd;                         /* descriptor of the event's maker; -1: none */
};

/* The shared page of an interprocess event: numbers of its last and its last completed record. */
struct weir_soft_shared_event {
    uint64_t recorded;
    uint64_t happened;
    uint32_t bell; /* futex: counts signals */
};

/** A stream of the current context by handle: 1, 2 or an object. 709 for those of a green context
 * that is gone. */
CUresult weir_soft_stream_find(CUstream handle, struct weir_soft_stream **ret_stream);
/** The priority is cut to the range that there is. */
struct weir_soft_stream *weir_soft_stream_make(struct weir_soft_ctx *ctx, unsigned flags,
                                               int priority);
/** Queue or capture an operation; takes op, also on failure. */
CUresult weir_soft_stream_submit(struct weir_soft_stream *stream, struct weir_soft_op *op);
/** Queue a prepared task behind the stream's work (and the legacy rules) and make it the tail. */
CUresult weir_soft_stream_push(struct weir_soft_stream *stream, struct weir_soft_task *task);
/** Wait for the stream's work; the lock is held on entry and exit. Gives the sticky error. */
CUresult weir_soft_stream_sync(struct weir_soft_stream *stream);
/** A new event; takes fd (an interprocess event's page, or -1). */
CUresult weir_soft_event_make(struct weir_soft_ctx *ctx, unsigned flags, int fd,
                              struct weir_soft_event **ret_event);
CUresult weir_soft_event_find(CUevent handle, struct weir_soft_event **ret_event);
CUresult weir_soft_event_record(struct weir_soft_event *event, struct weir_soft_stream *stream,
                                unsigned flags);
void weir_soft_event_set_task(struct weir_soft_event *event, struct weir_soft_task *task);
/** Order a task after the event's last record. */
CUresult weir_soft_event_wait_in(struct weir_soft_event *event, struct weir_soft_task *task);
/** Refuse a call that is unsafe while a capture is under way (900), as the modes say; one that
 * waits for a context (or NULL), whatever the modes of captures there. */
CUresult weir_soft_capture_check(const struct weir_soft_ctx *ctx);
/** No capture can contain the call: the event's, if it is under way, is invalidated. @return 907 */
CUresult weir_soft_capture_refuse_event(const struct weir_soft_event *event);
/** 906 when an operation on the legacy stream would touch a capture. */
CUresult weir_soft_capture_check_legacy(struct weir_soft_ctx *ctx);
void weir_soft_capture_put(struct weir_soft_capture *capture);
CUresult weir_soft_capture_record(struct weir_soft_event *event, struct weir_soft_stream *stream);
CUresult weir_soft_capture_wait(struct weir_soft_stream *stream, struct weir_soft_event *event,
                                bool *ret_handled);
CUresult weir_soft_capture_op(struct weir_soft_stream *stream, struct weir_soft_op *op);
void weir_soft_capture_abandon(struct weir_soft_stream *stream);
void weir_soft_print_flush(void);
void weir_soft_print(void *user, const char *text, size_t bytes);

bool weir_soft_nodes_add(struct weir_soft_nodes *nodes, struct weir_soft_node *node,
                         const CUgraphEdgeData *edge);
void weir_soft_nodes_clear(struct weir_soft_nodes *nodes);

/* ------------------------------------------------------------------ modules */

/* PTX texts that make one module, taken from any container. */
struct weir_soft_image {
    struct weir_exec_source *sources; /* owns the texts */
    uint32_t n_sources;
    bool saw_cubin; /* the container has machine code, which softgpu cannot run */
};

/* Receives the reason when a container cannot be read. */
struct weir_soft_log {
    char text[512];
};

/** Read a sized fatbin; every length is checked. Adds the best PTX part to the image. */
CUresult weir_soft_fatbin_read(const uint8_t *data, size_t bytes, uint32_t compute_capability,
                               struct weir_soft_image *image, struct weir_soft_log *log);
/** Read anything that cuModuleLoadData takes. */
CUresult weir_soft_image_read(const void *data, uint32_t compute_capability,
                              struct weir_soft_image *image, struct weir_soft_log *log);
/** Read what has a known size (cuLinkAddData, files). */
CUresult weir_soft_image_read_sized(const void *data, size_t bytes, uint32_t compute_capability,
                                    struct weir_soft_image *image, struct weir_soft_log *log);
void weir_soft_image_finish(struct weir_soft_image *image);
/** What the outcome of reading is: 209 when there was only machine code, 200 when nothing. */
CUresult weir_soft_image_verdict(const struct weir_soft_image *image);

struct weir_soft_twins;

/* Who loads modules and runs kernels, so that a test's driver can give kernels another form
 * (tests/e2e/e2e_softgpu_forms.c). NULL: the engine does. Set once, when the library is loaded. */
struct weir_soft_forms {
    /* As weir_exec_module_load(). @param ret_twins  what belongs to the module, or NULL */
    enum weir_status (*load)(struct weir_exec_device *engine,
                             const struct weir_exec_source *sources, uint32_t n_sources,
                             const struct weir_exec_memory *memory, struct weir_diag *diag,
                             struct weir_exec_module **ret_module,
                             struct weir_soft_twins **ret_twins);
    void (*unload)(struct weir_soft_twins *twins);
    bool (*hides)(const struct weir_exec_kernel *kernel); /* programs must not see the kernel */
    /* As weir_exec_run(). @param module  the kernel's; its twins, or NULL */
    enum weir_status (*run)(struct weir_exec_device *engine, const struct weir_exec_module *module,
                            struct weir_soft_twins *twins, const struct weir_exec_launch *launch,
                            struct weir_exec_fault *ret_fault);
};
extern const struct weir_soft_forms *weir_soft_forms;

struct weir_soft_module {
    struct weir_soft_object object;
    struct weir_exec_module *exec;
    struct weir_soft_twins *twins;         /* from weir_soft_forms; NULL: none */
    struct weir_soft_function **functions; /* borrowed; in the order of the exec module */
    uint32_t n_functions;
    struct weir_soft_library *library; /* borrowed; NULL: the module belongs to no library */
};

struct weir_soft_function {
    struct weir_soft_object object;
    struct weir_soft_module *module; /* counted */
    const struct weir_exec_kernel *kernel;
    const struct weir_exec_kernel_info *info;
    int max_dynamic_shared;
    int carveout;
    int cluster_policy;
    int non_portable_cluster;
    CUfunc_cache cache;
    struct weir_soft_kernel *of_kernel; /* borrowed */
};

struct weir_soft_library {
    struct weir_soft_object object;
    struct weir_soft_image image;
    struct weir_soft_module **instances; /* one per context; borrowed */
    uint32_t n_instances;
    struct weir_soft_kernel **kernels; /* borrowed; made on first use */
    uint32_t n_kernels;
};

struct weir_soft_kernel {
    struct weir_soft_object object;
    struct weir_soft_library *library; /* borrowed */
    char *name;
    int max_dynamic_shared[WEIR_SOFT_MAX_DEVICES];
    int carveout;
    int cluster_policy;
    int non_portable_cluster;
};

/** The function behind a CUfunction or CUkernel in a context. */
CUresult weir_soft_function_find(void *handle, struct weir_soft_ctx *ctx,
                                 struct weir_soft_function **ret_function);
CUresult weir_soft_module_load(struct weir_soft_ctx *ctx, const struct weir_soft_image *image,
                               struct weir_soft_log *log, struct weir_soft_module **ret_module);
void weir_soft_library_forget_ctx(struct weir_soft_ctx *ctx);
/** Unload: handles go now, the rest when no launch uses it any more. */
void weir_soft_module_drop(struct weir_soft_module *module);
struct weir_soft_function *weir_soft_module_function(const struct weir_soft_module *module,
                                                     const char *name);
CUresult weir_soft_module_global(const struct weir_soft_module *module, const char *name,
                                 bool managed, CUdeviceptr *address, size_t *bytes);
/** A whole file, NUL behind it; the caller frees. 301 when it cannot be opened. */
CUresult weir_soft_file_read(const char *path, char **ret_data, size_t *ret_bytes);

/* JIT options that matter here. */
struct weir_soft_jit {
    char *error_log, *info_log;
    size_t error_bytes, info_bytes;
    int error_size_at, info_size_at;
};
CUresult weir_soft_jit_parse(unsigned n, const CUjit_option *options, void **values,
                             struct weir_soft_jit *jit);
void weir_soft_jit_report(const struct weir_soft_jit *jit, void **values,
                          const struct weir_soft_log *log);

/* ------------------------------------------------------------------ launches */

struct weir_soft_launch_args {
    void *function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    bool cooperative;
    const struct weir_exec_sms *sms; /* SMs that the launch is limited to, or NULL */
    void **params;
    void **extra;
    const CUlaunchAttribute *attributes;
    unsigned n_attributes;
};
/** May a launch or a kernel node have this attribute? Clusters are refused. */
CUresult weir_soft_attribute_check(unsigned id, const CUlaunchAttributeValue *value);
/** Check a launch against the device and pack it into an operation. */
CUresult weir_soft_launch_make(struct weir_soft_ctx *ctx, const struct weir_soft_launch_args *args,
                               struct weir_soft_op **ret_op);

/* ------------------------------------------------------------------ graphs */

/* Memory of an allocation node. It exists as long as a graph or executable refers to it. */
struct weir_soft_graph_memory {
    uint32_t refs;
    uint64_t base;
    uint64_t id; /* id of the allocation, in case its address is reused */
};
void weir_soft_graph_memory_put(struct weir_soft_graph_memory *memory);
/** Allocate what op->alloc.asked says; fills asked.dptr. Puts op on failure. */
CUresult weir_soft_graph_memory_make(struct weir_soft_op *op);

struct weir_soft_node {
    struct weir_soft_object object;
    struct weir_soft_graph *graph; /* borrowed */
    struct weir_soft_node *next;   /* in order of creation */
    CUgraphNodeType type;
    struct weir_soft_op *op;            /* counted; NULL for child graphs */
    struct weir_soft_graph *child;      /* counted */
    struct weir_soft_nodes before;      /* nodes that this one depends on */
    struct weir_soft_node *cloned_from; /* identity only: never followed */
    uint32_t mark;
    bool captured; /* a stream capture added the node; otherwise the program added it itself */
    uint32_t order;
};

struct weir_soft_user_object {
    struct weir_soft_object object;
    void *ptr;
    CUhostFn destroy;
    uint64_t count;
};

struct weir_soft_user_refs {
    struct weir_soft_user_object *object;
    uint64_t count; /* number of references to it */
};

/* A graph's user objects, referenced by an executable and by each launch until it is done. */
struct weir_soft_users {
    uint32_t refs;
    uint32_t n;
    struct weir_soft_user_refs at[];
};
/** Give back references; the destructor runs at the last, without the lock. */
void weir_soft_user_object_drop(struct weir_soft_user_object *object, uint64_t count);
/** Destructors run without the lock. Accepts NULL. */
void weir_soft_users_put(struct weir_soft_users *users);

struct weir_soft_graph {
    struct weir_soft_object object;
    struct weir_soft_node *first, *last;
    uint32_t n_nodes;
    bool is_child;                       /* a node owns it, so the program may not destroy it */
    struct weir_soft_graph *cloned_from; /* identity only */
    struct weir_soft_user_refs *user_objects;
    uint32_t n_user_objects;
};

CUresult weir_soft_graph_make(struct weir_soft_graph **ret_graph);
/** Add a node; takes op, also on failure. */
CUresult weir_soft_graph_add(struct weir_soft_graph *graph, CUgraphNodeType type,
                             struct weir_soft_op *op, const struct weir_soft_nodes *before,
                             struct weir_soft_node **ret_node);
CUresult weir_soft_graph_clone(const struct weir_soft_graph *graph,
                               struct weir_soft_graph **ret_clone);
CUgraphNodeType weir_soft_op_node_type(const struct weir_soft_op *op);

/* ------------------------------------------------------------------ arrays */

struct weir_soft_array {
    struct weir_soft_object object;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint64_t base, bytes;
    uint64_t element_bytes, row_bytes, slice_bytes;
    uint64_t rows, slices;
    struct weir_soft_mipmap *mipmap; /* counted, if the array is a level of a mipmapped array */
    void *memory;                    /* owned, if the array is no level */
};

struct weir_soft_mipmap {
    struct weir_soft_object object;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    unsigned n_levels;
    void *memory;
    uint64_t bytes;
    struct weir_soft_array *levels[WEIR_SOFT_MAX_LEVELS]; /* borrowed */
};

/** Check a set against the address space. */
CUresult weir_soft_set_make(const CUDA_MEMSET_NODE_PARAMS *set, struct weir_soft_ctx *ctx,
                            struct weir_soft_op **ret_op);
/** Resolve a 3D copy as the program states it. */
CUresult weir_soft_copy_resolve(const CUDA_MEMCPY3D *asked, struct weir_soft_ctx *ctx,
                                struct weir_soft_op **ret_op, bool *ret_host_src,
                                bool *ret_host_dst);
