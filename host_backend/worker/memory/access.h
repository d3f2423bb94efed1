/* Device memory of a worker, whosever it is: what it is charged as, who reaches it
 * (memory/access.c).
 */
#pragma once

#include "base/account.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stdint.h>

struct weir_worker;

/** What device memory is charged as: softgpu keeps a file of each piece, NVIDIA's driver none. */
struct weir_amounts weir_device_memory_cost(const struct weir_worker *worker, uint32_t device,
                                            uint64_t bytes);
/** Wait for a stream that clears memory. @return as cuStreamSynchronize() @thread any, with its
 * context */
CUresult weir_memory_cleared(const struct weir_driver *driver, CUstream stream);
/**
 * Give access to mapped memory to its device, and to the devices in `users` (a bit each) that can
 * reach it. Then copies between devices, and kernels that use another device's memory, need no
 * further call. A session's users are the devices that it has used; weir_session_switch() adds
 * later ones.
 */
CUresult weir_memory_access(struct weir_worker *worker, uint32_t device, uint32_t users,
                            uint64_t base, uint64_t bytes, CUmemAccess_flags flags);
/** Give further users access to memory that has been mapped with these flags. Users that cannot
 * reach it are ignored. */
void weir_memory_reach(struct weir_worker *worker, uint32_t device, uint32_t users, uint64_t base,
                       uint64_t bytes, CUmemAccess_flags flags);
