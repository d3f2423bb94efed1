/*
 * Handles and mappings. Creation waits for the host, because it may exceed the quota. Mapping and
 * access are posted after the same checks that the host makes. One lock keeps the records in the
 * order of the changes here.
 */
#include "guest_lib/vmm.h"
#include "base/addresses.h"
#include "base/log.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ON_HOST (-1) /* in place of a device */

static struct weir_lock vmm_lock; /* guards all handles; acquired before the index's lock */

static struct weir_guest_vmm_handle *find_locked(uint64_t handle)
{
    struct weir_guest_vmm_handle *found =
        weir_guest_object_get(WEIR_KIND_CHUNK, (const void *)(uintptr_t)handle);
    return found && found->handles ? found : NULL;
}

/* Release a handle that the host does not know yet. */
static struct weir_guest_vmm_handle *new_handle(void)
{
    struct weir_guest_vmm_handle *made = calloc(1, sizeof *made);
    if (made && weir_guest_object_add(WEIR_KIND_CHUNK, made, &made->handle) != CUDA_SUCCESS) {
        free(made);
        made = NULL;
    }
    return made;
}

static void drop_handle(struct weir_guest_vmm_handle *handle)
{
    weir_guest_object_remove(WEIR_KIND_CHUNK, handle->handle);
    free(handle);
}

/* Nothing refers to the handle any more, so the host may release it. */
static void release_if_unused_locked(struct weir_guest_vmm_handle *handle)
{
    if (handle->handles || handle->maps) {
        return;
    }
    struct weir_op_vmm_release_in in = {.h = handle->handle};
    if (weir_post_vmm_release(weir_guest_channel(), &in) != CUDA_SUCCESS) {
        weir_log_warn("guest: memory was not released");
    }
    drop_handle(handle);
}

static CUresult call_create(const struct weir_guest_vmm_handle *made)
{
    uint32_t types = (uint32_t)made->prop.requestedHandleTypes;
    if (weir_guest_vmm_is_host_place(&made->prop.location)) {
        struct weir_op_vmm_create_host_in in = {
            .h = made->handle, .bytes = made->bytes, .handle_types = types};
        return weir_call_vmm_create_host(weir_guest_channel(), &in, NULL);
    }
    struct weir_op_vmm_create_in in = {.h = made->handle,
                                       .bytes = made->bytes,
                                       .device = made->host_device,
                                       .handle_types = types};
    return weir_call_vmm_create(weir_guest_channel(), &in, NULL);
}

CUresult weir_guest_vmm_create(uint64_t bytes, const CUmemAllocationProp *prop,
                               uint64_t *ret_handle)
{
    struct weir_guest_vmm_handle *made = new_handle();
    WEIR_FAIL_IF(!made, CUDA_ERROR_OUT_OF_MEMORY);
    made->bytes = bytes;
    made->prop = *prop;
    made->host_device = weir_guest_vmm_is_host_place(&prop->location)
                            ? ON_HOST
                            : weir_guest.devices[prop->location.id].host_ordinal;
    made->handles = 1;
    CUresult result = call_create(made);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        weir_mem_make_room();
        result = call_create(made);
    }
    if (result != CUDA_SUCCESS) {
        drop_handle(made);
        return result;
    }
    *ret_handle = made->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_vmm_release(uint64_t handle)
{
    WEIR_GUEST_LOCKED(&vmm_lock);
    struct weir_guest_vmm_handle *found = find_locked(handle);
    if (found) {
        found->handles--;
        release_if_unused_locked(found);
    }
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_vmm_retain(uint64_t address, CUmemGenericAllocationHandle *ret_handle)
{
    struct weir_mem mem;
    WEIR_GUEST_LOCKED(&vmm_lock);
    bool mapped = weir_mem_find(address, &mem) && mem.kind == WEIR_MEM_MAPPED;
    if (mapped) {
        struct weir_guest_vmm_handle *handle = mem.owner;
        handle->handles++;
        *ret_handle = handle->handle;
    }
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool weir_guest_vmm_get(uint64_t handle, struct weir_guest_vmm_handle *ret_facts)
{
    WEIR_GUEST_LOCKED(&vmm_lock);
    const struct weir_guest_vmm_handle *found = find_locked(handle);
    if (found) {
        *ret_facts = *found;
    }
    return found != NULL;
}

/* ---------------------------------------------------------------- mappings */

/* Memory of the host is a file: map it here without access, in place of the reservation. */
static CUresult map_host_locked(const struct weir_mem *mem,
                                const struct weir_guest_vmm_handle *handle)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_op_vmm_map_host_in in = {
        .address = mem->base, .bytes = mem->bytes, .h = handle->handle};
    void *want = (void *)(uintptr_t)mem->base;
    int fd;
    weir_mem_fd_lock();
    CUresult result = weir_call_vmm_map_host(weir_guest_channel(), &in, NULL);
    result = result == CUDA_SUCCESS ? weir_channel_receive_fd(weir_guest_channel(), &fd) : result;
    weir_mem_fd_unlock();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    void *got = weir_guest.same_process
                    ? want
                    : mmap(want, mem->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    if (got != want) {
        struct weir_op_vmm_unmap_in undo = {.address = mem->base, .bytes = mem->bytes};
        (void)weir_post_vmm_unmap(weir_guest_channel(), &undo);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Put the reservation back. */
static void unmap_here(const struct weir_mem *mem)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (mem->on_host && !weir_guest.same_process &&
        !weir_addresses_reclaim(mem->base, mem->bytes)) {
        weir_log_warn("guest: cannot take the pages of host memory away");
    }
}

static CUresult map_locked(const struct weir_mem *mem, struct weir_guest_vmm_handle *handle)
{
    struct weir_op_vmm_map_in in = {.address = mem->base, .bytes = mem->bytes, .h = handle->handle};
    /* Wait for the host in two cases: the driver decides whether a part of the memory may be mapped
     * alone, and the host decides about ranges where host memory may be mapped. */
    WEIR_TRY(mem->on_host ? map_host_locked(mem, handle)
             : mem->bytes < handle->bytes || weir_guest_vmm_expects_host()
                 ? weir_call_vmm_map(weir_guest_channel(), &in, NULL)
                 : weir_post_vmm_map(weir_guest_channel(), &in));
    handle->maps++;
    return CUDA_SUCCESS;
}

CUresult weir_guest_vmm_map(uint64_t address, uint64_t bytes, uint64_t handle)
{
    WEIR_FAIL_IF(!weir_guest_vmm_in_one_space(address, bytes), CUDA_ERROR_INVALID_VALUE);
    WEIR_GUEST_LOCKED(&vmm_lock);
    struct weir_guest_vmm_handle *found = find_locked(handle);
    struct weir_mem mem = {.base = address,
                           .bytes = bytes,
                           .kind = WEIR_MEM_MAPPED,
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE,
                           .device_base = address,
                           .buffer_id = weir_guest_objects_next_id(),
                           .owner = found};
    if (found) {
        mem.on_host = found->host_device == ON_HOST;
        mem.device = mem.on_host ? weir_device_current() : found->prop.location.id;
        mem.handle_types = (uint32_t)found->prop.requestedHandleTypes;
    }
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (found && bytes <= found->bytes && weir_mem_insert(&mem)) {
        result = map_locked(&mem, found);
        if (result != CUDA_SUCCESS) {
            weir_mem_remove(address, 1u << WEIR_MEM_MAPPED, &mem);
        }
    }
    return result;
}

/* Do complete mappings together make up the range? */
static bool covered_locked(uint64_t address, uint64_t bytes)
{
    uint64_t at = address, end = address + bytes;
    struct weir_mem mem;
    if (!bytes || end < address) {
        return false;
    }
    while (at < end) {
        if (!weir_mem_find(at, &mem) || mem.base != at || mem.kind != WEIR_MEM_MAPPED) {
            return false;
        }
        at += mem.bytes;
    }
    return at == end;
}

static void wait_context(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)user;
    struct weir_guest_ctx *ctx = object;
    if (weir_ctx_use(ctx, NULL)) {
        CUresult result = weir_streams_wait_all(ctx);
        (void)result; /* a capture, or an error that the next call will report */
    }
}

/* Wait for work: unmapping memory under a running kernel would end the context of all programs. */
static void wait_for_work(void)
{
    if (weir_guest.objects.tables[WEIR_KIND_CONTEXT]) {
        weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_CONTEXT], wait_context, NULL);
    }
}

static CUresult unmap_locked(uint64_t address, uint64_t bytes)
{
    struct weir_op_vmm_unmap_in in = {.address = address, .bytes = bytes};
    CUresult result = weir_post_vmm_unmap(weir_guest_channel(), &in);
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        struct weir_mem mem;
        WEIR_FAIL_IF(!weir_mem_remove(at, 1u << WEIR_MEM_MAPPED, &mem), CUDA_ERROR_UNKNOWN);
        struct weir_guest_vmm_handle *handle = mem.owner;
        unmap_here(&mem);
        handle->maps--;
        release_if_unused_locked(handle);
        at += mem.bytes;
    }
    return result;
}

CUresult weir_guest_vmm_unmap(uint64_t address, uint64_t bytes)
{
    wait_for_work();
    WEIR_GUEST_LOCKED(&vmm_lock);
    return covered_locked(address, bytes) ? unmap_locked(address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult access_locked(uint64_t address, uint64_t bytes, uint32_t flags)
{
    struct weir_op_vmm_access_in in = {.address = address, .bytes = bytes, .flags = flags};
    /* Not every driver supports read-only memory. */
    CUresult result = flags == CU_MEM_ACCESS_FLAGS_PROT_READ
                          ? weir_call_vmm_access(weir_guest_channel(), &in, NULL)
                          : weir_post_vmm_access(weir_guest_channel(), &in);
    for (uint64_t at = address; at < address + bytes && result == CUDA_SUCCESS;) {
        struct weir_mem mem;
        WEIR_FAIL_IF(!weir_mem_find(at, &mem), CUDA_ERROR_UNKNOWN);
        weir_mem_set_flags(at, flags, false);
        at += mem.bytes;
    }
    return result;
}

bool weir_guest_vmm_reachable(const struct weir_mem *mem, CUdevice device)
{
    const struct weir_guest_vmm_handle *handle = mem->owner;
    return mem->on_host || weir_mem_device(mem) == device ||
           (weir_guest.devices[device].peers >> handle->host_device & 1) != 0;
}

CUresult weir_guest_vmm_access(uint64_t address, uint64_t bytes, CUdevice device, uint32_t flags)
{
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        wait_for_work();
    }
    WEIR_GUEST_LOCKED(&vmm_lock);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (covered_locked(address, bytes)) {
        struct weir_mem mem;
        bool known = weir_mem_find(address, &mem);
        bool own = known && weir_mem_device(&mem) == device;
        if (!known || !weir_guest_vmm_reachable(&mem, device)) {
            result = CUDA_ERROR_INVALID_DEVICE;
        } else if (!own && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
            result = CUDA_SUCCESS;
        } else {
            result = access_locked(address, bytes, flags);
        }
    }
    return result;
}

CUresult weir_guest_vmm_access_here(uint64_t address, uint64_t bytes, uint32_t flags)
{
    WEIR_GUEST_KEEP_ERRNO;
    int may =
        (flags ? PROT_READ : 0) | (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0);
    struct weir_mem mem;
    WEIR_GUEST_LOCKED(&vmm_lock);
    CUresult result = covered_locked(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address; result == CUDA_SUCCESS && at < address + bytes; at += mem.bytes) {
        if (!weir_mem_find(at, &mem) || !mem.on_host) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (!weir_guest.same_process && mprotect((void *)(uintptr_t)at, mem.bytes, may)) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            weir_mem_set_flags(at, flags, true);
        }
    }
    return result;
}

/* ---------------------------------------------------------------- between processes */

CUresult weir_guest_vmm_export(uint64_t handle, int *ret_fd)
{
    struct weir_op_vmm_export_in in = {.h = handle};
    weir_mem_fd_lock();
    CUresult result = weir_call_vmm_export(weir_guest_channel(), &in, NULL);
    result =
        result == CUDA_SUCCESS ? weir_channel_receive_fd(weir_guest_channel(), ret_fd) : result;
    weir_mem_fd_unlock();
    return result;
}

CUresult weir_guest_vmm_import(int fd, uint64_t *ret_handle)
{
    struct weir_guest_vmm_handle *made = new_handle();
    struct weir_op_vmm_import_in in = {0};
    struct weir_op_vmm_import_out out = {0};
    WEIR_FAIL_IF(!made, CUDA_ERROR_OUT_OF_MEMORY);
    in.h = made->handle;
    CUresult result = weir_export_token(fd, in.token)
                          ? weir_call_vmm_import(weir_guest_channel(), &in, &out)
                          : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        drop_handle(made);
        return result;
    }
    made->bytes = out.bytes;
    made->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    made->prop.requestedHandleTypes = (CUmemAllocationHandleType)out.handle_types;
    made->host_device = (int)out.device;
    made->prop.location.id = weir_guest_ordinal_of_host(made->host_device);
    weir_guest_vmm_name(out.device == WEIR_VMM_HOST);
    if (out.device == WEIR_VMM_HOST) {
        made->host_device = ON_HOST;
        made->prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    }
    /* The handle that this call returns to the program publishes it. */
    made->handles = 1;
    *ret_handle = made->handle;
    return CUDA_SUCCESS;
}

static void free_handle(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)user;
    free(object);
}

void weir_guest_vmm_finish(void)
{
    if (weir_guest.objects.tables[WEIR_KIND_CHUNK]) {
        weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_CHUNK], free_handle, NULL);
    }
    weir_guest_vmm_spaces_finish();
}
