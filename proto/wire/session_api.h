/*
 * Functions of a session for generated host code. The worker implements them.
 *
 * All of them run on the session's thread; none takes a lock that a driver call may need.
 */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "proto/wire/kinds.h"
#include <stddef.h>
#include <stdint.h>

struct weir_session;

/** The driver that executes the session's work; its context is current. @thread session */
const struct weir_driver *weir_session_driver(struct weir_session *session);

/**
 * Find the driver's object of a guest's handle.
 *
 * @param handle   any bits.
 * @param ret_object  the driver's handle.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_HANDLE  not a live object of this kind in this session.
 * @thread session
 */
CUresult weir_session_use(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void **ret_object);

/**
 * Find the driver's stream of a guest's, ready to take one more piece of work of this session.
 *
 * @return as weir_session_use()
 * @thread session
 */
CUresult weir_session_stream_begin(struct weir_session *session, uint64_t handle,
                                   CUstream *ret_stream);

/**
 * May the session use this range of device addresses?
 *
 * @param bytes  at least 1.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE
 * @thread session
 */
CUresult weir_session_check_dptr(struct weir_session *session, uint64_t address, uint64_t bytes);

/** Find the driver's device of a guest's ordinal. CUDA_ERROR_INVALID_DEVICE. @thread session */
CUresult weir_session_device(struct weir_session *session, int32_t ordinal, CUdevice *ret_device);

/**
 * Add a new object under the name that the guest chose.
 *
 * @param object  taken: on failure the session destroys it.
 *
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (name not free), CUDA_ERROR_OUT_OF_MEMORY
 * @thread session
 */
CUresult weir_session_put(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void *object);

/** Can weir_session_put() take this name? Called before the object is made. @thread session */
CUresult weir_session_free_name(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/**
 * Find the guest's handle of a driver's object; an object without a handle gets one that the host
 * chooses.
 *
 * @param object  NULL gives handle 0.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread session
 */
CUresult weir_session_name(struct weir_session *session, enum weir_kind kind, void *object,
                           uint64_t *ret_handle);

/** The driver has destroyed the object: forget its handle, and objects that ended with it. @thread
 * session */
void weir_session_drop(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/** Destroy an object; the driver waits until the device is idle for that. @return the driver's
 * result, or CUDA_ERROR_INVALID_HANDLE @thread session */
CUresult weir_session_remove(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/** Get zeroed memory until this call's reply is sent; NULL: there is none left. @thread session */
void *weir_session_alloc(struct weir_session *session, size_t bytes);
