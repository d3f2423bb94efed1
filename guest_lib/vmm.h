/*
 * Virtual memory management in the guest: reservations of addresses, handles of memory, and
 * mappings.
 *
 * A mapping is a range of the index (WEIR_MEM_MAPPED): its flags are the devices' access, its owner
 * the handle's struct. Small reservations are cut from slabs of addresses, so they need no message.
 * Host memory cannot be mapped in a slab. So where a thread has named host memory last, each
 * reservation is made by the host.
 *
 * Source: docs/design/vmm.md
 */
#pragma once

#include "guest_lib/memory.h"

/* Memory behind a CUmemGenericAllocationHandle. Guarded by the lock of vmm.c. */
struct weir_guest_vmm_handle {
    uint64_t handle; /* == the CUmemGenericAllocationHandle */
    uint64_t bytes;
    /* Properties; the location is -1 for a device that is not visible here. */
    CUmemAllocationProp prop;
    int host_device; /* the host's ordinal of the device where the memory lies; -1: on the host */
    /* The program's references, of which cuMemRelease drops one; 0: only mapped. */
    uint32_t handles;
    uint32_t maps;
};

/** Reserve addresses for cuMemAddressReserve; all arguments were checked. @thread any */
CUresult weir_guest_vmm_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint,
                                uint64_t *ret_base);

/** Free a reservation. CUDA_ERROR_INVALID_VALUE: not a whole reservation, or it contains a mapping.
 * @thread any */
CUresult weir_guest_vmm_unreserve(uint64_t base, uint64_t bytes);

/** Is the range inside one reservation? @thread any */
bool weir_guest_vmm_in_one_space(uint64_t base, uint64_t bytes);

/** Does the address lie in a reservation? @thread any; two loads for ordinary addresses */
bool weir_guest_vmm_is_reserved(uint64_t address);

/** Is this a place in host memory where memory can be allocated? @thread any */
static inline bool weir_guest_vmm_is_host_place(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/**
 * The program has named memory: it made or imported some, or asked for its granularity. Programs do
 * so before they reserve addresses for it, so the calling thread's next reservations are for this
 * kind of memory. @param host  memory of the host; false: of a device. @thread any
 */
void weir_guest_vmm_name(bool host);
/** Has the program named host memory? @thread any */
bool weir_guest_vmm_expects_host(void);

/** Make memory; prop has been checked. @thread any; waits */
CUresult weir_guest_vmm_create(uint64_t bytes, const CUmemAllocationProp *prop,
                               uint64_t *ret_handle);
CUresult weir_guest_vmm_release(uint64_t handle);
/** Add a reference to the memory that is mapped at the address. */
CUresult weir_guest_vmm_retain(uint64_t address, CUmemGenericAllocationHandle *ret_handle);
/** Copy the state of a live handle. */
bool weir_guest_vmm_get(uint64_t handle, struct weir_guest_vmm_handle *ret_facts);

/** Map the first bytes; all arguments except the handle, ranges and overlaps were checked. */
CUresult weir_guest_vmm_map(uint64_t address, uint64_t bytes, uint64_t handle);
/** Unmap; only whole mappings. Waits for the program's work first. */
CUresult weir_guest_vmm_unmap(uint64_t address, uint64_t bytes);
/**
 * Set one device's access. When the first device gets access, all that reach the memory do, since
 * the host maps it for all. Only when the memory's own device loses access, all do.
 */
CUresult weir_guest_vmm_access(uint64_t address, uint64_t bytes, CUdevice device, uint32_t flags);
/** Set the processor's access to host memory. CUDA_ERROR_INVALID_VALUE: this is not host memory. */
CUresult weir_guest_vmm_access_here(uint64_t address, uint64_t bytes, uint32_t flags);

/** Can the device use the memory, because it is its own or reachable? @thread any */
bool weir_guest_vmm_reachable(const struct weir_mem *mem, CUdevice device);

/** Make a descriptor for the memory. */
CUresult weir_guest_vmm_export(uint64_t handle, int *ret_fd);
CUresult weir_guest_vmm_import(int fd, uint64_t *ret_handle);

/** Read the token from an exported descriptor. @return false: it has none @thread any */
bool weir_export_token(int fd, uint8_t ret_token[16]);

/** Read the name of a pool (16 bytes) from an exported descriptor. */
CUresult weir_export_pool(const uint8_t name[16], int *ret_fd);
CUresult weir_import_pool(int fd, uint8_t ret_name[16]);

/** The granularity of memory and addresses. */
uint64_t weir_guest_vmm_unit(void);

/** For tests: forget all reservations (vmm_space.c), or everything. */
void weir_guest_vmm_spaces_finish(void);
void weir_guest_vmm_finish(void);
