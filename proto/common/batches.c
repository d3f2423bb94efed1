/*
 * Batches of copies and of hints: each member goes to the entry point for a single one, in order.
 * That is stricter than a batch requires, and a record for a whole batch would save little.
 *
 * Each copy names an order in which its source may be read. Pageable memory is always read before
 * the call returns, which every order allows.
 */
#include "base/status.h"
#include "proto/array_format.h"
#include "proto/common/answers.h"

#include <stdbool.h>
#include <string.h>

/* Check a list of attributes: each begins at the member that its index names, the first at 0. */
static bool list_good(const void *list, const size_t *firsts, size_t n_list, size_t count)
{
    WEIR_FAIL_IF(!list || !firsts || !n_list || n_list > count || firsts[0] != 0, false);
    for (size_t i = 1; i < n_list; i++) {
        WEIR_FAIL_IF(firsts[i] <= firsts[i - 1] || firsts[i] >= count, false);
    }
    return true;
}

static bool order_good(CUmemcpySrcAccessOrder order)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

CUresult weir_answer_copies(CUresult (*copy)(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                             CUstream stream),
                            const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                            size_t count, const CUmemcpyAttributes *attributes,
                            const size_t *firsts, size_t n_attributes, size_t *ret_failed,
                            CUstream stream)
{
    WEIR_GIVE(ret_failed, SIZE_MAX);
    if (!dsts || !srcs || !sizes || !count || stream == CU_STREAM_LEGACY ||
        !list_good(attributes, firsts, n_attributes, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < n_attributes; i++) {
        WEIR_FAIL_IF(!order_good(attributes[i].srcAccessOrder), CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        WEIR_FAIL_IF(!dsts[i] || !srcs[i] || !sizes[i], CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        WEIR_TRY(copy(dsts[i], srcs[i], sizes[i], stream));
    }
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- boxes */

typedef CUresult (*describe_fn)(CUDA_ARRAY3D_DESCRIPTOR *ret_shape, CUarray array);

/* The size of an array's element in bytes. */
static CUresult element_bytes(describe_fn describe, CUarray array, size_t *ret_bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    WEIR_TRY(describe(&shape, array));
    *ret_bytes = (size_t)weir_format_bytes(shape.Format) * shape.NumChannels;
    return weir_format_bytes(shape.Format) != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

struct side {
    CUmemorytype type;
    CUdeviceptr ptr;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static CUresult read_operand(const CUmemcpy3DOperand *operand, const CUextent3D *extent,
                             size_t element, struct side *side)
{
    memset(side, 0, sizeof(*side));
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        side->type = CU_MEMORYTYPE_ARRAY;
        side->array = operand->op.array.array;
        side->x = operand->op.array.offset.x * element;
        side->y = operand->op.array.offset.y;
        side->z = operand->op.array.offset.z;
        return CUDA_SUCCESS;
    }
    size_t row = operand->op.ptr.rowLength ? operand->op.ptr.rowLength : extent->width;
    size_t rows = operand->op.ptr.layerHeight ? operand->op.ptr.layerHeight : extent->height;
    WEIR_FAIL_IF(operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER || row < extent->width ||
                     rows < extent->height,
                 CUDA_ERROR_INVALID_VALUE);
    side->type = CU_MEMORYTYPE_UNIFIED;
    side->ptr = operand->op.ptr.ptr;
    side->pitch = row * element;
    side->height = rows;
    return CUDA_SUCCESS;
}

static CUresult read_box(describe_fn describe, const CUDA_MEMCPY3D_BATCH_OP *box,
                         CUDA_MEMCPY3D *ret_copy)
{
    struct side src, dst;
    size_t element = 1;
    WEIR_FAIL_IF(!box->extent.width || !box->extent.height || !box->extent.depth ||
                     !order_good(box->srcAccessOrder),
                 CUDA_ERROR_INVALID_VALUE);
    if (box->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        WEIR_TRY(element_bytes(describe, box->src.op.array.array, &element));
    } else if (box->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        WEIR_TRY(element_bytes(describe, box->dst.op.array.array, &element));
    }
    WEIR_TRY(read_operand(&box->src, &box->extent, element, &src));
    WEIR_TRY(read_operand(&box->dst, &box->extent, element, &dst));
    *ret_copy = (CUDA_MEMCPY3D){
        .srcXInBytes = src.x,
        .srcY = src.y,
        .srcZ = src.z,
        .srcMemoryType = src.type,
        .srcDevice = src.ptr,
        .srcArray = src.array,
        .srcPitch = src.pitch,
        .srcHeight = src.height,
        .dstXInBytes = dst.x,
        .dstY = dst.y,
        .dstZ = dst.z,
        .dstMemoryType = dst.type,
        .dstDevice = dst.ptr,
        .dstArray = dst.array,
        .dstPitch = dst.pitch,
        .dstHeight = dst.height,
        .WidthInBytes = box->extent.width * element,
        .Height = box->extent.height,
        .Depth = box->extent.depth,
    };
    return CUDA_SUCCESS;
}

CUresult weir_answer_boxes(CUresult (*copy)(const CUDA_MEMCPY3D *box, CUstream stream),
                           CUresult (*describe)(CUDA_ARRAY3D_DESCRIPTOR *ret_shape, CUarray array),
                           const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t count, size_t *ret_failed,
                           unsigned long long flags, CUstream stream)
{
    WEIR_GIVE(ret_failed, SIZE_MAX);
    WEIR_FAIL_IF(!count || !boxes || flags || stream == CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        CUDA_MEMCPY3D box;
        WEIR_TRY(read_box(describe, &boxes[i], &box));
        WEIR_TRY(copy(&box, stream));
    }
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- hints */

CUresult weir_answer_prefetches(CUresult (*prefetch)(CUdeviceptr at, size_t bytes,
                                                     CUmemLocation location, unsigned int flags,
                                                     CUstream stream),
                                const CUdeviceptr *at, const size_t *sizes, size_t count,
                                const CUmemLocation *locations, const size_t *firsts,
                                size_t n_locations, unsigned long long flags, CUstream stream)
{
    if (!at || !sizes || !count || flags || !stream || stream == CU_STREAM_LEGACY ||
        !list_good(locations, firsts, n_locations, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t location = 0;
    for (size_t i = 0; i < count; i++) {
        if (location + 1 < n_locations && firsts[location + 1] == i) {
            location++;
        }
        WEIR_TRY(prefetch(at[i], sizes[i], locations[location], 0, stream));
    }
    return CUDA_SUCCESS;
}
