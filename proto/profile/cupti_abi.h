/*
 * What libcupti.so and its users agree on: numbers, structs and functions of CUPTI, as far as
 * Weir's library has them and the worker uses NVIDIA's. Facts from CUDA 13.0's headers; structs of
 * CUDA 12 are beginnings of these, so one layout serves both. tests/parity compares it with a
 * toolkit's headers.
 *
 * Names are CUPTI's own: a reader knows them. Members that nobody here uses keep their names.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stddef.h>
#include <stdint.h>

typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_INVALID_CONTEXT = 3,
    CUPTI_ERROR_INVALID_OPERATION = 7,
    CUPTI_ERROR_OUT_OF_MEMORY = 8,
    CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_NOT_INITIALIZED = 15,
    CUPTI_ERROR_QUEUE_EMPTY = 18,
    CUPTI_ERROR_INVALID_STREAM = 20,
    CUPTI_ERROR_INVALID_KIND = 21,
    CUPTI_ERROR_NOT_SUPPORTED = 27,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
    CUPTI_ERROR_UNKNOWN = 999,
} CUptiResult;

typedef enum {
    CUPTI_ACTIVITY_KIND_INVALID = 0,
    CUPTI_ACTIVITY_KIND_MEMCPY = 1,
    CUPTI_ACTIVITY_KIND_MEMSET = 2,
    CUPTI_ACTIVITY_KIND_KERNEL = 3,
    CUPTI_ACTIVITY_KIND_DRIVER = 4,
    CUPTI_ACTIVITY_KIND_RUNTIME = 5,
    CUPTI_ACTIVITY_KIND_DEVICE = 8,
    CUPTI_ACTIVITY_KIND_CONTEXT = 9,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
    CUPTI_ACTIVITY_KIND_MARKER = 12,
    CUPTI_ACTIVITY_KIND_MARKER_DATA = 13,
    CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
    CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
    CUPTI_ACTIVITY_KIND_STREAM = 37,
    CUPTI_ACTIVITY_KIND_SYNCHRONIZATION = 38,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 39,
    CUPTI_ACTIVITY_KIND_GRAPH_TRACE = 51,
    CUPTI_ACTIVITY_KIND_COUNT = 56,
} CUpti_ActivityKind;

typedef enum {
    CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
} CUpti_ActivityMemcpyKind;

typedef enum {
    CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
    CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE = 1,
    CUPTI_ACTIVITY_MEMORY_KIND_PINNED = 2,
    CUPTI_ACTIVITY_MEMORY_KIND_DEVICE = 3,
    CUPTI_ACTIVITY_MEMORY_KIND_ARRAY = 4,
    CUPTI_ACTIVITY_MEMORY_KIND_MANAGED = 5,
} CUpti_ActivityMemoryKind;

enum { CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC = 1, CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC = 1 };
enum { CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL = 6 << 16 };
enum { CUPTI_ACTIVITY_OBJECT_THREAD = 2, CUPTI_ACTIVITY_OBJECT_STREAM = 5 };
enum {
    CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS = 1,
    CUPTI_ACTIVITY_FLAG_MARKER_START = 2,
    CUPTI_ACTIVITY_FLAG_MARKER_END = 4,
    CUPTI_ACTIVITY_FLAG_MARKER_COLOR_NONE = 1,
    CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB = 2,
};
enum {
    CUPTI_METRIC_VALUE_KIND_DOUBLE = 0,
    CUPTI_METRIC_VALUE_KIND_UINT64 = 1,
    CUPTI_METRIC_VALUE_KIND_INT64 = 4,
};
enum { CUPTI_ACTIVITY_FLAG_DEVICE_CONCURRENT_KERNELS = 1, CUPTI_ACTIVITY_COMPUTE_API_CUDA = 1 };
enum {
    CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT = 1,
    CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING = 2,
    CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL = 3,
};
enum { CUPTI_CHANNEL_TYPE_COMPUTE = 1, CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY = 2 };

typedef enum {
    CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE = 1,
    CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT = 2,
    CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE = 3,
    CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE = 4,
} CUpti_ActivitySynchronizationType;

enum { CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE = 2 };

#define CUPTI_SYNCHRONIZATION_INVALID_VALUE UINT32_MAX

typedef enum {
    CUPTI_EXTERNAL_CORRELATION_KIND_INVALID = 0,
    CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 = 3,
    CUPTI_EXTERNAL_CORRELATION_KIND_SIZE = 6,
} CUpti_ExternalCorrelationKind;

typedef enum {
    CUPTI_CB_DOMAIN_INVALID = 0,
    CUPTI_CB_DOMAIN_DRIVER_API = 1,
    CUPTI_CB_DOMAIN_RUNTIME_API = 2,
    CUPTI_CB_DOMAIN_RESOURCE = 3,
    CUPTI_CB_DOMAIN_SYNCHRONIZE = 4,
    CUPTI_CB_DOMAIN_NVTX = 5,
    CUPTI_CB_DOMAIN_STATE = 6,
    CUPTI_CB_DOMAIN_SIZE = 7,
} CUpti_CallbackDomain;

enum { CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1 };
enum { CUPTI_CBID_RESOURCE_CONTEXT_CREATED = 1 };
enum {
    CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED = 1,
    CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED = 2
};

/* ---------------------------------------------------------------- records */

/* Records lie at multiples of 8. */
typedef struct {
    CUpti_ActivityKind kind;
} CUpti_Activity;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t cbid;
    uint64_t start, end;
    uint32_t processId, threadId;
    uint32_t correlationId;
    uint32_t returnValue;
} CUpti_ActivityAPI;

typedef struct {
    CUpti_ActivityKind kind;
    uint8_t cacheConfig;
    uint8_t sharedMemoryConfig;
    uint16_t registersPerThread;
    uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ;
    int32_t blockX, blockY, blockZ;
    int32_t staticSharedMemory, dynamicSharedMemory;
    uint32_t localMemoryPerThread, localMemoryTotal;
    uint32_t correlationId;
    int64_t gridId;
    const char *name;
    void *reserved0;
    uint64_t queued, submitted;
    uint8_t launchType;
    uint8_t isSharedMemoryCarveoutRequested;
    uint8_t sharedMemoryCarveoutRequested;
    uint8_t padding;
    uint32_t sharedMemoryExecuted;
    uint64_t graphNodeId;
    uint32_t shmemLimitConfig;
    uint32_t graphId;
    void *pAccessPolicyWindow;
    uint32_t channelID;
    uint32_t channelType;
    uint32_t clusterX, clusterY, clusterZ;
    uint32_t clusterSchedulingPolicy;
    uint64_t localMemoryTotal_v2;
    uint32_t maxPotentialClusterSize, maxActiveClusters;
    uint8_t isDeviceLaunched;
    uint8_t padding3[7];
} CUpti_ActivityKernel10;

typedef struct {
    CUpti_ActivityKind kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t correlationId, runtimeCorrelationId;
    uint32_t pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId;
    uint32_t channelID;
    uint32_t channelType;
    uint8_t isDeviceLaunched;
    uint8_t pad2[3];
    uint64_t copyCount;
} CUpti_ActivityMemcpy6;

/* A copy between contexts; its kind is MEMCPY2. */
typedef struct {
    CUpti_ActivityKind kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t srcDeviceId, srcContextId, dstDeviceId, dstContextId;
    uint32_t correlationId;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId;
    uint32_t channelID;
    uint32_t channelType;
} CUpti_ActivityMemcpyPtoP4;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t value;
    uint64_t bytes;
    uint64_t start, end;
    uint32_t deviceId, contextId, streamId;
    uint32_t correlationId;
    uint16_t flags, memoryKind;
    uint32_t pad;
    void *reserved0;
    uint64_t graphNodeId;
    uint32_t graphId;
    uint32_t channelID;
    uint32_t channelType;
    uint8_t isDeviceLaunched;
    uint8_t pad2[3];
} CUpti_ActivityMemset4;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t overheadKind;
    uint32_t objectKind;
    struct {
        uint32_t deviceId, contextId, streamId;
    } objectId;
    uint64_t start, end;
    uint32_t correlationId;
    uint32_t reserved0;
    void *overheadData;
} CUpti_ActivityOverhead3;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t type;
    uint64_t start, end;
    uint32_t correlationId;
    uint32_t contextId, streamId;
    uint32_t cudaEventId;
    uint64_t cudaEventSyncId;
    uint32_t returnValue;
    uint32_t pad;
} CUpti_ActivitySynchronization2;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t externalKind;
    uint64_t externalId;
    uint32_t correlationId;
    uint32_t reserved;
} CUpti_ActivityExternalCorrelation;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t correlationId;
    uint64_t start, end;
    uint32_t deviceId, graphId, contextId, streamId;
    void *reserved;
    uint32_t endDeviceId, endContextId;
} CUpti_ActivityGraphTrace2;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t flags;
    uint64_t timestamp;
    uint32_t id;
    uint32_t objectKind;
    struct {
        uint32_t processId, threadId, pad;
    } objectId;
    uint32_t pad; /* here: the range may end on another thread */
    const char *name;
    const char *domain;
} CUpti_ActivityMarker2;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t flags;
    uint32_t id;
    uint32_t payloadKind;
    uint64_t payload;
    uint32_t color, category;
    uint32_t cuptiDomainId, padding;
} CUpti_ActivityMarkerData2;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t flags;
    uint64_t globalMemoryBandwidth, globalMemorySize;
    uint32_t constantMemorySize, l2CacheSize, numThreadsPerWarp, coreClockRate;
    uint32_t numMemcpyEngines, numMultiprocessors, maxIPC;
    uint32_t maxWarpsPerMultiprocessor, maxBlocksPerMultiprocessor;
    uint32_t maxSharedMemoryPerMultiprocessor, maxRegistersPerMultiprocessor;
    uint32_t maxRegistersPerBlock, maxSharedMemoryPerBlock, maxThreadsPerBlock;
    uint32_t maxBlockDimX, maxBlockDimY, maxBlockDimZ, maxGridDimX, maxGridDimY, maxGridDimZ;
    uint32_t computeCapabilityMajor, computeCapabilityMinor;
    uint32_t id, eccEnabled;
    CUuuid uuid;
    const char *name;
    uint8_t isCudaVisible, isMigEnabled, reserved[6];
    uint32_t gpuInstanceId, computeInstanceId;
    CUuuid migUuid;
    uint32_t isNumaNode, numaId;
} CUpti_ActivityDevice5;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t contextId, deviceId;
    uint16_t computeApiKind;
    uint16_t nullStreamId;
    uint32_t parentContextId;
    uint8_t isGreenContext, padding;
    uint16_t numMultiprocessors;
    uint32_t cigMode, padding2;
} CUpti_ActivityContext3;

typedef struct {
    CUpti_ActivityKind kind;
    uint32_t contextId, streamId;
    uint32_t priority;
    uint32_t flag;
    uint32_t correlationId;
} CUpti_ActivityStream;

/* ---------------------------------------------------------------- callbacks */

typedef struct {
    uint32_t callbackSite;
    const char *functionName;
    const void *functionParams;
    void *functionReturnValue;
    const char *symbolName;
    CUcontext context;
    uint32_t contextUid;
    uint64_t *correlationData;
    uint32_t correlationId;
} CUpti_CallbackData;

typedef struct {
    CUcontext context;
    CUstream stream;
    void *resourceDescriptor;
} CUpti_ResourceData;

typedef struct {
    CUcontext context;
    CUstream stream;
} CUpti_SynchronizeData;

typedef struct CUpti_Subscriber_st *CUpti_SubscriberHandle;
typedef void (*CUpti_CallbackFunc)(void *user, CUpti_CallbackDomain domain, uint32_t cbid,
                                   const void *data);
typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size,
                                                 size_t *maxNumRecords);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t streamId,
                                                  uint8_t *buffer, size_t size, size_t validSize);
typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);
