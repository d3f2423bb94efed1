/*
 * Functions that generated entry points call (`field` and `forward` in proto/api): they find the
 * objects of parameters, or do what several entry points have in common.
 *
 * Unless it says otherwise, a function returns CUDA_SUCCESS, or the entry point's result. All may
 * be called by any thread.
 */
#pragma once

#include "guest_lib/entry.h"
#include "guest_lib/graph.h"
#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "guest_lib/stream.h"
#include "guest_lib/vmm.h"
#include "proto/common/answers.h"
#include "proto/common/capture_mode.h"
#include "proto/common/coredump.h"
#include "proto/common/ctx_stack.h"
#include "proto/common/procaddr.h"

/* ---------------------------------------------------------------- objects */

/**
 * Find a context by handle, also a primary one that is not active: for queries that do not need the
 * host.
 *
 * @param handle  NULL: the calling thread's current one.
 * @return CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED
 */
CUresult weir_guest_ctx_any(CUcontext handle, struct weir_guest_ctx **ret_ctx);

/** The device of the calling thread's current context. @return as weir_ctx_current() */
CUresult weir_guest_device_current(const struct weir_guest_device **ret_device);

/** A device's primary context, in any state; NULL: there is no such device. */
static inline struct weir_guest_ctx *weir_guest_primary_of(CUdevice dev)
{
    const struct weir_guest_device *device = weir_guest_device_get(dev);
    return device ? device->primary : NULL;
}

/** Are these flags that a context can have? */
bool weir_guest_ctx_flags_valid(unsigned int flags);

/** Find a module that the program has loaded, or NULL. The program may not unload a library's
 * module. */
static inline struct weir_guest_module *weir_guest_loaded_module_get(CUmodule handle)
{
    struct weir_guest_module *module = weir_module_get(handle);
    return module && !module->library ? module : NULL;
}

/** Find a kernel of a library, or NULL. */
static inline struct weir_guest_function *weir_guest_library_kernel_get(CUkernel handle)
{
    struct weir_guest_function *function = weir_function_get(handle);
    return function && function->library ? function : NULL;
}

/** A texture or surface object, with the description that it was made from. */
struct weir_guest_texture {
    unsigned long long value;
    bool surface;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view; /* zeros if it has none */
    struct weir_guest_texture *next;
};

/** Copy the description of an object. @return CUDA_ERROR_INVALID_HANDLE */
CUresult weir_guest_texture_find(CUtexObject object, struct weir_guest_texture *ret_texture);
CUresult weir_guest_surface_find(CUsurfObject object, struct weir_guest_texture *ret_texture);

/**
 * Find the record of a graph's node.
 *
 * @param type  the type that the node must have.
 * @return CUDA_ERROR_NOT_SUPPORTED  the node has no record
 * @return CUDA_ERROR_INVALID_VALUE  the node has another type
 */
CUresult weir_guest_node_record(CUgraphNode node, CUgraphNodeType type,
                                struct weir_graph_node *ret_record);
/** As weir_guest_node_record(), for nodes that allocate or free: CUDA_ERROR_INVALID_VALUE in both
 * cases. */
CUresult weir_guest_memory_node_record(CUgraphNode node, CUgraphNodeType type,
                                       struct weir_graph_node *ret_record);

/** Find a graph by handle; NULL: none. */
static inline void *weir_guest_graph_get(CUgraph handle)
{
    return weir_guest_object_get(WEIR_KIND_GRAPH, handle);
}

/** Find an instantiated graph by handle; NULL: none. */
static inline void *weir_guest_exec_get(CUgraphExec handle)
{
    return weir_guest_object_get(WEIR_KIND_EXEC, handle);
}

/* ---------------------------------------------------------------- streams */

/** Let the stream write a value to memory, or wait for one. */
CUresult weir_guest_stream_value(CUstream stream, CUstreamBatchMemOpType operation,
                                 CUdeviceptr address, uint64_t value, unsigned int flags);

/** Call the program's function in the stream's order. */
CUresult weir_guest_stream_function(struct weir_guest_stream *stream, CUhostFn fn, void *user);

/** Begin a capture; graph: handle of the graph to capture into, or 0. edges may be NULL: all are
 * plain. */
CUresult weir_guest_capture_begin(CUstream stream, CUstreamCaptureMode mode, uint64_t graph,
                                  const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                  size_t count);

/* ---------------------------------------------------------------- memory */

/**
 * Fill height rows of width elements.
 *
 * @param pitch          bytes from row to row.
 * @param element_bytes  1, 2 or 4.
 * @param sync           host memory is filled when the call returns; device memory in the stream's
 * order, as natively.
 */
CUresult weir_guest_memset(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element_bytes,
                           size_t width, size_t height, CUstream stream, bool sync);

/**
 * Copy bytes from an address to an address.
 *
 * @param dst_type  the entry point's type of the side: host, device or unified memory.
 * @param sync      the call names no stream.
 */
CUresult weir_guest_copy(uint64_t dst, CUmemorytype dst_type, uint64_t src, CUmemorytype src_type,
                         uint64_t bytes, CUstream stream, bool sync);
/** Copy device memory between contexts, as the function above. */
CUresult weir_guest_copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                              CUcontext src_context, size_t bytes, CUstream stream, bool sync);
/** Copy one row. Each side is an array with an offset `at`, or memory at the address `at`. */
CUresult weir_guest_copy_row(CUmemorytype dst_type, CUarray dst_array, uint64_t dst_at,
                             CUmemorytype src_type, CUarray src_array, uint64_t src_at,
                             size_t bytes, CUstream stream, bool sync);
CUresult weir_guest_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);
CUresult weir_guest_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool sync);

/** Is a value a multiple of the granularity in which virtual memory is mapped? */
bool weir_guest_vmm_aligned(uint64_t value);

/** Set the device's pool for cuMemAllocAsync; get that, or the default one. */
CUresult weir_guest_pool_set(CUdevice device, CUmemoryPool pool);
CUresult weir_guest_pool_give(CUdevice device, bool want_default, CUmemoryPool *ret_pool);

/* ---------------------------------------------------------------- contexts, code */

/** Release a primary context once. reset: destroy it for all who have retained it. */
CUresult weir_guest_primary_release(const struct weir_guest_device *device, bool reset);

CUresult weir_guest_function_attribute_set(struct weir_guest_function *function, CUdevice device,
                                           CUfunction_attribute attribute, int value);
CUresult weir_guest_function_cache_config(struct weir_guest_function *function,
                                          CUfunc_cache config);
/** CUDA_ERROR_INVALID_VALUE past the last parameter; ret_bytes may be NULL. */
CUresult weir_guest_function_parameter(const struct weir_guest_function *function, size_t index,
                                       size_t *ret_offset, size_t *ret_bytes);

/** Find a function or kernel by name. @param ret_handle a CUfunction or CUkernel */
CUresult weir_guest_image_function(struct weir_image_object *image, const char *name,
                                   void *ret_handle);
/** List functions, as many as there are and as there is room for. */
CUresult weir_guest_image_functions(struct weir_image_object *image, void *ret_handles,
                                    unsigned int room);

/** @param source  an image, or the name of its file. */
CUresult weir_guest_library_load(CUlibrary *ret_library, const void *source, bool is_file,
                                 CUjit_option *jit_ids, void **jit_values, unsigned int n_jit,
                                 CUlibraryOption *ids, void **values, unsigned int n);
/** Get a variable's address and size; either output may be NULL. */
CUresult weir_guest_library_global(CUlibrary library, const char *name, bool managed,
                                   CUdeviceptr *ret_address, size_t *ret_bytes);

/** Compute the largest cluster that the launch could have (potential), or the number of active
 * clusters. */
CUresult weir_guest_occupancy_clusters(int *ret_value, CUfunction function,
                                       const CUlaunchConfig *config, bool potential);

/* ---------------------------------------------------------------- nodes of graphs */

/** Forget the state of a graph, an instantiated graph or a node that the host has destroyed. */
void weir_guest_graph_forget(uint64_t graph);
void weir_guest_exec_forget(uint64_t exec);
void weir_guest_node_forget(uint64_t node);

/* Set parameters of a node in the graph (exec 0), or in an instantiated graph by handle. */
CUresult weir_guest_node_set_kernel(uint64_t exec, CUgraphNode node,
                                    const CUDA_KERNEL_NODE_PARAMS *params);
CUresult weir_guest_node_set_copy(uint64_t exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                  CUcontext ctx);
CUresult weir_guest_node_set_memset(uint64_t exec, CUgraphNode node,
                                    const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx);
CUresult weir_guest_node_set_host(uint64_t exec, CUgraphNode node,
                                  const CUDA_HOST_NODE_PARAMS *params);
CUresult weir_guest_node_set_memops(uint64_t exec, CUgraphNode node,
                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
