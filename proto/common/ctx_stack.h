/*
 * The calling thread's stack of current contexts. Opaque values: liveness is the library's
 * business. All functions act on the calling thread alone and take no lock.
 */
#ifndef WEIR_PROTO_COMMON_CTX_STACK_H
#define WEIR_PROTO_COMMON_CTX_STACK_H

#include "base/status.h"
#include "proto/cuda_abi.h"

/* Deeper than any program goes; a bound keeps a leaking push loop from eating memory. */
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

#endif
