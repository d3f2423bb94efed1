/*
 * A bundle: the fat binaries of one version-2 wrapper (nvcc -rdc=true), which the driver links when
 * it loads them. It is sent and stored as one image (WEIR_IMAGE_BUNDLE).
 *
 *     header, n_parts lengths, then the parts, each 16-byte aligned
 *
 * Part 0 is the wrapper's own fat binary, often empty; the others come from the wrapper's list.
 */
#pragma once

#include <stdint.h>

#define WEIR_BUNDLE_MAGIC 0x4c444e4252494557ull /* "WEIRBNDL" */

struct weir_bundle_header {
    uint64_t magic;
    uint32_t n_parts;
    uint32_t zero;
    uint64_t part_bytes[];
};

static inline uint64_t weir_bundle_align(uint64_t bytes)
{
    return (bytes + 15) & ~15ull;
}

/** The offset of part 0. */
static inline uint64_t weir_bundle_header_bytes(uint32_t n_parts)
{
    return weir_bundle_align(sizeof(struct weir_bundle_header) + 8ull * n_parts);
}
