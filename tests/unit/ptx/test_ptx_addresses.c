/* Which variables functions reach, and what lets an address of one out. */
#include "ptx/addresses.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#define HEAD                                                                                       \
    ".version 9.0\n.target sm_90\n.address_size 64\n"                                              \
    ".global .u32 a;\n.global .b8 b[64];\n.const .b8 c[64];\n.global .u32 never;\n"                \
    ".extern .func (.param .b32 r) vprintf (.param .b64 x, .param .b64 y);\n"                      \
    ".extern .func other (.param .b64 x);\n"
#define REGS ".reg .b32 %r<8>; .reg .b64 %d<16>; .reg .pred %p<4>; .reg .b64 %q<4>;\n"

static void what_lets_an_address_out(void **state)
{
    static const struct {
        const char *body;
        bool leaves;
        const char *before; /* at module scope */
    } rows[] = {
        {"ld.global.u32 %r1, [a]; st.global.u32 [a+4], %r1;", false, ""},
        {"mov.u64 %d1, a; atom.global.add.u32 %r2, [%d1], %r1; st.global.u32 [%d2], %r2;", false,
         ""},
        {"mov.u64 %d1, b; cvta.global.u64 %d2, %d1; mad.wide.u32 %d3, %r1, 4, %d2;"
         "ld.u32 %r2, [%d3+8]; st.u32 [%d3], %r2;",
         false, ""},
        {"mov.u64 %d1, a; setp.eq.u64 %p1, %d1, %d2; selp.b32 %r1, 1, 2, %p1; st.global.u32 [%d3], "
         "%r1;",
         false, ""},
        {"mov.u64 %d1, b; @%p1 prefetch.global.L2 [%d1];", false, ""},
        {"{ .param .b64 x; .param .b64 y; .param .b32 z; mov.u64 %d1, b; st.param.b64 [x], %d1;"
         "st.param.b64 [y], %d2; call (z), vprintf, (x, y); }",
         false, ""},
        {"{ .param .b64 x; mov.u64 %d1, b; st.param.b64 [x], %d2; call other, (x); }", false, ""},
        {"mov.u64 %d1, a; st.global.u64 [%d2], %d1;", true, ""},
        {"mov.u64 %d1, c; st.global.u64 [%d2], %d1;", true, ""},
        {"mov.u64 %d1, a; st.local.u64 [%d2], %d1;", true, ""},
        {"mov.u64 %d1, a; st.global.v2.u64 [%d2], {%d3, %d1};", true, ""},
        {"mov.u64 %d1, a; atom.global.exch.b64 %d3, [%d2], %d1;", true, ""},
        {"mov.u64 %d1, a; cvt.u32.u64 %r1, %d1; xor.b32 %r2, %r1, 5; st.global.u32 [%d2], %r2;",
         true, ""},
        {"L: st.global.u64 [%d2], %d3; mov.u64 %d3, %d4; mov.u64 %d4, a; @%p1 bra L;", true, ""},
        {"mov.u64 %d1, a; shfl.sync.idx.b32 %r1|%p1, %r2, 1, 31, -1; mov.b64 {%r3, %r4}, %d1;"
         "st.global.u32 [%d2], %r4;",
         true, ""},
        {"{ .param .b64 x; mov.u64 %d1, b; st.param.b64 [x], %d1; call other, (x); }", true, ""},
        {"{ .param .b64 x; call (x), f, (); }", true,
         ".func (.param .b64 r) f () { .reg .b64 %d1; mov.u64 %d1, a; st.param.b64 [r], %d1; ret; "
         "}"},
        {"{ call (%d1), f, (); }", true, ".func (.reg .b64 %r) f () { mov.u64 %r, a; ret; }"},
        {"mov.u64 %d1, f; st.global.u64 [%d2], %d1;", true, ".visible .func f () { ret; }"},
        {"ld.global.u64 %d1, [p];", true, ".global .u64 p = generic(b);"},
        {"ld.const.u64 %d1, [p];", true, ".const .u64 p[2] = {0, a};"},
        {"ld.global.u32 %r1, [own]; ", true, "",
         /* a function's own variable has no name outside */},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_ptx_module *module;
        struct weir_diag diag;
        bool reached[8], leaves;
        char text[2048];
        int n = snprintf(text, sizeof text, "%s%s\n.entry k () { .global .u32 own; %s%s\nret; }\n",
                         HEAD, rows[i].before, REGS, rows[i].body);

        if (weir_ptx_parse(text, (size_t)n, 0, &diag, &module) != WEIR_OK) {
            fail_msg("%s: %s", rows[i].body, diag.message);
        }
        assert_int_equal(weir_ptx_addresses(module, reached, &leaves), WEIR_OK);
        weir_ptx_destroy(module);
        if (leaves != rows[i].leaves || reached[3]) {
            fail_msg("%s: %d", rows[i].body, leaves);
        }
    }
}

static void what_is_named_is_reached(void **state)
{
    static const char text[] =
        HEAD ".global .u32 kept;\n.entry k () { " REGS
             "ld.global.u32 %r1, [a+4]; mov.u64 %d1, b; ret; }\n.func f () { " REGS
             "ld.global.u32 %r1, [kept]; ret; }";
    static const bool want[] = {true, true, false, false, true};
    struct weir_ptx_module *module;
    bool reached[8], leaves;

    (void)state;
    assert_int_equal(weir_ptx_parse(text, sizeof text, 0, NULL, &module), WEIR_OK);
    assert_int_equal(module->n_vars, 5);
    assert_int_equal(weir_ptx_addresses(module, reached, &leaves), WEIR_OK);
    assert_false(leaves);
    assert_memory_equal(reached, want, sizeof want);
    weir_ptx_destroy(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lets_an_address_out),
        cmocka_unit_test(what_is_named_is_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
