/* Kernels that gather from memory or keep state in blocks: cfd, pf, pl, md, spmv. */
#include "tests/bench/forms/kernels/values.h"
#include "tests/bench/forms/work.h"

#include <math.h>
#include <string.h>

WEIR_FORMS_PTX(cfd);
WEIR_FORMS_PTX(pf);
WEIR_FORMS_PTX(pl);
WEIR_FORMS_PTX(md);
WEIR_FORMS_PTX(spmv);

static uint64_t blocks_of(uint64_t items, uint64_t per_block)
{
    return (items + per_block - 1) / per_block;
}

/* ------------------------------------------------------------ finite-volume fluxes */

#define CFD_THREADS 192u
#define CFD_FACES   4u
#define CFD_GAMMA   1.4

/* The device has density, momentum and energy in five runs of floats one after another. There is so
 * much more energy than motion that no pressure is negative. */
struct cfd_state {
    double density;
    double momentum[3];
    double energy;
};

static bool cfd_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];

    weir_forms_add_floats(work, n * 5, 1, 1.0f, 0.5f);
    weir_forms_fill_floats(work, n * 4, n, 5, 8.0f, 2.0f);
    weir_forms_add_near(work, "fill_faces", n * CFD_FACES, 2, work->dims[1], (uint32_t)n);
    weir_forms_add_floats(work, n * CFD_FACES * 3, 40, -1.0f, 2.0f);
    weir_forms_add_output(work, n * 5);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, CFD_THREADS), 1);
}

static struct cfd_state cfd_load(uint64_t n, uint64_t i)
{
    double v[5];

    for (uint64_t k = 0; k < 4; k++) {
        v[k] = (double)weir_value_float(1, (uint32_t)(k * n + i), 1.0f, 0.5f);
    }
    v[4] = (double)weir_value_float(5, (uint32_t)i, 8.0f, 2.0f);
    return (struct cfd_state){v[0], {v[1], v[2], v[3]}, v[4]};
}

static double cfd_pressure(const struct cfd_state *s)
{
    const double *m = s->momentum;
    double kinetic = (m[0] * m[0] + m[1] * m[1] + m[2] * m[2]) / (2 * s->density);

    return (CFD_GAMMA - 1) * (s->energy - kinetic);
}

/* Adds half of the flux and its terms' sizes. @return the fastest wave */
static double cfd_half(const struct cfd_state *s, const double normal[3], double sum[5],
                       double size[5])
{
    const double *m = s->momentum;
    double p = cfd_pressure(s);
    double through = (m[0] * normal[0] + m[1] * normal[1] + m[2] * normal[2]) / s->density;
    double speed = sqrt(m[0] * m[0] + m[1] * m[1] + m[2] * m[2]) / s->density;
    double terms[5] = {s->density * through, m[0] * through + p * normal[0],
                       m[1] * through + p * normal[1], m[2] * through + p * normal[2],
                       (s->energy + p) * through};

    for (int k = 0; k < 5; k++) {
        sum[k] += terms[k] / 2;
        /* The terms cancel each other, and small pressures are differences of large numbers. */
        size[k] += fabs(terms[k]) + 4 + 4 * speed * speed;
    }
    return speed + sqrt(CFD_GAMMA * p / s->density);
}

static double cfd_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                         double *ret_bound)
{
    uint64_t n = work->dims[0], cell = i % n, part = i / n;
    struct cfd_state mine = cfd_load(n, cell);
    double sum[5] = {0}, size[5] = {0};

    (void)output;
    for (uint32_t face = 0; face < CFD_FACES; face++) {
        int32_t other = weir_value_face(2, (uint32_t)cell, face, work->dims[1], (uint32_t)n);
        struct cfd_state theirs = {1.0, {0.5, 0.0, 0.0}, 2.5};
        double normal[3];

        for (uint32_t k = 0; k < 3; k++) {
            normal[k] =
                (double)weir_value_float(40, (uint32_t)((face * 3 + k) * n + cell), -1.0f, 2.0f);
        }
        if (other == -1) {
            for (int k = 0; k < 3; k++) {
                sum[k + 1] += cfd_pressure(&mine) * normal[k];
                size[k + 1] += 4;
            }
            continue;
        }
        if (other >= 0) {
            theirs = cfd_load(n, (uint64_t)other);
        }
        double wave =
            fmax(cfd_half(&mine, normal, sum, size), cfd_half(&theirs, normal, sum, size));
        double damp =
            wave / 2 * sqrt(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);

        sum[0] -= damp * (theirs.density - mine.density);
        for (int k = 0; k < 3; k++) {
            sum[k + 1] -= damp * (theirs.momentum[k] - mine.momentum[k]);
        }
        sum[4] -= damp * (theirs.energy - mine.energy);
    }
    *ret_bound = size[part] * 2e-6;
    return sum[part];
}

const struct weir_forms_kernel weir_forms_cfd = {
    .name = "cfd",
    .what = "finite-volume fluxes",
    .ptx = weir_forms_cfd_ptx,
    .ptx_end = weir_forms_cfd_ptx_end,
    .block = {CFD_THREADS, 1, 1},
    .samples = 2048,
    .dims = {{3u << 24, 4096}, {1u << 20, 1024}, {500, 100}, {4000, 200}},
    .setup = cfd_setup,
    .expect = cfd_expect,
};

/* ------------------------------------------------------------ path finder */

#define PF_THREADS 256u
#define PF_COSTS   10u
#define PF_ROWS    32u /* at most */

static bool pf_setup(struct weir_forms_work *work)
{
    uint64_t columns = work->dims[0], rows = work->dims[1];

    weir_forms_add_below(work, columns * rows, 1, PF_COSTS);
    weir_forms_add_below(work, columns, 2, PF_COSTS);
    weir_forms_add_output(work, columns);
    weir_forms_add_int(work, (int32_t)columns);
    weir_forms_add_int(work, (int32_t)rows);
    return weir_forms_set_grid(work, blocks_of(columns, PF_THREADS - 2 * rows), 1);
}

static double pf_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    int64_t columns = work->dims[0], rows = work->dims[1], x = (int64_t)i;
    int64_t costs[2 * PF_ROWS + 3];
    int64_t width = 2 * rows + 1; /* column x - rows is at 1; ends are far away */

    (void)output;
    *ret_bound = 0;
    costs[0] = costs[width + 1] = INT32_MAX;
    for (int64_t k = 0; k < width; k++) {
        int64_t at = x - rows + k;

        costs[k + 1] =
            at < 0 || at >= columns ? INT32_MAX : weir_value_below(2, (uint32_t)at, PF_COSTS);
    }
    for (int64_t row = 0; row < rows; row++) {
        int64_t left = costs[0];

        for (int64_t k = 1; k <= width; k++) {
            int64_t here = costs[k], least = here < left ? here : left;
            int64_t at = x - rows + k - 1;

            least = costs[k + 1] < least ? costs[k + 1] : least;
            left = here;
            costs[k] = at < 0 || at >= columns
                           ? INT32_MAX
                           : least + weir_value_below(1, (uint32_t)(row * columns + at), PF_COSTS);
        }
    }
    return (double)costs[rows + 1];
}

const struct weir_forms_kernel weir_forms_pf = {
    .name = "pf",
    .what = "path finder",
    .ptx = weir_forms_pf_ptx,
    .ptx_end = weir_forms_pf_ptx_end,
    .block = {PF_THREADS, 1, 1},
    .is_integer = true,
    .samples = 1024,
    .dims = {{1u << 26, 20}, {1u << 20, 20}, {500, 8}, {8000, 8}},
    .setup = pf_setup,
    .expect = pf_expect,
};

/* ------------------------------------------------------------ particle filter likelihood */

#define PL_THREADS  256u
#define PL_RADIUS   5
#define PL_MAX_DISC ((2 * PL_RADIUS + 1) * (2 * PL_RADIUS + 1))

static uint32_t pl_disc(int32_t radius, int32_t disc[PL_MAX_DISC][2])
{
    uint32_t n = 0;

    for (int32_t y = -radius; y <= radius; y++) {
        for (int32_t x = -radius; x <= radius; x++) {
            if (x * x + y * y <= radius * radius) {
                disc[n][0] = x;
                disc[n][1] = y;
                n++;
            }
        }
    }
    return n;
}

static bool pl_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], side = work->dims[1];
    int32_t disc[PL_MAX_DISC][2];
    uint32_t points = pl_disc((int32_t)work->dims[2], disc);

    weir_forms_add_floats(work, n * 2, 1, 0.0f, (float)side);
    weir_forms_add_data(work, disc, points * sizeof(disc[0]));
    weir_forms_add_int(work, (int32_t)points);
    weir_forms_add_bytes(work, side * side, 2);
    weir_forms_add_int(work, (int32_t)side);
    weir_forms_add_output(work, n);
    weir_forms_add_output(work, blocks_of(n, PL_THREADS));
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, PL_THREADS), 1);
}

static int32_t clamp(int32_t value, int32_t high)
{
    return value < 0 ? 0 : value > high ? high : value;
}

static double pl_likelihood(const struct weir_forms_work *work, uint64_t i, double *ret_size)
{
    int32_t side = (int32_t)work->dims[1];
    int32_t disc[PL_MAX_DISC][2];
    uint32_t points = pl_disc((int32_t)work->dims[2], disc);
    int32_t cx = (int32_t)weir_value_float(1, (uint32_t)i * 2, 0.0f, (float)side);
    int32_t cy = (int32_t)weir_value_float(1, (uint32_t)i * 2 + 1, 0.0f, (float)side);
    double sum = 0, size = 0;

    for (uint32_t p = 0; p < points; p++) {
        int32_t x = clamp(cx + disc[p][0], side - 1);
        int32_t y = clamp(cy + disc[p][1], side - 1);
        double pixel = weir_value_bits(2, (uint32_t)(y * side + x)) & 0xff;
        double term = ((pixel - 100) * (pixel - 100) - (pixel - 228) * (pixel - 228)) / 50;

        sum += term;
        size += fabs(term);
    }
    *ret_size = size / points;
    return sum / points;
}

static double pl_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    double size, sum = 0;

    if (output == 0) {
        sum = pl_likelihood(work, i, &size);
        *ret_bound = size * 1e-5;
        return sum;
    }
    for (uint64_t k = i * PL_THREADS; k < (i + 1) * PL_THREADS && k < work->dims[0]; k++) {
        sum += exp(pl_likelihood(work, k, &size) * 0.03125);
    }
    *ret_bound = sum * 2e-4; /* expf of numbers up to 30 that are off by 1e-5 */
    return sum;
}

const struct weir_forms_kernel weir_forms_pl = {
    .name = "pl",
    .what = "particle filter likelihood",
    .ptx = weir_forms_pl_ptx,
    .ptx_end = weir_forms_pl_ptx_end,
    .block = {PL_THREADS, 1, 1},
    .samples = 64,
    .dims = {{1u << 24, 1024, 5}, {1u << 18, 1024, 5}, {700, 64, 2}, {10000, 64, 2}},
    .setup = pl_setup,
    .expect = pl_expect,
};

/* ------------------------------------------------------------ molecular dynamics */

#define MD_THREADS    128u
#define MD_CUT        16.0f /* squared */
#define MD_REPULSION  1.5f
#define MD_ATTRACTION 2.0f
#define MD_REACH      4096u

static bool md_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0], per_atom = work->dims[1];

    weir_forms_add_places(work, n, 1);
    weir_forms_add_near(work, "fill_near", n * per_atom, 8, work->dims[2], (uint32_t)n);
    weir_forms_add_int(work, (int32_t)per_atom);
    weir_forms_add_output(work, n * 4);
    weir_forms_add_float(work, MD_CUT);
    weir_forms_add_float(work, MD_REPULSION);
    weir_forms_add_float(work, MD_ATTRACTION);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, MD_THREADS), 1);
}

static double md_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                        double *ret_bound)
{
    uint32_t n = work->dims[0], atom = (uint32_t)(i / 4), axis = (uint32_t)(i % 4);
    double force = 0, size = 0;

    (void)output;
    *ret_bound = 0;
    if (axis == 3) {
        return 0;
    }
    for (uint32_t k = 0; k < work->dims[1]; k++) {
        uint32_t other = (uint32_t)weir_value_near(8, atom, k, work->dims[2], n);
        double d[3], squared = 0;

        for (uint32_t a = 0; a < 3; a++) {
            d[a] = (double)weir_value_place(1, atom, a) - (double)weir_value_place(1, other, a);
            squared += d[a] * d[a];
        }
        double inverse = 1 / squared, sixth = inverse * inverse * inverse;
        double scale = inverse * sixth;
        double term = d[axis] * scale * ((double)MD_REPULSION * sixth - (double)MD_ATTRACTION);

        if (fabs(squared - (double)MD_CUT) < 1e-4) {
            size += 10 * fabs(term) / 1e-5; /* either side of the cut is right */
        }
        if (squared < (double)MD_CUT) {
            force += term;
            size += fabs(d[axis]) * scale * ((double)MD_REPULSION * sixth + (double)MD_ATTRACTION);
        }
    }
    *ret_bound = size * 1e-5 + 1e-30;
    return force;
}

const struct weir_forms_kernel weir_forms_md = {
    .name = "md",
    .what = "molecular dynamics",
    .ptx = weir_forms_md_ptx,
    .ptx_end = weir_forms_md_ptx_end,
    .block = {MD_THREADS, 1, 1},
    .samples = 1024,
    .dims = {{1u << 22, 128, MD_REACH}, {1u << 17, 128, MD_REACH}, {400, 16, 100}, {4000, 16, 100}},
    .setup = md_setup,
    .expect = md_expect,
};

/* ------------------------------------------------------------ sparse matrix times vector */

#define SPMV_THREADS 128u
#define SPMV_BASE    48u
#define SPMV_SPREAD  32u

static bool spmv_setup(struct weir_forms_work *work)
{
    uint64_t n = work->dims[0];
    uint64_t elements = n * SPMV_BASE + SPMV_SPREAD;

    weir_forms_add_floats(work, elements, 1, -1.0f, 2.0f);
    weir_forms_add_below(work, elements, 2, (uint32_t)n);
    weir_forms_add_rows(work, n + 1, 3, SPMV_BASE, SPMV_SPREAD);
    weir_forms_add_floats(work, n, 4, -1.0f, 2.0f);
    weir_forms_add_output(work, n);
    weir_forms_add_int(work, (int32_t)n);
    return weir_forms_set_grid(work, blocks_of(n, SPMV_THREADS / 32), 1);
}

static double spmv_expect(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                          double *ret_bound)
{
    uint32_t row = (uint32_t)i;
    int32_t end = weir_value_row(3, row + 1, SPMV_BASE, SPMV_SPREAD);
    double sum = 0, size = 0;

    (void)output;
    for (int32_t k = weir_value_row(3, row, SPMV_BASE, SPMV_SPREAD); k < end; k++) {
        uint32_t column = weir_value_below(2, (uint32_t)k, work->dims[0]);
        double term = (double)weir_value_float(1, (uint32_t)k, -1.0f, 2.0f) *
                      (double)weir_value_float(4, column, -1.0f, 2.0f);

        sum += term;
        size += fabs(term);
    }
    *ret_bound = size * 1e-6 + 1e-12;
    return sum;
}

const struct weir_forms_kernel weir_forms_spmv = {
    .name = "spmv",
    .what = "sparse matrix times vector",
    .ptx = weir_forms_spmv_ptx,
    .ptx_end = weir_forms_spmv_ptx_end,
    .block = {SPMV_THREADS, 1, 1},
    .samples = 2048,
    .dims = {{3u << 22}, {1u << 18}, {14}, {200}},
    .setup = spmv_setup,
    .expect = spmv_expect,
};
