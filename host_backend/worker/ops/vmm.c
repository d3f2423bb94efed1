/*
 * Virtual memory management: the operations.
 *
 * Mapping and access are posted: the guest has made the same checks, so a refusal here means that
 * the guest lies or that the driver has no room. Kernels that the guest has sent would then access
 * unmapped addresses, which would end the context of all tenants. So the session ends before it
 * launches them.
 */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/state/tenant.h"

#include "base/log.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/state/platform.h"
#include <string.h>
#include <unistd.h>

static struct weir_host_vmm_handle *find(struct weir_session *s, uint64_t handle)
{
    return weir_host_object_get(s, WEIR_KIND_CHUNK, handle);
}

static CUresult must(struct weir_session *s, CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS && s->op.posted) {
        weir_log_warn("vmm: %s failed, ended session=%llu tenant=%s result=%d", what,
                      (unsigned long long)s->id, s->tenant->name, (int)result);
        weir_session_end(s);
    }
    return result;
}

CUresult weir_host_vmm_reserve(struct weir_session *s, const struct weir_op_vmm_reserve_in *in,
                               struct weir_op_vmm_reserve_out *out)
{
    return weir_session_vmm_reserve(s, in->bytes, in->alignment, in->hint, false, &out->base);
}

CUresult weir_host_vmm_reserve_any(struct weir_session *s,
                                   const struct weir_op_vmm_reserve_any_in *in,
                                   struct weir_op_vmm_reserve_any_out *out)
{
    return weir_session_vmm_reserve(s, in->bytes, in->alignment, in->hint, true, &out->base);
}

CUresult weir_host_vmm_unreserve(struct weir_session *s, const struct weir_op_vmm_unreserve_in *in)
{
    return weir_session_vmm_unreserve(s, in->base);
}

CUresult weir_ops_name_alloc(struct weir_session *s, uint64_t handle, struct weir_vmm_alloc *alloc,
                             bool imported)
{
    struct weir_object *o;
    CUresult result = weir_host_object_create(
        s, WEIR_KIND_CHUNK, sizeof(struct weir_host_vmm_handle), handle, NULL, NULL, &o);

    if (result != CUDA_SUCCESS) {
        weir_vmm_alloc_put(alloc);
        return result;
    }
    ((struct weir_host_vmm_handle *)o)->alloc = alloc;
    ((struct weir_host_vmm_handle *)o)->imported = imported;
    if (alloc->on_host) {
        weir_session_pins(s, alloc->bytes);
    } else if (imported) {
        weir_session_opens(s, alloc->bytes);
    } else {
        weir_session_hold(s, alloc->device, alloc->bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult check_create(const struct weir_session *s, uint64_t bytes, uint32_t handle_types)
{
    const uint32_t known = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

    WEIR_FAIL_IF(bytes == 0 || bytes % s->platform->granularity_bytes != 0,
                 CUDA_ERROR_INVALID_VALUE);
    return (handle_types & ~known) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult weir_host_vmm_create(struct weir_session *s, const struct weir_op_vmm_create_in *in)
{
    struct weir_vmm_alloc *alloc;
    CUdevice device;

    WEIR_TRY(weir_session_device(s, in->device, &device));
    WEIR_TRY(check_create(s, in->bytes, in->handle_types));
    WEIR_TRY(weir_vmm_alloc_create(s, (uint32_t)in->device, in->bytes, in->handle_types, &alloc));
    return weir_ops_name_alloc(s, in->h, alloc, false);
}

CUresult weir_host_vmm_create_host(struct weir_session *s,
                                   const struct weir_op_vmm_create_host_in *in)
{
    struct weir_vmm_alloc *alloc;

    WEIR_FAIL_IF(!weir_session_passes_fds(s), CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(check_create(s, in->bytes, in->handle_types));
    WEIR_TRY(weir_vmm_host_create(s, in->bytes, in->handle_types, &alloc));
    return weir_ops_name_alloc(s, in->h, alloc, false);
}

CUresult weir_host_vmm_release(struct weir_session *s, const struct weir_op_vmm_release_in *in)
{
    struct weir_host_vmm_handle *handle = find(s, in->h);

    return handle ? weir_host_object_destroy(s, &handle->o) : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_host_vmm_map(struct weir_session *s, const struct weir_op_vmm_map_in *in)
{
    const struct weir_host_vmm_handle *handle = find(s, in->h);

    return must(s,
                handle && !handle->alloc->on_host
                    ? weir_session_vmm_map(s, in->address, in->bytes, handle->alloc)
                    : CUDA_ERROR_INVALID_VALUE,
                "mapping");
}

CUresult weir_host_vmm_map_host(struct weir_session *s, const struct weir_op_vmm_map_host_in *in)
{
    const struct weir_host_vmm_handle *handle = find(s, in->h);

    WEIR_FAIL_IF(!handle || !handle->alloc->on_host, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_vmm_map(s, in->address, in->bytes, handle->alloc));
    if (weir_session_send_fd(s, handle->alloc->file) != WEIR_OK) {
        (void)weir_session_vmm_unmap(s, in->address, in->bytes);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_vmm_unmap(struct weir_session *s, const struct weir_op_vmm_unmap_in *in)
{
    return must(s, weir_session_vmm_unmap(s, in->address, in->bytes), "unmapping");
}

CUresult weir_host_vmm_access(struct weir_session *s, const struct weir_op_vmm_access_in *in)
{
    return must(s, weir_session_vmm_access(s, in->address, in->bytes, in->flags), "access");
}

/* ---------------------------------------------------------------- between processes */

static CUresult send_export(struct weir_session *s, struct weir_vmm_alloc *alloc,
                            const uint8_t name[16])
{
    int fd;

    WEIR_FAIL_IF(!weir_session_passes_fds(s), CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(weir_export_create(s->tenant, alloc, name, &fd));
    enum weir_status status = weir_session_send_fd(s, fd);
    close(fd);
    return status == WEIR_OK ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult weir_host_vmm_export(struct weir_session *s, const struct weir_op_vmm_export_in *in)
{
    static const uint8_t no_name[16];
    const struct weir_host_vmm_handle *handle = find(s, in->h);
    CUstream work;

    if (!handle || (handle->alloc->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!handle->alloc->on_host) {
        WEIR_TRY(weir_session_enter(s, handle->alloc->device));
        WEIR_TRY(weir_session_work_stream(s, &work));
        WEIR_TRY(weir_vmm_alloc_clear(handle->alloc, work));
    }
    s->devices.has_peers = true;
    return send_export(s, handle->alloc, no_name);
}

CUresult weir_host_vmm_import(struct weir_session *s, const struct weir_op_vmm_import_in *in,
                              struct weir_op_vmm_import_out *out)
{
    struct weir_vmm_alloc *alloc;

    WEIR_TRY(weir_export_find_alloc(s->tenant, in->token, &alloc));
    s->devices.has_peers = true;
    out->bytes = alloc->bytes;
    out->handle_types = alloc->handle_types;
    out->device = alloc->on_host ? WEIR_VMM_HOST : alloc->device;
    return weir_ops_name_alloc(s, in->h, alloc, true);
}

CUresult weir_host_pool_export(struct weir_session *s, const struct weir_op_pool_export_in *in)
{
    return send_export(s, NULL, in->name);
}

CUresult weir_host_pool_import(struct weir_session *s, const struct weir_op_pool_import_in *in,
                               struct weir_op_pool_import_out *out)
{
    return weir_export_find_name(s->tenant, in->token, out->name);
}
