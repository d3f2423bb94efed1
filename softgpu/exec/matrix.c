/*
 * wmma, mma.sync, ldmatrix and stmatrix.
 *
 * mma's fragments are PTX's own: with p elements in a register and lane = 4 g + t, register r of A
 * holds row g + 8 (r & 1), columns t p + 4 p (r / 2) ..; of B rows t p + 4 p r .., column g; of C
 * and D row g + 8 (r / 2), column 2 t + (r & 1), or two columns in a register for f16. That one
 * rule covers every shape mMn8kK but Volta's m8n8k4 of f16.
 *
 * wmma's fragments are the implementation's affair. Here element n (row-major) of a matrix is slot
 * n of all slots counted through lanes, and what slots there are in excess repeat from the start.
 *
 * Products and sums are made in double and rounded once per result; integers wrap or saturate.
 * A GPU adds in an order and width of its own, so last bits differ from it, as they do between
 * GPUs.
 */
#include "softgpu/exec/decode.h"
#include "softgpu/exec/half.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DIM 32u

enum role { ROLE_A, ROLE_B, ROLE_C, ROLE_D };

struct fragment {
    uint8_t type;   /* of an element */
    uint8_t n_regs; /* per lane */
    uint8_t pack;   /* elements in one */
    uint8_t rows, cols;
    const weir_x_ref *refs;
};

struct matrix_op {
    bool wmma;
    bool saturate;
    bool column; /* wmma load and store: layout in memory */
    bool store;  /* stmatrix, wmma.store */
    bool trans;  /* ldmatrix, stmatrix */
    uint8_t m, n, k;
    struct fragment f[4]; /* A B C D; loads and stores use [0] */
    weir_x_ref stride;
};

union number {
    double d;
    int64_t i;
};

static bool is_integer(uint8_t type)
{
    char class = weir_ptx_type_class(type);
    return class == 'S' || class == 'U';
}

static uint32_t element_bytes(uint8_t type)
{
    return weir_ptx_type_bytes(type);
}

static union number decode_element(uint8_t type, uint64_t bits)
{
    union number v = {.i = 0};
    uint32_t low = (uint32_t)bits;
    float f;
    switch (type) {
    case WEIR_PTX_TYPE_S8:
        v.i = (int8_t)bits;
        break;
    case WEIR_PTX_TYPE_U8:
        v.i = (uint8_t)bits;
        break;
    case WEIR_PTX_TYPE_S32:
        v.i = (int32_t)bits;
        break;
    case WEIR_PTX_TYPE_F16:
        v.d = (double)weir_x_half_to_float((uint16_t)bits);
        break;
    case WEIR_PTX_TYPE_BF16:
        v.d = (double)weir_x_bf16_to_float((uint16_t)bits);
        break;
    case WEIR_PTX_TYPE_TF32:
        low &= 0xffffe000u;
        memcpy(&f, &low, 4);
        v.d = (double)f;
        break;
    case WEIR_PTX_TYPE_F32:
        memcpy(&f, &low, 4);
        v.d = (double)f;
        break;
    default:
        memcpy(&v.d, &bits, 8);
        break;
    }
    return v;
}

static uint64_t encode_element(uint8_t type, union number v)
{
    uint64_t bits;
    switch (type) {
    case WEIR_PTX_TYPE_S32:
        return (uint32_t)v.i;
    case WEIR_PTX_TYPE_F16:
        return weir_x_half_from_double(v.d);
    case WEIR_PTX_TYPE_F32:
        return weir_x_format_from_double(&weir_x_format_f32, v.d, WEIR_X_RN, 0);
    default:
        memcpy(&bits, &v.d, 8);
        return bits;
    }
}

/* Element e (in a register or over all of them) of a lane: where it is in the matrix. */
static void mma_place(const struct fragment *f, enum role role, uint32_t lane, uint32_t reg,
                      uint32_t j, uint32_t *ret_row, uint32_t *ret_col)
{
    uint32_t g = lane / 4;
    uint32_t t = lane % 4;
    switch (role) {
    case ROLE_A:
        *ret_row = f->rows == 8 ? g : g + 8 * (reg & 1u);
        *ret_col = t * f->pack + j + 4 * f->pack * (f->rows == 8 ? reg : reg / 2);
        break;
    case ROLE_B:
        *ret_row = t * f->pack + j + 4 * f->pack * reg;
        *ret_col = g;
        break;
    case ROLE_C:
    case ROLE_D:
        *ret_row = g + 8 * (f->pack == 2 ? reg : reg / 2);
        *ret_col = 2 * t + (f->pack == 2 ? j : reg & 1u);
        break;
    }
}

static void place_of(const struct matrix_op *op, enum role role, uint32_t lane, uint32_t reg,
                     uint32_t j, uint32_t *ret_row, uint32_t *ret_col)
{
    const struct fragment *f = &op->f[role];
    if (!op->wmma) {
        mma_place(f, role, lane, reg, j, ret_row, ret_col);
        return;
    }
    uint32_t slot = (lane * f->n_regs + reg) * f->pack + j;
    slot %= (uint32_t)f->rows * f->cols;
    *ret_row = slot / f->cols;
    *ret_col = slot % f->cols;
}

static uint64_t register_bits(const struct weir_x_warp *w, const struct fragment *f, uint32_t reg,
                              uint32_t lane)
{
    return element_bytes(f->type) == 8 ? weir_x_w64(w, f->refs[reg])[lane]
                                       : weir_x_w32(w, f->refs[reg])[lane];
}

static void gather_matrix(const struct weir_x_warp *w, const struct matrix_op *op, enum role role,
                          union number *matrix)
{
    const struct fragment *f = &op->f[role];
    uint32_t bits = element_bytes(f->type) * 8;
    for (uint32_t lane = 0; lane < WEIR_X_LANES; lane++) {
        for (uint32_t reg = 0; reg < f->n_regs; reg++) {
            uint64_t value = register_bits(w, f, reg, lane);
            for (uint32_t j = 0; j < f->pack; j++) {
                uint32_t row, col;
                place_of(op, role, lane, reg, j, &row, &col);
                if (row < f->rows && col < f->cols) {
                    matrix[row * MAX_DIM + col] =
                        decode_element(f->type, bits == 64 ? value : value >> (j * bits));
                }
            }
        }
    }
}

static void scatter_matrix(struct weir_x_warp *w, const struct matrix_op *op,
                           const union number *matrix)
{
    const struct fragment *f = &op->f[ROLE_D];
    uint32_t bits = element_bytes(f->type) * 8;
    WEIR_X_EACH_ACTIVE(w, lane, {
        for (uint32_t reg = 0; reg < f->n_regs; reg++) {
            uint64_t value = 0;
            for (uint32_t j = 0; j < f->pack; j++) {
                uint32_t row, col;
                place_of(op, ROLE_D, lane, reg, j, &row, &col);
                if (row < f->rows && col < f->cols) {
                    value |= encode_element(f->type, matrix[row * MAX_DIM + col])
                             << (j * bits % 64);
                }
            }
            if (bits == 64) {
                weir_x_w64(w, f->refs[reg])[lane] = value;
            } else {
                weir_x_w32(w, f->refs[reg])[lane] = (uint32_t)value;
            }
        }
    });
}

static void multiply(const struct matrix_op *op, const union number *a, const union number *b,
                     union number *c)
{
    bool integer = is_integer(op->f[ROLE_D].type);
    for (uint32_t row = 0; row < op->m; row++) {
        for (uint32_t col = 0; col < op->n; col++) {
            union number *sum = &c[row * MAX_DIM + col];
            for (uint32_t k = 0; k < op->k; k++) {
                const union number *x = &a[row * MAX_DIM + k];
                const union number *y = &b[k * MAX_DIM + col];
                if (integer) {
                    sum->i = (int64_t)((uint64_t)sum->i + (uint64_t)x->i * (uint64_t)y->i);
                } else {
                    sum->d += x->d * y->d;
                }
            }
            if (integer && op->saturate) {
                sum->i = sum->i > INT32_MAX ? INT32_MAX : sum->i < INT32_MIN ? INT32_MIN : sum->i;
            }
        }
    }
}

/* ext: struct matrix_op */
WEIR_X_HANDLER(matrix)
{
    const struct matrix_op *op = i->ext;
    union number a[MAX_DIM * MAX_DIM];
    union number b[MAX_DIM * MAX_DIM];
    union number c[MAX_DIM * MAX_DIM];
    if (!weir_x_take_part(w, i)) {
        return NULL;
    }
    gather_matrix(w, op, ROLE_A, a);
    gather_matrix(w, op, ROLE_B, b);
    gather_matrix(w, op, ROLE_C, c);
    multiply(op, a, b, c);
    scatter_matrix(w, op, c);
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

static uint64_t address_of(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane)
{
    return (i->flags & WEIR_X_F_ADDR64) != 0
               ? weir_x_w64(w, i->a)[lane] + i->imm2
               : (uint32_t)(weir_x_w32(w, i->a)[lane] + (uint32_t)i->imm2);
}

/* One access of a lane for its whole warp: addresses need not be the lane's own. */
static char *reach(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                   uint64_t address, uint32_t bytes, uint32_t access)
{
    uint64_t addr[WEIR_X_LANES] = {0};
    uint32_t all = w->mask;
    addr[lane] = address;
    w->mask = 1u << lane;
    bool ok = weir_x_translate(w, i, i->space, addr, bytes, bytes, access);
    w->mask = all;
    return ok ? (char *)(uintptr_t)addr[lane] : NULL;
}

static void put_element(struct weir_x_warp *w, const struct fragment *f, uint32_t reg, uint32_t j,
                        uint32_t lane, uint64_t value)
{
    uint32_t bits = element_bytes(f->type) * 8;
    if (bits == 64) {
        weir_x_w64(w, f->refs[reg])[lane] = value;
        return;
    }
    weir_x_u32 *cell = &weir_x_w32(w, f->refs[reg])[lane];
    uint32_t mask = bits == 32 ? UINT32_MAX : ((1u << bits) - 1) << (j * bits);
    *cell = (*cell & ~mask) | ((uint32_t)value << (bits == 32 ? 0 : j * bits) & mask);
}

/* One element of a wmma fragment to or from memory. */
static bool move_element(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                         uint32_t reg, uint32_t j)
{
    const struct matrix_op *op = i->ext;
    const struct fragment *f = &op->f[0];
    uint32_t bytes = element_bytes(f->type);
    uint32_t row, col;
    place_of(op, ROLE_A, lane, reg, j, &row, &col);
    uint64_t stride = op->stride != WEIR_X_NO_REF ? weir_x_w32(w, op->stride)[lane]
                      : op->column                ? f->rows
                                                  : f->cols;
    uint64_t at = op->column ? col * stride + row : row * stride + col;
    char *p = reach(w, i, lane, address_of(w, i, lane) + at * bytes, bytes,
                    op->store ? WEIR_SOFT_WRITE : WEIR_SOFT_READ);
    uint64_t value = 0;
    if (p == NULL) {
        return false;
    }
    if (op->store) {
        value = register_bits(w, f, reg, lane) >> (bytes == 8 ? 0 : j * bytes * 8);
        memcpy(p, &value, bytes);
    } else {
        memcpy(&value, p, bytes);
        put_element(w, f, reg, j, lane, value);
    }
    return true;
}

WEIR_X_HANDLER(wmma_memory)
{
    const struct matrix_op *op = i->ext;
    if (!weir_x_take_part(w, i)) {
        return NULL;
    }
    WEIR_X_EACH_ACTIVE(w, lane, {
        for (uint32_t reg = 0; reg < op->f[0].n_regs; reg++) {
            for (uint32_t j = 0; j < op->f[0].pack; j++) {
                if (!move_element(w, i, lane, reg, j)) {
                    return NULL;
                }
            }
        }
    });
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

/* Lanes 8 m .. 8 m + 7 give the rows of matrix m; each lane holds two elements of each matrix. */
WEIR_X_HANDLER(ldmatrix)
{
    const struct matrix_op *op = i->ext;
    if (!weir_x_take_part(w, i)) {
        return NULL;
    }
    for (uint32_t m = 0; m < op->f[0].n_regs; m++) {
        uint16_t rows[8][8];
        char *places[8];
        for (uint32_t r = 0; r < 8; r++) {
            uint32_t lane = m * 8 + r;
            places[r] = reach(w, i, lane, address_of(w, i, lane), 16,
                              op->store ? WEIR_SOFT_WRITE : WEIR_SOFT_READ);
            if (places[r] == NULL) {
                return NULL;
            }
            memcpy(rows[r], places[r], 16);
        }
        WEIR_X_EACH_ACTIVE(w, l, {
            weir_x_u32 *cell = &weir_x_w32(w, op->f[0].refs[m])[l];
            uint32_t value = 0;
            for (uint32_t j = 0; j < 2; j++) {
                uint32_t row = op->trans ? 2 * (l % 4) + j : l / 4;
                uint32_t col = op->trans ? l / 4 : 2 * (l % 4) + j;
                rows[row][col] = op->store ? (uint16_t)(*cell >> (16 * j)) : rows[row][col];
                value |= (uint32_t)rows[row][col] << (16 * j);
            }
            *cell = value;
        });
        for (uint32_t r = 0; r < 8 && op->store; r++) {
            memcpy(places[r], rows[r], 16);
        }
    }
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

static bool known_type(uint8_t type)
{
    switch (type) {
    case WEIR_PTX_TYPE_S8:
    case WEIR_PTX_TYPE_U8:
    case WEIR_PTX_TYPE_S32:
    case WEIR_PTX_TYPE_F16:
    case WEIR_PTX_TYPE_BF16:
    case WEIR_PTX_TYPE_TF32:
    case WEIR_PTX_TYPE_F32:
    case WEIR_PTX_TYPE_F64:
        return true;
    default:
        return false;
    }
}

static bool take_fragment(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint8_t type,
                          bool dest, uint32_t rows, uint32_t cols, struct fragment *f)
{
    const struct weir_ptx_operand *list = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->elems : o;
    uint32_t n = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->n_elems : 1;
    weir_x_ref *refs = weir_x_decode_alloc(x, n * sizeof *refs);
    if (refs == NULL || n > 32 || !known_type(type) || rows == 0 || rows > MAX_DIM || cols == 0 ||
        cols > MAX_DIM) {
        return false;
    }
    for (uint32_t k = 0; k < n; k++) {
        refs[k] = dest ? weir_x_dest(x, &list[k])
                       : weir_x_source(x, &list[k], element_bytes(type) * 8, type);
        if (refs[k] == WEIR_X_NO_REF) {
            return false;
        }
    }
    uint32_t bytes = element_bytes(type);
    *f = (struct fragment){.type = type,
                           .n_regs = (uint8_t)n,
                           .pack = (uint8_t)(bytes < 4 ? 4 / bytes : 1),
                           .rows = (uint8_t)rows,
                           .cols = (uint8_t)cols,
                           .refs = refs};
    return true;
}

/* A fragment holds its whole matrix; wmma's may hold elements twice. */
static bool holds_all(const struct matrix_op *op, const struct fragment *f)
{
    uint32_t elements = (uint32_t)f->n_regs * f->pack * WEIR_X_LANES;
    uint32_t wanted = (uint32_t)f->rows * f->cols;
    return op->wmma ? elements >= wanted : elements == wanted;
}

static struct weir_x_inst *emit_matrix(struct weir_x_decoder *x, weir_x_fn fn,
                                       const struct matrix_op *op)
{
    weir_x_ref everyone = weir_x_const(x, UINT32_MAX, false);
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = fn;
    i->e = everyone;
    i->ext = op;
    return i;
}

static bool decode_mma(struct weir_x_decoder *x, struct matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool old_form = op->wmma && ir->n_types == 2; /* .dtype.ctype with f16 factors */
    uint8_t type_a = old_form ? WEIR_PTX_TYPE_F16 : ir->types[1];
    uint8_t type_b = old_form ? WEIR_PTX_TYPE_F16 : ir->types[2];
    uint8_t type_c = old_form ? ir->types[1] : ir->types[3];
    if ((!old_form && ir->n_types != 4) || ir->n_operands != 4 || op->k > MAX_DIM ||
        weir_ptx_inst_has(ir, WEIR_PTX_MOD_SP) ||
        (!op->wmma && (op->n != 8 || (op->m == 8 && op->k == 4 && type_a == WEIR_PTX_TYPE_F16)))) {
        return false;
    }
    op->saturate = (ir->flags & WEIR_PTX_FLAG_SATFINITE) != 0;
    if (!take_fragment(x, &ir->operands[1], type_a, false, op->m, op->k, &op->f[ROLE_A]) ||
        !take_fragment(x, &ir->operands[2], type_b, false, op->k, op->n, &op->f[ROLE_B]) ||
        !take_fragment(x, &ir->operands[3], type_c, false, op->m, op->n, &op->f[ROLE_C]) ||
        !take_fragment(x, &ir->operands[0], ir->types[0], true, op->m, op->n, &op->f[ROLE_D])) {
        return false;
    }
    for (uint32_t role = 0; role < 4; role++) {
        if (!holds_all(op, &op->f[role])) {
            return false;
        }
    }
    emit_matrix(x, weir_x_exec_matrix, op);
    return true;
}

/* load.a load.b load.c store.d: which matrix it is says its size */
static bool decode_wmma_memory(struct weir_x_decoder *x, struct matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    bool is_a = weir_ptx_inst_has(ir, WEIR_PTX_MOD_A);
    bool is_b = weir_ptx_inst_has(ir, WEIR_PTX_MOD_B);
    uint32_t rows = is_b ? op->k : op->m;
    uint32_t cols = is_a ? op->k : op->n;
    op->store = weir_ptx_inst_has(ir, WEIR_PTX_MOD_STORE);
    op->column = weir_ptx_inst_has(ir, WEIR_PTX_MOD_COL);
    op->stride = WEIR_X_NO_REF;
    struct weir_x_inst where = {0};
    if (!take_fragment(x, &ir->operands[op->store ? 1 : 0], ir->types[0], !op->store, rows, cols,
                       &op->f[0]) ||
        !holds_all(op, &op->f[0]) ||
        !weir_x_memory(x, &where, &ir->operands[op->store ? 0 : 1], ir->space, false)) {
        return false;
    }
    if (ir->n_operands > 2) {
        op->stride = weir_x_source(x, &ir->operands[2], 32, WEIR_PTX_TYPE_U32);
    }
    struct weir_x_inst *i = emit_matrix(x, weir_x_exec_wmma_memory, op);
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    return true;
}

static bool decode_ldmatrix(struct weir_x_decoder *x, struct matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    op->store = ir->op == WEIR_PTX_OP_STMATRIX;
    op->trans = (ir->flags & WEIR_PTX_FLAG_TRANS) != 0;
    struct weir_x_inst where = {0};
    const struct weir_ptx_operand *data = &ir->operands[op->store ? 1 : 0];
    if (ir->types[0] != WEIR_PTX_TYPE_B16 || ir->shape.m != 8 || ir->shape.n != 8 ||
        !take_fragment(x, data, WEIR_PTX_TYPE_F16, !op->store, 8, 8, &op->f[0]) ||
        op->f[0].n_regs > 4 ||
        !weir_x_memory(x, &where, &ir->operands[op->store ? 0 : 1], WEIR_PTX_SPACE_SHARED, false)) {
        return false;
    }
    struct weir_x_inst *i = emit_matrix(x, weir_x_exec_ldmatrix, op);
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    return true;
}

bool weir_x_decode_matrix(struct weir_x_decoder *x)
{
    const struct weir_ptx_inst *ir = x->ir;
    struct matrix_op *op = weir_x_decode_alloc(x, sizeof *op);
    if (op == NULL || ir->shape.m > MAX_DIM || ir->shape.n > MAX_DIM || ir->shape.k > MAX_DIM) {
        return false;
    }
    op->m = (uint8_t)ir->shape.m;
    op->n = (uint8_t)ir->shape.n;
    op->k = (uint8_t)ir->shape.k;
    op->wmma = ir->op == WEIR_PTX_OP_WMMA;
    switch (ir->op) {
    case WEIR_PTX_OP_MMA:
        return decode_mma(x, op);
    case WEIR_PTX_OP_WMMA:
        return weir_ptx_inst_has(ir, WEIR_PTX_MOD_MMA) ? decode_mma(x, op)
                                                       : decode_wmma_memory(x, op);
    case WEIR_PTX_OP_LDMATRIX:
    case WEIR_PTX_OP_STMATRIX:
        return decode_ldmatrix(x, op);
    default:
        return false;
    }
}
