/*
 * A session's objects: entering, finding, destroying. The generated handlers' half of this is
 * proto/wire/session_api.h. Session thread only.
 *
 * The type of each begins with struct weir_object and lives in the table of its kind. The objects
 * of a context die with it, functions with their module, nodes with their graph. A linker's state,
 * or a texture or surface object, has no more than the object.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_OBJECTS_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_OBJECTS_H

#include "host_backend/worker/code/modules.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/session/exec.h"
#include "host_backend/worker/state/session.h"
#include "proto/wire/kinds.h"
#include "proto/wire/session_api.h"

struct weir_handles;
struct weir_session;

/**
 * Allocate an object and enter it.
 *
 * @param bytes   of the struct that begins with struct weir_object; zeroed.
 * @param handle  the guest's name, as it sent it.
 * @param native  the driver's handle; NULL for none. Not destroyed on failure.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_host_object_create(struct weir_session *session, enum weir_kind kind, size_t bytes,
                                 uint64_t handle, void *native, struct weir_host_ctx *ctx,
                                 struct weir_object **ret_object);

/** Like weir_host_object_create(), for an object that the host names, not the guest. */
CUresult weir_host_object_create_own(struct weir_session *session, enum weir_kind kind,
                                     size_t bytes, void *native, struct weir_host_ctx *ctx,
                                     struct weir_object **ret_object);

/** The object of a handle, or NULL. A pointer to the struct of its kind. */
void *weir_host_object_get(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/** The object of a handle of the driver's, or NULL. */
struct weir_object *weir_host_object_find(const struct weir_session *session, enum weir_kind kind,
                                          const void *native);

/** Give an object that has none a handle of the driver's, made on the session's current device.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY */
CUresult weir_host_object_bind(struct weir_session *session, struct weir_object *object,
                               void *native);
/** Have an object no longer found by its handle of the driver's. */
void weir_host_object_hide(struct weir_session *session, const struct weir_object *object);

/** Look at all objects of a kind; visit may forget any. */
void weir_host_objects_visit(struct weir_session *session, enum weir_kind kind,
                             void (*visit)(weir_handle handle, void *object, void *user),
                             void *user);

/** Forget an object and what dies with it; the driver's own is left alone. Frees it. */
void weir_host_object_forget(struct weir_session *session, struct weir_object *object);

/** Destroy the driver's object, then forget it. */
CUresult weir_host_object_destroy(struct weir_session *session, struct weir_object *object);

/** Destroy what the guest has destroyed while graphs named it, and none does any more; of a session
 * that ends all of it. */
void weir_host_objects_kept_try(struct weir_session *session);

/** Destroy all objects of a kind; of one context when ctx is not NULL. */
void weir_host_objects_destroy_all(struct weir_session *session, enum weir_kind kind,
                                   const struct weir_host_ctx *ctx);

/** A context has been made. */
void weir_ctx_list(struct weir_session *session, struct weir_host_ctx *ctx);
/** Destroy a context's objects, then the context. */
void weir_ctx_destroy(struct weir_session *session, struct weir_host_ctx *ctx);

/** A session's part. NULL: out of memory. */
struct weir_handles *weir_handles_create(void);
/** All objects must be gone. Accepts NULL. */
void weir_handles_destroy(struct weir_handles *handles);

#endif
