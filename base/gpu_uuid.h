/* The text of a GPU's UUID. */
#pragma once

#include <stdint.h>

#define WEIR_GPU_UUID_BYTES 41 /* "GPU-" and 36 characters and the NUL */

/**
 * Write a GPU's UUID in the form that nvidia-smi -L prints: "GPU-" and lower-case hexadecimal
 * digits in groups of 8, 4, 4, 4 and 12, with a NUL.
 * @thread any
 */
void weir_gpu_uuid_text(const uint8_t uuid[16], char ret_text[WEIR_GPU_UUID_BYTES]);
