/*
 * The driver's lock, and the handle table: which addresses are live objects, and of which kind.
 *
 * The table is an open-addressed hash set that grows when it is half full. A removed entry leaves a
 * tombstone until the next growth. Every caller holds the driver's lock.
 */
#include "softgpu/driver/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define TOMBSTONE ((struct weir_soft_object *)1)

static struct {
    struct weir_soft_object **slots;
    uint32_t n_slots; /* power of two */
    uint32_t n_used;  /* number of live entries and tombstones */
    uint32_t n_live;
} table;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The thread for which all others wait (WEIR_SOFTGPU_WAITS). Guarded by the lock. */
static struct {
    bool busy;
    pthread_t by;
    pthread_cond_t over;
} holder = {.over = PTHREAD_COND_INITIALIZER};

static __thread bool runs_tasks;

void weir_soft_lock(void)
{
    pthread_mutex_lock(&lock);
    while (holder.busy && !runs_tasks && !pthread_equal(holder.by, pthread_self())) {
        pthread_cond_wait(&holder.over, &lock);
    }
}

void weir_soft_lock_runs_tasks(void)
{
    runs_tasks = true;
}

void weir_soft_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void weir_soft_lock_keep_out(void)
{
    while (holder.busy) {
        pthread_cond_wait(&holder.over, &lock);
    }
    holder.busy = true;
    holder.by = pthread_self();
}

void weir_soft_lock_let_in(void)
{
    holder.busy = false;
    pthread_cond_broadcast(&holder.over);
}

bool weir_soft_lock_wait(pthread_cond_t *cond, const struct timespec *until)
{
    return pthread_cond_timedwait(cond, &lock, until) != ETIMEDOUT;
}

void weir_soft_lock_at_fork(void (*child)(void))
{
    pthread_atfork(weir_soft_lock, weir_soft_unlock, child);
}

static uint32_t slot_of(const void *object, uint32_t n_slots)
{
    uint64_t bits = (uint64_t)(uintptr_t)object >> 4;
    return (uint32_t)(bits * 0x9E3779B97F4A7C15ull >> 32) & (n_slots - 1);
}

static void insert(struct weir_soft_object **slots, uint32_t n_slots,
                   struct weir_soft_object *object)
{
    uint32_t i = slot_of(object, n_slots);
    while (slots[i]) {
        i = (i + 1) & (n_slots - 1);
    }
    slots[i] = object;
}

static bool grow(void)
{
    uint32_t n_slots = table.n_slots == 0 ? 256 : table.n_slots;
    if (table.n_live * 4 >= n_slots) {
        n_slots *= 2;
    }
    struct weir_soft_object **slots = calloc(n_slots, sizeof(*slots));
    WEIR_FAIL_IF(!slots, false);
    for (uint32_t i = 0; i < table.n_slots; i++) {
        if (table.slots[i] && table.slots[i] != TOMBSTONE) {
            insert(slots, n_slots, table.slots[i]);
        }
    }
    free(table.slots);
    table.slots = slots;
    table.n_slots = n_slots;
    table.n_used = table.n_live;
    return true;
}

static struct weir_soft_object **find_slot(const void *object)
{
    WEIR_FAIL_IF(table.n_slots == 0 || !object || object == TOMBSTONE, NULL);
    uint32_t i = slot_of(object, table.n_slots);
    while (table.slots[i]) {
        if (table.slots[i] == object) {
            return &table.slots[i];
        }
        i = (i + 1) & (table.n_slots - 1);
    }
    return NULL;
}

void *weir_soft_object_new(enum weir_soft_kind kind, size_t bytes, struct weir_soft_ctx *ctx,
                           void (*release)(void *object))
{
    WEIR_FAIL_IF(table.n_used * 2 >= table.n_slots && !grow(), NULL);
    struct weir_soft_object *object = calloc(1, bytes);
    WEIR_FAIL_IF(!object, NULL);
    object->kind = kind;
    object->refs = 1;
    object->ctx = ctx;
    object->release = release;
    insert(table.slots, table.n_slots, object);
    table.n_used++;
    table.n_live++;
    return object;
}

void *weir_soft_object_find(enum weir_soft_kind kind, const void *handle)
{
    struct weir_soft_object **slot = find_slot(handle);
    return slot && (*slot)->kind == kind ? *slot : NULL;
}

void *weir_soft_object_ref(void *object)
{
    if (object) {
        ((struct weir_soft_object *)object)->refs++;
    }
    return object;
}

void weir_soft_object_put(void *object)
{
    struct weir_soft_object *o = object;
    if (o && --o->refs == 0) {
        if (o->release) {
            o->release(o);
        }
        free(o);
    }
}

void weir_soft_object_retire(void *object)
{
    struct weir_soft_object **slot = find_slot(object);
    if (slot) {
        *slot = TOMBSTONE;
        table.n_live--;
        weir_soft_object_put(object);
    }
}

void weir_soft_object_visit(enum weir_soft_kind kind, void (*fn)(void *object, void *user),
                            void *user)
{
    /* Objects that fn creates may be missed: slots move when the table grows. */
    for (uint32_t i = 0; i < table.n_slots; i++) {
        struct weir_soft_object *object = table.slots[i];
        if (object && object != TOMBSTONE && object->kind == kind) {
            fn(object, user);
        }
    }
}

/* ------------------------------------------------------------------ user objects of graphs */

void weir_soft_user_object_drop(struct weir_soft_user_object *object, uint64_t count)
{
    object->count -= count;
    if (object->count == 0) {
        CUhostFn destroy = object->destroy;
        void *ptr = object->ptr;
        weir_soft_object_retire(object);
        weir_soft_unlock(); /* this is the program's code, so no lock is held */
        destroy(ptr);
        weir_soft_lock();
    }
}

void weir_soft_users_put(struct weir_soft_users *users)
{
    if (!users || --users->refs != 0) {
        return;
    }
    for (uint32_t i = 0; i < users->n; i++) {
        weir_soft_user_object_drop(users->at[i].object, users->at[i].count);
    }
    free(users);
}

/* ------------------------------------------------------------------ the process' end */

static bool exiting;

void weir_soft_exit_begins(void)
{
    __atomic_store_n(&exiting, true, __ATOMIC_RELEASE);
}

bool weir_soft_exiting(void)
{
    return __atomic_load_n(&exiting, __ATOMIC_ACQUIRE);
}
