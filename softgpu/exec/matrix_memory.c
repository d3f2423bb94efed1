/* ldmatrix, stmatrix, movmatrix, wmma.load and wmma.store: fragments between registers and
 * memory. */
#include "softgpu/exec/matrix.h"

#include <string.h>

static uint64_t address_of(const struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane)
{
    return (i->flags & WEIR_X_F_ADDR64) != 0
               ? weir_x_w64(w, i->a)[lane] + i->imm2
               : (uint32_t)(weir_x_w32(w, i->a)[lane] + (uint32_t)i->imm2);
}

static const struct weir_x_inst *done(struct weir_x_warp *w, const struct weir_x_inst *i)
{
    return w->n_groups == 1 ? i + 1 : weir_x_leave(w, i + 1, WEIR_X_EVENT_SWITCH);
}

/* Move element j of register reg of a wmma fragment to or from memory, for all lanes. Elements
 * narrower than a byte move together with the others of their byte. */
static bool move_elements(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t reg,
                          uint32_t j)
{
    const struct weir_x_matrix_op *op = i->ext;
    const struct weir_x_fragment *f = &op->f[0];
    uint32_t bits = WEIR_MAX(f->bits, 8);
    uint64_t addr[WEIR_X_LANES] = {0};
    WEIR_X_EACH_ACTIVE(w, lane, {
        uint32_t place = f->places[(lane * f->n_regs + reg) * f->pack + j];
        uint64_t row = place / f->cols;
        uint64_t col = place % f->cols;
        uint64_t stride = op->stride != WEIR_X_NO_REF ? weir_x_w32(w, op->stride)[lane]
                          : op->column                ? f->rows
                                                      : f->cols;
        uint64_t at = op->column ? col * stride + row : row * stride + col;
        addr[lane] = address_of(w, i, lane) + at * f->bits / 8;
    });
    if (!weir_x_translate(w, i, i->space, addr, bits / 8, bits / 8,
                          op->store ? WEIR_SOFT_WRITE : WEIR_SOFT_READ)) {
        return false;
    }
    uint32_t shift = bits == 64 ? 0 : j * f->bits;
    uint64_t mask = bits == 64 ? UINT64_MAX : ((1ull << bits) - 1) << shift;
    WEIR_X_EACH_ACTIVE(w, lane, {
        void *p = (void *)(uintptr_t)addr[lane];
        uint64_t value = weir_x_register_bits(w, f, reg, lane);
        if (op->store) {
            value >>= shift;
            memcpy(p, &value, bits / 8);
            continue;
        }
        uint64_t loaded = 0;
        memcpy(&loaded, p, bits / 8);
        value = (value & ~mask) | loaded << shift;
        if (bits == 64) {
            weir_x_w64(w, f->refs[reg])[lane] = value;
        } else {
            weir_x_w32(w, f->refs[reg])[lane] = (uint32_t)value;
        }
    });
    return true;
}

WEIR_X_HANDLER(wmma_memory)
{
    const struct weir_x_matrix_op *op = i->ext;
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    /* Elements in one register lie side by side in memory only if the layout is by rows. */
    uint32_t step = op->f[0].bits < 8 ? 8u / op->f[0].bits : 1;
    for (uint32_t reg = 0; reg < op->f[0].n_regs; reg++) {
        for (uint32_t j = 0; j < op->f[0].pack; j += step) {
            WEIR_FAIL_IF(!move_elements(w, i, reg, j), NULL);
        }
    }
    return done(w, i);
}

/* Find a row of eight halves for the whole warp; its address may come from another lane. */
static char *reach(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t lane,
                   uint64_t address, uint32_t access)
{
    uint64_t addr[WEIR_X_LANES] = {0};
    uint32_t all = w->mask;
    addr[lane] = address;
    w->mask = 1u << lane;
    bool ok = weir_x_translate(w, i, i->space, addr, 16, 16, access);
    w->mask = all;
    return ok ? (char *)(uintptr_t)addr[lane] : NULL;
}

static bool move_matrix(struct weir_x_warp *w, const struct weir_x_inst *i, uint32_t m,
                        const uint64_t addresses[WEIR_X_LANES])
{
    const struct weir_x_matrix_op *op = i->ext;
    uint16_t rows[8][8];
    char *places[8];
    for (uint32_t r = 0; r < 8; r++) {
        places[r] = reach(w, i, m * 8 + r, addresses[m * 8 + r],
                          op->store ? WEIR_SOFT_WRITE : WEIR_SOFT_READ);
        WEIR_FAIL_IF(!places[r], false);
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
        if (!op->store) {
            *cell = value;
        }
    });
    for (uint32_t r = 0; r < 8 && op->store; r++) {
        memcpy(places[r], rows[r], 16);
    }
    return true;
}

/* Lanes 8 m .. 8 m + 7 give the addresses of matrix m's rows; each lane receives two elements of
 * each matrix. All addresses are read first, because a destination may be the address register. */
WEIR_X_HANDLER(ldmatrix)
{
    const struct weir_x_matrix_op *op = i->ext;
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    uint64_t addresses[WEIR_X_LANES];
    for (uint32_t lane = 0; lane < WEIR_X_LANES; lane++) {
        addresses[lane] = address_of(w, i, lane);
    }
    for (uint32_t m = 0; m < op->f[0].n_regs; m++) {
        WEIR_FAIL_IF(!move_matrix(w, i, m, addresses), NULL);
    }
    return done(w, i);
}

/* Transpose a matrix of halves, of which each lane holds two. */
WEIR_X_HANDLER(movmatrix)
{
    const struct weir_x_matrix_op *op = i->ext;
    WEIR_FAIL_IF(!weir_x_take_part(w, i), NULL);
    uint32_t from[WEIR_X_LANES];
    memcpy(from, weir_x_w32(w, op->f[0].refs[0]), sizeof from);
    weir_x_u32 *d = weir_x_w32(w, i->d);
    WEIR_X_EACH_ACTIVE(w, l, {
        uint32_t value = 0;
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t row = 2 * (l % 4) + j;
            uint32_t col = l / 4;
            value |= (from[row * 4 + col / 2] >> (16 * (col % 2)) & 0xffffu) << (16 * j);
        }
        d[l] = value;
    });
    return done(w, i);
}

/* load.a load.b load.c store.d: the matrix (A, B, C or D) determines the size */
bool weir_x_decode_wmma_memory(struct weir_x_decoder *x, struct weir_x_matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    enum weir_x_role role = weir_ptx_inst_has(ir, WEIR_PTX_MOD_A)   ? WEIR_X_ROLE_A
                            : weir_ptx_inst_has(ir, WEIR_PTX_MOD_B) ? WEIR_X_ROLE_B
                                                                    : WEIR_X_ROLE_C;
    op->store = weir_ptx_inst_has(ir, WEIR_PTX_MOD_STORE);
    op->column = weir_ptx_inst_has(ir, WEIR_PTX_MOD_COL);
    op->stride = WEIR_X_NO_REF;
    struct weir_x_inst where = {0};
    if (!weir_x_take_fragment(x, &ir->operands[op->store ? 1 : 0], ir->types[0], role, !op->store,
                              op, &op->f[0]) ||
        !weir_x_memory(x, &where, &ir->operands[op->store ? 0 : 1], ir->space, false)) {
        return false;
    }
    /* Elements in one byte must also be neighbours in memory. */
    WEIR_FAIL_IF(op->f[0].bits < 8 && op->column != (role == WEIR_X_ROLE_B), false);
    if (ir->n_operands > 2) {
        op->stride = weir_x_source(x, &ir->operands[2], 32, WEIR_PTX_TYPE_U32);
    }
    struct weir_x_inst *i = weir_x_emit_matrix(x, weir_x_exec_wmma_memory, op);
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    return true;
}

/* Decode registers that hold whole 8 x 8 matrices of halves. */
static bool take_registers(struct weir_x_decoder *x, const struct weir_ptx_operand *o, bool dest,
                           struct weir_x_matrix_op *op)
{
    const struct weir_ptx_operand *list = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->elems : o;
    uint32_t n = o->kind == WEIR_PTX_OPERAND_VECTOR ? o->n_elems : 1;
    weir_x_ref *refs = weir_x_decode_alloc(x, n * sizeof *refs);
    WEIR_FAIL_IF(!refs || n == 0 || n > 4, false);
    for (uint32_t k = 0; k < n; k++) {
        refs[k] =
            dest ? weir_x_dest(x, &list[k]) : weir_x_source(x, &list[k], 32, WEIR_PTX_TYPE_B32);
        WEIR_FAIL_IF(refs[k] == WEIR_X_NO_REF, false);
    }
    op->f[0].n_regs = (uint8_t)n;
    op->f[0].refs = refs;
    return true;
}

bool weir_x_decode_ldmatrix(struct weir_x_decoder *x, struct weir_x_matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    op->store = ir->op == WEIR_PTX_OP_STMATRIX;
    op->trans = (ir->flags & WEIR_PTX_FLAG_TRANS) != 0;
    struct weir_x_inst where = {0};
    if (ir->types[0] != WEIR_PTX_TYPE_B16 || op->m != 8 || op->n != 8 ||
        !take_registers(x, &ir->operands[op->store ? 1 : 0], !op->store, op) ||
        !weir_x_memory(x, &where, &ir->operands[op->store ? 0 : 1], ir->space, false)) {
        return false;
    }
    struct weir_x_inst *i = weir_x_emit_matrix(x, weir_x_exec_ldmatrix, op);
    i->a = where.a;
    i->imm2 = where.imm;
    i->flags = where.flags;
    i->space = where.space;
    return true;
}

bool weir_x_decode_movmatrix(struct weir_x_decoder *x, struct weir_x_matrix_op *op)
{
    const struct weir_ptx_inst *ir = x->ir;
    if (ir->types[0] != WEIR_PTX_TYPE_B16 || op->m != 8 || op->n != 8 ||
        !take_registers(x, &ir->operands[1], false, op)) {
        return false;
    }
    weir_x_ref d = weir_x_dest(x, &ir->operands[0]);
    weir_x_emit_matrix(x, weir_x_exec_movmatrix, op)->d = d;
    return d != WEIR_X_NO_REF;
}
