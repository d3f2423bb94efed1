#include "base/id_table.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIND 7

static struct weir_id_table *make(bool origin_host, uint32_t capacity)
{
    struct weir_id_table *table;
    assert_int_equal(weir_id_table_create(KIND, origin_host, capacity, &table), WEIR_OK);
    return table;
}

static void handle_make_and_parts_agree(void **state)
{
    (void)state;
    weir_handle handle = weir_handle_make(0xab, true, 0x7abc, 0x123456);
    assert_int_equal(weir_handle_kind(handle), 0xab);
    assert_true(weir_handle_origin_host(handle));
    assert_int_equal(weir_handle_generation(handle), 0x7abc);
    assert_int_equal(weir_handle_index(handle), 0x123456);
    assert_int_equal(handle & 0xffff, WEIR_HANDLE_TAG);
}

static void create_bad_arguments_is_invalid(void **state)
{
    (void)state;
    struct weir_id_table *table;
    assert_int_equal(weir_id_table_create(0, false, 1, &table), WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_create(1, false, 0, &table), WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_create(1, false, WEIR_HANDLE_MAX_INDEX + 1, &table),
                     WEIR_ERR_INVALID);
    weir_id_table_destroy(NULL);
}

static void get_of_wild_values_is_null(void **state)
{
    (void)state;
    int object;
    weir_handle handle;
    struct weir_id_table *table = make(false, 100);
    assert_int_equal(weir_id_table_add(table, &object, &handle), WEIR_OK);
    assert_ptr_equal(weir_id_table_get(table, handle), &object);
    for (int bit = 0; bit < 64; bit++) {
        assert_null(weir_id_table_get(table, handle ^ 1ull << bit));
        assert_null(weir_id_table_remove(table, handle ^ 1ull << bit));
    }
    const weir_handle wild[] = {0,
                                1,
                                2,
                                UINT64_MAX,
                                (uintptr_t)&object,
                                weir_handle_make(KIND, false, 1, WEIR_HANDLE_MAX_INDEX)};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        assert_null(weir_id_table_get(table, wild[i]));
    }
    weir_id_table_destroy(table);
}

static void remove_makes_the_handle_stale_for_good(void **state)
{
    (void)state;
    int objects[2];
    weir_handle first, next = 0;
    struct weir_id_table *table = make(false, 1); /* the index must be used again at once */
    assert_int_equal(weir_id_table_add(table, &objects[0], &first), WEIR_OK);
    assert_ptr_equal(weir_id_table_remove(table, first), &objects[0]);
    assert_null(weir_id_table_remove(table, first));
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(weir_id_table_add(table, &objects[1], &next), WEIR_OK);
        assert_true(next != first);
        assert_null(weir_id_table_get(table, first));
        assert_ptr_equal(weir_id_table_remove(table, next), &objects[1]);
    }
    weir_id_table_destroy(table);
}

static void add_over_capacity_is_quota(void **state)
{
    (void)state;
    int object;
    weir_handle handles[700], extra;
    struct weir_id_table *table = make(false, 700);
    for (int i = 0; i < 700; i++) {
        assert_int_equal(weir_id_table_add(table, &object, &handles[i]), WEIR_OK);
    }
    assert_int_equal(weir_id_table_add(table, &object, &extra), WEIR_ERR_QUOTA);
    assert_int_equal(weir_id_table_count(table), 700);
    assert_non_null(weir_id_table_remove(table, handles[333]));
    assert_int_equal(weir_id_table_add(table, &object, &extra), WEIR_OK);
    assert_int_equal(weir_handle_index(extra), 333);
    weir_id_table_destroy(table);
}

static void put_takes_only_the_other_sides_names(void **state)
{
    (void)state;
    int object, other;
    struct weir_id_table *table = make(true, 1000);
    weir_handle handle = weir_handle_make(KIND, false, 77, 999);
    assert_int_equal(weir_id_table_put(table, handle, &object), WEIR_OK);
    assert_int_equal(weir_id_table_put(table, handle, &other), WEIR_ERR_EXISTS);
    assert_int_equal(weir_id_table_put(table, weir_handle_make(KIND, false, 78, 999), &other),
                     WEIR_ERR_EXISTS);
    assert_ptr_equal(weir_id_table_get(table, handle), &object);
    assert_int_equal(weir_id_table_put(table, weir_handle_make(KIND, true, 1, 5), &other),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_put(table, weir_handle_make(KIND + 1, false, 1, 5), &other),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_put(table, weir_handle_make(KIND, false, 1, 1000), &other),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_put(table, handle ^ 16, &other), WEIR_ERR_INVALID);
    assert_ptr_equal(weir_id_table_remove(table, handle), &object);
    assert_int_equal(weir_id_table_put(table, weir_handle_make(KIND, false, 78, 999), &other),
                     WEIR_OK);
    assert_null(weir_id_table_get(table, handle));
    weir_id_table_destroy(table);
}

struct visited {
    struct weir_id_table *table;
    uint32_t count;
    uint64_t last;
};

static void visit_one(weir_handle handle, void *object, void *user)
{
    struct visited *visited = user;
    uint64_t key = (uint64_t)weir_handle_origin_host(handle) << 32 | weir_handle_index(handle);
    assert_true(visited->count == 0 || key > visited->last);
    visited->last = key;
    visited->count++;
    assert_ptr_equal(weir_id_table_remove(visited->table, handle), object);
}

static void visit_sees_all_in_order_and_may_remove(void **state)
{
    (void)state;
    int object;
    weir_handle handle;
    struct weir_id_table *table = make(true, 5000);
    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(weir_id_table_add(table, &object, &handle), WEIR_OK);
        assert_int_equal(
            weir_id_table_put(table, weir_handle_make(KIND, false, 1, i * 99), &object), WEIR_OK);
    }
    struct visited visited = {.table = table};
    weir_id_table_visit(table, visit_one, &visited);
    assert_int_equal(visited.count, 100);
    assert_int_equal(weir_id_table_count(table), 0);
    weir_id_table_destroy(table);
}

struct race {
    struct weir_id_table *table;
    uint64_t handle; /* atomic: the newest */
    int stop;
};

/* Each object holds the low bits of its own handle, so a wrong answer is seen. */
static void *churn(void *user)
{
    static uint64_t objects[64];
    struct race *race = user;
    for (int i = 0; i < 20000; i++) {
        weir_handle handle;
        uint64_t *object = &objects[i % 64];
        assert_int_equal(weir_id_table_add(race->table, object, &handle), WEIR_OK);
        __atomic_store_n(object, handle, __ATOMIC_RELEASE);
        __atomic_store_n(&race->handle, handle, __ATOMIC_RELEASE);
        weir_id_table_remove(race->table, handle);
    }
    __atomic_store_n(&race->stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void get_races_with_add_and_remove(void **state)
{
    (void)state;
    struct race race = {.table = make(false, 4)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, churn, &race), 0);
    while (!__atomic_load_n(&race.stop, __ATOMIC_ACQUIRE)) {
        weir_handle handle = __atomic_load_n(&race.handle, __ATOMIC_ACQUIRE);
        void *object = weir_id_table_get(race.table, handle);
        (void)object; /* NULL, or live a moment ago: TSan judges */
    }
    pthread_join(thread, NULL);
    assert_int_equal(weir_id_table_count(race.table), 0);
    assert_null(weir_id_table_get(race.table, race.handle));
    weir_id_table_destroy(race.table);
}

static void put_own_takes_names_in_any_order(void **state)
{
    struct weir_id_table *table = make(true, 1000);
    weir_handle handle, last = weir_handle_make(KIND, true, 3, 700);
    weir_handle first = weir_handle_make(KIND, true, 2, 5);
    bool seen[1000] = {false};
    int object;

    (void)state;
    assert_int_equal(weir_id_table_put_own(table, weir_handle_make(KIND, false, 1, 1), &object),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_id_table_put_own(table, last, &object), WEIR_OK);
    assert_int_equal(weir_id_table_put_own(table, last, &object), WEIR_ERR_EXISTS);
    assert_int_equal(weir_id_table_put_own(table, first, &object), WEIR_OK);
    assert_ptr_equal(weir_id_table_get(table, first), &object);
    assert_ptr_equal(weir_id_table_remove(table, first), &object);
    assert_int_equal(weir_id_table_put_own(table, first, &object), WEIR_OK);
    seen[5] = seen[700] = true;
    for (int i = 0; i < 998; i++) { /* all others are free, and none comes twice */
        assert_int_equal(weir_id_table_add(table, &object, &handle), WEIR_OK);
        assert_false(seen[weir_handle_index(handle)]);
        seen[weir_handle_index(handle)] = true;
    }
    assert_int_equal(weir_id_table_add(table, &object, &handle), WEIR_ERR_QUOTA);
    weir_id_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_own_takes_names_in_any_order),
        cmocka_unit_test(handle_make_and_parts_agree),
        cmocka_unit_test(create_bad_arguments_is_invalid),
        cmocka_unit_test(get_of_wild_values_is_null),
        cmocka_unit_test(remove_makes_the_handle_stale_for_good),
        cmocka_unit_test(add_over_capacity_is_quota),
        cmocka_unit_test(put_takes_only_the_other_sides_names),
        cmocka_unit_test(visit_sees_all_in_order_and_may_remove),
        cmocka_unit_test(get_races_with_add_and_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
