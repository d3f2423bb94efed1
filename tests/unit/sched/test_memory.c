/*
 * Running out of memory: the n-th allocation fails, for every n until a whole scenario goes
 * through. Each refusal leaves the scheduler as it was (tl_sched_check()) and nothing leaks (the
 * asan preset looks). Linked with --wrap for the allocators.
 */
#include "sched/policy.h"
#include "sched/predict.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sched_check.h"
#include <stdlib.h>

#define MOST_ALLOCATIONS 1000

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long allocations_left = -1; /* negative: no limit */

static int may_allocate(void)
{
    return allocations_left < 0 || allocations_left-- > 0;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    (void)user;
    (void)item;
    (void)item_user;
    (void)place;
    (void)level;
}

static void on_timer(void *user, uint64_t at_ns)
{
    (void)user;
    (void)at_ns;
}

/* 70 tenants: tables and lists grow in the middle. */
static enum weir_status fill(struct weir_sched *sched)
{
    const struct weir_sched_tenant_params params = {
        .name = "t", .weight = 1, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
    struct weir_sched_item_params item = {
        .class = WEIR_SCHED_KERNEL, .key = 1, .blocks = 5, .predicted_ns = 50000};

    for (int i = 0; i < 70; i++) {
        weir_sched_id tenant;
        weir_sched_id queue;
        weir_sched_id id;
        enum weir_status status = weir_sched_tenant_add(sched, 1, &params, &tenant);

        status = status == WEIR_OK ? weir_sched_queue_add(sched, tenant, 100, 0, &queue) : status;
        status = status == WEIR_OK ? weir_sched_arrive(sched, 1, queue, &item, &id) : status;
        if (status != WEIR_OK) {
            return status;
        }
        if (i == 0) { /* a measure: its table is made, or is not */
            assert_int_equal(weir_sched_finished(sched, 90000, id, 0), WEIR_OK);
        }
    }
    return WEIR_OK;
}

static enum weir_status scenario(void)
{
    const struct weir_sched_env env = {.start = on_start, .timer = on_timer};
    struct weir_sched_config config;
    struct weir_sched *sched = NULL;
    enum weir_status status;

    weir_sched_config_init(&config, 132);
    status = weir_sched_create(&config, &env, &sched);
    if (status != WEIR_OK) {
        return status;
    }
    status = fill(sched);
    assert_null(tl_sched_check(sched));
    if (status == WEIR_OK) {
        status = weir_sched_policy_set(sched, 100000, weir_policy_find("priority"));
        assert_null(tl_sched_check(sched));
    }
    weir_sched_tick(sched, 200000);
    assert_null(tl_sched_check(sched));
    weir_sched_destroy(sched);
    return status;
}

static void sched_each_failing_allocation_is_reported(void **state)
{
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    uint32_t failures = 0;
    long n = 0;

    (void)state;
    for (; allocations_left <= 0 && n < MOST_ALLOCATIONS; n++) {
        allocations_left = n;
        status = scenario();
        failures += status != WEIR_OK;
        assert_true(status == WEIR_OK || status == WEIR_ERR_NO_MEMORY);
    }
    allocations_left = -1;
    assert_int_equal(status, WEIR_OK);
    assert_in_range(failures, 10, MOST_ALLOCATIONS);
}

static void predict_each_failing_allocation_is_reported(void **state)
{
    (void)state;
    for (long n = 0; n < 3; n++) {
        struct weir_predict *predict;

        allocations_left = n;
        assert_int_equal(weir_predict_create(4, &predict), WEIR_ERR_NO_MEMORY);
    }
    allocations_left = -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sched_each_failing_allocation_is_reported),
        cmocka_unit_test(predict_each_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
