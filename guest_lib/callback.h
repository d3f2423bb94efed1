/*
 * Runs the program's functions when the host asks for it: host functions and stream callbacks.
 *
 * A table stores each function under a token, and only the token goes to the host. When the host
 * reports that a stream has reached the function (host_func_call), the runner runs it and posts
 * host_func_done. The first registration starts the runner, which is one thread.
 */
#pragma once

#include "guest_lib/channel.h"
#include "guest_lib/stream.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

typedef void (*weir_callback_fn)(void *user);

/**
 * Register a function, and start the runner if needed.
 *
 * @param fn, user   called on the runner's thread each time the host asks, with no lock held.
 * @param refused    called instead of fn if the host refuses the record that carried the token,
 * which is then forgotten; NULL: no such call.
 * @param once       forget the token after the first call.
 * @param ret_token  the token to send with host_func or graph_add_host.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_callback_add(weir_callback_fn fn, weir_callback_fn refused, void *user, bool once,
                           uint64_t *ret_token);

/** Forget a token (a graph is gone, or posting failed). Unknown tokens are ignored. @thread any */
void weir_callback_remove(uint64_t token);

/**
 * Run a function when the stream reaches this point. Not for a stream under capture.
 *
 * @param fn, refused, user  as weir_callback_add(); refused is also called where it is not posted:
 * one of the two is called, once.
 * @return CUDA_SUCCESS, an error, or an error of earlier posted work
 * @thread any
 */
CUresult weir_callback_in_stream(struct weir_guest_stream *stream, weir_callback_fn fn,
                                 weir_callback_fn refused, void *user);

/** May a registered function still run? @thread any */
bool weir_callbacks_pending(void);

/**
 * As weir_staging_write() and weir_staging_read(), but usable within a function. The others wait
 * for the session's thread of a remote host, which may wait for work that waits for the function.
 *
 * @thread any
 */
CUresult weir_callback_staging_write(uint64_t offset, const void *data, uint64_t bytes);
CUresult weir_callback_staging_read(uint64_t offset, void *ret_data, uint64_t bytes);

/** weir_channel_notify_fn of the session's channel. */
void weir_callback_notify(void *user, enum weir_op op, const void *body, size_t body_bytes);

/** For tests: forget all functions, and end the thread. @thread alone */
void weir_callbacks_finish(void);
