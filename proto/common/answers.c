#include "proto/common/answers.h"
#include "proto/errors.h"

#include <stdio.h>
#include <string.h>

CUresult weir_answer_text(const char *text, char *buffer, int room)
{
    (void)snprintf(buffer, (size_t)room, "%s", text);
    return CUDA_SUCCESS;
}

CUresult weir_answer_no_atomics(unsigned int *capabilities, unsigned int count)
{
    memset(capabilities, 0, count * sizeof(*capabilities));
    return CUDA_SUCCESS;
}

CUresult weir_answer_properties(CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                      CUdevice dev),
                                CUdevice dev, CUdevprop *ret_properties)
{
    CUdevprop p = {0};
    const struct {
        CUdevice_attribute id;
        int *value;
    } rows[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p.maxThreadsPerBlock},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &p.maxThreadsDim[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &p.maxThreadsDim[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &p.maxThreadsDim[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &p.maxGridSize[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &p.maxGridSize[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &p.maxGridSize[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &p.sharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &p.totalConstantMemory},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p.SIMDWidth},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &p.memPitch},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &p.regsPerBlock},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &p.clockRate},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &p.textureAlign},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)attribute(rows[i].value, rows[i].id, dev);
    }
    *ret_properties = p;
    return CUDA_SUCCESS;
}

CUresult weir_answer_error_name(CUresult error, const char **ret_text)
{
    *ret_text = weir_cuda_error_name(error);
    return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_answer_error_string(CUresult error, const char **ret_text)
{
    *ret_text = weir_cuda_error_string(error);
    return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
