/*
 * Encodes tensor maps. A map holds the arguments in an encoding of our own. What the manual forbids
 * is refused. softgpu does not execute the instructions that read maps.
 *
 * Words of a map: 0 address, 1 the small arguments, 2-6 dimensions, 7-10 strides, 11-12 box or
 * corners, 13 element strides, 14 pixel counts, 15 a seal that tells a map from other bytes.
 */
#include "base/status.h"
#include "proto/softgpu_hand.h"

#include <stdbool.h>
#include <string.h>

#define SEAL     0x70616d726f736e74ull
#define MAX_RANK 5

enum { TILED, IM2COL, IM2COL_WIDE };

struct request {
    uint32_t kind, type, rank;
    uint64_t address;
    const cuuint64_t *dims, *strides;
    const cuuint32_t *element_strides;
    uint32_t interleave, swizzle, l2, fill;
};

/* Bits of an element in memory; the packed types count single values. */
static uint32_t bits_of(uint32_t type)
{
    static const uint8_t bits[] = {8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6};

    return type < sizeof bits ? bits[type] : 0;
}

static bool is_float(uint32_t type)
{
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

static uint32_t swizzle_bytes(uint32_t swizzle)
{
    return swizzle == CU_TENSOR_MAP_SWIZZLE_32B   ? 32
           : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                  : 128;
}

static bool common_good(const struct request *r)
{
    uint64_t align = r->interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;

    if (r->rank == 0 || r->rank > MAX_RANK || !r->dims || !r->element_strides ||
        (r->rank > 1 && !r->strides) || bits_of(r->type) == 0 ||
        r->interleave > CU_TENSOR_MAP_INTERLEAVE_32B ||
        r->swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B ||
        r->l2 > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        r->fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) {
        return false;
    }
    if (r->address % align != 0 || (r->interleave != 0 && r->rank < 3) ||
        (r->interleave == CU_TENSOR_MAP_INTERLEAVE_32B &&
         r->swizzle != CU_TENSOR_MAP_SWIZZLE_32B) ||
        (r->fill != 0 && !is_float(r->type))) {
        return false;
    }
    return !WEIR_ANY(
        i, r->rank,
        r->dims[i] == 0 || r->dims[i] > 1ull << 32 ||
            (i + 1 < r->rank && (r->strides[i] % align != 0 || r->strides[i] >= 1ull << 40)) ||
            ((i > 0 || r->interleave != 0) &&
             (r->element_strides[i] == 0 || r->element_strides[i] > 8)));
}

/* Check the inner side of a box, which swizzling limits. */
static bool inner_good(const struct request *r, uint64_t elements)
{
    uint64_t bytes = elements * bits_of(r->type) / 8;

    return r->interleave != 0 ||
           (bytes % 16 == 0 && (r->swizzle == 0 || bytes <= swizzle_bytes(r->swizzle)));
}

static void write_common(const struct request *r, CUtensorMap *map)
{
    memset(map, 0, sizeof *map);
    map->opaque[0] = r->address;
    map->opaque[1] = r->kind | (uint64_t)r->type << 8 | (uint64_t)r->rank << 16 |
                     (uint64_t)r->interleave << 24 | (uint64_t)r->swizzle << 32 |
                     (uint64_t)r->l2 << 40 | (uint64_t)r->fill << 48;
    for (uint32_t i = 0; i < r->rank; i++) {
        map->opaque[2 + i] = r->dims[i];
        map->opaque[13] |= (uint64_t)(uint8_t)r->element_strides[i] << 8 * i;
        if (i + 1 < r->rank) {
            map->opaque[7 + i] = r->strides[i];
        }
    }
    map->opaque[15] = SEAL;
}

/* What the parameters of the three encoders have in common. */
#define REQUEST(kind)                                                                              \
    {                                                                                              \
        kind, (uint32_t)tensorDataType, tensorRank, (uintptr_t)globalAddress, globalDim,           \
            globalStrides, elementStrides, (uint32_t)interleave, (uint32_t)swizzle,                \
            (uint32_t)l2Promotion, (uint32_t)oobFill                                               \
    }

CUresult weir_soft_cuTensorMapEncodeTiled(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    const cuuint32_t *boxDim, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    const struct request r = REQUEST(TILED);

    WEIR_FAIL_IF(!tensorMap || !boxDim || !common_good(&r) || !inner_good(&r, boxDim[0]),
                 CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < tensorRank; i++) {
        WEIR_FAIL_IF(boxDim[i] == 0 || boxDim[i] > 256, CUDA_ERROR_INVALID_VALUE);
    }
    write_common(&r, tensorMap);
    for (uint32_t i = 0; i < tensorRank; i++) {
        tensorMap->opaque[11 + i / 4] |= (uint64_t)boxDim[i] << 16 * (i % 4);
    }
    return CUDA_SUCCESS;
}

static CUresult write_im2col(const struct request *r, const int *lower, const int *upper,
                             uint32_t corners, uint32_t channels, uint32_t pixels, CUtensorMap *map)
{
    if (!map || !common_good(r) || r->rank < 3 || channels == 0 || channels > 256 || pixels == 0 ||
        pixels > 1024 || !inner_good(r, channels)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    write_common(r, map);
    for (uint32_t i = 0; i < corners; i++) {
        map->opaque[11] |= (uint64_t)(uint16_t)lower[i] << 16 * i;
        map->opaque[12] |= (uint64_t)(uint16_t)upper[i] << 16 * i;
    }
    map->opaque[14] = channels | (uint64_t)pixels << 32;
    return CUDA_SUCCESS;
}

/* Check a box's corners. Their bounds depend on how many spatial dimensions share a map's bits. */
static bool corners_good(const int *lower, const int *upper, uint32_t n)
{
    static const int room[] = {0, 32768, 128, 16};

    if (!lower || !upper || n == 0 || n > 3) {
        return false;
    }
    return !WEIR_ANY(i, n,
                     lower[i] < -room[n] || lower[i] >= room[n] || upper[i] < -room[n] ||
                         upper[i] >= room[n]);
}

CUresult weir_soft_cuTensorMapEncodeIm2col(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    const struct request r = REQUEST(IM2COL);

    if (tensorRank < 3 || !corners_good(pixelBoxLowerCorner, pixelBoxUpperCorner, tensorRank - 2)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return write_im2col(&r, pixelBoxLowerCorner, pixelBoxUpperCorner, tensorRank - 2,
                        channelsPerPixel, pixelsPerColumn, tensorMap);
}

/* Only later devices can use such maps, but the host can encode one for any device. */
CUresult weir_soft_cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    const struct request r = REQUEST(IM2COL_WIDE);

    if ((uint32_t)mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128 ||
        !corners_good(&pixelBoxLowerCornerWidth, &pixelBoxUpperCornerWidth, 1)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return write_im2col(&r, &pixelBoxLowerCornerWidth, &pixelBoxUpperCornerWidth, 1,
                        channelsPerPixel, pixelsPerColumn, tensorMap);
}

CUresult weir_soft_cuTensorMapReplaceAddress(CUtensorMap *tensorMap, void *globalAddress)
{
    WEIR_FAIL_IF(!tensorMap || tensorMap->opaque[15] != SEAL, CUDA_ERROR_INVALID_VALUE);
    uint64_t align = (tensorMap->opaque[1] >> 24 & 0xff) == 2 ? 32 : 16;
    WEIR_FAIL_IF((uintptr_t)globalAddress % align != 0, CUDA_ERROR_INVALID_VALUE);
    tensorMap->opaque[0] = (uintptr_t)globalAddress;
    return CUDA_SUCCESS;
}
