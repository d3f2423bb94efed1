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
