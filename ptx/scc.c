#include "ptx/scc.h"

#include <stdlib.h>

struct tarjan {
    const struct weir_ptx_graph *graph;
    struct weir_ptx_parts *parts;
    uint32_t *index; /* per node: number in the order of entering, 0: not entered yet */
    uint32_t *low;
    uint32_t *next; /* edge to follow next */
    uint32_t *path;
    uint32_t n_path;
    uint32_t n_nodes; /* number of nodes in parts->nodes; the stack is at its other end */
    uint32_t stack;   /* lowest index of the stack, which grows downwards */
    uint32_t count;
};

static void enter(struct tarjan *t, uint32_t node)
{
    t->index[node] = t->low[node] = ++t->count;
    t->next[node] = t->graph->first[node];
    t->parts->nodes[--t->stack] = node;
    t->path[t->n_path++] = node;
}

static bool points_at_itself(const struct weir_ptx_graph *graph, uint32_t node)
{
    for (uint32_t i = graph->first[node]; i < graph->first[node + 1]; i++) {
        if (graph->to[i] == node) {
            return true;
        }
    }
    return false;
}

/* Move a finished part from the stack to the result. Both share `nodes`, one at each end. */
static void leave(struct tarjan *t, uint32_t node)
{
    struct weir_ptx_parts *parts = t->parts;
    uint32_t part = parts->n_parts++;
    uint32_t member;

    parts->begin[part] = t->n_nodes;
    do {
        member = parts->nodes[t->stack++];
        parts->nodes[t->n_nodes++] = member;
        parts->part[member] = part;
    } while (member != node);
    parts->begin[part + 1] = t->n_nodes;
    parts->is_cyclic[part] =
        t->n_nodes - parts->begin[part] > 1 || points_at_itself(t->graph, node);
}

static void step(struct tarjan *t)
{
    uint32_t at = t->path[t->n_path - 1];

    if (t->next[at] < t->graph->first[at + 1]) {
        uint32_t to = t->graph->to[t->next[at]++];

        if (!t->index[to]) {
            enter(t, to);
        } else if (t->parts->part[to] == UINT32_MAX && t->index[to] < t->low[at]) {
            t->low[at] = t->index[to];
        }
        return;
    }
    t->n_path--;
    if (t->n_path && t->low[at] < t->low[t->path[t->n_path - 1]]) {
        t->low[t->path[t->n_path - 1]] = t->low[at];
    }
    if (t->low[at] == t->index[at]) {
        leave(t, at);
    }
}

enum weir_status weir_ptx_parts_init(const struct weir_ptx_graph *graph,
                                     struct weir_ptx_parts *ret_parts)
{
    size_t n = graph->n_nodes;
    struct weir_ptx_parts parts = {.part = malloc((n + 1) * sizeof(*parts.part)),
                                   .begin = calloc(n + 1, sizeof(*parts.begin)),
                                   .nodes = calloc(n + 1, sizeof(*parts.nodes)),
                                   .is_cyclic = calloc(n + 1, sizeof(*parts.is_cyclic))};
    uint32_t *words = calloc(n + 1, 4 * sizeof(*words));
    struct tarjan t = {.graph = graph, .parts = &parts, .stack = graph->n_nodes};

    if (!parts.part || !parts.begin || !parts.nodes || !parts.is_cyclic || !words) {
        free(words);
        weir_ptx_parts_finish(&parts);
        return WEIR_ERR_NO_MEMORY;
    }
    t.index = words;
    t.low = words + n;
    t.next = words + 2 * n;
    t.path = words + 3 * n;
    for (size_t i = 0; i < n; i++) {
        parts.part[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!t.index[i]) {
            enter(&t, i);
            while (t.n_path) {
                step(&t);
            }
        }
    }
    free(words);
    *ret_parts = parts;
    return WEIR_OK;
}

void weir_ptx_parts_finish(struct weir_ptx_parts *parts)
{
    free(parts->part);
    free(parts->begin);
    free(parts->nodes);
    free(parts->is_cyclic);
    *parts = (struct weir_ptx_parts){0};
}
