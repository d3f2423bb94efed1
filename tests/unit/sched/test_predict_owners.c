/* Whose durations are whose: no owner reaches another's, nor pushes them out. */
#include "../../lib/tl_cmocka.h"
#include "sched/predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct weir_predict *make(uint32_t capacity)
{
    struct weir_predict *predict;

    assert_int_equal(weir_predict_create(capacity, &predict), WEIR_OK);
    return predict;
}

static uint64_t comes(struct weir_predict *predict, const char *name)
{
    uint64_t owner;

    assert_int_equal(weir_predict_owner_comes(predict, name, &owner), WEIR_OK);
    assert_int_equal(owner & WEIR_PREDICT_KEY_MASK, 0);
    assert_int_not_equal(owner, 0);
    return owner;
}

static void teach(struct weir_predict *predict, uint64_t owner, uint64_t first, uint64_t n)
{
    for (uint64_t key = first; key < first + n; key++) {
        for (int i = 0; i < 3; i++) {
            weir_predict_learn(predict, WEIR_SCHED_KERNEL, owner | key, 10, 1000);
        }
    }
}

static uint32_t known(struct weir_predict *predict, uint64_t owner, uint64_t first, uint64_t n)
{
    uint32_t found = 0;

    for (uint64_t key = first; key < first + n; key++) {
        found += weir_predict_is_sure(predict, WEIR_SCHED_KERNEL, owner | key);
    }
    return found;
}

static void an_owner_is_found_by_its_name(void **state)
{
    struct weir_predict *predict = make(16);
    uint64_t a = comes(predict, "a"), b = comes(predict, "b");

    (void)state;
    assert_int_not_equal(a, b);
    assert_int_equal(comes(predict, "a"), a);
    weir_predict_owner_goes(predict, a);
    assert_int_equal(comes(predict, "a"), a);
    weir_predict_destroy(predict);
}

static void copies_have_a_line_for_each_owner(void **state)
{
    struct weir_predict *predict = make(16);
    uint64_t a = comes(predict, "a"), b = comes(predict, "b");

    (void)state;
    weir_predict_learn(predict, WEIR_SCHED_H2D, a, 1000, 5000);
    weir_predict_learn(predict, WEIR_SCHED_H2D, b | 77, 1000, 9000000);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_H2D, a | 5, 1000), 5000);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_H2D, 0, 1000), 0);
    assert_int_equal(weir_predict_ask(predict, WEIR_SCHED_D2H, a, 1000), 0);
    weir_predict_destroy(predict);
}

static void an_owner_has_a_quarter_at_most(void **state)
{
    struct weir_predict *predict = make(64);
    uint64_t a = comes(predict, "a"), b = comes(predict, "b");
    struct weir_predict_stats stats;

    (void)state;
    teach(predict, b, 1, 3);
    teach(predict, a, 1, 100);
    assert_int_equal(known(predict, a, 1, 100), 16);
    assert_int_equal(known(predict, a, 85, 16), 16); /* the last ones */
    assert_int_equal(known(predict, b, 1, 3), 3);
    weir_predict_stats(predict, &stats);
    assert_int_equal(stats.keys, 19);
    weir_predict_destroy(predict);
}

/* Eight take what there is, and then each has an eighth, whoever teaches most. */
static void no_owner_is_pushed_below_an_equal_part(void **state)
{
    struct weir_predict *predict = make(64);
    uint64_t owner[8];

    (void)state;
    for (int i = 0; i < 8; i++) {
        char name[] = {(char)('a' + i), 0};

        owner[i] = comes(predict, name);
    }
    teach(predict, owner[0], 1, 8);
    for (int round = 0; round < 3; round++) {
        for (int i = 1; i < 8; i++) {
            teach(predict, owner[i], 1 + (uint64_t)round * 100, 100);
        }
    }
    assert_int_equal(known(predict, owner[0], 1, 8), 8);
    weir_predict_destroy(predict);
}

static void who_is_gone_makes_room_first(void **state)
{
    struct weir_predict *predict = make(16);
    uint64_t a = comes(predict, "a"), gone = comes(predict, "gone"), other[3];

    (void)state;
    teach(predict, a, 1, 4);
    teach(predict, gone, 1, 2);
    weir_predict_owner_goes(predict, gone);
    for (int i = 0; i < 3; i++) {
        char name[] = {(char)('x' + i), 0};

        other[i] = comes(predict, name);
        teach(predict, other[i], 1, 4);
    }
    assert_int_equal(known(predict, gone, 1, 2), 0);
    assert_int_equal(known(predict, a, 1, 4), 4);
    weir_predict_destroy(predict);
}

/* More names than there are places for come and go; what is in use stays. */
static void names_are_reused(void **state)
{
    struct weir_predict *predict = make(64);
    uint64_t stays = comes(predict, "stays"), owner;
    char name[16];

    (void)state;
    teach(predict, stays, 1, 3);
    for (uint32_t i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "job-%u", i);
        owner = comes(predict, name);
        assert_int_not_equal(owner, stays);
        weir_predict_learn(predict, WEIR_SCHED_KERNEL, owner | 1, 10, 1000);
        weir_predict_owner_goes(predict, owner);
    }
    assert_int_equal(known(predict, stays, 1, 3), 3);
    assert_int_equal(comes(predict, "stays"), stays);
    weir_predict_destroy(predict);
}

static void more_names_than_places_in_use_are_refused(void **state)
{
    struct weir_predict *predict = make(4);
    uint64_t owner;
    char name[16];

    (void)state;
    for (uint32_t i = 1; i < 1024; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(comes(predict, name) >> WEIR_PREDICT_KEY_BITS, i);
    }
    assert_int_equal(weir_predict_owner_comes(predict, "one more", &owner), WEIR_ERR_NO_MEMORY);
    weir_predict_destroy(predict);
}

/* Names stay, numbers need not. */
static void save_and_load_keep_owners_apart(void **state)
{
    struct weir_predict *predict = make(64), *again = make(64);
    uint64_t a = comes(predict, "a"), b = comes(predict, "b"), bytes_of[2];
    size_t room, bytes;
    void *image;

    (void)state;
    (void)comes(predict, "nothing is known of");
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, a | 1, 10, 1000);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, b | 1, 10, 7000);
    weir_predict_learn(predict, WEIR_SCHED_H2D, b, 10, 3000);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, UINT64_C(0xfffe) << 48 | 1, 10, 4000);
    room = weir_predict_save_bytes(predict);
    image = malloc(room);
    assert_non_null(image);
    assert_int_equal(weir_predict_save(predict, image, room, &bytes), WEIR_OK);
    bytes_of[1] = comes(again, "b"); /* another number */
    assert_int_equal(weir_predict_load(again, image, bytes), WEIR_OK);
    bytes_of[0] = comes(again, "a");
    assert_int_not_equal(bytes_of[1], b);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, bytes_of[0] | 1, 10), 1000);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, bytes_of[1] | 1, 10), 7000);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_H2D, bytes_of[1], 10), 3000);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_H2D, bytes_of[0], 10), 0);
    assert_int_equal(weir_predict_ask(again, WEIR_SCHED_KERNEL, UINT64_C(0xfffe) << 48 | 1, 10),
                     4000);
    free(image);
    weir_predict_destroy(predict);
    weir_predict_destroy(again);
}

static uint8_t rows[8][WEIR_PREDICT_ROW_BYTES];
static uint32_t n_rows, rows_wanted;

static bool take_row(void *user, const uint8_t bytes[WEIR_PREDICT_ROW_BYTES])
{
    (void)user;
    memcpy(rows[n_rows++], bytes, WEIR_PREDICT_ROW_BYTES);
    return n_rows != rows_wanted;
}

/* One owner's alone, and what is sure; the other side need not have names. */
static void rows_are_taken_over_without_their_owner(void **state)
{
    struct weir_predict *predict = make(64), *worker = make(64);
    uint64_t a = comes(predict, "a"), b = comes(predict, "b");

    (void)state;
    teach(predict, a, 1, 2);
    teach(predict, b, 1, 5);
    weir_predict_learn(predict, WEIR_SCHED_KERNEL, a | 9, 10, 1000); /* not sure */
    weir_predict_learn(worker, WEIR_SCHED_KERNEL, 2, 10, 8000);
    n_rows = 0;
    rows_wanted = 8;
    weir_predict_rows(predict, a, take_row, NULL);
    assert_int_equal(n_rows, 2);
    for (uint32_t i = 0; i < n_rows; i++) {
        weir_predict_take_row(worker, rows[i]);
    }
    assert_int_equal(weir_predict_ask(worker, WEIR_SCHED_KERNEL, 1, 10), 1000);
    assert_true(weir_predict_is_sure(worker, WEIR_SCHED_KERNEL, 1));
    assert_int_equal(weir_predict_ask(worker, WEIR_SCHED_KERNEL, 2, 10), 8000); /* its own */
    memset(rows[0], 0xff, sizeof rows[0]);
    weir_predict_take_row(worker, rows[0]);
    n_rows = 0;
    rows_wanted = 1;
    weir_predict_rows(predict, b, take_row, NULL);
    assert_int_equal(n_rows, 1);
    weir_predict_destroy(predict);
    weir_predict_destroy(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_is_found_by_its_name),
        cmocka_unit_test(copies_have_a_line_for_each_owner),
        cmocka_unit_test(an_owner_has_a_quarter_at_most),
        cmocka_unit_test(no_owner_is_pushed_below_an_equal_part),
        cmocka_unit_test(who_is_gone_makes_room_first),
        cmocka_unit_test(names_are_reused),
        cmocka_unit_test(more_names_than_places_in_use_are_refused),
        cmocka_unit_test(save_and_load_keep_owners_apart),
        cmocka_unit_test(rows_are_taken_over_without_their_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
