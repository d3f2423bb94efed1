/*
 * Virtual memory management: address reservations, physical chunks, mappings.
 *
 * A chunk is a memfd; a mapping maps it at a fixed address. The memory map makes kernels fault in a
 * range that is reserved but not mapped. Private zero pages lie there nevertheless: if a chunk is
 * unmapped between a kernel's check and its access, the kernel uses such a page instead of crashing
 * the process.
 */
#include "base/fd.h"
#include "softgpu/driver/forward.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY_BYTES (2ull << 20)
#define CHUNK_NAME        "weir-softgpu-chunk:"
#define ON_HOST           (-1) /* in place of a bus */

struct reservation {
    uint64_t base, bytes;
    struct reservation *next;
    struct weir_soft_task *last; /* of those that are freed: behind the work there was; counted */
    bool touched;                /* there was some */
};

static struct reservation *reservations;
/* Ranges freed while work was pending, which may be between its check and its access. */
static struct reservation *freed;

static void *map_nothing(uint64_t at, uint64_t bytes, int extra_flags)
{
    return mmap((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags, -1, 0);
}

static struct reservation *reservation_of(uint64_t base, uint64_t bytes)
{
    return WEIR_LINKED(r, reservations,
                       base >= r->base && base - r->base < r->bytes &&
                           bytes <= r->bytes - (base - r->base));
}

/* Reserve a range at the hint if that is free, or else at any aligned address. */
static uint64_t reserve_range(uint64_t hint, uint64_t bytes, uint64_t alignment)
{
    if (hint != 0 && hint % alignment == 0) {
        void *at = map_nothing(hint, bytes, MAP_FIXED_NOREPLACE);
        if (at == (void *)(uintptr_t)hint) {
            return hint;
        }
        if (at != MAP_FAILED) {
            munmap(at, bytes);
        }
    }
    if (bytes > UINT64_MAX / 2 - alignment) {
        return 0;
    }
    void *at = map_nothing(0, bytes + alignment, 0);
    if (at == MAP_FAILED) {
        return 0;
    }
    uint64_t base = (uint64_t)(uintptr_t)at;
    uint64_t aligned = (base + alignment - 1) & ~(alignment - 1);
    if (aligned != base) {
        munmap(at, aligned - base);
    }
    uint64_t tail = base + alignment - aligned;
    if (tail != 0) {
        munmap((void *)(uintptr_t)(aligned + bytes), tail);
    }
    return aligned;
}

/* The reservation's last task runs behind those of the context that are not done. */
static void order_after_all(void *object, void *user)
{
    const struct weir_soft_ctx *ctx = object;
    struct reservation *r = user;
    for (struct weir_soft_task *t = ctx->tasks; t; t = t->live_next) {
        r->touched = r->touched || !weir_soft_task_is_done(t);
        (void)weir_soft_task_after(r->last, t);
    }
}

/* Take back a reservation that work may still touch; NULL: there is none. */
static struct reservation *take_freed(uint64_t base, uint64_t bytes)
{
    for (struct reservation **at = &freed; *at; at = &(*at)->next) {
        struct reservation *r = *at;
        if (r->base == base && r->bytes == bytes) {
            weir_soft_task_put(r->last);
            *at = r->next;
            return r;
        }
    }
    return NULL;
}

/* Release the freed ranges that no pending work can access. */
static void give_freed(void)
{
    for (struct reservation **at = &freed; *at;) {
        struct reservation *r = *at;
        if (r->touched && !weir_soft_task_is_done(r->last)) {
            at = &r->next;
            continue;
        }
        munmap((void *)(uintptr_t)r->base, r->bytes);
        weir_soft_task_put(r->last);
        *at = r->next;
        free(r);
    }
}

CUresult weir_soft_cuMemAddressReserve(CUdeviceptr *ret, size_t bytes, size_t alignment,
                                       CUdeviceptr hint, unsigned long long flags)
{
    WEIR_SOFT_LOCKED();
    if (!ret || bytes == 0 || bytes % GRANULARITY_BYTES != 0 || flags != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    alignment = WEIR_MAX(alignment, GRANULARITY_BYTES);
    hint = bytes < weir_soft_device_wish_bytes() ? 0 : hint;
    give_freed();
    struct reservation *r = take_freed(hint, bytes);
    uint64_t base = r ? hint : 0;
    if (!r && (r = malloc(sizeof(*r)))) {
        base = reserve_range(hint, bytes, alignment);
    }
    if (base == 0) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *r = (struct reservation){.base = base, .bytes = bytes, .next = reservations};
    reservations = r;
    *ret = base;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemAddressFree(CUdeviceptr base, size_t bytes)
{
    WEIR_SOFT_LOCKED();
    for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
        struct reservation *r = *at;
        if (r->base == base && r->bytes == bytes) {
            WEIR_FAIL_IF(!weir_soft_space_is_empty(base, bytes),
                         CUDA_ERROR_INVALID_VALUE); /* something is still mapped there */
            r->last = weir_soft_task_new(NULL, NULL, 0);
            WEIR_FAIL_IF(!r->last, CUDA_ERROR_OUT_OF_MEMORY);
            weir_soft_object_visit(WEIR_SOFT_CONTEXT, order_after_all, r);
            weir_soft_task_start(r->last);
            *at = r->next;
            WEIR_PUSH(freed, r);
            give_freed();
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ------------------------------------------------------------------ chunks */

static void chunk_release(void *object)
{
    struct weir_soft_chunk *chunk = object;
    close(chunk->fd);
    if (chunk->device) {
        weir_soft_device_use(chunk->device, -(int64_t)chunk->bytes);
    }
}

struct weir_soft_chunk *weir_soft_chunk_find(CUmemGenericAllocationHandle handle)
{
    struct weir_soft_chunk *chunk =
        weir_soft_object_find(WEIR_SOFT_CHUNK, (void *)(uintptr_t)handle);
    return chunk && chunk->handles > 0 ? chunk : NULL;
}

/* Memory of the host: of a node, of which there is one, or of none, which cannot be exported. */
static bool is_host_place(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult check_prop(const CUmemAllocationProp *prop, struct weir_soft_device **ret_device)
{
    WEIR_FAIL_IF(!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
                 CUDA_ERROR_NOT_SUPPORTED);
    if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        *ret_device = weir_soft_device_at(prop->location.id);
        return *ret_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    *ret_device = NULL;
    bool good = prop->location.type == CU_MEM_LOCATION_TYPE_HOST
                    ? prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE
                    : is_host_place(&prop->location) && prop->location.id == 0;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult chunk_make(int fd, uint64_t bytes, const CUmemAllocationProp *prop,
                           struct weir_soft_device *device, CUmemGenericAllocationHandle *ret)
{
    struct weir_soft_chunk *chunk =
        weir_soft_object_new(WEIR_SOFT_CHUNK, sizeof(*chunk), NULL, chunk_release);
    if (!chunk) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->fd = fd;
    chunk->bytes = bytes;
    chunk->prop = *prop;
    chunk->device = device;
    chunk->handles = 1;
    if (device) {
        weir_soft_device_use(device, (int64_t)bytes);
    }
    *ret = (CUmemGenericAllocationHandle)(uintptr_t)chunk;
    return CUDA_SUCCESS;
}

/* The file's name says where the memory lies, to whoever imports it: the device's bus, or -1. */
static int chunk_file(const struct weir_soft_device *device)
{
    char name[64];
    snprintf(name, sizeof(name), CHUNK_NAME "%d", device ? device->pci_bus : ON_HOST);
    return memfd_create(name, MFD_CLOEXEC);
}

static struct weir_soft_device *device_on_bus(int pci_bus)
{
    for (uint32_t i = 0; i < weir_soft_device_count(); i++) {
        struct weir_soft_device *device = weir_soft_device_at((int)i);
        if (device->pci_bus == pci_bus) {
            return device;
        }
    }
    return NULL;
}

/* Does the descriptor stand for a chunk, and where does it lie? Device NULL: on the host, or on a
 * device that this process does not see, whose memory others may use all the same. */
static bool is_chunk_file(int fd, struct weir_soft_device **ret_device, CUmemLocation *ret_location)
{
    static const char start[] = "/memfd:" CHUNK_NAME;
    char path[64], target[128];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    if (strncmp(target, start, sizeof(start) - 1) != 0) {
        return false;
    }
    int bus = atoi(target + sizeof(start) - 1);
    *ret_device = device_on_bus(bus);
    *ret_location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = -1};
    if (bus == ON_HOST) {
        *ret_location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    } else if (*ret_device) {
        ret_location->id = (*ret_device)->ordinal;
    }
    return true;
}

CUresult weir_soft_cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_device *device;
    WEIR_FAIL_IF(!ret || bytes == 0 || bytes % GRANULARITY_BYTES != 0 || flags != 0,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(check_prop(prop, &device));
    WEIR_FAIL_IF(device && bytes > weir_soft_device_free_bytes(device), CUDA_ERROR_OUT_OF_MEMORY);
    int fd = chunk_file(device);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        weir_fd_close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return chunk_make(fd, bytes, prop, device, ret);
}

CUresult weir_soft_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    weir_soft_device_free_slowly();
    WEIR_SOFT_LOCKED();
    struct weir_soft_chunk *chunk = weir_soft_chunk_find(handle);
    WEIR_FAIL_IF(!chunk, CUDA_ERROR_INVALID_VALUE);
    chunk->handles--;
    if (chunk->handles == 0 && chunk->object.refs == 1) {
        weir_soft_object_retire(chunk);
    }
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ mappings */

CUresult weir_soft_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_chunk *chunk = weir_soft_chunk_find(handle);
    if (!chunk || bytes == 0 || flags != 0 || bytes % GRANULARITY_BYTES != 0 ||
        address % GRANULARITY_BYTES != 0 || offset % GRANULARITY_BYTES != 0 ||
        offset > chunk->bytes || bytes > chunk->bytes - offset || !reservation_of(address, bytes) ||
        !weir_soft_space_is_empty(address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    void *at = mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, chunk->fd, (off_t)offset);
    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct weir_soft_device *device = chunk->device ? chunk->device : weir_soft_device_at(0);
    struct weir_soft_alloc like = {.base = address,
                                   .bytes = bytes,
                                   .kind = WEIR_SOFT_ALLOC_MAPPED,
                                   .device = device,
                                   .span_bytes = bytes,
                                   .map_base = address,
                                   .chunk = chunk,
                                   .chunk_offset = offset};
    struct weir_soft_alloc *alloc;
    CUresult result = weir_soft_space_adopt(&like, 0, &alloc);
    if (result != CUDA_SUCCESS) {
        map_nothing(address, bytes, MAP_FIXED);
        return result;
    }
    weir_soft_object_ref(chunk);
    return CUDA_SUCCESS;
}

/* Do whole mappings cover the range exactly? */
static bool mappings_cover(uint64_t base, uint64_t bytes)
{
    uint64_t at = base;
    if (bytes == 0 || base + bytes < base) {
        return false;
    }
    while (at < base + bytes) {
        const struct weir_soft_alloc *alloc = weir_soft_space_at(at);
        if (!alloc || alloc->kind != WEIR_SOFT_ALLOC_MAPPED) {
            return false;
        }
        at += alloc->bytes;
    }
    return at == base + bytes;
}

CUresult weir_soft_cuMemUnmap(CUdeviceptr base, size_t bytes)
{
    WEIR_SOFT_LOCKED();
    WEIR_FAIL_IF(!mappings_cover(base, bytes), CUDA_ERROR_INVALID_VALUE);
    uint64_t at = base;
    while (at < base + bytes) {
        struct weir_soft_alloc *alloc = weir_soft_space_at(at);
        struct weir_soft_chunk *chunk = alloc->chunk;
        uint64_t step = alloc->bytes;
        weir_soft_object_ref(chunk);
        weir_soft_space_free(alloc);
        map_nothing(at, step, MAP_FIXED);
        chunk->object.refs--; /* our reference; the table's stays */
        if (chunk->handles == 0 && chunk->object.refs == 1) {
            weir_soft_object_retire(chunk);
        }
        at += step;
    }
    return CUDA_SUCCESS;
}

/* May the access of a place to the mappings of the range be set so? */
static CUresult check_access(const CUmemAccessDesc *desc, uint64_t base, uint64_t bytes)
{
    bool on_host = is_host_place(&desc->location);
    if ((!on_host && desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
         desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!on_host) {
        return weir_soft_device_at(desc->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    }
    for (uint64_t at = base; at < base + bytes; at += weir_soft_space_at(at)->bytes) {
        WEIR_FAIL_IF(!is_host_place(&weir_soft_space_at(at)->chunk->prop.location),
                     CUDA_ERROR_INVALID_VALUE); /* the processor does not reach a device's memory */
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *descs,
                                  size_t count)
{
    WEIR_SOFT_LOCKED();
    WEIR_FAIL_IF(!descs || count == 0 || !mappings_cover(base, bytes), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(check_access(&descs[i], base, bytes));
    }
    for (uint64_t at = base; at < base + bytes;) {
        struct weir_soft_alloc *alloc = weir_soft_space_at(at);
        for (size_t i = 0; i < count; i++) {
            if (is_host_place(&descs[i].location)) {
                continue; /* this process always reaches it */
            }
            WEIR_TRY(weir_soft_space_set_accessible(alloc, false));
            alloc->read_only = descs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
            WEIR_TRY(weir_soft_space_set_accessible(alloc, descs[i].flags !=
                                                               CU_MEM_ACCESS_FLAGS_PROT_NONE));
        }
        at += alloc->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                  CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    if (!flags || !location || !alloc || alloc->kind != WEIR_SOFT_ALLOC_MAPPED ||
        (location->type != CU_MEM_LOCATION_TYPE_DEVICE &&
         !(is_host_place(location) && is_host_place(&alloc->chunk->prop.location)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (is_host_place(location)) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(!weir_soft_device_at(location->id), CUDA_ERROR_INVALID_DEVICE);
    *flags = !alloc->accessible ? CU_MEM_ACCESS_FLAGS_PROT_NONE
             : alloc->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ sharing and questions */

CUresult weir_soft_cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
                                                CUmemAllocationHandleType type,
                                                unsigned long long flags)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_chunk *chunk = weir_soft_chunk_find(handle);
    if (!ret || !chunk || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (chunk->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fd = fcntl(chunk->fd, F_DUPFD_CLOEXEC, 0);
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    memcpy(ret, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret,
                                                  void *os_handle, CUmemAllocationHandleType type)
{
    weir_soft_device_import_slowly();
    WEIR_SOFT_LOCKED();
    WEIR_FAIL_IF(!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 CUDA_ERROR_INVALID_VALUE);
    struct stat info;
    int fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_INVALID_VALUE);
    struct weir_soft_device *device;
    CUmemLocation location;
    if (!is_chunk_file(fd, &device, &location) || fstat(fd, &info) != 0 || info.st_size <= 0) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = location};
    return chunk_make(fd, (uint64_t)info.st_size, &prop, device, ret);
}

CUresult weir_soft_cuMemGetAllocationGranularity(size_t *granularity,
                                                 const CUmemAllocationProp *prop,
                                                 CUmemAllocationGranularity_flags option)
{
    struct weir_soft_device *device;
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(check_prop(prop, &device));
    *granularity = GRANULARITY_BYTES;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *address)
{
    WEIR_SOFT_LOCKED();
    const struct weir_soft_alloc *alloc = weir_soft_space_find((uint64_t)(uintptr_t)address);
    WEIR_FAIL_IF(!ret || !alloc || !alloc->chunk, CUDA_ERROR_INVALID_VALUE);
    alloc->chunk->handles++;
    *ret = (CUmemGenericAllocationHandle)(uintptr_t)alloc->chunk;
    return CUDA_SUCCESS;
}
