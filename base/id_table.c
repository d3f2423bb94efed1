/*
 * Two arrays of slots, one per origin, cut into chunks that are allocated when first needed and
 * never freed before the table, so that a reader may hold a chunk without a lock.
 *
 * A slot's state is generation << 1 | live. Readers check it before and after they read the object
 * pointer: a slot that was freed and reused in between has another generation.
 *
 *     enter:  object = o (S2 release); state = gen|1 (S1 release)
 *     leave:  state = gen|0 (relaxed), ordered before any later S2
 *     look:   state (A1 acquire); object (A2 acquire); state again
 *
 * S1 publishes the object to A1. S2 publishes the preceding removal to A2: a reader that sees the
 * next object in a slot also sees, in the second read of the state, that the first one was removed.
 *
 * Free slots of our own origin wait in a queue, so that an index is reused as late as possible:
 * somebody may have kept an old handle.
 *
 * Locking: one mutex for everything that changes; get() and count() take none.
 */
#include "base/id_table.h"

#include "base/thread.h"
#include <stdlib.h>

#define CHUNK_SLOTS 512u
/* A free slot is reused only when this many wait, while there are new ones. */
#define REUSE_DISTANCE 64u

struct slot {
    void *object;       /* atomic; valid while live */
    uint32_t state;     /* atomic; generation << 1 | live */
    uint32_t next_free; /* for ids that this table made: index + 1 of the next free slot; under the
                           lock */
};

struct side {
    struct slot **chunks; /* atomic pointers, one per CHUNK_SLOTS indices */
    uint32_t end;         /* atomic; every index ever used is less than this */
};

struct weir_id_table {
    uint8_t kind;
    bool origin_host;
    uint32_t capacity;
    uint32_t n_chunks;
    uint32_t live; /* atomic */
    struct side sides[2];
    pthread_mutex_t lock; /* guards all changes, and: */
    uint32_t free_first;  /* index + 1, 0: none */
    uint32_t free_last;
    uint32_t n_free;
};

enum weir_status weir_id_table_create(uint8_t kind, bool origin_host, uint32_t capacity,
                                      struct weir_id_table **ret_table)
{
    WEIR_FAIL_IF(kind == 0 || capacity == 0 || capacity > WEIR_HANDLE_MAX_INDEX, WEIR_ERR_INVALID);
    struct weir_id_table *table = calloc(1, sizeof *table);
    WEIR_FAIL_IF(!table, WEIR_ERR_NO_MEMORY);
    table->kind = kind;
    table->origin_host = origin_host;
    table->capacity = capacity;
    table->n_chunks = (capacity + CHUNK_SLOTS - 1) / CHUNK_SLOTS;
    pthread_mutex_init(&table->lock, NULL);
    for (int i = 0; i < 2; i++) {
        table->sides[i].chunks = calloc(table->n_chunks, sizeof *table->sides[i].chunks);
        if (!table->sides[i].chunks) {
            weir_id_table_destroy(table);
            return WEIR_ERR_NO_MEMORY;
        }
    }
    *ret_table = table;
    return WEIR_OK;
}

void weir_id_table_destroy(struct weir_id_table *table)
{
    if (!table) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        for (uint32_t c = 0; table->sides[i].chunks && c < table->n_chunks; c++) {
            free(table->sides[i].chunks[c]);
        }
        free(table->sides[i].chunks);
    }
    pthread_mutex_destroy(&table->lock);
    free(table);
}

static struct slot *find_slot(const struct side *side, uint32_t index)
{
    /* A3: meets S3 in make_slot; the chunk's zeroed slots are seen. */
    struct slot *chunk = __atomic_load_n(&side->chunks[index / CHUNK_SLOTS], __ATOMIC_ACQUIRE);
    return chunk ? &chunk[index % CHUNK_SLOTS] : NULL;
}

static struct slot *make_slot_locked(struct side *side, uint32_t index)
{
    struct slot *slot = find_slot(side, index);
    if (slot) {
        return slot;
    }
    struct slot *chunk = calloc(CHUNK_SLOTS, sizeof *chunk);
    WEIR_FAIL_IF(!chunk, NULL);
    /* S3: publishes the zeroed chunk; meets A3 in find_slot. */
    __atomic_store_n(&side->chunks[index / CHUNK_SLOTS], chunk, __ATOMIC_RELEASE);
    return &chunk[index % CHUNK_SLOTS];
}

static void enter_locked(struct weir_id_table *table, struct side *side, struct slot *slot,
                         uint32_t index, uint16_t generation, void *object)
{
    __atomic_store_n(&slot->object, object, __ATOMIC_RELEASE);                        /* S2 */
    __atomic_store_n(&slot->state, (uint32_t)generation << 1 | 1u, __ATOMIC_RELEASE); /* S1 */
    if (index >= side->end) {
        __atomic_store_n(&side->end, index + 1, __ATOMIC_RELEASE);
    }
    __atomic_fetch_add(&table->live, 1, __ATOMIC_RELAXED);
}

/* Returns an index of our own origin to use next: the oldest free one, or a new one; UINT32_MAX:
 * none. */
static uint32_t take_index_locked(struct weir_id_table *table)
{
    struct side *side = &table->sides[table->origin_host];
    if (side->end < table->capacity && table->n_free < REUSE_DISTANCE) {
        return side->end;
    }
    if (table->n_free == 0) {
        return UINT32_MAX;
    }
    uint32_t index = table->free_first - 1;
    table->free_first = find_slot(side, index)->next_free;
    if (table->free_first == 0) {
        table->free_last = 0;
    }
    table->n_free--;
    return index;
}

static void queue_free_locked(struct weir_id_table *table, struct slot *slot, uint32_t index)
{
    slot->next_free = 0;
    if (table->free_last) {
        find_slot(&table->sides[table->origin_host], table->free_last - 1)->next_free = index + 1;
    } else {
        table->free_first = index + 1;
    }
    table->free_last = index + 1;
    table->n_free++;
}

enum weir_status weir_id_table_add(struct weir_id_table *table, void *object,
                                   weir_handle *ret_handle)
{
    WEIR_FAIL_IF(!object, WEIR_ERR_INVALID);
    enum weir_status status = WEIR_OK;
    struct side *side = &table->sides[table->origin_host];
    WEIR_LOCKED(&table->lock);
    uint32_t index = take_index_locked(table);
    struct slot *slot = index == UINT32_MAX ? NULL : make_slot_locked(side, index);
    if (slot) {
        uint16_t generation = (uint16_t)(((slot->state >> 1) + 1) & 0x7fff);
        enter_locked(table, side, slot, index, generation, object);
        *ret_handle = weir_handle_make(table->kind, table->origin_host, generation, index);
    } else {
        status = index == UINT32_MAX ? WEIR_ERR_QUOTA : WEIR_ERR_NO_MEMORY;
    }
    return status;
}

/* Is this a valid handle of the table? */
static bool is_ours(const struct weir_id_table *table, weir_handle handle)
{
    return (handle & 0xffff) == WEIR_HANDLE_TAG && weir_handle_kind(handle) == table->kind &&
           weir_handle_index(handle) < table->capacity;
}

enum weir_status weir_id_table_put(struct weir_id_table *table, weir_handle handle, void *object)
{
    if (!object || !is_ours(table, handle) ||
        weir_handle_origin_host(handle) == table->origin_host) {
        return WEIR_ERR_INVALID;
    }
    enum weir_status status = WEIR_OK;
    struct side *side = &table->sides[!table->origin_host];
    uint32_t index = weir_handle_index(handle);
    WEIR_LOCKED(&table->lock);
    struct slot *slot = make_slot_locked(side, index);
    if (!slot) {
        status = WEIR_ERR_NO_MEMORY;
    } else if (slot->state & 1) {
        status = WEIR_ERR_EXISTS;
    } else {
        enter_locked(table, side, slot, index, weir_handle_generation(handle), object);
    }
    return status;
}

/* Take an index of our own origin out of the queue of those that are free. */
static void leave_queue_locked(struct weir_id_table *table, const struct side *side, uint32_t index)
{
    uint32_t before = 0, at = table->free_first;

    while (at != index + 1) {
        before = at;
        at = find_slot(side, at - 1)->next_free;
    }
    at = find_slot(side, index)->next_free;
    if (before != 0) {
        find_slot(side, before - 1)->next_free = at;
    } else {
        table->free_first = at;
    }
    table->free_last = at != 0 ? table->free_last : before;
    table->n_free--;
}

/* Every free index of our own origin that is less than the end is in the queue. */
static enum weir_status make_free_locked(struct weir_id_table *table, struct side *side,
                                         uint32_t end)
{
    while (side->end < end) {
        struct slot *slot = make_slot_locked(side, side->end);

        WEIR_FAIL_IF(!slot, WEIR_ERR_NO_MEMORY);
        queue_free_locked(table, slot, side->end);
        __atomic_store_n(&side->end, side->end + 1, __ATOMIC_RELEASE);
    }
    return WEIR_OK;
}

enum weir_status weir_id_table_put_own(struct weir_id_table *table, weir_handle handle,
                                       void *object)
{
    struct side *side = &table->sides[table->origin_host];
    uint32_t index = weir_handle_index(handle);

    if (!object || !is_ours(table, handle) ||
        weir_handle_origin_host(handle) != table->origin_host) {
        return WEIR_ERR_INVALID;
    }
    WEIR_LOCKED(&table->lock);
    WEIR_TRY(make_free_locked(table, side, index));
    struct slot *slot = make_slot_locked(side, index);
    WEIR_FAIL_IF(!slot, WEIR_ERR_NO_MEMORY);
    WEIR_FAIL_IF(slot->state & 1, WEIR_ERR_EXISTS);
    if (index < side->end) {
        leave_queue_locked(table, side, index);
    }
    enter_locked(table, side, slot, index, weir_handle_generation(handle), object);
    return WEIR_OK;
}

void *weir_id_table_get(const struct weir_id_table *table, weir_handle handle)
{
    WEIR_FAIL_IF(!is_ours(table, handle), NULL);
    const struct slot *slot =
        find_slot(&table->sides[weir_handle_origin_host(handle)], weir_handle_index(handle));
    uint32_t wanted = (uint32_t)weir_handle_generation(handle) << 1 | 1u;
    if (!slot || __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != wanted) { /* A1 */
        return NULL;
    }
    void *object = __atomic_load_n(&slot->object, __ATOMIC_ACQUIRE); /* A2 */
    return __atomic_load_n(&slot->state, __ATOMIC_RELAXED) == wanted ? object : NULL;
}

void *weir_id_table_remove(struct weir_id_table *table, weir_handle handle)
{
    void *object = NULL;
    WEIR_FAIL_IF(!is_ours(table, handle), NULL);
    bool origin = weir_handle_origin_host(handle);
    uint32_t index = weir_handle_index(handle);
    uint32_t wanted = (uint32_t)weir_handle_generation(handle) << 1 | 1u;
    WEIR_LOCKED(&table->lock);
    struct slot *slot = find_slot(&table->sides[origin], index);
    if (slot && slot->state == wanted) {
        object = slot->object;
        __atomic_store_n(&slot->state, wanted & ~1u, __ATOMIC_RELAXED);
        __atomic_fetch_sub(&table->live, 1, __ATOMIC_RELAXED);
        if (origin == table->origin_host) {
            queue_free_locked(table, slot, index);
        }
    }
    return object;
}

uint32_t weir_id_table_count(const struct weir_id_table *table)
{
    return __atomic_load_n(&table->live, __ATOMIC_RELAXED);
}

void weir_id_table_visit(struct weir_id_table *table, weir_id_table_visit_fn fn, void *user)
{
    for (int origin = 0; origin < 2; origin++) {
        const struct side *side = &table->sides[origin];
        uint32_t end = __atomic_load_n(&side->end, __ATOMIC_ACQUIRE);
        for (uint32_t index = 0; index < end; index++) {
            const struct slot *slot = find_slot(side, index);
            if (!slot) {
                index |= CHUNK_SLOTS - 1; /* the whole chunk has no objects */
                continue;
            }
            uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
            weir_handle handle =
                weir_handle_make(table->kind, origin, (uint16_t)(state >> 1), index);
            void *object = state & 1 ? weir_id_table_get(table, handle) : NULL;
            if (object) {
                fn(handle, object, user);
            }
        }
    }
}
