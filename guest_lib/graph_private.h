/*
 * The members of sets (graph.h). graph_set.c stores them; graph_launch.c uses them for launches.
 */
#pragma once

#include "base/thread.h"
#include "guest_lib/callback.h"
#include "guest_lib/graph.h"

/*
 * A pageable copy. It is *due* from a launch on until its bytes have reached the program (a copy
 * from the GPU), or until the launch has ended (one to the GPU). Launches of graphs that share
 * copies wait for each other, so at most one launch makes a copy due.
 */
struct bound_copy {
    struct weir_stream_capture_copy copy;
    bool due;
    bool for_function;   /* a function of the graph runs after this copy and unpacks it */
    uint64_t listed;     /* number of the last list with the copy (mark_listed_locked()) */
    uint32_t references; /* references of the copy's set and of functions */
    struct bound_copy *next;
};

struct bound_function_copy {
    struct bound_copy *copy;
    struct bound_function_copy *next;
};

/* A function of the program, and the copies that are unpacked before it or packed after it. */
struct weir_graph_function {
    uint64_t token;
    weir_callback_fn fn;
    void *user;
    struct bound_function_copy *copies;
    struct weir_graph_function *next; /* next function in the set */
};

struct bound_object {
    struct weir_user_object *object;
    uint32_t count;
    struct bound_object *next;
};

struct bound_mem {
    uint64_t base;
    bool freed; /* the block belongs to a free node, so the set does not own it */
    struct bound_mem *next;
};

struct bound_set {
    struct weir_graph_set *set;
    struct bound_set *next;
};

struct weir_graph_set {
    uint64_t handle;
    uint32_t references;
    struct bound_copy *copies; /* copies in the order in which they were made */
    struct bound_copy *last_copy;
    struct weir_graph_function *functions;
    struct bound_object *objects;
    struct bound_mem *mems;
    struct bound_set *included;
    bool auto_free;
    bool launched;
    /* Point behind the last launch of a graph that executes parts of this set. */
    struct weir_stream_point last_launch;
    /* Next set in the bucket; a set leaves its bucket when its handle is dropped. */
    struct weir_graph_set *next;
};

/* Guards all sets and their contents. */
extern pthread_mutex_t weir_graph_lock;

/** Drop a reference; the last one frees the set and drops its references to others. No lock
 * held. */
void weir_graph_set_put(struct weir_graph_set *set);

/** Drop a reference to a copy. Its set, which holds one, frees the block. No lock held. */
void weir_graph_copy_put(struct bound_copy *copy);

/** Does the set, or one that it includes, have memory nodes? */
bool weir_graph_has_mems_locked(const struct weir_graph_set *set);

/** Is memory still allocated by an earlier launch? */
bool weir_graph_any_live_locked(const struct weir_graph_set *set);

/** Record that a launch allocates (freed: frees) the memory of its nodes. */
void weir_graph_account_locked(const struct weir_graph_set *set, bool freed);
