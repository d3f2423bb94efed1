/*
 * Images that a program passes to cuModuleLoadData without a length. This code finds an image's
 * kind and size, then stores it with the host under its hash, once per tenant.
 */
#pragma once

#include "base/hash.h"
#include "proto/cuda_abi.h"
#include "proto/wire/op_kinds.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_IMAGE_MAX_BYTES (4ull << 30)

/* An image that the host has stored. Plain data. */
struct weir_guest_image {
    struct weir_hash hash;
    uint64_t bytes;
    enum weir_image_kind kind;
};

/**
 * Store an image that a program passed by bare pointer, following fat binary wrappers.
 *
 * @param data  borrowed for the call.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_OUT_OF_MEMORY, or the error of a lost
 *         host
 * @thread any
 */
CUresult weir_guest_image_store(const void *data, struct weir_guest_image *ret_image);

/** Store bytes of known length. @thread any */
CUresult weir_guest_image_store_bytes(const void *data, uint64_t bytes,
                                      struct weir_guest_image *ret_image);

/** Store a file. CUDA_ERROR_FILE_NOT_FOUND: the file cannot be opened. @thread any */
CUresult weir_guest_image_store_file(const char *path, struct weir_guest_image *ret_image);

/** Fetch a stored image (a linker's output) into new memory, to be freed with free().
 * @thread any */
CUresult weir_guest_image_fetch(const struct weir_hash *hash, uint64_t bytes, void **ret_data);
