/* The fatbin reader: which entry it takes, and that every truncation and every
 * bad byte is refused. */
#include "softgpu/driver/driver.h"
#include "support.h"

static CUresult read_all(const void *data, size_t bytes, uint32_t capability,
                         struct weir_soft_image *image)
{
    struct weir_soft_log log = {{0}};
    memset(image, 0, sizeof(*image));
    CUresult result = weir_soft_fatbin_read(data, bytes, capability, image, &log);
    return result != CUDA_SUCCESS ? result : weir_soft_image_verdict(image);
}

static void newest_ptx_that_the_device_runs_is_taken(void **state)
{
    (void)state;
    size_t bytes;
    char *data = sample_read("zstd.fatbin", &bytes);
    static const struct {
        uint32_t capability;
        const char *target;
    } rows[] = {{75, ".target sm_75"},
                {79, ".target sm_75"},
                {90, ".target sm_80"},
                {120, ".target sm_100"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_soft_image image;
        OK(read_all(data, bytes, rows[i].capability, &image));
        assert_int_equal(image.n_sources, 1);
        assert_non_null(strstr(image.sources[0].text, rows[i].target));
        weir_soft_image_finish(&image);
    }
    struct weir_soft_image image;
    assert_int_equal(read_all(data, bytes, 70, &image), CUDA_ERROR_NO_BINARY_FOR_GPU);
    weir_soft_image_finish(&image);
    free(data);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"zstd.fatbin", "lz4.fatbin", "plain.fatbin"};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        size_t bytes;
        char *data = sample_read(names[n], &bytes);
        for (size_t cut = 0; cut < bytes; cut++) {
            struct weir_soft_image image;
            char *exact = malloc(cut + 1); /* so that a sanitizer sees an overrun */
            assert_non_null(exact);
            memcpy(exact, data, cut);
            assert_int_not_equal(read_all(exact, cut, 90, &image), CUDA_SUCCESS);
            weir_soft_image_finish(&image);
            free(exact);
        }
        free(data);
    }
}

static void damaged_compressed_entry_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"zstd.fatbin", "lz4.fatbin"};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        size_t bytes;
        char *data = sample_read(names[n], &bytes);
        uint64_t more = 0;
        memcpy(&more, data + 16 + 0x38, 8);
        more += 1;
        memcpy(data + 16 + 0x38, &more, 8); /* a wrong uncompressed size, in the first entry */
        struct weir_soft_image image;
        assert_int_equal(read_all(data, bytes, 75, &image), CUDA_ERROR_INVALID_IMAGE);
        weir_soft_image_finish(&image);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest_ptx_that_the_device_runs_is_taken),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(damaged_compressed_entry_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
