/* Where graphs are cut: host_backend/worker/ops/graph_split.c. */
#include "host_backend/worker/ops/graph_split.h"

#include "../../lib/tl_cmocka.h"

#define NODES_MAX 512
#define EDGES_MAX 4096

static uint64_t weights[NODES_MAX];
static uint32_t from[EDGES_MAX], to[EDGES_MAX], piece_of[NODES_MAX];
static struct weir_graph_shape shape;

static void begin(uint32_t n)
{
    shape = (struct weir_graph_shape){.n_nodes = n, .from = from, .to = to, .weights = weights};
    for (uint32_t i = 0; i < n; i++) {
        weights[i] = 1;
        piece_of[i] = UINT32_MAX;
    }
}

static void edge(uint32_t a, uint32_t b)
{
    from[shape.n_edges] = a;
    to[shape.n_edges++] = b;
}

static void chain(uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        edge(i, i + 1);
    }
}

/* Every node has a piece, no piece is empty, and no edge leads back. */
static void assert_valid(uint32_t n_pieces)
{
    uint32_t nodes_in[NODES_MAX] = {0};

    for (uint32_t i = 0; i < shape.n_nodes; i++) {
        assert_true(piece_of[i] < n_pieces);
        nodes_in[piece_of[i]]++;
    }
    for (uint32_t i = 0; i < n_pieces; i++) {
        assert_true(nodes_in[i] != 0);
    }
    for (uint32_t i = 0; i < shape.n_edges; i++) {
        assert_true(piece_of[from[i]] <= piece_of[to[i]]);
    }
}

static void split_chain_gives_equal_pieces(void **state)
{
    (void)state;
    begin(100);
    chain(0, 99);
    assert_int_equal(weir_graph_split(&shape, 4, piece_of), 4);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(piece_of[i], i / 25);
    }
}

static void split_weights_count(void **state)
{
    (void)state;
    begin(8);
    chain(0, 7);
    weights[0] = weights[1] = 50; /* the others together weigh 6 */
    assert_int_equal(weir_graph_split(&shape, 2, piece_of), 2);
    assert_int_equal(piece_of[0], 0);
    for (uint32_t i = 1; i < 8; i++) {
        assert_int_equal(piece_of[i], 1);
    }
}

static void split_heavy_node_has_a_piece_of_its_own(void **state)
{
    (void)state;
    begin(5);
    chain(0, 4);
    weights[2] = 1000; /* of 4 pieces it would have all but the ends */
    assert_int_equal(weir_graph_split(&shape, 4, piece_of), 3);
    assert_valid(3);
    assert_true(piece_of[1] == 0 && piece_of[2] == 1 && piece_of[3] == 2);
}

static void split_branches_share_pieces(void **state)
{
    (void)state;
    begin(80); /* two chains that have nothing to do with each other */
    chain(0, 39);
    chain(40, 79);
    assert_int_equal(weir_graph_split(&shape, 4, piece_of), 4);
    assert_valid(4);
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(piece_of[i], i / 10);
        assert_int_equal(piece_of[40 + i], i / 10);
    }
}

/* Two nodes side by side in the middle of a chain, where the cut would be. */
static void split_cut_goes_where_nothing_is_open(void **state)
{
    (void)state;
    begin(36);
    chain(0, 16);
    edge(16, 17);
    edge(16, 18);
    edge(17, 19);
    edge(18, 19);
    chain(19, 35);
    assert_int_equal(weir_graph_split(&shape, 2, piece_of), 2);
    assert_valid(2);
    assert_int_equal(piece_of[17], piece_of[18]); /* else they could not run side by side */
}

static void split_no_more_pieces_than_nodes(void **state)
{
    (void)state;
    begin(3);
    chain(0, 2);
    assert_int_equal(weir_graph_split(&shape, 100, piece_of), 3);
    assert_valid(3);
    assert_int_equal(weir_graph_split(&shape, 1, piece_of), 1);
    assert_valid(1);
}

static void split_circle_or_nothing_is_refused(void **state)
{
    (void)state;
    begin(3);
    chain(0, 2);
    edge(2, 1);
    assert_int_equal(weir_graph_split(&shape, 2, piece_of), 0);
    begin(0);
    assert_int_equal(weir_graph_split(&shape, 2, piece_of), 0);
}

static uint32_t draw(uint32_t below)
{
    static uint32_t seed = 1;

    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static uint64_t heaviest(uint32_t n_pieces)
{
    uint64_t sum[NODES_MAX] = {0}, most = 0;

    for (uint32_t i = 0; i < shape.n_nodes; i++) {
        sum[piece_of[i]] += weights[i];
    }
    for (uint32_t i = 0; i < n_pieces; i++) {
        most = sum[i] > most ? sum[i] : most;
    }
    return most;
}

/* Edges lead from lower to higher numbers in random graphs, whose nodes are then shuffled. */
static void split_random_graphs_are_valid_and_even(void **state)
{
    uint32_t name[NODES_MAX];
    uint64_t all;

    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t n = 2 + draw(300), pieces = 1 + draw(20);
        uint32_t made;

        begin(n);
        all = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t other = draw(i + 1);

            name[i] = i;
            name[i] = name[other];
            name[other] = i;
            weights[i] = 1 + draw(9);
            all += weights[i];
        }
        for (uint32_t i = 1; i < n; i++) {
            for (uint32_t k = draw(4); k > 0; k--) {
                edge(name[draw(i)], name[i]);
            }
        }
        made = weir_graph_split(&shape, pieces, piece_of);
        assert_true(made >= 1 && made <= pieces);
        assert_valid(made);
        /* A quarter of slack at both ends, and a node that did not fit. */
        assert_true(heaviest(made) <= all / made + all / made + 2 * 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_chain_gives_equal_pieces),
        cmocka_unit_test(split_weights_count),
        cmocka_unit_test(split_heavy_node_has_a_piece_of_its_own),
        cmocka_unit_test(split_branches_share_pieces),
        cmocka_unit_test(split_cut_goes_where_nothing_is_open),
        cmocka_unit_test(split_no_more_pieces_than_nodes),
        cmocka_unit_test(split_circle_or_nothing_is_refused),
        cmocka_unit_test(split_random_graphs_are_valid_and_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
