/*
 * Launches with attributes, many of them and with changing grids; what is wrong is refused at once,
 * by the launch itself. And occupancy: the answer follows the attributes that are set.
 */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { N = 4096, BLOCK = 128 };

static float x[N], y[N], back[N];
static CUfunction saxpy;
static CUdeviceptr device_x, device_y;
static int launches;

static CUresult launch(CUstream stream, CUlaunchAttribute *attributes, unsigned count,
                       unsigned blocks, unsigned shared)
{
    float a = 1.0f;
    unsigned n = N;
    void *params[] = {&a, &device_x, &device_y, &n};
    CUlaunchConfig config;

    memset(&config, 0, sizeof(config));
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = BLOCK;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shared;
    config.hStream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    CUresult result = cu.LaunchKernelEx(&config, saxpy, params, NULL);
    launches += result == CUDA_SUCCESS;
    return result;
}

static void harmless(CUstream stream)
{
    CUlaunchAttribute attributes[4];

    for (int i = 0; i < 50; i++) {
        memset(attributes, 0x5a + i, sizeof(attributes)); /* what is not said must not matter */
        attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[0].value.programmaticStreamSerializationAllowed = 0;
        attributes[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
        attributes[2].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        attributes[2].value.priority = 0;
        attributes[3].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
        attributes[3].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
        DRV(launch(stream, attributes, 4, N / BLOCK + (unsigned)i % 3, 0));
    }
}

static void clusters(CUstream stream)
{
    CUlaunchAttribute cluster;

    memset(&cluster, 0, sizeof(cluster));
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = 2;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    for (unsigned i = 0; i < 20; i++) {
        DRV(launch(stream, &cluster, 1, N / BLOCK + 2 * (i % 4), 0));
    }
    /* Not a check that prints: devices without clusters do not come here. */
    if (launch(stream, &cluster, 1, N / BLOCK + 1, 0) == CUDA_SUCCESS) {
        check_die("a grid that clusters do not divide was launched");
    }
    DRV(launch(stream, &cluster, 1, N / BLOCK, 0));
}

/* An event that the launch itself records: other streams and the program wait for it. */
static void launch_events(CUstream stream)
{
    CUlaunchAttribute attribute;
    CUstream other;
    CUevent event;

    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    memset(&attribute, 0, sizeof(attribute));
    attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    attribute.value.launchCompletionEvent.event = event;
    for (int i = 0; i < 10; i++) {
        DRV(launch(stream, &attribute, 1, N / BLOCK, 0));
        DRV(cu.StreamWaitEvent(other, event, 0));
        DRV(cu.StreamSynchronize(other));
        DRV(cu.EventSynchronize(event));
    }
    check_true(cu.EventQuery(event) == CUDA_SUCCESS, "an event of a launch");
    DRV(cu.EventDestroy_v2(event));
    DRV(cu.StreamDestroy_v2(other));
}

static void shared_memory(CUstream stream)
{
    int most, fixed, before, after, again;
    size_t room;
    CUdevice device;

    DRV(cu.CtxGetDevice(&device));
    DRV(cu.DeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                              device));
    DRV(cu.FuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, saxpy));
    check_true(launch(stream, NULL, 0, N / BLOCK, (unsigned)(most - fixed)) != CUDA_SUCCESS,
               "more shared memory than allowed so far");
    DRV(cu.FuncSetAttribute(saxpy, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - fixed));
    DRV(launch(stream, NULL, 0, N / BLOCK, (unsigned)(most - fixed)));
    check_true(cu.FuncSetAttribute(saxpy, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   most + 1) != CUDA_SUCCESS,
               "more shared memory than there is");
    DRV(cu.OccupancyMaxActiveBlocksPerMultiprocessor(&before, saxpy, BLOCK, 0));
    DRV(cu.OccupancyMaxActiveBlocksPerMultiprocessor(&after, saxpy, BLOCK, (size_t)most / 2));
    DRV(cu.OccupancyMaxActiveBlocksPerMultiprocessor(&again, saxpy, BLOCK, 0));
    check_true(before == again && after >= 1 && after < before, "occupancy by shared memory");
    DRV(cu.OccupancyAvailableDynamicSMemPerBlock(&room, saxpy, 1, BLOCK));
    check_true(room >= (size_t)(most - fixed) / 2, "room for one block's shared memory");
    DRV(cu.FuncSetAttribute(saxpy, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    check_true(cu.FuncSetAttribute(saxpy, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                   101) != CUDA_SUCCESS,
               "a carveout of more than all");
}

int main(void)
{
    CUmodule module;
    CUstream stream;
    int good = 1, has_clusters = 0, major = 0;

    driver_begin("drv_launch_attributes");
    CUdevice device;
    DRV(cu.CtxGetDevice(&device));
    DRV(cu.DeviceGetAttribute(&has_clusters, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device));
    DRV(cu.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 64);
    }
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    saxpy = driver_function(module, "saxpy");
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&device_x, sizeof(x)));
    DRV(cu.MemAlloc_v2(&device_y, sizeof(y)));
    DRV(cu.MemcpyHtoD_v2(device_x, x, sizeof(x)));
    DRV(cu.MemcpyHtoD_v2(device_y, y, sizeof(y)));
    harmless(stream);
    if (major >= 9) {
        launch_events(stream);
    }
    if (has_clusters) {
        clusters(stream);
    }
    shared_memory(stream);
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemcpyDtoH_v2(back, device_y, sizeof(back)));
    for (int i = 0; i < N; i++) {
        good &= back[i] == (float)launches * x[i];
    }
    check_true(good, "every launch that was taken ran once");
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
