/* Actions that run when a stream has passed a point: see weir_guest_stream_on_passed(). */
#include "guest_lib/stream.h"
#include <stdlib.h>

struct action {
    struct action *next;
    struct weir_stream_point point;
    weir_stream_action_fn fn;
    void *user;
};

/* The lock guards this list; count is atomic, so that calls cost nothing while it is empty. */
static struct {
    struct weir_lock lock;
    struct weir_lock running; /* held while one thread runs actions, so that they run in order */
    struct action *first;
    struct action **last;
    uint32_t count;
} actions;

CUresult weir_guest_stream_on_passed(const struct weir_stream_point *point,
                                     weir_stream_action_fn fn, void *user)
{
    struct action *action = malloc(sizeof *action);
    WEIR_FAIL_IF(!action, CUDA_ERROR_OUT_OF_MEMORY);
    *action = (struct action){.point = *point, .fn = fn, .user = user};
    WEIR_GUEST_LOCKED(&actions.lock);
    if (!actions.first) {
        actions.last = &actions.first;
    }
    *actions.last = action;
    actions.last = &action->next;
    __atomic_add_fetch(&actions.count, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static struct action *take_passed(void)
{
    WEIR_GUEST_LOCKED(&actions.lock);
    struct action *found = NULL;
    for (struct action **at = &actions.first; *at; at = &(*at)->next) {
        if (weir_guest_stream_passed(&(*at)->point)) {
            found = *at;
            *at = found->next;
            if (actions.last == &found->next) {
                actions.last = at;
            }
            __atomic_sub_fetch(&actions.count, 1, __ATOMIC_RELAXED);
            break;
        }
    }
    return found;
}

void weir_guest_stream_run_actions(void)
{
    if (__builtin_expect(!__atomic_load_n(&actions.count, __ATOMIC_ACQUIRE), 1)) {
        return;
    }
    WEIR_GUEST_LOCKED(&actions.running);
    struct action *action;
    while ((action = take_passed())) {
        action->fn(action->user);
        free(action);
    }
}
