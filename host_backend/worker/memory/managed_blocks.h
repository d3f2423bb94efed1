/*
 * Where the bytes of a managed range are: block by block, on the CPU's side (pages that the program
 * maps), on the device, or on both. Pure: no driver, no descriptor, no lock.
 *
 *     ON_CPU        ON_GPU        both are right
 *       ^  |          |  ^
 *       |  +- take ---+--+    work is given that can reach the block: bytes go to the device
 *       +---- fault ---+      the program touches it: bytes come back, read only or to write
 *
 * A block is MOVING from the moment at which the program is told to unmap it until it has done so:
 * faults wait. It is MERGED while the program has it and kernels may have it too: both copies may
 * change, and each word that one side has changed is carried to the other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The least that a fault brings: a copy of 64 KiB takes as long as one of 4 KiB. Allocations do not
 * share a block (guest_lib/chunk.c). */
#define WEIR_BLOCK_BYTES (UINT64_C(64) << 10)
/* The most that a fault in a row of faults brings: 2 MiB take 40 us on a bus of 50 GB/s. */
#define WEIR_BLOCKS_MOST 32

enum weir_block_state {
    WEIR_BLOCK_ON_CPU = 1,   /* the program's pages are right */
    WEIR_BLOCK_ON_GPU = 2,   /* the device's memory is right */
    WEIR_BLOCK_MAPPED = 4,   /* the program reads without a fault */
    WEIR_BLOCK_WRITABLE = 8, /* and writes */
    WEIR_BLOCK_MOVING = 16,
    WEIR_BLOCK_MERGED = 32,
};

struct weir_blocks {
    uint8_t *state; /* owned; an enum weir_block_state mask each */
    uint32_t n;
    uint32_t n_cpu;    /* how many are ON_CPU */
    uint32_t n_merged; /* how many are MERGED */
    uint32_t next;     /* the block behind those that the last fault has brought */
    uint32_t row;      /* how many blocks that fault has brought */
};

/* What a fault asks for. */
enum weir_block_fault {
    WEIR_BLOCK_FAULT_WAITS,  /* the block is moving */
    WEIR_BLOCK_FAULT_OVER,   /* an earlier fault has brought it */
    WEIR_BLOCK_FAULT_BRINGS, /* its bytes must come from the device */
    WEIR_BLOCK_FAULT_MAPS,   /* its pages are right: the program needs them mapped */
    WEIR_BLOCK_FAULT_OPENS,  /* it is mapped for reading only */
};

/** n blocks that are zero on both sides. @return false: no memory */
bool weir_blocks_init(struct weir_blocks *blocks, uint32_t n);
void weir_blocks_finish(struct weir_blocks *blocks);

/** @param write  the program writes. */
enum weir_block_fault weir_blocks_fault(const struct weir_blocks *blocks, uint32_t block,
                                        bool write);

/** How many blocks a fault serves together: this one and those behind it in the same state, more
 * with each fault of a row. @return 1 .. WEIR_BLOCKS_MOST */
uint32_t weir_blocks_row(struct weir_blocks *blocks, uint32_t block);

/** These blocks have got their bytes from the device, or are taken as they are. */
void weir_blocks_brought(struct weir_blocks *blocks, uint32_t first, uint32_t n);
/** The program is about to get these blocks mapped. */
void weir_blocks_mapped(struct weir_blocks *blocks, uint32_t first, uint32_t n, bool writable);
/** Kernels may be changing a block that the program has: from now on it is MERGED. */
void weir_blocks_merge(struct weir_blocks *blocks, uint32_t block);
/** No kernel changes the block any more, and both sides are alike: it is MERGED no longer. */
void weir_blocks_merged(struct weir_blocks *blocks, uint32_t block);

/**
 * Work is about to be given that can reach blocks [*at, end): find the next run of them that the
 * program must unmap. Blocks before it that are on the CPU but not mapped become MOVING, too.
 * @param at  moves behind the run.
 * @param ret_first, ret_n  the run, which is MOVING now.
 * @return false: there is none up to end
 */
bool weir_blocks_take(struct weir_blocks *blocks, uint32_t *at, uint32_t end, uint32_t *ret_first,
                      uint32_t *ret_n);

/**
 * The program has unmapped the MOVING blocks. Find the next run of them that are in one state.
 * @param ret_state  their state
 */
bool weir_blocks_moving(const struct weir_blocks *blocks, uint32_t *at, uint32_t *ret_first,
                        uint32_t *ret_n, uint8_t *ret_state);
/** These blocks are on the device alone now. */
void weir_blocks_moved(struct weir_blocks *blocks, uint32_t first, uint32_t n);
