/*
 * Device printf: the driver writes the text to this process's stdout; this file brings it to the
 * guest.
 *
 * Descriptor 1 becomes a file in memory. The driver flushes at synchronizations and launches, and
 * does not say whose text it is. So at any time one session *owns* the output. Before a kernel of
 * another session that may print is launched, that session waits for the owner's printing kernels
 * and collects their text. Sessions that never print, and captured work, do not use this.
 */
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_prints;
struct weir_session;
struct weir_session_prints;

#define WEIR_PRINTS_SETTLE_NS (10 * WEIR_NS_PER_S)

/**
 * Take over descriptor 1: the worker's part.
 * @param settle_ns  how long a session that is about to print waits for the kernels of the one that
 *                   printed before it, all together; WEIR_PRINTS_SETTLE_NS except in tests.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread main
 */
enum weir_status weir_prints_create(uint64_t settle_ns,
                                    struct weir_prints **ret_prints) WEIR_MUST_CHECK;
/** No session may be left. Accepts NULL. @thread main */
void weir_prints_destroy(struct weir_prints *prints);

/**
 * The session has a kernel that may print: make session->prints.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread session
 */
CUresult weir_prints_expect(struct weir_session *session);

/**
 * A kernel that may print is about to go to stream, whose device is current. Waits for other
 * sessions' output; late output may be lost, or be attributed to this session. If this session's
 * kernels have delayed another one for the full time, this waits for them as long first.
 * weir_prints_end() must follow if this succeeds.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or an error of the driver
 * @thread session
 */
CUresult weir_prints_begin(struct weir_session *session, CUstream stream);

/**
 * @param at        the stream that got the kernel: the guest's, or one in its place.
 * @param launched  false: the stream got nothing.
 * @thread session
 */
void weir_prints_end(struct weir_session *session, CUstream at, bool launched);

/**
 * Collect the text of the session's kernels that have ended, without waiting.
 * @return CUDA_SUCCESS, or an error of the driver
 * @thread session
 */
CUresult weir_prints_collect(struct weir_session *session);

/** Bytes of text that were collected and not taken. @thread session */
size_t weir_prints_bytes(const struct weir_session *session);
/** Take the first n bytes of the text. @thread session */
void weir_prints_take(struct weir_session *session, void *to, size_t n);

/** Forget a stream that is going away; stream NULL: the session ends. @thread session */
void weir_prints_forget(struct weir_session *session, CUstream stream);
/** After weir_prints_forget(session, NULL). Accepts NULL. */
void weir_session_prints_destroy(struct weir_session_prints *prints);
