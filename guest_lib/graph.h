/*
 * The guest's part of graphs. Graphs themselves are in the worker, and have a handle here. Only
 * what cannot leave the process is kept here:
 *
 * - A *set* per graph: functions of the program that its nodes call, user objects that it retains,
 *   and copies between pageable memory and the GPU, whose bytes must move at each launch. Sets are
 *   counted: an instantiated graph, a clone and a parent of a child graph hold the sets that they
 * came from, so a set outlives its graph as long as anything can still execute it.
 * - A *node record* with the parameters that cuGraph*NodeGetParams must return in the program's own
 *   form.
 */
#pragma once

#include "guest_lib/launch.h"
#include "guest_lib/memory.h"
#include "guest_lib/stream.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_graph_function;
struct weir_graph_set;
struct weir_user_object;

/** Find or make the set of a graph or instantiated graph (by handle). NULL: no memory. */
struct weir_graph_set *weir_graph_set_of(uint64_t handle);

/** Find the set of a graph or an instantiated graph, by handle; NULL: it has none. */
struct weir_graph_set *weir_graph_set_find(uint64_t handle);

/** Let the object of this handle hold the set of `other` (a handle), since it can execute
 * everything in it. */
CUresult weir_graph_set_include(uint64_t handle, uint64_t other);

/** Like weir_graph_set_include(), after forgetting the sets that were included before (exec
 * update). */
CUresult weir_graph_set_add_update(uint64_t handle, uint64_t other);

/** The graph or instantiated graph is destroyed. Destructors run when the last holder of its set is
 * gone. */
void weir_graph_set_drop(uint64_t handle);

/** Give a function to the set, which frees it at its end. */
void weir_graph_set_function(struct weir_graph_set *set, struct weir_graph_function *function);

/** Give a pageable copy and its arena block to the set. */
CUresult weir_graph_set_copy(struct weir_graph_set *set,
                             const struct weir_stream_capture_copy *copy);

/** Give a block of graph memory to the set. freed: the block belongs to a free node, so the set
 * does not own it. */
CUresult weir_graph_set_mem(struct weir_graph_set *set, uint64_t base, bool freed);

/** Does the graph itself have memory nodes? Then it cannot be cloned. */
bool weir_graph_set_has_mem(uint64_t handle);

/** Mark that launches of this executable graph free memory that earlier ones left allocated. */
CUresult weir_graph_set_auto_free(uint64_t handle);

/** Retain (delta > 0) or release (delta < 0) a user object. @return false: the graph has fewer
 * references */
bool weir_graph_set_user_object(struct weir_graph_set *set, struct weir_user_object *object,
                                int64_t delta);

/* ---------------------------------------------------------------- launches */

/**
 * Make a function of a graph, which the host may call from now on.
 *
 * @param ret_token  the token to send with host_func or graph_add_host.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_graph_function_new(CUhostFn fn, void *user, struct weir_graph_function **ret_function,
                                 uint64_t *ret_token);

/** Forget a function that no set holds. Accepts NULL. @thread any; no lock held */
void weir_graph_function_free(struct weir_graph_function *function);

/** In launches of an executable graph (by handle), let the function of `token` be replaced by this
 * one. */
CUresult weir_graph_function_replace(uint64_t handle, uint64_t token,
                                     struct weir_graph_function *function);

/**
 * Before a graph (by handle) becomes executable: find out which functions read or write the
 * program's memory after or before its pageable copies.
 *
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, an error of the host
 * @return CUDA_ERROR_NOT_SUPPORTED  such a copy goes through device memory, as large copies of a
 *                                   remote session do; or the graph is too large.
 * @thread any; no lock held
 */
CUresult weir_graph_function_order(uint64_t handle);

/**
 * Before a launch: wait for the last launch that used the same blocks, then pack copies to the GPU.
 * @thread any; no lock held
 */
CUresult weir_graph_set_before_launch(struct weir_graph_set *set, struct weir_guest_stream *stream);

/**
 * After a launch on a stream: unpack copies from the GPU that no function of the graph has
 * unpacked, in the stream's order, before any later work of the stream.
 * @thread any; no lock held
 */
CUresult weir_graph_set_after_launch(struct weir_graph_set *set, struct weir_guest_stream *stream);

/* ---------------------------------------------------------------- user objects */

/** Drop references; the last one runs the program's destructor. @return false: there are fewer */
bool weir_user_object_release(struct weir_user_object *object, uint32_t count);

/* ---------------------------------------------------------------- nodes */

struct weir_graph_node {
    uint64_t handle;
    CUgraphNodeType type;
    uint32_t n_bodies; /* number of graphs that are a conditional node's bodies */
    union {
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS memset;
        CUDA_HOST_NODE_PARAMS host;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr freed;
        CUDA_BATCH_MEM_OP_NODE_PARAMS memops; /* the record owns its array */
        CUgraph *bodies; /* bodies of a conditional node; the array belongs to the record */
        struct {         /* filled by GetParams, lives as long as the node */
            void **pointers;
            uint8_t *packed;
        } kernel;
    } params;
};

/** Store a node's record; replaces a record of the same handle. CUDA_ERROR_OUT_OF_MEMORY */
CUresult weir_graph_node_keep(const struct weir_graph_node *node);

/** Copy a node's record. @return false: the node was made by capture, or is unknown */
bool weir_graph_node_find(uint64_t handle, struct weir_graph_node *ret_node);

/** The node is destroyed: forget its record. */
void weir_graph_node_forget(uint64_t handle);

/** A node was added to a graph: free its record together with the graph. Without memory for that
 * note, the record stays until the process ends. */
void weir_graph_node_own(uint64_t graph, uint64_t node);

/** The graph is destroyed: forget its nodes and their names. */
void weir_graph_nodes_forget(uint64_t graph);
/** A node is destroyed, and with it all nodes in its bodies if it is conditional. */
void weir_graph_node_bodies_forget(uint64_t handle);

/** Add a conditional node by cuGraphAddNode; fills params->phGraph_out. @thread any */
CUresult weir_graph_add_conditional(CUgraphNode *ret_node, CUgraph graph,
                                    const CUgraphNode *dependencies, size_t count,
                                    CUDA_CONDITIONAL_NODE_PARAMS *params);

/* ---------------------------------------------------------------- pageable copies */

/**
 * Take a block for a pageable copy. Never waits for other copies.
 *
 * @param ctx    the owner of the memory, if the block is not in the arena.
 * @param bytes  1 or more.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, an error of the host
 * @thread any; no lock held
 */
CUresult weir_graph_block_take(struct weir_guest_ctx *ctx, uint64_t bytes,
                               struct weir_graph_block *ret_block);

/** Free a block that no launch uses any more. @thread any; no lock held */
void weir_graph_block_free(const struct weir_graph_block *block);

/** Describe the block as a side of a copy's operation: rows of width bytes, slices of height
 * rows. */
void weir_graph_block_side(const struct weir_graph_block *block, uint64_t width, uint64_t height,
                           struct weir_guest_copy_side *ret_side);

/**
 * Move the bytes of a copy between the program's rows and its block.
 *
 * @param stream  of the launch: orders the access to a block of device memory, and is not used for
 *                other blocks. A read from device memory is synchronous.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (its context is gone), or an error of the host
 * @thread any, also the callback runner; for a block of device memory, no lock held
 */
CUresult weir_graph_block_move(const struct weir_stream_capture_copy *copy,
                               struct weir_guest_stream *stream);

/* ---------------------------------------------------------------- capture */

/** The stream is about to be destroyed: end the capture that began in it, if any. The captured
 * nodes are lost, except in a graph that the program gave. @thread any; no lock held */
void weir_graph_capture_abandon(struct weir_guest_stream *stream);

/** Does the stream take part in a capture? @thread any; no lock held */
bool weir_graph_is_captured(struct weir_guest_stream *stream);

/**
 * If the stream is capturing, add the function to the captured graph.
 *
 * @param ret_token   on CUDA_SUCCESS, the token to send with host_func; not written otherwise.
 * @param ret_result  if true is returned: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or an error of
 *                    the host
 * @return false: the stream is not capturing.
 * @thread any; no lock held
 */
bool weir_graph_capture_function(struct weir_guest_stream *stream, CUhostFn fn, void *user,
                                 uint64_t *ret_token, CUresult *ret_result);

/* ---------------------------------------------------------------- parameters of copy nodes */

/* The fields of a copy on the wire, as in graph_add_copy and graph_copy_set. */
struct weir_graph_copy {
    struct weir_guest_copy_side dst;
    struct weir_guest_copy_side src;
    uint64_t width, height, depth;
    bool pageable; /* one side is a block described by `host` */
    struct weir_stream_capture_copy host;
};

/**
 * Read a CUDA_MEMCPY3D for a node: pageable sides become blocks, to be given to a set.
 *
 * @param ctx  of the node.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED (pageable to pageable),
 *         CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_graph_copy_read(struct weir_guest_ctx *ctx, const CUDA_MEMCPY3D *copy,
                              struct weir_graph_copy *ret_copy);
