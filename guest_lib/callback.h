/*
 * The program's functions that the host asks for: host functions and stream callbacks.
 *
 * A function is entered in a table under a token; the token travels. When the host says that a
 * stream has reached it (host_func_call), the runner, one thread that is started by the first
 * registration, runs it and posts host_func_done.
 */
#ifndef WEIR_GUEST_LIB_CALLBACK_H
#define WEIR_GUEST_LIB_CALLBACK_H

#include "guest_lib/channel.h"
#include "guest_lib/stream.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

typedef void (*weir_callback_fn)(void *user);

/**
 * Enter a function and start the runner if need be.
 *
 * @param fn, user   called on the runner's thread each time the host asks, with no lock held.
 * @param refused    called instead of fn if the host refuses the record that carried the token,
 * which is then forgotten; NULL: no such call.
 * @param once       forget the token after the first call.
 * @param ret_token  what host_func or graph_add_host carries.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_callback_add(weir_callback_fn fn, weir_callback_fn refused, void *user, bool once,
                           uint64_t *ret_token);

/** Forget a token (a graph is gone, or posting failed). Unknown tokens are ignored. @thread any */
void weir_callback_remove(uint64_t token);

/**
 * Have a function run when the stream is here. Not in a stream that is captured.
 *
 * @param fn, refused, user  as weir_callback_add(); refused is also called where it is not posted:
 * one of the two is called, once.
 * @return CUDA_SUCCESS, what stands in the way, or what earlier posted work left behind
 * @thread any
 */
CUresult weir_callback_in_stream(struct weir_guest_stream *stream, weir_callback_fn fn,
                                 weir_callback_fn refused, void *user);

/** May a function that was entered still run? @thread any */
bool weir_callbacks_pending(void);

/**
 * As weir_staging_write() and weir_staging_read(), which wait for the session's thread of a remote
 * host. Within a function these do not: that thread may wait for work that waits for the function.
 *
 * @thread any
 */
CUresult weir_callback_staging_write(uint64_t offset, const void *data, uint64_t bytes);
CUresult weir_callback_staging_read(uint64_t offset, void *ret_data, uint64_t bytes);

/** weir_channel_notify_fn of the session's channel. */
void weir_callback_notify(void *user, enum weir_op op, const void *body, size_t body_bytes);

/** Forget all, end the thread; for tests. @thread alone */
void weir_callbacks_finish(void);

#endif
