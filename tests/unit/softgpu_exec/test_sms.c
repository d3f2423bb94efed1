/* Which SMs blocks run on, by what they see in %smid: all, or those that the launch names. */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <string.h>

/* where: each block counts itself under its SM, and the most that are there at once; with `hold`
 * each waits until so many have begun. */
static const char text[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry where(.param .u64 out, .param .u32 hold)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %d<4>;\n"
    "mov.u32 %r0, %tid.x;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra done;\n"
    "ld.param.u64 %d0, [out];\nld.param.u32 %r1, [hold];\n"
    "mov.u32 %r2, %smid;\nmul.wide.u32 %d1, %r2, 4;\nadd.s64 %d2, %d0, %d1;\n"
    "atom.global.add.u32 %r3, [%d2+8], 1;\n"
    "atom.global.add.u32 %r4, [%d0], 1;\nadd.u32 %r4, %r4, 1;\n"
    "atom.global.max.u32 %r5, [%d0+4], %r4;\n"
    "again:\nld.volatile.global.u32 %r6, [%d0+4];\nsetp.lt.u32 %p1, %r6, %r1;\n@%p1 bra again;\n"
    "atom.global.add.u32 %r3, [%d0], -1;\n"
    "done:\nret;\n}\n";

struct seen {
    uint32_t now, most;
    uint32_t blocks[WEIR_EXEC_MAX_SMS];
};

struct bench {
    struct weir_exec_device *device;
    struct weir_exec_module *module;
    struct seen *seen;
};

static struct bench open_bench(uint32_t sms, uint32_t threads)
{
    const struct weir_exec_device_params params = {.sm_count = sms,
                                                   .thread_count = threads,
                                                   .compute_capability = 90,
                                                   .max_threads_per_sm = 2048,
                                                   .max_blocks_per_sm = 32,
                                                   .shared_bytes_per_sm = 233472,
                                                   .registers_per_sm = 65536};
    struct bench b;
    assert_int_equal(weir_exec_device_create(&params, &b.device), WEIR_OK);
    b.module = tx_load_text(b.device, text);
    b.seen = tx_alloc(sizeof *b.seen);
    return b;
}

static void close_bench(struct bench *b)
{
    tx_free(b->seen);
    weir_exec_module_destroy(b->module);
    weir_exec_device_destroy(b->device);
}

struct how {
    uint32_t blocks, threads, hold;
    bool cooperative;
    const struct weir_exec_sms *sms;
};

static enum weir_status run(const struct bench *b, struct how how)
{
    struct {
        void *out;
        uint32_t hold;
    } params = {b->seen, how.hold};
    struct weir_exec_fault fault;
    const struct weir_exec_launch launch = {.kernel = weir_exec_module_kernel(b->module, "where"),
                                            .grid = {how.blocks, 1, 1},
                                            .block = {how.threads, 1, 1},
                                            .params = &params,
                                            .params_bytes = 12,
                                            .cooperative = how.cooperative,
                                            .sms = how.sms};
    memset(b->seen, 0, sizeof *b->seen);
    return weir_exec_run(b->device, &launch, &fault);
}

static void must(const struct bench *b, struct how how)
{
    uint32_t sum = 0;
    assert_int_equal(run(b, how), WEIR_OK);
    for (uint32_t sm = 0; sm < WEIR_EXEC_MAX_SMS; sm++) {
        sum += b->seen->blocks[sm];
    }
    assert_int_equal(sum, how.blocks);
}

static struct weir_exec_sms set_of(const uint32_t *sms, uint32_t n)
{
    struct weir_exec_sms set = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        weir_exec_sms_add(&set, sms[i]);
    }
    return set;
}

static void expect_inside(const struct bench *b, const struct weir_exec_sms *set)
{
    for (uint32_t sm = 0; sm < WEIR_EXEC_MAX_SMS; sm++) {
        if (!weir_exec_sms_has(set, sm)) {
            assert_int_equal(b->seen->blocks[sm], 0);
        }
    }
}

static void blocks_stay_on_the_sms_named(void **state)
{
    (void)state;
    static const uint32_t parts[][3] = {{0, 1, 2}, {3, 4, 3}, {7, 7, 7}, {6, 2, 1}, {200, 5, 0}};
    static const uint32_t counts[] = {1, 2, 3, 50};
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct bench b = open_bench(8, threads);
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            struct weir_exec_sms set = set_of(parts[p], 3);
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                must(&b, (struct how){.blocks = counts[c], .threads = 32, .sms = &set});
                expect_inside(&b, &set);
            }
        }
        close_bench(&b);
    }
}

static void sms_beyond_the_first_word_are_told_apart(void **state)
{
    (void)state;
    static const uint32_t members[] = {63, 64, 130, 255};
    struct bench b = open_bench(256, 3);
    struct weir_exec_sms set = set_of(members, 4);
    must(&b, (struct how){.blocks = 400, .threads = 32, .sms = &set});
    expect_inside(&b, &set);
    for (size_t i = 0; i < 4; i++) {
        struct weir_exec_sms one = set_of(&members[i], 1);
        must(&b, (struct how){.blocks = 40, .threads = 32, .sms = &one});
        assert_int_equal(b.seen->blocks[members[i]], 40);
    }
    close_bench(&b);
}

static void a_launch_on_no_sm_is_refused(void **state)
{
    (void)state;
    static const uint32_t absent[] = {8, 255};
    struct bench b = open_bench(8, 2);
    struct weir_exec_sms none = {{0}}, others = set_of(absent, 2);
    assert_int_equal(run(&b, (struct how){.blocks = 4, .threads = 32, .sms = &none}),
                     WEIR_ERR_INVALID);
    assert_int_equal(run(&b, (struct how){.blocks = 4, .threads = 32, .sms = &others}),
                     WEIR_ERR_INVALID);
    close_bench(&b);
}

/* Blocks of 1024 threads: two to an SM. All wait until as many are there as the SMs can hold. */
static void as_many_blocks_at_once_as_the_sms_hold(void **state)
{
    (void)state;
    static const uint32_t members[] = {1, 3};
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct bench b = open_bench(4, threads);
        struct weir_exec_sms set = set_of(members, 2);
        must(&b, (struct how){.blocks = 6, .threads = 1024, .hold = 4, .sms = &set});
        assert_int_equal(b.seen->most, 4);
        must(&b, (struct how){.blocks = 10, .threads = 1024, .hold = 8});
        assert_int_equal(b.seen->most, 8);
        close_bench(&b);
    }
}

static void a_cooperative_grid_must_fit_its_sms(void **state)
{
    (void)state;
    static const uint32_t members[] = {0, 5};
    struct bench b = open_bench(8, 2);
    struct weir_exec_sms set = set_of(members, 2);
    must(&b,
         (struct how){.blocks = 4, .threads = 1024, .hold = 4, .cooperative = true, .sms = &set});
    assert_int_equal(
        run(&b, (struct how){.blocks = 5, .threads = 1024, .cooperative = true, .sms = &set}),
        WEIR_ERR_INVALID);
    close_bench(&b);
}

/* Each SM once, those of one host thread (every third) side by side. */
static void the_row_of_sms_names_each_once(void **state)
{
    (void)state;
    static const uint32_t rows[][8] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                       {0, 2, 4, 6, 1, 3, 5, 7},
                                       {0, 3, 6, 1, 4, 7, 2, 5},
                                       {0, 4, 1, 5, 2, 6, 3, 7}};
    static const uint32_t threads[] = {1, 2, 3, 4, 8};
    for (size_t t = 0; t < 5; t++) {
        struct bench b = open_bench(8, threads[t]);
        for (uint32_t place = 0; place < 8; place++) {
            assert_int_equal(weir_exec_sm_at(b.device, place),
                             rows[threads[t] == 8 ? 0 : t][place]);
        }
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_stay_on_the_sms_named),
        cmocka_unit_test(sms_beyond_the_first_word_are_told_apart),
        cmocka_unit_test(a_launch_on_no_sm_is_refused),
        cmocka_unit_test(as_many_blocks_at_once_as_the_sms_hold),
        cmocka_unit_test(a_cooperative_grid_must_fit_its_sms),
        cmocka_unit_test(the_row_of_sms_names_each_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
