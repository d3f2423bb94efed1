/*
 * Tensor maps. A map is 128 bytes, the driver's encoding of the arguments. Programs encode one for
 * every launch, mostly of the same tensors, so the worker is asked once for the same arguments.
 *
 * Known maps are in a table by hash with one map a slot; a new map replaces an old one.
 */
#include "base/hash.h"
#include "base/thread.h"
#include "guest_lib/register.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/wire/op_kinds.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANK 5
#define SLOTS    512

struct kept_map {
    struct weir_op_tensor_map_in in;
    uint64_t map[16];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards slots */
static struct kept_map *slots[SLOTS];

static struct kept_map **slot_of(const struct weir_op_tensor_map_in *in)
{
    return &slots[weir_hash64_of(in, sizeof(*in)) % SLOTS];
}

static bool recall(const struct weir_op_tensor_map_in *in, CUtensorMap *ret_map)
{
    WEIR_LOCKED(&lock);
    const struct kept_map *kept = *slot_of(in);
    /* begin() has cleared the padding. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    bool found = kept && memcmp(&kept->in, in, sizeof(*in)) == 0;
    if (found) {
        memcpy(ret_map, kept->map, sizeof(kept->map));
    }
    return found;
}

/* Keep a map. If there is no memory for the table, the worker is asked again. */
static void keep(const struct weir_op_tensor_map_in *in, const uint64_t map[16])
{
    WEIR_LOCKED(&lock);
    struct kept_map **slot = slot_of(in);
    if (!*slot) {
        *slot = calloc(1, sizeof(**slot));
    }
    if (*slot) {
        memcpy(&(*slot)->in, in, sizeof(*in));
        memcpy((*slot)->map, map, sizeof((*slot)->map));
    }
}

static CUresult encode(const struct weir_op_tensor_map_in *in, CUtensorMap *ret_map)
{
    struct weir_op_tensor_map_out out;
    CUresult result = weir_register_reach(in->address);
    if (result != CUDA_SUCCESS || recall(in, ret_map)) {
        return result;
    }
    WEIR_TRY(weir_call_tensor_map(weir_guest_channel(), in, &out));
    keep(in, out.map);
    memcpy(ret_map, out.map, sizeof(out.map));
    return CUDA_SUCCESS;
}

/* The beginning of all three encoders; `in` is compared as bytes, so its padding is cleared,
 * too. */
static CUresult begin(struct weir_op_tensor_map_in *in, uint32_t kind, const CUtensorMap *map,
                      uint32_t rank, const void *address, const cuuint64_t *dims,
                      const cuuint64_t *strides, const cuuint32_t *element_strides)
{
    if (!map || !rank || rank > MAX_RANK || !dims || (rank > 1 && !strides) || !element_strides) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(in, 0, sizeof(*in));
    in->kind = kind;
    in->rank = rank;
    in->address = (uintptr_t)address;
    memcpy(in->dims, dims, rank * sizeof(*dims));
    if (rank > 1) {
        memcpy(in->strides, strides, (rank - 1) * sizeof(*strides));
    }
    memcpy(in->element_strides, element_strides, rank * sizeof(*element_strides));
    return CUDA_SUCCESS;
}

/* The end of all three encoders, with their common last arguments. */
static CUresult encode_as(struct weir_op_tensor_map_in *in, CUtensorMapDataType type,
                          CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                          CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill,
                          CUtensorMap *ret_map)
{
    in->data_type = (uint32_t)type;
    in->interleave = (uint32_t)interleave;
    in->swizzle = (uint32_t)swizzle;
    in->l2_promotion = (uint32_t)promotion;
    in->oob_fill = (uint32_t)fill;
    return encode(in, ret_map);
}

CUresult weir_guest_cuTensorMapEncodeTiled(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    const cuuint32_t *boxDim, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    struct weir_op_tensor_map_in in;
    WEIR_TRY(begin(&in, WEIR_TENSOR_MAP_TILED, tensorMap, tensorRank, globalAddress, globalDim,
                   globalStrides, elementStrides));
    WEIR_FAIL_IF(!boxDim, CUDA_ERROR_INVALID_VALUE);
    memcpy(in.box, boxDim, tensorRank * sizeof(*boxDim));
    return encode_as(&in, tensorDataType, interleave, swizzle, l2Promotion, oobFill, tensorMap);
}

CUresult weir_guest_cuTensorMapEncodeIm2col(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    struct weir_op_tensor_map_in in;
    CUresult result = begin(&in, WEIR_TENSOR_MAP_IM2COL, tensorMap, tensorRank, globalAddress,
                            globalDim, globalStrides, elementStrides);
    if (result == CUDA_SUCCESS &&
        (tensorRank < 3 || !pixelBoxLowerCorner || !pixelBoxUpperCorner)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memcpy(in.lower, pixelBoxLowerCorner, (tensorRank - 2) * sizeof(*pixelBoxLowerCorner));
    memcpy(in.upper, pixelBoxUpperCorner, (tensorRank - 2) * sizeof(*pixelBoxUpperCorner));
    in.channels = channelsPerPixel;
    in.pixels = pixelsPerColumn;
    return encode_as(&in, tensorDataType, interleave, swizzle, l2Promotion, oobFill, tensorMap);
}

CUresult weir_guest_cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    struct weir_op_tensor_map_in in;
    WEIR_TRY(begin(&in, WEIR_TENSOR_MAP_IM2COL_WIDE, tensorMap, tensorRank, globalAddress,
                   globalDim, globalStrides, elementStrides));
    in.lower[0] = pixelBoxLowerCornerWidth;
    in.upper[0] = pixelBoxUpperCornerWidth;
    in.channels = channelsPerPixel;
    in.pixels = pixelsPerColumn;
    in.mode = (uint32_t)mode;
    return encode_as(&in, tensorDataType, interleave, swizzle, l2Promotion, oobFill, tensorMap);
}

CUresult weir_guest_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
    struct weir_op_tensor_map_in in;
    WEIR_FAIL_IF(!tensorMap, CUDA_ERROR_INVALID_VALUE);
    memset(&in, 0, sizeof(in));
    in.kind = WEIR_TENSOR_MAP_ADDRESS;
    in.address = (uintptr_t)globalAddress;
    memcpy(in.map, tensorMap, sizeof(in.map));
    return encode(&in, tensorMap);
}
