/*
 * The calling thread's stack of current contexts. Its values are opaque: the library checks whether
 * a context lives. All functions only use the calling thread's stack, without a lock.
 */
#pragma once

#include "base/status.h"
#include "proto/cuda_abi.h"

/* No program needs more; the bound keeps a loop of pushes from using all memory. */
#define WEIR_CTX_STACK_DEPTH 256

struct weir_ctx_stack {
    uint32_t depth;
    CUcontext contexts[WEIR_CTX_STACK_DEPTH];
};

extern __thread struct weir_ctx_stack weir_ctx_stack_tls;

/** The top of the stack, or NULL. */
static inline CUcontext weir_ctx_stack_current(void)
{
    const struct weir_ctx_stack *stack = &weir_ctx_stack_tls;
    return stack->depth ? stack->contexts[stack->depth - 1] : NULL;
}

/** Push; WEIR_ERR_QUOTA when the stack is full. */
enum weir_status weir_ctx_stack_push(CUcontext context) WEIR_MUST_CHECK;

/** Pop the top into *ret_context (may be NULL); WEIR_ERR_NOT_FOUND when empty. */
enum weir_status weir_ctx_stack_pop(CUcontext *ret_context) WEIR_MUST_CHECK;

/** Replace the top, or push onto an empty stack; NULL pops it, as cuCtxSetCurrent does. */
void weir_ctx_stack_set(CUcontext context);
