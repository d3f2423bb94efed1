#include "guest_lib/visible.h"
#include "proto/common/visible.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Features that this library does not support. It reports them as missing, so that libraries take
 * another path instead of failing. */
static const struct {
    CUdevice_attribute id;
    int value;
} overrides[] = {
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0},
    {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0},
    {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0},
};

static void fill_attributes(struct weir_guest_device *device, const struct weir_device *from,
                            bool co_located, bool passes_fds)
{
    for (uint32_t i = 0; i < from->n_attributes; i++) {
        const struct weir_device_attribute *attribute = &from->attributes[i];
        /* If the host's driver is too old for an attribute, report 0: cudart could not start after
         * an error. */
        if (attribute->id > 0 && attribute->id < WEIR_GUEST_MAX_ATTRIBUTES &&
            attribute->result == CUDA_SUCCESS) {
            device->attributes[attribute->id] = (int)attribute->value;
        }
    }
    for (size_t i = 0; i < WEIR_COUNT(overrides); i++) {
        device->attributes[overrides[i].id] = overrides[i].value;
    }
    /* No concurrent access: allocations are shared, but __managed__ variables copied
     * (managed.c). */
    device->attributes[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = co_located;
    device->attributes[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 0;
    device->attributes[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1;
    /* The worker may have the range in use itself, and then the device address differs. */
    device->attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 0;
    /* Descriptors can be passed between processes of this machine. */
    device->attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] =
        passes_fds;
    device->attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] =
        passes_fds ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    if (!passes_fds) { /* memory of the host is a file that worker and guest map (vmm.c) */
        device->attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
        device->attributes[CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 0;
    }
    if (!co_located) {
        device->attributes[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 0;
    }
}

static void fill_peers(struct weir_guest_device *device, const struct weir_device *from,
                       uint32_t n_devices)
{
    for (uint32_t peer = 0; peer < n_devices; peer++) {
        char key[32];
        uint64_t value;
        snprintf(key, sizeof key, "peer.%u", peer);
        if (weir_device_fact_get(from, key, &value) && value) {
            device->peers |= 1u << peer;
        }
        for (int id = 1; id < WEIR_GUEST_P2P_ATTRIBUTES; id++) {
            snprintf(key, sizeof key, "p2p.%u.%d", peer, id);
            if (weir_device_fact_get(from, key, &value)) {
                device->p2p[peer][id] = (uint8_t)value;
            }
        }
    }
}

static void fill_device(struct weir_guest_device *device, const struct weir_welcome *welcome,
                        int ordinal, bool co_located, bool passes_fds)
{
    const struct weir_device *from = &welcome->devices[ordinal];
    memset(device, 0, sizeof *device);
    device->host_ordinal = ordinal;
    memcpy(device->name, from->name, sizeof device->name);
    device->name[sizeof device->name - 1] = '\0';
    memcpy(&device->uuid, from->uuid, sizeof device->uuid);
    memcpy(device->luid, from->luid, sizeof device->luid);
    device->luid_mask = from->luid_mask;
    memcpy(device->pci_bus_id, from->pci_bus_id, sizeof device->pci_bus_id);
    device->total_bytes = from->total_memory_bytes;
    if (welcome->memory_quota_bytes && welcome->memory_quota_bytes < device->total_bytes) {
        device->total_bytes = welcome->memory_quota_bytes;
    }
    device->real = from->real;
    device->priority_least = from->stream_priority_least;
    device->priority_greatest = from->stream_priority_greatest;
    fill_attributes(device, from, co_located, passes_fds);
    fill_peers(device, from, welcome->n_devices);
    (void)weir_device_fact_get(from, WEIR_DEVICE_FACT_SMS, &device->affinity_sms);
    for (unsigned int limit = 0; limit < WEIR_CTX_LIMITS; limit++) {
        char key[16];
        snprintf(key, sizeof key, "limit.%u", limit);
        if (weir_device_fact_get(from, key, &device->limits[limit])) {
            device->limits_known |= 1u << limit;
        }
    }
}

int weir_visible_devices(const struct weir_welcome *welcome, const char *list,
                         struct weir_guest_device *devices, bool co_located, bool passes_fds)
{
    int ordinals[WEIR_GUEST_MAX_DEVICES];
    int found = (int)welcome->n_devices;
    for (int i = 0; i < found; i++) {
        ordinals[i] = i;
    }
    if (list) {
        CUuuid uuids[WEIR_GUEST_MAX_DEVICES];
        for (int i = 0; i < found; i++) {
            memcpy(&uuids[i], welcome->devices[i].uuid, sizeof uuids[i]);
        }
        found = weir_visible_order(list, uuids, found, ordinals);
    }
    for (int i = 0; i < found; i++) {
        fill_device(&devices[i], welcome, ordinals[i], co_located, passes_fds);
    }
    return found;
}

void weir_program_name(char ret_name[WEIR_PROGRAM_BYTES])
{
    const char *name = program_invocation_short_name;
    snprintf(ret_name, WEIR_PROGRAM_BYTES, "%s", name ? name : "?");
}
