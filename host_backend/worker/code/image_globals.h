/* How much device memory the variables of an image take when it is loaded. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/**
 * Bytes of the .global variables that PTX defines.
 *
 * @param text   need not end in a NUL; a NUL ends it early.
 * @param bytes  its length.
 * @param ret_bytes  UINT64_MAX at most.
 * @return false: there is a declaration that weir_ptx_parse() does not know, or no memory
 * @thread any
 */
bool weir_ptx_globals(const char *text, uint64_t bytes, uint64_t *ret_bytes);

/**
 * Bytes of the sections with such variables in a cubin.
 *
 * @param data  an ELF file that was checked (weir_image_check()).
 * @thread any
 */
uint64_t weir_elf_globals(const uint8_t *data, uint64_t bytes);

/** @return false: visit no more */
typedef bool weir_elf_visit_fn(const char *name, uint64_t bytes, void *user);

/**
 * Visit all such variables of a cubin, also the compiler's own.
 *
 * @param data  an ELF file that was checked.
 * @return false: it cannot be read, its variables begin with addresses (of functions, say), or a
 *         visit returned that.
 * @thread any
 */
bool weir_elf_visit_globals(const uint8_t *data, uint64_t bytes, weir_elf_visit_fn *visit,
                            void *user);

/** The sum, UINT64_MAX on overflow. @thread any */
static inline uint64_t weir_globals_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
