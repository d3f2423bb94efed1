/*
 * Memory of the host that guests make with cuMemCreate. It is a sealed file of zeroes, which worker
 * and guest map at the address that the guest has reserved; the worker registers it with the
 * driver, so the GPU reaches it at that address, too. The driver may have no reservation there, so
 * the worker holds such addresses itself.
 */
#include "host_backend/worker/memory/vmm.h"

#include "base/addresses.h"
#include "base/log.h"
#include "base/memfd.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct weir_amounts file_cost = {.of = {[WEIR_ACCOUNT_DESCRIPTORS] = 1}};
/* A mapping splits the one that it replaces, so it counts as two. */
static const struct weir_amounts map_cost = {.of = {[WEIR_ACCOUNT_MAPPINGS] = 2}};

/* Register what is mapped there, so that the GPU reaches it at the same address. */
static CUresult pin(const struct weir_session *s, uint64_t base, uint64_t bytes)
{
    void *at = (void *)(uintptr_t)base;
    CUdeviceptr device = 0;

    WEIR_TRY(s->driver->cuMemHostRegister_v2(
        at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CUresult result = s->driver->cuMemHostGetDevicePointer_v2(&device, at, 0);
    if (result == CUDA_SUCCESS && device != base) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        (void)s->driver->cuMemHostUnregister(at);
    }
    return result;
}

CUresult weir_vmm_host_map(struct weir_session *session, uint64_t base, uint64_t bytes,
                           const struct weir_vmm_alloc *alloc)
{
    void *at = (void *)(uintptr_t)base;

    WEIR_TRY(weir_tenant_charge(session->tenant, &map_cost));
    CUresult result =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, alloc->file, 0) == at
            ? pin(session, base, bytes)
            : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        (void)weir_addresses_reclaim(base, bytes);
        weir_account_release_all(&session->tenant->account, &map_cost);
    }
    return result;
}

/* A mapping that is not in the book any more. */
struct unmapping {
    uint64_t base, bytes;
    struct weir_vmm_alloc *alloc; /* a reference */
};

/* The device is idle. */
static void unmap(struct weir_session *s, void *what)
{
    struct unmapping *u = what;

    if (s->driver->cuMemHostUnregister((void *)(uintptr_t)u->base) != CUDA_SUCCESS) {
        weir_log_error("vmm: host memory not unregistered session=%llu base=0x%llx",
                       (unsigned long long)s->id, (unsigned long long)u->base);
    }
    (void)weir_addresses_reclaim(u->base, u->bytes);
    weir_account_release_all(&s->tenant->account, &map_cost);
    weir_vmm_alloc_put(u->alloc);
    free(u);
}

void weir_vmm_host_unmap(struct weir_session *session, uint64_t base, uint64_t bytes,
                         struct weir_vmm_alloc *alloc)
{
    struct unmapping *u = malloc(sizeof *u);
    uint32_t idle;

    if (!u) { /* the memory stays mapped, and is kept */
        weir_log_error("vmm: no memory to unmap base=0x%llx", (unsigned long long)base);
        return;
    }
    *u = (struct unmapping){base, bytes, alloc};
    if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        unmap(session, u);
        weir_device_idle_end(session->worker, idle);
    } else {
        weir_put_off(session, unmap, u, base, bytes);
    }
}

static CUresult make(struct weir_session *session, struct weir_vmm_alloc *alloc)
{
    alloc->file = weir_memfd_sealed("weir-host", alloc->bytes);
    WEIR_FAIL_IF(alloc->file < 0, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_session_vmm_try_host(session, alloc);
    if (result != CUDA_SUCCESS) {
        close(alloc->file);
    }
    return result;
}

static struct weir_vmm_alloc of_host(const struct weir_session *s, uint64_t bytes,
                                     uint32_t handle_types, int file)
{
    return (struct weir_vmm_alloc){
        .bytes = bytes,
        .cleared_bytes = bytes,
        .charged = {.of = {[WEIR_ACCOUNT_PINNED_MEMORY] = bytes, [WEIR_ACCOUNT_DESCRIPTORS] = 1}},
        .handle_types = handle_types,
        .device = s->device,
        .on_host = true,
        .file = file};
}

CUresult weir_vmm_host_create(struct weir_session *session, uint64_t bytes, uint32_t handle_types,
                              struct weir_vmm_alloc **ret_alloc)
{
    const struct weir_vmm_alloc as = of_host(session, bytes, handle_types, -1);

    return weir_vmm_alloc_make(session, &as, make, ret_alloc);
}

static CUresult check_file(struct weir_session *session, struct weir_vmm_alloc *alloc)
{
    (void)session;
    return weir_memfd_is_sealed(alloc->file, alloc->bytes) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_vmm_host_again(struct weir_session *session, uint64_t bytes, uint32_t handle_types,
                             int fd, struct weir_vmm_alloc **ret_alloc)
{
    const struct weir_vmm_alloc as = of_host(session, bytes, handle_types, fd);
    CUresult result = weir_vmm_alloc_make(session, &as, check_file, ret_alloc);

    if (result != CUDA_SUCCESS) {
        close(fd);
    }
    return result;
}

CUresult weir_vmm_host_adopt(struct weir_vmm_alloc *alloc, int fd)
{
    CUresult result = weir_memfd_is_sealed(fd, alloc->bytes)
                          ? weir_tenant_charge(alloc->tenant, &file_cost)
                          : CUDA_ERROR_INVALID_VALUE;

    if (result != CUDA_SUCCESS) {
        close(fd);
        return result;
    }
    alloc->charged.of[WEIR_ACCOUNT_DESCRIPTORS] += 1;
    alloc->on_host = true;
    alloc->file = fd;
    return CUDA_SUCCESS;
}
