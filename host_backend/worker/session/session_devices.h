/*
 * The devices as a session uses them: whose context is current in its thread, and streams of its
 * own. Owner thread only.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_SESSION_DEVICES_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_SESSION_DEVICES_H

#include "host_backend/worker/session/session.h"

/**
 * Make a device's context current, if it is not. A device that has none yet is opened.
 * @param device  below the worker's n_devices
 * @return CUDA_SUCCESS, as weir_worker_device_open(); then the last device's is current still
 */
CUresult weir_session_switch(struct weir_session *session, uint32_t device);
static inline CUresult weir_session_enter(struct weir_session *session, uint32_t device)
{
    return __builtin_expect(session->device != device, 0) ? weir_session_switch(session, device)
                                                          : CUDA_SUCCESS;
}

/** The current device's stream for clearing memory. */
CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream);
/** Destroy those of all devices. */
void weir_session_work_streams_end(struct weir_session *session);

#endif
