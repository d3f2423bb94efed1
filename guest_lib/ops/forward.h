/*
 * What generated entry points call (`field` and `forward` in proto/api): how they find what stands
 * behind a parameter, and what several of them have in common.
 *
 * Unless it says otherwise, a function gives CUDA_SUCCESS, or what the entry point is to return.
 * All may be called by any thread.
 */
#ifndef WEIR_GUEST_LIB_OPS_FORWARD_H
#define WEIR_GUEST_LIB_OPS_FORWARD_H

#include "guest_lib/entry.h"
#include "guest_lib/graph.h"
#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "guest_lib/vmm.h"
#include "proto/common/ctx_stack.h"

/* ---------------------------------------------------------------- objects */

/**
 * A context by handle, also a primary one that is not active: for questions that need nothing of
 * the host.
 *
 * @param handle  NULL: the calling thread's current one.
 * @return CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED
 */
CUresult weir_guest_ctx_any(CUcontext handle, struct weir_guest_ctx **ret_ctx);

/** A texture or surface object, and what it was made of. */
struct weir_guest_texture {
    unsigned long long value;
    bool surface;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
    struct weir_guest_texture *next;
};

/** A copy of what is known of an object. @return CUDA_ERROR_INVALID_HANDLE */
CUresult weir_guest_texture_find(CUtexObject object, struct weir_guest_texture *ret_texture);
CUresult weir_guest_surface_find(CUsurfObject object, struct weir_guest_texture *ret_texture);
/** The same; CUDA_ERROR_INVALID_VALUE if it has no view. */
CUresult weir_guest_texture_view_find(CUtexObject object, struct weir_guest_texture *ret_texture);

/**
 * What is kept of a graph's node.
 *
 * @param type  that it must have.
 * @return CUDA_ERROR_NOT_SUPPORTED  nothing is kept of it
 * @return CUDA_ERROR_INVALID_VALUE  it has another type
 */
CUresult weir_guest_node_record(CUgraphNode node, CUgraphNodeType type,
                                struct weir_graph_node *ret_record);
/** The same of nodes that allocate or free: CUDA_ERROR_INVALID_VALUE in both cases. */
CUresult weir_guest_memory_node_record(CUgraphNode node, CUgraphNodeType type,
                                       struct weir_graph_node *ret_record);

#endif
