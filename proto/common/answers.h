/*
 * Answers that the guest library and softgpu both give. Their generated entry points have checked
 * the arguments.
 */
#pragma once

#include "proto/cuda_abi.h"

/** Copy a text into the program's buffer of `room` bytes (at least 1), cut off if it is longer.
 * CUDA_SUCCESS. @thread any */
CUresult weir_answer_text(const char *text, char *buffer, int room);

/** Report that no atomic operation is offered: writes count zeros. CUDA_SUCCESS. @thread any */
CUresult weir_answer_no_atomics(unsigned int *capabilities, unsigned int count);

/** As cuGetErrorName and cuGetErrorString: NULL and CUDA_ERROR_INVALID_VALUE for no error. @thread
 * any */
CUresult weir_answer_error_name(CUresult error, const char **ret_text);
CUresult weir_answer_error_string(CUresult error, const char **ret_text);

/**
 * cuDeviceGetProperties: CUDA_SUCCESS.
 *
 * @param attribute  cuDeviceGetAttribute; an attribute without a value is 0.
 * @thread any
 */
CUresult weir_answer_properties(CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                      CUdevice dev),
                                CUdevice dev, CUdevprop *ret_properties);
