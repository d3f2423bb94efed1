/*
 * How much of an SM a twin needs compared to its kernel. The driver does not tell these numbers. No
 * state: the worker and tests/bench/forms both use this, so that the worker launches exactly what
 * the benchmark measures.
 *
 * Source: CUDA C++ Programming Guide, compute capabilities (sizes of shared memory, registers).
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_FIT_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_FIT_H

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

/** What a block takes of an SM's shared memory, bytes. @thread any */
static inline uint64_t weir_forms_block_bytes(uint32_t shared_bytes)
{
    uint32_t step = WEIR_FORMS_SHARED_STEP;

    return ((uint64_t)shared_bytes + step - 1) / step * step + WEIR_FORMS_SHARED_RESERVED;
}

/**
 * What an SM sets aside of its cache for so much: the least size that suffices, in KiB.
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

    while (i + 1 < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] * UINT64_C(1024) < bytes) {
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
 * @param sm_bytes  MAX_SHARED_MEMORY_PER_MULTIPROCESSOR; 0: not known, then it is all.
 * @thread any
 */
static inline int weir_forms_carveout_percent(uint32_t kib, uint32_t sm_bytes)
{
    uint64_t percent = sm_bytes != 0 ? kib * UINT64_C(1024) * 100 / sm_bytes : 100;

    return percent < 100 ? (int)percent : 100;
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

/* How long a task may delay a stop: the 15 us that a stop may take, less the time for the word to
 * the GPU, for the answer, and for workers that have only just begun (H200, 2026-11-22). */
#define WEIR_FORMS_STOP_NS          7250u
#define WEIR_FORMS_TASKS_PER_WORKER 8u /* at least, so that the last ones end together */
#define WEIR_FORMS_TASK_UNKNOWN     4u /* for unknown times; harmless with blocks of 1 us */
#define WEIR_FORMS_TASK_MAX         32u

/**
 * How many blocks a worker takes at once: the longer a task, the less it costs to take it, and the
 * longer a stop waits.
 *
 * @param kernel_ns  time of a block of the kernel, nanoseconds; 0: not known.
 * @param block_ns   of this twin's, of which fewer may fit on an SM, so that each is faster.
 * @param blocks     of the launch.
 * @param workers    that take them, 1 or more.
 * @thread any
 */
static inline uint32_t weir_forms_task_blocks(uint64_t kernel_ns, uint64_t block_ns,
                                              uint64_t blocks, uint64_t workers)
{
    uint64_t task = kernel_ns == 0 || block_ns == 0 ? WEIR_FORMS_TASK_UNKNOWN
                                                    : (WEIR_FORMS_STOP_NS + kernel_ns) / block_ns;
    uint64_t most = blocks / (workers * WEIR_FORMS_TASKS_PER_WORKER);

    task = task > WEIR_FORMS_TASK_MAX ? WEIR_FORMS_TASK_MAX : task;
    task = task > most ? most : task;
    return task != 0 ? (uint32_t)task : 1;
}

/* How long a task may take that a worker takes before it reads a change of place: the 50 us that a
 * change may take, less the time for the word to the GPU. Workers look for orders before each
 * longer task, which costs a trip to the L2 cache. */
#define WEIR_FORMS_LONG_TASK_NS 30000u

/**
 * Are workers to look at what they are asked before each task?
 * @param block_ns  of the twin; 0: not known.
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
 * Registers to limit a twin to that may have more of them than its kernel: a compiler that stays
 * below a step at which fewer blocks fit orders loads one behind the other, in a loop more than
 * without one.
 * @thread any
 */
static inline uint32_t weir_forms_register_room(uint32_t kernel_registers)
{
    uint32_t step = WEIR_FORMS_REGISTER_STEP;

    uint32_t room = (kernel_registers + step - 1) / step * step + step;

    return room < WEIR_FORMS_MOST_REGISTERS ? room : WEIR_FORMS_MOST_REGISTERS;
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
