/*
 * The device's side of a managed chunk, piece by piece (memory/pieces.c).
 *
 * Each piece of a chunk's addresses has a backing: memory of the device, or memory of the host that
 * the driver maps at device addresses, which kernels reach over the bus. No piece is ever without
 * one, since kernels may follow a pointer to any managed memory. managed_paging.c changes which
 * pieces lie on the device.
 *
 * For the session's thread.
 */
#pragma once

#include "host_backend/worker/memory/chunk.h"
#include <stdbool.h>
#include <stdint.h>

/* An H200's bus takes 0.6 ms for this much. The time for mapping it was not measured. */
#define WEIR_PIECE_BYTES (UINT64_C(32) << 20)

struct weir_backing {
    CUmemGenericAllocationHandle memory;
    bool on_host;
};

struct weir_piece {
    struct weir_backing now;
    enum weir_managed_place place; /* where the program wants it */
    bool starts;           /* a launch has named an address in this piece (managed_paging.c) */
    bool in_node;          /* a graph has copied or filled it: it stays on the device for good */
    uint64_t used, before; /* the last two launches that have named the piece; 0: none */
};

/** 0: the chunk has no pieces. */
static inline uint32_t weir_pieces_count(const struct weir_host_chunk *chunk)
{
    return chunk->pieces ? (uint32_t)((chunk->bytes + WEIR_PIECE_BYTES - 1) / WEIR_PIECE_BYTES) : 0;
}

/** The last piece of a chunk may be smaller than the others. */
static inline uint64_t weir_piece_bytes(const struct weir_host_chunk *chunk, uint32_t i)
{
    uint64_t left = chunk->bytes - i * WEIR_PIECE_BYTES;

    return WEIR_MIN(left, WEIR_PIECE_BYTES);
}

/**
 * Make a backing and charge for it. A refusal is nobody's fault: it is not reported.
 * @param device   index of the device that is to reach it, or on which it lies.
 * @param on_host  charged as pinned memory.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY (the tenant may have no more, or the device has no
 *         more but what the driver needs itself), the driver's (it has no such memory of the host)
 */
CUresult weir_backing_make(struct weir_session *session, uint32_t device, uint64_t bytes,
                           bool on_host, struct weir_backing *ret_backing);
/** Free a backing that is mapped nowhere. */
void weir_backing_drop(struct weir_session *session, uint32_t device, uint64_t bytes,
                       struct weir_backing backing);
/** Map a backing at an address where nothing is. @return CUDA_SUCCESS, the driver's */
CUresult weir_backing_map(struct weir_session *session, uint32_t device, uint64_t at,
                          uint64_t bytes, struct weir_backing backing);

/**
 * Give a chunk pieces that are mapped and zero: on the device as long as there is room.
 * @param stream  clears them, and is synchronized.
 * @return as weir_backing_make(): nothing is left of the pieces then
 */
CUresult weir_pieces_make(struct weir_session *session, struct weir_host_chunk *chunk,
                          CUstream stream);
/** Unmap and free a chunk's pieces, if it has any. The device has no work with them. */
void weir_pieces_drop(struct weir_session *session, struct weir_host_chunk *chunk);
