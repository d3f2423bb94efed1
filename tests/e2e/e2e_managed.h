/* What the programs with managed memory share. */
#pragma once

#include "e2e_registered.h"

#include <stdint.h>

#define KIB   1024u
#define MIB   (1024u * KIB)
#define WORDS (MIB / 4)

CHECK_UNUSED static uint32_t *managed(size_t bytes)
{
    CUdeviceptr at = 0;

    DRV(CU(MemAllocManaged)(&at, bytes, CU_MEM_ATTACH_GLOBAL));
    return (uint32_t *)(uintptr_t)at;
}

CHECK_UNUSED static CUdeviceptr address(const void *at)
{
    return (uintptr_t)at;
}

/* Does the memory lie on the device, too? */
CHECK_UNUSED static bool moves(const void *at)
{
    return is_of_file(at, "weir-managed");
}

CHECK_UNUSED static uint64_t seed;

CHECK_UNUSED static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 11) % below;
}
