/* The fatbin reader against any bytes. */
#include "softgpu/driver/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct weir_soft_image image = {0};
    struct weir_soft_log log = {{0}};
    (void)weir_soft_image_read_sized(data, bytes, 90, &image, &log);
    weir_soft_image_finish(&image);
    return 0;
}
