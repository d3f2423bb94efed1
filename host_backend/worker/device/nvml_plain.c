/*
 * Answers about a device without NVML: with softgpu, or if a host has no libnvidia-ml.so.1. The
 * answers come from the description that guests get at the handshake; other questions are not
 * supported.
 */
#include "host_backend/worker/device/nvml.h"

#include "base/gpu_uuid.h"
#include "proto/cuda_abi.h"
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE_UNKNOWN 0xffffffffu
#define BRAND_NVIDIA         14
/* NVLink as nvml.h has it: 18 links of the fourth generation, to a switch. */
#define LINKS                18u
#define LINK_VERSION         6u
#define LINK_TO_SWITCH       2u
#define ANCESTOR_HOST_BRIDGE 30u /* as two GPUs of one socket have it */
#define FIELD_LINK_COUNT     91u
#define FIELD_SWITCH_LINKS   147 /* NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT */
#define FIELD_LINK_STATE     165u
#define FIELD_UNSIGNED       1u

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

    WEIR_FAIL_IF(answer->n_data != sizeof pci, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
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

    WEIR_FAIL_IF(domain > 2 || attribute(device, id) == 0, NVML_ERROR_NOT_SUPPORTED);
    return give_words(answer, attribute(device, id) / 1000, 0);
}

/* Confidential computing is off; clients do not accept "not supported" as that answer. */
static nvmlReturn_t give_zeros(struct weir_nvml_answer *answer, bool versioned)
{
    uint32_t kept = versioned ? sizeof(uint32_t) : 0;

    memset(answer->data + kept, 0, answer->n_data - kept);
    return NVML_SUCCESS;
}

/* Can the device make atomic operations in another device's memory? NVIDIA's can over NVLink
 * only. */
static bool is_linked(const struct weir_device *device)
{
    for (uint32_t peer = 0; peer < WEIR_CONTROL_MAX_DEVICES; peer++) {
        uint64_t value;
        char key[32];

        snprintf(key, sizeof key, "p2p.%u.%d", peer,
                 CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
        if (weir_device_fact_get(device, key, &value) && value != 0) {
            return true;
        }
    }
    return false;
}

/* Answer about a link: all links are up, to a switch. */
static nvmlReturn_t give_link(const char *what, uint32_t link, struct weir_nvml_answer *answer)
{
    WEIR_FAIL_IF(link >= LINKS, NVML_ERROR_INVALID_ARGUMENT);
    if (strncmp(what, "NvLinkRemotePciInfo", strlen("NvLinkRemotePciInfo")) == 0) {
        memset(answer->data, 0xff, answer->n_data); /* ops/nvml.c hides it */
        return NVML_SUCCESS;
    }
    if (strcmp(what, "NvLinkErrorCounter") == 0) {
        return give_zeros(answer, false);
    }
    return give_words(answer,
                      strcmp(what, "NvLinkVersion") == 0            ? LINK_VERSION
                      : strcmp(what, "NvLinkRemoteDeviceType") == 0 ? LINK_TO_SWITCH
                                                                    : 1,
                      0);
}

/* A field of nvmlDeviceGetFieldValues. */
static nvmlReturn_t give_field(const struct weir_device *device, const uint32_t *arguments,
                               struct weir_nvml_answer *answer)
{
    nvmlFieldValue_t *field = (nvmlFieldValue_t *)(void *)answer->data;
    bool counts = arguments[0] == FIELD_LINK_COUNT || arguments[0] == FIELD_SWITCH_LINKS;

    WEIR_FAIL_IF(!is_linked(device) || (!counts && arguments[0] != FIELD_LINK_STATE),
                 NVML_ERROR_NOT_SUPPORTED);
    *field = (nvmlFieldValue_t){.fieldId = arguments[0],
                                .scopeId = arguments[1],
                                .valueType = FIELD_UNSIGNED,
                                .nvmlReturn = NVML_SUCCESS};
    memcpy(field->value, &(uint32_t){counts ? LINKS : arguments[1] < LINKS}, sizeof(uint32_t));
    return NVML_SUCCESS;
}

/* Answer a call by its name. The function is a flat chain of names. */
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
    if (strncmp(what, "NvLink", strlen("NvLink")) == 0) {
        return is_linked(device) ? give_link(what, arguments[0], answer) : NVML_ERROR_NOT_SUPPORTED;
    }
    if (IS("FieldValues")) {
        return give_field(device, arguments, answer);
    }
    if (IS("TopologyCommonAncestor")) {
        return give_words(answer, ANCESTOR_HOST_BRIDGE, 0);
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
    for (size_t i = 0; i < WEIR_COUNT(numbers); i++) {
        if (IS(numbers[i].name)) {
            return give_words(answer, numbers[i].value, 0);
        }
    }
#undef IS
    return NVML_ERROR_NOT_SUPPORTED;
}
