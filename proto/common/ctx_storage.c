#include "proto/common/ctx_storage.h"

#include <stdlib.h>

/* Marks a slot that was used and is free again: readers skip it. */
static char tombstone;
#define TOMBSTONE ((void *)&tombstone)

void weir_ctx_storage_init(struct weir_ctx_storage *storage)
{
    *storage = (struct weir_ctx_storage){.first = {.next = NULL}};
    pthread_mutex_init(&storage->lock, NULL);
}

void weir_ctx_storage_finish(struct weir_ctx_storage *storage)
{
    for (struct weir_ctx_storage_chunk *chunk; (chunk = WEIR_POP(storage->first.next));) {
        free(chunk);
    }
}

/* Find the slot of a key, or NULL. Lock-free: slots are published by their key (R1). */
static struct weir_ctx_storage_slot *find(struct weir_ctx_storage *storage, const void *key)
{
    struct weir_ctx_storage_chunk *chunk = &storage->first;
    while (chunk) {
        for (int i = 0; i < WEIR_CTX_STORAGE_CHUNK; i++) {
            /* A1: meets R1 in publish(); value and destructor are then visible. */
            void *at = __atomic_load_n(&chunk->slots[i].key, __ATOMIC_ACQUIRE);
            if (at == key) {
                return &chunk->slots[i];
            }
            WEIR_FAIL_IF(!at, NULL);
        }
        /* A2: meets R2 in free_slot_locked(). */
        chunk = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE);
    }
    return NULL;
}

static struct weir_ctx_storage_slot *free_slot_locked(struct weir_ctx_storage *storage)
{
    struct weir_ctx_storage_chunk *chunk = &storage->first;
    for (;;) {
        for (int i = 0; i < WEIR_CTX_STORAGE_CHUNK; i++) {
            if (!chunk->slots[i].key || chunk->slots[i].key == TOMBSTONE) {
                return &chunk->slots[i];
            }
        }
        if (!chunk->next) {
            struct weir_ctx_storage_chunk *more = calloc(1, sizeof(*more));
            WEIR_FAIL_IF(!more, NULL);
            /* R2: publishes the empty chunk; meets A2 in find(). */
            __atomic_store_n(&chunk->next, more, __ATOMIC_RELEASE);
        }
        chunk = chunk->next;
    }
}

enum weir_status weir_ctx_storage_put(struct weir_ctx_storage *storage, void *key, void *value,
                                      weir_ctx_storage_fn destructor)
{
    WEIR_FAIL_IF(!key, WEIR_ERR_INVALID);
    enum weir_status status = WEIR_OK;
    WEIR_LOCKED(&storage->lock);
    struct weir_ctx_storage_slot *slot = find(storage, key);
    if (!slot) {
        slot = free_slot_locked(storage);
    }
    if (slot) {
        __atomic_store_n(&slot->value, value, __ATOMIC_RELAXED);
        slot->destructor = destructor;
        /* R1: publishes value and destructor; meets A1 in find(). */
        __atomic_store_n(&slot->key, key, __ATOMIC_RELEASE);
    } else {
        status = WEIR_ERR_NO_MEMORY;
    }
    return status;
}

enum weir_status weir_ctx_storage_get(struct weir_ctx_storage *storage, void *key, void **ret_value)
{
    struct weir_ctx_storage_slot *slot = key ? find(storage, key) : NULL;
    WEIR_FAIL_IF(!slot, WEIR_ERR_NOT_FOUND);
    *ret_value = __atomic_load_n(&slot->value, __ATOMIC_RELAXED);
    return WEIR_OK;
}

enum weir_status weir_ctx_storage_remove(struct weir_ctx_storage *storage, void *key)
{
    enum weir_status status = WEIR_ERR_NOT_FOUND;
    WEIR_LOCKED(&storage->lock);
    struct weir_ctx_storage_slot *slot = key ? find(storage, key) : NULL;
    if (slot) {
        __atomic_store_n(&slot->key, TOMBSTONE, __ATOMIC_RELEASE);
        status = WEIR_OK;
    }
    return status;
}

/* Remove any one entry. Destructors may add entries, so the caller repeats this until none is
 * left. */
static bool take_any(struct weir_ctx_storage *storage, struct weir_ctx_storage_slot *ret_slot)
{
    bool found = false;
    WEIR_LOCKED(&storage->lock);
    for (struct weir_ctx_storage_chunk *c = &storage->first; c && !found; c = c->next) {
        for (int i = 0; i < WEIR_CTX_STORAGE_CHUNK && !found; i++) {
            struct weir_ctx_storage_slot *slot = &c->slots[i];
            if (slot->key && slot->key != TOMBSTONE) {
                *ret_slot = *slot;
                __atomic_store_n(&slot->key, TOMBSTONE, __ATOMIC_RELEASE);
                found = true;
            }
        }
    }
    return found;
}

void weir_ctx_storage_clear(struct weir_ctx_storage *storage, CUcontext context)
{
    struct weir_ctx_storage_slot slot;
    while (take_any(storage, &slot)) {
        if (slot.destructor) {
            slot.destructor(context, slot.key, slot.value);
        }
    }
}
