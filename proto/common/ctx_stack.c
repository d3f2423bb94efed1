#include "proto/common/ctx_stack.h"

__thread struct weir_ctx_stack weir_ctx_stack_tls;

enum weir_status weir_ctx_stack_push(CUcontext context)
{
    struct weir_ctx_stack *stack = &weir_ctx_stack_tls;
    WEIR_FAIL_IF(stack->depth == WEIR_CTX_STACK_DEPTH, WEIR_ERR_QUOTA);
    stack->contexts[stack->depth++] = context;
    return WEIR_OK;
}

enum weir_status weir_ctx_stack_pop(CUcontext *ret_context)
{
    struct weir_ctx_stack *stack = &weir_ctx_stack_tls;
    WEIR_FAIL_IF(!stack->depth, WEIR_ERR_NOT_FOUND);
    stack->depth--;
    WEIR_GIVE(ret_context, stack->contexts[stack->depth]);
    return WEIR_OK;
}

void weir_ctx_stack_set(CUcontext context)
{
    struct weir_ctx_stack *stack = &weir_ctx_stack_tls;
    if (!context) {
        stack->depth -= stack->depth ? 1 : 0;
    } else if (stack->depth) {
        stack->contexts[stack->depth - 1] = context;
    } else {
        stack->contexts[stack->depth++] = context;
    }
}
