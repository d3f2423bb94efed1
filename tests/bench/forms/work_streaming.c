/* Kernels that stream through memory: va, nn, bs, rg, tr. */
#include "tests/bench/forms/kernels/directions.h"
#include "tests/bench/forms/kernels/values.h"
#include "tests/bench/forms/work.h"

#include <math.h>

WEIR_FORMS_PTX(va);
WEIR_FORMS_PTX(nn);
WEIR_FORMS_PTX(bs);
WEIR_FORMS_PTX(rg);
WEIR_FORMS_PTX(tr);

#define THREADS 256u

static uint64_t blocks_of(uint64_t items, uint64_t per_block)
{
    return (items + per_block - 1) / per_block;
}

/* ------------------------------------------------------------ vector addition */

static bool va_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_floats(work, n, 1, -100.0f, 200.0f);
    weir_forms_add_floats(work, n, 2, -100.0f, 200.0f);
    weir_forms_add_output(work, n);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, THREADS), 1);
}

static double va_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    (void)work;
    (void)output;
    float sum = weir_value_float(1, (uint32_t)i, -100.0f, 200.0f) +
                weir_value_float(2, (uint32_t)i, -100.0f, 200.0f);

    *ret_bound = 0;
    return (double)sum;
}

const struct weir_forms_kernel weir_forms_va = {
    .name = "va",
    .what = "vector addition",
    .ptx = weir_forms_va_ptx,
    .ptx_end = weir_forms_va_ptx_end,
    .block = {THREADS, 1, 1},
    .samples = 4096,
    .dims = {{1u << 30}, {1u << 24}, {1000}, {20000}},
    .setup = va_setup,
    .expect = va_expect,
};

/* ------------------------------------------------------------ nearest neighbour */

#define NN_LATITUDE  30.0f
#define NN_LONGITUDE 90.0f

static bool nn_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_floats(work, n * 2, 1, 0.0f, 180.0f);
    weir_forms_add_output(work, n);
    weir_forms_add_int(work, (int32_t)n);
    weir_forms_add_float(work, NN_LATITUDE);
    weir_forms_add_float(work, NN_LONGITUDE);
    return weir_forms_set_grid(work, blocks_of(n, THREADS), 1);
}

static double nn_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    (void)work;
    (void)output;
    double north = (double)NN_LATITUDE - (double)weir_value_float(1, (uint32_t)i * 2, 0, 180.0f);
    double east =
        (double)NN_LONGITUDE - (double)weir_value_float(1, (uint32_t)i * 2 + 1, 0, 180.0f);
    double distance = sqrt(north * north + east * east);

    *ret_bound = distance * 4e-7 + 1e-6; /* a few roundings of 2^-24 */
    return distance;
}

const struct weir_forms_kernel weir_forms_nn = {
    .name = "nn",
    .what = "nearest neighbour",
    .ptx = weir_forms_nn_ptx,
    .ptx_end = weir_forms_nn_ptx_end,
    .block = {THREADS, 1, 1},
    .samples = 4096,
    .dims = {{1u << 30}, {1u << 24}, {1000}, {20000}},
    .setup = nn_setup,
    .expect = nn_expect,
};

/* ------------------------------------------------------------ Black-Scholes */

#define BS_RATE       0.02f
#define BS_VOLATILITY 0.3f

static bool bs_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_floats(work, n, 1, 5.0f, 25.0f);
    weir_forms_add_floats(work, n, 2, 1.0f, 99.0f);
    weir_forms_add_floats(work, n, 3, 0.25f, 9.75f);
    weir_forms_add_output(work, n);
    weir_forms_add_output(work, n);
    weir_forms_add_float(work, BS_RATE);
    weir_forms_add_float(work, BS_VOLATILITY);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, THREADS), 1);
}

static double bs_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    (void)work;
    double spot = (double)weir_value_float(1, (uint32_t)i, 5.0f, 25.0f);
    double strike = (double)weir_value_float(2, (uint32_t)i, 1.0f, 99.0f);
    double time = (double)weir_value_float(3, (uint32_t)i, 0.25f, 9.75f);
    double rate = (double)BS_RATE, volatility = (double)BS_VOLATILITY;
    double spread = volatility * sqrt(time);
    double d1 = (log(spot / strike) + (rate + volatility * volatility / 2) * time) / spread;
    double d2 = d1 - spread;
    double discounted = strike * exp(-rate * time);
    double call = spot * 0.5 * erfc(-d1 * M_SQRT1_2) - discounted * 0.5 * erfc(-d2 * M_SQRT1_2);

    *ret_bound = 1e-5 * (spot + strike);
    return output == 0 ? call : call + discounted - spot; /* put-call parity */
}

const struct weir_forms_kernel weir_forms_bs = {
    .name = "bs",
    .what = "Black-Scholes",
    .ptx = weir_forms_bs_ptx,
    .ptx_end = weir_forms_bs_ptx_end,
    .block = {THREADS, 1, 1},
    .samples = 4096,
    .dims = {{1u << 29}, {1u << 23}, {1000}, {12000}},
    .setup = bs_setup,
    .expect = bs_expect,
};

/* ------------------------------------------------------------ quasi-random generator */

#define RG_POINTS 128u /* of a block, each in all dimensions */

static bool rg_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_output(work, n * WEIR_DIRECTIONS_DIMS);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, RG_POINTS), 1);
}

static double rg_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    static const uint32_t directions[WEIR_DIRECTIONS_DIMS][WEIR_DIRECTIONS_BITS] = WEIR_DIRECTIONS;
    uint64_t dimension = i / work->dims[0];
    uint32_t point = (uint32_t)(i % work->dims[0]);
    uint32_t bits = 0;

    (void)output;
    for (uint32_t bit = 0; bit < WEIR_DIRECTIONS_BITS; bit++) {
        bits ^= point >> bit & 1 ? directions[dimension][bit] : 0;
    }
    *ret_bound = 0;
    return (double)((float)(bits + 1) * (1.0f / 2147483648.0f));
}

const struct weir_forms_kernel weir_forms_rg = {
    .name = "rg",
    .what = "quasi-random generator",
    .ptx = weir_forms_rg_ptx,
    .ptx_end = weir_forms_rg_ptx_end,
    .block = {RG_POINTS, WEIR_DIRECTIONS_DIMS, 1},
    .samples = 4096,
    .dims = {{1u << 28}, {1u << 22}, {500}, {6000}},
    .setup = rg_setup,
    .expect = rg_expect,
};

/* ------------------------------------------------------------ transpose */

static bool tr_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_floats(work, n * n, 1, -1.0f, 2.0f);
    weir_forms_add_output(work, n * n);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, n / 32, n / 32);
}

static double tr_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    uint64_t n = work->dims[0];

    (void)output;
    *ret_bound = 0;
    return (double)weir_value_float(1, (uint32_t)(i % n * n + i / n), -1.0f, 2.0f);
}

const struct weir_forms_kernel weir_forms_tr = {
    .name = "tr",
    .what = "transpose",
    .ptx = weir_forms_tr_ptx,
    .ptx_end = weir_forms_tr_ptx_end,
    .block = {32, 8, 1},
    .samples = 4096,
    .dims = {{32768}, {4096}, {64}, {256}},
    .setup = tr_setup,
    .expect = tr_expect,
};
