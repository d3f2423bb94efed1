/*
 * Batches of copies and of hints: each member is posted like a single call, in order. That is
 * stricter than a batch requires, and a record for a whole batch would save little.
 *
 * Each copy names an order in which its source may be read. The guest always reads pageable memory
 * before the call returns, which every order allows.
 */
#include "guest_lib/memory.h"
#include "guest_lib/stream.h"
#include "proto/guest_hand.h"

#include <stdint.h>
#include <string.h>

/* Check a list of attributes: each begins at the member that its index names, the first at 0. */
static bool list_good(const void *list, const size_t *firsts, size_t n_list, size_t count)
{
    if (!list || !firsts || !n_list || n_list > count || firsts[0] != 0) {
        return false;
    }
    for (size_t i = 1; i < n_list; i++) {
        if (firsts[i] <= firsts[i - 1] || firsts[i] >= count) {
            return false;
        }
    }
    return true;
}

static bool order_good(CUmemcpySrcAccessOrder order)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

/* ---------------------------------------------------------------- copies */

static CUresult copy_batch(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                           size_t count, const CUmemcpyAttributes *attrs, const size_t *firsts,
                           size_t n_attrs, CUstream stream)
{
    if (!dsts || !srcs || !sizes || !count || stream == CU_STREAM_LEGACY ||
        !list_good(attrs, firsts, n_attrs, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < n_attrs; i++) {
        WEIR_FAIL_IF(!order_good(attrs[i].srcAccessOrder), CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++) {
        WEIR_FAIL_IF(!dsts[i] || !srcs[i] || !sizes[i], CUDA_ERROR_INVALID_VALUE);
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = weir_guest_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
    }
    return result;
}

CUresult weir_guest_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                          size_t count, CUmemcpyAttributes *attrs,
                                          size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

/* On failure report SIZE_MAX: it is not known which member failed. */
CUresult weir_guest_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                       size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
                                       size_t numAttrs, size_t *failIdx, CUstream hStream)
{
    if (failIdx) {
        *failIdx = SIZE_MAX;
    }
    return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

/* The size of an array's element in bytes. */
static CUresult element_bytes(CUarray array, size_t *ret_bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR shape;
    WEIR_TRY(weir_guest_cuArray3DGetDescriptor_v2(&shape, array));
    switch ((unsigned int)shape.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        *ret_bytes = shape.NumChannels;
        return CUDA_SUCCESS;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        *ret_bytes = 2ul * shape.NumChannels;
        return CUDA_SUCCESS;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        *ret_bytes = 4ul * shape.NumChannels;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
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
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER || row < extent->width ||
        rows < extent->height) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    side->type = CU_MEMORYTYPE_UNIFIED;
    side->ptr = operand->op.ptr.ptr;
    side->pitch = row * element;
    side->height = rows;
    return CUDA_SUCCESS;
}

static CUresult read_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *ret_copy)
{
    struct side src, dst;
    size_t element = 1;
    CUresult result = CUDA_SUCCESS;
    if (!op->extent.width || !op->extent.height || !op->extent.depth ||
        !order_good(op->srcAccessOrder)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        result = element_bytes(op->src.op.array.array, &element);
    } else if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        result = element_bytes(op->dst.op.array.array, &element);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    WEIR_TRY(read_operand(&op->src, &op->extent, element, &src));
    WEIR_TRY(read_operand(&op->dst, &op->extent, element, &dst));
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
        .WidthInBytes = op->extent.width * element,
        .Height = op->extent.height,
        .Depth = op->extent.depth,
    };
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                            unsigned long long flags, CUstream hStream)
{
    CUresult result = CUDA_SUCCESS;
    WEIR_FAIL_IF(!numOps || !opList || flags || hStream == CU_STREAM_LEGACY,
                 CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numOps && result == CUDA_SUCCESS; i++) {
        CUDA_MEMCPY3D copy;
        result = read_box(&opList[i], &copy);
        if (result == CUDA_SUCCESS) {
            result = weir_guest_cuMemcpy3DAsync_v2(&copy, hStream);
        }
    }
    return result;
}

CUresult weir_guest_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                         size_t *failIdx, unsigned long long flags,
                                         CUstream hStream)
{
    if (failIdx) {
        *failIdx = SIZE_MAX;
    }
    return weir_guest_cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

/* ---------------------------------------------------------------- hints */

/* Is this a batch of hints as the driver takes it? */
static bool hints_good(const CUdeviceptr *at, const size_t *sizes, size_t count,
                       unsigned long long flags, CUstream stream)
{
    return at && sizes && count && !flags && stream && stream != CU_STREAM_LEGACY;
}

CUresult weir_guest_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                            CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                            size_t numPrefetchLocs, unsigned long long flags,
                                            CUstream hStream)
{
    if (!hints_good(dptrs, sizes, count, flags, hStream) ||
        !list_good(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = CUDA_SUCCESS;
    size_t at = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] == i) {
            at++;
        }
        result = weir_guest_cuMemPrefetchAsync_v2(dptrs[i], sizes[i], prefetchLocs[at], 0, hStream);
    }
    return result;
}

/* Only check the arguments: contents that may be discarded may also stay. */
CUresult weir_guest_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           unsigned long long flags, CUstream hStream)
{
    struct weir_guest_stream *stream;
    struct weir_mem mem;
    WEIR_FAIL_IF(!hints_good(dptrs, sizes, count, flags, hStream), CUDA_ERROR_INVALID_VALUE);
    CUresult result = weir_guest_stream_get(hStream, &stream);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = weir_mem_check_managed(dptrs[i], sizes[i], &mem);
    }
    return result;
}
