/*
 * What an image is, and whether its own lengths stay inside its bytes: asked before a driver, which
 * is given no length, is allowed to read it.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_IMAGE_CHECK_H
#define WEIR_HOST_BACKEND_WORKER_IMAGE_CHECK_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

enum weir_image_form {
    WEIR_IMAGE_PTX,
    WEIR_IMAGE_FATBIN,
    WEIR_IMAGE_ELF,
    WEIR_IMAGE_SOFT_LINKED, /* what softgpu's linker makes */
};

/**
 * Check an image that is no bundle.
 * @return WEIR_OK, WEIR_ERR_INVALID (truncated, or lengths that lie; PTX with NUL inside or none)
 * @thread any
 */
enum weir_status weir_image_check(const uint8_t *data, uint64_t bytes,
                                  enum weir_image_form *ret_form) WEIR_MUST_CHECK;

/** A part of a bundle (proto/wire/bundle.h, docs/design/modules.md). */
struct weir_bundle_part {
    uint64_t offset, bytes;
};
#define WEIR_BUNDLE_PARTS_MAX 4096

/**
 * Check a bundle and its parts, each of which must be a fatbin.
 * @param ret_parts  of malloc: the caller's.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_bundle_check(const uint8_t *data, uint64_t bytes,
                                   struct weir_bundle_part **ret_parts,
                                   uint32_t *ret_n_parts) WEIR_MUST_CHECK;

/** May code of this image call printf? True when it cannot be told. Checked images only. */
bool weir_image_uses_printf(const uint8_t *data, uint64_t bytes);

#endif
