/* host_backend/gate/process/needs.c: what kernels that share SMs need beside each other. */
#include "base/clock.h"
#include "host_backend/gate/process/served.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define BLOCK 1152u /* bytes of a twin without shared memory of its kernel's */
#define LATE  WEIR_NS_PER_S
#define NOW   (10 * LATE)

enum { SPMV, RG, SGEMM, N };

static struct weir_gate_process process;
static struct served_gpu gpus[2] = {{.process = &process}, {.process = &process}};
static struct served_port ports[N];
static struct served_queue queues[N];

static int set_up(void **state)
{
    (void)state;
    process.n_ports = N;
    for (uint32_t i = 0; i < N; i++) {
        queues[i] = (struct served_queue){.port = &ports[i], .gpu = &gpus[0]};
        ports[i].domain = 1;
        ports[i].queues = &queues[i];
        process.ports[i] = &ports[i];
    }
    return 0;
}

static void comes(int queue, uint64_t block_bytes, uint32_t blocks_per_sm, uint64_t now_ns)
{
    const struct weir_gate_request arrival = {.size = block_bytes, .blocks_per_sm = blocks_per_sm};

    served_need_note(&queues[queue].need, &arrival, now_ns);
}

/* Beside so many blocks of the queue's kernel, of which so many fit on an SM. */
static uint32_t beside(int queue, uint32_t block_limit, uint32_t blocks_per_sm, uint64_t now_ns)
{
    const struct served_item item = {.queue = &queues[queue], .blocks_per_sm = blocks_per_sm};

    return served_beside_bytes(&item, block_limit, now_ns);
}

static void who_needs_most_fills_what_the_block_limit_leaves(void **state)
{
    (void)state;
    comes(SPMV, BLOCK, 16, NOW);
    assert_int_equal(beside(SPMV, 9, 16, NOW), 0); /* nobody else */
    comes(RG, BLOCK, 5, NOW);
    assert_int_equal(beside(RG, 2, 5, NOW), 9 * BLOCK);
    assert_int_equal(beside(SPMV, 9, 16, NOW), 2 * BLOCK);
    comes(SGEMM, 9600, 4, NOW + 1);
    assert_int_equal(beside(SGEMM, 2, 4, NOW + 1), 8 * BLOCK);
    assert_int_equal(beside(SPMV, 9, 16, NOW + 1), 9600);
    assert_int_equal(beside(SPMV, 15, 16, NOW + 1), 9600); /* one block has to fit, too */
    assert_int_equal(beside(SPMV, 16, 16, NOW + 1), 0);    /* all of an SM .. */
    assert_int_equal(beside(SPMV, 20, 16, NOW + 1), 0);    /* .. or more than fit */
    assert_int_equal(beside(SPMV, 9, 0, NOW + 1), 0);      /* how many fit is not known */
}

static void what_came_long_ago_does_not_count(void **state)
{
    (void)state;
    comes(SGEMM, 9600, 4, NOW);
    comes(RG, BLOCK, 5, NOW + LATE);
    assert_int_equal(beside(SPMV, 9, 16, NOW + LATE), 9600);
    assert_int_equal(beside(SPMV, 9, 16, NOW + LATE + 1), 2 * BLOCK);
}

static void the_kernel_that_needs_most_stands_for_its_queue(void **state)
{
    (void)state;
    comes(SGEMM, 9600, 4, NOW);
    comes(SGEMM, BLOCK, 16, NOW + 1);
    assert_int_equal(beside(SPMV, 9, 16, NOW + 1), 9600);
    comes(SGEMM, BLOCK, 16, NOW + LATE + 1); /* the other one came long ago */
    assert_int_equal(beside(SPMV, 9, 16, NOW + LATE + 1), 7 * BLOCK);
}

static void others_on_other_gpus_or_under_other_servers_are_no_neighbours(void **state)
{
    (void)state;
    comes(RG, BLOCK, 5, NOW);
    queues[RG].gpu = &gpus[1];
    assert_int_equal(beside(SPMV, 9, 16, NOW), 0);
    queues[RG].gpu = &gpus[0];
    ports[RG].domain = 2;
    assert_int_equal(beside(SPMV, 9, 16, NOW), 0);
    ports[RG].domain = 1;
    assert_int_equal(beside(SPMV, 9, 16, NOW), 2 * BLOCK);
}

/* A worker may say what it likes. */
static void nonsense_is_bounded(void **state)
{
    (void)state;
    comes(RG, UINT64_MAX, UINT32_MAX, NOW);
    assert_in_range(beside(SPMV, 1, UINT32_MAX, NOW), 228 << 10, UINT32_MAX);
    comes(SGEMM, 0, 0, NOW);
    assert_int_equal(beside(RG, 1, 5, NOW), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_needs_most_fills_what_the_block_limit_leaves, set_up),
        cmocka_unit_test_setup(what_came_long_ago_does_not_count, set_up),
        cmocka_unit_test_setup(the_kernel_that_needs_most_stands_for_its_queue, set_up),
        cmocka_unit_test_setup(others_on_other_gpus_or_under_other_servers_are_no_neighbours,
                               set_up),
        cmocka_unit_test_setup(nonsense_is_bounded, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
