/*
 * Context-local storage: values that libraries attach to a context, by key.
 *
 * The runtime looks up its state here in every call, so get takes no lock. Entries live in chunks
 * that are never freed before the context; a deleted slot is reused. Destructors run outside any
 * lock, since they call back into the driver.
 */
#pragma once

#include "base/status.h"
#include "base/thread.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>

#define WEIR_CTX_STORAGE_CHUNK 32

typedef void (*weir_ctx_storage_fn)(CUcontext context, void *key, void *value);

struct weir_ctx_storage_slot {
    void *key; /* NULL: never used; atomic */
    void *value;
    weir_ctx_storage_fn destructor;
};

struct weir_ctx_storage_chunk {
    struct weir_ctx_storage_slot slots[WEIR_CTX_STORAGE_CHUNK];
    struct weir_ctx_storage_chunk *next; /* atomic */
};

struct weir_ctx_storage {
    pthread_mutex_t lock; /* guards changes; readers need no lock */
    struct weir_ctx_storage_chunk first;
};

/** Make an empty storage. @thread before others see it */
void weir_ctx_storage_init(struct weir_ctx_storage *storage);

/** Free the memory without running destructors. Accepts a zeroed object. @thread owner, alone */
void weir_ctx_storage_finish(struct weir_ctx_storage *storage);

/**
 * Set the value of a key, and replace an old one.
 *
 * @param key         not NULL; only compared, never dereferenced.
 * @param destructor  called by weir_ctx_storage_clear(); may be NULL.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_INVALID (NULL key)
 * @thread any
 */
enum weir_status weir_ctx_storage_put(struct weir_ctx_storage *storage, void *key, void *value,
                                      weir_ctx_storage_fn destructor) WEIR_MUST_CHECK;

/** Get a value: WEIR_OK or WEIR_ERR_NOT_FOUND. @thread any; lock-free */
enum weir_status weir_ctx_storage_get(struct weir_ctx_storage *storage, void *key,
                                      void **ret_value) WEIR_MUST_CHECK;

/** Forget a key without calling its destructor. WEIR_OK or WEIR_ERR_NOT_FOUND. @thread any */
enum weir_status weir_ctx_storage_remove(struct weir_ctx_storage *storage,
                                         void *key) WEIR_MUST_CHECK;

/**
 * Empty the storage, calling each destructor once, with no lock held: the context is being reset or
 * destroyed.
 * @thread any
 */
void weir_ctx_storage_clear(struct weir_ctx_storage *storage, CUcontext context);
