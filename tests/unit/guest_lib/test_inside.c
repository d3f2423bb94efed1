/* Nobody is inside a context once it was waited for, with either kind of barrier. */
#include "guest_lib/inside.h"

#include "../../lib/tl_cmocka.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 100 };

#define CTX(n) ((const struct weir_guest_ctx *)(uintptr_t)((n)*64))

/* What the threads use while it is there. */
static struct {
    int there; /* atomic */
    int users; /* atomic */
    int over;  /* atomic */
} used;

static void *use(void *ctx)
{
    struct weir_inside *place = weir_inside_take();

    while (!__atomic_load_n(&used.over, __ATOMIC_RELAXED)) {
        weir_inside_enter(place, ctx);
        if (__atomic_load_n(&used.there, __ATOMIC_SEQ_CST)) {
            __atomic_fetch_add(&used.users, 1, __ATOMIC_RELAXED);
            __atomic_fetch_sub(&used.users, 1, __ATOMIC_RELAXED);
        }
        weir_inside_leave(place);
    }
    weir_inside_give(place);
    return NULL;
}

static void goes_while_threads_use_it(const struct weir_guest_ctx *entered, bool fences)
{
    pthread_t threads[THREADS];

    weir_inside_init();
    weir_inside_fences |= fences;
    used.over = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)entered);
    }
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_store_n(&used.there, 0, __ATOMIC_SEQ_CST);
        weir_inside_wait(CTX(1), NULL);
        assert_int_equal(__atomic_load_n(&used.users, __ATOMIC_RELAXED), 0);
        __atomic_store_n(&used.there, 1, __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&used.over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void wait_ends_when_nobody_is_inside(void **state)
{
    (void)state;
    goes_while_threads_use_it(CTX(1), false);
    goes_while_threads_use_it(CTX(1), true);
}

static void wait_counts_calls_that_may_find_it(void **state)
{
    (void)state;
    goes_while_threads_use_it(WEIR_INSIDE_ANY, false);
    goes_while_threads_use_it(WEIR_INSIDE_ANY, true);
}

static const struct weir_guest_ctx *numbered(int n)
{
    return n == 8 ? WEIR_INSIDE_ALL : n == 9 ? WEIR_INSIDE_ANY : CTX(n);
}

/* Each row: contexts entered in turn, and what the place is in then; 8 is several, 9 is any. */
static void enter_keeps_what_the_call_uses(void **state)
{
    static const struct {
        int entered[3], in;
    } rows[] = {
        {{1}, 1},    {{9}, 9},    {{9, 1}, 1},    {{1, 9}, 1},
        {{1, 1}, 1}, {{1, 2}, 8}, {{1, 2, 1}, 8}, {{9, 1, 2}, 8},
    };
    struct weir_inside *place = weir_inside_take();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weir_inside_leave(place);
        for (int k = 0; k < 3 && rows[i].entered[k]; k++) {
            int n = rows[i].entered[k];
            weir_inside_enter(place, numbered(n));
        }
        assert_ptr_equal(place->ctx, numbered(rows[i].in));
    }
    weir_inside_give(place);
}

static void wait_leaves_out_others_and_itself(void **state)
{
    struct weir_inside *mine = weir_inside_take(), *other = weir_inside_take();

    (void)state;
    weir_inside_enter(mine, CTX(1));
    weir_inside_enter(other, CTX(2));
    weir_inside_wait(CTX(1), mine); /* returns */
    assert_null(mine->ctx);
    assert_ptr_equal(other->ctx, CTX(2));
    weir_inside_give(mine);
    weir_inside_give(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_ends_when_nobody_is_inside),
        cmocka_unit_test(wait_counts_calls_that_may_find_it),
        cmocka_unit_test(enter_keeps_what_the_call_uses),
        cmocka_unit_test(wait_leaves_out_others_and_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
