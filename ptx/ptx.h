/* PTX text to IR and back. The IR itself is in ptx/ir.h. */
#pragma once

#include "base/status.h"
#include <stdint.h>
#include <stdio.h>

struct weir_ptx_module;
struct weir_ptx_func;
struct weir_ptx_var;

enum weir_ptx_parse_flag {
    WEIR_PTX_DROP_DEBUG = 1u << 0, /* leave out .file, .loc, .section and "debug" in .target */
};

/**
 * Parse and check a module.
 *
 * Linear in the text; memory is bounded by the limits in ptx/ir.h and by a small multiple of the
 * text. Never trusts the text.
 *
 * @param text        the PTX; need not end in a NUL; a NUL ends it early. Borrowed for the call.
 * @param len_bytes   its length.
 * @param flags       WEIR_PTX_DROP_DEBUG or 0.
 * @param diag        where and why it was refused; may be NULL. Left alone on success.
 * @param ret_module  gives the module.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX       not PTX, or PTX that breaks a rule: see diag.
 * @return WEIR_ERR_UNSUPPORTED  a directive, opcode or suffix that the tables do not have: see
 * diag.
 * @return WEIR_ERR_TOO_BIG      over one of the limits: see diag.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 * @source NVIDIA, Parallel Thread Execution ISA 9.1
 */
enum weir_status weir_ptx_parse(const char *text, size_t len_bytes, uint32_t flags,
                                struct weir_diag *diag,
                                struct weir_ptx_module **ret_module) WEIR_MUST_CHECK;

/** Free a module and all its parts. Accepts NULL. @thread owner */
void weir_ptx_destroy(struct weir_ptx_module *module);

/**
 * Check a module that a pass has changed, as the parser does at its end: operand counts, register
 * and label ids in range, predicate guards, operand kinds and widths.
 *
 * @param module  borrowed.
 * @param diag    where and why; may be NULL.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX
 * @thread owner
 */
enum weir_status weir_ptx_check(const struct weir_ptx_module *module,
                                struct weir_diag *diag) WEIR_MUST_CHECK;

/**
 * Write a module as PTX text that assembles to the same program and parses to the same IR.
 *
 * Scopes are flattened and registers renamed by type (%r0, %rd1 ..), so it is not the source's
 * text; printing what was parsed from a printed text gives that text again.
 *
 * @param module         borrowed.
 * @param ret_text       gives a NUL-terminated text; the caller frees it.
 * @param ret_len_bytes  its length without the NUL; may be NULL.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread owner
 */
enum weir_status weir_ptx_print_buffer(const struct weir_ptx_module *module, char **ret_text,
                                       size_t *ret_len_bytes) WEIR_MUST_CHECK;

/** Find a function or entry by name; NULL: none. Linear. @thread any */
struct weir_ptx_func *weir_ptx_find_func(const struct weir_ptx_module *module, const char *name);

/** Find a module-scope variable by name; NULL: none. Linear. @thread any */
struct weir_ptx_var *weir_ptx_find_var(const struct weir_ptx_module *module, const char *name);
