/* Modules: several sources, what is missing, what is not understood, and text that is not PTX. */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <string.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

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

static enum weir_status load(const char *const *texts, uint32_t n, struct weir_diag *diag,
                             struct weir_exec_module **ret_module)
{
    struct weir_exec_source sources[4];
    for (uint32_t k = 0; k < n; k++) {
        sources[k] = (struct weir_exec_source){
            .text = texts[k], .bytes = strlen(texts[k]), .name = "source"};
    }
    return weir_exec_module_load(device, sources, n, &tx_memory, diag, ret_module);
}

static const char kernel_text[] = HEAD ".extern .func (.param .b32 r) twice(.param .b32 a);\n"
                                       ".extern .global .u32 base[2];\n"
                                       ".weak .global .u32 choice = 1;\n"
                                       ".visible .entry k(.param .u64 out)\n{\n"
                                       ".reg .b32 %r<4>; .reg .b64 %rd<3>;\n"
                                       "ld.param.u64 %rd1, [out];\n"
                                       "ld.global.u32 %r1, [base+4];\n"
                                       "{ .param .b32 p; .param .b32 q; st.param.b32 [p], %r1;\n"
                                       "call (q), twice, (p); ld.param.b32 %r2, [q]; }\n"
                                       "ld.global.u32 %r3, [choice];\n"
                                       "add.u32 %r2, %r2, %r3;\n"
                                       "st.global.u32 [%rd1], %r2;\nret;\n}\n";

static const char other_text[] =
    HEAD ".visible .global .u32 base[2] = {3, 21};\n"
         ".visible .global .u32 choice = 100;\n"
         ".visible .global .u64 where = base+4;\n"
         ".visible .func (.param .b32 r) twice(.param .b32 a)\n{\n"
         ".reg .b32 %r<3>;\n"
         "ld.param.b32 %r1, [a]; shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret;\n}\n";

static void sources_resolve_each_other(void **state)
{
    (void)state;
    const char *texts[] = {kernel_text, other_text};
    struct weir_exec_module *module;
    struct weir_diag diag = {0};
    assert_int_equal(load(texts, 2, &diag, &module), WEIR_OK);
    uint32_t *out = tx_alloc(4);
    void *params[] = {out};
    tx_must(device, module, "k", (struct tx_launch){.grid = 1, .block = 1}, params, 8);
    assert_int_equal(*out, 142);
    struct weir_exec_global base;
    struct weir_exec_global where;
    assert_int_equal(weir_exec_module_global(module, "base", &base), WEIR_OK);
    assert_int_equal(weir_exec_module_global(module, "where", &where), WEIR_OK);
    assert_int_equal(*(uint64_t *)(uintptr_t)where.address, base.address + 4);
    tx_free(out);
    weir_exec_module_destroy(module);
}

static void loads_that_fail_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum weir_status status;
        const char *message;
    } cases[] = {
        {kernel_text, WEIR_ERR_NOT_FOUND, "base"},
        {"this is not PTX", WEIR_ERR_SYNTAX, ""},
        {".version 8.7\n.target sm_100\n.address_size 64\n", WEIR_ERR_VERSION, "sm_100"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct weir_exec_module *module;
        struct weir_diag diag = {0};
        assert_int_equal(load(&cases[c].text, 1, &diag, &module), cases[c].status);
        assert_non_null(strstr(diag.message, cases[c].message));
        assert_true(diag.message[0] != '\0');
    }
}

static void unknown_instructions_refuse_only_their_kernel(void **state)
{
    (void)state;
    const char *text = HEAD ".visible .entry bad(.param .u64 a)\n{\n.reg .b32 %r<3>;\n"
                            "wgmma.fence.sync.aligned;\nret;\n}\n"
                            ".visible .entry good()\n{\nret;\n}\n";
    struct weir_exec_module *module;
    struct weir_diag diag = {0};
    assert_int_equal(load(&text, 1, &diag, &module), WEIR_OK);
    const struct weir_exec_kernel *bad = weir_exec_module_kernel_at(module, 0);
    assert_non_null(
        strstr(weir_exec_kernel_info(bad)->unsupported, "wgmma.fence.sync.aligned (line 7)"));
    struct weir_exec_fault fault;
    uint64_t a = 0;
    assert_int_equal(
        tx_run(device, module, "bad", (struct tx_launch){.grid = 1, .block = 1}, &a, 8, &fault),
        WEIR_ERR_UNSUPPORTED);
    tx_must(device, module, "good", (struct tx_launch){.grid = 1, .block = 1}, NULL, 0);
    weir_exec_module_destroy(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_resolve_each_other),
        cmocka_unit_test(loads_that_fail_say_why),
        cmocka_unit_test(unknown_instructions_refuse_only_their_kernel),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
