/*
 * Green contexts: the SMs are cut in two parts, and what runs in a stream of one part stays on its
 * SMs; all else in such a stream is as in any other.
 *
 * Which SMs a part has is nowhere said, only how many. So each kernel says where its blocks ran,
 * and what all kernels of a part have used must not be more SMs than it has, nor one of the other
 * part's.
 */
#include "check_driver.h"
#include "gate.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

#define SMS_MAX 1024
#define BLOCKS  4096
#define WORDS   256

/* where: each block leaves a mark for its SM. */
static const char where_ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                                ".visible .entry where(.param .u64 marks)\n{\n"
                                "    .reg .b32 %r<3>;\n    .reg .b64 %d<5>;\n"
                                "    ld.param.u64 %d0, [marks];\n"
                                "    cvta.to.global.u64 %d1, %d0;\n"
                                "    mov.u32 %r0, %smid;\n    mov.u32 %r1, 1;\n"
                                "    mul.wide.u32 %d2, %r0, 4;\n    add.s64 %d3, %d1, %d2;\n"
                                "    st.global.u32 [%d3], %r1;\n    ret;\n}\n";

struct part {
    CUdevResource resource;
    CUgreenCtx green;
    CUstream stream;
    unsigned used[SMS_MAX]; /* by its kernels */
};

static struct part parts[2];
static CUcontext context;
static CUfunction where, chain, fill;
static CUdeviceptr marks, words;
static CUstream plain;
static CUevent event;

/* ---------------------------------------------------------------- resources */

static unsigned sms_of(const CUdevResource *resource)
{
    return resource->type == CU_DEV_RESOURCE_TYPE_SM ? resource->sm.smCount : 0;
}

static CUdevResource all_sms(void)
{
    CUdevResource all;
    CUresult result = cu.DeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);

    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        check_skip("no green contexts here");
    }
    check_code(result, CUDA_SUCCESS, "the device's SMs");
    check_int(all.type, CU_DEV_RESOURCE_TYPE_SM, "type of that resource");
    return all;
}

/* The size of parts that gives two of them; the program is done for where there is none. */
static unsigned half(const CUdevResource *all)
{
    for (unsigned least = all->sm.smCount / 2; least > 0; least--) {
        unsigned groups = 0;

        if (cu.DevSmResourceSplitByCount(NULL, &groups, all, NULL, 0, least) == CUDA_SUCCESS &&
            groups >= 2) {
            return least;
        }
    }
    check_skip("the SMs of this device cannot be cut in two");
}

static void cut(const CUdevResource *all)
{
    CUdevResource groups[2], rest;
    unsigned least = half(all), n = 2;

    DRV(cu.DevSmResourceSplitByCount(groups, &n, all, &rest, 0, least));
    check_int(n, 2, "two groups of a cut");
    check_true(sms_of(&groups[0]) >= least, "a group has as many SMs as asked for");
    check_true(sms_of(&groups[0]) == sms_of(&groups[1]), "both have as many");
    check_true(sms_of(&groups[0]) + sms_of(&groups[1]) + sms_of(&rest) == sms_of(all),
               "nothing is lost");
    parts[0].resource = groups[0];
    parts[1].resource = groups[1];
}

static void refused_resources(const CUdevResource *all)
{
    CUdevResource none, one;
    CUdevResourceDesc desc;
    unsigned n = 1;

    memset(&none, 0, sizeof(none));
    check_true(cu.DevSmResourceSplitByCount(&one, &n, &none, NULL, 0, 1) != CUDA_SUCCESS,
               "nothing can be cut");
    n = 1;
    check_true(cu.DevSmResourceSplitByCount(&one, &n, all, NULL, 0, all->sm.smCount + 1) !=
                   CUDA_SUCCESS,
               "nor more SMs than there are");
    n = 1;
    DRV(cu.DevSmResourceSplitByCount(&one, &n, all, NULL, 0, 1));
    check_true(cu.DeviceGetDevResource(0, &none, CU_DEV_RESOURCE_TYPE_INVALID) != CUDA_SUCCESS,
               "resources of no type");
    DRV(cu.DevResourceGenerateDesc(&desc, &one, 1));
    check_true(cu.GreenCtxCreate(&parts[0].green, desc, 0, 0) != CUDA_SUCCESS,
               "a green context without the flag");
}

/* ---------------------------------------------------------------- green contexts */

static void open_part(struct part *part)
{
    CUdevResourceDesc desc;
    CUdevResource own;
    CUgreenCtx seen = NULL;
    CUstream refused;

    DRV(cu.DevResourceGenerateDesc(&desc, &part->resource, 1));
    DRV(cu.GreenCtxCreate(&part->green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    DRV(cu.GreenCtxGetDevResource(part->green, &own, CU_DEV_RESOURCE_TYPE_SM));
    check_true(sms_of(&own) == sms_of(&part->resource), "it has the SMs of its group");
    check_true(cu.GreenCtxStreamCreate(&refused, part->green, CU_STREAM_DEFAULT, 0) != CUDA_SUCCESS,
               "a blocking stream in it is refused");
    DRV(cu.GreenCtxStreamCreate(&part->stream, part->green, CU_STREAM_NON_BLOCKING, 0));
    DRV(cu.StreamGetGreenCtx(part->stream, &seen));
    check_true(seen == part->green, "its stream knows it");
    DRV(cu.StreamGetGreenCtx(plain, &seen));
    check_true(!seen, "another stream has none");
}

static void close_part(struct part *part)
{
    DRV(cu.StreamDestroy_v2(part->stream));
    check_code(cu.GreenCtxDestroy(part->green), CUDA_SUCCESS, "destroyed");
}

/* Add what has been marked. */
static void note_marks(struct part *part)
{
    static unsigned now[SMS_MAX];

    DRV(cu.CtxSynchronize());
    DRV(cu.MemcpyDtoH_v2(now, marks, sizeof(now)));
    DRV(cu.MemsetD32_v2(marks, 0, SMS_MAX));
    DRV(cu.CtxSynchronize());
    for (int i = 0; i < SMS_MAX; i++) {
        part->used[i] |= now[i];
    }
}

static void run_where(struct part *part, unsigned blocks)
{
    void *params[] = {&marks};

    driver_launch(where, blocks, 32, part->stream, params);
    note_marks(part);
}

static void run_captured(struct part *part)
{
    void *params[] = {&marks};
    CUgraph graph;
    CUgraphExec exec;

    DRV(cu.StreamBeginCapture_v2(part->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    driver_launch(where, BLOCKS, 32, part->stream, params);
    DRV(cu.StreamEndCapture(part->stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, part->stream));
    note_marks(part);
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

/* A node that is added while the green context is current, in a stream of the other context. */
static void run_added(struct part *part)
{
    void *params[] = {&marks};
    CUDA_KERNEL_NODE_PARAMS node = {.func = where,
                                    .gridDimX = BLOCKS,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 32,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    CUcontext green;
    CUgraphNode added;
    CUgraphExec exec;
    CUgraph graph;

    DRV(cu.CtxFromGreenCtx(&green, part->green));
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.CtxSetCurrent(green));
    DRV(cu.GraphAddKernelNode_v2(&added, graph, NULL, 0, &node));
    DRV(cu.CtxSetCurrent(context));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, plain));
    note_marks(part);
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

static void places(void)
{
    unsigned shared = 0, used[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        run_where(&parts[i], BLOCKS);
        run_where(&parts[i], 1);
        run_where(&parts[i], 7);
        run_captured(&parts[i]);
        run_added(&parts[i]);
    }
    for (int i = 0; i < SMS_MAX; i++) {
        used[0] += parts[0].used[i];
        used[1] += parts[1].used[i];
        shared += parts[0].used[i] & parts[1].used[i];
    }
    check_true(used[0] > 0 && used[0] <= sms_of(&parts[0].resource), "one part kept to its SMs");
    check_true(used[1] > 0 && used[1] <= sms_of(&parts[1].resource), "the other, too");
    check_int(shared, 0, "SMs that both used");
}

/* ---------------------------------------------------------------- work in such streams */

static unsigned word(void)
{
    unsigned v = 0;

    DRV(cu.MemcpyDtoH_v2(&v, words, sizeof(v)));
    return v;
}

/* A step behind a gate in one stream, another in the other behind its event: 1, 4, 13. */
static void order(CUstream first, CUstream second, const char *label)
{
    struct gate gate = {0, 0};
    unsigned one = 1;
    void *params[] = {&words, &one};

    DRV(cu.MemsetD32_v2(words, 1, 1));
    DRV(cu.CtxSynchronize());
    DRV(cu.LaunchHostFunc(first, gate_hold, &gate));
    driver_launch(chain, 1, 32, first, params);
    DRV(cu.EventRecord(event, first));
    DRV(cu.StreamWaitEvent(second, event, 0));
    driver_launch(chain, 1, 32, second, params);
    check_true(gate_wait_entered(&gate), label);
    check_code(cu.StreamQuery(second), CUDA_ERROR_NOT_READY, "the waiting stream");
    check_code(cu.EventQuery(event), CUDA_ERROR_NOT_READY, "the event");
    gate_open(&gate);
    DRV(cu.StreamSynchronize(second));
    check_int(word(), 13, "both steps in order");
}

static void note_call(void *data)
{
    ++*(int *)data;
}

static void all_kinds(CUstream stream)
{
    static unsigned host[WORDS];
    CUdeviceptr second = words + sizeof(host);
    unsigned n = WORDS, start = 5, good = 1;
    int calls = 0;
    void *chained[] = {&words, &n}, *filled[] = {&second, &start, &n};

    DRV(cu.MemsetD32Async(words, 2, WORDS, stream));
    driver_launch(chain, 8, 32, stream, chained);
    DRV(cu.LaunchHostFunc(stream, note_call, &calls));
    DRV(cu.MemcpyDtoDAsync_v2(second, words, sizeof(host), stream));
    driver_launch(fill, 4, 32, stream, filled);
    DRV(cu.MemcpyDtoHAsync_v2(host, second, sizeof(host), stream));
    DRV(cu.StreamSynchronize(stream));
    for (unsigned i = 0; i < WORDS; i++) {
        good &= host[i] == (i < 128 ? start + i : 7);
    }
    check_true((int)good, "set, kernel, copy, kernel, copy in order");
    check_int(calls, 1, "host function");
}

static void values_in_memory(CUstream stream)
{
    unsigned *host;
    CUdeviceptr device;

    DRV(cu.MemHostAlloc((void **)&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    host[0] = host[1] = 0;
    DRV(cu.MemHostGetDevicePointer_v2(&device, host, 0));
    DRV(cu.StreamWaitValue32_v2(stream, device, 3, CU_STREAM_WAIT_VALUE_EQ));
    DRV(cu.StreamWriteValue32_v2(stream, device + 4, 9, CU_STREAM_WRITE_VALUE_DEFAULT));
    check_code(cu.StreamQuery(stream), CUDA_ERROR_NOT_READY, "waits for a value");
    __atomic_store_n(&host[0], 3, __ATOMIC_SEQ_CST);
    DRV(cu.StreamSynchronize(stream));
    check_int(__atomic_load_n(&host[1], __ATOMIC_SEQ_CST), 9, "then writes one");
    DRV(cu.MemFreeHost(host));
}

static void graph_of_a_plain_stream(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    unsigned one = 1;
    void *params[] = {&words, &one};

    DRV(cu.MemsetD32_v2(words, 1, 1));
    DRV(cu.CtxSynchronize());
    DRV(cu.StreamBeginCapture_v2(plain, CU_STREAM_CAPTURE_MODE_RELAXED));
    driver_launch(chain, 1, 32, plain, params);
    DRV(cu.StreamEndCapture(plain, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    check_int(word(), 13, "a graph captured elsewhere, launched twice");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

/* ---------------------------------------------------------------- events of the green context */

static void green_events(struct part *part)
{
    struct gate gate = {0, 0}, other_gate = {0, 0};
    CUcontext other = NULL;
    CUevent foreign;
    CUgraph graph = NULL;

    DRV(cu.LaunchHostFunc(part->stream, gate_hold, &gate));
    DRV(cu.GreenCtxRecordEvent(part->green, event));
    check_code(cu.EventQuery(event), CUDA_ERROR_NOT_READY, "an event of all its work");
    gate_open(&gate);
    check_code(cu.EventSynchronize(event), CUDA_SUCCESS, "that work done");
    DRV(cu.LaunchHostFunc(plain, gate_hold, &other_gate));
    DRV(cu.EventRecord(event, plain));
    DRV(cu.GreenCtxWaitEvent(part->green, event));
    DRV(cu.MemsetD32Async(words, 1, 1, part->stream));
    check_code(cu.StreamQuery(part->stream), CUDA_ERROR_NOT_READY, "all its work waits");
    gate_open(&other_gate);
    check_code(cu.StreamSynchronize(part->stream), CUDA_SUCCESS, "no longer");
    DRV(cu.StreamBeginCapture_v2(part->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    check_code(cu.GreenCtxRecordEvent(part->green, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
               "an event of a green context that captures");
    check_code(cu.StreamEndCapture(part->stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
               "which ends the capture");
    DRV(cu.CtxCreate_v2(&other, 0, 0));
    DRV(cu.EventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    DRV(cu.CtxSetCurrent(context));
    check_code(cu.GreenCtxRecordEvent(part->green, foreign), CUDA_ERROR_INVALID_HANDLE,
               "another context's event");
    DRV(cu.EventDestroy_v2(foreign));
    DRV(cu.CtxDestroy_v2(other));
}

/* ---------------------------------------------------------------- its end */

static void left_streams(void)
{
    struct part part = {.resource = parts[0].resource};
    CUdevResourceDesc desc;

    DRV(cu.DevResourceGenerateDesc(&desc, &part.resource, 1));
    DRV(cu.GreenCtxCreate(&part.green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    DRV(cu.GreenCtxStreamCreate(&part.stream, part.green, CU_STREAM_NON_BLOCKING, 0));
    DRV(cu.MemsetD32Async(words, 6, 1, part.stream));
    DRV(cu.StreamSynchronize(part.stream));
    DRV(cu.GreenCtxDestroy(part.green));
    check_code(cu.StreamSynchronize(part.stream), CUDA_ERROR_CONTEXT_IS_DESTROYED,
               "a stream that was left");
    check_code(cu.MemsetD32Async(words, 7, 1, part.stream), CUDA_ERROR_CONTEXT_IS_DESTROYED,
               "work for it");
    check_code(cu.StreamDestroy_v2(part.stream), CUDA_ERROR_CONTEXT_IS_DESTROYED, "its end");
    check_int(word(), 6, "what it did before");
}

int main(void)
{
    CUmodule module, where_module;
    unsigned one = 0;

    context = driver_begin("drv_green_contexts");
    CUdevResource all = all_sms();
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    DRV(cu.ModuleLoadData(&where_module, where_ptx));
    chain = driver_function(module, "chain");
    fill = driver_function(module, "fill");
    where = driver_function(where_module, "where");
    DRV(cu.MemAlloc_v2(&marks, SMS_MAX * sizeof(unsigned)));
    DRV(cu.MemAlloc_v2(&words, 2 * WORDS * sizeof(unsigned)));
    DRV(cu.MemsetD32_v2(marks, 0, SMS_MAX));
    DRV(cu.StreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    void *nothing[] = {&words, &one};
    driver_launch(chain, 1, 32, plain, nothing); /* loads it */
    DRV(cu.CtxSynchronize());

    cut(&all);
    refused_resources(&all);
    open_part(&parts[0]);
    open_part(&parts[1]);
    places();
    order(plain, parts[0].stream, "a primary stream first");
    order(parts[0].stream, plain, "a green stream first");
    order(parts[0].stream, parts[1].stream, "a stream of another part after it");
    all_kinds(parts[1].stream);
    values_in_memory(parts[1].stream);
    graph_of_a_plain_stream(parts[0].stream);
    green_events(&parts[1]);
    close_part(&parts[0]);
    close_part(&parts[1]);
    left_streams();
    DRV(cu.EventDestroy_v2(event));
    DRV(cu.StreamDestroy_v2(plain));
    DRV(cu.MemFree_v2(marks));
    DRV(cu.MemFree_v2(words));
    DRV(cu.ModuleUnload(module));
    DRV(cu.ModuleUnload(where_module));
    return driver_end();
}
