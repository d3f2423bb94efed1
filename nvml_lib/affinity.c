/*
 * Which processors and memory of the program's machine are near a device. If the machine has no
 * NVIDIA device at the address (a VM, a remote guest), all are equally near.
 */
#include "base/file_text.h"
#include "nvml_lib/lib.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VENDOR     "0x10de"
#define TEXT_BYTES 1024
#define WORD_BITS  (8 * sizeof(unsigned long))

#define EXPORT(name, parameters)                                                                   \
    WEIR_NVML_EXPORT nvmlReturn_t name parameters;                                                 \
    nvmlReturn_t name parameters

/* "0-27,56-83" */
static bool read_list(const char *path, cpu_set_t *ret_set)
{
    char text[TEXT_BYTES];
    CPU_ZERO(ret_set);
    WEIR_FAIL_IF(!weir_file_text(path, text, sizeof text), false);
    for (char *at = text, *end; *at; at = *end == ',' ? end + 1 : end + strlen(end)) {
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (; end != at && first <= last && first < CPU_SETSIZE; first++) {
            CPU_SET(first, ret_set);
        }
    }
    return CPU_COUNT(ret_set) > 0;
}

/* Read a list from `file` in the device's folder; without such a device, the machine's list. */
static nvmlReturn_t near(nvmlDevice_t device, const char *file, const char *elsewhere,
                         cpu_set_t *ret_set)
{
    nvmlPciInfo_t pci;
    struct weir_nvml_carry carry = {
        .function = "nvmlDeviceGetPciInfo_v3", .data = &pci, .out_bytes = sizeof pci};
    WEIR_TRY(weir_nvml_carry(device, true, &carry));
    int saved = errno;
    char folder[64], path[96], text[TEXT_BYTES];
    snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%04x:%02x:%02x.0", pci.domain, pci.bus,
             pci.device);
    snprintf(path, sizeof path, "%s/vendor", folder);
    bool here =
        weir_file_text(path, text, sizeof text) && strncmp(text, VENDOR, strlen(VENDOR)) == 0;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    bool known = (here && read_list(path, ret_set)) || read_list(elsewhere, ret_set);
    errno = saved;
    return known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Set the affinity of the calling thread alone. If the program may use none of the processors, it
 * stays unchanged. */
static nvmlReturn_t stay_on(const cpu_set_t *set)
{
    int saved = errno;
    int result = sched_setaffinity(0, sizeof *set, set);
    errno = saved;
    return result == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t near_processors(nvmlDevice_t device, cpu_set_t *ret_set)
{
    return near(device, "local_cpulist", "/sys/devices/system/cpu/online", ret_set);
}

static nvmlReturn_t give_set(nvmlReturn_t result, const cpu_set_t *found, unsigned int words,
                             unsigned long *set)
{
    if (result != NVML_SUCCESS) {
        return result;
    }
    memset(set, 0, words * sizeof *set);
    for (size_t i = 0; i < CPU_SETSIZE && i / WORD_BITS < words; i++) {
        if (CPU_ISSET(i, found)) {
            set[i / WORD_BITS] |= 1ul << i % WORD_BITS;
        }
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t enter_set(nvmlDevice_t device, unsigned int words, const unsigned long *set)
{
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    return result == NVML_SUCCESS && (!set || words == 0) ? NVML_ERROR_INVALID_ARGUMENT : result;
}

EXPORT(nvmlDeviceGetCpuAffinity, (nvmlDevice_t device, unsigned int words, unsigned long *set))
{
    cpu_set_t processors;
    nvmlReturn_t result = enter_set(device, words, set);
    result = result == NVML_SUCCESS ? near_processors(device, &processors) : result;
    return give_set(result, &processors, words, set);
}

EXPORT(nvmlDeviceGetMemoryAffinity,
       (nvmlDevice_t device, unsigned int words, unsigned long *set, unsigned int scope))
{
    cpu_set_t nodes;
    (void)scope;
    nvmlReturn_t result = enter_set(device, words, set);
    result = result == NVML_SUCCESS
                 ? near(device, "numa_node", "/sys/devices/system/node/online", &nodes)
                 : result;
    return give_set(result, &nodes, words, set);
}

EXPORT(nvmlDeviceGetCpuAffinityWithinScope,
       (nvmlDevice_t device, unsigned int words, unsigned long *set, unsigned int scope))
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, words, set);
}

EXPORT(nvmlDeviceSetCpuAffinity, (nvmlDevice_t device))
{
    uint32_t index;
    cpu_set_t processors;
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    WEIR_TRY(near_processors(device, &processors));
    return stay_on(&processors);
}

EXPORT(nvmlDeviceClearCpuAffinity, (nvmlDevice_t device))
{
    uint32_t index;
    cpu_set_t all;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    memset(&all, 0xff, sizeof all);
    return result == NVML_SUCCESS ? stay_on(&all) : result;
}
