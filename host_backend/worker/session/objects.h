/*
 * A session's objects: entering, finding, destroying. The generated handlers' half of this is
 * proto/wire/session_api.h. Session thread only.
 *
 * The type of each object begins with struct weir_object; the object is in the table of its kind.
 * Objects are destroyed with their context, functions with their module, nodes with their graph. A
 * linker's state, and a texture or surface object, have only the common struct.
 */
#pragma once

#include "host_backend/worker/code/modules.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/session/exec.h"
#include "host_backend/worker/state/session.h"
#include "proto/wire/kinds.h"
#include "proto/wire/session_api.h"

struct weir_handles;
struct weir_session;

/**
 * Allocate an object and add it to its table.
 *
 * @param bytes   size of the struct that begins with struct weir_object; zeroed.
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

/** Find the object of a handle; NULL: none. Gives the struct of its kind. */
void *weir_host_object_get(struct weir_session *session, enum weir_kind kind, uint64_t handle);

/** Find the object of a driver's handle; NULL: none. */
struct weir_object *weir_host_object_find(const struct weir_session *session, enum weir_kind kind,
                                          const void *native);

/** Give an object a driver's handle, which was made on the session's current device.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY */
CUresult weir_host_object_bind(struct weir_session *session, struct weir_object *object,
                               void *native);
/** From now on the object is not found by its driver's handle. */
void weir_host_object_hide(struct weir_session *session, const struct weir_object *object);

/** Visit all objects of a kind; visit() may forget any. */
void weir_host_objects_visit(struct weir_session *session, enum weir_kind kind,
                             void (*visit)(weir_handle handle, void *object, void *user),
                             void *user);
/** Visit the objects that the guest has destroyed and that graphs still use. */
void weir_host_objects_visit_kept(struct weir_session *session,
                                  void (*visit)(weir_handle handle, void *object, void *user),
                                  void *user);

/** Forget an object and the objects that depend on it, and free them; the driver's objects stay. */
void weir_host_object_forget(struct weir_session *session, struct weir_object *object);

/** Destroy the driver's object, then forget it. */
CUresult weir_host_object_destroy(struct weir_session *session, struct weir_object *object);

/** Destroy objects that the guest destroyed while graphs named them, if no graph does any more; at
 * the session's end, destroy all of them. */
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
