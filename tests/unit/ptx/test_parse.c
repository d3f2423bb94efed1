/* What the IR says of a text: registers, scopes, operands, decoded suffixes, variables, calls. */
#include "ptx/ir.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 8.7\n.target sm_90a\n.address_size 64\n"

static struct weir_ptx_module *parse(const char *text, uint32_t flags)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};

    if (weir_ptx_parse(text, strlen(text), flags, &diag, &module) != WEIR_OK) {
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.message);
    }
    return module;
}

static void parse_header_fills_module(void **state)
{
    struct weir_ptx_module *module = parse(HEAD, 0);

    (void)state;
    assert_int_equal(module->version_major, 8);
    assert_int_equal(module->version_minor, 7);
    assert_int_equal(module->sm, 90);
    assert_int_equal(module->sm_suffix, 'a');
    assert_int_equal(module->address_size, 64);
    weir_ptx_destroy(module);
}

static void parse_registers_are_dense_in_order_of_use(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".entry k() { .reg .b32 %r<1000000>; .reg .b64 x;\n"
                   "add.s32 %r7, %r999999, %r7; cvt.u64.u32 x, %r7; ret; }",
              0);
    const struct weir_ptx_func *k = weir_ptx_find_func(module, "k");

    (void)state;
    assert_int_equal(k->n_regs, 3);
    assert_int_equal(k->insts[0].operands[0].reg, 0);
    assert_int_equal(k->insts[0].operands[1].reg, 1);
    assert_int_equal(k->insts[0].operands[2].reg, 0);
    assert_string_equal(k->regs[1].name, "%r999999");
    assert_int_equal(k->regs[2].type, WEIR_PTX_TYPE_B64);
    assert_int_equal(k->regs[2].bits, 64);
    weir_ptx_destroy(module);
}

static void parse_inner_scope_hides_outer_names(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".entry k() { .reg .b32 a; .reg .b32 r<4>; mov.b32 a, 1; mov.b32 r1, 1;\n"
                   "{ .reg .b32 a; .reg .b32 r<4>; mov.b32 a, 2; mov.b32 r1, 2; x: bra.uni x; }\n"
                   "x: bra.uni x; mov.b32 a, 3; mov.b32 r1, 3; ret; }",
              0);
    const struct weir_ptx_func *k = weir_ptx_find_func(module, "k");
    const struct weir_ptx_inst *i = k->insts;

    (void)state;
    assert_int_equal(k->n_regs, 4);
    assert_int_not_equal(i[0].operands[0].reg, i[2].operands[0].reg);
    assert_int_not_equal(i[1].operands[0].reg, i[3].operands[0].reg);
    assert_int_equal(i[0].operands[0].reg, i[6].operands[0].reg);
    assert_int_equal(i[1].operands[0].reg, i[7].operands[0].reg);
    assert_int_equal(k->labels[i[4].operands[0].label].inst, 4);
    assert_int_equal(k->labels[i[5].operands[0].label].inst, 5);
    assert_string_not_equal(k->labels[0].name, k->labels[1].name);
    weir_ptx_destroy(module);
}

static void parse_suffixes_are_decoded(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".entry k() { .reg .b32 r<9>; .reg .b64 d; .reg .pred p, q; .reg .f32 f<9>;\n"
                   "ld.acquire.gpu.global.L1::evict_last.L2::128B.v4.u32 {r1, r2, _, r3}, [d+-8];\n"
                   "@!p setp.leu.ftz.or.f32 p|q, f1, 0f3F800000, !q;\n"
                   "cvt.rni.sat.s32.f32 r1, f1;\n"
                   "atom.shared.cta.cas.b32 r1, [r2], r3, -1;\n"
                   "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {f1, f2, f3, f4},\n"
                   " {r1, r2, r3, r4}, {r5, r6}, {f1, f2, f3, f4};\n"
                   "mov.u32 r1, %ctaid.y; }",
              0);
    const struct weir_ptx_inst *i = weir_ptx_find_func(module, "k")->insts;

    (void)state;
    assert_int_equal(i[0].space, WEIR_PTX_SPACE_GLOBAL);
    assert_int_equal(i[0].order, WEIR_PTX_MOD_ACQUIRE);
    assert_int_equal(i[0].scope, WEIR_PTX_MOD_GPU);
    assert_int_equal(i[0].evict, WEIR_PTX_MOD_L1_EVICT_LAST);
    assert_int_equal(i[0].vec, 4);
    assert_int_equal(i[0].types[0], WEIR_PTX_TYPE_U32);
    assert_true(weir_ptx_inst_has(&i[0], WEIR_PTX_MOD_L2_128B));
    assert_int_equal(i[0].operands[0].n_elems, 4);
    assert_int_equal(i[0].operands[0].elems[2].kind, WEIR_PTX_OPERAND_SINK);
    assert_int_equal(i[0].operands[1].kind, WEIR_PTX_OPERAND_MEM);
    assert_int_equal(i[0].operands[1].offset, -8);
    assert_true(i[1].guard_negated);
    assert_int_equal(i[1].cmp, WEIR_PTX_MOD_LEU);
    assert_int_equal(i[1].action, WEIR_PTX_MOD_OR);
    assert_int_equal(i[1].flags, WEIR_PTX_FLAG_FTZ);
    assert_int_equal(i[1].operands[0].reg, i[1].guard);
    assert_int_equal(i[1].operands[0].reg2, i[1].operands[3].reg);
    assert_true(i[1].operands[3].negated);
    assert_int_equal(i[1].operands[2].bits, 0x3f800000);
    assert_int_equal(i[1].operands[2].float_bits, 32);
    assert_int_equal(i[2].round, WEIR_PTX_MOD_RNI);
    assert_int_equal(i[2].flags, WEIR_PTX_FLAG_SAT);
    assert_int_equal(i[2].types[0], WEIR_PTX_TYPE_S32);
    assert_int_equal(i[2].types[1], WEIR_PTX_TYPE_F32);
    assert_int_equal(i[3].action, WEIR_PTX_MOD_CAS);
    assert_int_equal(i[3].operands[3].bits, UINT64_MAX);
    assert_int_equal(i[4].shape.m, 16);
    assert_int_equal(i[4].n_types, 4);
    assert_int_equal(i[5].operands[1].sreg, WEIR_PTX_SREG_CTAID);
    assert_int_equal(i[5].operands[1].component, 1);
    weir_ptx_destroy(module);
}

static void parse_parameters_are_placed(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20],\n"
                   ".param .u32 d) .reqntid 64 { ret; }",
              0);
    const struct weir_ptx_func *k = weir_ptx_find_func(module, "k");
    static const uint64_t offsets[] = {0, 8, 16, 36};

    (void)state;
    assert_int_equal(k->n_params, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(k->params[i]->offset_bytes, offsets[i]);
    }
    assert_int_equal(k->params_size_bytes, 40);
    assert_int_equal(k->perf.n_reqntid, 1);
    assert_int_equal(k->perf.reqntid[0], 64);
    assert_int_equal(k->perf.reqntid[1], 1);
    weir_ptx_destroy(module);
}

static void parse_initialisers_have_places(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".global .u32 x; .global .b8 a[2][3] = {{1}, {0, 2, -1}};\n"
                   ".global .u64 b[2] = {0, generic(x)+4}; .global .f32 f = 0.5;",
              0);
    const struct weir_ptx_var *a = weir_ptx_find_var(module, "a");
    const struct weir_ptx_var *b = weir_ptx_find_var(module, "b");

    (void)state;
    assert_int_equal(a->size_bytes, 6);
    assert_int_equal(a->n_inits, 3);
    assert_int_equal(a->inits[0].index, 0);
    assert_int_equal(a->inits[1].index, 4);
    assert_int_equal(a->inits[2].index, 5);
    assert_int_equal(a->inits[2].bits, 0xff);
    assert_int_equal(b->n_inits, 1);
    assert_int_equal(b->inits[0].index, 1);
    assert_ptr_equal(b->inits[0].var, weir_ptx_find_var(module, "x"));
    assert_true(b->inits[0].generic);
    assert_int_equal(b->inits[0].offset, 4);
    assert_int_equal(weir_ptx_find_var(module, "f")->inits[0].bits, 0x3f000000);
    weir_ptx_destroy(module);
}

static void parse_calls_have_fixed_places(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".func f; .func (.param .b32 r) g (.param .b32 x);\n"
                   ".entry k() { .reg .b64 d; .param .b32 a; .param .b32 b; call.uni f;\n"
                   "call (a), g, (b); p: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
                   "call (a), d, (b), p; ret; }",
              0);
    const struct weir_ptx_inst *i = weir_ptx_find_func(module, "k")->insts;

    (void)state;
    assert_int_equal(i[0].n_operands, 3);
    assert_int_equal(i[0].operands[0].n_elems, 0);
    assert_ptr_equal(i[0].operands[1].func, weir_ptx_find_func(module, "f"));
    assert_int_equal(i[1].operands[0].elems[0].kind, WEIR_PTX_OPERAND_VAR);
    assert_int_equal(i[1].operands[2].n_elems, 1);
    assert_int_equal(i[2].operands[1].kind, WEIR_PTX_OPERAND_REG);
    assert_int_equal(i[2].operands[3].table->proto->n_params, 1);
    assert_int_equal(i[2].operands[3].table->kind, WEIR_PTX_TABLE_PROTOTYPE);
    weir_ptx_destroy(module);
}

static void parse_drop_debug_leaves_no_trace(void **state)
{
    struct weir_ptx_module *module =
        parse(".version 8.7\n.target sm_90, debug\n.file 1 \"a.cu\"\n"
              ".entry k() {\n.loc 1 2 3\nret; }\n.section .debug_str { .b8 0 }\n",
              WEIR_PTX_DROP_DEBUG);
    char *text = NULL;

    (void)state;
    assert_int_equal(weir_ptx_print_buffer(module, &text, NULL), WEIR_OK);
    assert_null(strstr(text, "debug"));
    assert_null(strstr(text, ".loc"));
    assert_null(strstr(text, ".file"));
    free(text);
    weir_ptx_destroy(module);
}

static void check_register_out_of_range_is_refused(void **state)
{
    struct weir_ptx_module *module =
        parse(HEAD ".entry k() { .reg .b32 r<3>; add.s32 r0, r1, r2; ret; }", 0);
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_ptx_check(module, &diag), WEIR_OK);
    weir_ptx_find_func(module, "k")->insts[0].operands[2].reg = 3;
    assert_int_equal(weir_ptx_check(module, &diag), WEIR_ERR_SYNTAX);
    assert_non_null(strstr(diag.message, "does not exist"));
    weir_ptx_destroy(module);
}

static void destroy_null_is_fine(void **state)
{
    (void)state;
    weir_ptx_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_header_fills_module),
        cmocka_unit_test(parse_registers_are_dense_in_order_of_use),
        cmocka_unit_test(parse_inner_scope_hides_outer_names),
        cmocka_unit_test(parse_suffixes_are_decoded),
        cmocka_unit_test(parse_parameters_are_placed),
        cmocka_unit_test(parse_initialisers_have_places),
        cmocka_unit_test(parse_calls_have_fixed_places),
        cmocka_unit_test(parse_drop_debug_leaves_no_trace),
        cmocka_unit_test(check_register_out_of_range_is_refused),
        cmocka_unit_test(destroy_null_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
