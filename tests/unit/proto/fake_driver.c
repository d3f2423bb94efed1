/* The least that counts as a CUDA driver: a library for test_driver_table.c to load. */
#include "proto/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned int Flags)
{
    return Flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *driverVersion)
{
    *driverVersion = 13000;
    return CUDA_SUCCESS;
}
