/* Guests' NVML questions against a fake library (fake_nvml.c), and without one. */
#include "host_backend/worker/device/device_status.h"
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/state/worker.h"
#include "proto/cuda_abi.h"
#include "tests/lib/tl_cmocka.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct weir_device_attribute attributes[] = {
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0, 0x57},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0, 1980000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 0, 3201000}};

static const struct weir_device device = {
    .name = "Plain GPU",
    .uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
    .pci_bus_id = "0000:57:00.0",
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .attributes = attributes};

static struct weir_nvml *nvml;
static struct weir_nvml_answer answer;
static unsigned int *calls, *inits;

static int setup_fake(void **state)
{
    (void)state;
    void *fake = dlopen(FAKE_NVML, RTLD_NOW);
    assert_non_null(fake);
    calls = dlsym(fake, "fake_nvml_calls");
    inits = dlsym(fake, "fake_nvml_inits");
    assert_int_equal(weir_nvml_create(FAKE_NVML, &device, &nvml), WEIR_OK);
    return 0;
}

static int setup_none(void **state)
{
    (void)state;
    calls = NULL;
    assert_int_equal(weir_nvml_create(NULL, &device, &nvml), WEIR_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weir_nvml_destroy(nvml);
    return 0;
}

static nvmlReturn_t ask_with(const char *function, uint32_t a, uint32_t b, uint32_t c,
                             const void *data, uint32_t n_data)
{
    struct weir_nvml_question question = {
        .function = function, .arguments = {a, b, c}, .data = data, .n_data = n_data};
    return weir_nvml_ask(nvml, &question, &answer);
}

static nvmlReturn_t ask(const char *function, uint32_t a, uint32_t b, uint32_t c)
{
    return ask_with(function, a, b, c, NULL, 0);
}

static void want_words(uint32_t n, const uint32_t *words)
{
    assert_int_equal(answer.n_data, n * sizeof *words);
    assert_memory_equal(answer.data, words, answer.n_data);
}
#define WANT_WORDS(...)                                                                            \
    want_words(sizeof((uint32_t[]){__VA_ARGS__}) / 4, (const uint32_t[]){__VA_ARGS__})

static void ask_numbers_arrive(void **state)
{
    (void)state;
    assert_int_equal(ask("nvmlDeviceGetPowerUsage", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(70000);
    assert_int_equal(ask("nvmlDeviceGetEccMode", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(1, 2);
    assert_int_equal(ask("nvmlDeviceGetEncoderStats", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(1, 2, 3);
    assert_int_equal(ask("nvmlDeviceGetRemappedRows", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(1, 2, 3, 4);
    assert_int_equal(ask("nvmlDeviceGetTotalEnergyConsumption", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(0, 256);
    assert_int_equal(ask("nvmlDeviceGetLastBBXFlushTime", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(5, 0, 6, 0);
    assert_int_equal(ask("nvmlDeviceGetClockInfo", 2, 0, 0), NVML_SUCCESS);
    WANT_WORDS(1002);
    assert_int_equal(ask("nvmlDeviceGetClock", 2, 1, 0), NVML_SUCCESS);
    WANT_WORDS(21);
    assert_int_equal(ask("nvmlDeviceGetMinMaxClockOfPState", 7, 8, 0), NVML_SUCCESS);
    WANT_WORDS(7, 8);
    assert_int_equal(ask("nvmlDeviceGetTotalEccErrors", 1, 2, 0), NVML_SUCCESS);
    WANT_WORDS(12, 0);
    assert_int_equal(ask("nvmlDeviceGetMemoryErrorCounter", 1, 2, 3), NVML_SUCCESS);
    WANT_WORDS(123, 0);
}

/* A second device is named by its UUID to the library, as the device itself is. */
static void ask_of_two_devices_arrives(void **state)
{
    static const struct weir_device other = {.uuid = {2}}, unknown = {.uuid = {3}};
    struct weir_nvml_question question = {.function = "nvmlDeviceGetTopologyCommonAncestor",
                                          .arguments = {1}};
    (void)state;
    assert_int_equal(weir_nvml_ask(nvml, &question, &answer), NVML_ERROR_INVALID_ARGUMENT);
    question.peer = &unknown;
    assert_int_equal(weir_nvml_ask(nvml, &question, &answer), NVML_ERROR_NOT_FOUND);
    question.peer = &other;
    assert_int_equal(weir_nvml_ask(nvml, &question, &answer), NVML_SUCCESS);
    WANT_WORDS(0x78);
}

static void ask_texts_arrive(void **state)
{
    (void)state;
    assert_int_equal(ask("nvmlDeviceGetName", 96, 0, 0), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "Fake H200");
    assert_int_equal(answer.n_data, 10);
    assert_int_equal(ask("nvmlDeviceGetName", 3, 0, 0), NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(ask("nvmlDeviceGetInforomVersion", 2, 16, 0), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "rom 2");
    assert_int_equal(ask("nvmlDeviceGetGspFirmwareVersion", 0, 0, 0), NVML_SUCCESS);
    assert_int_equal(answer.n_data, 80);
    assert_int_equal(ask("nvmlSystemGetDriverVersion", 80, 0, 0), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "580.1");
}

static void ask_structures_arrive(void **state)
{
    (void)state;
    const uint32_t temperature[3] = {WEIR_NVML_VERSION(12, 1), 5, 0};
    const uint32_t pair[4] = {WEIR_NVML_VERSION(8, 1), 0, WEIR_NVML_VERSION(8, 1), 0};
    assert_int_equal(ask("nvmlDeviceGetUtilizationRates", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(40, 20);
    assert_int_equal(ask("nvmlDeviceGetPciInfo_v2", 0, 0, 0), NVML_SUCCESS);
    assert_int_equal(answer.n_data, 36);
    assert_int_equal(ask("nvmlDeviceGetViolationStatus", 4, 0, 0), NVML_SUCCESS);
    WANT_WORDS(4, 0, 2, 0);
    assert_int_equal(ask("nvmlDeviceGetDetailedEccErrors", 4, 6, 0), NVML_SUCCESS);
    WANT_WORDS(4, 0, 0, 0, 0, 0, 6, 0);
    assert_int_equal(ask("nvmlSystemGetConfComputeState", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(1, 2, 3);
    assert_int_equal(
        ask_with("nvmlDeviceGetTemperatureV", 0, 0, 0, temperature, sizeof temperature),
        NVML_SUCCESS);
    WANT_WORDS(WEIR_NVML_VERSION(12, 1), 5, 35);
    assert_int_equal(ask_with("nvmlDeviceGetDramEncryptionMode", 0, 0, 0, pair, sizeof pair),
                     NVML_SUCCESS);
    WANT_WORDS(WEIR_NVML_VERSION(8, 1), 1, WEIR_NVML_VERSION(8, 1), 2);
    assert_int_equal(ask_with("nvmlSystemGetConfComputeSettings", 0, 0, 0, pair, 8), NVML_SUCCESS);
    WANT_WORDS(WEIR_NVML_VERSION(8, 1), 9);
    assert_int_equal(ask_with("nvmlSystemGetDriverBranch", 8, 0, 0, pair, 8), NVML_SUCCESS);
    WANT_WORDS(WEIR_NVML_VERSION(8, 1), 8);
    assert_int_equal(ask("nvmlDeviceGetFieldValues", 82, 3, 0), NVML_SUCCESS);
    assert_int_equal(answer.n_data, sizeof(nvmlFieldValue_t));
    assert_int_equal(((nvmlFieldValue_t *)(void *)answer.data)->value[0], 85);
}

static void ask_lists_arrive(void **state)
{
    (void)state;
    assert_int_equal(ask("nvmlDeviceGetSupportedMemoryClocks", 8, 0, 0), NVML_SUCCESS);
    WANT_WORDS(2, 10, 20);
    assert_int_equal(ask("nvmlDeviceGetSupportedMemoryClocks", 1, 0, 0),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    WANT_WORDS(2);
    assert_int_equal(ask("nvmlDeviceGetSupportedGraphicsClocks", 77, 8, 0), NVML_SUCCESS);
    WANT_WORDS(1, 77);
    assert_int_equal(ask("nvmlDeviceGetRetiredPages", 1, 8, 0), NVML_SUCCESS);
    WANT_WORDS(1, 1, 16);
    assert_int_equal(ask("nvmlDeviceGetSupportedPerformanceStates", 8, 0, 0), NVML_SUCCESS);
    WANT_WORDS(0, 0xffffffff);
}

/* What a guest may send instead of what is right. */
static void ask_wrong_is_refused(void **state)
{
    (void)state;
    const uint32_t lie[4] = {WEIR_NVML_VERSION(4096, 1), 0, 0, 0};
    const uint32_t branch[2] = {WEIR_NVML_VERSION(8, 1), 0};
    const uint8_t odd[9] = {4, 0, 0, 1, 0, 4, 0, 0, 1}; /* the second is not where it is read */
    const uint32_t unlike[4] = {WEIR_NVML_VERSION(8, 1), 0, WEIR_NVML_VERSION(64, 1), 0};
    unsigned int before = *calls;
    static const struct {
        const char *function;
        uint32_t a, b;
        uint32_t n_data;
        nvmlReturn_t want;
    } cases[] = {
        {"", 0, 0, 0, NVML_ERROR_FUNCTION_NOT_FOUND},
        {"nvmlDeviceSetComputeMode", 0, 0, 0, NVML_ERROR_FUNCTION_NOT_FOUND},
        {"nvmlDeviceGetHandleByIndex_v2", 0, 0, 0, NVML_ERROR_FUNCTION_NOT_FOUND},
        {"nvmlDeviceGetComputeRunningProcesses_v3", 0, 0, 0, NVML_ERROR_FUNCTION_NOT_FOUND},
        {"nvmlDeviceGetName", 1 << 20, 0, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetInforomVersion", 0, 1 << 20, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetName", 96, 0, 8, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetSupportedMemoryClocks", 1 << 20, 0, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetSupportedGraphicsClocks", 0, 1 << 20, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetRetiredPages", 0, 0xffffffff, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetSupportedPerformanceStates", 1 << 20, 0, 0, NVML_ERROR_INVALID_ARGUMENT},
        {"nvmlDeviceGetTemperatureV", 0, 0, 0, NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
        {"nvmlDeviceGetTemperatureV", 0, 0, 3, NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
        {"nvmlDeviceGetTemperatureV", 0, 0, 16, NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
        {"nvmlDeviceGetDramEncryptionMode", 0, 0, 16, NVML_ERROR_ARGUMENT_VERSION_MISMATCH},
        {"nvmlDeviceGetPowerUsage", 0, 0, 4, NVML_ERROR_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nvmlReturn_t got =
            ask_with(cases[i].function, cases[i].a, cases[i].b, 0, lie, cases[i].n_data);
        if (got != cases[i].want || answer.n_data != 0) {
            fail_msg("%zu %s: %d", i, cases[i].function, (int)got);
        }
    }
    assert_int_equal(ask_with("nvmlDeviceGetDramEncryptionMode", 0, 0, 0, unlike, sizeof unlike),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    assert_int_equal(ask_with("nvmlDeviceGetDramEncryptionMode", 0, 0, 0, odd, sizeof odd),
                     NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    /* A real library may clear as many bytes as it is told that there are. */
    assert_int_equal(ask_with("nvmlSystemGetDriverBranch", 0xffffffff, 0, 0, branch, sizeof branch),
                     NVML_ERROR_INVALID_ARGUMENT);
    assert_int_equal(*calls, before);
    assert_int_equal(ask("nvmlDeviceGetSerial", 30, 0, 0), NVML_ERROR_FUNCTION_NOT_FOUND);
    assert_int_equal(ask("nvmlDeviceGetFanSpeed", 0, 0, 0), NVML_ERROR_NOT_SUPPORTED);
    assert_int_equal(answer.n_data, 0);
}

static void ask_again_is_answered_from_memory(void **state)
{
    (void)state;
    assert_int_equal(ask("nvmlDeviceGetMinorNumber", 0, 0, 0), NVML_SUCCESS);
    unsigned int before = *calls;
    assert_int_equal(*inits, 1);
    for (uint32_t i = 0; i < 100; i++) { /* what the function does not take makes no difference */
        assert_int_equal(ask("nvmlDeviceGetMinorNumber", i, i, i), NVML_SUCCESS);
        WANT_WORDS(3);
    }
    assert_int_equal(*calls, before);
    /* Different arguments are different questions; many of them push old answers out. */
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(ask("nvmlDeviceGetClockInfo", i, 0, 0), NVML_SUCCESS);
        WANT_WORDS(1000 + i);
    }
    assert_int_equal(*calls, before + 1000);
    assert_int_equal(ask("nvmlDeviceGetMinorNumber", 0, 0, 0), NVML_SUCCESS);
    assert_int_equal(*calls, before + 1001);
}

static void plain_answers_from_the_description(void **state)
{
    (void)state;
    const uint32_t settings[5] = {WEIR_NVML_VERSION(20, 1), 1, 1, 1, 1};
    nvmlPciInfo_t pci;
    assert_int_equal(ask("nvmlDeviceGetName", 96, 0, 0), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "Plain GPU");
    assert_int_equal(ask("nvmlDeviceGetName", 4, 0, 0), NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(ask("nvmlDeviceGetUUID", 96, 0, 0), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
    assert_int_equal(ask("nvmlDeviceGetCudaComputeCapability", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(9, 0);
    assert_int_equal(ask("nvmlDeviceGetArchitecture", 0, 0, 0), NVML_SUCCESS);
    WANT_WORDS(9);
    assert_int_equal(ask("nvmlDeviceGetMaxClockInfo", 2, 0, 0), NVML_SUCCESS);
    WANT_WORDS(3201);
    assert_int_equal(ask("nvmlDeviceGetPciInfo_v3", 0, 0, 0), NVML_SUCCESS);
    memcpy(&pci, answer.data, sizeof pci);
    assert_string_equal(pci.busId, "00000000:57:00.0");
    assert_string_equal(pci.busIdLegacy, "0000:57:00.0");
    assert_int_equal(
        ask_with("nvmlSystemGetConfComputeSettings", 0, 0, 0, settings, sizeof settings),
        NVML_SUCCESS);
    WANT_WORDS(WEIR_NVML_VERSION(20, 1), 0, 0, 0, 0);
    assert_int_equal(ask("nvmlDeviceGetPowerUsage", 0, 0, 0), NVML_ERROR_NOT_SUPPORTED);
}

/* Every row has an answer of its size, or none, without a library too. */
static void plain_never_gives_more_than_asked(void **state)
{
    (void)state;
    const uint32_t block[2] = {WEIR_NVML_VERSION(8, 1), 0};
    for (const struct weir_nvml_row *row = weir_nvml_rows(); row->name; row++) {
        for (uint32_t room = 0; room < 100; room += 33) {
            nvmlReturn_t got = ask_with(row->name, room, room, 0, block, 0);
            got = got == NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                      ? ask_with(row->name, room, room, 0, block, sizeof block)
                      : got;
            assert_true(answer.n_data <= WEIR_NVML_DATA_MAX);
            if (row->shape == WEIR_NVML_T || row->shape == WEIR_NVML_SYS_T) {
                assert_true(answer.n_data <= room);
            }
            if (got != NVML_SUCCESS && got != NVML_ERROR_INSUFFICIENT_SIZE) {
                assert_int_equal(answer.n_data, 0);
            }
        }
    }
}

static void create_missing_library_is_none(void **state)
{
    (void)state;
    struct weir_nvml *other;
    struct weir_nvml_question question = {.function = "nvmlDeviceGetName", .arguments = {96}};
    assert_int_equal(weir_nvml_create("/nonexistent/libnvidia-ml.so.1", &device, &other), WEIR_OK);
    assert_int_equal(weir_nvml_ask(other, &question, &answer), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "Plain GPU");
    weir_nvml_destroy(other);
}

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *ret_free, size_t *ret_total)
{
    *ret_free = 30;
    *ret_total = 100;
    return CUDA_SUCCESS;
}

static CUresult mem_info_fails(size_t *ret_free, size_t *ret_total)
{
    (void)ret_free;
    (void)ret_total;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* What operators see of a device is what NVML and the driver say. */
static void device_status_has_what_is_known(void **state)
{
    static struct weir_worker worker;
    struct weir_status_device row;

    (void)state;
    worker.platform.driver.cuCtxSetCurrent = set_current;
    worker.platform.driver.cuMemGetInfo_v2 = mem_info;
    worker.platform.devices[0].about = device;
    worker.platform.devices[0].about.total_memory_bytes = 100;
    worker.platform.devices[0].nvml = nvml;
    worker.platform.devices[0].cu = 2;
    atomic_store(&worker.platform.devices[0].is_open, true);
    weir_device_status(&worker, 0, true, &row);
    assert_string_equal(row.uuid, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10");
    assert_int_equal(row.ordinal, 2);
    assert_int_equal(row.memory_bytes, 100);
    assert_int_equal(row.scheduled, 0);
    assert_true(row.free_bytes == 30);
    assert_true(!calls ? isnan(row.temperature_c) && isnan(row.utilization_pct)
                       : row.temperature_c == 50 && row.utilization_pct == 40);
    assert_true(!calls ? isnan(row.power_w) : row.power_w == 70);
    worker.platform.driver.cuMemGetInfo_v2 = mem_info_fails; /* its context is gone */
    weir_device_status(&worker, 0, true, &row);
    assert_true(isnan(row.free_bytes));
    atomic_store(&worker.platform.devices[0].is_open, false); /* it has none yet */
    weir_device_status(&worker, 0, true, &row);
    assert_int_equal(row.memory_bytes, 100);
    assert_true(!calls ? isnan(row.free_bytes) : row.free_bytes == 20);
    weir_device_status(&worker, 0, false, &row);
    assert_true(isnan(row.free_bytes) && isnan(row.temperature_c) && isnan(row.power_w));
}

#ifdef WEIRS_NVML
/* A host that is run inside a guest must not ask itself. */
static void create_weirs_own_is_none(void **state)
{
    (void)state;
    struct weir_nvml *other;
    struct weir_nvml_question question = {.function = "nvmlDeviceGetName", .arguments = {96}};
    assert_int_equal(weir_nvml_create(WEIRS_NVML, &device, &other), WEIR_OK);
    assert_int_equal(weir_nvml_ask(other, &question, &answer), NVML_SUCCESS);
    assert_string_equal((char *)answer.data, "Plain GPU");
    weir_nvml_destroy(other);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ask_numbers_arrive, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_of_two_devices_arrives, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_texts_arrive, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_structures_arrive, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_lists_arrive, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_wrong_is_refused, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(ask_again_is_answered_from_memory, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(plain_answers_from_the_description, setup_none, teardown),
        cmocka_unit_test_setup_teardown(plain_never_gives_more_than_asked, setup_none, teardown),
        cmocka_unit_test_setup_teardown(device_status_has_what_is_known, setup_fake, teardown),
        cmocka_unit_test_setup_teardown(device_status_has_what_is_known, setup_none, teardown),
        cmocka_unit_test(create_missing_library_is_none),
#ifdef WEIRS_NVML
        cmocka_unit_test(create_weirs_own_is_none),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
