/* The process's session: its only global, and functions that any part may call. */
#include "guest_lib/state.h"
#include "base/log.h"
#include "base/text.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include <stdio.h>

struct weir_guest weir_guest = {.driver_version = CUDA_VERSION,
                                .init_lock = PTHREAD_MUTEX_INITIALIZER};
struct weir_lock weir_mem_fd;

CUresult weir_guest_phase_error(enum weir_guest_phase phase)
{
    switch (phase) {
    case WEIR_PHASE_READY:
        return CUDA_SUCCESS;
    case WEIR_PHASE_NEW:
    case WEIR_PHASE_FORKED:
        return CUDA_ERROR_NOT_INITIALIZED;
    case WEIR_PHASE_GONE:
        break;
    }
    return CUDA_ERROR_DEINITIALIZED;
}

struct weir_channel *weir_guest_channel(void)
{
    return &weir_guest.channel;
}

void weir_guest_unsupported(const char *symbol)
{
    weir_log_warn("guest: not supported, function=%s", symbol);
}

/* The host makes the text, since it knows the tenant's quota and use. */
void weir_guest_tell_lack(void)
{
    struct weir_op_memory_refused_out out = {0};
    char visible[512], text[513];
    if (weir_log_level() < WEIR_LOG_ERROR ||
        weir_call_memory_refused(weir_guest_channel(), NULL, &out) != CUDA_SUCCESS ||
        out.n_text == 0) {
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)out.n_text, (const char *)out.text);
    weir_log_error("cuda: out of memory (CUDA_ERROR_OUT_OF_MEMORY): %s",
                   weir_text_visible(text, visible, sizeof visible));
}
