/*
 * Running out of memory: the n-th allocation fails, for every n until parsing or analysis succeeds.
 * The status must say so and nothing may leak (the asan preset looks). Linked with --wrap for the
 * allocators.
 */
#include "ptx/analysis.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ALLOCATIONS 10000

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long allocations_left = -1; /* negative: no limit */

static int may_allocate(void)
{
    return allocations_left < 0 || allocations_left-- > 0;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    return may_allocate() ? __real_realloc(old, size) : NULL;
}

static void parse_each_failing_allocation_is_reported(void **state)
{
    static const char text[] =
        ".version 8.7\n.target sm_90\n.global .b8 x[2] = {1, 2};\n"
        ".func (.reg .b32 r) f (.param .b32 a) { ret; }\n"
        ".entry k(.param .u64 p) .pragma \"a\"; { .reg .pred p; .reg .b32 r<50>;\n"
        "L: @p mov.b64 {r3, r4}, 5; t: .branchtargets L; c: .calltargets f;\n"
        "d: .callprototype _ (.param .b32 _); { .shared .b32 v; st.shared.b32 [v], r4; }\n"
        ".pragma \"b\"; bra L; ret; }\n";
    struct weir_ptx_module *module = NULL;
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    long n = 0;

    (void)state;
    for (; status != WEIR_OK && n < MOST_ALLOCATIONS; n++) {
        struct weir_diag diag = {0};

        allocations_left = n;
        status = weir_ptx_parse(text, sizeof(text) - 1, 0, &diag, &module);
        allocations_left = -1;
        if (status != WEIR_OK && status != WEIR_ERR_NO_MEMORY) {
            fail_msg("allocation %ld: status %d, %s", n, status, diag.message);
        }
        assert_true(status == WEIR_OK || diag.message[0] != 0);
    }
    assert_int_equal(status, WEIR_OK);
    assert_true(n > 10);
    weir_ptx_destroy(module);
}

static void analyze_each_failing_allocation_is_reported(void **state)
{
    static const char text[] =
        ".version 9.0\n.target sm_90\n.address_size 64\n.shared .b32 s;\n"
        ".func f () { bar.sync 0; ret; }\n.global .u64 t[1] = {f};\n.func g () { call g, (); ret; "
        "}\n"
        ".entry a(.param .u64 p) { .reg .b32 r<9>; .reg .b64 d<4>; .reg .pred p<4>;\n"
        "ld.param.u64 d1, [p]; ld.shared.u32 r4, [s]; mov.u32 r5, %tid.x;\n"
        "L: atom.global.add.u32 r1, [d1], 1; ld.global.u32 r2, [d1]; setp.lt.u32 p1, r1, r2;\n"
        "@p1 bra L; call g, (); ld.global.u64 d2, [t]; P: .callprototype _ (); call d2, (), P;\n"
        "M: ld.global.u32 r3, [d1]; setp.ne.u32 p2, r3, r5; @p2 bra M; ret; }\n.entry b() { ret; "
        "}\n";
    struct weir_ptx_module *module = NULL;
    struct weir_ptx_analysis *analysis = NULL;
    enum weir_status status = weir_ptx_parse(text, sizeof(text) - 1, 0, NULL, &module);
    long n = 0;

    (void)state;
    assert_int_equal(status, WEIR_OK);
    for (status = WEIR_ERR_NO_MEMORY; status == WEIR_ERR_NO_MEMORY && n < MOST_ALLOCATIONS; n++) {
        allocations_left = n;
        status = weir_ptx_analyze(module, 0, &analysis);
        allocations_left = -1;
    }
    assert_int_equal(status, WEIR_OK);
    assert_int_equal(analysis->n_kernels, 2);
    assert_true(n > 50);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_each_failing_allocation_is_reported),
        cmocka_unit_test(analyze_each_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
