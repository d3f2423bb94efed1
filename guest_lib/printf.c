/*
 * Device printf: the worker keeps each session's text, and synchronising calls fetch it. It is
 * printed through the program's own stdout, so that it appears in order with the program's own
 * output.
 */
#include "guest_lib/entry.h"
#include "proto/guest_calls.h"
#include <stdio.h>

void weir_guest_printf_flush(struct weir_guest_ctx *ctx)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_op_printf_flush_out out;
    bool wrote = false;
    do {
        out = (struct weir_op_printf_flush_out){0};
        CUresult result = weir_call_printf_flush(
            weir_guest_channel(), &(struct weir_op_printf_flush_in){.c = ctx->handle}, &out);
        if (result != CUDA_SUCCESS) {
            break; /* the call that flushes reports errors of the session */
        }
        if (out.n_text) {
            wrote = true;
            fwrite(out.text, 1, out.n_text, stdout);
        }
    } while (out.more && out.n_text);
    if (wrote) {
        fflush(stdout);
    }
}
