/* The CUDA ABI as the driver half sees it: types, and the entries that it fills. */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/softgpu_hand.h"
