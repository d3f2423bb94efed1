/* Arrays of a session: charged before they are made, cleared, and gone with their context. */
#include "session_fixture.h"

#include "host_backend/worker/state/platform.h"

static uint8_t zeroes[WEIR_ZEROES_BYTES];

static void share(void)
{
    f.worker.platform.zeroes = zeroes;
}

static void serve_one_program(void)
{
    f.worker.platform.by_program = true;
}

static int set_up_with(void **state, void (*how)(void))
{
    int result;

    prepare = how;
    result = set_up(state);
    make_context();
    return result;
}

static int set_up_shared(void **state)
{
    return set_up_with(state, share);
}

static int set_up_without_zeroes(void **state)
{
    return set_up_with(state, NULL);
}

static int set_up_one_program(void **state)
{
    return set_up_with(state, serve_one_program);
}

static CUresult create(uint32_t index, CUDA_ARRAY3D_DESCRIPTOR desc)
{
    const struct weir_op_array_create_in in = {
        .c = name(WEIR_KIND_CONTEXT, 1), .a = name(WEIR_KIND_ARRAY, index), .desc = desc};

    return call(WEIR_OP_array_create, &in, NULL);
}

static CUresult create_mipmap(CUDA_ARRAY3D_DESCRIPTOR desc, uint32_t levels)
{
    const struct weir_op_mipmap_create_in in = {.c = name(WEIR_KIND_CONTEXT, 1),
                                                .m = name(WEIR_KIND_MIPMAP, 1),
                                                .desc = desc,
                                                .levels = levels};

    return call(WEIR_OP_mipmap_create, &in, NULL);
}

static uint64_t used(void)
{
    return weir_account_used(&f.tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);
}

static CUDA_ARRAY3D_DESCRIPTOR floats(size_t width, size_t height, size_t depth)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){width, height, depth, CU_AD_FORMAT_FLOAT, 4, 0};
}

/* The quota is 1 GiB. */
static void array_over_the_quota_is_never_made(void **state)
{
    static const struct {
        size_t width, height, depth;
        CUresult result;
    } rows[] = {{1 << 14, 1 << 13, 0, CUDA_ERROR_OUT_OF_MEMORY},
                {1 << 20, 1 << 10, 1 << 10, CUDA_ERROR_OUT_OF_MEMORY},
                {SIZE_MAX / 512, 1, 0, CUDA_ERROR_OUT_OF_MEMORY},
                {SIZE_MAX / 8, 1, 0, CUDA_ERROR_INVALID_VALUE},
                {1, SIZE_MAX, SIZE_MAX, CUDA_ERROR_INVALID_VALUE}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CUDA_ARRAY3D_DESCRIPTOR desc = floats(rows[i].width, rows[i].height, rows[i].depth);

        assert_int_equal(create(1, desc), rows[i].result);
        assert_int_equal(create_mipmap(desc, 3), rows[i].result);
    }
    assert_int_equal(used(), 0);
    assert_int_equal(fake_noted("array"), 0);
    assert_int_equal(create(1, floats(1 << 12, 1 << 10, 0)), CUDA_SUCCESS);
    assert_int_equal(used(), 16 << 22);
}

/* Each in tiles of 64 bytes by 8 rows. */
#define TILE 512
static void levels_are_charged_as_many_as_there_can_be(void **state)
{
    static const struct {
        CUDA_ARRAY3D_DESCRIPTOR desc;
        uint32_t levels;
        uint64_t bytes;
    } rows[] = {{{8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 0, TILE},
                {{8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 2, 2 * TILE},
                {{8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, UINT32_MAX, 4 * TILE},
                {{8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 9, 4 * TILE},
                {{200, 100, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 2, 256 * 104 + 128 * 56},
                {{131072, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 1, 4 << 20},
                {{4, 4, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 9, (4 + 2 + 1) * TILE},
                {{4, 4, 6, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED}, 9, 3 * 6 * TILE}};
    const struct weir_op_cuMipmappedArrayDestroy_in destroy = {.hMipmappedArray =
                                                                   name(WEIR_KIND_MIPMAP, 1)};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(create_mipmap(rows[i].desc, rows[i].levels), CUDA_SUCCESS);
        assert_int_equal(used(), rows[i].bytes);
        assert_int_equal(call(WEIR_OP_cuMipmappedArrayDestroy, &destroy, NULL), CUDA_SUCCESS);
        assert_int_equal(used(), 0);
    }
}

static void array_is_cleared_in_boxes(void **state)
{
    static const size_t rows[][3] = {{16, 0, 0},    {16, 16, 0},    {16, 16, 16},   {100, 300, 0},
                                     {100, 300, 7}, {131072, 0, 0}, {131072, 3, 0}, {65536, 1, 3},
                                     {5, 70000, 0}, {40000, 2, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t bytes = 16 * rows[i][0] * (rows[i][1] != 0 ? rows[i][1] : 1) *
                         (rows[i][2] != 0 ? rows[i][2] : 1);

        fake_cleared_bytes = 0;
        assert_int_equal(create((uint32_t)i + 1, floats(rows[i][0], rows[i][1], rows[i][2])),
                         CUDA_SUCCESS);
        assert_int_equal(fake_cleared_bytes, bytes);
    }
}

static void each_level_is_cleared(void **state)
{
    (void)state;
    assert_int_equal(create_mipmap(floats(16, 16, 0), FAKE_LEVELS), CUDA_SUCCESS);
    assert_int_equal(fake_cleared_bytes, 16 * (256 + 64 + 16));
}

static const CUDA_ARRAY3D_DESCRIPTOR planar = {64, 64, 0, CU_AD_FORMAT_NV12, 3, 0};

static void what_cannot_be_cleared_is_not_made(void **state)
{
    (void)state;
    assert_int_equal(create(1, planar), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(create_mipmap(planar, 1), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(fake_noted("array"), 0);
    assert_int_equal(used(), 0);
}

static void without_zeroes_nothing_is_made(void **state)
{
    (void)state;
    assert_int_equal(create(1, floats(16, 16, 0)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(), 0);
}

static void arrays_of_the_only_program_are_not_cleared(void **state)
{
    (void)state;
    assert_int_equal(create(1, planar), CUDA_SUCCESS);
    assert_int_equal(create(2, floats(16, 16, 0)), CUDA_SUCCESS);
    assert_int_equal(fake_cleared_bytes, 0);
}

static void arrays_die_with_their_context(void **state)
{
    const struct weir_op_ctx_destroy_in destroy = {.c = name(WEIR_KIND_CONTEXT, 1)};
    const struct weir_op_cuArrayDestroy_in stale = {.hArray = name(WEIR_KIND_ARRAY, 1)};

    (void)state;
    assert_int_equal(create(1, floats(16, 16, 0)), CUDA_SUCCESS);
    assert_int_equal(create_mipmap(floats(16, 16, 0), 1), CUDA_SUCCESS);
    assert_int_equal(used(), 2 * 16 * 256);
    assert_int_equal(call(WEIR_OP_ctx_destroy, &destroy, NULL), CUDA_SUCCESS);
    assert_int_equal(used(), 0);
    assert_int_equal(call(WEIR_OP_cuArrayDestroy, &stale, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(create(1, floats(16, 16, 0)), CUDA_ERROR_INVALID_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(array_over_the_quota_is_never_made, set_up_shared,
                                        tear_down),
        cmocka_unit_test_setup_teardown(levels_are_charged_as_many_as_there_can_be, set_up_shared,
                                        tear_down),
        cmocka_unit_test_setup_teardown(array_is_cleared_in_boxes, set_up_shared, tear_down),
        cmocka_unit_test_setup_teardown(each_level_is_cleared, set_up_shared, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_cleared_is_not_made, set_up_shared,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_zeroes_nothing_is_made, set_up_without_zeroes,
                                        tear_down),
        cmocka_unit_test_setup_teardown(arrays_of_the_only_program_are_not_cleared,
                                        set_up_one_program, tear_down),
        cmocka_unit_test_setup_teardown(arrays_die_with_their_context, set_up_shared, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
