/*
 * Tensor maps: pure functions of their arguments in the driver. The address is not checked, just as
 * addresses among a kernel's parameters are not: only kernels use a map.
 */
#include "host_backend/worker/ops/ops.h"

#include <string.h>

#define MAX_RANK 5

static CUresult im2col(const struct weir_driver *d, const struct weir_op_tensor_map_in *in,
                       CUtensorMap *map)
{
    return d->cuTensorMapEncodeIm2col(
        map, (CUtensorMapDataType)in->data_type, in->rank, (void *)(uintptr_t)in->address,
        (const cuuint64_t *)in->dims, (const cuuint64_t *)in->strides, in->lower, in->upper,
        in->channels, in->pixels, in->element_strides, (CUtensorMapInterleave)in->interleave,
        (CUtensorMapSwizzle)in->swizzle, (CUtensorMapL2promotion)in->l2_promotion,
        (CUtensorMapFloatOOBfill)in->oob_fill);
}

static CUresult im2col_wide(const struct weir_driver *d, const struct weir_op_tensor_map_in *in,
                            CUtensorMap *map)
{
    return d->cuTensorMapEncodeIm2colWide(
        map, (CUtensorMapDataType)in->data_type, in->rank, (void *)(uintptr_t)in->address,
        (const cuuint64_t *)in->dims, (const cuuint64_t *)in->strides, in->lower[0], in->upper[0],
        in->channels, in->pixels, in->element_strides, (CUtensorMapInterleave)in->interleave,
        (CUtensorMapIm2ColWideMode)in->mode, (CUtensorMapSwizzle)in->swizzle,
        (CUtensorMapL2promotion)in->l2_promotion, (CUtensorMapFloatOOBfill)in->oob_fill);
}

static CUresult encode(const struct weir_driver *d, const struct weir_op_tensor_map_in *in,
                       CUtensorMap *map)
{
    WEIR_FAIL_IF(in->rank == 0 || in->rank > MAX_RANK, CUDA_ERROR_INVALID_VALUE);
    switch (in->kind) {
    case WEIR_TENSOR_MAP_TILED:
        return d->cuTensorMapEncodeTiled(
            map, (CUtensorMapDataType)in->data_type, in->rank, (void *)(uintptr_t)in->address,
            (const cuuint64_t *)in->dims, (const cuuint64_t *)in->strides, in->box,
            in->element_strides, (CUtensorMapInterleave)in->interleave,
            (CUtensorMapSwizzle)in->swizzle, (CUtensorMapL2promotion)in->l2_promotion,
            (CUtensorMapFloatOOBfill)in->oob_fill);
    case WEIR_TENSOR_MAP_IM2COL:
        return im2col(d, in, map);
    case WEIR_TENSOR_MAP_IM2COL_WIDE:
        return im2col_wide(d, in, map);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult weir_host_tensor_map(struct weir_session *s, const struct weir_op_tensor_map_in *in,
                              struct weir_op_tensor_map_out *out)
{
    CUtensorMap map;

    memcpy(&map, in->map, sizeof map);
    WEIR_TRY(in->kind == WEIR_TENSOR_MAP_ADDRESS
                 ? s->driver->cuTensorMapReplaceAddress(&map, (void *)(uintptr_t)in->address)
                 : encode(s->driver, in, &map));
    memcpy(out->map, &map, sizeof out->map);
    return CUDA_SUCCESS;
}
