/* Private to decode*.c: the state while one function is decoded. */
#pragma once

#include "softgpu/exec/internal.h"

struct weir_x_const {
    uint64_t bits;
    uint32_t at;
    bool wide;
};

struct weir_x_decoder {
    struct weir_exec_kernel *kernel;
    struct weir_x_func *func;
    const struct weir_ptx_inst *ir; /* the instruction being decoded */
    weir_x_ref *regs;               /* rows of the registers, by register id */
    uint32_t *starts;               /* index of the first internal instruction, by IR instruction */
    uint32_t *places;               /* places of .local and .param variables, by id */
    uint32_t *param_places;         /* places of the parameters, then of the results */
    struct weir_x_const *consts;
    uint32_t n_consts, consts_room, consts_bytes;
    uint32_t code_room;
    bool no_memory;
    weir_x_ref sink; /* row for results that are not used */
    bool has_sink;
    bool failed; /* this instruction is unsupported */
    char reason[100];
};

/* Limits far above any compiler's output; they bound the cost of decoding hostile code. */
#define WEIR_X_MAX_FUNCS       16384u /* most functions that one kernel reaches */
#define WEIR_X_MAX_SHARED_VARS 16384u
#define WEIR_X_MAX_NESTING     256u /* deepest nesting of calls while decoding */
/* Most local bytes of a function, per thread; CUDA's limit, too. */
#define WEIR_X_MAX_LOCAL_BYTES (512u << 10)
#define WEIR_X_TOO_BIG         (1u << 30) /* sums of sizes stop here: such a large kernel never runs */

/** The next multiple of a power of two, at most WEIR_X_TOO_BIG. */
static inline uint32_t weir_x_align(uint64_t at, uint32_t align)
{
    uint64_t up = (at + align - 1) & ~((uint64_t)align - 1);
    return up < WEIR_X_TOO_BIG ? (uint32_t)up : WEIR_X_TOO_BIG;
}

void *weir_x_decode_alloc(struct weir_x_decoder *x, size_t bytes);
struct weir_x_inst *weir_x_emit(struct weir_x_decoder *x);
void weir_x_unsupported(struct weir_x_decoder *x, const char *fmt, ...) WEIR_PRINTF(2, 3);
struct weir_x_func *weir_x_func_for(struct weir_exec_kernel *kernel,
                                    const struct weir_ptx_func *ir);
/** Offset in the frame of each parameter; their bytes together, at most WEIR_X_TOO_BIG. */
uint32_t weir_x_place_params(const struct weir_ptx_func *f, uint32_t *places);
bool weir_x_place_shared(struct weir_exec_kernel *kernel);

/* decode_operand.c */
/** A row of 32 lanes with this value. */
weir_x_ref weir_x_const(struct weir_x_decoder *x, uint64_t bits, bool wide);
/** Width class of an operand's row: bits of its register, or those asked for. */
uint32_t weir_x_operand_bits(const struct weir_x_decoder *x, const struct weir_ptx_operand *o,
                             uint32_t otherwise);
/** A source operand as a row; bits and type say how constants are made. May emit instructions. */
weir_x_ref weir_x_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o, uint32_t bits,
                         uint8_t type);
/** A source predicate; negation emits an instruction. */
weir_x_ref weir_x_pred_source(struct weir_x_decoder *x, const struct weir_ptx_operand *o);
weir_x_ref weir_x_dest(struct weir_x_decoder *x, const struct weir_ptx_operand *o);
/**
 * Emit an instruction: operand 0 becomes d, and the next ones a, b, c and e.
 *
 * @param types  of the sources, in order; a predicate's is PRED. The first NONE ends them.
 */
struct weir_x_inst *weir_x_emit_op(struct weir_x_decoder *x, weir_x_fn fn, const uint8_t types[4]);
/** The same with one source, or none (NONE), and then the member mask, which becomes e. */
struct weir_x_inst *weir_x_emit_members(struct weir_x_decoder *x, weir_x_fn fn, uint8_t type);
/** Fill space, a, imm (or e for atomics), ADDR64 from a memory operand. */
bool weir_x_memory(struct weir_x_decoder *x, struct weir_x_inst *out,
                   const struct weir_ptx_operand *o, uint8_t space, bool offset_in_e);
/** Offset of a .local or .param variable of this function in its frame. */
uint32_t weir_x_frame_place(const struct weir_x_decoder *x, const struct weir_ptx_var *var);

/* decode_op.c */
bool weir_x_decode_op(struct weir_x_decoder *x);
/* decode_mem.c */
bool weir_x_decode_memory_op(struct weir_x_decoder *x);
bool weir_x_decode_call(struct weir_x_decoder *x);
/* texture.c */
bool weir_x_decode_texture(struct weir_x_decoder *x);
/* op_bulk.c */
/** cp.async.bulk of plain memory */
bool weir_x_decode_bulk(struct weir_x_decoder *x);
/* op_video.c */
bool weir_x_decode_video(struct weir_x_decoder *x);
/* matrix.c */
bool weir_x_decode_matrix(struct weir_x_decoder *x);
/* mbarrier.c */
bool weir_x_decode_mbarrier(struct weir_x_decoder *x);
/** cp.async.mbarrier.arrive */
bool weir_x_decode_copy_arrive(struct weir_x_decoder *x);
