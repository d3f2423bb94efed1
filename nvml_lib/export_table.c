/*
 * nvidia-smi's private table of nvmlInternalGetExportTable.
 *
 * Without it nvidia-smi ends at once. nvidia-smi first checks the table's size (its first word),
 * then calls slots by number, and prints N/A where a slot says "not supported". Only this table
 * gives it lists of processes. So all slots that nvidia-smi knows exist, and five of them do
 * something:
 *
 *   0x0b8  (bus id, bus id, unsigned *distance)    what topo -m prints, from 0 PIX to 4 SYS
 *   0x240  (device, unsigned *yes)                 may the device be monitored by pmon and dmon?
 *   0x6a8  (device, unsigned *count, entries)      processes that compute
 *   0x6b0, 0x6b8                                   that draw; that are behind MPS
 *
 * An entry of those lists has 4128 bytes: the first 32 as in the documented list, then the name.
 *
 * Found by black-box observation of nvidia-smi 580.159.04 and 550.163.01 against this library. No
 * code was taken.
 */
#include "nvml_lib/lib.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS          272
#define SLOT_DISTANCE  (0xb8 / 8)
#define SLOT_MONITORED (0x240 / 8)
#define SLOT_COMPUTE   (0x6a8 / 8)
#define SLOT_GRAPHICS  (0x6b0 / 8)
#define SLOT_MPS       (0x6b8 / 8)
#define SLOT_OF(fn)    ((void *)(uintptr_t)(fn))

struct smi_process {
    nvmlProcessDetail_v1_t detail;
    char name[4096];
};
_Static_assert(sizeof(struct smi_process) == 0x1020, "as nvidia-smi allocates them");

static nvmlReturn_t not_supported(void)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

/* A device that the tenant does not own, such as a network adapter, has the largest distance. */
static nvmlReturn_t distance(const char *from, const char *to, unsigned int *ret_distance)
{
    uint32_t level; /* nvmlGpuTopologyLevel_t: 10 one switch, ... 50 across the system */
    nvmlReturn_t result = weir_nvml_distance(from, to, &level);
    if (result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND) {
        level = result == NVML_SUCCESS ? level : 50;
        *ret_distance = level > 10 ? level / 10 - 1 : 0;
        result = NVML_SUCCESS;
    }
    return result;
}

static nvmlReturn_t monitored(nvmlDevice_t device, unsigned int *yes)
{
    uint32_t index;
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    *yes = 1;
    return NVML_SUCCESS;
}

static nvmlReturn_t compute(nvmlDevice_t device, unsigned int *count, struct smi_process *entries)
{
    struct weir_nvml_process_list *list;
    WEIR_TRY(weir_nvml_processes(device, &list));
    bool fits = list->n <= *count;
    for (uint32_t i = 0; fits && i < list->n; i++) {
        memset(&entries[i], 0, sizeof entries[i]);
        entries[i].detail = (nvmlProcessDetail_v1_t){.pid = list->entries[i].pid,
                                                     .usedGpuMemory = list->entries[i].used_bytes,
                                                     .gpuInstanceId = NVML_NOT_AVAILABLE_ID,
                                                     .computeInstanceId = NVML_NOT_AVAILABLE_ID};
        weir_nvml_process_name(&list->entries[i], entries[i].name, sizeof entries[i].name);
    }
    *count = list->n;
    free(list);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count, struct smi_process *entries)
{
    uint32_t index;
    (void)entries;
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    *count = 0;
    return NVML_SUCCESS;
}

static void *smi_table[SLOTS];

static void fill(void)
{
    smi_table[0] = (void *)(uintptr_t)sizeof smi_table;
    for (size_t i = 1; i < SLOTS; i++) {
        smi_table[i] = SLOT_OF(not_supported);
    }
    smi_table[SLOT_DISTANCE] = SLOT_OF(distance);
    smi_table[SLOT_MONITORED] = SLOT_OF(monitored);
    smi_table[SLOT_COMPUTE] = SLOT_OF(compute);
    smi_table[SLOT_GRAPHICS] = SLOT_OF(none);
    smi_table[SLOT_MPS] = SLOT_OF(none);
}

const void *weir_nvml_export_table(const uint8_t id[16])
{
    static const uint8_t smi[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                    0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (memcmp(id, smi, sizeof smi) != 0) {
        return NULL;
    }
    pthread_once(&once, fill);
    return smi_table;
}
