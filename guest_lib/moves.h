/*
 * Managed memory that moves between the program and the device (docs/design/managed.md).
 *
 * This part does what only the program's own process can do: open a userfaultfd for the host, which
 * serves the faults, and unmap pages whose bytes go to the device. The host counts in the segment's
 * header how many blocks the program has. While there are none, work is posted at once.
 */
#pragma once

#include "guest_lib/state.h"
#include "proto/cuda_abi.h"
#include "proto/transport/segment.h"
#include "proto/wire/op_kinds.h"
#include <stdbool.h>
#include <stdint.h>

/* Managed memory moves in blocks of this size (host_backend/worker/memory/managed_blocks.h). */
#define WEIR_MOVES_BLOCK (64u << 10)

/** Can managed memory move? The first call asks the kernel and the host. @thread any */
bool weir_moves_begin(void);

/**
 * The file of a chunk, or of a part of a variable, has been mapped at its address.
 * @param chunk  the chunk's name, or the variable's address.
 * @return CUDA_SUCCESS, or the host's error: the memory cannot move
 * @thread any, holding weir_mem_fd_lock() at most
 */
CUresult weir_moves_add(uint64_t chunk, uint64_t base, uint64_t bytes);
/** Undo weir_moves_add(): the memory is unmapped. @thread any */
void weir_moves_remove(void);

/** The number of chunks that move; the same plus the mirrors of variables (module.h). Atomic. */
extern uint32_t weir_moves_count __attribute__((visibility("hidden")));
extern uint32_t weir_managed_count __attribute__((visibility("hidden")));

/** Does the program have blocks that must go to the device before work? @thread any */
static inline bool weir_moves_any(void)
{
    return __builtin_expect(__atomic_load_n(&weir_moves_count, __ATOMIC_RELAXED) != 0, 0) &&
           /* M1: meets the host's release, which comes before the program gets a page. */
           __atomic_load_n(&weir_guest.channel.header->managed, __ATOMIC_ACQUIRE) != 0;
}

/**
 * Have the bytes of managed memory in [address, address + bytes) go to the device, before work that
 * is posted next. @param bytes  0: all managed memory
 * @return CUDA_SUCCESS, or an error of the channel
 * @thread any; no lock held
 */
CUresult weir_moves_take(uint64_t address, uint64_t bytes);

/** Does the program have blocks that kernels may have changed meanwhile? @thread any */
static inline bool weir_moves_merged(void)
{
    return __builtin_expect(__atomic_load_n(&weir_moves_count, __ATOMIC_RELAXED) != 0, 0) &&
           (__atomic_load_n(&weir_guest.channel.header->managed, __ATOMIC_ACQUIRE) &
            WEIR_SEGMENT_MANAGED_MERGED) != 0;
}

/** Work is known to be done: bring its changes to the program's pages. @thread as above */
CUresult weir_moves_merge(void);

/** Move bytes to the program's pages. Work that may write them must be done. @thread as above */
CUresult weir_moves_fetch(uint64_t address, uint64_t bytes);

/** The program wants this memory to lie there. An older host does nothing. @thread as above */
void weir_moves_place(uint64_t address, uint64_t bytes, enum weir_managed_place place);

/** Forget the host. */
void weir_moves_finish(void);
