/*
 * Devices, their memory, and facts that need no question to the host: a device is not divided, and
 * no other tenant's device is visible.
 */
#include "nvml_lib/lib.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DEVICES_MAX       16
#define UUID_TEXT         1u
#define UUID_BINARY       2u
#define TEXT_BYTES        96
#define P2P_OK            0u
#define P2P_NOT_SUPPORTED 5u
#define P2P_WRITE         1u /* indices of P2P capabilities: read is 0, write is 1, */
#define P2P_NVLINK        2u
#define P2P_ATOMICS       3u /* between GPUs they need NVLink */
#define LINKS_MAX         18u
#define FIELDS_MAX        256

#define EXPORT(name, parameters)                                                                   \
    WEIR_NVML_EXPORT nvmlReturn_t name parameters;                                                 \
    nvmlReturn_t name parameters

/* A handle is the address of such a struct; the content is never read. */
struct nvmlDevice_st {
    uint32_t index;
};
static struct nvmlDevice_st devices[DEVICES_MAX];

nvmlDevice_t weir_nvml_device(uint32_t index)
{
    return index < DEVICES_MAX ? &devices[index] : NULL;
}

static bool index_of(nvmlDevice_t device, uint32_t *ret_index)
{
    uint32_t count = weir_nvml_session()->device_count();
    for (uint32_t i = 0; i < count && i < DEVICES_MAX; i++) {
        if (device == &devices[i]) {
            *ret_index = i;
            return true;
        }
    }
    return false;
}

nvmlReturn_t weir_nvml_enter_device(nvmlDevice_t device, uint32_t *ret_index)
{
    WEIR_TRY(weir_nvml_enter());
    WEIR_FAIL_IF(!index_of(device, ret_index), NVML_ERROR_INVALID_ARGUMENT);
    return NVML_SUCCESS;
}

/* Check that the library is initialised, the device valid and the output pointer set. */
static nvmlReturn_t enter_with(nvmlDevice_t device, const void *out)
{
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    return result == NVML_SUCCESS && !out ? NVML_ERROR_INVALID_ARGUMENT : result;
}

static nvmlReturn_t enter_system(const void *out)
{
    nvmlReturn_t result = weir_nvml_enter();
    return result == NVML_SUCCESS && !out ? NVML_ERROR_INVALID_ARGUMENT : result;
}

/* ---------------------------------------------------------------- which devices */

EXPORT(nvmlDeviceGetCount_v2, (unsigned int *count))
{
    WEIR_TRY(enter_system(count));
    *count = weir_nvml_session()->device_count();
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetCount, (unsigned int *count))
{
    return nvmlDeviceGetCount_v2(count);
}

EXPORT(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, nvmlDevice_t *device))
{
    WEIR_TRY(enter_system(device));
    WEIR_FAIL_IF(index >= weir_nvml_session()->device_count() || index >= DEVICES_MAX,
                 NVML_ERROR_INVALID_ARGUMENT);
    *device = &devices[index];
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetHandleByIndex, (unsigned int index, nvmlDevice_t *device))
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Find the device for which a carried function returns this text. */
static nvmlReturn_t find_by_text(const char *function, const char *text, nvmlDevice_t *device)
{
    nvmlReturn_t result = enter_system(device);
    if (result != NVML_SUCCESS || !text) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    uint32_t count = weir_nvml_session()->device_count();
    for (uint32_t i = 0; i < count; i++) {
        char have[TEXT_BYTES];
        result = weir_nvml_carry_text(&devices[i], true, function, NULL, have, sizeof have);
        if (result == NVML_SUCCESS && strcasecmp(have, text) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

EXPORT(nvmlDeviceGetHandleByUUID, (const char *uuid, nvmlDevice_t *device))
{
    return find_by_text("nvmlDeviceGetUUID", uuid, device);
}

EXPORT(nvmlDeviceGetHandleBySerial, (const char *serial, nvmlDevice_t *device))
{
    return find_by_text("nvmlDeviceGetSerial", serial, device);
}

EXPORT(nvmlDeviceGetHandleByUUIDV, (const nvmlUUID_v1_t *uuid, nvmlDevice_t *device))
{
    char text[sizeof uuid->value.str + 1] = "";
    WEIR_TRY(enter_system(uuid));
    WEIR_FAIL_IF(uuid->version != WEIR_NVML_VERSION(sizeof *uuid, 1),
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (uuid->type == UUID_TEXT) {
        memcpy(text, uuid->value.str, sizeof uuid->value.str);
    } else if (uuid->type == UUID_BINARY) {
        const uint8_t *u = uuid->value.bytes;
        snprintf(text, sizeof text,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                 u[14], u[15]);
    } else {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return nvmlDeviceGetHandleByUUID(text, device);
}

/* "domain:bus:device.function" or "bus:device.function", in hexadecimal. */
static bool parse_bus_id(const char *text, unsigned int ret_id[3])
{
    ret_id[0] = 0;
    return sscanf(text, "%x:%x:%x", &ret_id[0], &ret_id[1], &ret_id[2]) == 3 ||
           (ret_id[0] = 0, sscanf(text, "%x:%x", &ret_id[1], &ret_id[2]) == 2);
}

EXPORT(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus_id, nvmlDevice_t *device))
{
    unsigned int id[3];
    WEIR_TRY(enter_system(device));
    WEIR_FAIL_IF(!bus_id || !parse_bus_id(bus_id, id), NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = NVML_SUCCESS;
    uint32_t count = weir_nvml_session()->device_count();
    for (uint32_t i = 0; i < count; i++) {
        nvmlPciInfo_t pci;
        struct weir_nvml_carry carry = {
            .function = "nvmlDeviceGetPciInfo_v3", .data = &pci, .out_bytes = sizeof pci};
        result = weir_nvml_carry(&devices[i], true, &carry);
        if (result == NVML_SUCCESS && pci.domain == id[0] && pci.bus == id[1] &&
            pci.device == id[2]) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

EXPORT(nvmlDeviceGetHandleByPciBusId, (const char *bus_id, nvmlDevice_t *device))
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* Returns the guest's number of the device, not the host's. */
EXPORT(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned int *index))
{
    WEIR_TRY(enter_with(device, index));
    return weir_nvml_enter_device(device, index);
}

/* ---------------------------------------------------------------- memory */

static nvmlReturn_t memory_of(nvmlDevice_t device, const void *out, nvmlMemory_t *ret_memory)
{
    uint32_t index;
    uint64_t free_bytes, total_bytes;
    WEIR_TRY(enter_with(device, out));
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    WEIR_TRY(weir_nvml_session()->memory(index, &free_bytes, &total_bytes));
    *ret_memory =
        (nvmlMemory_t){.total = total_bytes, .free = free_bytes, .used = total_bytes - free_bytes};
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t *memory))
{
    nvmlMemory_t got;
    WEIR_TRY(memory_of(device, memory, &got));
    *memory = got;
    return NVML_SUCCESS;
}

/* Reports no reserved memory; the total is that of cuMemGetInfo. */
EXPORT(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory))
{
    nvmlMemory_t got;
    WEIR_TRY(enter_with(device, memory));
    WEIR_FAIL_IF(memory->version != WEIR_NVML_VERSION(sizeof *memory, 2),
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    WEIR_TRY(memory_of(device, memory, &got));
    memory->total = got.total;
    memory->reserved = 0;
    memory->free = got.free;
    memory->used = got.used;
    return NVML_SUCCESS;
}

/* ---------------------------------------------------------------- neighbours and divisions */

static bool is_linked(nvmlDevice_t device)
{
    for (uint32_t link = 0; link < LINKS_MAX; link++) {
        uint32_t active = 0;
        struct weir_nvml_carry carry = {.function = "nvmlDeviceGetNvLinkState",
                                        .arguments = {link},
                                        .data = &active,
                                        .out_bytes = sizeof active};
        if (weir_nvml_carry(device, true, &carry) == NVML_SUCCESS && active != 0) {
            return true;
        }
    }
    return false;
}

/* At its start NCCL also asks this about a device and itself, and accepts no error. */
EXPORT(nvmlDeviceGetP2PStatus,
       (nvmlDevice_t device, nvmlDevice_t peer, unsigned int capability, unsigned int *status))
{
    uint32_t one, other;
    WEIR_TRY(enter_with(device, status));
    WEIR_TRY(weir_nvml_enter_device(device, &one));
    WEIR_TRY(weir_nvml_enter_device(peer, &other));
    bool can = capability <= P2P_ATOMICS && weir_nvml_session()->can_access(one, other);
    if (can && capability > P2P_WRITE) {
        can = is_linked(device) && is_linked(peer);
    }
    *status = can ? P2P_OK : P2P_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

nvmlReturn_t weir_nvml_distance(const char *from, const char *to, uint32_t *ret_level)
{
    nvmlDevice_t device, peer;
    uint32_t level = 0;
    struct weir_nvml_carry carry = {.function = "nvmlDeviceGetTopologyCommonAncestor",
                                    .data = &level,
                                    .out_bytes = sizeof level};
    nvmlReturn_t result = nvmlDeviceGetHandleByPciBusId_v2(from, &device);
    result = result == NVML_SUCCESS ? nvmlDeviceGetHandleByPciBusId_v2(to, &peer) : result;
    result = result == NVML_SUCCESS ? weir_nvml_enter_device(peer, &carry.arguments[0]) : result;
    result = result == NVML_SUCCESS ? weir_nvml_carry(device, true, &carry) : result;
    *ret_level = level;
    return result;
}

/* The other devices of the tenant that are no farther than level. */
EXPORT(nvmlDeviceGetTopologyNearestGpus,
       (nvmlDevice_t device, unsigned int level, unsigned int *count, nvmlDevice_t *list))
{
    unsigned int n = 0;
    nvmlReturn_t result = enter_with(device, count);
    if (result != NVML_SUCCESS || (*count && !list)) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    uint32_t all = weir_nvml_session()->device_count();
    for (uint32_t i = 0; i < all && i < DEVICES_MAX; i++) {
        uint32_t far = 0;
        struct weir_nvml_carry carry = {.function = "nvmlDeviceGetTopologyCommonAncestor",
                                        .arguments = {i},
                                        .data = &far,
                                        .out_bytes = sizeof far};
        if (device == &devices[i] || weir_nvml_carry(device, true, &carry) != NVML_SUCCESS ||
            far > level) {
            continue;
        }
        if (n < *count) {
            list[n] = &devices[i];
        }
        n++;
    }
    *count = n;
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceOnSameBoard, (nvmlDevice_t device, nvmlDevice_t other, int *same))
{
    WEIR_TRY(enter_with(device, same));
    WEIR_TRY(enter_with(other, same));
    *same = device == other;
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t device, unsigned int *is_mig))
{
    WEIR_TRY(enter_with(device, is_mig));
    *is_mig = 0;
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceValidateInforom, (nvmlDevice_t device))
{
    uint32_t index;
    return weir_nvml_enter_device(device, &index);
}

/* ---------------------------------------------------------------- fields */

/* Each field has a result of its own; the call fails only for bad arguments. */
EXPORT(nvmlDeviceGetFieldValues, (nvmlDevice_t device, int count, nvmlFieldValue_t *values))
{
    nvmlReturn_t result = enter_with(device, values);
    if (result != NVML_SUCCESS || count <= 0 || count > FIELDS_MAX) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t got;
        struct weir_nvml_carry carry = {.function = "nvmlDeviceGetFieldValues",
                                        .arguments = {values[i].fieldId, values[i].scopeId},
                                        .data = &got,
                                        .out_bytes = sizeof got};
        result = weir_nvml_carry(device, true, &carry);
        if (result == NVML_SUCCESS) {
            values[i] = got;
        } else if (result == NVML_ERROR_GPU_IS_LOST) {
            return result;
        } else {
            values[i].nvmlReturn = result;
        }
    }
    return NVML_SUCCESS;
}

/* ---------------------------------------------------------------- the system */

/* Works without nvmlInit, too. */
EXPORT(nvmlSystemGetCudaDriverVersion_v2, (int *version))
{
    return version ? weir_nvml_cuda_version(version) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT(nvmlSystemGetCudaDriverVersion, (int *version))
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

static nvmlReturn_t none(unsigned int *count)
{
    WEIR_TRY(enter_system(count));
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT(nvmlUnitGetCount, (unsigned int *count))
{
    return none(count);
}

EXPORT(nvmlGetBlacklistDeviceCount, (unsigned int *count))
{
    return none(count);
}

EXPORT(nvmlGetExcludedDeviceCount, (unsigned int *count))
{
    return none(count);
}
