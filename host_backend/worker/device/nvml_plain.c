/*
 * What can be said of a device without NVML: with softgpu, or where a host has no
 * libnvidia-ml.so.1. From the description that guests get at the handshake; what it does not tell
 * is not supported.
 */
#include "host_backend/worker/device/nvml.h"

#include "base/gpu_uuid.h"
#include "proto/cuda_abi.h"
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE_UNKNOWN 0xffffffffu
#define BRAND_NVIDIA         14

static uint32_t attribute(const struct weir_device *device, CUdevice_attribute id)
{
    const struct weir_device_attribute *found = weir_device_attribute_get(device, (int32_t)id);

    return found && found->result == 0 ? (uint32_t)found->value : 0;
}

static nvmlReturn_t give_text(struct weir_nvml_answer *answer, const char *text)
{
    size_t bytes = strlen(text) + 1;

    if (bytes > answer->n_data) {
        answer->n_data = 0;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    memcpy(answer->data, text, bytes);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_words(struct weir_nvml_answer *answer, uint32_t a, uint32_t b)
{
    memcpy(answer->data, &a, sizeof a);
    memcpy(answer->data + sizeof a, &b, sizeof b);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_uuid(const struct weir_device *device, struct weir_nvml_answer *answer)
{
    char text[WEIR_GPU_UUID_BYTES];

    weir_gpu_uuid_text(device->uuid, text);
    return give_text(answer, text);
}

static uint32_t architecture(const struct weir_device *device)
{
    uint32_t major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    uint32_t minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);

    switch (major) {
    case 5: /* Maxwell, and Pascal after it */
    case 6:
        return major - 2;
    case 7: /* Volta, Turing */
        return minor < 5 ? 5 : 6;
    case 8: /* Ampere, Ada */
        return minor < 9 ? 7 : 8;
    case 9:
        return 9;
    case 10:
    case 11:
    case 12:
        return 10;
    default:
        return ARCHITECTURE_UNKNOWN;
    }
}

static nvmlPciInfo_t pci_info(const struct weir_device *device)
{
    nvmlPciInfo_t pci = {
        .domain = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        .bus = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        .device = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
        .pciDeviceId = attribute(device, CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID),
        .pciSubSystemId = attribute(device, CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID),
    };

    snprintf(pci.busId, sizeof pci.busId, "%08X:%02X:%02X.0", pci.domain, pci.bus & 0xff,
             pci.device & 0xff);
    snprintf(pci.busIdLegacy, sizeof pci.busIdLegacy, "%04X:%02X:%02X.0", pci.domain & 0xffff,
             pci.bus & 0xff, pci.device & 0xff);
    return pci;
}

static nvmlReturn_t give_pci(const struct weir_device *device, struct weir_nvml_answer *answer)
{
    nvmlPciInfo_t pci = pci_info(device);

    memcpy(answer->data, &pci, answer->n_data < sizeof pci ? answer->n_data : sizeof pci);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_pci_ext(const struct weir_device *device, struct weir_nvml_answer *answer)
{
    nvmlPciInfo_t from = pci_info(device);
    nvmlPciInfoExt_v1_t pci = {.version = WEIR_NVML_VERSION(sizeof pci, 1),
                               .domain = from.domain,
                               .bus = from.bus,
                               .device = from.device,
                               .pciDeviceId = from.pciDeviceId,
                               .pciSubSystemId = from.pciSubSystemId,
                               .baseClass = 3, /* display controller, 3D */
                               .subClass = 2};

    if (answer->n_data != sizeof pci) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    memcpy(pci.busId, from.busId, sizeof pci.busId);
    memcpy(answer->data, &pci, sizeof pci);
    return NVML_SUCCESS;
}

/* Clock domains: graphics, SM, memory, video. */
static nvmlReturn_t give_max_clock(const struct weir_device *device, uint32_t domain,
                                   struct weir_nvml_answer *answer)
{
    CUdevice_attribute id =
        domain == 2 ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE : CU_DEVICE_ATTRIBUTE_CLOCK_RATE;

    if (domain > 2 || attribute(device, id) == 0) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return give_words(answer, attribute(device, id) / 1000, 0);
}

/* Confidential computing is off; clients do not accept "not supported" as that answer. */
static nvmlReturn_t give_zeros(struct weir_nvml_answer *answer, bool versioned)
{
    uint32_t kept = versioned ? sizeof(uint32_t) : 0;

    memset(answer->data + kept, 0, answer->n_data - kept);
    return NVML_SUCCESS;
}

/* One flat chain: a name, an answer. */
nvmlReturn_t weir_nvml_plain(const struct weir_device *device, const struct weir_nvml_row *row,
                             const uint32_t *arguments, struct weir_nvml_answer *answer)
{
    static const char prefix[] = "nvmlDeviceGet";
    bool of_device = strncmp(row->name, prefix, sizeof prefix - 1) == 0;
    const char *what = row->name + (of_device ? sizeof prefix - 1 : 0);
    uint32_t ecc = attribute(device, CU_DEVICE_ATTRIBUTE_ECC_ENABLED);

#define IS(text) (strcmp(what, text) == 0)
    if (IS("Name")) {
        return give_text(answer, device->name);
    }
    if (IS("UUID")) {
        return give_uuid(device, answer);
    }
    if (IS("nvmlSystemGetDriverVersion") || IS("nvmlSystemGetNVMLVersion")) {
        return give_text(answer, WEIR_VERSION);
    }
    if (IS("PciInfo") || IS("PciInfo_v2") || IS("PciInfo_v3")) {
        return give_pci(device, answer);
    }
    if (IS("PciInfoExt")) {
        return give_pci_ext(device, answer);
    }
    if (IS("CudaComputeCapability")) {
        return give_words(answer, attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                          attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
    }
    if (IS("EccMode")) {
        return give_words(answer, ecc, ecc);
    }
    if (IS("MaxClockInfo")) {
        return give_max_clock(device, arguments[0], answer);
    }
    if (IS("nvmlSystemGetConfComputeState") || IS("nvmlSystemGetConfComputeCapabilities")) {
        return give_zeros(answer, false);
    }
    if (IS("nvmlSystemGetConfComputeSettings")) {
        return give_zeros(answer, true);
    }
    struct {
        const char *name;
        uint32_t value;
    } const numbers[] = {
        {"Architecture", architecture(device)},
        {"BoardId", attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) << 8 |
                        attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)},
        {"Brand", BRAND_NVIDIA},
        {"ComputeMode", attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)},
        {"DefaultEccMode", ecc},
        {"DisplayActive", 0},
        {"DisplayMode", 0},
        {"MaxMigDeviceCount", 0},
        {"MemoryBusWidth", attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)},
        {"MinorNumber", 0},
        {"MultiGpuBoard", attribute(device, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD)},
        {"NumFans", 0},
        {"VirtualizationMode", 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (IS(numbers[i].name)) {
            return give_words(answer, numbers[i].value, 0);
        }
    }
#undef IS
    return NVML_ERROR_NOT_SUPPORTED;
}
