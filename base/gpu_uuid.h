/* The text of a GPU's UUID. */
#ifndef WEIR_BASE_GPU_UUID_H
#define WEIR_BASE_GPU_UUID_H

#include <stdint.h>

#define WEIR_GPU_UUID_BYTES 41 /* "GPU-" and 36 characters and the NUL */

/** As nvidia-smi -L prints it: "GPU-" and lower-case digits. @thread any */
void weir_gpu_uuid_text(const uint8_t uuid[16], char ret_text[WEIR_GPU_UUID_BYTES]);

#endif
