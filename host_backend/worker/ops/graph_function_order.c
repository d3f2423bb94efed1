/*
 * Finds which copies of a graph come before and after which functions of the guest.
 *
 * The guest moves the bytes of pageable copies between the program's memory and their blocks. It
 * must do so before a function that reads what was copied, and after one that writes what is to be
 * copied. Only the driver knows the nodes and edges of captured graphs, clones and child graphs, so
 * the worker finds this out.
 *
 * The graph and its child graphs become one list of items with links. A child graph is two items,
 * its begin and its end: the list has a path from a node to another if the driver runs the first
 * before the second. From each function one search goes back and one forth. A search ends at other
 * functions, since those have searches of their own.
 */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_level.h"
#include "host_backend/worker/state/host_calls.h"

#include <assert.h>
#include <stdlib.h>

#define ITEMS_MAX WEIR_GRAPH_NODES_MAX /* items of a graph with its child graphs */
#define LINKS_MAX WEIR_GRAPH_EDGES_MAX
#define STEPS_MAX (UINT64_C(1) << 28) /* steps of all searches; limits one call to some seconds */
#define NONE      UINT32_MAX

struct item {
    uint64_t token;  /* identifies a function */
    uint32_t block;  /* index of a copy's block; else NONE */
    bool function;   /* token is valid: the item is a function */
    uint32_t end;    /* the other item of a child graph; else the item itself */
    uint32_t search; /* number of the last search that reached the item */
};

struct link {
    uint32_t from, to;
};

struct named_block {
    uint64_t address;
    uint32_t to_gpu, number;
};

/* Links sorted by the item that they leave (or, reversed, enter). Item i has the links from
 * first[i] to before first[i + 1]. */
struct neighbours {
    uint32_t *first, *items;
};

struct plan {
    const struct weir_driver *driver;
    struct named_block *blocks; /* sorted by address */
    uint32_t n_blocks;
    struct item *items;
    uint32_t n_items, room_items;
    struct link *links;
    uint32_t n_links, room_links;
    uint32_t n_searches;
    uint64_t n_steps;
    uint32_t *queue; /* room for all items */
    uint64_t *tokens;
    uint32_t *found; /* pairs of functions, which the guest gets */
    uint32_t n_pairs;
};

/* Make room for `more` elements; false: no memory, or over the limit. */
static bool make_room(void **array, uint32_t *room, uint32_t n, size_t more, size_t element_bytes,
                      uint32_t limit)
{
    size_t wanted = n + more;

    if (wanted <= *room) {
        return true;
    }
    WEIR_FAIL_IF(wanted > limit, false);
    wanted = wanted < 64 ? 64 : wanted > limit / 2 ? limit : 2 * wanted;
    void *larger = realloc(*array, wanted * element_bytes);
    WEIR_FAIL_IF(!larger, false);
    *array = larger;
    *room = (uint32_t)wanted;
    return true;
}

static bool add_link(struct plan *p, uint32_t from, uint32_t to)
{
    if (!make_room((void **)&p->links, &p->room_links, p->n_links, 1, sizeof *p->links,
                   LINKS_MAX)) {
        return false;
    }
    p->links[p->n_links++] = (struct link){from, to};
    return true;
}

/* ---------------------------------------------------------------- blocks */

static int compare_blocks(const void *a, const void *b)
{
    const struct named_block *one = a, *other = b;

    return one->address != other->address ? (one->address < other->address ? -1 : 1)
                                          : (int)one->to_gpu - (int)other->to_gpu;
}

static CUresult name_blocks(struct weir_session *s,
                            const struct weir_op_graph_function_order_in *in, struct plan *p)
{
    p->n_blocks = in->n_places;
    p->blocks = calloc(in->n_places + 1u, sizeof *p->blocks);
    WEIR_FAIL_IF(!p->blocks, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < in->n_places; i++) {
        CUdeviceptr address = in->places[i];

        if (in->in_arena[i] != 0) {
            WEIR_TRY(weir_session_arena_dptr(s, in->places[i], 1, &address));
        }
        p->blocks[i] = (struct named_block){address, in->to_gpu[i] != 0, i};
    }
    qsort(p->blocks, p->n_blocks, sizeof *p->blocks, compare_blocks);
    return CUDA_SUCCESS;
}

static uint32_t find_block(const struct plan *p, CUmemorytype type, const void *host,
                           CUdeviceptr device, bool to_gpu)
{
    const struct named_block key = {type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device, to_gpu,
                                    0};
    const struct named_block *found =
        bsearch(&key, p->blocks, p->n_blocks, sizeof key, compare_blocks);

    return type != CU_MEMORYTYPE_ARRAY && found ? found->number : NONE;
}

static uint32_t block_of(const struct plan *p, CUgraphNode node)
{
    CUDA_MEMCPY3D copy;

    if (p->driver->cuGraphMemcpyNodeGetParams(node, &copy) != CUDA_SUCCESS) {
        return NONE;
    }
    uint32_t block = find_block(p, copy.dstMemoryType, copy.dstHost, copy.dstDevice, false);
    return block != NONE ? block
                         : find_block(p, copy.srcMemoryType, copy.srcHost, copy.srcDevice, true);
}

/* ---------------------------------------------------------------- reading the driver's graph */

/* @param ret_first  index of the first new item: item *ret_first + i is level->nodes[i]. */
static CUresult add_items(struct plan *p, const struct weir_graph_level *level, uint32_t *ret_first)
{
    if (!make_room((void **)&p->items, &p->room_items, p->n_items, level->n_nodes, sizeof *p->items,
                   ITEMS_MAX)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *ret_first = p->n_items;
    for (size_t i = 0; i < level->n_nodes; i++) {
        struct item *item = &p->items[p->n_items];
        CUDA_HOST_NODE_PARAMS host;
        CUgraphNodeType type;

        WEIR_TRY(p->driver->cuGraphNodeGetType(level->nodes[i], &type));
        *item = (struct item){.block = NONE, .end = p->n_items++};
        if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
            item->block = block_of(p, level->nodes[i]);
        } else if (type == CU_GRAPH_NODE_TYPE_HOST) {
            WEIR_TRY(p->driver->cuGraphHostNodeGetParams(level->nodes[i], &host));
            item->function = host.fn == weir_host_call_run;
            item->token = item->function ? weir_host_call_token(host.userData) : 0;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult add_edges(struct plan *p, const struct weir_graph_level *level, uint32_t first)
{
    for (size_t i = 0; i < level->n_edges; i++) {
        uint32_t from = weir_graph_level_find(level, level->from[i]);
        uint32_t to = weir_graph_level_find(level, level->to[i]);

        WEIR_FAIL_IF(from == WEIR_GRAPH_NO_NODE || to == WEIR_GRAPH_NO_NODE,
                     CUDA_ERROR_UNKNOWN); /* an edge names a node that the driver did not list */
        assert(p->items);
        WEIR_FAIL_IF(!add_link(p, p->items[first + from].end, first + to),
                     CUDA_ERROR_NOT_SUPPORTED);
    }
    return CUDA_SUCCESS;
}

static CUresult add_graph(struct plan *p, CUgraph graph, unsigned int depth);

/* Link a child graph: all its items come after its begin and before its end. */
static CUresult add_child(struct plan *p, CUgraphNode node, uint32_t begin, unsigned int depth)
{
    uint32_t first = p->n_items, end;
    CUgraph graph;

    WEIR_TRY(p->driver->cuGraphChildGraphNodeGetGraph(node, &graph));
    WEIR_TRY(add_graph(p, graph, depth + 1));
    end = p->n_items;
    if (!make_room((void **)&p->items, &p->room_items, end, 1, sizeof *p->items, ITEMS_MAX) ||
        !add_link(p, begin, end)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    p->items[p->n_items++] = (struct item){.block = NONE, .end = end};
    for (uint32_t i = first; i < end; i++) {
        WEIR_FAIL_IF(!add_link(p, begin, i) || !add_link(p, i, end), CUDA_ERROR_NOT_SUPPORTED);
    }
    p->items[begin].end = end;
    return CUDA_SUCCESS;
}

static CUresult add_children(struct plan *p, const struct weir_graph_level *level, uint32_t first,
                             unsigned int depth)
{
    for (size_t i = 0; i < level->n_nodes; i++) {
        CUgraphNodeType type;

        WEIR_TRY(p->driver->cuGraphNodeGetType(level->nodes[i], &type));
        if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
            WEIR_TRY(add_child(p, level->nodes[i], first + (uint32_t)i, depth));
        }
    }
    return CUDA_SUCCESS;
}

/* Add a graph and its child graphs. The recursion is as deep as they are nested,
 * WEIR_GRAPH_DEPTH_MAX. */
static CUresult add_graph(struct plan *p, CUgraph graph, unsigned int depth)
{
    struct weir_graph_level level = {0};
    CUresult result = depth < WEIR_GRAPH_DEPTH_MAX ? weir_graph_level_read(p->driver, graph, &level)
                                                   : CUDA_ERROR_NOT_SUPPORTED;
    uint32_t first = 0;

    WEIR_THEN(result, add_items(p, &level, &first));
    WEIR_THEN(result, add_children(p, &level, first, depth));
    WEIR_THEN(result, add_edges(p, &level, first));
    weir_graph_level_finish(&level);
    return result;
}

/* ---------------------------------------------------------------- searches */

static CUresult list_neighbours(const struct plan *p, bool back, struct neighbours *ret)
{
    uint32_t *first = calloc(p->n_items + 2u, sizeof *first);
    uint32_t *items = calloc(p->n_links + 1u, sizeof *items);

    *ret = (struct neighbours){first, items};
    WEIR_FAIL_IF(!first || !items, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < p->n_links; i++) {
        first[(back ? p->links[i].to : p->links[i].from) + 2]++;
    }
    for (uint32_t i = 2; i < p->n_items + 2; i++) {
        first[i] += first[i - 1];
    }
    for (uint32_t i = 0; i < p->n_links; i++) {
        const struct link *l = &p->links[i];

        items[first[(back ? l->to : l->from) + 1]++] = back ? l->from : l->to;
    }
    return CUDA_SUCCESS;
}

/* Is the pair wanted? A function waits for copies to the program, and copies from it wait for the
 * function. */
static bool is_wanted(const struct weir_op_graph_function_order_in *in, const struct item *item,
                      bool back)
{
    return item->block != NONE && (in->to_gpu[item->block] != 0) != back;
}

static CUresult search(struct plan *p, const struct weir_op_graph_function_order_in *in,
                       uint32_t start, const struct neighbours *near, bool back)
{
    uint32_t n = 0, number = ++p->n_searches;

    p->items[start].search = number;
    p->queue[n++] = start;
    for (uint32_t at = 0; at < n; at++) {
        for (uint32_t i = near->first[p->queue[at]]; i < near->first[p->queue[at] + 1]; i++) {
            struct item *item = &p->items[near->items[i]];

            WEIR_FAIL_IF(++p->n_steps > STEPS_MAX, CUDA_ERROR_NOT_SUPPORTED);
            if (item->search == number || item->function) {
                continue;
            }
            item->search = number;
            p->queue[n++] = near->items[i];
            if (!is_wanted(in, item, back)) {
                continue;
            }
            WEIR_FAIL_IF(p->n_pairs == WEIR_OP_graph_function_order_out_tokens_max,
                         CUDA_ERROR_NOT_SUPPORTED);
            p->tokens[p->n_pairs] = p->items[start].token;
            p->found[p->n_pairs++] = item->block;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult search_all(struct plan *p, const struct weir_op_graph_function_order_in *in,
                           bool back)
{
    struct neighbours near;
    CUresult result = list_neighbours(p, back, &near);

    for (uint32_t i = 0; i < p->n_items && result == CUDA_SUCCESS; i++) {
        if (p->items[i].function) {
            result = search(p, in, i, &near, back);
        }
    }
    free(near.first);
    free(near.items);
    return result;
}

static CUresult find_pairs(struct weir_session *s, const struct weir_op_graph_function_order_in *in,
                           CUgraph graph, struct plan *p)
{
    const size_t most = WEIR_OP_graph_function_order_out_tokens_max;

    WEIR_TRY(name_blocks(s, in, p));
    WEIR_TRY(add_graph(p, graph, 0));
    p->queue = calloc(p->n_items + 1u, sizeof *p->queue);
    p->tokens = weir_session_alloc(s, most * sizeof *p->tokens);
    p->found = weir_session_alloc(s, most * sizeof *p->found);
    WEIR_FAIL_IF(!p->queue || !p->tokens || !p->found, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(search_all(p, in, true));
    return search_all(p, in, false);
}

CUresult weir_host_graph_function_order(struct weir_session *s,
                                        const struct weir_op_graph_function_order_in *in,
                                        struct weir_op_graph_function_order_out *out)
{
    struct weir_object *graph = weir_host_object_get(s, WEIR_KIND_GRAPH, in->g);
    struct plan plan = {.driver = s->driver};

    WEIR_FAIL_IF(!graph, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(in->n_in_arena != in->n_places || in->n_to_gpu != in->n_places,
                 CUDA_ERROR_INVALID_VALUE);
    CUresult result = find_pairs(s, in, graph->native, &plan);
    out->tokens = plan.tokens;
    out->n_tokens = plan.n_pairs;
    out->blocks = plan.found;
    out->n_blocks = plan.n_pairs;
    free(plan.blocks);
    free(plan.items);
    free(plan.links);
    free(plan.queue);
    return result;
}
