/*
 * Everything that goes into a stream passes through weir_submit(), except events, waits, values and
 * host functions. These are its steps:
 *
 * - order: the stream waits for the legacy stream, or the other way round (device/order.h)
 * - printf: work that may print gets the device's buffer for its session (device/prints.h)
 * - twin: is a kernel launched in a form that can be stopped? (twins/forms.h)
 * - gate: wait until the scheduler grants the work (device/admission.h)
 * - fault: the stream notes the kernel, in case it faults (device/fault.h)
 * - call: the driver call, into the stream, or into its second stream in a part of the device
 * - mark: sometimes, a number that the GPU writes behind the work (device/admission.h)
 *
 * Source: docs/design/gate.md
 */
#pragma once

#include "host_backend/gate/gate.h"
#include "host_backend/worker/session/objects.h"
#include "proto/ops.h"

/* A launch of one kernel. Its members are borrowed for the call. */
struct weir_submit_kernel {
    struct weir_host_function *function;
    CUfunction native; /* on the current device; its code is loaded */
    const struct weir_op_launch_in *in;
};

/* Its members are borrowed for the call. */
struct weir_submission {
    struct weir_gate_work
        work;       /* for the gate; weir_submit() adds a kernel's flags, bytes and blocks_per_sm */
    bool may_print; /* a kernel of the work may use the device's printf */
    const struct weir_submit_kernel *kernel; /* NULL: it is not a single kernel */
    uint32_t works;      /* kernels, copies and memsets of a graph; 0: it is none, or not known */
    const int *priority; /* priority that the guest asks for; NULL: that of the stream */
    /* For PARTABLE graphs: set before the call to the part to which its kernels are to be confined;
     * NULL: none. Valid until weir_submit() returns. */
    struct weir_part **ret_part;
    /**
     * Makes the driver call.
     * @param at    the stream to give it to.
     * @param user  as below.
     */
    CUresult (*call)(struct weir_session *session, CUstream at, const void *user);
    const void *user;
};

/**
 * Give work to a stream, whose device is current.
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @return CUDA_ERROR_DEVICE_UNAVAILABLE     the session ends
 * @return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT  the legacy stream, while another one is captured
 * @return an error of the driver: the stream got no work
 * @thread session, holding no lock
 */
CUresult weir_submit(struct weir_session *session, struct weir_host_stream *stream,
                     const struct weir_submission *what);
