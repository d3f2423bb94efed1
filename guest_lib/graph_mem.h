/*
 * Memory of graphs, which their allocation nodes return.
 *
 * A block is cut from the context's heap when its node is made, and keeps its address for as long
 * as anything can execute the graph: the driver sees allocation and free nodes as empty nodes, and
 * the guest records whether a block is *live* (allocated by a launch, not yet freed).
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_guest_ctx;
struct weir_guest_stream;

/** Note a block of a graph's memory; it is not live. @thread any */
CUresult weir_graph_mem_new(struct weir_guest_ctx *ctx, uint64_t bytes, uint64_t *ret_base);

/** Is there such a block? @thread any */
bool weir_graph_mem_known(uint64_t base);

/**
 * Nothing can execute the block's graph any more, and no launch of it runs: a live block becomes
 * ordinary memory of the program, any other is freed.
 */
void weir_graph_mem_drop(uint64_t base);

/** Note that a launch has allocated the block (live), or freed it. @thread any */
void weir_graph_mem_set_live(uint64_t base, bool live);
bool weir_graph_mem_is_live(uint64_t base);

/** Is the address a block that the program now frees directly? If so, *ret_result is the call's
 * result.
 * @thread any */
bool weir_graph_mem_free(uint64_t base, CUresult *ret_result);

/**
 * cuMemAllocAsync and cuMemFreeAsync become nodes in a captured stream. False: it is not captured,
 * or, if *ret_result is an error, this could not be found out.
 */
bool weir_graph_capture_alloc(struct weir_guest_stream *stream, CUstream handle, uint64_t bytes,
                              CUdeviceptr *ret_address, CUresult *ret_result);
bool weir_graph_capture_free(struct weir_guest_stream *stream, CUstream handle, CUdeviceptr address,
                             CUresult *ret_result);
