/*
 * Finds the places at which to cut a graph.
 *
 * 1. Each node gets a start: when it could begin if nothing but its dependencies held it up, which
 *    is the weight of the heaviest path that leads to it.
 * 2. The nodes are ordered by their starts. A weight is at least 1, so a node starts after all that
 *    it depends on, and the order may be cut anywhere. Branches that run side by side alternate in
 *    this order, so they are cut at the same time and stay side by side within a piece.
 * 3. Cut j of k is put where j/k of the weight is before it. A quarter of a piece to each side it
 *    may be put elsewhere, if fewer branches are open there: at a cut all branches wait for each
 *    other, and where only one is open nobody waits.
 *
 * A branch is open at a place if a node before it has a successor behind it.
 */
#include "host_backend/worker/ops/graph_split.h"

#include "base/search.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLACK_PART 4u /* a cut may be off its place by 1/SLACK_PART of a piece */

struct split {
    const struct weir_graph_shape *shape;
    uint32_t *first, *after; /* successors of node i: after[first[i]] .. after[first[i + 1] - 1] */
    uint32_t *waits_for;     /* for each node: number of its dependencies without a start */
    uint64_t *start;
    uint32_t *order;    /* the nodes ordered by their starts; at first in Kahn's order */
    uint32_t *position; /* each node's position in that order */
    uint64_t *before;   /* the weight of all nodes before each position */
    int32_t *open;      /* how many branches are open before each position */
};

static bool make_room(struct split *s)
{
    size_t n = s->shape->n_nodes;

    s->first = calloc(n + 2, sizeof *s->first);
    s->after = calloc((size_t)s->shape->n_edges + 1, sizeof *s->after);
    s->waits_for = calloc(n + 1, sizeof *s->waits_for);
    s->start = calloc(n + 1, sizeof *s->start);
    s->order = calloc(n + 1, sizeof *s->order);
    s->position = calloc(n + 1, sizeof *s->position);
    s->before = calloc(n + 1, sizeof *s->before);
    s->open = calloc(n + 2, sizeof *s->open);
    return s->first && s->after && s->waits_for && s->start && s->order && s->position &&
           s->before && s->open;
}

static void free_room(struct split *s)
{
    free(s->first);
    free(s->after);
    free(s->waits_for);
    free(s->start);
    free(s->order);
    free(s->position);
    free(s->before);
    free(s->open);
}

static void list_successors(struct split *s)
{
    const struct weir_graph_shape *shape = s->shape;

    for (uint32_t i = 0; i < shape->n_edges; i++) {
        s->first[shape->from[i] + 2]++;
        s->waits_for[shape->to[i]]++;
    }
    for (uint32_t i = 2; i < shape->n_nodes + 2; i++) {
        s->first[i] += s->first[i - 1];
    }
    for (uint32_t i = 0; i < shape->n_edges; i++) {
        s->after[s->first[shape->from[i] + 1]++] = shape->to[i];
    }
}

/* Compute the starts in Kahn's order. false: a cycle keeps some nodes from ever starting. */
static bool find_starts(struct split *s)
{
    const struct weir_graph_shape *shape = s->shape;
    uint32_t n = 0;

    for (uint32_t i = 0; i < shape->n_nodes; i++) {
        if (s->waits_for[i] == 0) {
            s->order[n++] = i;
        }
    }
    for (uint32_t at = 0; at < n; at++) {
        uint32_t node = s->order[at];
        uint64_t end = s->start[node] + shape->weights[node];

        for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
            uint32_t next = s->after[i];

            s->start[next] = WEIR_MAX(s->start[next], end);
            if (--s->waits_for[next] == 0) {
                s->order[n++] = next;
            }
        }
    }
    return n == shape->n_nodes;
}

static int compare_starts(const void *a, const void *b, void *user)
{
    const struct split *s = user;
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

    if (s->start[one] != s->start[other]) {
        return s->start[one] < s->start[other] ? -1 : 1;
    }
    return one < other ? -1 : one > other;
}

static void put_in_order(struct split *s)
{
    const struct weir_graph_shape *shape = s->shape;

    qsort_r(s->order, shape->n_nodes, sizeof *s->order, compare_starts, s);
    for (uint32_t i = 0; i < shape->n_nodes; i++) {
        s->position[s->order[i]] = i;
        s->before[i + 1] = s->before[i] + shape->weights[s->order[i]];
    }
}

/* Count open branches: a node's branch is open from behind it to its last successor. */
static void count_open(struct split *s)
{
    uint32_t n = s->shape->n_nodes;

    for (uint32_t node = 0; node < n; node++) {
        uint32_t last = s->position[node];

        for (uint32_t i = s->first[node]; i < s->first[node + 1]; i++) {
            uint32_t successor = s->position[s->after[i]];

            last = WEIR_MAX(successor, last);
        }
        s->open[s->position[node] + 1]++;
        s->open[last + 1]--;
    }
    for (uint32_t i = 1; i <= n; i++) {
        s->open[i] += s->open[i - 1];
    }
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Is a cut before position `a` better than one before `b`? */
static bool is_better(const struct split *s, uint32_t a, uint32_t b, uint64_t place, uint64_t slack)
{
    uint64_t far_a = distance(s->before[a], place), far_b = distance(s->before[b], place);

    if (far_a <= slack && far_b <= slack && s->open[a] != s->open[b]) {
        return s->open[a] < s->open[b];
    }
    return far_a < far_b;
}

/* Find the best position for a cut behind `least` and near a place; n_nodes: there is none. */
static uint32_t find_cut(const struct split *s, uint32_t least, uint64_t place, uint64_t slack)
{
    uint32_t best = least + 1;

    for (uint32_t i = best + 1; i < s->shape->n_nodes; i++) {
        best = is_better(s, i, best, place, slack) ? i : best;
        if (s->before[i] > place + slack) {
            break;
        }
    }
    return best;
}

static uint32_t cut(const struct split *s, uint32_t n_pieces, uint32_t *ret_piece_of)
{
    uint32_t n = s->shape->n_nodes, begin = 0, piece = 0;
    uint64_t length = s->before[n] / n_pieces, slack = length / SLACK_PART;

    for (uint32_t j = 1; begin < n; j++) {
        uint64_t place = length * j + s->before[n] % n_pieces * j / n_pieces;
        uint32_t end = j < n_pieces ? find_cut(s, begin, place, slack) : n;

        if (end < n && s->before[end] >= place + length && j + 1 < n_pieces) {
            continue; /* a long node covers the next place, too: cut only there */
        }
        for (uint32_t i = begin; i < end && i < n; i++) {
            ret_piece_of[s->order[i]] = piece;
        }
        piece++;
        begin = end;
    }
    return piece;
}

uint32_t weir_graph_split(const struct weir_graph_shape *shape, uint32_t n_pieces,
                          uint32_t *ret_piece_of)
{
    struct split s = {.shape = shape};
    uint32_t n = 0;

    n_pieces = WEIR_MIN(n_pieces, shape->n_nodes);
    if (shape->n_nodes != 0 && make_room(&s)) {
        list_successors(&s);
        if (find_starts(&s)) {
            put_in_order(&s);
            count_open(&s);
            n = cut(&s, n_pieces, ret_piece_of);
        }
    }
    free_room(&s);
    return n;
}
