/*
 * The types of a session's objects. Each begins with struct weir_object and lives in the table of
 * its kind (session/objects.h). The objects of a context die with it, functions with their module,
 * nodes with their graph. A linker's state, or a texture or surface object, has no more than the
 * object. Only the session's own thread touches them.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_OBJECT_TYPES_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_OBJECT_TYPES_H

#include "base/id_table.h"
#include "host_backend/worker/session/admission.h"
#include "host_backend/worker/session/awaited.h"
#include "host_backend/worker/session/exec.h"
#include "host_backend/worker/session/fault.h"
#include "host_backend/worker/session/hooks.h"
#include "host_backend/worker/session/part.h"
#include "host_backend/worker/session/session_devices.h"
#include "proto/cuda_abi.h"

struct weir_forms_kernel;
struct weir_forms_module;
struct weir_graph_hold;
struct weir_host_image;
struct weir_closed_kernels;
struct weir_host_jit_options;
struct weir_host_stream;
struct weir_ipc_event;

struct weir_object {
    weir_handle handle;
    uint8_t kind;
    uint8_t device;            /* of the worker's: whose context was current at its making */
    bool borrowed;             /* the driver's own (default pools, child graphs): never destroyed */
    bool altered;              /* a node of a graph: its kernel has been given other parameters */
    void *native;              /* the driver's handle */
    struct weir_host_ctx *ctx; /* dies with it; NULL: with the session */
    struct weir_object *owner; /* dies with it: a function's module, a node's graph; or NULL */
    uint16_t depth;            /* a graph, executable or not: levels of graphs within it */
    uint32_t within;        /* likewise, and a node: nodes of graphs within it (graph_nesting.h) */
    uint64_t charged_bytes; /* of the tenant's quota */
    struct weir_graph_hold *hold;  /* NULL: no graph has named it (graph_holds.h) */
    struct weir_object *next_kept; /* of what the guest has destroyed, and graphs name */
};

/* A context of the guest. All of a device lie over its one primary context. */
struct weir_host_ctx {
    struct weir_object o;
    struct weir_host_ctx *next;
    struct weir_host_stream *legacy;
    struct weir_host_stream *streams; /* all of the context, the legacy one too */
    /* Legacy order (session/order.c). */
    uint64_t legacy_epoch; /* how many operations the legacy stream has been given */
    uint64_t event_epoch;  /* legacy_event was recorded behind this many of them */
    CUevent legacy_event;  /* NULL until it is needed */
    uint32_t flags;
};

struct weir_host_stream {
    struct weir_object o;
    struct weir_host_stream *next; /* in the context */
    uint32_t word;
    uint32_t flags;
    int priority; /* that the guest asks for */
    bool legacy;
    bool blocking;          /* ordered against the legacy stream */
    bool dirty;             /* has had work since the legacy stream last waited for it */
    bool left;              /* the guest destroyed it; it may wait for a value, or is captured */
    bool capturing;         /* this stream began a capture that has not ended */
    bool capture_given;     /* into a graph of the guest */
    uint64_t capture_graph; /* handle of the graph under capture, if it was named; or 0 */
    uint16_t capture_depth; /* what was captured with no name: as depth and within of a graph */
    uint32_t capture_within;
    uint32_t capture_nodes; /* nodes that the given graph had when they were last counted */
    uint64_t seen_epoch;    /* the last operation of the legacy stream that it has waited for */
    CUevent join;           /* NULL until it is needed */
    struct weir_admission_stream gate;
    struct weir_fault_stream fault;
    struct weir_stream_told told;
    struct weir_awaited_stream awaited;
    struct weir_stream_part part;
};

/** The driver's stream for this stream's work: its own, or the one in the part of the device. */
static inline CUstream weir_host_stream_at(const struct weir_host_stream *stream)
{
    return stream->part.in ? stream->part.stream : stream->o.native;
}

struct weir_host_event {
    struct weir_object o;
    uint32_t word;
    uint32_t flags;
    struct weir_ipc_event *shared; /* interprocess: a reference; else NULL */
};

/* A module or a library. */
struct weir_host_module {
    struct weir_object o;
    struct weir_host_image
        *image;       /* a reference: the driver may read it as long as the module lives */
    const void *code; /* what of it the driver was given; the image's */
    bool library;
    bool of_library; /* the module of a library: unloaded with it */
    bool uses_printf, may_assert;
    const struct weir_closed_kernels *closed; /* the image's: for these neither holds; or NULL */
    bool is_bundle;
    struct weir_forms_module *forms; /* its twins, a list by device; NULL: none (twins/) */
    bool used;      /* a library of which something was asked for: its variables may have changed */
    bool reset_due; /* the last context has gone since, and it is loaded still (ops/reset.c) */
    struct weir_host_jit_options *options; /* a library's, to load it again with; NULL: none */
};

#define WEIR_FUNCTION_SETTABLE 16 /* attributes below this can be set */

struct weir_host_function {
    struct weir_object o;  /* native: the CUfunction */
    CUkernel kernel;       /* of a library; or NULL */
    CUfunction *elsewhere; /* a kernel's function on each device; NULL until there is a second */
    char *name;            /* the guest's; NULL: none yet */
    struct weir_forms_module *forms;            /* its module's */
    struct weir_forms_kernel *form;             /* of those, once found */
    uint32_t set_mask;                          /* attributes that the guest has set .. */
    int32_t set_values[WEIR_FUNCTION_SETTABLE]; /* .. and what to */
    bool uses_printf, may_assert;
    uint32_t loaded_on; /* devices where its code is known to be loaded, a bit each */
    bool layout_known;
    struct weir_gate_hint hint;
    uint32_t param_bytes; /* what a launch must bring at least */
    uint32_t n_params;
};

/* At which priority a graph's kernels run: ops/graph_priority.h. */
struct weir_exec_priority {
    bool of_nodes;  /* each kernel has its own */
    bool by_stream; /* it asks for that, but all have the same: the launching stream is given it */
    int asked;      /* that priority, as the guest counts them */
};

/* An executable graph. */
struct weir_exec {
    struct weir_object o;
    struct weir_gate_hint hint;
    uint32_t nodes; /* of its graph, without those within */
    uint32_t sms;   /* how many it needs (ops/graph_demand.c); 0: not known */
    bool updated;   /* from another graph than it was made of */
    struct weir_exec_priority priority;
    struct weir_exec_inside inside;
    struct weir_exec_pieces *pieces; /* NULL: it has none */
    struct weir_exec_probe probe;
    uint64_t stream;    /* the handle of the stream that it was last launched into; 0: none */
    bool was_pieces;    /* that launch was in pieces, and done was recorded behind it */
    CUevent done;       /* NULL until the first such launch */
    CUuserObject *held; /* of what it was given to name (graph_holds.h) */
    uint32_t n_held;
};

#endif
