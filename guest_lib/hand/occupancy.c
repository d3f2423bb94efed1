/* The occupancy queries that cannot be forwarded as they are: a callback, or a nested
 * configuration. */
#include "guest_lib/entry.h"
#include "guest_lib/launch.h"
#include "guest_lib/module.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

/* Resident blocks per multiprocessor for one block size. */
static CUresult blocks_per_sm(const struct weir_function *function, int block, size_t shared_bytes,
                              unsigned int flags, int *ret_blocks)
{
    const struct weir_op_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_in in = {
        .func = function->handle,
        .blockSize = block,
        .dynamicSMemSize = shared_bytes,
        .flags = flags};
    struct weir_op_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_out out;
    CUresult result = weir_call_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        weir_guest_channel(), &in, &out);
    if (result == CUDA_SUCCESS) {
        *ret_blocks = out.numBlocks;
    }
    return result;
}

/* Try block sizes from the largest down in whole warps; the first with most threads resident wins.
 */
CUresult weir_guest_cuOccupancyMaxPotentialBlockSizeWithFlags(
    int *minGridSize, int *blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags)
{
    struct weir_function *function = weir_function_get(func);
    struct weir_ctx *ctx;
    int limit;
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!minGridSize || !blockSize) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_ctx_current(&ctx);
    if (result == CUDA_SUCCESS) {
        result =
            weir_guest_cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, func);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const int *attributes = weir_guest.devices[ctx->device].attributes;
    const int warp = attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
    const int most = attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
    if (blockSizeLimit > 0 && blockSizeLimit < limit) {
        limit = blockSizeLimit;
    }
    int best_threads = 0;
    int best_block = 0;
    int best_blocks = 0;
    for (int round = (limit + warp - 1) / warp * warp; round > 0 && best_threads < most;
         round -= warp) {
        int block = round < limit ? round : limit;
        size_t shared =
            blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(block) : dynamicSMemSize;
        int blocks = 0;
        result = blocks_per_sm(function, block, shared, flags, &blocks);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (blocks * block > best_threads) {
            best_threads = blocks * block;
            best_block = block;
            best_blocks = blocks;
        }
    }
    *blockSize = best_block;
    *minGridSize = best_blocks * attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize,
                                                     CUfunction func,
                                                     CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                     size_t dynamicSMemSize, int blockSizeLimit)
{
    return weir_guest_cuOccupancyMaxPotentialBlockSizeWithFlags(
        minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize, blockSizeLimit,
        CU_OCCUPANCY_DEFAULT);
}

static CUresult clusters(int *ret_value, CUfunction func, const CUlaunchConfig *config,
                         uint32_t potential)
{
    struct weir_function *function = weir_function_get(func);
    CUlaunchAttribute attributes[32];
    uint32_t count;
    if (!function) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!ret_value || !config) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = weir_launch_attributes(config->attrs, config->numAttrs, attributes, &count);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct weir_op_occupancy_clusters_in in = {
        .f = function->handle,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared_bytes = config->sharedMemBytes,
        .potential = potential,
        .attributes = attributes,
        .n_attributes = count,
    };
    struct weir_op_occupancy_clusters_out out;
    result = weir_call_occupancy_clusters(weir_guest_channel(), &in, &out);
    if (result == CUDA_SUCCESS) {
        *ret_value = out.value;
    }
    return result;
}

CUresult weir_guest_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                                       const CUlaunchConfig *config)
{
    return clusters(clusterSize, func, config, 1);
}

CUresult weir_guest_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                                 const CUlaunchConfig *config)
{
    return clusters(numClusters, func, config, 0);
}
