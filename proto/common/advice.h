/*
 * What a program has said of managed memory, page by page: cuMemAdvise and prefetches, and the
 * answers of cuMemRangeGetAttribute. An allocation has a list of parts; the owner guards it.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_advice_part;

/* Zeroed: nothing was said of the allocation. */
struct weir_advice {
    struct weir_advice_part *parts; /* owned */
    size_t n;
};

/* [address, address + count) of an allocation, which holds it; count is not 0. */
struct weir_advice_span {
    uint64_t base, bytes; /* the allocation */
    uint64_t address, count;
};

/* A prefetch, beside enum CUmem_advise. */
#define WEIR_ADVICE_PREFETCH ((CUmem_advise)0)

/** A device's number or CU_DEVICE_CPU as a location. */
CUmemLocation weir_advice_location(CUdevice device);

/** Does the machine have this NUMA node? Without NUMA, or where /sys is hidden, it has node 0.
 * @thread any; errno stays */
bool weir_advice_is_node(int node);

/**
 * May this be said?
 * @param at      where; gets the node for the calling thread's, and is cleared if it is ignored.
 * @param exists  there is such a device, if it is one.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE
 * @thread any
 */
CUresult weir_advice_check(CUmem_advise advice, CUmemLocation *at, bool exists);

/** Note what was checked. Whole pages are meant. @return false: no memory */
bool weir_advice_say(struct weir_advice *list, const struct weir_advice_span *span,
                     CUmem_advise advice, CUmemLocation at);

/** As cuMemRangeGetAttribute: what holds for all of the span. @param data  `bytes` of the caller's.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE */
CUresult weir_advice_attribute(const struct weir_advice *list, const struct weir_advice_span *span,
                               CUmem_range_attribute attribute, void *data, size_t bytes);

/** The allocation is freed. */
void weir_advice_finish(struct weir_advice *list);
