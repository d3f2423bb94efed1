/* base/account.h */
#include "base/account.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY WEIR_ACCOUNT_DEVICE_MEMORY
#define PINNED WEIR_ACCOUNT_PINNED_MEMORY

static void a_zeroed_account_may_have_nothing(void **state)
{
    struct weir_account account = {0};

    (void)state;
    assert_false(weir_account_charge(&account, MEMORY, 1));
    assert_true(weir_account_charge(&account, MEMORY, 0));
    assert_true(weir_account_left(&account, MEMORY) == 0);
}

static void a_charge_is_exact_at_the_limit(void **state)
{
    struct weir_account account = {0};

    (void)state;
    weir_account_limit_set(&account, MEMORY, 100);
    assert_true(weir_account_charge(&account, MEMORY, 60));
    assert_false(weir_account_charge(&account, MEMORY, 41));
    assert_true(weir_account_used(&account, MEMORY) == 60);
    assert_true(weir_account_charge(&account, MEMORY, 40));
    assert_false(weir_account_charge(&account, MEMORY, 1));
    weir_account_release(&account, MEMORY, 60);
    assert_true(weir_account_left(&account, MEMORY) == 60);
}

static void a_charge_near_the_largest_number_does_not_wrap(void **state)
{
    struct weir_account account = {0};

    (void)state;
    weir_account_limit_set(&account, MEMORY, 100);
    assert_true(weir_account_charge(&account, MEMORY, 10));
    assert_false(weir_account_charge(&account, MEMORY, UINT64_MAX));
    assert_false(weir_account_charge(&account, MEMORY, UINT64_MAX - 9));
    weir_account_limit_set(&account, MEMORY, UINT64_MAX);
    assert_true(weir_account_charge(&account, MEMORY, UINT64_MAX - 10));
    assert_false(weir_account_charge(&account, MEMORY, 1));
}

static void accounts_with_a_page_share_their_limit(void **state)
{
    static struct weir_account_page page;
    struct weir_account a = {.page = &page, .place = 3}, b = {.page = &page, .place = 250};

    (void)state;
    weir_account_limit_set(&a, MEMORY, 100);
    weir_account_limit_set(&b, MEMORY, 100);
    weir_account_limit_set(&a, WEIR_ACCOUNT_MAPPINGS, 10);
    weir_account_limit_set(&b, WEIR_ACCOUNT_MAPPINGS, 10);
    assert_true(weir_account_charge(&a, MEMORY, 60));
    assert_false(weir_account_charge(&b, MEMORY, 41));
    assert_true(weir_account_used(&b, MEMORY) == 0);
    assert_true(weir_account_left(&b, MEMORY) == 40);
    assert_true(weir_account_charge(&b, MEMORY, 40));
    assert_true(weir_account_charge(&a, WEIR_ACCOUNT_MAPPINGS, 10)); /* each process has its own */
    assert_true(weir_account_charge(&b, WEIR_ACCOUNT_MAPPINGS, 10));
    weir_account_release(&a, MEMORY, 10);
    assert_true(weir_account_charge(&b, MEMORY, 10));
    weir_account_page_settle(&page, 3); /* the process of a has died */
    assert_true(weir_account_left(&b, MEMORY) == 50);
    weir_account_page_settle(&page, 3);
    assert_true(weir_account_left(&b, MEMORY) == 50);
    weir_account_page_clear(&page);
    assert_true(weir_account_left(&b, MEMORY) == 100);
}

/* What the pool does not have is given back to the page. */
/* One of two processes has passed on what both use: neither's end gives it back. */
static void what_is_kept_outlives_who_charged_it(void **state)
{
    static struct weir_account_page page;
    struct weir_account pair[2];

    (void)state;
    memset(&page, 0, sizeof page);
    memset(pair, 0, sizeof pair);
    for (uint32_t i = 0; i < 2; i++) {
        pair[i].page = &page;
        pair[i].place = i;
        weir_account_limit_set(&pair[i], MEMORY, 100);
    }
    assert_true(weir_account_charge(&pair[0], MEMORY, 70));
    assert_false(weir_account_page_keep(&page, 1, MEMORY, 60));
    assert_true(weir_account_page_keep(&page, 0, MEMORY, 60));
    weir_account_passed_on(&pair[0], MEMORY, 60);
    assert_true(weir_account_used(&pair[0], MEMORY) == 10);
    weir_account_page_settle(&page, 0);
    assert_true(weir_account_left(&pair[1], MEMORY) == 40);
    weir_account_page_clear(&page);
    assert_true(weir_account_left(&pair[1], MEMORY) == 40);
    weir_account_page_release(&page, MEMORY, 60);
    assert_true(weir_account_left(&pair[1], MEMORY) == 100);
}

static void a_page_counts_nothing_that_the_pool_refuses(void **state)
{
    static struct weir_account_page page;
    struct weir_account_pool pool;
    struct weir_account account = {.page = &page, .pool = &pool};

    (void)state;
    weir_account_pool_init(&pool);
    weir_account_pool_divide(&pool, WEIR_ACCOUNT_HOST_MEMORY, 100, 1);
    weir_account_limit_set(&account, WEIR_ACCOUNT_HOST_MEMORY, UINT64_MAX);
    assert_false(weir_account_charge(&account, WEIR_ACCOUNT_HOST_MEMORY, 101));
    assert_true(atomic_load(&page.used[WEIR_ACCOUNT_HOST_MEMORY]) == 0);
    assert_true(atomic_load(&page.of[0][WEIR_ACCOUNT_HOST_MEMORY]) == 0);
}

static void a_limit_below_what_is_used_takes_nothing_away(void **state)
{
    struct weir_account account = {0};

    (void)state;
    weir_account_limit_set(&account, MEMORY, 100);
    assert_true(weir_account_charge(&account, MEMORY, 80));
    weir_account_limit_set(&account, MEMORY, 50);
    assert_true(weir_account_used(&account, MEMORY) == 80);
    assert_true(weir_account_left(&account, MEMORY) == 0);
    assert_false(weir_account_charge(&account, MEMORY, 0));
    weir_account_release(&account, MEMORY, 40);
    assert_true(weir_account_charge(&account, MEMORY, 10));
    assert_false(weir_account_charge(&account, MEMORY, 1));
}

static void items_do_not_share_a_limit(void **state)
{
    struct weir_account account = {0};

    (void)state;
    weir_account_limit_set(&account, MEMORY, 10);
    weir_account_limit_set(&account, PINNED, 20);
    assert_true(weir_account_charge(&account, PINNED, 20));
    assert_true(weir_account_charge(&account, MEMORY, 10));
    assert_false(weir_account_charge(&account, PINNED, 1));
}

static struct weir_account shared;

static void *charge_ones(void *ret_charged)
{
    uint64_t *charged = ret_charged;

    for (int i = 0; i < 20000; i++) {
        *charged += weir_account_charge(&shared, MEMORY, 1);
    }
    return NULL;
}

static void threads_together_reach_the_limit_and_no_more(void **state)
{
    uint64_t charged[4] = {0}, sum = 0;
    pthread_t threads[4];

    (void)state;
    weir_account_limit_set(&shared, MEMORY, 50000);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, charge_ones, &charged[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        sum += charged[i];
    }
    assert_true(sum == 50000);
    assert_true(weir_account_used(&shared, MEMORY) == 50000);
}

/* Of 100 descriptors two accounts are guaranteed 25 each. */
static struct weir_account_pool pool;
static struct weir_account pair[2];

static void divide(void)
{
    weir_account_pool_init(&pool);
    weir_account_pool_divide(&pool, WEIR_ACCOUNT_DESCRIPTORS, 100, 2);
    for (int i = 0; i < 2; i++) {
        pair[i] = (struct weir_account){.pool = &pool};
        weir_account_limit_set(&pair[i], WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    }
}

static void a_greedy_account_leaves_the_others_their_share(void **state)
{
    (void)state;
    divide();
    assert_true(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 20));
    assert_true(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 55));
    assert_false(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 1));
    assert_true(weir_account_charge(&pair[1], WEIR_ACCOUNT_DESCRIPTORS, 25));
    assert_false(weir_account_charge(&pair[1], WEIR_ACCOUNT_DESCRIPTORS, 1));
    weir_account_release(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 70); /* 50 of them are the pool's */
    assert_true(weir_account_charge(&pair[1], WEIR_ACCOUNT_DESCRIPTORS, 50));
    assert_true(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 20));
    assert_false(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 1));
}

static void a_pool_limits_only_what_it_divides(void **state)
{
    (void)state;
    divide();
    weir_account_limit_set(&pair[0], MEMORY, 1000);
    assert_true(weir_account_charge(&pair[0], MEMORY, 1000));
    assert_false(weir_account_charge(&pair[0], MEMORY, 1));
}

static void of_several_items_all_are_charged_or_none(void **state)
{
    const struct weir_amounts amounts = {
        .of = {[WEIR_ACCOUNT_PINNED_MEMORY] = 8, [WEIR_ACCOUNT_DESCRIPTORS] = 60}};
    enum weir_account_item refused = WEIR_ACCOUNT_COUNT;

    (void)state;
    divide();
    weir_account_limit_set(&pair[0], PINNED, 100);
    assert_true(weir_account_charge_all(&pair[0], &amounts, &refused));
    assert_false(weir_account_charge_all(&pair[0], &amounts, &refused));
    assert_int_equal(refused, WEIR_ACCOUNT_DESCRIPTORS);
    assert_string_equal(weir_account_item_text(refused), "descriptors");
    assert_true(weir_account_used(&pair[0], PINNED) == 8);
    weir_account_release_all(&pair[0], &amounts);
    assert_true(weir_account_used(&pair[0], PINNED) == 0);
    assert_true(atomic_load(&pool.used[WEIR_ACCOUNT_DESCRIPTORS]) == 0);
}

/* What a process has lent is its own again, though another one has used the room meanwhile. */
static void what_is_charged_again_may_exceed_the_limits(void **state)
{
    const struct weir_amounts lent = {.of = {[MEMORY] = 60, [WEIR_ACCOUNT_DESCRIPTORS] = 60}};
    static struct weir_account_page page;
    enum weir_account_item refused;

    (void)state;
    memset(&page, 0, sizeof page);
    divide();
    for (uint32_t i = 0; i < 2; i++) {
        pair[i].page = &page;
        pair[i].place = i;
        weir_account_limit_set(&pair[i], MEMORY, 100);
    }
    assert_true(weir_account_charge_all(&pair[0], &lent, &refused));
    weir_account_release_all(&pair[0], &lent);
    assert_true(weir_account_charge(&pair[1], MEMORY, 100));
    assert_true(weir_account_charge(&pair[1], WEIR_ACCOUNT_DESCRIPTORS, 70));
    weir_account_charge_again(&pair[0], &lent);
    assert_true(weir_account_used(&pair[0], MEMORY) == 60);
    assert_true(weir_account_left(&pair[1], MEMORY) == 0);
    weir_account_release(&pair[1], MEMORY, 100);
    assert_true(weir_account_left(&pair[1], MEMORY) == 40);
    weir_account_release(&pair[1], WEIR_ACCOUNT_DESCRIPTORS, 70);
    weir_account_release_all(&pair[0], &lent);
    assert_true(atomic_load(&page.used[MEMORY]) == 0);
    assert_true(atomic_load(&page.of[0][MEMORY]) == 0);
    assert_true(atomic_load(&pool.used[WEIR_ACCOUNT_DESCRIPTORS]) == 0);
}

/* Charge and release without end, around the share. */
static void *swing(void *user)
{
    struct weir_account *account = user;

    for (int i = 0; i < 20000; i++) {
        if (weir_account_charge(account, WEIR_ACCOUNT_DESCRIPTORS, 10)) {
            weir_account_release(account, WEIR_ACCOUNT_DESCRIPTORS, 10);
        }
    }
    return NULL;
}

static void threads_leave_a_pool_as_it_was(void **state)
{
    pthread_t threads[4];

    (void)state;
    divide();
    assert_true(weir_account_charge(&pair[0], WEIR_ACCOUNT_DESCRIPTORS, 21));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, swing, &pair[0]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(weir_account_used(&pair[0], WEIR_ACCOUNT_DESCRIPTORS) == 21);
    assert_true(atomic_load(&pool.used[WEIR_ACCOUNT_DESCRIPTORS]) == 0);
}

static uint64_t of_ended(const struct weir_account *account, struct weir_programs *programs,
                         uint64_t besides)
{
    return weir_account_of_ended(account, programs, besides, UINT64_MAX);
}

static void what_the_ended_hold_is_neither_kept_nor_of_the_living(void **state)
{
    static struct weir_account_page page;
    static struct weir_programs own;
    struct weir_account one = {.page = &page, .place = 1}, other = {.page = &page, .place = 2},
                        alone = {0};
    uint32_t lives = weir_programs_add(&page.programs, 1, 0, "lives");
    uint32_t ends = weir_programs_add(&page.programs, 1, 0, "ends");

    (void)state;
    weir_account_limit_set(&one, MEMORY, 200);
    weir_account_limit_set(&other, MEMORY, 200);
    weir_account_limit_set(&alone, MEMORY, 200);
    assert_true(weir_account_charge(&one, MEMORY, 70));
    assert_true(weir_account_page_keep(&page, 1, MEMORY, 20));
    assert_true(weir_account_charge(&other, MEMORY, 50)); /* of no program that the table has */
    weir_programs_hold(&page.programs, lives, 30);
    assert_true(of_ended(&one, &page.programs, 0) == 0);
    weir_programs_end(&page.programs, ends);
    assert_true(of_ended(&one, &page.programs, 0) == 20);
    assert_true(of_ended(&one, &page.programs, 5) == 15);
    assert_true(of_ended(&other, &page.programs, 5) == 20);
    assert_true(of_ended(&one, &page.programs, 60) == 0);

    assert_true(weir_account_charge(&alone, MEMORY, 70));
    ends = weir_programs_add(&own, 0, 0, "ends");
    assert_true(of_ended(&alone, &own, 0) == 0);
    weir_programs_end(&own, ends);
    assert_true(of_ended(&alone, &own, 10) == 60);
}

/* ---------------------------------------------------------------- what is granted */

static uint64_t asked, to_grant;

static void grant(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    asked += amount;
    if (amount <= to_grant) {
        to_grant -= amount;
        atomic_fetch_add(&account->page->granted[item], amount);
    }
}

static void no_more_is_charged_than_is_granted(void **state)
{
    static struct weir_account_page page;
    struct weir_account account = {.page = &page, .ask = grant};

    (void)state;
    weir_account_limit_set(&account, WEIR_ACCOUNT_PINNED_MEMORY, 100);
    weir_account_limit_set(&account, WEIR_ACCOUNT_DEVICE_MEMORY, 100);
    asked = 0;
    to_grant = 50;
    assert_true(weir_account_charge(&account, WEIR_ACCOUNT_PINNED_MEMORY, 30));
    assert_int_equal(asked, 30);
    assert_false(weir_account_charge(&account, WEIR_ACCOUNT_PINNED_MEMORY, 101));
    assert_int_equal(asked, 30); /* it is over the limit */
    assert_false(weir_account_charge(&account, WEIR_ACCOUNT_PINNED_MEMORY, 30));
    assert_true(weir_account_charge(&account, WEIR_ACCOUNT_PINNED_MEMORY, 20));
    assert_int_equal(atomic_load(&page.used[WEIR_ACCOUNT_PINNED_MEMORY]), 50);
    asked = 0;
    weir_account_release(&account, WEIR_ACCOUNT_PINNED_MEMORY, 40);
    assert_true(weir_account_charge(&account, WEIR_ACCOUNT_PINNED_MEMORY, 15));
    assert_true(weir_account_charge(&account, WEIR_ACCOUNT_DEVICE_MEMORY, 100));
    assert_int_equal(asked, 0);
    assert_int_equal(weir_account_page_trim(&page, WEIR_ACCOUNT_PINNED_MEMORY, 50), 25);
    assert_int_equal(atomic_load(&page.granted[WEIR_ACCOUNT_PINNED_MEMORY]), 25);
    atomic_store(&page.used[WEIR_ACCOUNT_PINNED_MEMORY], 1000); /* it lies */
    assert_int_equal(weir_account_page_trim(&page, WEIR_ACCOUNT_PINNED_MEMORY, 25), 25);
}

/* A thread charges and gives back while what it does not use is taken back: what is charged is
 * never more than what is granted. */
static void *charge_and_release(void *argument)
{
    struct weir_account *account = argument;

    for (int i = 0; i < 100000; i++) {
        if (weir_account_charge(account, WEIR_ACCOUNT_PINNED_MEMORY, 10)) {
            weir_account_release(account, WEIR_ACCOUNT_PINNED_MEMORY, 10);
        }
    }
    return NULL;
}

static void ask_nobody(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    (void)account;
    (void)item;
    (void)amount;
}

static void what_is_taken_back_is_not_charged_any_more(void **state)
{
    static struct weir_account_page page;
    struct weir_account account = {.page = &page, .ask = ask_nobody};
    pthread_t thread;

    (void)state;
    weir_account_limit_set(&account, WEIR_ACCOUNT_PINNED_MEMORY, UINT64_MAX);
    atomic_store(&page.granted[WEIR_ACCOUNT_PINNED_MEMORY], 10);
    assert_int_equal(pthread_create(&thread, NULL, charge_and_release, &account), 0);
    for (int i = 0; i < 10000; i++) {
        uint64_t granted = weir_account_page_trim(&page, WEIR_ACCOUNT_PINNED_MEMORY, 10);

        assert_true(granted == 0 || granted == 10);
        atomic_store(&page.granted[WEIR_ACCOUNT_PINNED_MEMORY], 10);
    }
    (void)weir_account_page_trim(&page, WEIR_ACCOUNT_PINNED_MEMORY, 10);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&page.used[WEIR_ACCOUNT_PINNED_MEMORY]), 0);
}

/* ---------------------------------------------------------------- supplies */

static bool one_more(uint64_t total, uint64_t *used, uint32_t n, uint32_t who)
{
    const struct weir_supply supply = {.total = total, .least = 1, .used = used, .n = n};
    bool allowed = weir_supply_allows(&supply, who, 1);

    used[who] += allowed;
    return allowed;
}

static uint32_t as_many_as_it_gets(uint64_t total, uint64_t *used, uint32_t n, uint32_t who)
{
    uint32_t got = 0;

    while (one_more(total, used, n, who)) {
        got++;
    }
    return got;
}

static void who_asks_first_leaves_the_others_their_parts(void **state)
{
    uint64_t used[4] = {0, 0, WEIR_SUPPLY_NOBODY, 0};

    (void)state;
    assert_int_equal(as_many_as_it_gets(24, used, 4, 0), 16); /* 4 for each, and 12 */
    assert_int_equal(as_many_as_it_gets(24, used, 4, 3), 4);
    used[0] -= 2;
    assert_int_equal(as_many_as_it_gets(24, used, 4, 3), 2); /* that is nobody's part */
    assert_int_equal(as_many_as_it_gets(24, used, 4, 1), 4);
}

static void each_of_as_many_as_there_are_gets_one(void **state)
{
    uint64_t used[24] = {0};

    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        assert_int_equal(as_many_as_it_gets(24, used, 24, i), 1);
    }
}

static void with_too_many_a_half_is_for_those_who_have_none(void **state)
{
    uint64_t used[64] = {0};

    (void)state;
    assert_int_equal(as_many_as_it_gets(24, used, 64, 0), 12);
    for (uint32_t i = 1; i <= 12; i++) {
        assert_int_equal(as_many_as_it_gets(24, used, 64, i), 1);
    }
    assert_false(one_more(24, used, 64, 13)); /* none is left */
}

static void a_supply_that_is_more_than_used_up_gives_nothing(void **state)
{
    uint64_t used[2] = {30, 0};
    const struct weir_supply supply = {.total = 24, .used = used, .n = 2};

    (void)state;
    assert_false(weir_supply_allows(&supply, 1, 1));
    used[0] = 0;
    assert_int_equal(weir_supply_part(&supply), 6);
    assert_true(weir_supply_allows(&supply, 1, 18));
    assert_false(weir_supply_allows(&supply, 1, 19));
    assert_false(weir_supply_allows(&supply, 1, UINT64_MAX));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zeroed_account_may_have_nothing),
        cmocka_unit_test(a_charge_is_exact_at_the_limit),
        cmocka_unit_test(a_charge_near_the_largest_number_does_not_wrap),
        cmocka_unit_test(accounts_with_a_page_share_their_limit),
        cmocka_unit_test(what_is_kept_outlives_who_charged_it),
        cmocka_unit_test(what_the_ended_hold_is_neither_kept_nor_of_the_living),
        cmocka_unit_test(a_page_counts_nothing_that_the_pool_refuses),
        cmocka_unit_test(a_limit_below_what_is_used_takes_nothing_away),
        cmocka_unit_test(items_do_not_share_a_limit),
        cmocka_unit_test(threads_together_reach_the_limit_and_no_more),
        cmocka_unit_test(a_greedy_account_leaves_the_others_their_share),
        cmocka_unit_test(a_pool_limits_only_what_it_divides),
        cmocka_unit_test(of_several_items_all_are_charged_or_none),
        cmocka_unit_test(what_is_charged_again_may_exceed_the_limits),
        cmocka_unit_test(threads_leave_a_pool_as_it_was),
        cmocka_unit_test(no_more_is_charged_than_is_granted),
        cmocka_unit_test(what_is_taken_back_is_not_charged_any_more),
        cmocka_unit_test(who_asks_first_leaves_the_others_their_parts),
        cmocka_unit_test(each_of_as_many_as_there_are_gets_one),
        cmocka_unit_test(with_too_many_a_half_is_for_those_who_have_none),
        cmocka_unit_test(a_supply_that_is_more_than_used_up_gives_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
