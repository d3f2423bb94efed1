/*
 * Objects of the guest: contexts and the tables that turn handles into structs.
 *
 * There is one table per kind (proto/wire/kinds.def). A CUstream, CUevent, CUmodule and so on is
 * the handle itself, which is also its name on the wire. Kinds without a struct (node, pool, ...)
 * have a placeholder in their table. Structs come from the allocator of their kind and are reused
 * but never unmapped, so that a racing use of a destroyed handle reads stale but mapped memory.
 */
#pragma once

#include "base/id_table.h"
#include "guest_lib/lock.h"
#include "proto/common/ctx_storage.h"
#include "proto/cuda_abi.h"
#include "proto/wire/kinds.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_guest_stream;
struct weir_mem_heap;

struct weir_objects {
    struct weir_id_table *tables[WEIR_KIND_COUNT]; /* index: WEIR_KIND_* */
    uint64_t next_id; /* atomic; context and stream ids, buffer ids: unique, never reused */
};

/** Make all tables. @thread before others */
enum weir_status weir_guest_objects_init(struct weir_objects *objects) WEIR_MUST_CHECK;

/** Free the tables; for tests. @thread alone */
void weir_guest_objects_finish(struct weir_objects *objects);

/** A number that this process has never used before, from 1. @thread any */
uint64_t weir_guest_objects_next_id(void);

/**
 * Find the struct behind a handle that the program passed.
 *
 * @param kind    WEIR_KIND_*.
 * @param handle  any bits: NULL, wild pointers and stale handles give NULL.
 * @thread any; lock-free
 */
void *weir_guest_object_get(unsigned int kind, const void *handle);

/** Name a struct. CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY. @thread any */
CUresult weir_guest_object_add(unsigned int kind, void *object, uint64_t *ret_handle);

/** Remove a handle; returns its struct, or NULL. @thread any */
void *weir_guest_object_remove(unsigned int kind, uint64_t handle);

struct weir_guest_ctx;
/** Forget the arrays that were made in a context: their table has the context in place of a struct.
 * @thread any */
void weir_arrays_context_gone(const struct weir_guest_ctx *ctx);

enum weir_ctx_state {
    WEIR_CTX_INACTIVE, /* a primary context that is not retained */
    WEIR_CTX_ACTIVE,
    WEIR_CTX_DESTROYED, /* calls with its handle return CUDA_ERROR_CONTEXT_IS_DESTROYED */
};

#define WEIR_MEM_HEAPS  4  /* heaps of a context */
#define WEIR_CTX_LIMITS 16 /* CUlimit values below this are cached */

/*
 * A context. It is never freed, so a pointer to it stays valid; the state says whether it may be
 * used. handle, device, primary, id, api_version are immutable.
 */
struct weir_guest_ctx {
    uint64_t handle; /* == the CUcontext */
    CUdevice device;
    bool primary;
    uint64_t id;
    unsigned int api_version;

    uint32_t state; /* atomic, enum weir_ctx_state */
    uint32_t flags; /* atomic */
    /* Retain count of a primary context; guarded by the lock in ops/device.c. */
    uint32_t retain_count;
    bool going;        /* atomic: a thread is destroying it, or has destroyed it */
    uint32_t attached; /* atomic; count of cuCtxAttach, plus one for its creation */
    uint32_t peers;    /* atomic; bit per device to which cuCtxEnablePeerAccess gave access */
    uint32_t epoch;    /* atomic; counts activations: objects of an older activation are dead */

    struct weir_guest_stream *legacy; /* atomic; made at activation */
    CUfunc_cache cache_config;        /* context-local storage of libraries */
    struct weir_ctx_storage storage;  /* context-local storage of libraries */
    struct weir_coredump *coredump;   /* proto/common/coredump.h; NULL: none is set */

    /* Work on the legacy stream and on every blocking stream of the context; see stream.h. */
    uint64_t blocking_started;
    uint64_t blocking_finished;
    uint64_t blocking_ticks; /* time at which the newest of this work was sent */

    struct weir_lock lock;             /* guards the lists and everything below */
    struct weir_guest_stream *streams; /* every stream of the context, through next_in_ctx */
    struct weir_guest_stream
        *zombies; /* destroyed streams whose work is under way, through next_in_ctx */
    struct weir_mem_heap *heaps[WEIR_MEM_HEAPS]; /* made on first use (chunk.c) */
    uint64_t limit_values[WEIR_CTX_LIMITS];
    uint32_t limit_known; /* bit per CUlimit */
};

/**
 * Find the calling thread's current context, which must be active and free of sticky errors.
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_CONTEXT       none is current, or a primary one that is not active.
 * @return CUDA_ERROR_CONTEXT_IS_DESTROYED
 * @return a sticky error of the session.
 * @thread any; a few nanoseconds
 */
CUresult weir_ctx_current(struct weir_guest_ctx **ret_ctx);

/** The device of the calling thread's current context; 0 without one. @thread any */
CUdevice weir_device_current(void);

/**
 * Find a context for memory on a device: ctx if it is of that device, else the device's primary
 * one. CUDA_ERROR_INVALID_CONTEXT if that is not active.
 */
CUresult weir_ctx_on_device(struct weir_guest_ctx *ctx, CUdevice device,
                            struct weir_guest_ctx **ret_ctx);

/** Find the context of a handle, in any state; NULL: the handle never named one. */
struct weir_guest_ctx *weir_ctx_get(CUcontext handle);

/** Like weir_ctx_current() for a handle; NULL means the current one. */
CUresult weir_ctx_resolve(CUcontext handle, struct weir_guest_ctx **ret_ctx);

/** Make an object that is not yet active on the host. CUDA_SUCCESS or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult weir_ctx_new(CUdevice device, bool primary, unsigned int flags,
                      struct weir_guest_ctx **ret_ctx);

/** Activate a context: make its legacy stream and send ctx_create. requires ctx->lock not held */
CUresult weir_ctx_activate(struct weir_guest_ctx *ctx);

/**
 * Let the call use this context, which then is not destroyed before the call's end. For contexts
 * that were not found by weir_ctx_resolve().
 * @param ret_state  enum weir_ctx_state; or NULL.
 * @return false: the context is not active, and may be being destroyed
 * @thread any
 */
bool weir_ctx_use(const struct weir_guest_ctx *ctx, uint32_t *ret_state);

/**
 * Destroy a context on the host; primary contexts become inactive, others destroyed. Waits for
 * other threads' calls in it; later calls see the new state.
 * @thread one at a time for each context
 */
CUresult weir_ctx_deactivate(struct weir_guest_ctx *ctx);

/** Wait for all work posted in the context, flush printf, report errors. @thread any */
CUresult weir_ctx_synchronize(struct weir_guest_ctx *ctx);
