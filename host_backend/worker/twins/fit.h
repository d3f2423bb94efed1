/*
 * Computes how much of an SM a twin needs compared to its kernel. The driver does not report these
 * numbers. These are pure functions: the worker and tests/bench/forms both use them, so that the
 * worker launches exactly what the benchmark measures.
 *
 * Source: CUDA C++ Programming Guide, compute capabilities (sizes of shared memory, registers).
 */
#pragma once

#include "base/search.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_FORMS_SM_REGISTERS    65536u /* registers of an SM, since sm_30 */
#define WEIR_FORMS_SHARED_STEP     128u   /* unit in which a block's shared memory is allocated */
#define WEIR_FORMS_SHARED_RESERVED 1024u  /* the system's part of each block, since sm_80 */
#define WEIR_FORMS_REGISTER_STEP   8u     /* unit in which a thread's registers are allocated */
#define WEIR_FORMS_LEAST_REGISTERS 24u    /* about as many as the loop itself needs */
#define WEIR_FORMS_MOST_REGISTERS  255u   /* the most that a thread can have */
#define WEIR_FORMS_NO_CARVEOUT     (-1)

/** The bytes of an SM's shared memory that a block takes. @thread any */
static inline uint64_t weir_forms_block_bytes(uint32_t shared_bytes)
{
    uint32_t step = WEIR_FORMS_SHARED_STEP;

    return ((uint64_t)shared_bytes + step - 1) / step * step + WEIR_FORMS_SHARED_RESERVED;
}

/**
 * How much of its cache an SM sets aside for this much shared memory: the least sufficient size, in
 * KiB.
 *
 * A little more shared memory in each block can bring the next size, and the cache that it takes
 * may cost a kernel that gathers 40 % (H200, 2026-11-22), or half of its speed (spmv, 32 KiB
 * for 16; H200, 2026-11-23).
 * @thread any
 */
static inline uint32_t weir_forms_aside_kib(uint64_t bytes)
{
    static const uint32_t sizes[] = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
    size_t i = 0;

    while (i + 1 < WEIR_COUNT(sizes) && sizes[i] * UINT64_C(1024) < bytes) {
        i++;
    }
    return sizes[i];
}

/** Like weir_forms_carveout_for(), for a number of blocks. @thread any */
static inline uint32_t weir_forms_carveout_kib(uint32_t shared_bytes, uint32_t blocks)
{
    return weir_forms_aside_kib(blocks * weir_forms_block_bytes(shared_bytes));
}

/**
 * Convert KiB to the function attribute's unit: a percentage of what an SM can set aside.
 *
 * @param sm_bytes  MAX_SHARED_MEMORY_PER_MULTIPROCESSOR; 0: not known; the result is then 100 %.
 * @thread any
 */
static inline int weir_forms_carveout_percent(uint32_t kib, uint32_t sm_bytes)
{
    uint64_t percent = sm_bytes != 0 ? kib * UINT64_C(1024) * 100 / sm_bytes : 100;

    return percent < 100 ? (int)percent : 100;
}

/**
 * The carve-out with which a twin has as much cache as its kernel, as value of the function
 * attribute: a percentage, or NO_CARVEOUT if the driver's own choice is the same.
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
               : weir_forms_carveout_percent(kib, sm_bytes);
}

/**
 * Is a twin with more registers worth a try, if blocks of it fit on an SM, and native_blocks of its
 * kernel? With half of them such twins took up to 88 % longer (H200, 2026-11-22).
 * @thread any
 */
static inline bool weir_forms_is_roomy_enough(uint32_t blocks, uint32_t native_blocks)
{
    return (uint64_t)blocks * 4 >= (uint64_t)native_blocks * 3;
}

/* How long a task may delay a stop. A stop may take 15 us, less the time for the word to the GPU,
 * for the answer, and for worker blocks that have only just begun (H200, 2026-11-22). */
#define WEIR_FORMS_STOP_NS          7250u
#define WEIR_FORMS_TASKS_PER_WORKER 8u /* at least this many, so that all workers end together */
#define WEIR_FORMS_TASK_UNKNOWN     4u /* for unknown times; harmless with blocks of 1 us */
#define WEIR_FORMS_TASK_MAX         32u

/**
 * How many blocks a worker block takes at once. A longer task has less overhead, but a stop waits
 * longer for it.
 *
 * @param kernel_ns  time of a block of the kernel, nanoseconds; 0: not known.
 * @param block_ns   time of a block of this twin. Fewer of them may fit on an SM, so each may be
 *                   faster.
 * @param blocks     blocks of the launch.
 * @param workers    worker blocks of the launch, 1 or more.
 * @thread any
 */
static inline uint32_t weir_forms_task_blocks(uint64_t kernel_ns, uint64_t block_ns,
                                              uint64_t blocks, uint64_t workers)
{
    uint64_t task = kernel_ns == 0 || block_ns == 0 ? WEIR_FORMS_TASK_UNKNOWN
                                                    : (WEIR_FORMS_STOP_NS + kernel_ns) / block_ns;
    uint64_t most = blocks / (workers * WEIR_FORMS_TASKS_PER_WORKER);

    task = WEIR_MIN(task, WEIR_FORMS_TASK_MAX);
    task = WEIR_MIN(task, most);
    return task != 0 ? (uint32_t)task : 1;
}

/* How long the task may take after which a worker block reads a change of place. A change may take
 * 50 us, less the time for the word to the GPU. Before longer tasks worker blocks read orders each
 * time, which costs a trip to the L2 cache. */
#define WEIR_FORMS_LONG_TASK_NS 30000u

/**
 * Must worker blocks read orders before each task?
 * @param block_ns  time of a block of the twin; 0: not known.
 * @thread any
 */
static inline bool weir_forms_looks_always(uint64_t block_ns, uint32_t task_blocks)
{
    return block_ns * task_blocks >= WEIR_FORMS_LONG_TASK_NS;
}

/** The most registers with which that number of blocks fits on an SM. @thread any */
static inline uint32_t weir_forms_registers_for(uint32_t threads, uint32_t blocks)
{
    uint64_t all = (uint64_t)(threads + 31) / 32 * 32 * blocks;

    return all == 0 ? WEIR_FORMS_SM_REGISTERS
                    : (uint32_t)(WEIR_FORMS_SM_REGISTERS / all / WEIR_FORMS_REGISTER_STEP *
                                 WEIR_FORMS_REGISTER_STEP);
}

/**
 * The register limit of a twin that may have more registers than its kernel. Without one the
 * compiler stays below the step at which fewer blocks fit, and then orders loads one behind the
 * other, in a loop more than without one.
 * @thread any
 */
static inline uint32_t weir_forms_register_room(uint32_t kernel_registers)
{
    uint32_t step = WEIR_FORMS_REGISTER_STEP;

    uint32_t room = (kernel_registers + step - 1) / step * step + step;

    return WEIR_MIN(room, WEIR_FORMS_MOST_REGISTERS);
}

/**
 * The register limit of a second twin. If fewer blocks of the first twin fit than of its kernel:
 * the limit with which as many fit. Else the kernel's own registers, with which the compiler may
 * order instructions as in the kernel.
 * @thread any
 */
static inline uint32_t weir_forms_register_limit(uint32_t threads, uint32_t kernel_registers,
                                                 uint32_t kernel_blocks, uint32_t twin_blocks)
{
    uint32_t fit = weir_forms_registers_for(threads, kernel_blocks);
    uint32_t step = WEIR_FORMS_REGISTER_STEP;
    uint32_t own = (kernel_registers + step - 1) / step * step;

    own = WEIR_MAX(own, WEIR_FORMS_LEAST_REGISTERS);
    return twin_blocks < kernel_blocks || fit < own ? fit : own;
}
