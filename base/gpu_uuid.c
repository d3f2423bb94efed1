#include "base/gpu_uuid.h"
#include <string.h>

void weir_gpu_uuid_text(const uint8_t uuid[16], char ret_text[WEIR_GPU_UUID_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char *at = ret_text + 4;

    memcpy(ret_text, "GPU-", 4);
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *at++ = '-';
        }
        *at++ = digits[uuid[i] >> 4];
        *at++ = digits[uuid[i] & 15];
    }
    *at = 0;
}
