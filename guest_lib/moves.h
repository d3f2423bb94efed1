/*
 * Managed memory that moves between the program and the device (docs/design/managed.md).
 *
 * Here is only what the program's own process must do: open a userfaultfd for the host, which
 * serves the faults, and unmap pages whose bytes go to the device. The host counts in the segment's
 * header how many blocks the program has; while none is, work is posted at once.
 */
#ifndef WEIR_GUEST_LIB_MOVES_H
#define WEIR_GUEST_LIB_MOVES_H

#include "guest_lib/state.h"
#include "proto/cuda_abi.h"
#include "proto/transport/segment.h"
#include <stdbool.h>
#include <stdint.h>

/* It moves in blocks of this size (host_backend/worker/memory/managed_blocks.h). */
#define WEIR_MOVES_BLOCK (64u << 10)

/** Can managed memory move? The first call asks the kernel and the host. @thread any */
bool weir_moves_begin(void);

/**
 * The file of a chunk, or of a part of a variable, has been mapped at its address.
 * @param chunk  its name; of a variable its address.
 * @return CUDA_SUCCESS, or what the host says: the memory cannot move
 * @thread any, holding weir_mem_fd_lock() at most
 */
CUresult weir_moves_add(uint64_t chunk, uint64_t base, uint64_t bytes);
/** One that was added is unmapped. @thread any */
void weir_moves_remove(void);

/** How many chunks there are; and with them mirrors of variables (module.h). Atomic. */
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
 * @return CUDA_SUCCESS, or what the channel gives
 * @thread any; no lock held
 */
CUresult weir_moves_take(uint64_t address, uint64_t bytes);

/** Has the program blocks that kernels may have changed meanwhile? @thread any */
static inline bool weir_moves_merged(void)
{
    return __builtin_expect(__atomic_load_n(&weir_moves_count, __ATOMIC_RELAXED) != 0, 0) &&
           (__atomic_load_n(&weir_guest.channel.header->managed, __ATOMIC_ACQUIRE) &
            WEIR_SEGMENT_MANAGED_MERGED) != 0;
}

/** Work has been seen done: its changes are in the program's pages on return. @thread as above */
CUresult weir_moves_merge(void);

/** Bring them to the program's pages. Work that may write them must be done. @thread as above */
CUresult weir_moves_fetch(uint64_t address, uint64_t bytes);

/** Forget the host. */
void weir_moves_finish(void);

#endif
