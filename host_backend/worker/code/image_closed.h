/*
 * Which kernels of an image can neither print nor fail an assert.
 *
 * Code that asserts calls the driver's __assertfail, code that prints its vprintf. A module that
 * names one of them may have thousands of kernels, but few that call it. A kernel is *closed* if
 * its machine code never leaves its own section: it has no relocation, no external function, no
 * call through a register. So a closed kernel cannot reach these functions. For all others the
 * module's answer holds: a kernel that allocates, that calls a function of another section (nvcc
 * -rdc=true, -G) or through a pointer, that starts kernels, or that is not code yet (PTX).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Owner thread only while code is added, then immutable. */
struct weir_closed_kernels;

/** @return the empty list; NULL: out of memory @thread any */
struct weir_closed_kernels *weir_closed_kernels_create(void);
/** Accepts NULL. */
void weir_closed_kernels_destroy(struct weir_closed_kernels *closed);

/**
 * Inspect machine code of the image. If several codes have a kernel of the same name, it is closed
 * if it is closed in each of them.
 * @param data  an ELF file that was checked (weir_image_check()).
 * @return false: no kernel of the image counts as closed (not linked code of a known GPU, or out of
 *         memory)
 */
bool weir_closed_kernels_add(struct weir_closed_kernels *closed, const uint8_t *data,
                             uint64_t bytes);
/** All code was added. */
void weir_closed_kernels_end(struct weir_closed_kernels *closed);

/** Is a kernel known to be closed? closed may be NULL: none is. @thread any, after the end */
bool weir_closed_kernels_has(const struct weir_closed_kernels *closed, const char *kernel);
/** The memory that the list takes, without the object itself. Accepts NULL. @thread any */
uint64_t weir_closed_kernels_bytes(const struct weir_closed_kernels *closed);
