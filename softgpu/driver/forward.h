/*
 * What generated entry points call (`field` and `forward` in proto/api): how they find what stands
 * behind a parameter, and what several of them have in common.
 *
 * The functions that find something are called with the driver's lock held; what they find is
 * borrowed until it is let go. The others take the lock themselves. They give CUDA_SUCCESS, or what
 * the entry point is to return.
 */
#ifndef WEIR_SOFTGPU_DRIVER_FORWARD_H
#define WEIR_SOFTGPU_DRIVER_FORWARD_H

#include "proto/common/ctx_stack.h"
#include "softgpu/driver/driver.h"

/** A context by handle, NULL for the current one, whether it is active or not. */
CUresult weir_soft_ctx_any(CUcontext handle, struct weir_soft_ctx **ret_ctx);

/** A green context by handle; the error of its primary context, if that has one. */
CUresult weir_soft_green_find(CUgreenCtx handle, struct weir_soft_green **ret_green);

/** The function behind a CUfunction or CUkernel in the current context. */
CUresult weir_soft_function_here(CUfunction handle, struct weir_soft_function **ret_function);

/** A kernel of a library, or NULL. */
static inline struct weir_soft_kernel *weir_soft_kernel_find(CUkernel handle)
{
    return weir_soft_object_find(WEIR_SOFT_KERNEL, handle);
}

/** A node of a graph, of this type: else CUDA_ERROR_INVALID_VALUE. */
CUresult weir_soft_node_of(CUgraphNode handle, CUgraphNodeType type,
                           struct weir_soft_node **ret_node);

#endif
