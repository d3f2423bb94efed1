/*
 * Functions of the guest library for generated guest code.
 *
 * The values that programs see for graphs, nodes, instantiated graphs, arrays and mipmapped arrays
 * are the handles themselves (base/id_table.h), so that arrays of them are sent without
 * translation. For the other kinds only weir_guest_use() translates.
 */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/wire/kinds.h"
#include <stdint.h>

struct weir_channel;

/** The session's channel. Valid after WEIR_GUEST_ENTER. @thread any */
struct weir_channel *weir_guest_channel(void);

/**
 * Find the handle of an object that the program passes.
 *
 * @param kind        the required kind; WEIR_KIND_FUNCTION includes kernels.
 * @param value       the program's value, any bits.
 * @param ret_handle  the handle to send.
 * @return CUDA_SUCCESS, or the driver's error for such a value (CUDA_ERROR_INVALID_HANDLE).
 * @thread any
 */
CUresult weir_guest_use(enum weir_kind kind, const void *value, uint64_t *ret_handle);

/**
 * Name an object that the host is about to make.
 *
 * @param ret_handle  the name; the value that the program gets is the handle itself.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_guest_reserve(enum weir_kind kind, uint64_t *ret_handle);

/** Free the name of an object that was destroyed or never made. @thread any */
void weir_guest_drop(enum weir_kind kind, uint64_t handle);

/**
 * Import objects that the host has named (nodes of a captured graph, a graph's event).
 *
 * @param handles  n handles, of this kind or 0; in place, each becomes the value that the program
 * gets.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN (the host's handles are
 * invalid)
 * @thread any
 */
CUresult weir_guest_adopt(enum weir_kind kind, uint64_t *handles, uint32_t n);

/**
 * Find the host's ordinal of a device that the program names.
 *
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_DEVICE
 * @thread any
 */
CUresult weir_guest_device(CUdevice device, int32_t *ret_ordinal);
