/*
 * nvidia-smi's private table: it ends at once if the library does not have it, and looks at the
 * table's size, in its first word, before it uses a slot. So a table with no slots is enough for it
 * to start and to fall back on NVML's documented functions, or to print N/A.
 *
 * Found by observing nvidia-smi 580.159.04 against this library.
 */
#include "nvml_lib/lib.h"

#include <string.h>

static const void *smi_table[] = {(const void *)(uintptr_t)sizeof(void *)};

const void *weir_nvml_export_table(const uint8_t id[16])
{
    static const uint8_t smi[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                    0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    return memcmp(id, smi, sizeof smi) == 0 ? smi_table : NULL;
}
