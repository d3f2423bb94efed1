/* Driver API streams and events: order, queries on a held stream, callbacks, timing, pools. */
#include "check_driver.h"
#include "gate.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

static CUfunction chain, spin;
static int calls[8], call_count;

static void note(void *data)
{
    calls[call_count++ % 8] = *(int *)data;
}

static void callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    calls[call_count++ % 8] = *(int *)data + (int)status;
}

static unsigned word(CUdeviceptr device)
{
    unsigned v = 0;

    DRV(cu.MemcpyDtoH_v2(&v, device, sizeof(v)));
    return v;
}

static void held(CUdeviceptr device, CUstream stream, CUstream other)
{
    struct gate gate = {0, 0};
    unsigned one = 1;
    CUdeviceptr second = device + 4;
    void *params[] = {&device, &one}, *other_params[] = {&second, &one};
    CUevent event;

    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    DRV(cu.MemsetD32_v2(device, 1, 2));
    DRV(cu.CtxSynchronize());
    DRV(cu.LaunchHostFunc(stream, gate_hold, &gate));
    driver_launch(chain, 1, 32, stream, params);
    DRV(cu.EventRecord(event, stream));
    check_true(gate_wait_entered(&gate), "stream held");
    check_code(cu.StreamQuery(stream), CUDA_ERROR_NOT_READY, "query of the held stream");
    check_code(cu.EventQuery(event), CUDA_ERROR_NOT_READY, "query of its event");
    driver_launch(chain, 1, 32, other, other_params);
    check_code(cu.StreamSynchronize(other), CUDA_SUCCESS, "another stream goes on");
    DRV(cu.StreamWaitEvent(other, event, 0));
    driver_launch(chain, 1, 32, other, params);
    check_code(cu.StreamQuery(other), CUDA_ERROR_NOT_READY, "until it waits for the event");
    gate_open(&gate);
    DRV(cu.StreamSynchronize(other));
    check_code(cu.EventQuery(event), CUDA_SUCCESS, "event done");
    check_int(word(device), 13, "both steps in order");
    check_int(word(second), 4, "the other stream's own step");
    DRV(cu.EventDestroy_v2(event));
}

static void functions(CUstream stream)
{
    int values[4] = {1, 2, 3, 4};

    DRV(cu.LaunchHostFunc(stream, note, &values[0]));
    DRV(cu.StreamAddCallback(stream, callback, &values[1], 0));
    DRV(cu.LaunchHostFunc(stream, note, &values[2]));
    DRV(cu.LaunchHostFunc(stream, note, &values[3]));
    DRV(cu.StreamSynchronize(stream));
    check_true(call_count == 4 && calls[0] == 1 && calls[1] == 2 && calls[2] == 3 && calls[3] == 4,
               "host functions and callback in order");
}

static void timing(CUdeviceptr device, CUstream stream)
{
    CUevent start, end, fresh;
    float ms = -1;
    unsigned seed = 5, rounds = 100000, want = seed;
    void *params[] = {&device, &seed, &rounds};

    for (unsigned i = 0; i < rounds; i++) {
        want = want * 1664525u + 1013904223u;
    }
    DRV(cu.EventCreate(&start, CU_EVENT_DEFAULT));
    DRV(cu.EventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    DRV(cu.EventCreate(&fresh, CU_EVENT_DEFAULT));
    DRV(cu.EventRecord(start, stream));
    driver_launch(spin, 1, 1, stream, params);
    DRV(cu.EventRecord(end, stream));
    DRV(cu.EventSynchronize(end));
    DRV(cu.EventElapsedTime_v2(&ms, start, end));
    check_true(ms > 0, "a time passes");
    check_int(word(device), want, "result of the slow kernel");
    check_code(cu.EventElapsedTime_v2(&ms, start, fresh), CUDA_ERROR_INVALID_HANDLE,
               "time of an event never recorded");
    DRV(cu.EventDestroy_v2(start));
    DRV(cu.EventDestroy_v2(end));
    DRV(cu.EventDestroy_v2(fresh));
}

static void stream_memory(CUstream stream)
{
    CUdeviceptr p = 0;
    unsigned one = 64, host[64] = {0};
    int supported = 0, good = 1;

    DRV(cu.DeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    if (supported) {
        DRV(cu.MemAllocAsync(&p, sizeof(host), stream));
    } else {
        DRV(cu.MemAlloc_v2(&p, sizeof(host)));
    }
    void *params[] = {&p, &one};
    DRV(cu.MemsetD32Async(p, 2, 64, stream));
    driver_launch(chain, 2, 32, stream, params);
    DRV(cu.MemcpyDtoHAsync_v2(host, p, sizeof(host), stream));
    if (supported) {
        DRV(cu.MemFreeAsync(p, stream));
    }
    DRV(cu.StreamSynchronize(stream));
    for (int i = 0; i < 64; i++) {
        good &= host[i] == 7;
    }
    check_true(good, "memory allocated and freed in a stream");
    if (!supported) {
        DRV(cu.MemFree_v2(p));
    }
}

int main(void)
{
    CUcontext context = driver_begin("drv_streams_events"), seen = NULL;
    CUmodule module;
    CUdeviceptr device;
    CUstream stream, other;
    unsigned flags = 9, one = 1;

    DRV(cu.ModuleLoadData(&module, basic_ptx));
    chain = driver_function(module, "chain");
    spin = driver_function(module, "spin");
    DRV(cu.MemAlloc_v2(&device, 64));
    DRV(cu.StreamCreate(&stream, CU_STREAM_DEFAULT));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamGetFlags(other, &flags));
    check_int(flags, CU_STREAM_NON_BLOCKING, "flags of a stream");
    DRV(cu.StreamGetCtx(other, &seen));
    check_true(seen == context, "context of a stream");
    void *params[] = {&device, &one};
    driver_launch(chain, 1, 1, other, params);
    DRV(cu.CtxSynchronize());
    held(device, stream, other);
    functions(stream);
    timing(device, stream);
    stream_memory(other);
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(other));
    DRV(cu.MemFree_v2(device));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
