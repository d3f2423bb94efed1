/*
 * Properties of CUDA's object files that other ELF files lack.
 *
 * Both sides of a connection need these to find an image's end. Any thread.
 */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * Are a section's bytes in the file? CUDA's own types for uninitialised global, local and shared
 * memory are like SHT_NOBITS; code that is still to be linked has them (NCCL's).
 *
 * @param type  sh_type.
 */
static inline bool weir_cubin_has_bits(uint32_t type)
{
    switch (type) {
    case SHT_NULL:
    case SHT_NOBITS:
    case SHT_LOPROC + 0x7:
    case SHT_LOPROC + 0x9:
    case SHT_LOPROC + 0xa:
    case SHT_LOPROC + 0x15:
        return false;
    default:
        return true;
    }
}
