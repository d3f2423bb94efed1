/* The model of a GPU: times that a pencil gives. A block of `kernel()` takes 1000 ns. */
#include "sched/sim/gpu.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 32

struct bench {
    struct weir_sim_gpu *gpu;
    struct weir_sim_event events[EVENTS_MAX];
    unsigned n;
    double held; /* SM-nanoseconds, by the watcher */
};

static const struct weir_sim_place anywhere;

static void on_hold(void *user, const struct weir_sim_hold *hold)
{
    struct bench *b = user;
    assert_true(hold->to_ns > hold->from_ns);
    b->held += (double)(hold->to_ns - hold->from_ns) * hold->sm_count * (double)hold->share;
}

static void make(struct bench *b, const char *text)
{
    struct weir_sim_gpu_params params;
    char error[256];
    memset(b, 0, sizeof *b);
    assert_int_equal(weir_sim_gpu_find(text, &params, error), WEIR_OK);
    assert_int_equal(weir_sim_gpu_create(&params, &b->gpu), WEIR_OK);
    weir_sim_gpu_watch(b->gpu, on_hold, b);
}

static struct weir_sim_work kernel(uint32_t stream, uint32_t blocks)
{
    return (struct weir_sim_work){.engine = WEIR_SIM_COMPUTE,
                                  .stream = stream,
                                  .sm_ns = blocks * UINT64_C(1000),
                                  .blocks = blocks,
                                  .blocks_per_sm = 1,
                                  .block_threads = 100};
}

static void start(struct bench *b, uint64_t now_ns, uint64_t id, struct weir_sim_work work,
                  struct weir_sim_place place)
{
    assert_int_equal(weir_sim_gpu_start(b->gpu, now_ns, id, &work, &place), WEIR_OK);
}

/* Let time pass; events are kept. */
static void until(struct bench *b, uint64_t to_ns)
{
    while (weir_sim_gpu_advance(b->gpu, to_ns, &b->events[b->n])) {
        assert_true(++b->n < EVENTS_MAX);
    }
}

static const struct weir_sim_event *of(const struct bench *b, uint64_t id,
                                       enum weir_sim_event_kind kind)
{
    for (unsigned i = 0; i < b->n; i++) {
        if (b->events[i].id == id && b->events[i].kind == kind) {
            return &b->events[i];
        }
    }
    fail_msg("no such event of %d", (int)id);
    return NULL;
}

static void assert_ends(const struct bench *b, uint64_t id, uint64_t at_ns)
{
    assert_int_equal(of(b, id, WEIR_SIM_FINISHED)->at_ns, at_ns);
}

static void finish(struct bench *b)
{
    struct weir_sim_usage usage;
    weir_sim_gpu_end(b->gpu);
    weir_sim_gpu_usage(b->gpu, &usage);
    assert_float_equal(usage.sm_ns, b->held, 1 + b->held * 1e-6);
    assert_int_equal(weir_sim_gpu_next_ns(b->gpu), UINT64_MAX);
    weir_sim_gpu_destroy(b->gpu);
}

static void start_of_two_kernels_runs_them_in_turn(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10");
    start(&b, 0, 1, kernel(1, 100), anywhere);
    start(&b, 0, 2, kernel(2, 100), anywhere);
    until(&b, 100000);
    assert_ends(&b, 1, 10000);
    assert_ends(&b, 2, 20000);
    assert_int_equal(of(&b, 2, WEIR_SIM_FINISHED)->begun_ns, 10000);
    assert_int_equal(of(&b, 2, WEIR_SIM_FINISHED)->done_blocks, 100);
    assert_float_equal(b.held, 200000, 1);
    finish(&b);
}

static void start_of_a_small_kernel_leaves_the_rest(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10");
    start(&b, 0, 1, kernel(1, 4), anywhere);
    start(&b, 0, 2, kernel(2, 60), anywhere);
    until(&b, 100000);
    assert_ends(&b, 1, 1000);
    assert_ends(&b, 2, 6400); /* six SMs for 1000 ns, then ten */
    finish(&b);
}

static void times_around_work_are_those_of_the_device(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "h200");
    start(&b, 0, 1, kernel(1, 132), anywhere);
    until(&b, 100000);
    assert_int_equal(of(&b, 1, WEIR_SIM_FINISHED)->begun_ns, 2507);
    assert_int_equal(of(&b, 1, WEIR_SIM_FINISHED)->ended_ns, 3507);
    assert_ends(&b, 1, 1000 + 7378); /* docs/measurements/one-tenant.md: launch_sync */
    finish(&b);
}

static void stop_and_resume_lose_no_block(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10,stop_ns=500,resume_ns=100");
    start(&b, 0, 1, kernel(1, 100), anywhere);
    start(&b, 0, 2, kernel(2, 10), anywhere);
    until(&b, 2000);
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 2000, 1), WEIR_OK);
    until(&b, 5000);
    assert_int_equal(of(&b, 1, WEIR_SIM_STOPPED)->at_ns, 3500); /* 500 and a block */
    assert_int_equal(of(&b, 1, WEIR_SIM_STOPPED)->done_blocks, 35);
    assert_ends(&b, 2, 4500);
    assert_int_equal(weir_sim_gpu_resume(b.gpu, 5000, 1, &anywhere), WEIR_OK);
    until(&b, 100000);
    assert_ends(&b, 1, 5100 + 6500);
    assert_int_equal(of(&b, 1, WEIR_SIM_FINISHED)->done_blocks, 100);
    finish(&b);
}

/* To go on is to be launched again. */
static void what_goes_on_comes_behind_what_came_meanwhile(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10,stop_ns=500,resume_ns=100");
    start(&b, 0, 1, kernel(1, 100), anywhere);
    until(&b, 2000);
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 2000, 1), WEIR_OK);
    until(&b, 3500);
    assert_int_equal(of(&b, 1, WEIR_SIM_STOPPED)->at_ns, 3500);
    start(&b, 3500, 2, kernel(2, 50), anywhere);
    until(&b, 5000);
    assert_int_equal(weir_sim_gpu_resume(b.gpu, 5000, 1, &anywhere), WEIR_OK);
    until(&b, 100000);
    assert_ends(&b, 2, 8500);
    assert_ends(&b, 1, 8500 + 6500);
    finish(&b);
}

static void stop_of_what_waits_and_what_ends_first(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10,stop_ns=500");
    start(&b, 0, 1, kernel(1, 10), anywhere);
    start(&b, 0, 2, kernel(1, 10), anywhere); /* behind it in its stream */
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 0, 2), WEIR_OK);
    until(&b, 900);
    assert_int_equal(of(&b, 2, WEIR_SIM_STOPPED)->at_ns, 500);
    assert_int_equal(of(&b, 2, WEIR_SIM_STOPPED)->done_blocks, 0);
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 900, 1), WEIR_OK);
    until(&b, 5000);
    assert_ends(&b, 1, 1000); /* it was quicker */
    assert_int_equal(weir_sim_gpu_resume(b.gpu, 5000, 2, &anywhere), WEIR_OK);
    until(&b, 9000);
    assert_ends(&b, 2, 6000);
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 9000, 2), WEIR_ERR_NOT_FOUND);
    finish(&b);
}

static void stop_of_a_ticket_form_drains_what_is_left(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work work = kernel(1, 100);
    make(&b, "ideal,sms=10,stop_ns=500,drain_ps=1000");
    work.one_shot = true;
    start(&b, 0, 1, work, anywhere);
    until(&b, 2000);
    assert_int_equal(weir_sim_gpu_stop(b.gpu, 2000, 1), WEIR_OK);
    until(&b, 20000);
    /* 65 blocks of four warps, a nanosecond each. */
    assert_int_equal(of(&b, 1, WEIR_SIM_STOPPED)->at_ns, 3500 + 260);
    assert_int_equal(of(&b, 1, WEIR_SIM_STOPPED)->done_blocks, 35);
    weir_sim_gpu_destroy(b.gpu);
}

static void places_and_block_limits_bound_kernels(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work half = kernel(3, 100);
    half.blocks_per_sm = 2;
    make(&b, "ideal,sms=10");
    start(&b, 0, 1, kernel(1, 100), (struct weir_sim_place){0, 5, 0});
    start(&b, 0, 2, kernel(2, 100), (struct weir_sim_place){5, 5, 0});
    until(&b, 30000);
    assert_ends(&b, 1, 20000);
    assert_ends(&b, 2, 20000);
    start(&b, 30000, 3, half, (struct weir_sim_place){0, 0, 1});
    until(&b, 60000);
    assert_ends(&b, 3, 50000); /* half of each SM */
    const struct weir_sim_place beyond = {5, 6, 0};
    struct weir_sim_work work = kernel(4, 1);
    assert_int_equal(weir_sim_gpu_start(b.gpu, 60000, 4, &work, &beyond), WEIR_ERR_INVALID);
    finish(&b);
}

static void resize_takes_effect_after_its_time(void **state)
{
    (void)state;
    struct bench b;
    const struct weir_sim_place five = {0, 5, 0};
    make(&b, "ideal,sms=10,stop_ns=500,resume_ns=100");
    start(&b, 0, 1, kernel(1, 100), anywhere);
    until(&b, 1000);
    assert_int_equal(weir_sim_gpu_resize(b.gpu, 1000, 1, &five), WEIR_OK);
    until(&b, 6500); /* 2500: all; then half: 25 + 20 blocks done at 6500 */
    assert_int_equal(weir_sim_gpu_resize(b.gpu, 6500, 1, &anywhere), WEIR_OK);
    until(&b, 100000); /* at 6600 45.5 blocks are done */
    assert_ends(&b, 1, 6600 + 5450);
    finish(&b);
}

static void memory_is_shared_evenly_and_complements_do_not_wait(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work bound = kernel(1, 100), other = kernel(2, 100);
    bound.need = other.need = 0.5;
    bound.memory = other.memory = 1;
    make(&b, "ideal,sms=10");
    start(&b, 0, 1, bound, (struct weir_sim_place){0, 5, 0});
    start(&b, 0, 2, other, (struct weir_sim_place){5, 5, 0});
    until(&b, 30000);
    assert_ends(&b, 1, 20000); /* each gets half of the bandwidth */
    assert_ends(&b, 2, 20000);
    bound.stream = 3;
    start(&b, 30000, 3, bound, (struct weir_sim_place){0, 5, 0});
    start(&b, 30000, 4, kernel(4, 100), (struct weir_sim_place){5, 5, 0});
    until(&b, 90000);
    assert_ends(&b, 3, 40000); /* half of the SMs are enough for it */
    assert_ends(&b, 4, 50000);
    finish(&b);
}

static void rank_takes_what_becomes_free(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work high = kernel(2, 10);
    high.rank = 2;
    make(&b, "ideal,sms=10");
    start(&b, 0, 1, kernel(1, 100), anywhere);
    until(&b, 2000);
    start(&b, 2000, 2, high, anywhere);
    until(&b, 100000);
    assert_int_equal(of(&b, 2, WEIR_SIM_FINISHED)->begun_ns, 2500); /* half a block later */
    assert_ends(&b, 2, 3500);
    assert_ends(&b, 1, 11000);
    finish(&b);
}

static void copies_queue_by_direction_and_streams_keep_order(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work up = {.engine = WEIR_SIM_H2D, .stream = 1, .bytes = 5000};
    struct weir_sim_work down = {.engine = WEIR_SIM_D2H, .stream = 2, .bytes = 3000};
    make(&b, "ideal,sms=10,h2d_mb_s=1000,d2h_mb_s=500"); /* 1 and 0.5 bytes a nanosecond */
    start(&b, 0, 1, up, anywhere);
    start(&b, 0, 2, kernel(1, 100), anywhere);
    up.stream = 3;
    start(&b, 0, 3, up, anywhere);
    start(&b, 0, 4, down, anywhere);
    until(&b, 100000);
    assert_ends(&b, 1, 5000);
    assert_ends(&b, 2, 15000);
    assert_ends(&b, 3, 10000);
    assert_ends(&b, 4, 6000);
    finish(&b);
}

static void advance_in_small_steps_gives_the_same(void **state)
{
    (void)state;
    uint64_t ends[2][4];
    for (int fine = 0; fine < 2; fine++) {
        struct bench b;
        make(&b, "h200");
        for (uint64_t id = 0; id < 4; id++) {
            struct weir_sim_work work = kernel((uint32_t)id, 1000 + 37 * (uint32_t)id);
            work.memory = 0.4;
            work.need = 0.3;
            start(&b, 0, id, work, (struct weir_sim_place){(uint32_t)id * 33, 33, 0});
        }
        for (uint64_t t = 0; fine && t < 100000; t += 777) {
            until(&b, t);
        }
        until(&b, 1000000);
        for (uint64_t id = 0; id < 4; id++) {
            ends[fine][id] = of(&b, id, WEIR_SIM_FINISHED)->at_ns;
        }
        finish(&b);
    }
    for (int i = 0; i < 4; i++) {
        assert_in_range(ends[1][i], ends[0][i] - 1, ends[0][i] + 1); /* sums of doubles */
    }
}

static void find_reads_settings_and_refuses_others(void **state)
{
    (void)state;
    struct weir_sim_gpu_params params;
    char error[256];
    static const char *const bad[] = {"",
                                      "h100",
                                      "h200,",
                                      "h200,sms",
                                      "h200,sms=",
                                      "h200,sms=0",
                                      "h200,sms=-1",
                                      "h200,sms=513",
                                      "h200,x=1",
                                      "h200,=1",
                                      "h200,sms=1x",
                                      "h200,sms=1,,",
                                      "h200,h2d_mb_s=0",
                                      "h200,stop_ns=99999999999999999999"};
    assert_int_equal(weir_sim_gpu_find("h200,sms=66,stop_ns=0", &params, error), WEIR_OK);
    assert_int_equal(params.sms, 66);
    assert_int_equal(params.stop_ns, 0);
    assert_int_equal(params.h2d_mb_s, 55471);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error[0] = '\0';
        print_message("'%s'\n", bad[i]);
        assert_int_not_equal(weir_sim_gpu_find(bad[i], &params, error), WEIR_OK);
        assert_true(error[0]);
    }
    for (size_t i = 0; weir_sim_gpu_at(i); i++) {
        struct weir_sim_gpu *gpu;
        assert_int_equal(weir_sim_gpu_create(weir_sim_gpu_at(i), &gpu), WEIR_OK);
        weir_sim_gpu_destroy(gpu);
    }
}

static void start_refuses_impossible_work(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work rows[] = {kernel(1, 0), kernel(1, 1), kernel(1, 1), kernel(1, 1),
                                   kernel(1, 1)};
    rows[1].blocks_per_sm = 0;
    rows[2].memory = 1.5;
    rows[3].sm_ns = UINT64_MAX;
    rows[4].engine = WEIR_SIM_ENGINES;
    make(&b, "ideal");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(weir_sim_gpu_start(b.gpu, 0, i, &rows[i], &anywhere), WEIR_ERR_INVALID);
    }
    struct weir_sim_work good = kernel(1, 1);
    start(&b, 0, 9, good, anywhere);
    assert_int_equal(weir_sim_gpu_start(b.gpu, 0, 9, &good, &anywhere), WEIR_ERR_INVALID);
    weir_sim_gpu_destroy(b.gpu);
    weir_sim_gpu_destroy(NULL);
}

static struct weir_sim_work kernel_of(uint32_t context, uint32_t stream, uint32_t blocks)
{
    struct weir_sim_work work = kernel(stream, blocks);
    work.context = context;
    return work;
}

/* It holds its SMs meanwhile: others have what it leaves. */
static void kernel_with_peers_makes_no_progress_until_they_are_there(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_usage usage;
    struct weir_sim_work work = kernel(1, 4);
    make(&b, "ideal,sms=10");
    work.has_peers = true;
    start(&b, 0, 1, kernel(2, 8), anywhere);
    start(&b, 0, 2, work, anywhere);
    until(&b, 5000);
    assert_ends(&b, 1, 1000);
    assert_int_equal(of(&b, 2, WEIR_SIM_BEGUN)->at_ns, 0);
    assert_int_equal(b.n, 2);
    start(&b, 5000, 3, kernel(3, 60), anywhere);
    until(&b, 8000);
    assert_int_equal(weir_sim_gpu_release(b.gpu, 2), WEIR_OK);
    until(&b, 100000);
    assert_ends(&b, 2, 9000);
    assert_ends(&b, 3, 9000 + 3600); /* on six SMs for 4 us, then on ten */
    assert_int_equal(weir_sim_gpu_release(b.gpu, 2), WEIR_ERR_NOT_FOUND);
    weir_sim_gpu_usage(b.gpu, &usage);
    assert_float_equal(usage.peers_sm_ns, 2 * 1000 + 4 * 7000, 1);
    finish(&b);
}

/* Beside each other there would be room for both. */
static void contexts_take_turns_and_a_change_takes_its_time(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_usage usage;
    make(&b, "ideal,sms=10,switch_ns=140");
    start(&b, 0, 1, kernel_of(7, 1, 4), anywhere);
    start(&b, 0, 2, kernel_of(8, 2, 4), anywhere);
    start(&b, 100, 3, kernel_of(7, 3, 4), anywhere);
    until(&b, 100000);
    assert_ends(&b, 1, 1000);
    assert_ends(&b, 3, 1100); /* beside the first: its own context's */
    assert_ends(&b, 2, 1100 + 140 + 1000);
    weir_sim_gpu_usage(b.gpu, &usage);
    assert_int_equal(usage.switches, 1);
    finish(&b);
}

static void context_that_waits_for_a_time_slice_is_next(void **state)
{
    (void)state;
    struct bench b;
    make(&b, "ideal,sms=10,switch_ns=140000");
    for (uint32_t i = 0; i < 3; i++) { /* each of 1.5 ms */
        start(&b, 0, i + 1, kernel_of(1, 1, 15000), anywhere);
    }
    start(&b, 0, 9, kernel_of(2, 2, 10000), anywhere);
    until(&b, 20000000);
    assert_ends(&b, 2, 3000000);
    assert_ends(&b, 9, 3000000 + 140000 + 1000000); /* 2 ms were over when the second ended */
    assert_ends(&b, 3, 4140000 + 140000 + 1500000);
    finish(&b);
}

static void copies_pass_beside_other_contexts(void **state)
{
    (void)state;
    struct bench b;
    struct weir_sim_work copy = {.engine = WEIR_SIM_H2D, .stream = 2, .bytes = 1000, .context = 8};
    make(&b, "ideal,sms=10,switch_ns=140,h2d_mb_s=1000");
    start(&b, 0, 1, kernel_of(7, 1, 40), anywhere);
    start(&b, 0, 2, copy, anywhere);
    until(&b, 100000);
    assert_ends(&b, 2, 1000);
    assert_ends(&b, 1, 4000);
    finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_of_two_kernels_runs_them_in_turn),
        cmocka_unit_test(start_of_a_small_kernel_leaves_the_rest),
        cmocka_unit_test(times_around_work_are_those_of_the_device),
        cmocka_unit_test(stop_and_resume_lose_no_block),
        cmocka_unit_test(what_goes_on_comes_behind_what_came_meanwhile),
        cmocka_unit_test(stop_of_what_waits_and_what_ends_first),
        cmocka_unit_test(stop_of_a_ticket_form_drains_what_is_left),
        cmocka_unit_test(places_and_block_limits_bound_kernels),
        cmocka_unit_test(resize_takes_effect_after_its_time),
        cmocka_unit_test(memory_is_shared_evenly_and_complements_do_not_wait),
        cmocka_unit_test(rank_takes_what_becomes_free),
        cmocka_unit_test(copies_queue_by_direction_and_streams_keep_order),
        cmocka_unit_test(advance_in_small_steps_gives_the_same),
        cmocka_unit_test(find_reads_settings_and_refuses_others),
        cmocka_unit_test(start_refuses_impossible_work),
        cmocka_unit_test(kernel_with_peers_makes_no_progress_until_they_are_there),
        cmocka_unit_test(contexts_take_turns_and_a_change_takes_its_time),
        cmocka_unit_test(context_that_waits_for_a_time_slice_is_next),
        cmocka_unit_test(copies_pass_beside_other_contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
