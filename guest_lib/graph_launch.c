/*
 * Moves bytes of the program's memory around launches of graphs. See graph.h.
 *
 * The GPU copies between its memory and the blocks of pageable copies; this file moves bytes
 * between the blocks and the program. The program can see when they move:
 *
 * - A function of the graph (a host node) that runs after a copy from the GPU must find its bytes,
 *   and a later copy to the GPU must take the bytes that the function writes. So run_function()
 *   unpacks before the program's function and packs after it. The host reports at instantiation
 *   which copies these are (weir_graph_function_order()).
 * - All other copies are packed when the graph is launched, and unpacked when it has ended. While
 *   the program has functions that may write its memory, packing is a function in the launch's
 *   stream. Unpacking always is, so that later work of the stream, events included, comes after it.
 *   In a captured stream neither can be a function: the program's own call packs, and a later call
 *   that waits unpacks.
 *
 * Moving bytes of a remote session waits for the host, so it is done without the lock. Lists of
 * copies and sets only grow while a launch holds their set.
 */
#include "guest_lib/graph_private.h"

#include "base/log.h"
#include "guest_lib/entry.h"
#include "proto/guest_calls.h"
#include <stdlib.h>

enum movers { ALL_BLOCKS, DEVICE_BLOCKS, OTHER_BLOCKS };

static struct bound_copy *copy_after(const struct weir_graph_set *set,
                                     const struct bound_copy *copy)
{
    WEIR_LOCKED(&weir_graph_lock);
    return copy ? copy->next : set->copies;
}

static struct bound_set *included_by(const struct weir_graph_set *set)
{
    WEIR_LOCKED(&weir_graph_lock);
    return set->included;
}

/* Does the copy have to move bytes now? A copy from the GPU that has been unpacked does not. */
static bool take_due(struct bound_copy *copy, bool to_gpu)
{
    WEIR_LOCKED(&weir_graph_lock);
    bool due = copy->due && copy->copy.to_gpu == to_gpu;
    copy->due = due && !to_gpu ? false : copy->due;
    return due;
}

/* Move the due copies of one direction, in a set and in all sets that it includes. */
static CUresult move_all(const struct weir_graph_set *set, bool to_gpu, enum movers which,
                         struct weir_guest_stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (struct bound_copy *c = copy_after(set, NULL); c && result == CUDA_SUCCESS;
         c = copy_after(set, c)) {
        bool device = c->copy.block.place == WEIR_GRAPH_BLOCK_DEVICE;
        bool wanted = which == ALL_BLOCKS || device == (which == DEVICE_BLOCKS);
        if (wanted && take_due(c, to_gpu)) {
            result = weir_graph_block_move(&c->copy, stream);
        }
    }
    for (struct bound_set *b = included_by(set); b && result == CUDA_SUCCESS; b = b->next) {
        result = move_all(b->set, to_gpu, which, stream);
    }
    return result;
}

/* ---------------------------------------------------------------- functions */

static void run_function(void *user)
{
    struct weir_graph_function *function = user;
    pthread_mutex_lock(&weir_graph_lock);
    const struct bound_function_copy *copies = function->copies;
    pthread_mutex_unlock(&weir_graph_lock);
    CUresult result = CUDA_SUCCESS;
    for (const struct bound_function_copy *c = copies; c && result == CUDA_SUCCESS; c = c->next) {
        result = take_due(c->copy, false) ? weir_graph_block_move(&c->copy->copy, NULL) : result;
    }
    function->fn(function->user);
    if (weir_guest_phase_now() == WEIR_PHASE_FORKED) {
        return; /* the function has forked, and this child has none of the copies */
    }
    for (const struct bound_function_copy *c = copies; c && result == CUDA_SUCCESS; c = c->next) {
        result = take_due(c->copy, true) ? weir_graph_block_move(&c->copy->copy, NULL) : result;
    }
    if (result != CUDA_SUCCESS) {
        weir_log_error("guest: a graph's pageable copy was lost, result=%d", (int)result);
    }
}

CUresult weir_graph_function_new(CUhostFn fn, void *user, struct weir_graph_function **ret_function,
                                 uint64_t *ret_token)
{
    struct weir_graph_function *function = calloc(1, sizeof(*function));
    WEIR_FAIL_IF(!function, CUDA_ERROR_OUT_OF_MEMORY);
    function->fn = fn;
    function->user = user;
    CUresult result = weir_callback_add(run_function, NULL, function, false, &function->token);
    if (result != CUDA_SUCCESS) {
        free(function);
        return result;
    }
    *ret_function = function;
    *ret_token = function->token;
    return CUDA_SUCCESS;
}

void weir_graph_copy_put(struct bound_copy *copy)
{
    pthread_mutex_lock(&weir_graph_lock);
    bool last = --copy->references == 0;
    pthread_mutex_unlock(&weir_graph_lock);
    if (last) {
        free(copy);
    }
}

void weir_graph_function_free(struct weir_graph_function *function)
{
    if (!function) {
        return;
    }
    weir_callback_remove(function->token);
    for (struct bound_function_copy *first; (first = WEIR_POP(function->copies));) {
        weir_graph_copy_put(first->copy);
        free(first);
    }
    free(function);
}

static CUresult add_copy_locked(struct weir_graph_function *function, struct bound_copy *copy)
{
    struct bound_function_copy *bound = calloc(1, sizeof(*bound));
    WEIR_FAIL_IF(!bound, CUDA_ERROR_OUT_OF_MEMORY);
    *bound = (struct bound_function_copy){copy, function->copies};
    copy->references++;
    function->copies = bound;
    return CUDA_SUCCESS;
}

static struct weir_graph_function *find_function_locked(const struct weir_graph_set *set,
                                                        uint64_t token)
{
    struct weir_graph_function *found = WEIR_LINKED(f, set->functions, f->token == token);
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = find_function_locked(b->set, token);
    }
    return found;
}

CUresult weir_graph_function_replace(uint64_t handle, uint64_t token,
                                     struct weir_graph_function *function)
{
    struct weir_graph_set *set = weir_graph_set_find(handle);
    CUresult result = CUDA_SUCCESS;
    WEIR_LOCKED(&weir_graph_lock);
    const struct weir_graph_function *old = set ? find_function_locked(set, token) : NULL;
    for (const struct bound_function_copy *c = old ? old->copies : NULL;
         c && result == CUDA_SUCCESS; c = c->next) {
        result = add_copy_locked(function, c->copy);
    }
    return result;
}

/* ---------------------------------------------------------------- their order */

/* Collect the copies of a set and of all sets that it includes, to ask the host about them. */
struct copy_list {
    struct bound_copy **copies;
    uint64_t *places;
    uint32_t *in_arena;
    uint32_t *to_gpu;
    uint32_t n;
};

static void count_locked(const struct weir_graph_set *set, uint32_t *n_copies,
                         uint32_t *n_functions)
{
    for (const struct bound_copy *c = set->copies; c; c = c->next) {
        ++*n_copies;
    }
    *n_functions += set->functions != NULL;
    for (const struct bound_set *b = set->included; b; b = b->next) {
        count_locked(b->set, n_copies, n_functions);
    }
}

static void fill_locked(const struct weir_graph_set *set, struct copy_list *list)
{
    for (struct bound_copy *c = set->copies; c; c = c->next) {
        list->copies[list->n] = c;
        list->places[list->n] = c->copy.block.at;
        list->in_arena[list->n] = c->copy.block.place == WEIR_GRAPH_BLOCK_ARENA;
        list->to_gpu[list->n++] = c->copy.to_gpu;
        c->references++;
    }
    for (const struct bound_set *b = set->included; b; b = b->next) {
        fill_locked(b->set, list);
    }
}

static CUresult list_copies(const struct weir_graph_set *set, struct copy_list *ret_list)
{
    uint32_t n_copies = 0, n_functions = 0;
    struct copy_list list = {0};
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&weir_graph_lock);
    count_locked(set, &n_copies, &n_functions);
    if (n_copies > WEIR_OP_graph_function_order_in_places_max) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else if (n_copies && n_functions) {
        list.copies = calloc(n_copies, sizeof(*list.copies));
        list.places = calloc(n_copies, sizeof(*list.places));
        list.in_arena = calloc(n_copies, sizeof(*list.in_arena));
        list.to_gpu = calloc(n_copies, sizeof(*list.to_gpu));
        if (list.copies && list.places && list.in_arena && list.to_gpu) {
            fill_locked(set, &list);
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    pthread_mutex_unlock(&weir_graph_lock);
    *ret_list = list;
    return result;
}

static void free_list(struct copy_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        weir_graph_copy_put(list->copies[i]);
    }
    free(list->copies);
    free(list->places);
    free(list->in_arena);
    free(list->to_gpu);
}

/* Mark the copies that the function got from earlier answers, so that none is added twice. */
static void mark_listed_locked(const struct weir_graph_function *function, uint64_t *ret_mark)
{
    static uint64_t marks;
    *ret_mark = ++marks;
    for (const struct bound_function_copy *c = function->copies; c; c = c->next) {
        c->copy->listed = *ret_mark;
    }
}

static CUresult apply_locked(const struct weir_graph_set *set, const struct copy_list *list,
                             const struct weir_op_graph_function_order_out *out)
{
    struct weir_graph_function *function = NULL;
    uint64_t mark = 0;
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < out->n_tokens && i < out->n_blocks && result == CUDA_SUCCESS; i++) {
        if (!function || function->token != out->tokens[i]) {
            function = find_function_locked(set, out->tokens[i]);
            if (function) {
                mark_listed_locked(function, &mark);
            }
        }
        if (!function || out->blocks[i] >= list->n) {
            continue; /* the program is changing the graph */
        }
        struct bound_copy *copy = list->copies[out->blocks[i]];
        if (copy->copy.block.place == WEIR_GRAPH_BLOCK_DEVICE) {
            weir_log_warn(
                "guest: refused a graph with a host node before or behind a large copy of "
                "pageable memory, bytes=%llu; use pinned memory, or smaller copies",
                (unsigned long long)copy->copy.block.bytes);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        copy->for_function |= !copy->copy.to_gpu;
        if (copy->listed != mark) {
            copy->listed = mark;
            result = add_copy_locked(function, copy);
        }
    }
    return result;
}

CUresult weir_graph_function_order(uint64_t handle)
{
    struct weir_graph_set *set = weir_graph_set_find(handle);
    struct weir_op_graph_function_order_out out;
    struct copy_list list;
    if (!set) {
        return CUDA_SUCCESS;
    }
    CUresult result = list_copies(set, &list);
    if (result == CUDA_SUCCESS && list.n) {
        const struct weir_op_graph_function_order_in in = {.g = handle,
                                                           .places = list.places,
                                                           .n_places = list.n,
                                                           .in_arena = list.in_arena,
                                                           .n_in_arena = list.n,
                                                           .to_gpu = list.to_gpu,
                                                           .n_to_gpu = list.n};
        result = weir_call_graph_function_order(weir_guest_channel(), &in, &out);
        if (result == CUDA_SUCCESS) {
            pthread_mutex_lock(&weir_graph_lock);
            result = apply_locked(set, &list, &out);
            pthread_mutex_unlock(&weir_graph_lock);
        }
    }
    free_list(&list);
    return result;
}

/* ---------------------------------------------------------------- launches */

static bool has_copies_locked(const struct weir_graph_set *set)
{
    bool found = set->copies != NULL;
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = has_copies_locked(b->set);
    }
    return found;
}

static bool has_functions_locked(const struct weir_graph_set *set)
{
    return set->functions || WEIR_LINKED(b, set->included, has_functions_locked(b->set));
}

/* Are there copies to the GPU, or copies from it that no function unpacks? Copies through device
 * memory are not counted, since the launching thread moves them. */
static bool any_to_move_locked(const struct weir_graph_set *set, bool to_gpu)
{
    return WEIR_LINKED(c, set->copies,
                       c->copy.to_gpu == to_gpu && (to_gpu || !c->for_function) &&
                           c->copy.block.place != WEIR_GRAPH_BLOCK_DEVICE) ||
           WEIR_LINKED(b, set->included, any_to_move_locked(b->set, to_gpu));
}

static void set_due_locked(struct weir_graph_set *set, bool due)
{
    for (struct bound_copy *c = set->copies; c; c = c->next) {
        c->due = due;
    }
    for (struct bound_set *b = set->included; b; b = b->next) {
        set_due_locked(b->set, due);
    }
}

static void note_launch_locked(struct weir_graph_set *set, const struct weir_stream_point *point)
{
    set->launched = true;
    set->last_launch = *point;
    for (struct bound_set *b = set->included; b; b = b->next) {
        note_launch_locked(b->set, point);
    }
}

/* Find a launch in progress that uses the same blocks: of this executable graph, or of one made
 * from the same graph, or with the same child graph. */
static bool find_launch_locked(const struct weir_graph_set *set,
                               struct weir_stream_point *ret_point)
{
    bool found = set->launched && set->copies && !weir_guest_stream_passed(&set->last_launch);
    if (found) {
        *ret_point = set->last_launch;
    }
    for (const struct bound_set *b = set->included; b && !found; b = b->next) {
        found = find_launch_locked(b->set, ret_point);
    }
    return found;
}

/* Wait until no launch uses the blocks; unpack copies of launches that have ended. */
static CUresult wait_for_blocks(const struct weir_graph_set *set)
{
    CUresult result = CUDA_SUCCESS;
    bool busy = true;
    while (busy && result == CUDA_SUCCESS) {
        struct weir_stream_point point;
        pthread_mutex_lock(&weir_graph_lock);
        busy = find_launch_locked(set, &point);
        pthread_mutex_unlock(&weir_graph_lock);
        result = busy ? weir_guest_stream_wait(&point) : CUDA_SUCCESS;
    }
    weir_guest_stream_run_actions();
    return result;
}

static void pack_in_stream(void *user)
{
    (void)move_all(user, true, OTHER_BLOCKS, NULL);
    weir_graph_set_put(user);
}

static void unpack_in_stream(void *user)
{
    (void)move_all(user, false, OTHER_BLOCKS, NULL);
    weir_graph_set_put(user);
}

static void put_set(void *user)
{
    weir_graph_set_put(user);
}

/* Let the runner call the function when the stream reaches this point. The function drops a
 * reference to the set. */
static CUresult run_in_stream(struct weir_guest_stream *stream, weir_callback_fn fn,
                              struct weir_graph_set *set)
{
    pthread_mutex_lock(&weir_graph_lock);
    set->references++;
    pthread_mutex_unlock(&weir_graph_lock);
    return weir_callback_in_stream(stream, fn, put_set, set);
}

static CUresult pack(struct weir_graph_set *set, struct weir_guest_stream *stream)
{
    pthread_mutex_lock(&weir_graph_lock);
    bool later = weir_callbacks_pending() && any_to_move_locked(set, true);
    pthread_mutex_unlock(&weir_graph_lock);
    if (!later || weir_graph_is_captured(stream)) {
        return move_all(set, true, ALL_BLOCKS, stream);
    }
    WEIR_TRY(move_all(set, true, DEVICE_BLOCKS, stream));
    return run_in_stream(stream, pack_in_stream, set);
}

CUresult weir_graph_set_before_launch(struct weir_graph_set *set, struct weir_guest_stream *stream)
{
    pthread_mutex_lock(&weir_graph_lock);
    bool copies = has_copies_locked(set);
    bool occupied = !set->auto_free && weir_graph_any_live_locked(set);
    pthread_mutex_unlock(&weir_graph_lock);
    WEIR_FAIL_IF(occupied, CUDA_ERROR_INVALID_VALUE);
    CUresult result = copies ? wait_for_blocks(set) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && copies) {
        pthread_mutex_lock(&weir_graph_lock);
        set_due_locked(set, true);
        pthread_mutex_unlock(&weir_graph_lock);
        result = pack(set, stream);
    }
    return result;
}

/* The launch has ended. Copies that are still due were left by a launch under capture. */
static void end_launch(void *user)
{
    struct weir_graph_set *set = user;
    (void)move_all(set, false, OTHER_BLOCKS, NULL);
    pthread_mutex_lock(&weir_graph_lock);
    set_due_locked(set, false);
    pthread_mutex_unlock(&weir_graph_lock);
    weir_graph_set_put(set);
}

CUresult weir_graph_set_after_launch(struct weir_graph_set *set, struct weir_guest_stream *stream)
{
    pthread_mutex_lock(&weir_graph_lock);
    bool mems = weir_graph_has_mems_locked(set);
    bool copies = has_copies_locked(set);
    bool functions = has_functions_locked(set);
    bool unpack = any_to_move_locked(set, false);
    pthread_mutex_unlock(&weir_graph_lock);
    unpack = unpack && !weir_graph_is_captured(stream);
    CUresult result = unpack ? run_in_stream(stream, unpack_in_stream, set) : CUDA_SUCCESS;
    struct weir_stream_point point = weir_guest_stream_here(stream);
    bool held = mems || copies || functions; /* the set must stay until the launch has passed */
    pthread_mutex_lock(&weir_graph_lock);
    note_launch_locked(set, &point);
    set->references += held ? 1 : 0;
    if (mems) {
        weir_graph_account_locked(set, false);
        weir_graph_account_locked(set, true);
    }
    pthread_mutex_unlock(&weir_graph_lock);
    if (!held) {
        return result;
    }
    if (copies && result == CUDA_SUCCESS) {
        result = move_all(set, false, DEVICE_BLOCKS, stream);
    }
    CUresult later = weir_guest_stream_on_passed(&point, end_launch, set);
    if (later != CUDA_SUCCESS) { /* without memory the launch is not remembered */
        later = weir_guest_stream_wait(&point);
        end_launch(set);
    }
    return result == CUDA_SUCCESS ? later : result;
}
