/* Registered host memory: pages of the program that become shared with the worker. */
#ifndef WEIR_GUEST_LIB_REGISTER_H
#define WEIR_GUEST_LIB_REGISTER_H

#include "guest_lib/memory.h"

/**
 * cuMemHostRegister.
 *
 * The whole pages around the range are replaced, in place, by a sealed memfd of the same content,
 * which the worker maps too. Until weir_register_undo() they are shared memory: a forked child
 * shares them instead of having a copy. Remote: bookkeeping only.
 *
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
 * @return CUDA_ERROR_NOT_SUPPORTED  the range is itself a shared or special mapping.
 * @return CUDA_ERROR_INVALID_VALUE  parts of it are not mapped.
 * @return CUDA_ERROR_OUT_OF_MEMORY, or what the host says
 * @thread any; the program does not write to the range meanwhile
 */
CUresult weir_register_memory(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              unsigned int flags);

/** Make it private memory again, tell the host. */
void weir_register_undo(const struct weir_mem *mem);

#endif
