/*
 * Pages of the program that were replaced by memory of the worker, so that the GPU reaches them
 * (docs/design/registered.md).
 *
 * A piece is a run of pages that was shared at once. Ranges in its pages are its users; after the
 * last one is removed its pages become private memory again.
 *
 * There is no lock here: register.c's lock guards everything.
 */
#pragma once

#include "guest_lib/memory.h"

#define WEIR_PAGE_BYTES 4096ull

/* Private pages of the program to be shared. */
struct weir_page_run {
    uint64_t first, bytes; /* multiples of the page size */
};

/**
 * Share runs of pages: each becomes a piece without users, or stays as it is.
 *
 * @param runs     sorted, apart from each other, and from all pieces.
 * @param must     share also pages of files, and, where pages may be pinned for other purposes,
 * those that surely are not.
 * @param ret_why  the reason, if a run could not be shared although the host did not refuse it; a
 *                 constant.
 * @return CUDA_SUCCESS, or the error of one run that could not be shared: CUDA_ERROR_NOT_SUPPORTED
 * (*ret_why), CUDA_ERROR_OUT_OF_MEMORY, or an error of the host
 */
CUresult weir_pages_share(struct weir_guest_ctx *ctx, const struct weir_page_run *runs, size_t n,
                          bool must, const char **ret_why);

/**
 * Call fn for each gap between pieces in [first, first + bytes), in order.
 * @return false: fn returned false.
 */
bool weir_pages_visit_gaps(uint64_t first, uint64_t bytes,
                           bool (*fn)(const struct weir_page_run *gap, void *user), void *user);

/**
 * Become a user of all pieces in [first, first + bytes).
 * @param ret_device  the GPU's address of the first page.
 * @return false: some pages are not shared, or they are not contiguous on the GPU.
 */
bool weir_pages_use(uint64_t first, uint64_t bytes, uint64_t *ret_device);

/** Undo weir_pages_use() when no work uses the pages for this user. */
void weir_pages_leave(uint64_t first, uint64_t bytes);

/** Make pieces in [first, first + bytes) that have no users private again. */
void weir_pages_sweep(uint64_t first, uint64_t bytes);

/**
 * @param address     anywhere in the program's memory.
 * @param ret_device  the GPU's address of that byte, if it lies in a piece.
 * @return bytes from there to the end of the piece, or, outside pieces, 0 and in *ret_next those to
 * the next piece, UINT64_MAX if there is none.
 */
uint64_t weir_pages_at(uint64_t address, uint64_t *ret_device, uint64_t *ret_next);

/** Call these around fork(): they give the child copies of the pieces. */
void weir_pages_before_fork(void);
void weir_pages_after_fork(bool child);
