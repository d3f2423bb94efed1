/*
 * Sets: the state of a graph in this process. See graph.h.
 *
 * One lock guards all sets. Destructors of user objects run without it, since they belong to the
 * program.
 */
#include "base/thread.h"
#include "guest_lib/graph_private.h"

#include "guest_lib/graph_mem.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256
pthread_mutex_t weir_graph_lock = PTHREAD_MUTEX_INITIALIZER;
static struct weir_graph_set *buckets[BUCKETS];

static struct weir_graph_set **bucket_of(uint64_t handle)
{
    return &buckets[weir_handle_index(handle) % BUCKETS];
}

static struct weir_graph_set *find_locked(uint64_t handle)
{
    return WEIR_LINKED(s, *bucket_of(handle), s->handle == handle);
}

static struct weir_graph_set *find_or_make_locked(uint64_t handle)
{
    struct weir_graph_set *set = find_locked(handle);
    if (!set) {
        set = calloc(1, sizeof(*set));
        if (set) {
            set->handle = handle;
            set->references = 1;
            set->next = *bucket_of(handle);
            *bucket_of(handle) = set;
        }
    }
    return set;
}

struct weir_graph_set *weir_graph_set_of(uint64_t handle)
{
    WEIR_LOCKED(&weir_graph_lock);
    return find_or_make_locked(handle);
}

struct weir_graph_set *weir_graph_set_find(uint64_t handle)
{
    WEIR_LOCKED(&weir_graph_lock);
    return find_locked(handle);
}

static CUresult include_locked(struct weir_graph_set *set, struct weir_graph_set *other)
{
    for (struct bound_set *b = set->included; b; b = b->next) {
        if (b->set == other) {
            return CUDA_SUCCESS;
        }
    }
    struct bound_set *bound = calloc(1, sizeof(*bound));
    WEIR_FAIL_IF(!bound, CUDA_ERROR_OUT_OF_MEMORY);
    *bound = (struct bound_set){other, set->included};
    set->included = bound;
    other->references++;
    return CUDA_SUCCESS;
}

CUresult weir_graph_set_include(uint64_t handle, uint64_t other_handle)
{
    CUresult result = CUDA_SUCCESS;
    WEIR_LOCKED(&weir_graph_lock);
    struct weir_graph_set *other = find_locked(other_handle);
    if (other) {
        struct weir_graph_set *set = find_or_make_locked(handle);
        result = set ? include_locked(set, other) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* Free the copy's block, so that a function that still has the copy moves no bytes. */
static void retire_copy(struct bound_copy *copy)
{
    weir_graph_block_free(&copy->copy.block); /* no launch uses it: launches hold the set */
    pthread_mutex_lock(&weir_graph_lock);
    copy->due = false;
    pthread_mutex_unlock(&weir_graph_lock);
    weir_graph_copy_put(copy);
}

/* Free a set that nobody holds. The sets that it included join the list to be examined next. */
static void free_set(struct weir_graph_set *set, struct bound_set **pending)
{
    for (struct weir_graph_function *first; (first = WEIR_POP(set->functions));) {
        weir_graph_function_free(first);
    }
    for (struct bound_copy *first; (first = WEIR_POP(set->copies));) {
        retire_copy(first);
    }
    for (struct bound_object *first; (first = WEIR_POP(set->objects));) {
        (void)weir_user_object_release(first->object, first->count);
        free(first);
    }
    for (struct bound_mem *first; (first = WEIR_POP(set->mems));) {
        if (!first->freed) {
            weir_graph_mem_drop(first->base);
        }
        free(first);
    }
    for (struct bound_set *bound; (bound = WEIR_POP(set->included));) {
        WEIR_PUSH(*pending, bound);
    }
    free(set);
}

/* Drop one reference of each set in the list, and then of the sets that those held, without
 * recursion. */
static void release_all(struct bound_set *pending)
{
    for (struct bound_set *bound; (bound = WEIR_POP(pending));) {
        pthread_mutex_lock(&weir_graph_lock);
        bool last = --bound->set->references == 0;
        pthread_mutex_unlock(&weir_graph_lock);
        if (last) {
            free_set(bound->set, &pending);
        }
        free(bound);
    }
}

static struct weir_graph_set *unlink_locked(uint64_t handle)
{
    struct weir_graph_set **at = bucket_of(handle);
    while (*at && (*at)->handle != handle) {
        at = &(*at)->next;
    }
    struct weir_graph_set *set = *at;
    if (set) {
        *at = set->next;
    }
    return set;
}

void weir_graph_set_put(struct weir_graph_set *set)
{
    pthread_mutex_lock(&weir_graph_lock);
    bool last = --set->references == 0;
    pthread_mutex_unlock(&weir_graph_lock);
    if (last) {
        struct bound_set *pending = NULL;
        free_set(set, &pending);
        release_all(pending);
    }
}

void weir_graph_set_drop(uint64_t handle)
{
    pthread_mutex_lock(&weir_graph_lock);
    struct weir_graph_set *set = unlink_locked(handle);
    pthread_mutex_unlock(&weir_graph_lock);
    if (set) {
        weir_graph_set_put(set);
    }
}

CUresult weir_graph_set_add_update(uint64_t handle, uint64_t other_handle)
{
    CUresult result = CUDA_SUCCESS;
    struct bound_set *old = NULL;
    pthread_mutex_lock(&weir_graph_lock);
    struct weir_graph_set *set = find_locked(handle);
    struct weir_graph_set *other = find_locked(other_handle);
    if (set || other) {
        set = set ? set : find_or_make_locked(handle);
        result = set ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* A running launch may still use the old sets, so they are kept until it has passed. */
    if (result == CUDA_SUCCESS && set &&
        (!set->launched || weir_guest_stream_passed(&set->last_launch))) {
        old = set->included;
        set->included = NULL;
    }
    if (result == CUDA_SUCCESS && set && other) {
        result = include_locked(set, other);
    }
    pthread_mutex_unlock(&weir_graph_lock);
    release_all(old);
    return result;
}

void weir_graph_set_function(struct weir_graph_set *set, struct weir_graph_function *function)
{
    WEIR_LOCKED(&weir_graph_lock);
    WEIR_PUSH(set->functions, function);
}

CUresult weir_graph_set_copy(struct weir_graph_set *set,
                             const struct weir_stream_capture_copy *copy)
{
    struct bound_copy *bound = calloc(1, sizeof(*bound));
    WEIR_FAIL_IF(!bound, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_LOCKED(&weir_graph_lock);
    *bound = (struct bound_copy){.copy = *copy, .references = 1};
    *(set->last_copy ? &set->last_copy->next : &set->copies) = bound;
    set->last_copy = bound;
    return CUDA_SUCCESS;
}

bool weir_graph_set_user_object(struct weir_graph_set *set, struct weir_user_object *object,
                                int64_t delta)
{
    bool good = false;
    WEIR_LOCKED(&weir_graph_lock);
    struct bound_object **at = &set->objects;
    while (*at && (*at)->object != object) {
        at = &(*at)->next;
    }
    if (delta > 0 && !*at) {
        *at = calloc(1, sizeof(**at));
        if (*at) {
            (*at)->object = object;
        }
    }
    if (*at && (int64_t)(*at)->count + delta >= 0 && (*at)->count + delta <= UINT32_MAX) {
        (*at)->count = (uint32_t)((int64_t)(*at)->count + delta);
        good = true;
    }
    return good;
}

/* ---------------------------------------------------------------- memory */

CUresult weir_graph_set_mem(struct weir_graph_set *set, uint64_t base, bool freed)
{
    struct bound_mem *bound = calloc(1, sizeof(*bound));
    WEIR_FAIL_IF(!bound, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_LOCKED(&weir_graph_lock);
    *bound = (struct bound_mem){base, freed, set->mems};
    set->mems = bound;
    return CUDA_SUCCESS;
}

bool weir_graph_set_has_mem(uint64_t handle)
{
    WEIR_LOCKED(&weir_graph_lock);
    const struct weir_graph_set *set = find_locked(handle);
    return set && set->mems;
}

CUresult weir_graph_set_auto_free(uint64_t handle)
{
    WEIR_LOCKED(&weir_graph_lock);
    struct weir_graph_set *set = find_or_make_locked(handle);
    if (set) {
        set->auto_free = true;
    }
    return set ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool weir_graph_has_mems_locked(const struct weir_graph_set *set)
{
    bool found = set->mems != NULL;
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = weir_graph_has_mems_locked(b->set);
    }
    return found;
}

/* Is memory still allocated by an earlier launch? */
bool weir_graph_any_live_locked(const struct weir_graph_set *set)
{
    return WEIR_LINKED(m, set->mems, !m->freed && weir_graph_mem_is_live(m->base)) ||
           WEIR_LINKED(b, set->included, weir_graph_any_live_locked(b->set));
}

void weir_graph_account_locked(const struct weir_graph_set *set, bool freed)
{
    for (const struct bound_mem *m = set->mems; m; m = m->next) {
        if (m->freed == freed) {
            weir_graph_mem_set_live(m->base, !freed);
        }
    }
    for (const struct bound_set *b = set->included; b; b = b->next) {
        weir_graph_account_locked(b->set, freed);
    }
}
