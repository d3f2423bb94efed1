/* Hostile texts for the analysis: small ones that would like to take long, or much memory. */
#include "ptx/analysis.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>
#include <string.h>

#define HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"

/* A text that grows. */
struct text {
    char *bytes;
    size_t len;
    FILE *out;
};

static void begin(struct text *text)
{
    text->out = open_memstream(&text->bytes, &text->len);
    assert_non_null(text->out);
    fputs(HEAD, text->out);
}

/* Analyse a text and free it; the facts of its first kernel, 0 where there is no analysis. */
static enum weir_status analyse(struct text *text, uint64_t *ret_facts)
{
    struct weir_ptx_module *module = NULL;
    struct weir_ptx_analysis *analysis = NULL;
    struct weir_diag diag = {0};

    assert_int_equal(fclose(text->out), 0);
    if (weir_ptx_parse(text->bytes, text->len, 0, &diag, &module) != WEIR_OK) {
        fail_msg("%u:%u: %s", diag.line, diag.column, diag.message);
    }
    free(text->bytes);
    enum weir_status status = weir_ptx_analyze(module, 0, &analysis);

    *ret_facts = status == WEIR_OK ? analysis->kernels[0].facts : 0;
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
    return status;
}

static bool has(uint64_t facts, enum weir_ptx_fact fact)
{
    return facts >> fact & 1;
}

static void analyze_many_branches_to_large_tables_part_all(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".entry k() { .reg .b32 r;\nT: .branchtargets ");
    for (int i = 0; i < 8000; i++) {
        fprintf(text.out, "%sL%d", i ? ", " : "", i);
    }
    fprintf(text.out, ";\nbar.sync 0;\n");
    for (int i = 0; i < 8000; i++) {
        fprintf(text.out, "L%d: brx.idx r, T;\n", i);
    }
    fprintf(text.out, "ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_true(has(facts, WEIR_PTX_FACT_EARLY_EXIT));
    assert_true(has(facts, WEIR_PTX_FACT_POLL));
}

/* Every register depends on the one that is written after it: a pass settles one at a time. */
static void analyze_backward_dependences_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".entry k() { .reg .b32 r<20001>; .reg .pred p;\nL: ");
    for (int i = 0; i < 20000; i++) {
        fprintf(text.out, "mov.b32 r%d, r%d;\n", i, i + 1);
    }
    fprintf(text.out,
            "mov.u32 r20000, %%tid.x;\nsetp.eq.u32 p, r0, 0; @p ret; bar.sync 0; bra L; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_true(has(facts, WEIR_PTX_FACT_EARLY_EXIT));
}

static void analyze_many_nested_loops_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".entry k(.param .u64 a) { .reg .b32 r<4>; .reg .b64 d; .reg .pred p;\n"
                      "ld.param.u64 d, [a];\n");
    for (int i = 0; i < 20000; i++) {
        fprintf(text.out, "L%d: ld.global.u32 r%d, [d];\n", i, i % 4);
    }
    for (int i = 20000; i-- > 0;) {
        fprintf(text.out, "add.u32 r%d, r%d, 1; setp.lt.u32 p, r%d, 9; @p bra L%d;\n", i % 4, i % 4,
                i % 4, i);
    }
    fprintf(text.out, "ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_true(has(facts, WEIR_PTX_FACT_POLL)); /* d is looked at again and again */
}

/* Out of one loop with two entries into the next: nothing that a structured program has. */
static void analyze_tangled_loops_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".entry k() { .reg .b32 r<3>; .reg .pred p<3>;\n");
    for (int i = 0; i < 20000; i++) {
        fprintf(text.out, "L%d: @p1 bra L%d; @p2 bra L%d;\n", i, (i * 7919 + 13) % 20000,
                (i * 104729 + 7) % 20000);
    }
    fprintf(text.out, "bar.sync 0; ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_true(has(facts, WEIR_PTX_FACT_BARRIER));
}

static void analyze_many_tries_of_one_swap_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out,
            ".entry k(.param .u64 a) { .reg .b32 r<4>; .reg .b64 d; .reg .pred p<10000>;\n"
            "L: ld.param.u64 d, [a]; atom.global.cas.b32 r1, [d], r2, r3;\n");
    for (int i = 0; i < 10000; i++) {
        fprintf(text.out, "setp.ne.u32 p%d, r1, r2; @p%d bra L;\n", i, i);
    }
    fprintf(text.out, "ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_true(has(facts, WEIR_PTX_FACT_POLL));
}

static void analyze_deep_calls_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".func f0 () { bar.sync 0; ret; }\n");
    for (int i = 1; i < 50000; i++) {
        fprintf(text.out, ".func f%d () { call f%d, (); ret; }\n", i, i - 1);
    }
    fprintf(text.out, ".entry k() { call f49999, (); ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_int_equal(facts, 1ull << WEIR_PTX_FACT_BARRIER);
}

static void analyze_many_pointers_and_calls_end(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    for (int i = 0; i < 20000; i++) {
        fprintf(text.out, ".func f%d () { ret; }\n", i);
    }
    fprintf(text.out, ".global .u64 t[20000] = {f0");
    for (int i = 1; i < 20000; i++) {
        fprintf(text.out, ", f%d", i);
    }
    fprintf(text.out, "};\n.entry k() { .reg .b64 d;\nP: .callprototype _ ();\n");
    for (int i = 0; i < 20000; i++) {
        fprintf(text.out, "call d, (), P;\n");
    }
    fprintf(text.out, "ret; }\n");
    assert_int_equal(analyse(&text, &facts), WEIR_OK);
    assert_int_equal(facts, 1ull << WEIR_PTX_FACT_INDIRECT_CALL);
}

static void analyze_kernels_times_functions_are_limited(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    fprintf(text.out, ".func f0 () { ret; }\n");
    for (int i = 1; i < 10000; i++) {
        fprintf(text.out, ".func f%d () { call f%d, (); ret; }\n", i, i - 1);
    }
    for (int i = 0; i < 3000; i++) {
        fprintf(text.out, ".entry k%d() { call f9999, (); ret; }\n", i);
    }
    assert_int_equal(analyse(&text, &facts), WEIR_ERR_TOO_BIG);
}

static void analyze_number_of_kernels_is_limited(void **state)
{
    struct text text;
    uint64_t facts;

    (void)state;
    begin(&text);
    for (int i = 0; i < 70000; i++) {
        fprintf(text.out, ".entry k%d() { ret; }\n", i);
    }
    assert_int_equal(analyse(&text, &facts), WEIR_ERR_TOO_BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(analyze_many_branches_to_large_tables_part_all),
        cmocka_unit_test(analyze_backward_dependences_end),
        cmocka_unit_test(analyze_many_nested_loops_end),
        cmocka_unit_test(analyze_tangled_loops_end),
        cmocka_unit_test(analyze_many_tries_of_one_swap_end),
        cmocka_unit_test(analyze_deep_calls_end),
        cmocka_unit_test(analyze_many_pointers_and_calls_end),
        cmocka_unit_test(analyze_kernels_times_functions_are_limited),
        cmocka_unit_test(analyze_number_of_kernels_is_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
