/*
 * wmma.mma and mma.sync, dense and sparse.
 *
 * mma's fragments are PTX's own: with p elements in a register and lane = 4 g + t, register r of A
 * holds row g + 8 (r & 1), columns t p + 4 p (r / 2) ..; of B rows t p + 4 p r .., column g; of C
 * and D row g + 8 (r / 2), column 2 t + (r & 1), or two columns in a register for f16. That one
 * rule covers every shape but Volta's m8n8k4 of f16, in which four groups of eight lanes (lane / 4
 * % 4) multiply matrices of their own.
 *
 * PTX leaves the layout of wmma's fragments open. Here the elements (by rows, those of B by
 * columns) fill the slots of all lanes in order, and surplus slots repeat the elements from the
 * start.
 *
 * A sparse A holds half of its columns: two of every four; for tf32 one of every two; for 4-bit
 * numbers two of every four pairs. Four bits of metadata for each such chunk say which ones it
 * holds.
 *
 * Products and sums are computed in double and rounded once for each result; f64 uses fused
 * multiply-adds in order; integers wrap or saturate. A GPU adds f16, bf16, tf32 and f8 in its own
 * order and width, so last bits differ, as they do between GPUs.
 */
#include "softgpu/exec/matrix.h"
#include "softgpu/exec/half.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static bool is_integer(uint8_t type)
{
    return weir_ptx_type_class(type) != 'F';
}

/* Places */

static void mma_place(const struct weir_x_fragment *f, enum weir_x_role role, uint32_t lane,
                      uint32_t reg, uint32_t j, uint32_t *ret_row, uint32_t *ret_col)
{
    uint32_t g = lane / 4;
    uint32_t t = lane % 4;
    switch (role) {
    case WEIR_X_ROLE_A:
        *ret_row = f->rows == 8 ? g : g + 8 * (reg & 1u);
        *ret_col = t * f->pack + j + 4 * f->pack * (f->rows == 8 ? reg : reg / 2);
        break;
    case WEIR_X_ROLE_B:
        *ret_row = t * f->pack + j + 4 * f->pack * reg;
        *ret_col = g;
        break;
    case WEIR_X_ROLE_C:
    case WEIR_X_ROLE_D:
        *ret_row = g + 8 * (f->pack == 2 ? reg : reg / 2);
        *ret_col = 2 * t + (f->pack == 2 ? j : reg & 1u);
        break;
    }
}

/* Places of the four matrices, one below the other; that of lanes 0..3 and 16..19 is first. */
static void volta_place(const struct weir_x_matrix_op *op, const struct weir_x_fragment *f,
                        enum weir_x_role role, uint32_t lane, uint32_t reg, uint32_t j,
                        uint32_t *ret_row, uint32_t *ret_col)
{
    uint32_t e = reg * f->pack + j;
    uint32_t q = lane % 4;
    uint32_t high = lane < 16 ? 0 : 4;
    uint32_t row, col;
    switch (role) {
    case WEIR_X_ROLE_A:
        row = (op->column_a ? e : q) + high;
        col = op->column_a ? q : e;
        break;
    case WEIR_X_ROLE_B:
        row = op->column_b ? e : q;
        col = (op->column_b ? q : e) + high;
        break;
    case WEIR_X_ROLE_C:
    case WEIR_X_ROLE_D:
    default:
        row = (f->bits == 16 ? q : (lane & 1u) + (e & 2u)) + high;
        col = f->bits == 16 ? e : (e & 4u) + (lane & 2u) + (e & 1u);
        break;
    }
    *ret_row = row + lane / 4 % 4 * (f->rows / 4u);
    *ret_col = col;
}

static uint32_t place_of(const struct weir_x_matrix_op *op, const struct weir_x_fragment *f,
                         enum weir_x_role role, uint32_t lane, uint32_t reg, uint32_t j)
{
    uint32_t row = UINT32_MAX;
    uint32_t col = UINT32_MAX;
    if (op->kind == WEIR_X_MATRIX_WMMA) {
        uint32_t slot = ((lane * f->n_regs + reg) * f->pack + j) % ((uint32_t)f->rows * f->cols);
        return role == WEIR_X_ROLE_B ? slot % f->rows * f->cols + slot / f->rows : slot;
    }
    if (op->kind == WEIR_X_MATRIX_VOLTA) {
        volta_place(op, f, role, lane, reg, j, &row, &col);
    } else {
        mma_place(f, role, lane, reg, j, &row, &col);
    }
    return row < f->rows && col < f->cols ? row * f->cols + col : UINT32_MAX;
}

static bool find_places(struct weir_x_decoder *x, const struct weir_x_matrix_op *op,
                        enum weir_x_role role, struct weir_x_fragment *f)
{
    uint32_t per_lane = (uint32_t)f->n_regs * f->pack;
    uint16_t *places = weir_x_decode_alloc(x, (size_t)WEIR_X_LANES * per_lane * sizeof *places);
    WEIR_FAIL_IF(!places, false);
    for (uint32_t lane = 0; lane < WEIR_X_LANES; lane++) {
        for (uint32_t e = 0; e < per_lane; e++) {
            uint32_t place = place_of(op, f, role, lane, e / f->pack, e % f->pack);
            WEIR_FAIL_IF(place == UINT32_MAX, false);
            places[lane * per_lane + e] = (uint16_t)place;
        }
    }
    f->places = places;
    return true;
}

/* Registers to matrices */

/* Store VALUE, computed from each element's bits, at the element's place. */
#define GATHER(matrix, VALUE)                                                                      \
    do {                                                                                           \
        const uint16_t *place = f->places;                                                         \
        uint64_t mask = f->bits == 64 ? UINT64_MAX : (1ull << f->bits) - 1;                        \
        for (uint32_t lane = 0; lane < WEIR_X_LANES; lane++) {                                     \
            for (uint32_t reg = 0; reg < f->n_regs; reg++) {                                       \
                uint64_t rest = weir_x_register_bits(w, f, reg, lane);                             \
                for (uint32_t j = 0; j < f->pack; j++) {                                           \
                    uint64_t bits = rest & mask;                                                   \
                    (matrix)[*place++] = (VALUE);                                                  \
                    rest = f->bits == 64 ? 0 : rest >> f->bits;                                    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static void gather_float(const struct weir_x_warp *w, const struct weir_x_fragment *f,
                         double *matrix)
{
    switch (f->type) {
    case WEIR_PTX_TYPE_F16:
        GATHER(matrix, (double)weir_x_half_to_float((uint16_t)bits));
        break;
    case WEIR_PTX_TYPE_BF16:
        GATHER(matrix, (double)weir_x_bf16_to_float((uint16_t)bits));
        break;
    case WEIR_PTX_TYPE_TF32:
        GATHER(matrix, (double)weir_x_as_f32((uint32_t)(bits & 0xffffe000u)));
        break;
    case WEIR_PTX_TYPE_F32:
        GATHER(matrix, (double)weir_x_as_f32((uint32_t)(bits)));
        break;
    case WEIR_PTX_TYPE_E4M3:
        GATHER(matrix, weir_x_format_to_double(&weir_x_format_e4m3, bits));
        break;
    case WEIR_PTX_TYPE_E5M2:
        GATHER(matrix, weir_x_format_to_double(&weir_x_format_e5m2, bits));
        break;
    default:
        GATHER(matrix, weir_x_as_f64(bits));
        break;
    }
}

static void gather_int(const struct weir_x_warp *w, const struct weir_x_fragment *f,
                       int32_t *matrix)
{
    switch (f->type) {
    case WEIR_PTX_TYPE_S8:
        GATHER(matrix, (int8_t)bits);
        break;
    case WEIR_PTX_TYPE_S4:
        GATHER(matrix, (int32_t)((uint32_t)bits << 28) >> 28);
        break;
    default: /* u8, u4, b1, s32 */
        GATHER(matrix, (int32_t)(uint32_t)bits);
        break;
    }
}

static uint64_t encode_float(uint8_t type, double v)
{
    switch (type) {
    case WEIR_PTX_TYPE_F16:
        return weir_x_half_from_double(v);
    case WEIR_PTX_TYPE_F32:
        return v != v ? 0x7fffffffu : weir_x_bits_f32((float)v);
    default:
        return weir_x_bits_f64(v);
    }
}

#define SCATTER(VALUE)                                                                             \
    do {                                                                                           \
        const struct weir_x_fragment *f = &op->f[WEIR_X_ROLE_D];                                   \
        WEIR_X_EACH_ACTIVE(w, lane, {                                                              \
            const uint16_t *place = f->places + lane * f->n_regs * f->pack;                        \
            for (uint32_t reg = 0; reg < f->n_regs; reg++) {                                       \
                uint64_t value = 0;                                                                \
                for (uint32_t j = 0; j < f->pack; j++, place++) {                                  \
                    value |= (uint64_t)(VALUE) << (f->bits * j & 63u);                             \
                }                                                                                  \
                if (f->bits == 64) {                                                               \
                    weir_x_w64(w, f->refs[reg])[lane] = value;                                     \
                } else {                                                                           \
                    weir_x_w32(w, f->refs[reg])[lane] = (uint32_t)value;                           \
                }                                                                                  \
            }                                                                                      \
        });                                                                                        \
    } while (0)

/* Sparse matrices */

/* Collect four bits for each chunk of a row from the lanes that hold the row's metadata. */
static uint32_t chunk_selectors(const struct weir_x_warp *w, const struct weir_x_matrix_op *op,
                                uint32_t row, uint32_t chunk, uint32_t n_chunks)
{
    const weir_x_u32 *metadata = weir_x_w32(w, op->metadata);
    uint32_t quad = (row & 7u) * 4;
    bool narrow = op->f[WEIR_X_ROLE_A].bits < 16;
    if (n_chunks == 4) { /* one lane has rows g and g + 8 */
        return metadata[quad + op->selector] >> ((row & 8u) * 2 + chunk * 4) & 0xfu;
    }
    if (!narrow) { /* two lanes, each with half of the chunks of both rows */
        return metadata[quad + op->selector * 2u + chunk / 4] >> ((row & 8u) * 2 + chunk % 4 * 4) &
               0xfu;
    }
    if (n_chunks == 8) { /* two lanes: a row each */
        return metadata[quad + op->selector * 2u + row / 8] >> (chunk * 4) & 0xfu;
    }
    return metadata[quad + chunk / 8 * 2 + row / 8] >> (chunk % 8 * 4) & 0xfu;
}

/* Column of the whole A that element `col` of the compressed row stands for. */
static uint32_t sparse_column(const struct weir_x_warp *w, const struct weir_x_matrix_op *op,
                              uint32_t row, uint32_t col)
{
    uint32_t bits = op->f[WEIR_X_ROLE_A].bits;
    uint32_t width = bits == 32 ? 2 : bits == 4 ? 8 : 4; /* columns of a chunk */
    uint32_t chunk = col / (width / 2);
    uint32_t nth = col % (width / 2);
    uint32_t pick = chunk_selectors(w, op, row, chunk, op->k / width);
    switch (width) {
    case 2: /* 0100: the first, 1110: the second */
        return chunk * 2 + ((pick & 8u) != 0);
    case 4:
        return chunk * 4 + (pick >> (2 * nth) & 3u);
    default: /* pairs of 4-bit numbers stay together */
        return chunk * 8 + 2 * (pick >> (2 * (nth / 2)) & 3u) + nth % 2;
    }
}

#define SPREAD(name, T)                                                                            \
    static void name(const struct weir_x_warp *w, const struct weir_x_matrix_op *op, T *matrix)    \
    {                                                                                              \
        T half[WEIR_X_MAX_A / 2];                                                                  \
        uint32_t cols = op->f[WEIR_X_ROLE_A].cols;                                                 \
        memcpy(half, matrix, (size_t)op->m *cols * sizeof(T));                                     \
        memset(matrix, 0, (size_t)op->m * op->k * sizeof(T));                                      \
        for (uint32_t row = 0; row < op->m; row++) {                                               \
            for (uint32_t col = 0; col < cols; col++) {                                            \
                matrix[row * op->k + sparse_column(w, op, row, col)] = half[row * cols + col];     \
            }                                                                                      \
        }                                                                                          \
    }
SPREAD(spread_double, double)
SPREAD(spread_int, int32_t)

/* Products */

static void multiply_float(const struct weir_x_matrix_op *op, const double *a, const double *b,
                           double *c)
{
    uint32_t n = op->n;
    for (uint32_t row = 0; row < op->m; row++) {
        for (uint32_t k = 0; k < op->k; k++) {
            double x = a[row * op->k + k];
            for (uint32_t col = 0; col < n; col++) {
                c[row * n + col] += x * b[k * n + col];
            }
        }
    }
}

static void multiply_f64(const struct weir_x_matrix_op *op, const double *a, const double *b,
                         double *c)
{
    static const int modes[] = {[WEIR_X_RN] = FE_TONEAREST,
                                [WEIR_X_RZ] = FE_TOWARDZERO,
                                [WEIR_X_RM] = FE_DOWNWARD,
                                [WEIR_X_RP] = FE_UPWARD,
                                [WEIR_X_RNA] = FE_TONEAREST};
    fesetround(modes[op->round]);
    for (uint32_t at = 0; at < (uint32_t)op->m * op->n; at++) {
        volatile double sum = c[at];
        for (uint32_t k = 0; k < op->k; k++) {
            sum = fma(a[at / op->n * op->k + k], b[k * op->n + at % op->n], sum);
        }
        c[at] = sum;
    }
    fesetround(FE_TONEAREST);
}

static void multiply_int(const struct weir_x_matrix_op *op, const int32_t *a, const int32_t *b,
                         int32_t *c)
{
    bool bits = op->f[WEIR_X_ROLE_A].type == WEIR_PTX_TYPE_B1;
    for (uint32_t at = 0; at < (uint32_t)op->m * op->n; at++) {
        const int32_t *x = &a[at / op->n * op->k];
        const int32_t *y = &b[at % op->n];
        int64_t sum = 0;
        for (uint32_t k = 0; k < op->k; k++, y += op->n) {
            sum += bits && op->use_xor ? x[k] ^ *y : x[k] * *y;
        }
        sum += c[at];
        if (op->saturate) {
            sum = sum > INT32_MAX ? INT32_MAX : WEIR_MAX(sum, INT32_MIN);
        }
        c[at] = (int32_t)(uint32_t)(uint64_t)sum;
    }
}

static void compute_float(struct weir_x_warp *w, const struct weir_x_matrix_op *op)
{
    double a[WEIR_X_MAX_A], b[WEIR_X_MAX_B], c[WEIR_X_MAX_C];
    gather_float(w, &op->f[WEIR_X_ROLE_A], a);
    gather_float(w, &op->f[WEIR_X_ROLE_B], b);
    gather_float(w, &op->f[WEIR_X_ROLE_C], c);
    if (op->sparse) {
        spread_double(w, op, a);
    }
    if (op->kind == WEIR_X_MATRIX_VOLTA) {
        for (uint32_t q = 0; q < 4; q++) {
            multiply_float(op, a + q * op->m * op->k, b + q * op->k * op->n, c + q * op->m * op->n);
        }
    } else if (op->f[WEIR_X_ROLE_A].type == WEIR_PTX_TYPE_F64) {
        multiply_f64(op, a, b, c);
    } else {
        multiply_float(op, a, b, c);
    }
    SCATTER(encode_float(f->type, c[*place]));
}

static void compute_int(struct weir_x_warp *w, const struct weir_x_matrix_op *op)
{
    int32_t a[WEIR_X_MAX_A], b[WEIR_X_MAX_B], c[WEIR_X_MAX_C];
    gather_int(w, &op->f[WEIR_X_ROLE_A], a);
    gather_int(w, &op->f[WEIR_X_ROLE_B], b);
    gather_int(w, &op->f[WEIR_X_ROLE_C], c);
    if (op->sparse) {
        spread_int(w, op, a);
    }
    multiply_int(op, a, b, c);
    SCATTER((uint32_t)c[*place]);
}

/* ext: struct weir_x_matrix_op */
WEIR_X_HANDLER(matrix)
{
    const struct weir_x_matrix_op *op = i->ext;
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    if (is_integer(op->f[WEIR_X_ROLE_D].type)) {
        compute_int(w, op);
    } else {
        compute_float(w, op);
    }
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

/* Decoding */

static bool known_type(uint8_t type, enum weir_x_role role)
{
    switch (type) {
    case WEIR_PTX_TYPE_S8:
    case WEIR_PTX_TYPE_U8:
    case WEIR_PTX_TYPE_S4:
    case WEIR_PTX_TYPE_U4:
    case WEIR_PTX_TYPE_B1:
    case WEIR_PTX_TYPE_E4M3:
    case WEIR_PTX_TYPE_E5M2:
    case WEIR_PTX_TYPE_BF16:
    case WEIR_PTX_TYPE_TF32:
        return role == WEIR_X_ROLE_A || role == WEIR_X_ROLE_B;
    case WEIR_PTX_TYPE_S32:
    case WEIR_PTX_TYPE_F32:
        return role == WEIR_X_ROLE_C || role == WEIR_X_ROLE_D;
    case WEIR_PTX_TYPE_F16:
    case WEIR_PTX_TYPE_F64:
        return true;
    default:
        return false;
    }
}

static void fragment_size(const struct weir_x_matrix_op *op, enum weir_x_role role,
                          struct weir_x_fragment *f)
{
    uint32_t copies = op->kind == WEIR_X_MATRIX_VOLTA ? 4 : 1;
    f->rows = (uint16_t)((role == WEIR_X_ROLE_B ? op->k : op->m) * copies);
    f->cols = role == WEIR_X_ROLE_A ? op->k : op->n;
    if (role == WEIR_X_ROLE_A && op->sparse) {
        f->cols /= 2;
    }
}

bool weir_x_take_fragment(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint8_t type,
                          enum weir_x_role role, bool dest, const struct weir_x_matrix_op *op,
                          struct weir_x_fragment *ret_fragment)
{
    static const uint32_t limits[] = {WEIR_X_MAX_A, WEIR_X_MAX_B, WEIR_X_MAX_C, WEIR_X_MAX_C};
    const struct weir_ptx_operand *list = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->elems : o;
    uint32_t n = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->n_elems : 1;
    if (n == 0 || n > 32 || !known_type(type, role) || op->m == 0 || op->n == 0 || op->k == 0 ||
        op->m > WEIR_X_MAX_ROWS || op->n > WEIR_X_MAX_ROWS || op->k > 256) {
        return false;
    }
    struct weir_x_fragment f = {.type = type,
                                .bits = (uint8_t)weir_ptx_type_bits(type),
                                .n_regs = (uint8_t)n,
                                .refs = NULL};
    f.pack = (uint8_t)(f.bits < 32 ? 32 / f.bits : 1);
    fragment_size(op, role, &f);
    /* A fragment must hold its whole matrix; wmma's may hold elements twice. */
    uint32_t held = n * f.pack * WEIR_X_LANES;
    uint32_t wanted = (uint32_t)f.rows * f.cols;
    if (wanted > limits[role] ||
        (op->kind == WEIR_X_MATRIX_WMMA ? held < wanted : held != wanted)) {
        return false;
    }
    weir_x_ref *refs = weir_x_decode_alloc(x, n * sizeof *refs);
    WEIR_FAIL_IF(!refs, false);
    for (uint32_t k = 0; k < n; k++) {
        refs[k] = dest ? weir_x_dest(x, &list[k])
                       : weir_x_source(x, &list[k], f.bits == 64 ? 64 : 32, type);
        WEIR_FAIL_IF(refs[k] == WEIR_X_NO_REF, false);
    }
    f.refs = refs;
    WEIR_FAIL_IF(!find_places(x, op, role, &f), false);
    *ret_fragment = f;
    return true;
}

struct weir_x_inst *weir_x_emit_matrix(struct weir_x_decoder *x, weir_x_fn fn,
                                       const struct weir_x_matrix_op *op)
{
    weir_x_ref everyone = weir_x_const(x, UINT32_MAX, false);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = fn;
    i->e = everyone;
    i->ext = op;
    return i;
}

/* Decode metadata and selector, the last two operands. */
static bool decode_sparse(struct weir_x_decoder *x, struct weir_x_matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (ir->n_operands != 6 || ir->operands[5].kind != WEIR_PTX_OPERAND_INT ||
        ir->operands[5].bits > 3) {
        return false;
    }
    uint32_t bits = weir_ptx_type_bits(ir->types[1]);
    uint32_t chunks = op->k / (bits == 32 ? 2u : bits == 4 ? 8u : 4u);
    op->selector = (uint8_t)ir->operands[5].bits;
    op->metadata = weir_x_source(x, &ir->operands[4], 32, WEIR_PTX_TYPE_B32);
    return op->m == 16 && (chunks == 4 || (chunks == 8 && op->selector < 2) ||
                           (chunks == 16 && bits < 16 && op->selector == 0));
}

/* Read the layouts of A and B, which have this order among the suffixes. */
static void take_layouts(const struct weir_ptx_inst *ir, struct weir_x_matrix_op *op)
{
    bool seen = false;
    for (uint32_t m = 0; m < ir->n_mods; m++) {
        if (ir->mods[m] == WEIR_PTX_MOD_ROW || ir->mods[m] == WEIR_PTX_MOD_COL) {
            *(seen ? &op->column_b : &op->column_a) = ir->mods[m] == WEIR_PTX_MOD_COL;
            seen = true;
        }
    }
}

static uint8_t f64_rounding(const struct weir_ptx_inst *ir)
{
    return ir->round == WEIR_PTX_MOD_RZ   ? WEIR_X_RZ
           : ir->round == WEIR_PTX_MOD_RM ? WEIR_X_RM
           : ir->round == WEIR_PTX_MOD_RP ? WEIR_X_RP
                                          : WEIR_X_RN;
}

static bool decode_mma(struct weir_x_decoder *x, struct weir_x_matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool wmma = op->kind == WEIR_X_MATRIX_WMMA;
    bool old_form = wmma && ir->n_types == 2; /* .dtype.ctype with f16 factors */
    uint8_t types[4] = {old_form ? WEIR_PTX_TYPE_F16 : ir->types[1],
                        old_form ? WEIR_PTX_TYPE_F16 : ir->types[2],
                        old_form ? ir->types[1] : ir->types[3], ir->types[0]};
    static const uint8_t operand[4] = {1, 2, 3, 0};
    op->sparse = weir_ptx_inst_has(ir, WEIR_PTX_MOD_SP) ||
                 weir_ptx_inst_has(ir, WEIR_PTX_MOD_SP_ORDERED_METADATA);
    if ((!old_form && ir->n_types != 4) || (!wmma && op->n != 8) ||
        (op->sparse ? wmma || !decode_sparse(x, op) : ir->n_operands != 4) ||
        is_integer(types[0]) != is_integer(types[3]) ||
        is_integer(types[0]) != is_integer(types[1]) ||
        is_integer(types[2]) != is_integer(types[3]) ||
        (types[0] == WEIR_PTX_TYPE_F64) != (types[3] == WEIR_PTX_TYPE_F64)) {
        return false;
    }
    take_layouts(ir, op);
    if (!wmma && op->m == 8 && op->k == 4 && types[0] == WEIR_PTX_TYPE_F16) {
        op->kind = WEIR_X_MATRIX_VOLTA;
    }
    op->saturate = (ir->flags & WEIR_PTX_FLAG_SATFINITE) != 0;
    op->use_xor = ir->action == WEIR_PTX_MOD_XOR;
    op->round = f64_rounding(ir);
    for (uint32_t role = 0; role < 4; role++) {
        if (!weir_x_take_fragment(x, &ir->operands[operand[role]], types[role],
                                  (enum weir_x_role)role, role == WEIR_X_ROLE_D, op,
                                  &op->f[role])) {
            return false;
        }
    }
    weir_x_emit_matrix(x, weir_x_exec_matrix, op);
    return true;
}

bool weir_x_decode_matrix(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct weir_x_matrix_op *op = weir_x_decode_alloc(x, sizeof *op);
    WEIR_FAIL_IF(!op, false);
    op->m = ir->shape.m;
    op->n = ir->shape.n;
    op->k = ir->shape.k;
    op->kind = ir->op == WEIR_PTX_OP_WMMA ? WEIR_X_MATRIX_WMMA : WEIR_X_MATRIX_MMA;
    switch (ir->op) {
    case WEIR_PTX_OP_MMA:
        return decode_mma(x, op);
    case WEIR_PTX_OP_WMMA:
        return weir_ptx_inst_has(ir, WEIR_PTX_MOD_MMA) ? decode_mma(x, op)
                                                       : weir_x_decode_wmma_memory(x, op);
    case WEIR_PTX_OP_LDMATRIX:
    case WEIR_PTX_OP_STMATRIX:
        return weir_x_decode_ldmatrix(x, op);
    case WEIR_PTX_OP_MOVMATRIX:
        return weir_x_decode_movmatrix(x, op);
    default:
        return false;
    }
}
