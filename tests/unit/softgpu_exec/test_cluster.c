/* Clusters: blocks that read each other's shared memory and wait for each other; and alloca. */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <stdio.h>
#include <string.h>

#define HEAD ".version 8.3\n.target sm_90\n.address_size 64\n"
#define TILE                                                                                       \
    HEAD ".shared .align 4 .b32 tile[32];\n.visible .entry k(.param .u64 out) DIRECTIVE\n{\n"      \
         ".reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<3>;\n"                                 \
         "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, tile;\n"                   \
         "mad.lo.u32 %r2, %r1, 4, %r2;\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\n"           \
         "mad.lo.u32 %r5, %r3, %r4, %r1;\nmul.wide.u32 %rd2, %r5, 4;\nadd.u64 %rd1, %rd1, %rd2;\n" \
         "mov.u32 %r6, %cluster_ctarank;\nmov.u32 %r7, %cluster_nctarank;\n"

static struct weir_exec_device *device;

static int set_up(void **state)
{
    (void)state;
    device = tx_device();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_exec_device_destroy(device);
    return 0;
}

static struct weir_exec_module *module_of(const char *body, const char *directive)
{
    char text[4096];
    const char *head = TILE;
    const char *at = strstr(head, "DIRECTIVE");
    snprintf(text, sizeof text, "%.*s%s%s%sret;\n}\n", (int)(at - head), head, directive,
             at + strlen("DIRECTIVE"), body);
    return tx_load_text(device, text);
}

static enum weir_status run(const struct weir_exec_module *module, uint32_t grid, uint32_t cluster,
                            uint32_t *out, struct weir_exec_fault *ret_fault)
{
    struct {
        uint32_t *out;
    } params = {out};
    const struct weir_exec_launch launch = {.kernel = weir_exec_module_kernel(module, "k"),
                                            .grid = {grid, 1, 1},
                                            .block = {32, 1, 1},
                                            .cluster = {cluster, 0, 0},
                                            .params = &params,
                                            .params_bytes = sizeof params,
                                            .heap_bytes = 1u << 20};
    return weir_exec_run(device, &launch, ret_fault);
}

#define READ_NEIGHBOUR                                                                             \
    "mad.lo.u32 %r8, %r3, 100, %r1;\nst.shared.b32 [%r2], %r8;\n"                                  \
    "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"                                             \
    "add.u32 %r9, %r6, 1;\nrem.u32 %r9, %r9, %r7;\nmapa.shared::cluster.u32 %r10, %r2, %r9;\n"     \
    "ld.shared::cluster.b32 %r11, [%r10];\nst.global.b32 [%rd1], %r11;\n"                          \
    "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"

static void expect_neighbours(const uint32_t *out, uint32_t blocks, uint32_t cluster)
{
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t other = b / cluster * cluster + (b % cluster + 1) % cluster;
        for (uint32_t t = 0; t < 32; t++) {
            assert_int_equal(out[b * 32 + t], other * 100 + t);
        }
    }
}

static void blocks_of_a_cluster_read_each_other(void **state)
{
    (void)state;
    struct weir_exec_fault fault;
    uint32_t *out = tx_alloc(64 * 32 * 4);
    struct weir_exec_module *free_size = module_of(READ_NEIGHBOUR, "");
    for (uint32_t cluster = 1; cluster <= 16; cluster *= 2) {
        memset(out, 0xff, 64 * 32 * 4);
        assert_int_equal(run(free_size, 64, cluster, out, &fault), WEIR_OK);
        expect_neighbours(out, 64, cluster);
    }
    struct weir_exec_module *fours = module_of(READ_NEIGHBOUR, ".reqnctapercluster 4, 1, 1");
    assert_int_equal(run(fours, 8, 0, out, &fault), WEIR_OK);
    expect_neighbours(out, 8, 4);
    assert_int_equal(run(fours, 8, 2, out, &fault), WEIR_ERR_INVALID);
    assert_int_equal(run(fours, 6, 0, out, &fault), WEIR_ERR_INVALID);
    assert_int_equal(run(free_size, 32, 32, out, &fault), WEIR_ERR_INVALID);
    weir_exec_module_destroy(free_size);
    weir_exec_module_destroy(fours);
    tx_free(out);
}

/* Half of the threads of rank 1 leave at once, some of them after they have arrived. */
static void threads_that_exit_have_arrived(void **state)
{
    (void)state;
    struct weir_exec_fault fault;
    uint32_t *out = tx_alloc(4 * 32 * 4);
    struct weir_exec_module *module =
        module_of("setp.lt.u32 %p1, %r1, 8;\n@%p1 exit;\nbarrier.cluster.arrive;\n"
                  "setp.lt.u32 %p1, %r1, 16;\n@%p1 exit;\nbarrier.cluster.wait;\n"
                  "st.global.b32 [%rd1], 7;\n",
                  "");
    assert_int_equal(run(module, 4, 2, out, &fault), WEIR_OK);
    for (uint32_t k = 0; k < 4 * 32; k++) {
        assert_int_equal(out[k], k % 32 < 16 ? 0 : 7);
    }
    weir_exec_module_destroy(module);
    tx_free(out);
}

static void clusters_that_cannot_go_on_are_stopped(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t code;
    } cases[] = {
        /* rank 1 waits for threads that do not exist, rank 0 for rank 1 */
        {"setp.eq.u32 %p1, %r6, 1;\n@%p1 bar.sync 1, 64;\n"
         "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
         719},
        /* no such block; beyond its shared memory */
        {"mapa.shared::cluster.u32 %r10, %r2, 2;\nld.shared::cluster.b32 %r11, [%r10];\n", 700},
        {"mapa.shared::cluster.u32 %r10, %r2, 1;\nld.shared::cluster.b32 %r11, [%r10+4096];\n",
         700},
        {"cvt.u64.u32 %rd3, %r2;\ncvta.shared.u64 %rd3, %rd3;\nmapa.u64 %rd4, %rd3, 9;\n"
         "st.b32 [%rd4], 1;\n",
         700},
    };
    uint32_t *out = tx_alloc(4 * 32 * 4);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct weir_exec_fault fault = {0};
        struct weir_exec_module *module = module_of(cases[c].body, "");
        assert_int_equal(run(module, 4, 2, out, &fault), WEIR_ERR_DRIVER);
        assert_int_equal(fault.code, cases[c].code);
        weir_exec_module_destroy(module);
    }
    tx_free(out);
}

/* As an H200 does; in a cluster of two the same store arrives. */
static void st_async_wants_more_than_one_block(void **state)
{
    (void)state;
    struct weir_exec_fault fault = {0};
    uint32_t *out = tx_alloc(4 * 32 * 4);
    struct weir_exec_module *module = module_of(
        ".shared .align 8 .b64 gate;\nsetp.eq.u32 %p1, %r1, 0;\nmov.u32 %r8, gate;\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r8], 1;\n"
        "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 128;\n"
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
        "mapa.shared::cluster.u32 %r9, %r2, %r6;\nmapa.shared::cluster.u32 %r10, %r8, %r6;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r9], %r5, [%r10];\n"
        "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0;\n@!%p2 bra wait;\n"
        "ld.shared.b32 %r11, [%r2];\nst.global.b32 [%rd1], %r11;\n"
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\n",
        "");
    assert_int_equal(run(module, 4, 1, out, &fault), WEIR_ERR_DRIVER);
    assert_int_equal(fault.code, 715);
    assert_int_equal(run(module, 4, 2, out, &fault), WEIR_OK);
    for (uint32_t k = 0; k < 4 * 32; k++) {
        assert_int_equal(out[k], k);
    }
    weir_exec_module_destroy(module);
    tx_free(out);
}

static void alloca_ends_with_its_function(void **state)
{
    (void)state;
    struct weir_exec_fault fault = {0};
    uint32_t *out = tx_alloc(32 * 4);
    struct weir_exec_module *module = tx_load_text(
        device,
        HEAD ".func (.param .b32 r) taker(.param .b32 n)\n{\n.reg .b64 %rd<4>; .reg .b32 %r<4>;\n"
             "ld.param.u32 %r1, [n];\ncvt.u64.u32 %rd1, %r1;\nalloca.u64 %rd2, %rd1, 16;\n"
             "st.local.u32 [%rd2], %r1;\nld.local.u32 %r2, [%rd2];\nst.param.b32 [r], %r2;\n"
             "ret;\n}\n"
             ".visible .entry k(.param .u64 out)\n{\n"
             ".reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .pred %p;\n.param .b32 give, take;\n"
             "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n"
             "add.u64 %rd1, %rd1, %rd2;\nmov.u32 %r2, 1000;\nmov.u32 %r4, 0;\nLOOP:\n"
             "mad.lo.u32 %r3, %r1, 16, 4096;\nst.param.b32 [give], %r3;\n"
             "call (take), taker, (give);\nld.param.b32 %r3, [take];\nadd.u32 %r4, %r4, %r3;\n"
             "sub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p, %r2, 0;\n@%p bra LOOP;\n"
             "st.global.u32 [%rd1], %r4;\nret;\n}\n"
             ".visible .entry greedy()\n{\n.reg .b64 %rd<2>;\nalloca.u64 %rd1, 1000000, 16;\n"
             "ret;\n}\n");
    tx_must(device, module, "k", (struct tx_launch){.grid = 1, .block = 32}, &out, 8);
    for (uint32_t t = 0; t < 32; t++) {
        assert_int_equal(out[t], 1000 * (4096 + 16 * t));
    }
    assert_int_equal(tx_run(device, module, "greedy", (struct tx_launch){.grid = 1, .block = 32},
                            NULL, 0, &fault),
                     WEIR_ERR_DRIVER);
    assert_int_equal(fault.code, 714);
    weir_exec_module_destroy(module);
    tx_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_cluster_read_each_other),
        cmocka_unit_test(threads_that_exit_have_arrived),
        cmocka_unit_test(clusters_that_cannot_go_on_are_stopped),
        cmocka_unit_test(st_async_wants_more_than_one_block),
        cmocka_unit_test(alloca_ends_with_its_function),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
