/*
 * Functions of the guest library for the generated exports (guest_exports.c), the generated entry
 * points, and hand-written entry points.
 *
 * A hand-written entry point is `CUresult weir_guest_<symbol>(arguments)`, declared in
 * proto/guest_hand.h. Streams are never NULL there: they are CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
 * or a handle. The export has already passed WEIR_GUEST_ENTER, so the session is up.
 *
 * weir_guest_channel(), weir_guest_use(), _reserve(), _drop(), _adopt() and _device() are declared
 * in proto/wire/guest_api.h.
 */
#pragma once

#include "base/id_table.h"
#include "guest_lib/channel.h"
#include "guest_lib/state.h"
#include "proto/cuda_abi.h"
#include "proto/wire/guest_api.h"
#include <errno.h>

/*
 * The beginning of every export that is not allowed before cuInit: CUDA_SUCCESS if the session is
 * up, else the call's error. One load.
 */
#define WEIR_GUEST_ENTER(symbol)                                                                   \
    (__builtin_expect(weir_guest_phase_now() == WEIR_PHASE_READY, 1)                               \
         ? CUDA_SUCCESS                                                                            \
         : weir_guest_phase_error(weir_guest_phase_now()))

/**
 * The part of weir_guest_enter_unsafe() for when a stream is captured.
 *
 * @param ctx  context that the call waits for: any capture there forbids the call; or NULL.
 * @thread any
 */
CUresult weir_guest_refuse_unsafe(const struct weir_guest_ctx *ctx);

/**
 * May a call proceed that is unsafe while a stream is captured (proto/common/capture_mode.h)?
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED  no; the captures that forbid it are invalidated
 * @thread any
 */
static inline CUresult weir_guest_enter_unsafe(void)
{
    return __builtin_expect(weir_guest_capturing(), 0) ? weir_guest_refuse_unsafe(NULL)
                                                       : CUDA_SUCCESS;
}

/*
 * errno belongs to the program: functions that make system calls begin with this line. (The futex
 * and transport functions preserve it themselves.)
 */
#define WEIR_GUEST_KEEP_ERRNO                                                                      \
    int weir_saved_errno __attribute__((cleanup(weir_guest_restore_errno), unused)) = errno

static inline void weir_guest_restore_errno(const int *saved)
{
    errno = *saved;
}

/** As weir_channel_report(). Launches, synchronising calls and queries end with it. @thread any */
static inline CUresult weir_guest_report(void)
{
    return weir_channel_report(&weir_guest.channel);
}

/** Return result or, after CUDA_SUCCESS, the error of earlier posted work. @thread any */
static inline CUresult weir_guest_result(CUresult result)
{
    return result != CUDA_SUCCESS ? result : weir_guest_report();
}

/** With WEIR_LOG=warn write a line about a called function that Weir does not support.
 * @thread any */
void weir_guest_unsupported(const char *symbol);
