/* Loads: what a trace says of the work, hostile traces, and the generator's line. */
#include "sched/sim/generate.h"
#include "sched/sim/load.h"
#include "sched/sim/spec.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct file {
    uint8_t *data;
    uint64_t bytes;
};

static struct file slurp(int fd)
{
    struct file f = {.bytes = (uint64_t)lseek(fd, 0, SEEK_END)};
    f.data = malloc(f.bytes + 1);
    assert_non_null(f.data);
    assert_int_equal(pread(fd, f.data, f.bytes, 0), f.bytes);
    close(fd);
    return f;
}

static struct file file_of(const struct weir_sched_record *records, size_t n, uint32_t flags)
{
    struct weir_sched_config config;
    struct weir_sched_trace *trace;
    int fd = memfd_create("trace", MFD_CLOEXEC);
    int reader = dup(fd);
    weir_sched_config_init(&config, 10);
    assert_int_equal(weir_sched_trace_create(&config, flags, 0, 4096, fd, &trace), WEIR_OK);
    for (size_t i = 0; i < n; i++) {
        assert_true(weir_sched_trace_put(trace, &records[i]));
    }
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);
    return slurp(reader);
}

#define TENANT(id, weight)                                                                         \
    {                                                                                              \
        .kind = WEIR_SCHED_REC_TENANT_ADD, .tenant = id,                                           \
        .value = weight | 1ull << 32 | 100ull << 40                                                \
    }
#define QUEUE(id, of)                                                                              \
    {                                                                                              \
        .kind = WEIR_SCHED_REC_QUEUE_ADD, .tenant = of, .queue = id                                \
    }
#define ARRIVE(at, t, q, i, k, n)                                                                  \
    {                                                                                              \
        .kind = WEIR_SCHED_REC_ARRIVE, .at_ns = at, .tenant = t, .queue = q, .item = i, .key = k,  \
        .blocks = n, .blocks_per_sm = 1                                                            \
    }
#define ITEM(what, at, i, v)                                                                       \
    {                                                                                              \
        .kind = WEIR_SCHED_REC_##what, .at_ns = at, .item = i, .value = v                          \
    }

static struct weir_sim_load load_of(const struct weir_sched_record *records, size_t n,
                                    uint32_t flags, bool is_open)
{
    struct weir_sim_load load;
    struct weir_sched_trace_error error;
    struct file f = file_of(records, n, flags);
    enum weir_status status = weir_sim_load_read(f.data, f.bytes, is_open, &load, &error);
    if (status != WEIR_OK) {
        fail_msg("%s at %u", error.text, (unsigned)error.offset);
    }
    free(f.data);
    return load;
}

/* Times begin at 1000: loads count from the first record. */
static const struct weir_sched_record story[] = {
    {.kind = WEIR_SCHED_REC_TENANT_ADD,
     .at_ns = 1000,
     .tenant = 7,
     .value = 3 | 2ull << 32 | 50ull << 40},
    {.kind = WEIR_SCHED_REC_QUEUE_ADD, .at_ns = 1000, .tenant = 7, .queue = 70},
    ARRIVE(1100, 7, 70, 1, 5, 100), /* at 100 */
    ITEM(START, 1200, 1, 0),
    ARRIVE(1250, 7, 70, 2, 5, 50), /* 50 after that one's start */
    ITEM(START, 1300, 2, 0),
    ITEM(FINISH, 11200, 1, 0), /* ran 10000 on 10 SMs */
    ITEM(STOP, 12000, 2, 99),
    ITEM(STOPPED, 12200, 2, 0), /* ran 1000 */
    {.kind = WEIR_SCHED_REC_RESUME, .at_ns = 20000, .item = 2, .place = {0, 5, 0}},
    ITEM(FINISH, 28000, 2, 0),      /* and 8000 on five SMs */
    ARRIVE(28500, 7, 70, 3, 6, 10), /* 500 after its finish */
    ITEM(START, 28500, 3, 0),
    ITEM(FINISH, 30000, 3, 777), /* it says itself how long it took */
};

static void read_finds_work_and_what_waits_for_what(void **state)
{
    (void)state;
    struct weir_sim_load load = load_of(story, sizeof story / sizeof story[0], 0, false);
    assert_int_equal(load.n_tenants, 1);
    assert_int_equal(load.tenants[0].params.weight, 3);
    assert_int_equal(load.tenants[0].params.priority, WEIR_PRIORITY_HIGH);
    assert_int_equal(load.tenants[0].params.sm_limit, 50);
    assert_int_equal(load.tenants[0].n_items, 3);
    assert_int_equal(load.n_items, 3);
    assert_int_equal(load.items[0].after, WEIR_SIM_AT);
    assert_int_equal(load.items[0].delay_ns, 100);
    assert_int_equal(load.items[0].sm_ns, 100000);
    assert_int_equal(load.items[1].after, WEIR_SIM_AFTER_START);
    assert_int_equal(load.items[1].delay_ns, 50);
    assert_int_equal(load.items[1].sm_ns, 1000 * 10 + 8000 * 5);
    assert_int_equal(load.items[2].after, WEIR_SIM_AFTER_FINISH);
    assert_int_equal(load.items[2].delay_ns, 500);
    assert_int_equal(load.items[2].sm_ns, 7770);
    assert_int_equal(load.items[0].next, 1);
    assert_int_equal(load.items[2].next, WEIR_SIM_NONE);
    assert_int_equal(load.estimated, 0);
    weir_sim_load_finish(&load);

    load = load_of(story, sizeof story / sizeof story[0], 0, true);
    assert_int_equal(load.items[2].after, WEIR_SIM_AT);
    assert_int_equal(load.items[2].delay_ns, 27500);
    weir_sim_load_finish(&load);
}

static void read_estimates_what_was_disturbed(void **state)
{
    (void)state;
    static const struct weir_sched_record records[] = {
        TENANT(1, 1),
        TENANT(2, 1),
        QUEUE(1, 1),
        QUEUE(2, 2),
        ARRIVE(0, 1, 1, 1, 5, 10),
        ITEM(START, 0, 1, 0),
        ITEM(FINISH, 1000, 1, 0), /* alone: 1000 SM-ns a block */
        ARRIVE(2000, 1, 1, 2, 5, 20),
        ARRIVE(2000, 2, 2, 3, 6, 10),
        ARRIVE(2000, 2, 2, 4, 0, 10),
        ITEM(START, 2000, 2, 0),
        ITEM(START, 2000, 3, 0), /* beside it: neither is undisturbed */
        ITEM(FINISH, 9000, 2, 0),
        ITEM(FINISH, 9000, 3, 0),
        /* 4 never begins, and nothing is known of it. */
    };
    struct weir_sim_load load = load_of(records, sizeof records / sizeof records[0], 0, false);
    assert_int_equal(load.items[1].sm_ns, 20000); /* by its key */
    assert_int_equal(load.items[2].sm_ns, 70000); /* what it took, for want of better */
    assert_int_equal(load.left_out, 1);
    assert_int_equal(load.estimated, 3);
    assert_int_equal(load.tenants[1].n_items, 1);
    weir_sim_load_finish(&load);
}

static void read_refuses_ids_that_nobody_introduced(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct weir_sched_record record;
    } rows[] = {
        {"queue of nobody", QUEUE(9, 9)},
        {"arrival nowhere", ARRIVE(0, 1, 9, 1, 0, 0)},
        {"start of nothing", ITEM(START, 0, 9, 0)},
        {"finish of nothing", ITEM(FINISH, 0, 9, 0)},
        {"a second tenant", TENANT(1, 1)},
        {"a second queue", QUEUE(1, 1)},
        {"a rank without the one before it",
         {.kind = WEIR_SCHED_REC_QUEUE_ADD, .tenant = 1, .queue = 2, .blocks = 2}},
        {"a GPU that is too much",
         {.kind = WEIR_SCHED_REC_QUEUE_ADD, .tenant = 1, .queue = 2, .bytes = 16}},
        {"a stranger's name", {.kind = WEIR_SCHED_TRACE_NAME, .tenant = 4, .queue = 'x'}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct weir_sched_record records[] = {TENANT(1, 1), QUEUE(1, 1), rows[i].record};
        struct weir_sim_load load;
        struct weir_sched_trace_error error;
        struct file f = file_of(records, 3, 0);
        print_message("%s\n", rows[i].name);
        assert_int_equal(weir_sim_load_read(f.data, f.bytes, false, &load, &error),
                         WEIR_ERR_SYNTAX);
        assert_int_equal(error.offset, 128 + 2 * 80);
        free(f.data);
        if (i < 4) { /* a recording that began in the middle has such */
            load = load_of(records, 3, WEIR_SCHED_TRACE_MIDDLE, false);
            assert_int_equal(load.unknown, 1);
            weir_sim_load_finish(&load);
        }
    }
}

/* ------------------------------------------------------------------ the generator */

static struct file made(const char *spec, uint64_t seed, uint64_t duration_ns)
{
    struct weir_sim_generate_params params = {.seed = seed, .duration_ns = duration_ns};
    struct weir_diag diag = {0};
    char error[256];
    int fd = memfd_create("load", MFD_CLOEXEC);
    int reader = dup(fd);
    assert_int_equal(weir_sim_gpu_find("h200", &params.gpu, error), WEIR_OK);
    enum weir_status status = weir_sim_generate(spec, &params, fd, &diag);
    if (status != WEIR_OK) {
        fail_msg("%s", diag.message);
    }
    return slurp(reader);
}

static struct weir_sim_load loaded(struct file f)
{
    struct weir_sim_load load;
    struct weir_sched_trace_error error;
    assert_int_equal(weir_sim_load_read(f.data, f.bytes, false, &load, &error), WEIR_OK);
    free(f.data);
    return load;
}

static void generate_repeats_by_seed(void **state)
{
    (void)state;
    static const char spec[] = "name=a tenants=3 weight=1..9 kernel=exp:100us keys=4 jitter=0.2 "
                               "arrive=poisson:1000 h2d=1K..1M streams=2";
    struct file one = made(spec, 5, 20000000);
    struct file same = made(spec, 5, 20000000);
    struct file other = made(spec, 6, 20000000);
    assert_int_equal(one.bytes, same.bytes);
    assert_memory_equal(one.data, same.data, one.bytes);
    assert_true(one.bytes != other.bytes || memcmp(one.data, other.data, one.bytes) != 0);
    assert_true(one.bytes > 128 + 80 * 50);
    free(one.data);
    free(same.data);
    free(other.data);
}

static void generate_makes_what_the_line_says(void **state)
{
    (void)state;
    struct weir_sim_load load = loaded(
        made("name=loop weight=4 priority=high limit=40 kernel=2ms need=0.5 memory=0.25 "
             "blocks=500 per_sm=4 items=3 think=1ms form=ticket; # a comment; with a semicolon\n"
             "name=task kernels=2 kernel=10us h2d=55471000 d2h=4K arrive=burst:2:5ms items=8 "
             "predicted=no form=original",
             1, 1000000000));
    assert_int_equal(load.n_tenants, 2);
    assert_string_equal(load.tenants[0].name, "loop");
    assert_int_equal(load.tenants[0].params.weight, 4);
    assert_int_equal(load.tenants[0].params.priority, WEIR_PRIORITY_HIGH);
    assert_int_equal(load.tenants[0].params.sm_limit, 40);
    assert_int_equal(load.tenants[0].n_items, 3);
    assert_int_equal(load.tenants[1].n_items, 8);
    const struct weir_sim_item *item = &load.items[load.queues[0].first];
    assert_int_equal(item->params.blocks, 500);
    assert_int_equal(item->params.blocks_per_sm, 4);
    assert_int_equal(item->params.flags, WEIR_SCHED_STOPPABLE);
    assert_int_equal(item->params.predicted_ns, 2000000);
    assert_int_equal(item->sm_ns, 2000000 * UINT64_C(125)); /* of 132 SMs it fills 125 */
    assert_int_equal(item->nature.need_ppm, 500000);
    assert_int_equal(item->nature.memory_ppm, 250000);
    item = &load.items[item->next];
    assert_int_equal(item->after, WEIR_SIM_AFTER_FINISH);
    assert_int_equal(item->delay_ns, 1000000);
    item = &load.items[load.queues[1].first];
    static const enum weir_sched_class classes[] = {WEIR_SCHED_H2D, WEIR_SCHED_KERNEL,
                                                    WEIR_SCHED_KERNEL, WEIR_SCHED_D2H};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(item->params.class, classes[i % 4]);
        assert_int_equal(item->params.predicted_ns, 0);
        assert_int_equal(item->after, WEIR_SIM_AT);
        assert_int_equal(item->params.flags, 0);
        item = i < 7 ? &load.items[item->next] : item;
    }
    assert_int_equal(load.estimated, 0);
    weir_sim_load_finish(&load);
}

static void generate_gives_jobs_a_stream_on_each_gpu(void **state)
{
    (void)state;
    struct weir_sim_load load =
        loaded(made("name=a items=1; name=job gpu=2 ranks=3 streams=2 items=4 kernel=exp:1ms "
                    "jitter=0.5",
                    1, 1000000000));
    assert_int_equal(load.n_queues, 1 + 6);
    assert_int_equal(load.queues[0].gpu, 0);
    for (uint32_t q = 1; q < 7; q++) {
        const struct weir_sim_queue *queue = &load.queues[q], *first = queue - queue->rank;
        assert_int_equal(queue->tenant, 1);
        assert_int_equal(queue->rank, (q - 1) % 3);
        assert_int_equal(queue->gpu, 2 + queue->rank);
        assert_int_equal(queue->n_kernels, 4);
        assert_int_equal(load.items[queue->last].sm_ns, load.items[first->last].sm_ns);
    }
    assert_int_not_equal(load.items[load.queues[1].last].sm_ns,
                         load.items[load.queues[4].last].sm_ns);
    weir_sim_load_finish(&load);
}

static void generate_reaches_a_thousand_tenants(void **state)
{
    (void)state;
    struct weir_sim_load load = loaded(made("tenants=1000 items=2 kernel=1ms", 1, 1000000000));
    assert_int_equal(load.n_tenants, 1000);
    assert_int_equal(load.n_items, 2000);
    assert_string_equal(load.tenants[999].name, "t1-1000");
    weir_sim_load_finish(&load);
}

static void spec_refuses_nonsense_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        uint32_t line, column;
    } rows[] = {
        {"", 1, 1},
        {" ; # nothing\n", 1, 1},
        {"weight", 1, 1},
        {"name=a\nspeed=2", 2, 1},
        {"weight=0", 1, 8},
        {"weight=10001", 1, 8},
        {"weight=5..2", 1, 8},
        {"weight=nan", 1, 8},
        {"kernel=1", 1, 8},
        {"kernel=1ms..", 1, 8},
        {"kernel=exp:1ms..2ms", 1, 8},
        {"  tenants=1.5", 1, 11},
        {"tenants=10001", 1, 9},
        {"name=a b", 1, 8},
        {"name=<x>", 1, 6},
        {"arrive=poisson:", 1, 8},
        {"arrive=burst:3", 1, 8},
        {"priority=urgent", 1, 10},
        {"form=magic", 1, 6},
        {"memory=1.1", 1, 8},
        {"predicted=maybe", 1, 11},
        {"h2d=4X", 1, 5},
        {"kernels=0", 1, 1},
        {"gpu=16", 1, 5},
        {"ranks=0", 1, 7},
        {"name=a;gpu=9 ranks=8", 1, 8},
        {"name=a;gpus=6 ranks=3", 1, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_sim_group *groups;
        uint32_t n;
        struct weir_diag diag = {0};
        print_message("'%s'\n", rows[i].spec);
        assert_int_equal(weir_sim_spec_parse(rows[i].spec, &groups, &n, &diag), WEIR_ERR_SYNTAX);
        assert_int_equal(diag.line, rows[i].line);
        assert_int_equal(diag.column, rows[i].column);
        assert_true(diag.message[0]);
    }
}

static void generate_bounds_what_is_asked_for(void **state)
{
    (void)state;
    struct weir_sim_generate_params params = {.seed = 1, .duration_ns = 1000};
    struct weir_diag diag = {0};
    char error[256];
    assert_int_equal(weir_sim_gpu_find("h200", &params.gpu, error), WEIR_OK);
    static const char *const specs[] = {"tenants=6000; tenants=6000",
                                        "tenants=700 streams=64 ranks=16"};
    for (int i = 0; i < 2; i++) {
        diag.message[0] = '\0';
        assert_int_equal(
            weir_sim_generate(specs[i], &params, memfd_create("load", MFD_CLOEXEC), &diag),
            WEIR_ERR_TOO_BIG);
        assert_true(diag.message[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_finds_work_and_what_waits_for_what),
        cmocka_unit_test(read_estimates_what_was_disturbed),
        cmocka_unit_test(read_refuses_ids_that_nobody_introduced),
        cmocka_unit_test(generate_repeats_by_seed),
        cmocka_unit_test(generate_makes_what_the_line_says),
        cmocka_unit_test(generate_gives_jobs_a_stream_on_each_gpu),
        cmocka_unit_test(generate_reaches_a_thousand_tenants),
        cmocka_unit_test(spec_refuses_nonsense_with_its_place),
        cmocka_unit_test(generate_bounds_what_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
