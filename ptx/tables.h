/* Look-up from text in the tables of opcodes, suffixes and special registers. Private to ptx/. */
#pragma once

#include "ptx/ir.h"

/** Find the opcode of a mnemonic; WEIR_PTX_OP_NONE if unknown. @thread any */
enum weir_ptx_op weir_ptx_op_from_text(const char *text, size_t len);

/**
 * Suffix of a text without its dot, WEIR_PTX_MOD_NONE if unknown. Types and spaces included.
 * @param ret_shape  set for an mNnNkN, for which the answer is WEIR_PTX_MOD_SHAPE.
 * @thread any
 */
enum weir_ptx_mod weir_ptx_mod_from_text(const char *text, size_t len,
                                         struct weir_ptx_shape *ret_shape);

/** Find a special register by its text with %; WEIR_PTX_SREG_NONE if unknown. @thread any */
enum weir_ptx_sreg weir_ptx_sreg_from_text(const char *text, size_t len);

/** The number of components (4 or 1) of a special register. @thread any */
uint32_t weir_ptx_sreg_components(enum weir_ptx_sreg sreg);

static inline bool weir_ptx_mod_is_type(enum weir_ptx_mod mod)
{
    return mod > WEIR_PTX_MOD_NONE && mod < WEIR_PTX_MOD_SPACE;
}

static inline bool weir_ptx_mod_is_space(enum weir_ptx_mod mod)
{
    return mod > WEIR_PTX_MOD_SPACE && mod < WEIR_PTX_MOD_SHAPE;
}

/** The slot of a suffix. @thread any */
enum weir_ptx_slot weir_ptx_mod_slot(enum weir_ptx_mod mod);
