/* What arrays are made of, and files for what they hold: see arrays.h. */
#include "host_backend/worker/session/arrays.h"

#include "base/memfd.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "proto/array_format.h"
#include "proto/wire/kinds.h"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of a channel of a texel. */
static uint32_t channel_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X4:
        return 1;
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X4:
        return 2;
    default:
        return weir_format_bytes(format);
    }
}

uint64_t weir_array_texel_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    return (uint64_t)channel_bytes(desc->Format) * desc->NumChannels;
}

static size_t at_least_one(size_t n)
{
    return n != 0 ? n : 1;
}

static CUresult visit_part(struct weir_session *s, CUarray part, weir_array_visit_fn *visit,
                           void *user)
{
    CUDA_ARRAY3D_DESCRIPTOR d;

    memset(&d, 0, sizeof d);
    WEIR_TRY(s->driver->cuArray3DGetDescriptor_v2(&d, part));
    uint64_t texel = weir_array_texel_bytes(&d);
    WEIR_FAIL_IF(texel == 0 || d.Width == 0, CUDA_ERROR_NOT_SUPPORTED);
    return visit(s, part,
                 (size_t[3]){d.Width * texel, at_least_one(d.Height), at_least_one(d.Depth)}, user);
}

CUresult weir_array_visit(struct weir_session *session, const struct weir_object *array,
                          weir_array_visit_fn *visit, void *user)
{
    CUresult result = CUDA_SUCCESS;

    if (array->kind == WEIR_KIND_ARRAY) {
        return visit_part(session, array->native, visit, user);
    }
    for (unsigned i = 0; result == CUDA_SUCCESS; i++) {
        CUarray level = NULL;

        result = session->driver->cuMipmappedArrayGetLevel(&level, array->native, i);
        if (result == CUDA_ERROR_INVALID_VALUE && i != 0) {
            return CUDA_SUCCESS; /* the array has no more levels */
        }
        if (result == CUDA_SUCCESS) {
            result = visit_part(session, level, visit, user);
        }
    }
    return result;
}

CUresult weir_array_take_copy(struct weir_session *session, struct weir_host_array *array,
                              uint64_t bytes, int fd)
{
    struct weir_account *account = &session->tenant->account;
    CUresult result = weir_memfd_is_sealed(fd, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    void *at = MAP_FAILED;

    if (result == CUDA_SUCCESS && weir_account_charge(account, WEIR_ACCOUNT_HOST_MEMORY, bytes)) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
            weir_account_release(account, WEIR_ACCOUNT_HOST_MEMORY, bytes);
        }
    }
    if (at == MAP_FAILED) {
        close(fd);
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    array->copy = at;
    array->copy_bytes = bytes;
    array->copy_file = fd;
    array->account = account;
    return CUDA_SUCCESS;
}

void weir_array_drop_copy(struct weir_host_array *array)
{
    if (array->copy) {
        munmap(array->copy, array->copy_bytes);
        close(array->copy_file);
        if (array->account) {
            weir_account_release(array->account, WEIR_ACCOUNT_HOST_MEMORY, array->copy_bytes);
        }
        array->copy = NULL;
    }
}
