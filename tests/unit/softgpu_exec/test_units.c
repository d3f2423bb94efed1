/* Texture and surface units, matrix instructions, mbarriers, warp reductions,
 * asynchronous copies. */
#include "fixture.h"

#include "softgpu/exec/half.h"
#include "tests/lib/tl_cmocka.h"

#include <math.h>
#include <string.h>

static struct weir_exec_device *device;
static struct weir_exec_module *module;

static int set_up(void **state)
{
    (void)state;
    device = tx_device();
    module = tx_load(device, "extra.ptx");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_exec_module_destroy(module);
    weir_exec_device_destroy(device);
    return 0;
}

#define RUN(kernel, n_threads, ...)                                                                \
    tx_must(device, module, kernel, (struct tx_launch){.grid = 1, .block = (n_threads)},           \
            __VA_ARGS__)

/* 4 x 2 texels of two channels: channel 0 is 10 y + x, channel 1 its negative. */
static uint64_t make_texture(struct weir_exec_texture *t, float *texels)
{
    for (int y = 0; y < 2; y++) {
        for (int x = 0; x < 4; x++) {
            texels[(y * 4 + x) * 2] = (float)(10 * y + x);
            texels[(y * 4 + x) * 2 + 1] = -(float)(10 * y + x);
        }
    }
    t->format = WEIR_EXEC_TEX_F32;
    t->channels = 2;
    t->n_levels = 1;
    t->levels[0] = (struct weir_exec_texture_level){
        .base = (uintptr_t)texels, .width = 4, .height = 2, .row_bytes = 32};
    uint64_t object;
    assert_int_equal(weir_exec_texture_register(t, &object), WEIR_OK);
    return object;
}

static void fetch(const struct weir_exec_texture *how, const float *xy, int n, float *out)
{
    struct weir_exec_texture t = *how;
    float *texels = tx_alloc(64);
    float *coordinates = tx_alloc(256);
    float *result = tx_alloc(16 * 32);
    struct {
        uint64_t object;
        float *xy;
        float *out;
    } params = {make_texture(&t, texels), coordinates, result};
    memcpy(coordinates, xy, (size_t)n * 8);
    RUN("fetch2d", (uint32_t)n, &params, 24);
    memcpy(out, result, (size_t)n * 16);
    assert_int_equal(weir_exec_texture_unregister(params.object), WEIR_OK);
    assert_int_equal(weir_exec_texture_unregister(params.object), WEIR_ERR_NOT_FOUND);
    tx_free(texels);
    tx_free(coordinates);
    tx_free(result);
}

static void textures_filter_and_address(void **state)
{
    (void)state;
    float out[4 * 4];
    struct weir_exec_texture t = {.address = {WEIR_EXEC_TEX_CLAMP, WEIR_EXEC_TEX_CLAMP}};
    const float points[] = {1.5f, 0.5f, 3.9f, 1.1f, -5.0f, 9.0f, 0.0f, 0.0f};
    fetch(&t, points, 4, out);
    assert_true(out[0] == 1 && out[1] == -1 && out[2] == 0 && out[3] == 1);
    assert_true(out[4] == 13 && out[8] == 10 && out[12] == 0);

    t.linear_filter = true;
    const float between[] = {2.0f, 0.5f, 1.0f, 1.0f, 1.751f, 0.5f};
    fetch(&t, between, 3, out);
    assert_true(out[0] == 1.5f && out[4] == 5.5f);
    assert_true(out[8] == 1.0f + 64.0f / 256.0f); /* the weight .251 has 8 bits */

    t.linear_filter = false;
    t.normalized_coords = true;
    t.address[0] = WEIR_EXEC_TEX_WRAP;
    t.address[1] = WEIR_EXEC_TEX_MIRROR;
    const float outside[] = {1.30f, 0.25f, -0.10f, 0.25f, 0.10f, 1.25f, 0.10f, 2.25f};
    fetch(&t, outside, 4, out);
    assert_true(out[0] == 1 && out[4] == 3 && out[8] == 10 && out[12] == 0);

    t.address[0] = t.address[1] = WEIR_EXEC_TEX_BORDER;
    t.border[0] = 77;
    fetch(&t, outside, 2, out);
    assert_true(out[0] == 77 && out[4] == 77);
}

static void linear_memory_and_surfaces(void **state)
{
    (void)state;
    uint8_t *bytes = tx_alloc(16);
    float *out = tx_alloc(16 * 4);
    for (int i = 0; i < 16; i++) {
        bytes[i] = (uint8_t)(i * 17);
    }
    struct weir_exec_texture t = {.format = WEIR_EXEC_TEX_U8,
                                  .channels = 1,
                                  .n_levels = 1,
                                  .address = {WEIR_EXEC_TEX_BORDER},
                                  .levels = {{.base = (uintptr_t)bytes, .width = 8}}};
    struct {
        uint64_t object;
        void *out;
    } params = {0, out};
    assert_int_equal(weir_exec_texture_register(&t, &params.object), WEIR_OK);
    RUN("fetch1d", 12, &params, 16);
    for (int i = 0; i < 12; i++) {
        assert_true(out[i] == (i < 2 || i >= 10 ? 0.0f : (float)((i - 2) * 17) / 255.0f));
    }
    assert_int_equal(weir_exec_texture_unregister(params.object), WEIR_OK);

    float *from = tx_alloc(8 * 4 * 4);
    float *to = tx_alloc(8 * 4 * 4);
    uint64_t objects[2];
    struct weir_exec_texture s = {
        .format = WEIR_EXEC_TEX_F32, .channels = 1, .n_levels = 1, .surface = true};
    for (int k = 0; k < 2; k++) {
        s.levels[0] = (struct weir_exec_texture_level){
            .base = (uintptr_t)(k == 0 ? from : to), .width = 8, .height = 4, .row_bytes = 32};
        assert_int_equal(weir_exec_texture_register(&s, &objects[k]), WEIR_OK);
    }
    for (int i = 0; i < 32; i++) {
        from[i] = (float)i;
    }
    RUN("surface_copy", 32, objects, 16);
    for (int i = 0; i < 32; i++) {
        assert_true(to[i] == 2.0f * (float)i);
    }
    struct weir_exec_fault fault = {0};
    assert_int_equal(tx_run(device, module, "surface_copy",
                            (struct tx_launch){.grid = 1, .block = 40}, objects, 16, &fault),
                     WEIR_ERR_DRIVER);
    assert_int_equal(fault.code, 700);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(weir_exec_texture_unregister(objects[k]), WEIR_OK);
    }
    tx_free(from);
    tx_free(to);
    tx_free(bytes);
    tx_free(out);
}

static void matrices_multiply(void **state)
{
    (void)state;
    uint16_t *a = tx_alloc(512);
    uint16_t *b = tx_alloc(512);
    float *c = tx_alloc(1024);
    float *d = tx_alloc(1024);
    float fa[256];
    float fb[256];
    for (int i = 0; i < 256; i++) {
        fa[i] = (float)(i * 7 % 31 - 15);
        fb[i] = (float)(i * 5 % 23 - 11);
        a[i] = weir_x_half_from_float(fa[i]);
        b[i] = weir_x_half_from_float(fb[i]);
        c[i] = (float)i;
    }
    void *params[] = {a, b, c, d};
    RUN("wmma_f16", 32, params, 32);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            float sum = c[i * 16 + j];
            for (int k = 0; k < 16; k++) {
                sum += fa[i * 16 + k] * fb[j * 16 + k];
            }
            assert_true(d[i * 16 + j] == 2.0f * sum);
        }
    }
    void *mma[] = {a, b, d};
    RUN("mma_f16", 32, mma, 24);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) {
                sum += fa[i * 16 + k] * fb[k * 8 + j];
            }
            assert_true(d[i * 8 + j] == sum);
        }
    }
    tx_free(a);
    tx_free(b);
    tx_free(c);
    tx_free(d);
}

static void mbarriers_turn_phases(void **state)
{
    (void)state;
    int *out = tx_alloc(512);
    void *params[] = {out};
    RUN("block_barrier", 128, params, 8);
    for (int t = 0; t < 128; t++) {
        assert_int_equal(out[t], 3 * ((t + 37) % 128) + 3);
    }
    tx_free(out);
}

static void warps_reduce_and_match(void **state)
{
    (void)state;
    uint32_t *out = tx_alloc(160 * 4);
    void *params[] = {out};
    RUN("warp_ops", 32, params, 8);
    for (uint32_t t = 0; t < 32; t++) {
        uint32_t same = 0;
        for (uint32_t o = 0; o < 32; o++) {
            same |= o % 5 == t % 5 ? 1u << o : 0;
        }
        assert_int_equal(out[t], 496);
        assert_int_equal(out[32 + t], t < 16 ? 15 : 31);
        assert_int_equal(out[64 + t], same);
        assert_int_equal(out[96 + t], 0); /* all lanes and true: 0xffffffff + 1 */
        assert_int_equal(out[128 + t], t % 2 == 0 ? 0x55555555u : 0);
    }
    tx_free(out);
}

static void async_copies_arrive(void **state)
{
    (void)state;
    int32_t *in = tx_alloc(1024);
    int32_t *out = tx_alloc(1024);
    for (int i = 0; i < 256; i++) {
        in[i] = i;
    }
    void *params[] = {in, out};
    RUN("async_copy", 64, params, 16);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(out[i], (63 - i / 4) * 4 + i % 4);
    }
    tx_free(in);
    tx_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(textures_filter_and_address), cmocka_unit_test(linear_memory_and_surfaces),
        cmocka_unit_test(matrices_multiply),           cmocka_unit_test(mbarriers_turn_phases),
        cmocka_unit_test(warps_reduce_and_match),      cmocka_unit_test(async_copies_arrive),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
