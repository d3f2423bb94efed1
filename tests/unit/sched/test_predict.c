/* Durations learned: lines, fading, errors, room; and what is written, read back or refused. */
#include "base/hash.h"
#include "sched/predict.h"
#include "tests/lib/tl_cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct weir_predict *make(uint32_t capacity)
{
    struct weir_predict *predict;

    assert_int_equal(weir_predict_create(capacity, &predict), WEIR_OK);
    return predict;
}

static void assert_near(uint64_t value, double expected, double relative)
{
    if ((double)value < expected * (1 - relative) || (double)value > expected * (1 + relative)) {
        fail_msg("%llu is not near %.0f", (unsigned long long)value, expected);
    }
}

static void create_refuses_what_it_cannot_hold(void **state)
{
    struct weir_predict *predict;

    (void)state;
    assert_int_equal(weir_predict_create(0, &predict), WEIR_ERR_INVALID);
    assert_int_equal(weir_predict_create((1u << 20) + 1, &predict), WEIR_ERR_INVALID);
    weir_predict_destroy(NULL);
}

static void ask_knows_nothing_at_first(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 0);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 0, 100, 5000); /* no key */
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, 0);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 0, 100), 0);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 0);
    weir_predict_destroy(predict);
}

static void a_supposition_gives_way_to_what_is_learned(void **state)
{
    struct weir_predict *predict = make(4), *again = make(4);
    uint8_t buffer[512];
    size_t bytes;

    (void)state;
    weir_predict_suppose(predict, WEIR_SCHED_KERNEL, 1, 100, 9000);
    weir_predict_suppose(predict, WEIR_SCHED_KERNEL, 1, 100, 9000);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 9000, 1e-6);
    assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
    assert_int_equal(weir_predict_save(predict, buffer, sizeof(buffer), &bytes), WEIR_OK);
    assert_int_equal(weir_predict_load(again, buffer, bytes), WEIR_OK);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, 1, 100), 0); /* it is not kept */
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, 5000);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 5000, 1e-6);
    assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
    weir_predict_suppose(predict, WEIR_SCHED_KERNEL, 1, 100, 9000);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, 5000);
    assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, 5000);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 5000, 1e-6);
    assert_true(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
    assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 2));
    weir_predict_destroy(predict);
    weir_predict_destroy(again);
}

static void learn_one_size_scales_in_proportion(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 1000, 50000);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 1000), 50000, 1e-6);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 3000), 150000, 1e-6);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 2, 1000), 0);
    weir_predict_learn(predict, WEIR_SCHED_GRAPH, 1, 0, 70000); /* another class, no size */
    assert_near(weir_predict_ask(predict, WEIR_SCHED_GRAPH, 1, 0), 70000, 1e-6);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 1000), 50000, 1e-6);
    weir_predict_destroy(predict);
}

static void learn_several_sizes_finds_the_line(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t blocks = 100 << i % 8;

        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 9, blocks, 4000 + 25 * blocks);
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 9, 777), 4000 + 25 * 777, 0.001);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 9, 1), 4025, 0.01);
    weir_predict_destroy(predict);
}

/* CuMAS: y = x / (a x + b), that is a constant and a rate. The key of a copy does not matter. */
static void learn_copies_from_bytes_to_gigabytes(void **state)
{
    struct weir_predict *predict = make(4);
    struct weir_predict_stats stats;

    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t bytes = 4ull << i % 28;

        weir_predict_learn(predict, WEIR_SCHED_H2D, i, bytes,
                           5600 + (uint64_t)((double)bytes / 55.4));
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_H2D, 0, 4), 5600, 0.01);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_H2D, 77, 1u << 30), 5600 + (1u << 30) / 55.4,
                0.01);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_D2H, 0, 4), 0);
    weir_predict_stats(predict, &stats);
    assert_int_equal(stats.keys, 1);
    assert_int_equal(stats.asked, 3);
    assert_int_equal(stats.known, 2);
    assert_int_equal(stats.learned, 60);
    assert_true(stats.kernels.count == 0 && stats.kernels.mean == 0);
    weir_predict_destroy(predict);
}

/* Small copies were seen only, then a large one comes. */
static void a_copy_is_not_as_slow_as_small_ones(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    weir_predict_learn(predict, WEIR_SCHED_MEMSET, 0, 4, 4400);
    weir_predict_learn(predict, WEIR_SCHED_MEMSET, 0, 4, 4400);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_MEMSET, 0, 4), 4400, 0.01);
    assert_in_range(weir_predict_ask(predict, WEIR_SCHED_MEMSET, 0, 50000000), 4400, 5100000);
    weir_predict_learn(predict, WEIR_SCHED_D2H, 0, 16000000, 300000); /* a large one: by its rate */
    assert_near(weir_predict_ask(predict, WEIR_SCHED_D2H, 0, 32000000), 600000, 0.01);
    weir_predict_destroy(predict);
}

static void learn_follows_a_change_but_not_an_outlier(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    for (int i = 0; i < 40; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, 100000);
    }
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, 1000000000);
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500), 100000, 0.15);
    for (int i = 0; i < 200; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, 200000);
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500), 200000, 0.2);
    for (int i = 0; i < 200; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, 20000);
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500), 20000, 0.1);
    weir_predict_destroy(predict);
}

/* The first ones were spoilt: those that agree count. What never agrees is believed at last. */
static void learn_begins_anew_until_some_agree(void **state)
{
    static const uint64_t took[] = {300, 1700, 1000, 1010, 1005};
    struct weir_predict *predict = make(4);

    (void)state;
    for (size_t i = 0; i < sizeof(took) / sizeof(took[0]); i++) {
        assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, took[i] * 1000);
    }
    assert_true(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 1));
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100), 1005000, 0.01);
    for (int i = 0; i < 16; i++) {
        assert_false(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 2));
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 2, 100, i % 2 == 0 ? 40000 : 700000);
    }
    assert_true(weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, 2));
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 2, 100), 370000, 0.25);
    weir_predict_destroy(predict);
}

/* One that was far too short makes the line low, and is hardly forgotten there; not so the mean. */
static void learn_is_not_misled_by_a_short_one(void **state)
{
    struct weir_predict *predict = make(4);

    (void)state;
    for (int i = 0; i < 9; i++) { /* it is no early one */
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, i < 8 ? 2000000 : 20000);
    }
    for (int i = 0; i < 100; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, 2000000);
        assert_true(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500) <= 2000100);
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500), 2000000, 0.01);
    weir_predict_destroy(predict);
}

/* One kernel with several arguments, or seen too late now and then: sums must come out right. */
static void learn_what_varies_by_its_mean(void **state)
{
    static const uint64_t took[] = {5000, 50000, 5000, 140000};
    struct weir_predict *predict = make(4);
    double said = 0, all = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        if (i >= 400) {
            said += (double)weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 500);
            all += (double)took[i % 4];
        }
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 500, took[i % 4]);
    }
    assert_true(said > 0.9 * all && said < 1.1 * all);
    weir_predict_destroy(predict);
}

static void table_forgets_what_was_unused_longest(void **state)
{
    struct weir_predict *predict = make(3);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, key, 10, 1000 * key);
    }
    assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 10), 1000, 1e-6);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 4, 10, 4000);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_KERNEL, 2, 10), 0);
    for (uint64_t key = 1; key <= 4; key += key == 1 ? 2 : 1) {
        assert_near(weir_predict_ask(predict, WEIR_SCHED_KERNEL, key, 10), 1000 * key, 1e-6);
    }
    weir_predict_destroy(predict);
}

static void *saved(struct weir_predict *predict, size_t *ret_bytes)
{
    size_t capacity = weir_predict_save_bytes(predict);
    void *buffer = malloc(capacity);

    assert_non_null(buffer);
    assert_int_equal(weir_predict_save(predict, buffer, capacity - 1, ret_bytes), WEIR_ERR_TOO_BIG);
    assert_int_equal(weir_predict_save(predict, buffer, capacity, ret_bytes), WEIR_OK);
    assert_int_equal(*ret_bytes, capacity);
    return buffer;
}

static struct weir_predict *taught(void)
{
    struct weir_predict *predict = make(8);

    for (uint64_t i = 0; i < 30; i++) {
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1 + i % 3, 100 * (1 + i % 5), 9000 + 70 * i);
        weir_predict_learn(predict, WEIR_SCHED_D2H, 0, 4096 << i % 10,
                           6000 + (4096u << i % 10) / 50);
    }
    return predict;
}

static void stats_sum_errors_up(void **state)
{
    struct weir_predict *predict = make(4);
    struct weir_predict_stats stats;

    (void)state;
    /* 10 % too much was said, then 30 %, then 50 % three times. */
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100, 10000);
    for (uint32_t i = 0; i < 5; i++) {
        double said = (double)weir_predict_ask(predict, WEIR_SCHED_KERNEL, 1, 100);

        weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 100,
                           (uint64_t)(said / (i == 0   ? 1.1
                                              : i == 1 ? 1.3
                                                       : 1.5)));
    }
    weir_predict_stats(predict, &stats);
    assert_int_equal(stats.kernels.count, 5);
    assert_true(fabs(stats.kernels.mean - (0.1 + 0.3 + 3 * 0.5) / 5) < 0.001);
    assert_true(fabs(stats.kernels.median - 0.5) < 0.5 * 0.03);
    assert_int_equal(stats.copies.count, 0);
    weir_predict_learn(predict, WEIR_SCHED_D2H, 0, 4096, 3000);
    weir_predict_learn(predict, WEIR_SCHED_D2H, 0, 4096, 3000); /* no error at all */
    weir_predict_stats(predict, &stats);
    assert_int_equal(stats.copies.count, 1);
    assert_true(stats.copies.mean < 1e-9 && stats.copies.median < 0.00105);
    weir_predict_destroy(predict);
}

static void save_leaves_graphs_out(void **state)
{
    struct weir_predict *predict = make(4), *again = make(4);
    size_t bytes;
    uint8_t *buffer;

    (void)state;
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 1, 1, 5000);
    weir_predict_learn(predict, WEIR_SCHED_GRAPH, 2, 0, 6000);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, 3, 1, 7000);
    buffer = malloc(weir_predict_save_bytes(predict));
    assert_non_null(buffer);
    assert_int_equal(weir_predict_save(predict, buffer, weir_predict_save_bytes(predict), &bytes),
                     WEIR_OK);
    assert_true(bytes < weir_predict_save_bytes(predict));
    assert_int_equal(weir_predict_load(again, buffer, bytes), WEIR_OK);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, 1, 1), 5000);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_GRAPH, 2, 0), 0);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, 3, 1), 7000);
    free(buffer);
    weir_predict_destroy(predict);
    weir_predict_destroy(again);
}

static void save_and_load_give_the_same_answers(void **state)
{
    struct weir_predict *predict = taught();
    struct weir_predict *again = make(8);
    struct weir_predict *small = make(2);
    size_t bytes;
    void *buffer = saved(predict, &bytes);

    (void)state;
    weir_predict_learn(again, WEIR_SCHED_KERNEL, 1, 100, 1); /* is replaced */
    assert_int_equal(weir_predict_load(again, buffer, bytes), WEIR_OK);
    for (uint64_t key = 1; key <= 3; key++) {
        assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, key, 250),
                         weir_predict_ask(predict, WEIR_SCHED_KERNEL, key, 250));
    }
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_D2H, 0, 1u << 20),
                     weir_predict_ask(predict, WEIR_SCHED_D2H, 0, 1u << 20));
    assert_int_equal(weir_predict_load(small, buffer, bytes), WEIR_OK); /* the newest two */
    assert_true(weir_predict_ask(small, WEIR_SCHED_D2H, 0, 4096) > 0);
    free(buffer);
    weir_predict_destroy(predict);
    weir_predict_destroy(again);
    weir_predict_destroy(small);
}

/* Whoever damages a file on purpose makes the checksum right again. */
static void sign(uint8_t *image, size_t bytes)
{
    uint64_t sum = weir_hash64_of(image, bytes - 8);

    for (int i = 0; i < 8; i++) {
        image[bytes - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    }
}

static void load_refuses_damage_and_keeps_what_it_has(void **state)
{
    struct weir_predict *predict = taught();
    struct weir_predict *victim = make(8);
    size_t bytes;
    uint8_t *buffer = saved(predict, &bytes);
    uint8_t *copy = malloc(bytes);

    (void)state;
    assert_non_null(copy);
    weir_predict_learn(victim, WEIR_SCHED_KERNEL, 1, 100, 1234);
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_int_not_equal(weir_predict_load(victim, buffer, cut), WEIR_OK);
    }
    for (size_t i = 0; i < bytes; i++) {
        memcpy(copy, buffer, bytes);
        copy[i] ^= 0x40;
        assert_int_not_equal(weir_predict_load(victim, copy, bytes), WEIR_OK);
    }
    memcpy(copy, buffer, bytes);
    copy[8]++;
    assert_int_equal(weir_predict_load(victim, copy, bytes), WEIR_ERR_VERSION);
    for (uint32_t field = 0; field < 8; field++) { /* not a number, infinite, negative */
        static const uint64_t evil[] = {0x7ff8000000000000u, 0x7ff0000000000000u,
                                        0xbff0000000000000u};

        for (int k = 0; k < 3; k++) {
            memcpy(copy, buffer, bytes);
            memcpy(copy + 24 + 16 + 8 * field, &evil[k], 8);
            sign(copy, bytes);
            assert_int_equal(weir_predict_load(victim, copy, bytes), WEIR_ERR_INVALID);
        }
    }
    memcpy(copy, buffer, bytes);
    copy[24 + 8] = WEIR_SCHED_CLASS_COUNT;
    sign(copy, bytes);
    assert_int_equal(weir_predict_load(victim, copy, bytes), WEIR_ERR_INVALID);
    memcpy(copy, buffer, bytes);
    memset(copy + 12, 0xff, 4); /* so many entries */
    sign(copy, bytes);
    assert_int_equal(weir_predict_load(victim, copy, bytes), WEIR_ERR_INVALID);
    assert_int_equal(weir_predict_ask(victim, WEIR_SCHED_KERNEL, 1, 100), 1234);
    free(buffer);
    free(copy);
    weir_predict_destroy(predict);
    weir_predict_destroy(victim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create_refuses_what_it_cannot_hold),
        cmocka_unit_test(ask_knows_nothing_at_first),
        cmocka_unit_test(a_supposition_gives_way_to_what_is_learned),
        cmocka_unit_test(learn_one_size_scales_in_proportion),
        cmocka_unit_test(learn_several_sizes_finds_the_line),
        cmocka_unit_test(learn_copies_from_bytes_to_gigabytes),
        cmocka_unit_test(a_copy_is_not_as_slow_as_small_ones),
        cmocka_unit_test(learn_follows_a_change_but_not_an_outlier),
        cmocka_unit_test(learn_begins_anew_until_some_agree),
        cmocka_unit_test(learn_is_not_misled_by_a_short_one),
        cmocka_unit_test(learn_what_varies_by_its_mean),
        cmocka_unit_test(table_forgets_what_was_unused_longest),
        cmocka_unit_test(stats_sum_errors_up),
        cmocka_unit_test(save_leaves_graphs_out),
        cmocka_unit_test(save_and_load_give_the_same_answers),
        cmocka_unit_test(load_refuses_damage_and_keeps_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
