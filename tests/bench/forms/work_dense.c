/* Kernels that reuse tiles of matrices: mm, gs, sgemm, tg. */
#include "tests/bench/forms/kernels/values.h"
#include "tests/bench/forms/work.h"

#include <math.h>

WEIR_FORMS_PTX(mm);
WEIR_FORMS_PTX(gs);
WEIR_FORMS_PTX(sgemm);
WEIR_FORMS_PTX(tg);

static float value(uint32_t seed, uint64_t i)
{
    return weir_value_float(seed, (uint32_t)i, -1.0f, 2.0f);
}

/* Element i of a (seed 1) times b (seed 2), n by depth by n. */
static double product(uint64_t n, uint64_t depth, uint64_t i, double *ret_size)
{
    uint64_t row = i / n, column = i % n;
    double sum = 0, size = 0;

    for (uint64_t k = 0; k < depth; k++) {
        double term = (double)value(1, row * depth + k) * (double)value(2, k * n + column);

        sum += term;
        size += fabs(term);
    }
    *ret_size = size;
    return sum;
}

/* A sum of n products in single precision, as a share of the sum of their sizes: rounding errors
 * of 2^-24 add up like a random walk at worst a few times over. */
static double rounding(uint64_t n)
{
    return 6e-8 * 4 * sqrt((double)n);
}

/* ------------------------------------------------------------ tiled multiplication */

static bool mm_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], depth = work->dims[1];

    weir_forms_add_floats(work, n * depth, 1, -1.0f, 2.0f);
    weir_forms_add_floats(work, n * depth, 2, -1.0f, 2.0f);
    weir_forms_add_output(work, n * n);
    weir_forms_add_int(work, (int32_t)n);
    weir_forms_add_int(work, (int32_t)depth);
    return weir_forms_set_grid(work, n / 32, n / 32);
}

static double mm_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    double size, sum = product(work->dims[0], work->dims[1], i, &size);

    (void)output;
    *ret_bound = size * rounding(work->dims[1]);
    return sum;
}

const struct weir_forms_kernel weir_forms_mm = {
    .name = "mm",
    .what = "matrix multiplication",
    .ptx = weir_forms_mm_ptx,
    .ptx_end = weir_forms_mm_ptx_end,
    .block = {32, 32, 1},
    .samples = 512,
    .dims = {{3072, 3072}, {640, 640}, {64, 64}, {224, 32}},
    .setup = mm_setup,
    .expect = mm_expect,
};

/* ------------------------------------------------------------ Gaussian elimination */

static bool gs_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], panel = work->dims[1];

    weir_forms_add_floats(work, n * n, 3, -1.0f, 2.0f);
    weir_forms_add_floats(work, n * panel, 1, -1.0f, 2.0f);
    weir_forms_add_floats(work, n * panel, 2, -1.0f, 2.0f);
    weir_forms_add_output(work, n * n);
    weir_forms_add_int(work, (int32_t)n);
    weir_forms_add_int(work, (int32_t)panel);
    return weir_forms_set_grid(work, (n + 15) / 16, (n + 15) / 16);
}

static double gs_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    double size, sum = product(work->dims[0], work->dims[1], i, &size);
    double before = (double)value(3, i);

    (void)output;
    *ret_bound = (size + fabs(before)) * rounding(work->dims[1]);
    return before - sum;
}

const struct weir_forms_kernel weir_forms_gs = {
    .name = "gs",
    .what = "Gaussian elimination",
    .ptx = weir_forms_gs_ptx,
    .ptx_end = weir_forms_gs_ptx_end,
    .block = {16, 16, 1},
    .samples = 2048,
    .dims = {{16384, 32}, {2048, 32}, {40, 8}, {120, 8}},
    .setup = gs_setup,
    .expect = gs_expect,
};

/* ------------------------------------------------------------ SGEMM */

#define SGEMM_ALPHA 1.25f
#define SGEMM_BETA  -0.5f

static bool sgemm_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], depth = work->dims[1];

    weir_forms_add_floats(work, n * depth, 1, -1.0f, 2.0f);
    weir_forms_add_floats(work, n * depth, 2, -1.0f, 2.0f);
    weir_forms_add_floats(work, n * n, 3, -1.0f, 2.0f);
    weir_forms_add_output(work, n * n);
    weir_forms_add_float(work, SGEMM_ALPHA);
    weir_forms_add_float(work, SGEMM_BETA);
    weir_forms_add_int(work, (int32_t)n);
    weir_forms_add_int(work, (int32_t)depth);
    return weir_forms_set_grid(work, n / 64, n / 64);
}

static double sgemm_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                           double *ret_bound)
{
    double size, sum = product(work->dims[0], work->dims[1], i, &size);
    double before = (double)value(3, i);

    (void)output;
    *ret_bound = (size * 1.25 + fabs(before)) * rounding(work->dims[1] + 2);
    return (double)SGEMM_ALPHA * sum + (double)SGEMM_BETA * before;
}

const struct weir_forms_kernel weir_forms_sgemm = {
    .name = "sgemm",
    .what = "single-precision matrix multiplication",
    .ptx = weir_forms_sgemm_ptx,
    .ptx_end = weir_forms_sgemm_ptx_end,
    .block = {256, 1, 1},
    .samples = 512,
    .dims = {{4096, 4096}, {768, 768}, {128, 32}, {448, 16}},
    .setup = sgemm_setup,
    .expect = sgemm_expect,
};

/* ------------------------------------------------------------ on tensor cores */

static bool tg_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], depth = work->dims[1];

    weir_forms_add_halves(work, n * depth, 1);
    weir_forms_add_halves(work, n * depth, 2);
    weir_forms_add_output(work, n * n);
    weir_forms_add_int(work, (int32_t)n);
    weir_forms_add_int(work, (int32_t)depth);
    return weir_forms_set_grid(work, n / 128, n / 128);
}

static double tg_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    uint64_t n = work->dims[0], depth = work->dims[1];
    uint64_t row = i / n, column = i % n;
    double sum = 0, size = 0;

    (void)output;
    for (uint64_t k = 0; k < depth; k++) {
        double term = (double)weir_value_half(1, (uint32_t)(row * depth + k)) *
                      (double)weir_value_half(2, (uint32_t)(k * n + column));

        sum += term;
        size += fabs(term);
    }
    *ret_bound = size * rounding(depth);
    return sum;
}

const struct weir_forms_kernel weir_forms_tg = {
    .name = "tg",
    .what = "matrix multiplication on tensor cores",
    .ptx = weir_forms_tg_ptx,
    .ptx_end = weir_forms_tg_ptx_end,
    .block = {256, 1, 1},
    .samples = 512,
    .dims = {{6144, 4096}, {1536, 1024}, {256, 32}, {640, 32}},
    .setup = tg_setup,
    .expect = tg_expect,
};
