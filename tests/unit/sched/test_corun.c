/* corun asked directly: programs that run something else from a moment on, and places. */
#include "sched/policy.h"
#include "tests/unit/sched/desk.h"

#include <stdlib.h>

#define STEP_NS 2000000u

/* Two tenants on a device where parts give 1.6, or 0.8, of what one alone gets done. */
struct two {
    struct weir_sched_config config;
    struct weir_policy policy;
    struct weir_policy_tenant tenant[2];
    struct weir_policy_kernel kernel; /* of both */
    bool by_blocks;                   /* not parts but divisions by blocks give that */
    struct weir_policy_group group;   /* the last answer */
    uint64_t now_ns;
};

static void two_make(struct two *p)
{
    weir_sched_config_init(&p->config, SMS);
    p->config.part_step = 16;
    p->policy = (struct weir_policy){.ops = weir_policy_find("corun"), .config = &p->config};
    p->policy.state = calloc(1, p->policy.ops->state_bytes);
    assert_non_null(p->policy.state);
    p->now_ns = STEP_NS;
    p->by_blocks = false;
    p->kernel = (struct weir_policy_kernel){
        .predicted_ns = 1000000, .blocks_per_sm = 8, .class = WEIR_SCHED_KERNEL, .partable = true};
    p->group = (struct weir_policy_group){.count = 1};
    for (uint32_t i = 0; i < 2; i++) {
        p->tenant[i] = (struct weir_policy_tenant){
            .id = i + 1, .weight = 100, .sm_limit = SMS, .priority = WEIR_PRIORITY_NORMAL};
        p->policy.ops->ready(&p->policy, p->now_ns, &p->tenant[i]);
    }
}

/*
 * Both run the kernel `key` for so long, in a part of `apart` of their rates alone or in turns.
 * @return the part of the time in which they were apart
 */
static double run(struct two *p, uint64_t key, double apart, uint64_t run_ns)
{
    const struct weir_policy_tenant *ready[] = {&p->tenant[0], &p->tenant[1]};
    uint64_t end_ns = p->now_ns + run_ns;
    double part = 0;

    while (p->now_ns < end_ns) {
        struct weir_policy_together_view view = {
            .now_ns = p->now_ns, .ready = ready, .ready_count = 2};
        struct weir_policy_group group = {.count = 1};

        for (uint32_t i = 0; i < 2; i++) {
            p->tenant[i].kernel = p->kernel;
            p->tenant[i].kernel.key = key;
        }
        p->policy.ops->together(&p->policy, &view, &group);
        p->now_ns += STEP_NS;
        const struct weir_sched_place *place = &group.member[0].place;
        bool divided =
            group.count == 2 && (p->by_blocks ? place->block_limit != 0 && place->block_limit < 8
                                              : place->sm_count != 0);

        p->kernel.movable |= p->by_blocks && divided; /* the next ones come in that form */

        for (uint32_t i = 0; i < 2; i++) {
            p->tenant[i].work_ns += (uint64_t)((divided ? apart : 0.5) * STEP_NS);
        }
        part += divided ? (double)STEP_NS / (double)run_ns : 0;
        p->group = group;
    }
    return part;
}

static void forgets_what_other_kernels_got_done(void **unused)
{
    (void)unused;
    const uint64_t learning_ns = UINT64_C(2500000000), used_ns = 1000000000;
    struct two p;

    two_make(&p);
    run(&p, 1, 0.8, UINT64_C(20000000000));
    assert_true(run(&p, 1, 0.8, used_ns) > 0.9);
    run(&p, 2, 0.4, learning_ns);
    assert_true(run(&p, 2, 0.4, used_ns) < 0.1);
    run(&p, 2, 0.4, UINT64_C(20000000000)); /* now parts are tried rarely */
    run(&p, 3, 0.8, learning_ns);
    assert_true(run(&p, 3, 0.8, used_ns) > 0.9);
    free(p.policy.state);
}

/* Phases of a program are no new program: after a while nothing is forgotten any more. */
static void phases_are_one_program(void **unused)
{
    (void)unused;
    double part = 0;
    struct two p;

    two_make(&p);
    for (uint32_t i = 0; i < 100; i++) {
        part = run(&p, 1 + i % 2, 0.8, 300000000) + run(&p, 1 + (i + 1) % 2, 0.8, 300000000);
    }
    assert_true(part / 2 > 0.9);
    free(p.policy.state);
}

/* Code as it is goes to a part. Kernels that keep to SMs by themselves need none: their block limit
 * says that it is no part, as many of their blocks as fit. */
static void only_closed_code_needs_a_part(void **unused)
{
    (void)unused;
    for (uint32_t movable = 0; movable < 2; movable++) {
        struct two p;

        two_make(&p);
        p.kernel.movable = p.kernel.divisible = movable != 0;
        run(&p, 1, 0.8, UINT64_C(5000000000));
        assert_true(run(&p, 1, 0.8, 1000000000) > 0.9);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(p.group.member[i].place.block_limit,
                             movable != 0 ? WEIR_POLICY_BLOCKS_MAX : 0);
        }
        free(p.policy.state);
    }
}

/* Kernels whose form for that costs too much otherwise come in it once they are asked to. */
static void kernels_are_asked_to_be_divided(void **unused)
{
    (void)unused;
    for (uint32_t divisible = 0; divisible < 2; divisible++) {
        struct two p;

        two_make(&p);
        p.by_blocks = true;
        p.kernel.divisible = divisible != 0;
        run(&p, 1, 0.8, UINT64_C(5000000000));
        assert_true(divisible != 0 ? run(&p, 1, 0.8, 1000000000) > 0.9 : !p.kernel.movable);
        free(p.policy.state);
    }
}

/* Before it compares anything it has them learned, one at a time. */
static void unsure_times_are_learned_in_quiet_turns(void **unused)
{
    (void)unused;
    struct two p;

    two_make(&p);
    p.kernel.unsure = true;
    run(&p, 1, 0.8, 50000000);
    assert_int_equal(p.group.count, 1);
    assert_true(p.group.quiet);
    run(&p, 1, 0.8, 1000000000); /* not for ever */
    assert_false(p.group.quiet);
    free(p.policy.state);
}

/* ---- a quiet turn ---- */

static bool is_quiet;

static void one_at_a_time(struct weir_policy *self, const struct weir_policy_together_view *view,
                          struct weir_policy_group *group)
{
    (void)self;
    (void)view;
    group->valid_ns = 10000000;
    group->hold_ns = 1000000;
    group->quiet = is_quiet;
}

static void members_of_a_quiet_turn_wait_for_an_empty_device(void **unused)
{
    static const struct weir_policy_ops policy = {
        .name = "one", .kind = WEIR_POLICY_TOGETHER, .together = one_at_a_time};

    (void)unused;
    for (uint32_t i = 0; i < 2; i++) {
        weir_sched_id first, second;
        struct desk b;

        is_quiet = i != 0;
        desk_init(&b);
        assert_int_equal(weir_sched_policy_set(b.sched, b.now_ns, &policy), WEIR_OK);
        first = kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100)), 5000, 0);
        second = kernel(&b, queue(&b, tenant(&b, WEIR_PRIORITY_NORMAL, 100)), 5000, 0);
        later(&b, 4000); /* the first one's slice is over, and the second one leads */
        assert_int_equal(state_of(&b, first), WEIR_SCHED_GRANTED);
        assert_int_equal(state_of(&b, second), is_quiet ? WEIR_SCHED_WAITING : WEIR_SCHED_GRANTED);
        finished(&b, first);
        assert_int_equal(state_of(&b, second), WEIR_SCHED_GRANTED);
        finished(&b, second);
        desk_finish(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_closed_code_needs_a_part),
        cmocka_unit_test(kernels_are_asked_to_be_divided),
        cmocka_unit_test(unsure_times_are_learned_in_quiet_turns),
        cmocka_unit_test(members_of_a_quiet_turn_wait_for_an_empty_device),
        cmocka_unit_test(forgets_what_other_kernels_got_done),
        cmocka_unit_test(phases_are_one_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
