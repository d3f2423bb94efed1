/*
 * Occupancy queries. Libraries ask the same ones before every launch, and an answer only depends on
 * the function, its settable attributes and the arguments. So answers are kept in a small table. A
 * function's epoch, part of the key, grows with every attribute that is set.
 */
#include "base/hash.h"
#include "base/thread.h"
#include "guest_lib/launch.h"
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <string.h>

#define SLOTS 1024

enum question { BLOCKS, SHARED_BYTES, ACTIVE_CLUSTERS, CLUSTER_SIZE };

struct answer {
    uint64_t question; /* hash of the question; 0: empty */
    uint64_t value;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards answers */
static struct answer answers[SLOTS];

/* Hash a function and the arguments of a query about it. */
static uint64_t question_of(const struct weir_guest_function *function, enum question kind,
                            uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t words[] = {
        function->handle, __atomic_load_n(&function->epoch, __ATOMIC_RELAXED), kind, a, b, c};
    uint64_t hash = weir_hash64_of(words, sizeof(words));
    return hash ? hash : 1;
}

static bool recall(uint64_t question, uint64_t *ret_value)
{
    WEIR_LOCKED(&lock);
    const struct answer *answer = &answers[question % SLOTS];
    bool found = answer->question == question;
    if (found) {
        *ret_value = answer->value;
    }
    return found;
}

static void keep(uint64_t question, uint64_t value)
{
    WEIR_LOCKED(&lock);
    answers[question % SLOTS] = (struct answer){question, value};
}

/* Resident blocks per multiprocessor for one block size. */
static CUresult blocks_per_sm(const struct weir_guest_function *function, int block,
                              size_t shared_bytes, unsigned int flags, int *ret_blocks)
{
    const struct weir_op_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_in in = {
        .func = function->handle,
        .blockSize = block,
        .dynamicSMemSize = shared_bytes,
        .flags = flags};
    struct weir_op_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_out out;
    uint64_t question = question_of(function, BLOCKS, (uint32_t)block, shared_bytes, flags);
    uint64_t value;
    if (recall(question, &value)) {
        *ret_blocks = (int)value;
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_call_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(weir_guest_channel(),
                                                                            &in, &out));
    keep(question, (uint64_t)out.numBlocks);
    *ret_blocks = out.numBlocks;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
    struct weir_guest_function *function = weir_function_get(func);
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    return numBlocks ? blocks_per_sm(function, blockSize, dynamicSMemSize, flags, numBlocks)
                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize,
                                                            CUfunction func, int numBlocks,
                                                            int blockSize)
{
    struct weir_guest_function *function = weir_function_get(func);
    uint64_t value;
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!dynamicSmemSize, CUDA_ERROR_INVALID_VALUE);
    uint64_t question =
        question_of(function, SHARED_BYTES, (uint32_t)numBlocks, (uint32_t)blockSize, 0);
    if (recall(question, &value)) {
        *dynamicSmemSize = value;
        return CUDA_SUCCESS;
    }
    const struct weir_op_cuOccupancyAvailableDynamicSMemPerBlock_in in = {
        .func = function->handle, .numBlocks = numBlocks, .blockSize = blockSize};
    struct weir_op_cuOccupancyAvailableDynamicSMemPerBlock_out out;
    WEIR_TRY(weir_call_cuOccupancyAvailableDynamicSMemPerBlock(weir_guest_channel(), &in, &out));
    keep(question, out.dynamicSmemSize);
    *dynamicSmemSize = out.dynamicSmemSize;
    return CUDA_SUCCESS;
}

/* Try block sizes from the largest down in whole warps; take the first one with most resident
 * threads. */
CUresult weir_guest_cuOccupancyMaxPotentialBlockSizeWithFlags(
    int *minGridSize, int *blockSize, CUfunction func,
    CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize, int blockSizeLimit,
    unsigned int flags)
{
    struct weir_guest_function *function = weir_function_get(func);
    struct weir_guest_ctx *ctx;
    int limit;
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!minGridSize || !blockSize, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_ctx_current(&ctx));
    WEIR_TRY(weir_guest_cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, func));
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
        int block = WEIR_MIN(round, limit);
        size_t shared =
            blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(block) : dynamicSMemSize;
        int blocks = 0;
        WEIR_TRY(blocks_per_sm(function, block, shared, flags, &blocks));
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

CUresult weir_guest_occupancy_clusters(int *ret_value, CUfunction func,
                                       const CUlaunchConfig *config, bool potential)
{
    struct weir_guest_function *function = weir_function_get(func);
    CUlaunchAttribute attributes[WEIR_LAUNCH_ATTRIBUTES_MAX];
    uint32_t count;
    WEIR_FAIL_IF(!function, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!ret_value || !config, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_launch_attributes(config->attrs, config->numAttrs, attributes, &count));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) { /* events do not change the answer */
        if (attributes[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
            attributes[i].id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
            attributes[kept++] = attributes[i];
        }
    }
    count = kept;
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
    const struct weir_launch_dims dims = {{in.grid[0], in.grid[1], in.grid[2]},
                                          {in.block[0], in.block[1], in.block[2]},
                                          in.shared_bytes};
    uint64_t value;
    uint64_t question = question_of(function, potential ? CLUSTER_SIZE : ACTIVE_CLUSTERS,
                                    weir_hash64_of(&dims, sizeof(dims)),
                                    weir_hash64_of(attributes, count * sizeof(attributes[0])), 0);
    if (recall(question, &value)) {
        *ret_value = (int)value;
        return CUDA_SUCCESS;
    }
    WEIR_TRY(weir_call_occupancy_clusters(weir_guest_channel(), &in, &out));
    keep(question, (uint64_t)out.value);
    *ret_value = out.value;
    return CUDA_SUCCESS;
}
