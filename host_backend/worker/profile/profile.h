/*
 * Records when the device did a session's profiled work, and how long that waited in the gate.
 *
 * A guest profiles a call by a number in its requests' header. So a session that profiles nothing
 * pays two loads for each piece of work. Times are those of NVIDIA's libcupti (cupti.h), or of two
 * events around the work. The records are kept until the guest takes them, of
 * WEIR_PROFILE_RECORDS_MAX pieces of work at most; what does not fit is counted.
 *
 * Functions are for the session's own thread.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "proto/cuda_abi.h"
#include "proto/profile/record.h"

struct weir_driver;
struct weir_host_stream;
struct weir_op_profile_take_out;
struct weir_profile_span;
struct weir_session;

/**
 * Find one of the session's functions by its name.
 * @param guess  a handle that it may have; 0: none.
 * @return its handle; 0: it has none
 */
typedef uint64_t weir_profile_function_fn(struct weir_session *session, const char *name,
                                          uint64_t guess);

/**
 * Profiled work has come to the gate, and will go to a stream of the current device.
 * @return NULL: there will be no record, because there is no room or the work is captured.
 */
struct weir_profile_span *weir_profile_arrives(struct weir_session *session,
                                               const struct weir_host_stream *stream,
                                               const struct weir_gate_work *work,
                                               weir_profile_function_fn *function_of);

/**
 * The work may go to the stream now.
 * @param pass      what the gate said.
 * @param expected  how many kernels, copies and memsets it is for the device; 0: not known.
 */
void weir_profile_begins(struct weir_session *session, const struct weir_host_stream *stream,
                         struct weir_profile_span *span, const struct weir_gate_pass *pass,
                         uint32_t expected);

/** The work that is given now is a graph as the program made it: its nodes may get records. */
void weir_profile_graph_given(struct weir_session *session);

/** The work was given to the stream; given false: it was not, and there will be no record. Either
 * call ends what weir_profile_arrives() began. */
void weir_profile_given(struct weir_session *session, const struct weir_host_stream *stream,
                        struct weir_profile_span *span, bool given);

/** Work that is not profiled has come to a session that has profiled some: record no longer, if
 * that is long ago. */
void weir_profile_rests(struct weir_session *session);

/** Take the records of work that has ended. @param out borrows them until the next call. */
void weir_profile_take(struct weir_session *session, struct weir_op_profile_take_out *out);

/** The session ends: destroy its events. */
void weir_profile_end(struct weir_session *session);
