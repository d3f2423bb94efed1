/*
 * A session's objects: entering, finding, destroying. The generated handlers' half of this is
 * proto/wire/session_api.h. Session thread only.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_OBJECTS_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_OBJECTS_H

#include "host_backend/worker/session/session.h"
#include "proto/wire/kinds.h"
#include "proto/wire/session_api.h"

/**
 * Allocate an object and enter it.
 *
 * @param bytes   of the struct that begins with struct weir_object; zeroed.
 * @param handle  the guest's name; 0: the host names it.
 * @param native  the driver's handle; NULL for none. Not destroyed on failure.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_host_object_create(struct weir_session *session, enum weir_kind kind, size_t bytes,
                                 uint64_t handle, void *native, struct weir_host_ctx *ctx,
                                 struct weir_object **ret_object);

/** The object of a handle, or NULL. A pointer to the struct of its kind. */
void *weir_host_object_get(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/** Forget an object and what dies with it; the driver's own is left alone. Frees it. */
void weir_host_object_forget(struct weir_session *session, struct weir_object *object);

/** Destroy the driver's object, then forget it. */
CUresult weir_host_object_destroy(struct weir_session *session, struct weir_object *object);

/** Destroy all objects of a kind; of one context when ctx is not NULL. */
void weir_host_objects_destroy_all(struct weir_session *session, enum weir_kind kind,
                                   const struct weir_host_ctx *ctx);

/**
 * The driver's function on the session's current device: a kernel of a library has one for each,
 * with the attributes that the guest has set; a module's is on its own only.
 */
CUresult weir_function_here(struct weir_session *session, struct weir_host_function *function,
                            CUfunction *ret_native);

/**
 * Load a function's code on the session's current device: later launches of it wait for nothing.
 * The driver may wait for the device's work meanwhile, so what is stopped goes on first. Nothing
 * where it is loaded.
 *
 * @param native  weir_function_here()'s.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_NOT_SUPPORTED  a driver before CUDA 12.4
 * @return the driver's
 * @thread session, holding no lock
 */
CUresult weir_function_load(struct weir_session *session, struct weir_host_function *function,
                            CUfunction native);

/** Destroy a context's objects, then the context. */
void weir_ctx_destroy(struct weir_session *session, struct weir_host_ctx *ctx);

/** As weir_session_check_dptr(), and the memory may be written. */
CUresult weir_session_check_write(struct weir_session *session, uint64_t address, uint64_t bytes);

/** Make the tables. */
enum weir_status weir_host_objects_init(struct weir_session *session) WEIR_MUST_CHECK;
/** All objects must be gone. */
void weir_host_objects_finish(struct weir_session *session);

#define WEIR_TRY(call)                                                                             \
    do {                                                                                           \
        CUresult try_result = (call);                                                              \
        if (try_result != CUDA_SUCCESS) {                                                          \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)

#endif
