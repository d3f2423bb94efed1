/*
 * Functions for generated entry points (`field` and `forward` in proto/api): they find a
 * parameter's object, or do what several entry points need.
 *
 * Callers of the functions that find an object hold the driver's lock, and borrow the object until
 * they release it. The other functions acquire the lock themselves. All return the entry point's
 * CUresult on failure.
 */
#pragma once

#include "proto/common/answers.h"
#include "proto/common/capture_mode.h"
#include "proto/common/common.h"
#include "proto/common/coredump.h"
#include "proto/common/ctx_stack.h"
#include "proto/common/procaddr.h"
#include "softgpu/driver/driver.h"

/** A context by handle, NULL for the current one, whether it is active or not. */
CUresult weir_soft_ctx_any(CUcontext handle, struct weir_soft_ctx **ret_ctx);

/** A green context by handle; the error of its primary context, if that has one. */
CUresult weir_soft_green_find(CUgreenCtx handle, struct weir_soft_green **ret_green);
/** The green context that the calling thread has made current by cuCtxFromGreenCtx; or NULL. */
struct weir_soft_green *weir_soft_green_current(void);

/** The function behind a CUfunction or CUkernel in the current context. */
CUresult weir_soft_function_here(CUfunction handle, struct weir_soft_function **ret_function);

/** A kernel of a library, or NULL. */
static inline struct weir_soft_kernel *weir_soft_kernel_find(CUkernel handle)
{
    return weir_soft_object_find(WEIR_SOFT_KERNEL, handle);
}

/** A module by handle: CUDA_ERROR_INVALID_HANDLE; the error of the current context. */
CUresult weir_soft_module_find(CUmodule handle, struct weir_soft_module **ret_module);

/** Physical memory that the program holds, or NULL. */
struct weir_soft_chunk *weir_soft_chunk_find(CUmemGenericAllocationHandle handle);

static inline struct weir_soft_array *weir_soft_array_find(CUarray handle)
{
    return weir_soft_object_find(WEIR_SOFT_ARRAY, handle);
}

/** What the program asked for with a texture or surface object; found by the object's value. */
struct weir_soft_texture {
    uint64_t value;
    bool is_surface;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC desc;
    CUDA_RESOURCE_VIEW_DESC view; /* zeros if it has none */
    void *owner;                  /* the array or mipmapped array; counted */
    struct weir_soft_texture *next;
};

/** The object behind a handle, or NULL; the second function also gives NULL without a view. */
const struct weir_soft_texture *weir_soft_texture_find(CUtexObject object);
const struct weir_soft_texture *weir_soft_surface_find(CUsurfObject object);

/** A node of a graph by handle: CUDA_ERROR_INVALID_VALUE. */
CUresult weir_soft_node_find(CUgraphNode handle, struct weir_soft_node **ret_node);

/** A node of a graph, of this type: else CUDA_ERROR_INVALID_VALUE. */
CUresult weir_soft_node_of(CUgraphNode handle, CUgraphNodeType type,
                           struct weir_soft_node **ret_node);

/** Set a node's parameters, in its graph or, with exec, in an instantiated one. */
CUresult weir_soft_node_set_kernel(uint64_t exec, CUgraphNode node,
                                   const CUDA_KERNEL_NODE_PARAMS *params);
CUresult weir_soft_node_set_copy(uint64_t exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                 CUcontext ctx);
CUresult weir_soft_node_set_memset(uint64_t exec, CUgraphNode node,
                                   const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult weir_soft_node_set_host(uint64_t exec, CUgraphNode node,
                                 const CUDA_HOST_NODE_PARAMS *params);
CUresult weir_soft_node_set_event(uint64_t exec, CUgraphNode node, CUgraphNodeType type,
                                  CUevent event);
CUresult weir_soft_exec_set_event(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                                  CUevent event);
CUresult weir_soft_node_set_memops(uint64_t exec, CUgraphNode node,
                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
/** Of any kind but memory. */
CUresult weir_soft_node_set_any(uint64_t exec, CUgraphNode node, CUgraphNodeParams *params);

/** A library by handle: CUDA_ERROR_INVALID_HANDLE. */
CUresult weir_soft_library_find(CUlibrary handle, struct weir_soft_library **ret_library);

struct weir_soft_graph_exec;
/** An instantiated graph by handle: CUDA_ERROR_INVALID_VALUE. */
CUresult weir_soft_exec_find(CUgraphExec handle, struct weir_soft_graph_exec **ret_exec);

/** Get one parameter of a function; CUDA_ERROR_INVALID_VALUE past the last. The lock is held. */
CUresult weir_soft_function_parameter(const struct weir_soft_function *function, size_t index,
                                      size_t *offset, size_t *bytes);

/** A variable's address and size, each where it is asked for. */
CUresult weir_soft_library_global(CUlibrary library, const char *name, bool managed,
                                  CUdeviceptr *address, size_t *bytes);

/** Have the stream write a value to memory, or wait for one: of the four operations that do. */
CUresult weir_soft_stream_value(CUstream stream, CUstreamBatchMemOpType operation,
                                CUdeviceptr address, uint64_t value, unsigned flags);

/** Fill height rows, pitch bytes apart, of width elements of 1, 2 or 4 bytes. */
CUresult weir_soft_memset(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element_bytes,
                          size_t width, size_t height, CUstream stream, bool wait);

/**
 * Copy bytes from an address to an address.
 *
 * @param dst_type  what the entry point says of the side: host, device or unified memory.
 * @param wait      the call names no stream.
 */
CUresult weir_soft_copy(uint64_t dst, CUmemorytype dst_type, uint64_t src, CUmemorytype src_type,
                        size_t bytes, CUstream stream, bool wait);
/** Copy device memory between contexts, as the function above. */
CUresult weir_soft_copy_peer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                             size_t bytes, CUstream stream, bool wait);
/** A side that is one row of an array, or memory; at: the offset in the array, or the address. */
CUresult weir_soft_copy_row(CUmemorytype dst_type, CUarray dst_array, uint64_t dst_at,
                            CUmemorytype src_type, CUarray src_array, uint64_t src_at, size_t bytes,
                            CUstream stream, bool wait);
CUresult weir_soft_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait);
CUresult weir_soft_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool wait);
