/* Beside small graphs other tenants' kernels leave a part of the SMs free (sched/small.c). */
#include "tests/unit/sched/wave_desk.h"

#define ROOM  80u /* SMs for kernels; for graphs the rest */
#define SMALL 20u /* SMs that a graph needs */
#define ALL   0u

struct room {
    struct desk d;
    struct weir_predict *predict;
    weir_sched_id kernels, graphs; /* queues of two tenants */
};

static void open_room(struct room *r, uint32_t room_sms, enum weir_priority graphs)
{
    struct weir_sched_config config;
    weir_sched_id tenant;

    assert_int_equal(weir_predict_create(16, &r->predict), WEIR_OK);
    weir_sched_config_init(&config, SMS);
    config.fill = WEIR_SCHED_FILL_ALL;
    config.small_sms = SMS;
    config.above = 1;
    config.room_sms = room_sms;
    config.predict = r->predict;
    desk_init_with(&r->d, &config);
    r->kernels = queue_of_weight(&r->d, LEADS, WEIR_PRIORITY_NORMAL, &tenant);
    r->graphs = queue_of(&r->d, graphs, &tenant);
}

static void close_room(struct room *r)
{
    desk_finish(&r->d);
    weir_predict_destroy(r->predict);
}

static weir_sched_id small_graph(struct room *r, weir_sched_id queue_id)
{
    struct weir_sched_item_params params = {.class = WEIR_SCHED_GRAPH,
                                            .key = 1,
                                            .predicted_ns = 10000000,
                                            .blocks = SMALL,
                                            .blocks_per_sm = 1};

    return bring(&r->d, queue_id, &params);
}

/* The SMs with which the last item was started. */
static uint32_t sms_of_last(const struct room *r)
{
    const struct order *last = &r->d.order[r->d.count - 1];

    assert_int_equal(last->what, START);
    assert_int_equal(last->place.sm_first, 0);
    return last->place.sm_count;
}

/* With how many SMs a kernel is started that comes now; it is done at once. */
static uint32_t sms_now(struct room *r)
{
    weir_sched_id item = kernel(&r->d, r->kernels, 20, 0);
    uint32_t sms = sms_of_last(r);

    assert_int_equal(r->d.order[r->d.count - 1].item, item);
    finished(&r->d, item);
    return sms;
}

/* A graph begins beside a kernel, which takes so long after that and then is done. @return it */
static weir_sched_id begin_graph(struct room *r, uint64_t us)
{
    weir_sched_id leads = wave(&r->d, r->kernels, us), graph = small_graph(r, r->graphs);

    assert_true(level_of_start(&r->d, graph) >= 0);
    later(&r->d, us);
    finished(&r->d, leads);
    return graph;
}

static void kernels_leave_room_when_a_graph_was_there_for_a_while(void **state)
{
    struct room r;
    weir_sched_id graph;

    (void)state;
    open_room(&r, ROOM, WEIR_PRIORITY_NORMAL);
    graph = begin_graph(&r, 900);
    assert_int_equal(sms_now(&r), ALL);
    later(&r.d, 100);
    assert_int_equal(sms_now(&r), ROOM);
    later(&r.d, 2000); /* more does not count */
    finished(&r.d, graph);
    later(&r.d, 900); /* the next one may come soon */
    assert_int_equal(sms_now(&r), ROOM);
    later(&r.d, 200);
    assert_int_equal(sms_now(&r), ALL);
    close_room(&r);
}

static void short_graphs_now_and_then_move_nobody(void **state)
{
    struct room r;

    (void)state;
    open_room(&r, ROOM, WEIR_PRIORITY_NORMAL);
    for (int i = 0; i < 10; i++) {
        finished(&r.d, begin_graph(&r, 400));
        assert_int_equal(sms_now(&r), ALL);
        later(&r.d, 600);
    }
    close_room(&r);
}

/* Which kernels. */
static void who_has_a_part_and_who_has_all(void **state)
{
    static const struct {
        const char *what;
        uint32_t room_sms, blocks, per_sm, flags;
        enum weir_priority graphs; /* of the graphs' tenant */
        uint32_t sms;
    } cases[] = {
        {"many blocks", ROOM, 20000, 8, 0, WEIR_PRIORITY_NORMAL, ROOM},
        {"few blocks", ROOM, 10, 8, 0, WEIR_PRIORITY_NORMAL, ROOM},
        {"all at once in the part", ROOM, 8 * ROOM, 8, 0, WEIR_PRIORITY_NORMAL, ROOM},
        {"all at once on the device only", ROOM, 8 * ROOM + 1, 8, 0, WEIR_PRIORITY_NORMAL, ALL},
        {"likewise, all of it", ROOM, WAVE, 8, 0, WEIR_PRIORITY_NORMAL, ALL},
        {"at once nowhere", ROOM, WAVE + 1, 8, 0, WEIR_PRIORITY_NORMAL, ROOM},
        {"nobody knows how many fit", ROOM, 20000, 0, 0, WEIR_PRIORITY_NORMAL, ALL},
        {"can be stopped", ROOM, 20000, 8, WEIR_SCHED_STOPPABLE, WEIR_PRIORITY_NORMAL, ALL},
        {"in a context that has a share of the SMs", ROOM, 20000, 8, WEIR_SCHED_MOVABLE,
         WEIR_PRIORITY_NORMAL, ALL},
        {"of a higher class than the graph", ROOM, 20000, 8, 0, WEIR_PRIORITY_LOW, ALL},
        {"the device has no part", 0, 20000, 8, 0, WEIR_PRIORITY_NORMAL, ALL},
        {"the part is all of it", SMS, 20000, 8, 0, WEIR_PRIORITY_NORMAL, ALL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_sched_item_params params = {.class = WEIR_SCHED_KERNEL,
                                                .flags = cases[i].flags,
                                                .key = 7,
                                                .predicted_ns = 20000,
                                                .blocks = cases[i].blocks,
                                                .blocks_per_sm = cases[i].per_sm};
        struct room r;
        weir_sched_id leads, item;

        print_message("%s\n", cases[i].what);
        open_room(&r, cases[i].room_sms, cases[i].graphs);
        leads = wave(&r.d, r.kernels, 3000);
        (void)small_graph(&r, r.graphs);
        later(&r.d, 3000);
        finished(&r.d, leads);
        item = bring(&r.d, r.kernels, &params);
        assert_int_equal(r.d.order[r.d.count - 1].item, item);
        assert_int_equal(sms_of_last(&r), cases[i].sms);
        close_room(&r);
    }
}

static void a_tenants_own_graphs_want_no_room_of_it(void **state)
{
    struct weir_sched_tenant_params params = {
        .name = "both", .weight = LEADS, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};
    struct room r;
    weir_sched_id both, own, graph;

    (void)state;
    open_room(&r, ROOM, WEIR_PRIORITY_NORMAL);
    assert_int_equal(weir_sched_tenant_add(r.d.sched, r.d.now_ns, &params, &both), WEIR_OK);
    r.kernels = queue(&r.d, both);
    own = queue(&r.d, both);
    graph = small_graph(&r, own);
    later(&r.d, 3000);
    assert_int_equal(sms_now(&r), ALL);
    finished(&r.d, graph);
    assert_int_equal(sms_now(&r), ALL);
    close_room(&r);
}

/* It takes longer there: that tells what it takes alone only while nothing better is known. */
static void durations_in_a_part_teach_what_is_not_known(void **state)
{
    static const struct {
        const char *what;
        int seen; /* so often it took 100 us */
        uint32_t blocks;
        uint64_t took_us, then_us;
    } cases[] = {
        {"sure: shorter", 8, 20000, 40, 100},
        {"sure: longer", 8, 20000, 160, 100},
        {"sure: much longer", 8, 20000, 450, 100},
        {"not seen, many waves of blocks", 0, 20000, 165, 100},
        {"not seen, all of it is there at once", 0, 8 * ROOM, 165, 165},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_sched_item_params params = {
            .class = WEIR_SCHED_KERNEL, .key = 7, .blocks = cases[i].blocks, .blocks_per_sm = 8};
        struct room r;

        print_message("%s\n", cases[i].what);
        open_room(&r, ROOM, WEIR_PRIORITY_NORMAL);
        for (int k = 0; k < cases[i].seen; k++) {
            weir_predict_learn(r.predict, params.class, params.key, params.blocks, 100000);
        }
        (void)begin_graph(&r, 3000);
        for (int k = 0; k < 4; k++) {
            weir_sched_id item = bring(&r.d, r.kernels, &params);

            assert_int_equal(sms_of_last(&r), ROOM);
            later(&r.d, cases[i].took_us);
            finished(&r.d, item);
        }
        assert_in_range(weir_predict_ask(r.predict, params.class, params.key, params.blocks),
                        cases[i].then_us * 990, cases[i].then_us * 1010);
        assert_true(weir_predict_is_sure(r.predict, params.class, params.key));
        close_room(&r);
    }
}

static void the_part_is_a_whole_number_of_groups(void **state)
{
    static const struct {
        uint32_t sms, room, step;
    } cases[] = {{132, 80, 16}, {144, 88, 16}, {108, 64, 16}, {64, 40, 16}, {46, 24, 8},
                 {16, 8, 2},    {12, 0, 2},    {4, 0, 2},     {3, 0, 0},    {1, 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(weir_sched_room_sms(cases[i].sms), cases[i].room);
        assert_int_equal(weir_sched_part_step(cases[i].sms), cases[i].step);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_leave_room_when_a_graph_was_there_for_a_while),
        cmocka_unit_test(short_graphs_now_and_then_move_nobody),
        cmocka_unit_test(who_has_a_part_and_who_has_all),
        cmocka_unit_test(a_tenants_own_graphs_want_no_room_of_it),
        cmocka_unit_test(durations_in_a_part_teach_what_is_not_known),
        cmocka_unit_test(the_part_is_a_whole_number_of_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
