/*
 * Which kernels of an image cannot fail an assert.
 *
 * Code that asserts calls the driver's __assertfail. A module that names it somewhere may have
 * thousands of kernels, of which few do. A kernel is *closed* if its machine code leaves its own
 * section nowhere: no relocation, no external function, no call through a register. A closed kernel
 * cannot get to __assertfail, by whatever route. Of all others the module's answer holds: a kernel
 * that prints, that calls a function of another section (nvcc -rdc=true, -G) or through a pointer,
 * that starts kernels, or that is not code yet (PTX).
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_IMAGE_ASSERTS_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_IMAGE_ASSERTS_H

#include <stdbool.h>
#include <stdint.h>

/** Owner thread only while code is added, then immutable. */
struct weir_image_asserts;

/** @return NULL: out of memory @thread any */
struct weir_image_asserts *weir_image_asserts_create(void);
/** Accepts NULL. */
void weir_image_asserts_destroy(struct weir_image_asserts *asserts);

/**
 * Look at machine code of the image. A kernel of this name in several codes is closed if it is in
 * each of them.
 * @param data  an ELF file that was checked (weir_image_check()).
 * @return false: no kernel of the image may be taken for closed (not linked code of a GPU that is
 *         known here, or out of memory)
 */
bool weir_image_asserts_add(struct weir_image_asserts *asserts, const uint8_t *data,
                            uint64_t bytes);
/** All code was added. */
void weir_image_asserts_end(struct weir_image_asserts *asserts);

/** Is a kernel known to be closed? asserts may be NULL: none is. @thread any, after the end */
bool weir_image_asserts_is_closed(const struct weir_image_asserts *asserts, const char *kernel);
/** What it takes of memory, without the object. Accepts NULL. @thread any */
uint64_t weir_image_asserts_bytes(const struct weir_image_asserts *asserts);

#endif
