/*
 * Sets: what a graph needs of this process. See graph.h.
 *
 * One lock for everything here; launches of graphs without pageable copies take it once, to look
 * the set up. Destructors of user objects run without it, since they are the program's.
 */
#include "guest_lib/graph.h"

#include "guest_lib/callback.h"
#include "guest_lib/entry.h"
#include "guest_lib/graph_mem.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct bound_copy {
    struct weir_stream_capture_copy copy;
    struct bound_copy *next;
};

struct bound_token {
    uint64_t token;
    struct bound_token *next;
};

struct bound_object {
    struct weir_user_object *object;
    uint32_t count;
    struct bound_object *next;
};

struct bound_mem {
    uint64_t base;
    bool freed; /* a free node's: not owned */
    struct bound_mem *next;
};

struct bound_set {
    struct weir_graph_set *set;
    struct bound_set *next;
};

struct weir_graph_set {
    uint64_t handle;
    uint32_t references;
    struct bound_copy *copies;
    struct bound_token *tokens;
    struct bound_object *objects;
    struct bound_mem *mems;
    struct bound_set *included;
    bool auto_free;
    bool launched;
    struct weir_stream_point last_launch;
    struct weir_graph_set *next; /* in its bucket; out of it once its handle is dropped */
};

#define BUCKETS 256
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below */
static struct weir_graph_set *buckets[BUCKETS];

static struct weir_graph_set **bucket_of(uint64_t handle)
{
    return &buckets[weir_handle_index(handle) % BUCKETS];
}

static struct weir_graph_set *find_locked(uint64_t handle)
{
    for (struct weir_graph_set *s = *bucket_of(handle); s; s = s->next) {
        if (s->handle == handle) {
            return s;
        }
    }
    return NULL;
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
    pthread_mutex_lock(&lock);
    struct weir_graph_set *set = find_or_make_locked(handle);
    pthread_mutex_unlock(&lock);
    return set;
}

struct weir_graph_set *weir_graph_set_find(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct weir_graph_set *set = find_locked(handle);
    pthread_mutex_unlock(&lock);
    return set;
}

static CUresult include_locked(struct weir_graph_set *set, struct weir_graph_set *other)
{
    for (struct bound_set *b = set->included; b; b = b->next) {
        if (b->set == other) {
            return CUDA_SUCCESS;
        }
    }
    struct bound_set *bound = calloc(1, sizeof(*bound));
    if (!bound) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *bound = (struct bound_set){other, set->included};
    set->included = bound;
    other->references++;
    return CUDA_SUCCESS;
}

CUresult weir_graph_set_include(uint64_t handle, uint64_t other_handle)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    struct weir_graph_set *other = find_locked(other_handle);
    if (other) {
        struct weir_graph_set *set = find_or_make_locked(handle);
        result = set ? include_locked(set, other) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Free a set that nobody holds; what it included goes to the list to be looked at next. */
static void free_set(struct weir_graph_set *set, struct bound_set **pending)
{
    while (set->tokens) {
        struct bound_token *next = set->tokens->next;
        weir_callback_remove(set->tokens->token);
        free(set->tokens);
        set->tokens = next;
    }
    while (set->copies) {
        struct bound_copy *next = set->copies->next;
        weir_graph_block_free(&set->copies->copy.block); /* launches hold the set until passed */
        free(set->copies);
        set->copies = next;
    }
    while (set->objects) {
        struct bound_object *next = set->objects->next;
        (void)weir_user_object_release(set->objects->object, set->objects->count);
        free(set->objects);
        set->objects = next;
    }
    while (set->mems) {
        struct bound_mem *next = set->mems->next;
        if (!set->mems->freed) {
            weir_graph_mem_drop(set->mems->base);
        }
        free(set->mems);
        set->mems = next;
    }
    while (set->included) {
        struct bound_set *bound = set->included;
        set->included = bound->next;
        bound->next = *pending;
        *pending = bound;
    }
    free(set);
}

/* Drop one reference of each set in the list, and of what those held, without recursion. */
static void release_all(struct bound_set *pending)
{
    while (pending) {
        struct bound_set *bound = pending;
        pending = bound->next;
        pthread_mutex_lock(&lock);
        bool last = --bound->set->references == 0;
        pthread_mutex_unlock(&lock);
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

void weir_graph_set_drop(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct weir_graph_set *set = unlink_locked(handle);
    bool last = set && --set->references == 0;
    pthread_mutex_unlock(&lock);
    if (last) {
        struct bound_set *pending = NULL;
        free_set(set, &pending);
        release_all(pending);
    }
}

CUresult weir_graph_set_add_update(uint64_t handle, uint64_t other_handle)
{
    CUresult result = CUDA_SUCCESS;
    struct bound_set *old = NULL;
    pthread_mutex_lock(&lock);
    struct weir_graph_set *set = find_locked(handle);
    struct weir_graph_set *other = find_locked(other_handle);
    if (set || other) {
        set = set ? set : find_or_make_locked(handle);
        result = set ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* A launch under way may still use the old ones: they are kept until it has passed. */
    if (result == CUDA_SUCCESS && set &&
        (!set->launched || weir_guest_stream_passed(&set->last_launch))) {
        old = set->included;
        set->included = NULL;
    }
    if (result == CUDA_SUCCESS && set && other) {
        result = include_locked(set, other);
    }
    pthread_mutex_unlock(&lock);
    release_all(old);
    return result;
}

CUresult weir_graph_set_token(struct weir_graph_set *set, uint64_t token)
{
    struct bound_token *bound = calloc(1, sizeof(*bound));
    if (!bound) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *bound = (struct bound_token){token, set->tokens};
    set->tokens = bound;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult weir_graph_set_copy(struct weir_graph_set *set,
                             const struct weir_stream_capture_copy *copy)
{
    struct bound_copy *bound = calloc(1, sizeof(*bound));
    if (!bound) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *bound = (struct bound_copy){*copy, set->copies};
    set->copies = bound;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

bool weir_graph_set_user_object(struct weir_graph_set *set, struct weir_user_object *object,
                                int64_t delta)
{
    bool good = false;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return good;
}

/* ---------------------------------------------------------------- memory */

CUresult weir_graph_set_mem(struct weir_graph_set *set, uint64_t base, bool freed)
{
    struct bound_mem *bound = calloc(1, sizeof(*bound));
    if (!bound) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *bound = (struct bound_mem){base, freed, set->mems};
    set->mems = bound;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

bool weir_graph_set_has_mem(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    const struct weir_graph_set *set = find_locked(handle);
    bool found = set && set->mems;
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult weir_graph_set_auto_free(uint64_t handle)
{
    pthread_mutex_lock(&lock);
    struct weir_graph_set *set = find_or_make_locked(handle);
    if (set) {
        set->auto_free = true;
    }
    pthread_mutex_unlock(&lock);
    return set ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool has_mems_locked(const struct weir_graph_set *set)
{
    bool found = set->mems != NULL;
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = has_mems_locked(b->set);
    }
    return found;
}

/* Is anything still allocated by an earlier launch? */
static bool any_live_locked(const struct weir_graph_set *set)
{
    bool found = false;
    for (const struct bound_mem *m = set->mems; m && !found; m = m->next) {
        found = !m->freed && weir_graph_mem_is_live(m->base);
    }
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = any_live_locked(b->set);
    }
    return found;
}

static void account_locked(const struct weir_graph_set *set, bool freed)
{
    for (const struct bound_mem *m = set->mems; m; m = m->next) {
        if (m->freed == freed) {
            weir_graph_mem_set_live(m->base, !freed);
        }
    }
    for (const struct bound_set *b = set->included; b; b = b->next) {
        account_locked(b->set, freed);
    }
}

/* ---------------------------------------------------------------- copies at launches */

static bool has_copies_locked(const struct weir_graph_set *set)
{
    bool found = set->copies != NULL;
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = has_copies_locked(b->set);
    }
    return found;
}

/* Move every copy of one direction in a set and all that it includes; not those through device
 * memory, which takes operations of the stream. */
static CUresult move_all_locked(const struct weir_graph_set *set, bool to_gpu)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct bound_copy *c = set->copies; c && result == CUDA_SUCCESS; c = c->next) {
        if (c->copy.to_gpu == to_gpu && c->copy.block.place != WEIR_GRAPH_BLOCK_DEVICE) {
            result = weir_graph_block_move(&c->copy, NULL);
        }
    }
    for (const struct bound_set *b = set->included; b && result == CUDA_SUCCESS; b = b->next) {
        result = move_all_locked(b->set, to_gpu);
    }
    return result;
}

/* Copies of one direction through device memory, as a list of the caller's. */
static bool list_device_locked(const struct weir_graph_set *set, bool to_gpu,
                               struct bound_copy **list)
{
    for (const struct bound_copy *c = set->copies; c; c = c->next) {
        if (c->copy.to_gpu == to_gpu && c->copy.block.place == WEIR_GRAPH_BLOCK_DEVICE) {
            struct bound_copy *bound = calloc(1, sizeof(*bound));
            if (!bound) {
                return false;
            }
            *bound = (struct bound_copy){c->copy, *list};
            *list = bound;
        }
    }
    for (const struct bound_set *b = set->included; b; b = b->next) {
        if (!list_device_locked(b->set, to_gpu, list)) {
            return false;
        }
    }
    return true;
}

/* In the order of the launch's stream. */
static CUresult move_through_device(const struct weir_graph_set *set, bool to_gpu,
                                    struct weir_guest_stream *stream)
{
    struct bound_copy *list = NULL;
    pthread_mutex_lock(&lock);
    bool listed = list_device_locked(set, to_gpu, &list);
    pthread_mutex_unlock(&lock);
    CUresult result = listed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    while (list) {
        struct bound_copy *next = list->next;
        result = result == CUDA_SUCCESS ? weir_graph_block_move(&list->copy, stream) : result;
        free(list);
        list = next;
    }
    return result;
}

CUresult weir_graph_set_before_launch(struct weir_graph_set *set, struct weir_guest_stream *stream)
{
    pthread_mutex_lock(&lock);
    bool copies = has_copies_locked(set);
    bool wait = copies && set->launched;
    bool occupied = !set->auto_free && any_live_locked(set);
    struct weir_stream_point point = set->last_launch;
    pthread_mutex_unlock(&lock);
    if (occupied) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = wait ? weir_guest_stream_wait(&point) : CUDA_SUCCESS;
    if (wait) {
        weir_guest_stream_run_actions();
    }
    if (result == CUDA_SUCCESS && copies) {
        pthread_mutex_lock(&lock);
        result = move_all_locked(set, true);
        pthread_mutex_unlock(&lock);
    }
    return result == CUDA_SUCCESS && copies ? move_through_device(set, true, stream) : result;
}

static void unpack(void *user)
{
    struct weir_graph_set *set = user;
    pthread_mutex_lock(&lock);
    (void)move_all_locked(set, false);
    bool last = --set->references == 0;
    pthread_mutex_unlock(&lock);
    if (last) {
        struct bound_set *pending = NULL;
        free_set(set, &pending);
        release_all(pending);
    }
}

CUresult weir_graph_set_after_launch(struct weir_graph_set *set, struct weir_guest_stream *stream)
{
    struct weir_stream_point point = weir_guest_stream_here(stream);
    pthread_mutex_lock(&lock);
    bool mems = has_mems_locked(set);
    bool copies = has_copies_locked(set);
    bool held = mems || copies; /* blocks that the launch uses stay until it passed */
    set->launched = true;
    set->last_launch = point;
    set->references += held ? 1 : 0;
    if (mems) {
        account_locked(set, false);
        account_locked(set, true);
    }
    pthread_mutex_unlock(&lock);
    if (!held) {
        return CUDA_SUCCESS;
    }
    CUresult result = copies ? move_through_device(set, false, stream) : CUDA_SUCCESS;
    CUresult later = weir_guest_stream_on_passed(&point, unpack, set);
    if (later != CUDA_SUCCESS) { /* no memory to remember it */
        later = weir_guest_stream_wait(&point);
        unpack(set);
    }
    return result == CUDA_SUCCESS ? later : result;
}
