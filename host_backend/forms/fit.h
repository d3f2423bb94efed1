/*
 * What a twin takes of an SM, beside its kernel: numbers that the driver does not tell. Without
 * state; for the worker and for tests/bench/forms, so that the one launches what the other
 * measured.
 *
 * Source: CUDA C++ Programming Guide, compute capabilities (sizes of shared memory, registers).
 */
#ifndef WEIR_HOST_BACKEND_FORMS_FIT_H
#define WEIR_HOST_BACKEND_FORMS_FIT_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_FORMS_SM_REGISTERS    65536u /* of every GPU since sm_30 */
#define WEIR_FORMS_SHARED_STEP     128u   /* shared memory of a block is given out in these */
#define WEIR_FORMS_SHARED_RESERVED 1024u  /* of each block, for the system, since sm_80 */
#define WEIR_FORMS_REGISTER_STEP   8u     /* registers of a thread are given out in eights */
#define WEIR_FORMS_LEAST_REGISTERS 24u    /* that the loop itself needs, about */
#define WEIR_FORMS_NO_CARVEOUT     (-1)

/**
 * What an SM sets aside of its cache for so many blocks: the least size that suffices, in KiB.
 *
 * A little more shared memory in each block can bring the next size, and the cache that it takes
 * may cost a kernel that gathers 40 % (H200, 2026-11-22).
 * @thread any
 */
static inline uint32_t weir_forms_carveout_kib(uint32_t shared_bytes, uint32_t blocks)
{
    static const uint32_t sizes[] = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
    uint32_t step = WEIR_FORMS_SHARED_STEP;
    uint64_t block = ((uint64_t)shared_bytes + step - 1) / step * step;
    uint64_t bytes = blocks * (block + WEIR_FORMS_SHARED_RESERVED);
    size_t i = 0;

    while (i + 1 < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] * UINT64_C(1024) < bytes) {
        i++;
    }
    return sizes[i];
}

/**
 * The carve-out to give a twin so that the cache stays as it is for its kernel, as the function
 * attribute has it: a percentage, or NO_CARVEOUT where the driver's own choice is the same.
 *
 * @param sm_bytes  MAX_SHARED_MEMORY_PER_MULTIPROCESSOR; 0: not known.
 * @thread any
 */
static inline int weir_forms_carveout(uint32_t kernel_bytes, uint32_t kernel_blocks,
                                      uint32_t twin_bytes, uint32_t twin_blocks, uint32_t sm_bytes)
{
    uint32_t kib = weir_forms_carveout_kib(kernel_bytes, kernel_blocks);

    return sm_bytes == 0 || weir_forms_carveout_kib(twin_bytes, twin_blocks) <= kib
               ? WEIR_FORMS_NO_CARVEOUT
               : (int)(kib * UINT64_C(1024) * 100 / sm_bytes);
}

/** The most registers with which so many blocks fit on an SM. @thread any */
static inline uint32_t weir_forms_registers_for(uint32_t threads, uint32_t blocks)
{
    uint64_t all = (uint64_t)(threads + 31) / 32 * 32 * blocks;

    return all == 0 ? WEIR_FORMS_SM_REGISTERS
                    : (uint32_t)(WEIR_FORMS_SM_REGISTERS / all / WEIR_FORMS_REGISTER_STEP *
                                 WEIR_FORMS_REGISTER_STEP);
}

/**
 * Registers for a twin that has more of them than its kernel: a compiler that stays below a step at
 * which fewer blocks fit orders loads one behind the other, in a loop more than without one.
 * @thread any
 */
static inline uint32_t weir_forms_register_room(uint32_t kernel_registers)
{
    uint32_t step = WEIR_FORMS_REGISTER_STEP;

    return (kernel_registers + step - 1) / step * step + step;
}

/**
 * The registers to limit a twin to, for a second one beside it: those with which as many blocks of
 * it fit as of its kernel, where it fits fewer times; else those of its kernel, with which the
 * compiler may order instructions as it did there.
 * @thread any
 */
static inline uint32_t weir_forms_register_limit(uint32_t threads, uint32_t kernel_registers,
                                                 uint32_t kernel_blocks, uint32_t twin_blocks)
{
    uint32_t fit = weir_forms_registers_for(threads, kernel_blocks);
    uint32_t step = WEIR_FORMS_REGISTER_STEP;
    uint32_t own = (kernel_registers + step - 1) / step * step;

    own = own < WEIR_FORMS_LEAST_REGISTERS ? WEIR_FORMS_LEAST_REGISTERS : own;
    return twin_blocks < kernel_blocks || fit < own ? fit : own;
}

#endif
