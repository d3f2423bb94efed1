/* The CUDA ABI as the driver half sees it: types, and the entries that it fills. */
#ifndef WEIR_SOFTGPU_DRIVER_CUDA_TYPES_H
#define WEIR_SOFTGPU_DRIVER_CUDA_TYPES_H

#include "proto/cuda_abi.h"
#include "proto/softgpu_hand.h"

#endif
