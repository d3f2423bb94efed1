/*
 * Faults: whose kernel ended the worker's contexts?
 *
 * An illegal address, a failed assert, a trap or a stack error ends every context of the process,
 * and the driver does not say which kernel it was. So each stream keeps the name of the kernel that
 * it was given last, and its marks (device/mark.h) show how far the GPU has got. After a fault the
 * sessions with unfinished kernels are the suspects. If all belong to one tenant, that tenant
 * caused the fault; otherwise one of their tenants did. The call that got the error first is only a
 * hint: every call of every session fails from then on.
 *
 * Without marks (no scheduler, or a GPU that cannot write words) it is unknown which kernels have
 * ended. Then every session that has launched a kernel is a suspect.
 *
 * A failed assert is reported late if the worker is a client of an MPS server: the work behind the
 * kernel goes on, marks are written, and the driver gives the error only to a later query of the
 * stream (measured: docs/measurements/contexts.md). So a stream that was given a kernel that may
 * assert is *unchecked* until weir_fault_check_asserts() has asked. The segment's header tells the
 * guest that there is such a stream, and a guest that has waited for work makes the host ask.
 *
 * Source: docs/design/host.md
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_FAULT_NAME_WORDS 16u /* room for a kernel's name; a longer name is cut */
#define WEIR_FAULT_TEXT_BYTES 512u

struct weir_host_stream;
struct weir_mark_word;
struct weir_session;
struct weir_session_faults;
struct weir_worker;

/* What fault reports need of a stream. Zeroed: the stream has been given no kernel. */
struct weir_fault_stream {
    struct weir_fault_stream *next; /* next of the session's streams, under the session's lock */
    const struct weir_mark_word *marks;
    atomic_bool unchecked; /* the stream may have a failed assert; the session's thread writes */
    bool listed;           /* only the session's thread uses this and key */
    uint64_t key;          /* identifies the kernel whose name is stored */
    /* Written by the session's thread, read by a thread that reports a fault. All 0: a graph. */
    atomic_uint_fast64_t name[WEIR_FAULT_NAME_WORDS];
};

/** Make a session's record for faults. NULL: out of memory. @thread any */
struct weir_session_faults *weir_session_faults_create(void);
/** Free it; all its streams must be gone. Accepts NULL. @thread any */
void weir_session_faults_destroy(struct weir_session_faults *faults);

/**
 * Note that a kernel or a graph is about to be given to a stream.
 * @param name  the kernel's; copied; NULL: a graph, or not known.
 * @param key   a number for the name, the same for no other (weir_gate_hint.kernel); 0: a graph.
 * @param may_assert  whether the kernel may assert; for graphs weir_fault_kernel_in_graph() has
 *                    noted it.
 * @thread session
 */
void weir_fault_kernel_given(struct weir_session *session, struct weir_host_stream *stream,
                             const char *name, uint64_t key, bool may_assert);
/** A kernel becomes part of a graph, by a capture or as a node. @thread session */
void weir_fault_kernel_in_graph(struct weir_session *session, bool may_assert);
/**
 * Ask the driver about the unchecked streams whose work is done, without waiting.
 * @return CUDA_SUCCESS; CUDA_ERROR_ASSERT or another error that no context survives
 * @thread session
 */
CUresult weir_fault_check_asserts(struct weir_session *session);
/** The driver has refused the kernel or graph of weir_fault_kernel_given(). @thread session */
void weir_fault_kernel_refused(struct weir_host_stream *stream);
/** A stream is about to be destroyed. @thread session */
void weir_fault_stream_gone(struct weir_session *session, struct weir_host_stream *stream);

/**
 * Describe a session's unfinished kernels: the last one of each stream, fit for a terminal.
 * @param text  at least 1 byte; "" if there are none; cut if too long.
 * @return whether there are any
 * @thread any, while the session exists
 */
bool weir_fault_kernels(const struct weir_session *session, char *text, size_t bytes);

/**
 * Describe for the log what keeps the worker's devices busy: for each program with work its tenant,
 * its unfinished kernels, and whether its host function runs.
 * @param text  at least 1 byte; cut where it ends
 * @thread any, without the worker's lock
 */
void weir_fault_running(struct weir_worker *worker, char *text, size_t bytes);

/**
 * Report an error that no context survives (weir_error_is_sticky()): log who caused it or may have
 * caused it, inform the supervisor, and return the error to all sessions. The worker then exits.
 * Only the first report of a worker counts.
 * @param session  the session whose call got the error.
 * @thread any, without the worker's lock
 */
void weir_session_fault(struct weir_session *session, CUresult error);

/**
 * Give up work that a session's program has left behind and that has exceeded the tenant's time: as
 * weir_session_fault() with CUDA_ERROR_LAUNCH_TIMEOUT, but with a known cause.
 * @thread as weir_session_fault()
 */
void weir_session_overdue(struct weir_session *session);

/**
 * The worker's contexts have died of a fault in another worker: both are clients of one MPS server.
 * Otherwise like weir_session_fault(). @thread as weir_session_fault()
 */
void weir_worker_fault_elsewhere(struct weir_worker *worker);

/** Ask the driver whether the contexts live; if one is dead, the worker ends
 * (weir_session_fault()). */
void weir_session_look_at_contexts(struct weir_session *session);
