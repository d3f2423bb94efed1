/*
 * Faults: whose kernel ended the worker's contexts?
 *
 * An illegal address, a failed assert, a trap or a stack error ends every context of the process,
 * and the driver does not say which kernel it was. So each stream keeps the name of the kernel that
 * it was given last, and its marks (device/mark.h) say how far the GPU has got. When a fault is
 * seen, the sessions with unfinished kernels are the suspects: if all belong to one tenant, the
 * fault is that tenant's; otherwise it is one of theirs. Which call met the error first is a hint,
 * no proof: every call of every session fails from then on.
 *
 * Without marks (no scheduler, or a GPU that cannot write words) it is unknown which kernels have
 * ended. Then every session that has launched a kernel is a suspect.
 *
 * A failed assert is reported late if the worker is a client of an MPS server: the work behind the
 * kernel goes on, marks are written, and the driver gives the error only to a later query of the
 * stream (measured: docs/measurements/contexts.md). So a stream that was given a kernel
 * that may assert is *unchecked* until weir_fault_check_asserts() has asked. The segment's header
 * tells the guest that there is one, and a guest that has waited for work makes the host ask.
 *
 * Source: docs/design/host.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_DEVICE_FAULT_H
#define WEIR_HOST_BACKEND_WORKER_DEVICE_FAULT_H

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
    bool listed;           /* this and key are used by the session's thread alone */
    uint64_t key;          /* identifies the kernel whose name is stored */
    /* Written by the session's thread, read by a thread that reports a fault. All 0: a graph. */
    atomic_uint_fast64_t name[WEIR_FAULT_NAME_WORDS];
};

/** A session's part. NULL: out of memory. @thread any */
struct weir_session_faults *weir_session_faults_create(void);
/** All its streams are gone. Accepts NULL. @thread any */
void weir_session_faults_destroy(struct weir_session_faults *faults);

/**
 * A kernel or a graph is about to be given to a stream.
 * @param name  the kernel's; copied; NULL: a graph, or not known.
 * @param key   a number for the name, the same for no other (weir_gate_hint.kernel); 0: a graph.
 * @param may_assert  the kernel; of a graph it is known from weir_fault_kernel_in_graph().
 * @thread session
 */
void weir_fault_kernel_given(struct weir_session *session, struct weir_host_stream *stream,
                             const char *name, uint64_t key, bool may_assert);
/** A kernel becomes part of a graph, by a capture or as a node. @thread session */
void weir_fault_kernel_in_graph(struct weir_session *session, bool may_assert);
/**
 * Ask the driver about the unchecked streams whose work is done. Waits for nothing.
 * @return CUDA_SUCCESS; CUDA_ERROR_ASSERT or another error that no context survives
 * @thread session
 */
CUresult weir_fault_check_asserts(struct weir_session *session);
/** The driver has refused what weir_fault_kernel_given() announced. @thread session */
void weir_fault_kernel_refused(struct weir_host_stream *stream);
/** A stream is about to be destroyed. @thread session */
void weir_fault_stream_gone(struct weir_session *session, struct weir_host_stream *stream);

/**
 * Describe a session's unfinished kernels: the last one of each stream, fit for a terminal.
 * @param text  at least 1 byte; "" if there are none; cut where it ends.
 * @return has it any?
 * @thread any, while the session is in the worker's list or lives
 */
bool weir_fault_kernels(const struct weir_session *session, char *text, size_t bytes);

/**
 * Describe what keeps the worker's devices busy, for the log: of each program that has some, its
 * tenant, its unfinished kernels, and whether a host function of its is under way.
 * @param text  at least 1 byte; cut where it ends
 * @thread any, without the worker's lock
 */
void weir_fault_running(struct weir_worker *worker, char *text, size_t bytes);

/**
 * Report an error that no context survives (weir_error_is_sticky()): the log says whose fault it
 * was or may have been, the supervisor is informed, and all sessions get the error. The worker then
 * exits. Only the first report of a worker counts.
 * @param session  whose call met the error.
 * @thread any, without the worker's lock
 */
void weir_session_fault(struct weir_session *session, CUresult error);

/**
 * Give up work that a session's program has left behind and that has taken longer than its tenant
 * may: as weir_session_fault() with CUDA_ERROR_LAUNCH_TIMEOUT, but whose fault it was is known.
 * @thread as weir_session_fault()
 */
void weir_session_overdue(struct weir_session *session);

/**
 * The worker's contexts have died by a fault of another worker's program: both are clients of one
 * MPS server. As weir_session_fault() otherwise. @thread as weir_session_fault()
 */
void weir_worker_fault_elsewhere(struct weir_worker *worker);

/** Ask the driver if the contexts live: a dead one is the worker's end (weir_session_fault()). */
void weir_session_look_at_contexts(struct weir_session *session);

#endif
