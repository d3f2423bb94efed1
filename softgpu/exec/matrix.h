/* Private to matrix*.c: what the matrix instructions share. */
#pragma once

#include "softgpu/exec/decode.h"

/* Elements of the largest matrix: 16 x 256 bits, 32 x 16 and the like. */
#define WEIR_X_MAX_A    4096u
#define WEIR_X_MAX_B    2048u
#define WEIR_X_MAX_C    1024u
#define WEIR_X_MAX_ROWS 32u

enum weir_x_role { WEIR_X_ROLE_A, WEIR_X_ROLE_B, WEIR_X_ROLE_C, WEIR_X_ROLE_D };

struct weir_x_fragment {
    uint8_t type;   /* type of an element */
    uint8_t bits;   /* size of an element */
    uint8_t n_regs; /* registers of each lane */
    uint8_t pack;   /* elements in one register */
    uint16_t rows, cols;
    const weir_x_ref *refs;
    /* Entry (l * n_regs + r) * pack + j is the place (row * cols + column) of element j in register
     * r of lane l. */
    const uint16_t *places;
};

enum weir_x_matrix_kind { WEIR_X_MATRIX_MMA, WEIR_X_MATRIX_VOLTA, WEIR_X_MATRIX_WMMA };

struct weir_x_matrix_op {
    uint8_t kind;
    bool saturate;
    bool use_xor; /* single-bit matrices: use xor */
    bool column;  /* wmma load and store: the layout in memory is column-major */
    bool column_a, column_b;
    bool store;  /* stmatrix and wmma.store */
    bool trans;  /* ldmatrix and stmatrix: transpose */
    bool sparse; /* A holds half of its columns */
    uint8_t round;
    uint8_t selector; /* which lanes hold metadata */
    uint16_t m, n, k;
    weir_x_ref metadata;
    struct weir_x_fragment f[4]; /* A B C D; loads and stores use [0] */
    weir_x_ref stride;
};

static inline uint64_t weir_x_register_bits(const struct weir_x_warp *w,
                                            const struct weir_x_fragment *f, uint32_t reg,
                                            uint32_t lane)
{
    return f->bits == 64 ? weir_x_w64(w, f->refs[reg])[lane] : weir_x_w32(w, f->refs[reg])[lane];
}

/* matrix.c */
/** Rows and places of a fragment of a matrix. @return false for shapes that it cannot be of */
bool weir_x_take_fragment(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint8_t type,
                          enum weir_x_role role, bool dest, const struct weir_x_matrix_op *op,
                          struct weir_x_fragment *ret_fragment);
/** An instruction that the whole warp takes part in. */
struct weir_x_inst *weir_x_emit_matrix(struct weir_x_decoder *x, weir_x_fn fn,
                                       const struct weir_x_matrix_op *op);

/* matrix_memory.c */
bool weir_x_decode_wmma_memory(struct weir_x_decoder *x, struct weir_x_matrix_op *op);
bool weir_x_decode_ldmatrix(struct weir_x_decoder *x, struct weir_x_matrix_op *op);
bool weir_x_decode_movmatrix(struct weir_x_decoder *x, struct weir_x_matrix_op *op);
