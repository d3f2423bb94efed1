#include "proto/common/procaddr.h"
#include "tests/lib/tl_cmocka.h"

#include <string.h>

/* Stands for a library's exports: only cuInit and the two entry point functions are looked at. */
static char fake_init, fake_proc, fake_proc_v2;
void *const weir_symbol_address[WEIR_SYMBOL_COUNT] = {
    [WEIR_SYMBOL_cuInit] = &fake_init,
    [WEIR_SYMBOL_cuGetProcAddress] = &fake_proc,
    [WEIR_SYMBOL_cuGetProcAddress_v2] = &fake_proc_v2,
};

static const char *name_of(enum weir_symbol symbol)
{
    return symbol == WEIR_SYMBOL_NONE ? "-" : weir_symbol_name[symbol];
}

static void lookup_every_cudart_request_gives_its_symbol(void **state)
{
    (void)state;
    FILE *file = fopen(WEIR_TEST_DATA "/procaddr_cudart13.tsv", "r");
    assert_non_null(file);
    char line[256];
    int rows = 0;
    while (fgets(line, sizeof(line), file)) {
        char name[100], want[100];
        int version;
        unsigned long flags;
        if (line[0] == '#') {
            continue;
        }
        assert_int_equal(sscanf(line, "%99s %d %lu %99s", name, &version, &flags, want), 4);
        enum weir_symbol symbol;
        CUdriverProcAddressQueryResult status;
        assert_int_equal(
            weir_procaddr_lookup(strcmp(name, "-") ? name : "", version, flags, &symbol, &status),
            CUDA_SUCCESS);
        if (strcmp(name_of(symbol), want)) {
            fail_msg("%s %d/%lu: %s, not %s", name, version, flags, name_of(symbol), want);
        }
        assert_int_equal(status, symbol == WEIR_SYMBOL_NONE ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                                            : CU_GET_PROC_ADDRESS_SUCCESS);
        rows++;
    }
    (void)fclose(file);
    assert_true(rows > 400);
}

static void lookup_corner_cases_answer_as_the_real_driver(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *symbol;
        CUdriverProcAddressQueryResult status;
    } rows[] = {
        {"cuMemAlloc", 99999, 0, "cuMemAlloc_v2", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuMemAlloc", 3000, 0, "cuMemAlloc", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuMemAlloc", 1000, 0, "-", CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT},
        {"cuMemAlloc_v2", 13000, 0, "-", CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
        {"cuLaunchKernel_ptsz", 13000, 2, "-", CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
        {"cuNoSuchThing", 13000, 0, "-", CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
        {"cuLaunchKernel", 13000, 1, "cuLaunchKernel", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuLaunchKernel", 13000, 3, "cuLaunchKernel_ptsz", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuLaunchKernel", 6050, 2, "-", CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT},
        {"cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuCtxCreate", 13000, 2, "cuCtxCreate_v4", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuGetProcAddress", 11080, 0, "cuGetProcAddress", CU_GET_PROC_ADDRESS_SUCCESS},
        {"cuMemGetAttribute", 13000, 0, "-", CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum weir_symbol symbol;
        CUdriverProcAddressQueryResult status;
        assert_int_equal(
            weir_procaddr_lookup(rows[i].name, rows[i].version, rows[i].flags, &symbol, &status),
            CUDA_SUCCESS);
        if (strcmp(name_of(symbol), rows[i].symbol) || status != rows[i].status) {
            fail_msg("%s %d: %s, status %d", rows[i].name, rows[i].version, name_of(symbol),
                     (int)status);
        }
    }
}

static void get_refused_arguments_touch_nothing(void **state)
{
    (void)state;
    void *pfn = &fake_init;
    CUdriverProcAddressQueryResult status = 77;
    assert_int_equal(weir_procaddr_get("cuInit", &pfn, 13000, 4, &status),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_procaddr_get(NULL, &pfn, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(weir_procaddr_get("cuInit", NULL, 13000, 0, &status),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ptr_equal(pfn, &fake_init);
    assert_int_equal(status, 77);
}

static void get_without_status_pointer_succeeds(void **state)
{
    (void)state;
    void *pfn = NULL;
    assert_int_equal(weir_procaddr_get("cuInit", &pfn, 2000, 0, NULL), CUDA_SUCCESS);
    assert_ptr_equal(pfn, &fake_init);
    assert_int_equal(weir_procaddr_get("", &pfn, 0, 0, NULL), CUDA_SUCCESS);
    assert_null(pfn);
}

static void get_v1_unknown_name_is_not_found_and_pfn_untouched(void **state)
{
    (void)state;
    void *pfn = &fake_init;
    assert_int_equal(weir_procaddr_get_v1("cuNoSuchThing", &pfn, 13000, 0), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(weir_procaddr_get_v1("cuInit", &pfn, 1000, 0), CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(pfn, &fake_init);
    assert_int_equal(weir_procaddr_get_v1("cuGetProcAddress", &pfn, 12000, 0), CUDA_SUCCESS);
    assert_ptr_equal(pfn, &fake_proc_v2);
    assert_int_equal(weir_procaddr_get_v1("cuGetProcAddress", &pfn, 11030, 0), CUDA_SUCCESS);
    assert_ptr_equal(pfn, &fake_proc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_every_cudart_request_gives_its_symbol),
        cmocka_unit_test(lookup_corner_cases_answer_as_the_real_driver),
        cmocka_unit_test(get_refused_arguments_touch_nothing),
        cmocka_unit_test(get_without_status_pointer_succeeds),
        cmocka_unit_test(get_v1_unknown_name_is_not_found_and_pfn_untouched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
