/* Functions that the handlers share: they convert a guest's handle or offset to something that may
 * be used. */
#pragma once

#include "host_backend/worker/device/order.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/session.h"
#include "proto/host_hand.h"
#include "proto/wire/op_kinds.h"

struct weir_host_chunk;
struct weir_registration;
struct weir_vmm_alloc;

/**
 * Find live objects by handle; NULL: there is none. The device of a context or a stream becomes the
 * session's current one, whatever the record names, since the operation's objects belong there.
 */
static inline struct weir_host_ctx *weir_ops_ctx(struct weir_session *s, uint64_t handle)
{
    struct weir_host_ctx *ctx = weir_host_object_get(s, WEIR_KIND_CONTEXT, handle);

    return ctx && weir_session_enter(s, ctx->o.device) == CUDA_SUCCESS ? ctx : NULL;
}
static inline struct weir_host_stream *weir_ops_stream(struct weir_session *s, uint64_t handle)
{
    struct weir_host_stream *stream = weir_host_object_get(s, WEIR_KIND_STREAM, handle);

    return stream && !stream->left && weir_session_enter(s, stream->o.device) == CUDA_SUCCESS
               ? stream
               : NULL;
}
static inline struct weir_host_event *weir_ops_event(struct weir_session *s, uint64_t handle)
{
    return weir_host_object_get(s, WEIR_KIND_EVENT, handle);
}
static inline struct weir_host_function *weir_ops_function(struct weir_session *s, uint64_t handle)
{
    struct weir_host_function *f = weir_host_object_get(s, WEIR_KIND_FUNCTION, handle);

    return f && f->o.native ? f : NULL; /* a function's library may be unloaded */
}
/** A kernel of this function may run from now on: at once, or whenever a graph is launched. Its
 * module's variables are no longer as they were. */
static inline void weir_ops_runs(const struct weir_host_function *function, bool in_graph)
{
    struct weir_host_module *m = (struct weir_host_module *)function->o.owner;

    m = m->of_library ? (struct weir_host_module *)m->o.owner : m;
    m->ran = WEIR_CODE_RAN | WEIR_CODE_UNSAVED;
    m->in_graph |= in_graph;
}
/** The current real context: that of the device of the current context or record
 * (ops/context.c). */
CUcontext weir_ops_context(const struct weir_session *s);
/** Find a library, and load it again if a reset has unloaded it (ops/reset.c).
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_TIMEOUT (the device does not become
 *         idle), or an error of the driver */
CUresult weir_ops_library(struct weir_session *s, uint64_t handle,
                          struct weir_host_module **ret_library);

/** One side of a pitched copy, in the wire's form. */
struct weir_host_copy_side {
    uint32_t kind; /* enum weir_side_kind */
    uint64_t addr, x, y, z, lod, pitch, height;
};

/** Find the chunk, granted to this session, that contains a range; NULL: none (ops/memory.c). */
struct weir_host_chunk *weir_ops_granted(const struct weir_session *s, uint64_t base,
                                         uint64_t bytes);

/** Check both sides and fill the driver's structure (ops/copy.c).
 * @param in_node  the copy becomes a node of a graph. */
CUresult weir_ops_copy_3d(struct weir_session *s, const struct weir_host_copy_side *src,
                          const struct weir_host_copy_side *dst, uint64_t width, uint64_t height,
                          uint64_t depth, bool in_node, CUDA_MEMCPY3D *ret_copy);

/* Make a CUDA_MEMCPY3D from the fields of any operation that has them. */
#define WEIR_HAND_COPY_3D(s, in, in_node, ret_copy)                                                \
    weir_ops_copy_3d((s),                                                                          \
                     &(struct weir_host_copy_side){(in)->src_kind, (in)->src_addr, (in)->src_x,    \
                                                   (in)->src_y, (in)->src_z, (in)->src_lod,        \
                                                   (in)->src_pitch, (in)->src_height},             \
                     &(struct weir_host_copy_side){(in)->dst_kind, (in)->dst_addr, (in)->dst_x,    \
                                                   (in)->dst_y, (in)->dst_z, (in)->dst_lod,        \
                                                   (in)->dst_pitch, (in)->dst_height},             \
                     (in)->width, (in)->height, (in)->depth, (in_node), (ret_copy))

/** Destroy those of the session's streams that the guest destroyed while they had work or were
 * captured, if that is over (ops/stream.c). */
void weir_ops_streams_sweep(struct weir_session *s);

/** The arrays of a copy, for graphs that name them; NULL where a side is none (ops/copy.c). */
void weir_ops_copy_arrays(struct weir_session *s, const CUDA_MEMCPY3D *copy,
                          struct weir_object *ret_arrays[2]);

/** Check the memory of a (pitched) fill (ops/copy.c).
 * @param in_node  the fill becomes a node of a graph. */
CUresult weir_ops_check_fill(struct weir_session *s, uint64_t dst, uint64_t pitch,
                             uint32_t element_bytes, uint64_t width, uint64_t height, bool in_node);

/** The place of a new node in its graph. */
struct weir_ops_place {
    CUgraph graph;
    CUgraphNode *nodes; /* nodes that the new node depends on; owned by the current operation */
};

/** Find the graph and the dependencies of a new node, whose name is free (ops/graph_nodes.c). */
CUresult weir_ops_node_begin(struct weir_session *s, uint64_t graph, uint64_t node,
                             const uint64_t *dependencies, uint32_t n, struct weir_ops_place *ret);

/** Find a stored image of the tenant, with a reference (ops/module.c). */
struct weir_host_image *weir_ops_image(struct weir_session *s, const uint8_t hash[16],
                                       uint64_t bytes);

/** The program has named an image that it knows to be stored (ops/module.c). */
void weir_ops_image_named(const struct weir_session *s);

#define WEIR_JIT_OPTIONS_MAX 64
#define WEIR_LOG_BYTES       65536

/* Options in the driver's form, with room for four log entries. */
struct weir_host_jit_options {
    CUjit_option ids[WEIR_JIT_OPTIONS_MAX + 4];
    void *values[WEIR_JIT_OPTIONS_MAX + 4];
    unsigned n;
};

/** Copy the options that need no pointer; others are refused (ops/module.c). */
CUresult weir_ops_jit_options(const uint32_t *ids, uint32_t n_ids, const uint64_t *values,
                              uint32_t n_values, struct weir_host_jit_options *ret_options);
/** Add log buffers of WEIR_LOG_BYTES each. */
void weir_ops_jit_logs(struct weir_host_jit_options *options, char *info, char *error);

/** Grant a chunk under the reference that the guest knows; its own reference passes to the grant,
 * or is dropped on failure (ops/memory.c). */
CUresult weir_ops_grant_again(struct weir_session *s, struct weir_host_chunk *chunk,
                              uint64_t reference);
/**
 * Register the guest's own memory as another worker had it (ops/memory.c).
 * @param was  device, bytes, offset, read_only, in_window, pinned; file is borrowed.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (not such a file), CUDA_ERROR_ALREADY_MAPPED,
 *         CUDA_ERROR_OUT_OF_MEMORY, the driver's
 */
CUresult weir_ops_register_again(struct weir_session *s, const struct weir_registration *was);
/** Name memory; its reference passes to the handle, or is dropped on failure (ops/vmm.c). */
CUresult weir_ops_name_alloc(struct weir_session *s, uint64_t handle, struct weir_vmm_alloc *alloc,
                             bool imported);

/** Set an attribute of a function and of its kernel, on the current device (ops/function.c). */
CUresult weir_ops_set_attribute(struct weir_session *s, struct weir_host_function *f,
                                CUfunction_attribute id, int value);

/**
 * When the last context of a session is destroyed, it is reset: variables of libraries start again.
 * Libraries outlive contexts. So libraries that were used are unloaded, and loaded again, with the
 * same kernels, when the session makes its next first context (ops/reset.c).
 */
void weir_ops_libraries_unload(struct weir_session *s);
/** @return CUDA_SUCCESS, CUDA_ERROR_TIMEOUT (the device does not become idle) */
CUresult weir_ops_libraries_reload(struct weir_session *s);

/**
 * Prepare a launch's parameters for the driver. A parameter block may be too short, as NCCL's are:
 * the missing bytes are zero, and never the worker's memory behind the block.
 *
 * @param params  the block; replaced by scratch memory if it is too short.
 * @param bytes   its size; replaced with it.
 */
CUresult weir_ops_params(struct weir_session *s, const struct weir_host_function *f,
                         const void **params, size_t *bytes);

/** Mean number of SMs of the current device that a graph's kernels need; 0: not known
 * (ops/graph_demand.c). */
uint32_t weir_ops_graph_sms(struct weir_session *s, CUgraph graph);
/** An executable graph was updated with a graph's nodes. Not examined where small graphs have no
 * special rights. */
void weir_ops_graph_sms_updated(struct weir_session *s, struct weir_exec *exec, CUgraph graph);
/** A kernel in an executable graph, which came from this node, has got other parameters. */
void weir_ops_graph_sms_set(struct weir_session *s, struct weir_exec *exec,
                            const struct weir_object *node, const CUDA_KERNEL_NODE_PARAMS *params);
/** SMs that would hold all blocks of a kernel at once, which may be more than the device has; 0:
 * not known. */
uint64_t weir_ops_kernel_sms(struct weir_session *s, const CUDA_KERNEL_NODE_PARAMS *params);
/** Find the function of a kernel node; NULL: none of the session's (ops/graph_nodes.c). */
struct weir_host_function *weir_ops_node_function(struct weir_session *s,
                                                  const CUDA_KERNEL_NODE_PARAMS *params);
/** Most bytes of a kernel's parameters. */
#define WEIR_OPS_PARAMS_BYTES 32768u
/** Pack the parameters of a kernel node, which the driver returns in either of two forms.
 * @param room  for WEIR_OPS_PARAMS_BYTES. @return CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED, the
 * driver's */
CUresult weir_ops_node_params(struct weir_session *s, const struct weir_host_function *f,
                              const CUDA_KERNEL_NODE_PARAMS *params, uint8_t *room,
                              uint32_t *ret_n);
/** How long a node takes, compared with others of its graph; 1 or more (ops/graph_demand.c). */
uint64_t weir_ops_node_weight(struct weir_session *s, CUgraphNode node);
