/*
 * Twins as text: what each pass must leave, and must not. That twins do what their kernels do is
 * shown by tests/integration/test_forms.c.
 */
#include "ptx/pass/passes.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"

#include "tests/lib/tl_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T    WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET)
#define P    WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT)
#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

struct made {
    struct weir_ptx_module *module;
    struct weir_ptx_twins twins;
    char *text;
};

static struct made make_wants(const char *text, const struct weir_ptx_twin_want *wants, uint32_t n)
{
    struct weir_diag diag = {0};
    struct made made;

    if (weir_ptx_parse(text, strlen(text), 0, &diag, &made.module) != WEIR_OK) {
        fail_msg("line %u: %s", diag.line, diag.message);
    }
    assert_int_equal(weir_ptx_twins(made.module, wants, n, &made.twins), WEIR_OK);
    if (weir_ptx_check(made.module, &diag) != WEIR_OK) {
        fail_msg("the twins are not valid: %s", diag.message);
    }
    assert_int_equal(weir_ptx_print_buffer(made.module, &made.text, NULL), WEIR_OK);
    return made;
}

static struct made make(const char *text, uint32_t forms)
{
    const struct weir_ptx_twin_want want = {.forms = forms};

    return make_wants(text, &want, 1);
}

static void drop(struct made *made)
{
    free(made->text);
    weir_ptx_destroy(made->module);
}

/* Times that a piece of text occurs. */
static uint32_t count(const struct made *made, const char *piece)
{
    uint32_t n = 0;

    for (const char *at = made->text; (at = strstr(at, piece)); at += strlen(piece)) {
        n++;
    }
    return n;
}

static void assert_has(const struct made *made, const char *piece)
{
    if (!count(made, piece)) {
        fail_msg("no '%s' in:\n%s", piece, made->text);
    }
}

static void assert_has_not(const struct made *made, const char *piece)
{
    if (count(made, piece)) {
        fail_msg("'%s' in:\n%s", piece, made->text);
    }
}

static const char plain[] = HEAD ".visible .entry k(.param .u64 p)\n{\n"
                                 ".reg .b32 %r<4>; .reg .b64 %d<3>;\n"
                                 "ld.param.u64 %d1, [p];\nmov.u32 %r1, %ctaid.x;\n"
                                 "mov.u32 %r2, %nctaid.x;\nst.global.u32 [%d1], %r1;\nret;\n}\n"
                                 ".visible .entry other(.param .u64 p)\n{\nret;\n}\n";

static void twins_have_names_parameters_and_no_originals(void **state)
{
    struct made made = make(plain, T | P);

    (void)state;
    assert_int_equal(made.twins.n_infos, 4);
    assert_int_equal(made.twins.n_made, 4);
    assert_string_equal(made.twins.infos[0].kernel, "k");
    assert_string_equal(made.twins.infos[0].name, "k$ticket");
    assert_string_equal(made.twins.infos[1].name, "k$persistent");
    assert_int_equal(made.twins.infos[1].args_offset, 8);
    assert_int_equal(made.twins.infos[1].param_bytes, 8 + sizeof(struct weir_ptx_form_args));
    assert_has(&made, ".visible .entry k$ticket(");
    assert_has_not(&made, ".entry k(");
    assert_has(&made, ".visible .entry weir$finish(");
    drop(&made);
}

static void twins_are_made_of_wanted_kernels_only(void **state)
{
    const struct weir_ptx_twin_want wants[] = {{.kernel = "other", .forms = P, .max_regs = 40}};
    struct made made = make_wants(plain, wants, 1);

    (void)state;
    assert_int_equal(made.twins.n_infos, 1);
    assert_has(&made, "other$persistent");
    assert_has(&made, ".maxnreg 40");
    assert_has_not(&made, "k$persistent");
    assert_has_not(&made, "weir$finish");
    drop(&made);
}

static void twins_of_unknown_kernel_are_not_found(void **state)
{
    const struct weir_ptx_twin_want want = {.kernel = "none", .forms = T};
    struct weir_ptx_module *module;
    struct weir_ptx_twins twins;

    (void)state;
    assert_int_equal(weir_ptx_parse(plain, strlen(plain), 0, NULL, &module), WEIR_OK);
    assert_int_equal(weir_ptx_twins(module, &want, 1, &twins), WEIR_ERR_NOT_FOUND);
    weir_ptx_destroy(module);
}

static void register_limit_takes_the_place_of_blocks_per_sm(void **state)
{
    static const char text[] =
        HEAD ".visible .entry k()\n.maxntid 256\n.minnctapersm 4\n{\nret;\n}\n";
    const struct weir_ptx_twin_want want = {.forms = P, .max_regs = 32};
    struct made made = make_wants(text, &want, 1), as_is = make(text, P);

    (void)state;
    assert_has(&made, ".maxnreg 32");
    assert_has_not(&made, ".minnctapersm");
    assert_has(&made, ".maxntid 256");
    assert_has(&as_is, ".minnctapersm 4");
    drop(&made);
    drop(&as_is);
}

/* Every way to write a read of the index, in the entry and in what it calls. */
static void no_read_of_the_index_is_left(void **state)
{
    static const char text[] = HEAD
        ".func (.param .b32 out) where()\n{\n.reg .b32 %a<3>;\nmov.u32 %a1, %ctaid.y;\n"
        "mov.u32 %a2, %nctaid.z;\nadd.u32 %a1, %a1, %a2;\nst.param.b32 [out], %a1;\nret;\n}\n"
        ".func (.param .b32 out) caller()\n{\n.reg .b32 %a<2>;\n"
        "{\n.param .b32 r;\ncall (r), where, ();\nld.param.b32 %a1, [r];\n}\n"
        "st.param.b32 [out], %a1;\nret;\n}\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b16 %h<2>; .reg .b32 %r<9>; .reg .b64 %d<3>;\n"
        ".reg .pred %q;\n"
        "mov.v4.u32 {%r1, %r2, %r3, %r4}, %ctaid;\nmov.v4.u32 {%r1, _, %r3, _}, %nctaid;\n"
        "mov.u16 %h1, %ctaid.x;\nmov.u32 %r5, %ctaid.z;\nsetp.eq.u32 %q, %r5, 0;\n"
        "@%q mov.u32 %r6, %nctaid.x;\ncvt.u64.u32 %d1, %ctaid.y;\n"
        "{\n.param .b32 r;\ncall (r), caller, ();\nld.param.b32 %r7, [r];\n}\nret;\n}\n";

    (void)state;
    for (uint32_t form = T; form <= P; form <<= 1) {
        struct made made = make(text, form);

        assert_int_equal(made.twins.n_made, 1);
        assert_has_not(&made, "%ctaid");
        assert_has_not(&made, "%nctaid");
        assert_has(&made, "weir$index");
        drop(&made);
    }
}

static void fourth_component_is_zero_and_guards_stay(void **state)
{
    static const char text[] = HEAD
        ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>; .reg .pred %q;\n"
        "mov.u32 %r5, %tid.x;\nsetp.eq.u32 %q, %r5, 0;\n@!%q mov.u32 %r6, %ctaid.x;\nret;\n}\n";
    struct made made = make(text, T);

    (void)state;
    assert_has(&made, "@!%p");
    drop(&made);
}

/* Predicated, uniform, in the middle, exit: all go to the tail. */
static void every_way_to_end_leads_to_the_tail(void **state)
{
    static const char text[] =
        HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .pred %q<3>; .reg .b32 %r<3>;\n"
             "mov.u32 %r1, %tid.x;\nsetp.eq.u32 %q1, %r1, 0;\n@%q1 ret;\nsetp.eq.u32 %q2, %r1, 1;\n"
             "@!%q2 exit;\nsetp.eq.u32 %q2, %r1, 2;\n@%q2 ret.uni;\nexit;\n}\n";
    struct made made = make(text, P);

    (void)state;
    assert_int_equal(made.twins.n_made, 1);
    assert_int_equal(count(&made, "ret;"), 1); /* of a worker that leaves */
    assert_has_not(&made, "exit;");
    assert_has_not(&made, "ret.uni");
    drop(&made);
}

#define BARRIER_KERNEL(body)                                                                       \
    HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .pred %q<3>; .reg .b32 %r<3>;\n"               \
         ".shared .b32 s[32];\nmov.u32 %r1, %tid.x;\nsetp.gt.u32 %q1, %r1, 9;\n" body "ret;\n}\n"

/* Threads of one warp would wait at two places, which hardware does not bring together. */
static void barriers_after_exits_are_refused(void **state)
{
    struct made early = make(BARRIER_KERNEL("@%q1 ret;\nbar.sync 3;\nbarrier.sync 3;\n"), P);
    struct made late = make(BARRIER_KERNEL("bar.sync 3;\n@%q1 ret;\nst.shared.b32 [s], 1;\n"), P);

    (void)state;
    assert_int_equal(early.twins.n_made, 0);
    assert_non_null(strstr(early.twins.infos[0].reason, "two places"));
    assert_int_equal(late.twins.n_made, 1);
    assert_int_equal(count(&late, "bar.sync 3;"), 1);
    drop(&early);
    drop(&late);
}

static void numbers_and_counts_of_barriers_stay(void **state)
{
    struct made made = make(BARRIER_KERNEL("@%q1 bra L;\nbar.sync 1, 64;\nL:\nbar.sync 0;\n"), P);

    (void)state;
    assert_int_equal(count(&made, "bar.sync 1, 64;"), 1);
    assert_int_equal(count(&made, "bar.sync 0;"), 1);
    /* The loop's own has the lowest number that is free: two for a task, one between its blocks. */
    assert_int_equal(count(&made, "bar.sync 2;"), 3);
    assert_int_equal(made.twins.infos[0].barriers, 2);
    drop(&made);
}

/* A leader must not tell the next task before all have read the last one. */
static void kernels_without_barriers_get_two_in_each_turn(void **state)
{
    struct made made = make(plain, P);

    (void)state;
    assert_int_equal(count(&made, "bar.sync 0;"), 4); /* k and other */
    assert_int_equal(made.twins.infos[0].barriers, 2);
    drop(&made);
}

static void barriers_that_cannot_be_known_are_refused(void **state)
{
    static const char *const bodies[] = {
        "bar.sync %r1;\n",                            /* a number in a register */
        "@%q1 ret;\nbar.red.and.pred %q2, 0, %q1;\n", /* a reduction after exits */
        "@%q1 ret;\nbar.sync 1;\nbar.sync 2;\n",      /* two numbers after exits */
        "bar.arrive 1, 64;\n",                        /* arrivals for the next block */
    };
    static const char *const pieces[] = {"no barrier number", "reduction", "several numbers",
                                         "arrival"};

    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        char text[1024];

        snprintf(text, sizeof(text), "%s%s%s",
                 HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .pred %q<3>; .reg .b32 %r<3>;\n"
                      "mov.u32 %r1, %tid.x;\nsetp.gt.u32 %q1, %r1, 9;\n",
                 bodies[i], "ret;\n}\n");
        struct made made = make(text, P);

        assert_int_equal(made.twins.n_made, 0);
        assert_non_null(strstr(made.twins.infos[0].reason, pieces[i]));
        drop(&made);
    }
}

static void warp_exchanges_after_exits_are_voted_on(void **state)
{
    struct made parted = make(BARRIER_KERNEL("@%q1 ret;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n"
                                             "shfl.sync.bfly.b32 %r2, %r2, 2, 31, 0xffffffff;\n"),
                              P);
    struct made uniform =
        make(BARRIER_KERNEL("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n@%q1 ret;\n"), P);

    (void)state;
    /* One for both, one in the tail. */
    assert_int_equal(count(&parted, "vote.sync.ballot.b32"), 2);
    assert_has_not(&parted, ", 31, -1;");
    assert_has_not(&uniform, "vote.sync");
    assert_has(&uniform, ", 31, -1;");
    drop(&parted);
    drop(&uniform);
}

static void masks_of_unknown_origin_are_refused_after_exits(void **state)
{
    struct made known =
        make(BARRIER_KERNEL("@%q1 ret;\nactivemask.b32 %r2;\nbar.warp.sync %r2;\n"), P);
    struct made unknown =
        make(BARRIER_KERNEL("@%q1 ret;\nadd.u32 %r2, %r1, 7;\nbar.warp.sync %r2;\n"), P);

    (void)state;
    assert_int_equal(known.twins.n_made, 1);
    assert_int_equal(unknown.twins.n_made, 0);
    assert_non_null(strstr(unknown.twins.infos[0].reason, "mask"));
    drop(&known);
    drop(&unknown);
}

static void slot_lies_behind_dynamic_memory_of_large_alignment(void **state)
{
#define DYNAMIC(align, more)                                                                       \
    HEAD ".extern .shared .align " #align " .b8 s[];\n.visible .entry k(.param .u64 p)\n{\n"       \
         ".reg .b32 %r<3>;\nld.shared.b32 %r1, [s];\n" more "ret;\n}\n"
    struct made large = make(DYNAMIC(1024, ""), P), small = make(DYNAMIC(16, ""), P);
    struct made sized = make(DYNAMIC(1024, "mov.u32 %r2, %dynamic_smem_size;\n"), P);

    (void)state;
    assert_int_equal(large.twins.infos[0].dynamic_shared_bytes, 16);
    assert_int_equal(large.twins.infos[0].static_shared_bytes, 0);
    assert_has(&large, "%dynamic_smem_size");
    assert_has_not(&large, "weir$task");
    assert_int_equal(small.twins.infos[0].dynamic_shared_bytes, 0);
    assert_int_equal(small.twins.infos[0].static_shared_bytes, 16);
    assert_has_not(&small, "%dynamic_smem_size");
    assert_int_equal(sized.twins.n_made, 0);
    drop(&large);
    drop(&small);
    drop(&sized);
}

static void variables_are_bound_and_constants_copied(void **state)
{
    static const char text[] = HEAD
        ".visible .global .align 4 .u32 used[4] = {1, 2};\n.visible .global .u32 unused;\n"
        ".global .align 8 .u64 pointer = used;\n.visible .const .align 8 .u64 c = used;\n"
        ".const .u32 d = 7;\n.const .u32 never;\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<5>; .reg .b64 %d<5>;\n"
        "ld.global.u32 %r1, [used+8];\nmov.u64 %d1, used+4;\ncvta.global.u64 %d2, pointer;\n"
        "red.global.add.u32 [used], %r1;\nld.const.u64 %d3, [c];\nld.const.u32 %r2, [d];\nret;\n}\n"
        ".visible .entry other()\n{\n.reg .b32 %r<2>;\nld.global.u32 %r1, [unused];\nret;\n}\n";
    const struct weir_ptx_twin_want want = {.kernel = "k", .forms = P};
    struct made made = make_wants(text, &want, 1);

    (void)state;
    assert_int_equal(made.twins.n_binds, 2);
    assert_string_equal(made.twins.binds[0], "used");
    assert_string_equal(made.twins.binds[1], "pointer");
    assert_has(&made, ".visible .const .align 8 .b64 weir$binds[2];");
    assert_has_not(&made, ".global .align");
    assert_has_not(&made, "[used");
    assert_int_equal(count(&made, "ld.const.b64"), 4);
    assert_int_equal(made.twins.n_consts, 2);
    assert_string_equal(made.twins.consts[0], "c");
    assert_string_equal(made.twins.consts[1], "d");
    assert_has(&made, ".visible .const .align 8 .u64 c;");
    assert_has_not(&made, "never");
    assert_has_not(&made, "unused");
    drop(&made);
}

static void statics_of_bodies_and_indirect_calls_are_refused_apart(void **state)
{
    static const char statics[] = HEAD ".visible .entry k()\n{\n.global .u32 v;\n.reg .b32 %r<2>;\n"
                                       "ld.global.u32 %r1, [v];\nret;\n}\n";
    static const char indirect[] =
        HEAD ".func f()\n{\nret;\n}\n.global .u64 table[1] = {f};\n.visible .entry k()\n{\n"
             ".reg .b64 %d<2>;\nld.global.u64 %d1, [table];\np: .callprototype _ ();\n"
             "call %d1, (), p;\nret;\n}\n";
    struct made a = make(statics, T | P), b = make(indirect, T | P);

    (void)state;
    assert_int_equal(a.twins.n_made, 0);
    assert_non_null(strstr(a.twins.infos[0].reason, "declared in a body"));
    assert_int_equal(b.twins.n_made, 0);
    assert_non_null(strstr(b.twins.infos[0].reason, "pointer"));
    drop(&a);
    drop(&b);
}

/* In the module itself the original must go on as before. */
static void originals_keep_their_text_when_twins_are_added(void **state)
{
    struct weir_ptx_analysis *analysis;
    struct weir_ptx_twin_info info;
    struct weir_ptx_module *module;
    char *before, *after;

    (void)state;
    assert_int_equal(weir_ptx_parse(plain, strlen(plain), 0, NULL, &module), WEIR_OK);
    assert_int_equal(weir_ptx_print_buffer(module, &before, NULL), WEIR_OK);
    assert_int_equal(weir_ptx_analyze(module, WEIR_PTX_ASSUME_OWN_POINTERS, &analysis), WEIR_OK);
    assert_int_equal(weir_ptx_twin(module, &analysis->kernels[0], WEIR_PTX_FORM_TICKET, &info),
                     WEIR_OK);
    assert_int_equal(weir_ptx_twin(module, &analysis->kernels[0], WEIR_PTX_FORM_TICKET, &info),
                     WEIR_ERR_EXISTS);
    assert_int_equal(weir_ptx_print_buffer(module, &after, NULL), WEIR_OK);
    assert_non_null(strstr(after, strstr(before, ".visible .entry other")));
    const char *k = strstr(before, ".visible .entry k(");
    size_t len = (size_t)(strstr(k, "}\n") - k);

    assert_memory_equal(strstr(after, ".visible .entry k("), k, len);
    free(before);
    free(after);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

static void our_names_and_old_versions_are_refused(void **state)
{
    static const char *const texts[] = {
        HEAD ".shared .b32 weir$task;\n.visible .entry k()\n{\nret;\n}\n",
        HEAD ".global .b64 weir$binds[4];\n.visible .entry k()\n{\nret;\n}\n",
        HEAD ".visible .entry k(.param .u64 weir$args)\n{\nret;\n}\n",
        HEAD ".visible .entry weir$finish()\n{\nret;\n}\n",
        ".version 5.0\n.target sm_50\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct made made = make(texts[i], T | P);

        assert_int_equal(made.twins.n_infos, 2);
        assert_int_equal(made.twins.n_made, 0);
        drop(&made);
    }
}

/* A text of many small kernels must not run into the bound of its own memory. */
static void many_kernels_get_their_twins(void **state)
{
    enum { KERNELS = 100 };
    char *text = malloc(sizeof(HEAD) + KERNELS * 100u);
    size_t at = 0;

    (void)state;
    assert_non_null(text);
    at += (size_t)sprintf(text, "%s", HEAD);
    for (int i = 0; i < KERNELS; i++) {
        at += (size_t)sprintf(text + at, ".visible .entry k%d(.param .u64 p)\n{\nret;\n}\n", i);
    }
    struct made made = make(text, T | P);

    assert_int_equal(made.twins.n_made, 2 * KERNELS);
    drop(&made);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twins_have_names_parameters_and_no_originals),
        cmocka_unit_test(twins_are_made_of_wanted_kernels_only),
        cmocka_unit_test(twins_of_unknown_kernel_are_not_found),
        cmocka_unit_test(register_limit_takes_the_place_of_blocks_per_sm),
        cmocka_unit_test(no_read_of_the_index_is_left),
        cmocka_unit_test(fourth_component_is_zero_and_guards_stay),
        cmocka_unit_test(every_way_to_end_leads_to_the_tail),
        cmocka_unit_test(barriers_after_exits_are_refused),
        cmocka_unit_test(numbers_and_counts_of_barriers_stay),
        cmocka_unit_test(kernels_without_barriers_get_two_in_each_turn),
        cmocka_unit_test(barriers_that_cannot_be_known_are_refused),
        cmocka_unit_test(warp_exchanges_after_exits_are_voted_on),
        cmocka_unit_test(masks_of_unknown_origin_are_refused_after_exits),
        cmocka_unit_test(slot_lies_behind_dynamic_memory_of_large_alignment),
        cmocka_unit_test(variables_are_bound_and_constants_copied),
        cmocka_unit_test(statics_of_bodies_and_indirect_calls_are_refused_apart),
        cmocka_unit_test(originals_keep_their_text_when_twins_are_added),
        cmocka_unit_test(our_names_and_old_versions_are_refused),
        cmocka_unit_test(many_kernels_get_their_twins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
