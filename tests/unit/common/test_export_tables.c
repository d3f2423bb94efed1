/* The export tables and the integrity hash against a fake library with one or two devices. */
#include "proto/common/common.h"

#include "tests/lib/tl_cmocka.h"
#include <string.h>

static bool is_initialized = true;
static int device_count = 1;
static struct weir_ctx_storage storage;
static CUcontext current;

static bool fake_initialized(void)
{
    return is_initialized;
}
static int fake_version(void)
{
    return 13000;
}
static int fake_count(void)
{
    return device_count;
}
static void fake_device(int ordinal, struct weir_common_device *ret_device)
{
    *ret_device = (struct weir_common_device){.pci_bus = 4 + ordinal};
    memset(ret_device->uuid.bytes, 0x20 + ordinal, sizeof(ret_device->uuid.bytes));
}
static CUresult fake_primary(CUdevice device, CUcontext *ret_context)
{
    *ret_context = (CUcontext)(uintptr_t)(0x1000 + device);
    return CUDA_SUCCESS;
}
static CUcontext fake_current(void)
{
    return current;
}
static struct weir_ctx_storage *fake_storage(CUcontext context)
{
    return context == (CUcontext)(uintptr_t)0x1000 ? &storage : NULL;
}
static CUresult fake_context_id(CUcontext context, unsigned long long *ret_id)
{
    *ret_id = (uintptr_t)context + 1;
    return CUDA_SUCCESS;
}
static CUresult fake_stream_id(CUcontext context, CUstream stream, unsigned long long *ret_id)
{
    (void)context;
    *ret_id = (uintptr_t)stream + 7;
    return CUDA_SUCCESS;
}
static CUresult fake_function(CUmodule module, unsigned int index, CUfunction *ret_function)
{
    (void)module;
    *ret_function = (CUfunction)(uintptr_t)(0x2000 + index);
    return index < 2 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static const struct weir_common_ops ops = {
    fake_initialized, fake_version, fake_count,      fake_device,    fake_primary,
    fake_current,     fake_storage, fake_context_id, fake_stream_id, fake_function,
};

static void **table(const char *hex)
{
    CUuuid id;
    for (int i = 0; i < 16; i++) {
        unsigned int byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        id.bytes[i] = (char)byte;
    }
    const void *found = &id;
    CUresult result = weir_common_export_table(&found, &id);
    assert_int_equal(result, found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    return (void **)(uintptr_t)found;
}

static void hmac_md2_known_message_gives_known_digest(void **state)
{
    (void)state;
    /* Driver 12020 on one device: a vector that an independent implementation publishes. */
    static const uint8_t key[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                    0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    static const uint8_t expected[16] = {0x7a, 0x70, 0x14, 0xf2, 0x28, 0x46, 0xc3, 0xa7,
                                         0x84, 0xcd, 0xbf, 0x42, 0x33, 0x31, 0xf1, 0xea};
    struct {
        uint32_t words[4];
        uint64_t values[4];
        uint8_t uuid[16];
        int32_t pci[3];
    } message = {
        {12020, 0x2b4a, 0x4d08, 0x2b78},
        {0x7ff8c80717f0, 0x7ff8c825e4b0, 0x7ff8c7dd0ad0, 0x64a365ee},
        {0x67, 0x22, 0xcb, 0xcf, 0xc6, 0x61, 0xf2, 0x92, 0x74, 0xd6, 0xed, 0x23, 0x2a, 0x32, 0x13,
         0x1c},
        {0, 4, 0},
    };
    uint8_t digest[16];
    weir_common_hmac_md2(key, &message, 76, digest);
    assert_memory_equal(digest, expected, sizeof(digest));
}

static void export_table_known_ids_have_their_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        uintptr_t bytes;
    } rows[] = {
        {"6bd5fb6c5bf4e74a8987d93912fd9df9", 13 * 8},  {"a094798c2e742e7493f20800200c0a66", 7 * 8},
        {"42d85a8123f6cb478298f6e78a3aecdc", 3 * 8},   {"263e88607cd2614392f6bbd5006dfa7e", 17 * 8},
        {"d4082055bde6704b8d34ba123c66e1f2", 3 * 8},   {"21318c60971432488ca641ff7324c8f2", 96 * 8},
        {"6e163fbeb958444d835ce182aff1991e", 105 * 8}, {"1734dc26800d47458726c0f1e7dd8bca", 17 * 8},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        void **found = table(rows[i].id);
        assert_non_null(found);
        assert_int_equal((uintptr_t)found[0], rows[i].bytes);
    }
}

static struct weir_common_runtime_call told;
static int n_told;

static void runtime_told(const struct weir_common_runtime_call *call)
{
    told = *call;
    n_told++;
}

/* What libcudart 13.0 does around each of its functions. */
static void runtime_call(void **hooks, const uint32_t *words, uint32_t id, uint64_t call[15])
{
    typedef CUresult (*told_fn)(uint32_t, void *);
    told_fn tell = (told_fn)(uintptr_t)hooks[1];
    if (words[id]) {
        assert_int_equal(tell(id, call), CUDA_SUCCESS);
    }
}

static void runtime_calls_are_told_while_somebody_watches(void **state)
{
    (void)state;
    void **hooks = table("a094798c2e742e7493f20800200c0a66");
    typedef CUresult (*words_fn)(void **, size_t *);
    words_fn give = (words_fn)(uintptr_t)hooks[2];
    uint32_t *words;
    size_t count;
    uint64_t scratch = 0;
    int result = 7;
    uint64_t call[15] = {[0] = 0x78,
                         [4] = (uintptr_t)&scratch,
                         [5] = (uintptr_t)&result,
                         [6] = (uintptr_t) "cudaMemset",
                         [7] = (uintptr_t)&count,
                         [8] = 0x1234,
                         [10] = UINT64_C(1) << 32 | 49,
                         [11] = 0x5678};
    assert_int_equal(give((void **)&words, &count), CUDA_SUCCESS);
    runtime_call(hooks, words, 49, call);
    assert_int_equal(n_told, 0);
    weir_common_watch_runtime(runtime_told);
    runtime_call(hooks, words, 49, call);
    assert_int_equal(n_told, 1);
    assert_int_equal(told.id, 49);
    assert_int_equal(told.site, 1);
    assert_string_equal(told.name, "cudaMemset");
    assert_ptr_equal(told.params, &count);
    assert_int_equal(*told.result, 7);
    assert_ptr_equal(told.scratch, &scratch);
    assert_int_equal((uintptr_t)told.context, 0x1234);
    assert_int_equal((uintptr_t)told.symbol, 0x5678);
    call[0] = 16; /* another runtime's struct */
    runtime_call(hooks, words, 49, call);
    assert_int_equal(n_told, 1);
    weir_common_watch_runtime(NULL);
    call[0] = 0x78;
    runtime_call(hooks, words, 49, call);
    assert_int_equal(n_told, 1);
}

static void export_table_unknown_id_is_refused(void **state)
{
    (void)state;
    assert_null(table("f8cff95121468b4eb9e2fb469e7c0dd9"));
    assert_null(table("da9151d33ae6cc41a5c04f26d533e328"));
}

typedef CUresult (*integrity_fn)(uint32_t, uint64_t, uint64_t[2]);

static void integrity_opens_with_fixed_answers_then_hashes_devices(void **state)
{
    (void)state;
    integrity_fn check;
    void *slot = table("d4082055bde6704b8d34ba123c66e1f2")[1];
    memcpy(&check, &slot, sizeof(check));
    uint64_t hash[2];
    assert_int_equal(check(13000, 1, hash), CUDA_SUCCESS);
    assert_true(hash[0] == 0x3341181C03CB675Cull && hash[1] == 0x8ED383AA1F4CD1E8ull);
    assert_int_equal(check(13001, 1, hash), CUDA_SUCCESS);
    assert_true(hash[0] == 0x1841181C03CB675Cull);
    uint64_t one[2];
    uint64_t two[2];
    assert_int_equal(check(13002, 1, one), CUDA_SUCCESS);
    device_count = 2;
    assert_int_equal(check(13002, 1, two), CUDA_SUCCESS);
    device_count = 1;
    assert_true(one[0] != two[0] && one[1] != two[1]);
    is_initialized = false;
    assert_int_equal(check(13002, 1, hash), CUDA_ERROR_NOT_INITIALIZED);
    is_initialized = true;
}

static void storage_tells_no_context_from_no_entry(void **state)
{
    (void)state;
    CUresult (*get)(void **, CUcontext, void *);
    CUresult (*put)(CUcontext, void *, void *, weir_ctx_storage_fn);
    void **slots = table("c693336e1121df11a8c368f355d89593");
    memcpy(&put, &slots[0], sizeof(put));
    memcpy(&get, &slots[2], sizeof(get));
    void *value;
    int key;
    current = NULL;
    assert_int_equal(get(&value, NULL, &key), CUDA_ERROR_INVALID_CONTEXT);
    current = (CUcontext)(uintptr_t)0x1000;
    assert_int_equal(get(&value, NULL, &key), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(put((CUcontext)-1, &key, &value, NULL), CUDA_SUCCESS);
    assert_int_equal(get(&value, current, &key), CUDA_SUCCESS);
    assert_ptr_equal(value, &value);
}

static void storage_many_keys_are_found_and_cleared_once(void **state)
{
    (void)state;
    struct weir_ctx_storage many;
    weir_ctx_storage_init(&many);
    char keys[3 * WEIR_CTX_STORAGE_CHUNK];
    void *value = NULL;
    for (size_t i = 0; i < sizeof(keys); i++) {
        assert_int_equal(weir_ctx_storage_put(&many, &keys[i], &keys[sizeof(keys) - 1 - i], NULL),
                         WEIR_OK);
    }
    assert_int_equal(weir_ctx_storage_remove(&many, &keys[5]), WEIR_OK);
    assert_int_equal(weir_ctx_storage_remove(&many, &keys[5]), WEIR_ERR_NOT_FOUND);
    for (size_t i = 0; i < sizeof(keys); i++) {
        enum weir_status status = weir_ctx_storage_get(&many, &keys[i], &value);
        assert_int_equal(status, i == 5 ? WEIR_ERR_NOT_FOUND : WEIR_OK);
        assert_true(i == 5 || value == &keys[sizeof(keys) - 1 - i]);
    }
    weir_ctx_storage_clear(&many, current);
    assert_int_equal(weir_ctx_storage_get(&many, &keys[0], &value), WEIR_ERR_NOT_FOUND);
    weir_ctx_storage_finish(&many);
}

static int setup(void **state)
{
    (void)state;
    weir_common_init(&ops);
    weir_ctx_storage_init(&storage);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weir_ctx_storage_finish(&storage);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_md2_known_message_gives_known_digest),
        cmocka_unit_test(export_table_known_ids_have_their_sizes),
        cmocka_unit_test(export_table_unknown_id_is_refused),
        cmocka_unit_test(runtime_calls_are_told_while_somebody_watches),
        cmocka_unit_test(integrity_opens_with_fixed_answers_then_hashes_devices),
        cmocka_unit_test(storage_tells_no_context_from_no_entry),
        cmocka_unit_test(storage_many_keys_are_found_and_cleared_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
