/* Every row of policies.def: complete, sound in what it answers, the same each time; and lists of
 * names. */
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"
#include <string.h>

#define SMS  132u
#define BOTH (WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE)

static void rows_are_complete_and_found_by_name(void **state)
{
    uint32_t row = 0;

    (void)state;
    for (; weir_policy_at(row); row++) {
        const struct weir_policy_ops *ops = weir_policy_at(row);

        assert_ptr_equal(weir_policy_find(ops->name), ops);
        assert_in_range(ops->kind, 0, WEIR_POLICY_KIND_COUNT - 1);
        assert_int_equal(ops->next != NULL, ops->kind == WEIR_POLICY_NEXT);
        assert_int_equal(ops->together != NULL, ops->kind == WEIR_POLICY_TOGETHER);
        assert_null(strpbrk(ops->name, ", "));
    }
    assert_true(row >= 2);
    assert_null(weir_policy_at(UINT32_MAX));
    assert_null(weir_policy_find("no such policy"));
    assert_null(weir_policy_find(""));
}

/* A bit of everything, for 60 ms. */
static struct tl_sim *run_mix(const struct weir_policy_ops *ops, uint64_t seed)
{
    static const struct tl_sim_load loads[] = {
        {.duration_ns = 3000000,
         .flags = BOTH,
         .key = 1,
         .blocks = 5000,
         .blocks_per_sm = 4,
         .predicted = true,
         .think_ns = 2000},
        {.duration_ns = 400000,
         .jitter_ns = 90000,
         .flags = BOTH,
         .key = 2,
         .blocks = 2000,
         .blocks_per_sm = 8,
         .predicted = true,
         .think_ns = 2000},
        {.duration_ns = 30000,
         .key = 3,
         .blocks = 100,
         .blocks_per_sm = 8,
         .sync = true,
         .think_ns = 20000},
        {.duration_ns = 150000, .key = 4, .class = WEIR_SCHED_GRAPH, .think_ns = 2000},
        {.duration_ns = 200000,
         .class = WEIR_SCHED_H2D,
         .bytes = 10000000,
         .predicted = true,
         .sync = true,
         .think_ns = 9000},
        {.duration_ns = 90000,
         .class = WEIR_SCHED_D2H,
         .bytes = 4000000,
         .queues = 2,
         .predicted = true,
         .think_ns = 5000},
        {.duration_ns = 700000,
         .flags = WEIR_SCHED_STOPPABLE,
         .blocks = 900,
         .blocks_per_sm = 2,
         .think_ns = 2000},
    };
    struct tl_sim_params params;
    struct tl_sim *sim;

    tl_sim_params_init(&params, SMS);
    params.check = true;
    params.seed = seed;
    sim = tl_sim_create(&params);
    if (ops) {
        assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), 0, ops), WEIR_OK);
    }
    for (uint32_t i = 0; i < 14; i++) {
        struct tl_sim_load load = loads[i % 7];

        load.key += load.key != 0 ? i / 7 * 10 : 0;
        load.from_ns = i * 100000;
        tl_sim_tenant(sim, 1 + i % 3, i == 9 ? WEIR_PRIORITY_HIGH : WEIR_PRIORITY_NORMAL, &load);
    }
    tl_sim_run(sim, 30000000);
    tl_sim_leave(sim, 1);
    tl_sim_leave(sim, 4);
    tl_sim_run(sim, 10000000);
    return sim;
}

static void rows_answer_soundly_and_the_same_each_time(void **state)
{
    (void)state;
    for (uint32_t row = 0; weir_policy_at(row); row++) {
        struct tl_sim *first = run_mix(weir_policy_at(row), 7);
        struct tl_sim *second = run_mix(weir_policy_at(row), 7);
        struct weir_sched_counts counts;

        weir_sched_count(tl_sim_sched(first), &counts);
        if (counts.nonsense > 0) {
            fail_msg("%s: %s", weir_policy_at(row)->name, tl_sim_last_line(first));
        }
        assert_true(counts.finishes > 100);
        assert_true(tl_sim_trace_hash(first) == tl_sim_trace_hash(second));
        tl_sim_destroy(first);
        tl_sim_destroy(second);
    }
}

static void rows_replace_each_other_while_there_is_work(void **state)
{
    struct tl_sim *sim = run_mix(NULL, 3);
    uint64_t decisions = 0;

    (void)state;
    for (uint32_t row = 0; weir_policy_at(row); row++) {
        struct weir_sched_counts counts;

        tl_sim_policy(sim, 0, weir_policy_at(row));
        tl_sim_run(sim, 20000000);
        weir_sched_count(tl_sim_sched(sim), &counts);
        assert_true(counts.decisions > decisions);
        decisions = counts.decisions;
    }
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        tl_sim_policy(sim, kind, NULL);
        tl_sim_run(sim, 5000000);
    }
    assert_int_equal(weir_sched_policy_clear(tl_sim_sched(sim), 0, -1), WEIR_ERR_INVALID);
    assert_int_equal(weir_sched_policy_clear(tl_sim_sched(sim), 0, WEIR_POLICY_KIND_COUNT),
                     WEIR_ERR_INVALID);
    tl_sim_destroy(sim);
}

static void policy_set_refuses_incomplete_tables(void **state)
{
    static const struct weir_policy_ops bad[] = {
        {.name = "x", .kind = WEIR_POLICY_NEXT},
        {.name = "x", .kind = WEIR_POLICY_TOGETHER},
        {.name = "x", .kind = WEIR_POLICY_KIND_COUNT},
        {.kind = WEIR_POLICY_NEXT},
    };
    struct tl_sim *sim = run_mix(NULL, 1);

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(weir_sched_policy_set(tl_sim_sched(sim), tl_sim_now(sim), &bad[i]),
                         WEIR_ERR_INVALID);
    }
    tl_sim_run(sim, 1000000);
    tl_sim_destroy(sim);
}

static void policy_set_parse_reads_lists(void **state)
{
    static const struct {
        const char *text;
        enum weir_status status;
        const char *next;
        uint32_t column;
        bool together;
    } cases[] = {
        {"fair", WEIR_OK, "fair", 0, false},
        {"priority", WEIR_OK, "priority", 0, false},
        {"fair,corun", WEIR_OK, "fair", 0, true},
        {"corun,priority", WEIR_OK, "priority", 0, true},
        {"corun", WEIR_OK, "fair", 0, true},
        {"corun,corun", WEIR_ERR_EXISTS, NULL, 7, false},
        {"", WEIR_ERR_SYNTAX, NULL, 1, false},
        {",fair", WEIR_ERR_SYNTAX, NULL, 1, false},
        {"fair,", WEIR_ERR_SYNTAX, NULL, 6, false},
        {"fair,nobody", WEIR_ERR_NOT_FOUND, NULL, 6, false},
        {"fai", WEIR_ERR_NOT_FOUND, NULL, 1, false},
        {"fair ", WEIR_ERR_NOT_FOUND, NULL, 1, false},
        {"fair,priority", WEIR_ERR_EXISTS, NULL, 6, false},
        {"fair,fair", WEIR_ERR_EXISTS, NULL, 6, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_policy_set set = {{NULL}};
        struct weir_diag diag = {0};

        assert_int_equal(weir_policy_set_parse(cases[i].text, &set, &diag), cases[i].status);
        assert_int_equal(diag.column, cases[i].column);
        if (cases[i].next) {
            assert_string_equal(set.policy[WEIR_POLICY_NEXT]->name, cases[i].next);
            const struct weir_policy_ops *together = set.policy[WEIR_POLICY_TOGETHER];

            assert_int_equal(together != NULL, cases[i].together);
            assert_true(!together || strstr(cases[i].text, together->name));
        } else {
            assert_null(set.policy[WEIR_POLICY_NEXT]);
            assert_true(diag.message[0] != '\0');
        }
        assert_int_equal(weir_policy_set_parse(cases[i].text, &set, NULL), cases[i].status);
    }
    assert_string_equal(weir_policy_kind_text(WEIR_POLICY_TOGETHER), "together");
    assert_string_equal(weir_policy_kind_text(WEIR_POLICY_KIND_COUNT), "?");
}

/* Files of earlier versions name policies that are gone: the message says what to write. */
static void policy_set_parse_says_what_to_write_instead(void **state)
{
    static const char *const cases[][2] = {
        {"overlap", "remove"},
        {"complement", "corun"},
        {"waterfill", "corun"},
        {"tensor", "corun"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct weir_policy_set set = {{NULL}};
        struct weir_diag diag = {0};
        char text[64];

        snprintf(text, sizeof(text), "fair,%s", cases[i][0]);
        assert_int_equal(weir_policy_set_parse(text, &set, &diag), WEIR_ERR_NOT_FOUND);
        assert_int_equal(diag.column, 6);
        assert_non_null(strstr(diag.message, cases[i][0]));
        assert_non_null(strstr(diag.message, cases[i][1]));
        assert_null(strstr(diag.message, "priority")); /* not the list of all names */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_found_by_name),
        cmocka_unit_test(rows_answer_soundly_and_the_same_each_time),
        cmocka_unit_test(rows_replace_each_other_while_there_is_work),
        cmocka_unit_test(policy_set_refuses_incomplete_tables),
        cmocka_unit_test(policy_set_parse_reads_lists),
        cmocka_unit_test(policy_set_parse_says_what_to_write_instead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
