/* From a text to a set: what the key depends on, and what comes of texts that cannot be used. */
#include "host_backend/worker/twins/twin_set_build.h"

#include "../../lib/tl_cmocka.h"
#include "../host_backend/linker.h"
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static const char text[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".const .align 4 .u32 factor = 3;\n.global .align 4 .u32 counter;\n"
    ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<4>;\n"
    ".reg .b64 %rd<4>;\nld.param.u64 %rd1, [out];\nld.const.u32 %r1, "
    "[factor];\nmov.u32 %r2, %ctaid.x;\nadd.u32 %r1, %r1, %r2;\n"
    "red.global.add.u32 [counter], 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

static struct weir_driver driver;
static struct weir_file_cache cache;
static struct weir_compiler compiler;
static struct weir_forms_build_params params;
static char dir[64];

static int set_up(void **state)
{
    (void)state;
    linker_init(&driver);
    snprintf(dir, sizeof dir, "/tmp/weir-build-XXXXXX");
    assert_non_null(mkdtemp(dir));
    weir_file_cache_init(&cache, dir, 1 << 20, ".twins");
    weir_compiler_open("driver", &compiler);
    params = (struct weir_forms_build_params){.cache = &cache,
                                              .compiler = &compiler,
                                              .driver = &driver,
                                              .driver_version = 13000,
                                              .sm = 90,
                                              .tenant = "alice",
                                              .text = text,
                                              .text_bytes = sizeof text - 1};
    return 0;
}

static int tear_down(void **state)
{
    DIR *entries = opendir(dir);

    (void)state;
    for (struct dirent *e; (e = readdir(entries));) {
        unlinkat(dirfd(entries), e->d_name, 0);
    }
    closedir(entries);
    weir_file_cache_finish(&cache);
    return rmdir(dir);
}

/* Builds; whether it came out of the cache. */
static bool build_is_cached(void)
{
    struct weir_forms_build_report report;
    struct weir_forms_set *set;

    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_OK);
    assert_int_equal(set->n_kernels, 1);
    weir_forms_set_destroy(set);
    return report.cached;
}

static void build_gives_twins_and_what_they_need(void **state)
{
    const struct weir_forms_kernel_info *k;
    struct weir_forms_build_report report;
    struct weir_forms_set *set;

    (void)state;
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_OK);
    assert_false(report.cached);
    assert_int_equal(report.n_kernels, 1);
    k = weir_forms_set_find(set, "k");
    assert_non_null(k);
    assert_string_equal(k->twins[WEIR_PTX_FORM_PERSISTENT].name, "k$persistent");
    assert_null(k->twins[WEIR_PTX_FORM_TICKET].name); /* the best only */
    assert_int_equal(set->n_binds, 1);
    assert_string_equal(set->binds[0], "counter");
    assert_int_equal(set->n_consts, 1);
    assert_string_equal(set->consts[0], "factor");
    assert_memory_equal(set->image, "linked:.version", 15);
    weir_forms_set_destroy(set);
    params.twins = WEIR_FORMS_TWINS_ALL;
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_OK);
    assert_non_null(weir_forms_set_find(set, "k")->twins[WEIR_PTX_FORM_TICKET].name);
    weir_forms_set_destroy(set);
}

static void build_again_comes_from_the_cache_only_if_nothing_differs(void **state)
{
    CUjit_option ids[] = {CU_JIT_MAX_REGISTERS};
    void *values[] = {(void *)32};
    struct weir_forms_build_params same = params;

    (void)state;
    assert_false(build_is_cached());
    assert_true(build_is_cached());
#define DIFFERS(change)                                                                            \
    do {                                                                                           \
        params = same;                                                                             \
        change;                                                                                    \
        assert_false(build_is_cached());                                                           \
        assert_true(build_is_cached());                                                            \
    } while (0)
    DIFFERS(params.sm = 89);
    DIFFERS(params.driver_version = 12040);
    DIFFERS(params.tenant = "bob");
    DIFFERS(params.twins = WEIR_FORMS_TWINS_ALL);
    DIFFERS(params.kernel = "k");
    params.max_regs = 32;
    assert_false(build_is_cached());
    DIFFERS(params.options = ((struct weir_jit_options){ids, values, 1}));
    values[0] = (void *)64;
    assert_false(build_is_cached());
    DIFFERS(params.text_bytes--); /* a line's end less */
    params = same;
    assert_true(build_is_cached());
}

static void build_of_one_kernel_limits_its_registers(void **state)
{
    struct weir_forms_build_report report;
    struct weir_forms_set *set;

    (void)state;
    params.twins = WEIR_FORMS_TWINS_ALL;
    params.kernel = "k";
    params.max_regs = 40;
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_OK);
    assert_int_equal(set->n_kernels, 1);
    assert_non_null(set->kernels[0].twins[WEIR_PTX_FORM_PERSISTENT].name);
    assert_null(set->kernels[0].twins[WEIR_PTX_FORM_TICKET].name);
    assert_non_null(memmem(set->image, set->image_bytes, ".maxnreg 40", 11));
    weir_forms_set_destroy(set);
    params.kernel = "not there";
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_ERR_NOT_FOUND);
}

static void build_of_what_cannot_be_used_says_why(void **state)
{
    struct weir_forms_build_report report;
    struct weir_forms_set *set;
    struct weir_forms_build_params good = params;

    (void)state;
    params.text = ".version 7.5\n.target sm_75\n.address_size 64\nnonsense";
    params.text_bytes = strlen(params.text);
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_ERR_SYNTAX);
    assert_memory_equal(report.why, "4:1:", 4);
    params.text = ".version 7.5\n.target sm_75\n.address_size 64\n";
    params.text_bytes = strlen(params.text);
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_OK); /* no kernels: no twins */
    assert_int_equal(set->n_kernels, 0);
    assert_int_equal(linker.created, 0);
    weir_forms_set_destroy(set);
    params.text_bytes = WEIR_FORMS_TEXT_MAX_BYTES + 1;
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_ERR_TOO_BIG);
    params = good;
    linker.result = CUDA_ERROR_INVALID_PTX;
    assert_int_equal(weir_forms_build(&params, &set, &report), WEIR_ERR_DRIVER);
    assert_true(report.why[0] != 0);
    linker.result = CUDA_SUCCESS;
    assert_false(build_is_cached()); /* a failure is not kept */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(build_gives_twins_and_what_they_need, set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_again_comes_from_the_cache_only_if_nothing_differs,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(build_of_one_kernel_limits_its_registers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(build_of_what_cannot_be_used_says_why, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
