/*
 * Registered host memory: ranges of the program's own memory (docs/design/registered.md).
 *
 * Registering enters a range in the index, with no device address. Its pages are shared with the
 * worker when the GPU must reach them; then it has a device address.
 */
#pragma once

#include "guest_lib/memory.h"

/* Number of ranges that the GPU does not reach; atomic. While it is 0 no look-up is needed. */
extern uint32_t weir_register_private_count __attribute__((visibility("hidden")));

static inline bool weir_register_any_private(void)
{
    return __builtin_expect(__atomic_load_n(&weir_register_private_count, __ATOMIC_RELAXED) != 0,
                            0);
}

/**
 * cuMemHostRegister.
 *
 * @param bytes  not 0; base + bytes does not wrap.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED  a byte of it is already registered.
 * @return CUDA_ERROR_INVALID_VALUE  other memory of CUDA's, or not to be written (with
 * CU_MEMHOSTREGISTER_READ_ONLY: read) by the program.
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_register_memory(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              unsigned int flags);

/** Unregister a range that weir_mem_remove() returned: its pages become private if no other range
 * uses them. */
void weir_register_undo(const struct weir_mem *mem);

/**
 * The GPU is about to get an address: if it lies in a registered range, share the range's pages.
 *
 * @return CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED (the reason is logged),
 * CUDA_ERROR_OUT_OF_MEMORY, or an error of the host
 * @thread any; no lock held
 */
CUresult weir_register_reach(uint64_t address);

/** As weir_register_reach(), for all words of data that may be addresses, including the end of a
 * range. data need not be aligned. @thread any; no lock held */
CUresult weir_register_reach_words(const void *data, uint64_t bytes);

/** A kernel or a graph is about to be launched: share the ranges that it may access without naming
 * them. */
void weir_register_before_launch(void);

/** Note that a graph has got a kernel, whose arguments may already name memory that is registered
 * later. */
void weir_register_note_graph(void);

/**
 * A copy of bytes from or to an address is about to be made. Shares the range of that address if it
 * was copied often.
 *
 * @param writes  the program's memory is written.
 * @param async   the call does not wait.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (a read-only range)
 * @thread any; no lock held
 */
CUresult weir_register_note_copy(uint64_t address, uint64_t bytes, bool writes, bool async);

/**
 * How many of the bytes from address on are of one kind for a copy: shared pages of one piece, or
 * memory that is not shared. At least 1, at most bytes.
 * @thread any
 */
uint64_t weir_register_alike(uint64_t address, uint64_t bytes);

/**
 * Find the GPU's address of bytes that begin in a registered range.
 * @return false: the GPU does not reach all of them in one piece.
 * @thread any
 */
bool weir_register_shared(const struct weir_mem *mem, uint64_t address, uint64_t bytes,
                          uint64_t *ret_device);
