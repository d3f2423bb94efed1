/*
 * A program that uses CUPTI as Kineto does, through the libcupti.so.13 that the loader finds.
 *
 *     e2e_cupti rows [early | late LIBRARY]  kernels, copies, a fill; as another_cupti.h says
 *     e2e_cupti nvtx       markers, as NVTX's headers make them
 *     e2e_cupti ranges     markers and a kernel, without CUPTI
 *     e2e_cupti resources  devices, contexts and streams, those that come and those that are there
 *     e2e_cupti many N     N launches: all are recorded; dropped without buffers
 *     e2e_cupti callbacks  entries and exits of calls, with their arguments
 *     e2e_cupti twice      records of the second time alone; nothing while it is off
 *     e2e_cupti tenant N   prints "ready", then N launches, whose grid names N
 *     e2e_cupti refused    what is not there says so
 */
#include "tests/e2e/cupti_records.h"

#include <unistd.h>

/* ---------------------------------------------------------------- scenarios */

static void scenario_rows(void)
{
    static uint32_t words[WORDS];
    void *pinned;
    CUstream stream;
    uint32_t id;
    uint64_t popped, before, after;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(CU(MemAllocHost_v2)(&pinned, sizeof words));
    check_int(stream_id(NULL, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(use_clock(own_clock), CUPTI_SUCCESS, "a clock of the program's");
    record(true);
    check_int(push_id(CUSTOM0, 77), CUPTI_SUCCESS, "push");
    before = own_clock();
    for (int i = 0; i < 10; i++) {
        launch(WORDS, stream);
    }
    DRV(cu.StreamSynchronize(stream));
    after = own_clock();
    check_int(pop_id(CUSTOM0, &popped), CUPTI_SUCCESS, "pop");
    check_int((long long)popped, 77, "the id that was pushed");
    check_int(pop_id(CUSTOM0, &popped), CUPTI_ERROR_QUEUE_EMPTY, "pop once more");
    DRV(cu.MemcpyHtoD_v2(memory, words, sizeof words));
    DRV(CU(MemcpyDtoHAsync_v2)(pinned, memory, 4000, stream));
    DRV(cu.MemsetD32_v2(memory, 7, 100));
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(1), CUPTI_SUCCESS, "flush");
    const CUpti_ActivityKernel10 *kernel = &rows.kernel[9];
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 10, "kernels");
    check_true(rows.in_order, "kernels are in order");
    check_true(kernel->name && strcmp(kernel->name, "mix") == 0, "the kernel's name");
    check_int(kernel->gridX, (WORDS + 127) / 128, "its grid");
    check_int(kernel->blockX, 128, "its blocks");
    check_int(kernel->streamId, id, "its stream");
    check_true(rows.kernel[0].start + SLACK > before && kernel->end < after + SLACK,
               "times of the own clock");
    check_int(rows.launch.correlationId, kernel->correlationId, "the launch's correlation id");
    check_true(rows.launch.start < kernel->start, "a kernel begins after its launch");
    check_int(rows.launch.threadId, gettid(), "the launch's thread");
    check_int((long long)rows.named.externalId, 77, "the external id");
    check_int(rows.named.correlationId > kernel->correlationId, 1, "of the last named call");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION], 11, "named calls");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMCPY], 2, "copies");
    check_int((long long)rows.copy[0].bytes, sizeof words, "bytes to the device");
    check_int(rows.copy[0].copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, "to the device");
    check_int(rows.copy[0].srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE, "from pageable memory");
    check_int(rows.copy[0].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, "to its memory");
    check_int((long long)rows.copy[1].bytes, 4000, "bytes from the device");
    check_int(rows.copy[1].dstKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, "to pinned memory");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_MEMSET], 1, "fills");
    check_int((long long)rows.fill.bytes, 400, "bytes of the fill");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION], 2, "waits");
    check_int(rows.waited.type, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, "of all");
    check_int(n_requested, n_completed, "each buffer comes back");
}

/* ---------------------------------------------------------------- devices, contexts, streams */

static const CUpti_ActivityKind resource_kinds[] = {
    CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT, CUPTI_ACTIVITY_KIND_STREAM,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};

static void resources(CUptiResult (*by)(CUpti_ActivityKind))
{
    memset(&rows, 0, sizeof rows);
    for (int i = 0; i < 4; i++) {
        check_int(by(resource_kinds[i]), CUPTI_SUCCESS, "enable a kind");
    }
}

static void resources_end(void)
{
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    for (int i = 0; i < 4; i++) {
        check_int(disable(resource_kinds[i]), CUPTI_SUCCESS, "disable a kind");
    }
}

static void check_device(const CUpti_ActivityDevice5 *device)
{
    const struct {
        uint32_t value;
        CUdevice_attribute attribute;
    } some[] = {{device->numMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                {device->computeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
                {device->l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
                {device->maxGridDimZ, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
                {device->maxWarpsPerMultiprocessor * device->numThreadsPerWarp,
                 CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR}};
    char name[256];
    CUuuid uuid;
    size_t bytes;
    int value;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        DRV(cu.DeviceGetAttribute(&value, some[i].attribute, (CUdevice)device->id));
        check_int(some[i].value, value, "an attribute of the device");
    }
    DRV(cu.DeviceGetName(name, sizeof name, (CUdevice)device->id));
    DRV(cu.DeviceGetUuid_v2(&uuid, (CUdevice)device->id));
    DRV(cu.DeviceTotalMem_v2(&bytes, (CUdevice)device->id));
    check_true(device->name && strcmp(device->name, name) == 0, "its name");
    check_true(memcmp(&device->uuid, &uuid, sizeof uuid) == 0, "its UUID");
    check_int((long long)device->globalMemorySize, (long long)bytes, "its memory");
    check_int(device->isCudaVisible, 1, "it is visible");
    free((void *)(uintptr_t)device->name); /* as CUPTI says */
}

static void check_stream(uint32_t i, CUcontext of, CUstream stream, uint32_t flag, int priority)
{
    const CUpti_ActivityStream *record = &rows.stream[i];
    uint32_t id;
    check_int(stream_id(of, stream, 0, &id), CUPTI_SUCCESS, "a stream's id");
    check_int(record->streamId, id, "the stream");
    check_int(record->flag, flag, "its kind");
    check_int((int)record->priority, priority, "its priority");
}

/* The records of what comes. */
static void check_new_resources(CUstream streams[2])
{
    CUcontext primary, other;
    CUmodule module;
    int n_devices;
    resources(enable);
    context = driver_begin("e2e_cupti");
    DRV(cu.StreamCreateWithPriority(&streams[0], CU_STREAM_NON_BLOCKING, -1));
    DRV(cu.StreamCreate(&streams[1], 0));
    DRV(cu.CtxCreate_v2(&other, 0, 0));
    DRV(cu.CtxPopCurrent_v2(NULL));
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0)); /* it is there already */
    DRV(cu.Init(0));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    launch(WORDS, streams[0]);
    DRV(cu.CtxSynchronize());
    resources_end();
    DRV(cu.DeviceGetCount(&n_devices));
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE], n_devices, "devices");
    check_device(&rows.device[0]);
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 2, "contexts");
    check_int(rows.context[0].deviceId, 0, "the context's device");
    check_int(rows.context[0].computeApiKind, CUPTI_ACTIVITY_COMPUTE_API_CUDA, "it is CUDA's");
    check_int(rows.context[0].nullStreamId, rows.stream[0].streamId, "its NULL stream");
    check_int(rows.stream[0].contextId, rows.context[0].contextId, "which is in it");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "streams, two of them NULL");
    check_stream(0, context, NULL, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL, 0);
    check_stream(1, context, streams[0], CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING, -1);
    check_stream(2, context, streams[1], CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT, 0);
    check_stream(3, other, NULL, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL, 0);
    for (int i = 0; i < 4; i++) {
        check_true(rows.stream[i].correlationId > (i ? rows.stream[i - 1].correlationId : 0) &&
                       rows.stream[i].correlationId < rows.kernel[0].correlationId,
                   "the call that made the stream");
    }
    for (int i = 0; i < 3; i++) {
        check_true(rows.at[resource_kinds[i]] < rows.at[resource_kinds[i + 1]],
                   "devices, contexts and streams come before what is in them");
    }
}

static void scenario_resources(void)
{
    CUstream streams[3];
    CUcontext primary;
    uint32_t id;
    load();
    check_int(register_callbacks(requested, completed), CUPTI_SUCCESS, "register callbacks");
    check_new_resources(streams);
    resources(enable); /* what is there already has no records, */
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0));
    launch(1, CU_STREAM_PER_THREAD); /* but this stream is new */
    launch(1, CU_STREAM_PER_THREAD);
    check_int(stream_id(context, CU_STREAM_PER_THREAD, 0, &id), CUPTI_SUCCESS, "a stream's id");
    DRV(cu.CtxSynchronize());
    resources_end();
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE], 0, "no device is new");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 0, "no context is new");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 1, "the thread's stream is");
    check_int(rows.stream[0].streamId, id, "its id");
    DRV(cu.StreamDestroy_v2(streams[1]));
    resources(enable_and_dump); /* all that is there */
    resources_end();
    check_true(rows.by_kind[CUPTI_ACTIVITY_KIND_DEVICE] > 0, "devices");
    check_device(&rows.device[0]);
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONTEXT], 2, "contexts");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "streams");
    check_int(rows.stream[0].correlationId, 0, "no call made them now");
    DRV(cu.StreamCreate(&streams[2], 0));
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_STREAM], 4, "nobody wants another");
}

/* ---------------------------------------------------------------- NVTX */

/* What NVTX's headers compile into a program: functions by numbers, which a tool may replace. */
typedef void (*any_fn)(void);

static void nothing(void)
{
}

static any_fn core[16], core2[16];
static any_fn *core_table[16], *core2_table[16];

static int table_of(int module, any_fn ***ret_table, unsigned int *ret_size)
{
    *ret_table = module == 1 ? core_table : core2_table;
    *ret_size = 16;
    return module == 1 || module == 5;
}

static const void *export_table(uint32_t id)
{
    static const struct {
        size_t bytes;
        int (*table_of)(int, any_fn ***, unsigned int *);
    } callbacks = {sizeof callbacks, table_of};
    return id == 1 ? &callbacks : NULL;
}

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};

static void nvtx_use(const char *path)
{
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(const void *(*)(uint32_t));
    check_true(library != NULL, "the library for NVTX");
    *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    check_true(initialize != NULL, "InitializeInjectionNvtx2");
    for (int i = 0; i < 16; i++) {
        core[i] = core2[i] = nothing;
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    check_int(initialize(export_table), 1, "NVTX is taken over");
    check_int(initialize(NULL), 0, "without a table it is not");
}

static void check_marker(uint32_t i, uint32_t flags, const char *name, const char *domain)
{
    const CUpti_ActivityMarker2 *marker = &nvtx.marker[i];
    check_int(marker->flags, flags, "a marker's flags");
    check_true(name ? marker->name && strcmp(marker->name, name) == 0 : !marker->name, "its name");
    check_true(domain ? marker->domain && strcmp(marker->domain, domain) == 0 : !marker->domain,
               "its domain");
    check_int(marker->objectKind, CUPTI_ACTIVITY_OBJECT_THREAD, "it is of a thread");
    check_int(marker->objectId.threadId, gettid(), "of this one");
    check_true(i == 0 || marker->timestamp >= nvtx.marker[i - 1].timestamp, "its time");
}

#define CALL(function, type) ((type)(function))

static void make_markers(void)
{
    char name[] = "outer";
    const void *(*create)(const char *) = CALL(core2[12], const void *(*)(const char *));
    const void *domain = create("a domain");
    const void *text = CALL(core2[10], const void *(*)(const void *, const char *))(domain, "said");
    const struct attributes at = {.version = 3,
                                  .size = sizeof at,
                                  .category = 5,
                                  .color_type = 1,
                                  .color = 0xff112233,
                                  .payload_type = 5,
                                  .payload = 0xfffffff9, /* -7 of 32 bits */
                                  .message_type = 3,
                                  .message = text};
    check_true(create("a domain") == domain, "one domain of a name");
    check_int(CALL(core[9], int (*)(const char *))(name), 0, "depth of the first range");
    strcpy(name, "other"); /* names are copied */
    check_int(CALL(core[9], int (*)(const char *))("inner"), 1, "depth of the second range");
    check_int(CALL(core2[4], int (*)(const void *, const void *))(domain, &at), 0, "in its domain");
    CALL(core[2], void (*)(const char *))("now");
    check_int(CALL(core[11], int (*)(void))(), 1, "the inner one ends");
    check_int(CALL(core2[5], int (*)(const void *))(domain), 0, "the domain's ends");
    check_true(CALL(core2[5], int (*)(const void *))(domain) < 0, "it has no other");
    check_int(CALL(core[11], int (*)(void))(), 0, "the outer one ends");
    uint64_t id = CALL(core[5], uint64_t(*)(const char *))("started");
    CALL(core[7], void (*)(uint64_t))(id);
}

static void scenario_nvtx(void)
{
    nvtx_use("libcupti.so.13");
    make_markers(); /* nobody wants to know */
    CALL(core[9], int (*)(const char *))("begun before");
    check_int(enable(CUPTI_ACTIVITY_KIND_MARKER), CUPTI_SUCCESS, "enable markers");
    check_int(enable(CUPTI_ACTIVITY_KIND_MARKER_DATA), CUPTI_SUCCESS, "and their data");
    CALL(core[11], int (*)(void))();
    make_markers();
    CALL(core[3], void (*)(const wchar_t *))(L"w\u00ef\u20ac\U0001f600");
    check_int(disable(CUPTI_ACTIVITY_KIND_MARKER), CUPTI_SUCCESS, "disable markers");
    check_true(CALL(core2[13], const void *(*)(const wchar_t *))(L"a domain") ==
                   CALL(core2[12], const void *(*)(const char *))("a domain"),
               "one domain of a name in wide characters");
    make_markers();
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(nvtx.n_markers, 10, "markers");
    check_int(nvtx.n_data, 6, "data");
    check_marker(0, CUPTI_ACTIVITY_FLAG_MARKER_START, "outer", NULL);
    check_marker(1, CUPTI_ACTIVITY_FLAG_MARKER_START, "inner", NULL);
    check_marker(2, CUPTI_ACTIVITY_FLAG_MARKER_START, "said", "a domain");
    check_marker(3, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, "now", NULL);
    check_marker(4, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(5, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, "a domain");
    check_marker(6, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(7, CUPTI_ACTIVITY_FLAG_MARKER_START, "started", NULL);
    check_marker(8, CUPTI_ACTIVITY_FLAG_MARKER_END, NULL, NULL);
    check_marker(9, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS,
                 "w\xc3\xaf\xe2\x82\xac\xf0\x9f\x98\x80", NULL);
    check_int(nvtx.marker[4].id, nvtx.marker[1].id, "a range has one number");
    check_int(nvtx.marker[5].id, nvtx.marker[2].id, "in domains, too");
    check_int(nvtx.marker[6].id, nvtx.marker[0].id, "and the outer one");
    check_int(nvtx.marker[8].id, nvtx.marker[7].id, "and one that is started");
    check_int(nvtx.data[2].id, nvtx.marker[2].id, "data of a range");
    check_int(nvtx.data[2].category, 5, "its category");
    check_int(nvtx.data[2].color, 0xff112233, "its colour");
    check_int(nvtx.data[2].flags, CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB, "which is one");
    check_int(nvtx.data[2].payloadKind, CUPTI_METRIC_VALUE_KIND_INT64, "its payload's kind");
    check_int((long long)nvtx.data[2].payload, -7, "its payload");
    check_int(nvtx.data[0].flags, CUPTI_ACTIVITY_FLAG_MARKER_COLOR_NONE, "no colour");
}

/* A program that has NVTX and no profiler: its ranges are for `weir profile`. */
static void scenario_ranges(void)
{
    CUmodule module;
    nvtx_use(getenv("NVTX_INJECTION64_PATH")); /* perhaps before cuInit */
    context = driver_begin("e2e_cupti");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    make_markers();
    CALL(core[9], int (*)(const char *))("with \"work\"");
    launch(WORDS, NULL);
    DRV(cu.CtxSynchronize());
    CALL(core[11], int (*)(void))();
}

static void scenario_many(uint32_t n)
{
    size_t dropped;
    record(true);
    for (uint32_t i = 0; i < n; i++) {
        launch(1, NULL);
    }
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], n, "all kernels");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_DRIVER], n + 1, "all calls");
    check_true(rows.in_order, "kernels are in order");
    gives_buffers = false;
    record(true);
    launch(1, NULL);
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush without buffers");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "dropped");
    check_int((long long)dropped, 4, "two calls, a wait and a kernel are dropped");
}

static struct {
    uint32_t n[2];
    uint32_t ids[2];
    uint32_t grid;
    CUfunction function;
    uint64_t scratch;
    int result;
    uint32_t n_contexts;
    CUcontext context;
} seen;

static void called_back(void *user, CUpti_CallbackDomain domain, uint32_t id, const void *at)
{
    const CUpti_CallbackData *data = at;
    const struct {
        CUfunction f;
        unsigned int gridDimX;
    } *params = data->functionParams;
    const char *name;
    check_true(user == &seen, "the subscriber's data");
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
        seen.n_contexts++;
        seen.context = ((const CUpti_ResourceData *)at)->context;
    }
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id != LAUNCH_ID) {
        return;
    }
    check_int(callback_name(domain, id, &name), CUPTI_SUCCESS, "a callback's name");
    check_true(strcmp(name, "cuLaunchKernel") == 0, "it is the launch");
    seen.n[data->callbackSite]++;
    seen.ids[data->callbackSite] = data->correlationId;
    seen.grid = params->gridDimX;
    seen.function = params->f;
    if (data->callbackSite == CUPTI_API_ENTER) {
        *data->correlationData = 4711;
    } else {
        seen.scratch = *data->correlationData;
        memcpy(&seen.result, data->functionReturnValue, sizeof seen.result);
    }
}

static void scenario_callbacks(void)
{
    CUpti_SubscriberHandle handle, other;
    CUcontext primary, made;
    seen.result = -1;
    check_int(subscribe(&handle, called_back, &seen), CUPTI_SUCCESS, "subscribe");
    check_int(subscribe(&other, called_back, NULL), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
              "a second subscriber");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 0, "nothing is enabled");
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS, "enable");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 1, "entries");
    check_int(seen.n[CUPTI_API_EXIT], 1, "exits");
    check_true(seen.ids[0] != 0 && seen.ids[0] == seen.ids[1], "one correlation id");
    check_int(seen.grid, (WORDS + 127) / 128, "an argument");
    check_true(seen.function == mix, "another one");
    check_int((long long)seen.scratch, 4711, "what the entry left for the exit");
    check_int(seen.result, CUDA_SUCCESS, "the result");
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_RESOURCE), CUPTI_SUCCESS, "resources");
    DRV(cu.DevicePrimaryCtxRetain(&primary, 0));
    check_int(seen.n_contexts, 0, "it is there already");
    DRV(cu.CtxCreate_v2(&made, 0, 0));
    check_int(seen.n_contexts, 1, "a context is made");
    check_true(seen.context == made, "which one");
    DRV(cu.CtxDestroy_v2(made));
    check_int(enable_domain(1, handle, CUPTI_CB_DOMAIN_NVTX), CUPTI_ERROR_NOT_SUPPORTED, "NVTX");
    check_int(unsubscribe(handle), CUPTI_SUCCESS, "unsubscribe");
    launch(WORDS, NULL);
    check_int(seen.n[CUPTI_API_ENTER], 1, "nobody subscribes");
}

#define PAUSE 2400000000u /* ticks: 1.2 s; after a second the host does not record any more */

static void scenario_twice(void)
{
    for (int round = 0; round < 2; round++) {
        record(true);
        launch(WORDS, NULL);
        DRV(cu.CtxSynchronize());
        record(false);
        uint64_t end = own_clock() + PAUSE;
        do {
            launch(WORDS, NULL);
            DRV(cu.CtxSynchronize());
        } while (own_clock() < end);
        check_int(flush_all(0), CUPTI_SUCCESS, "flush");
        check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], 1, "kernels of this round");
    }
}

static void scenario_tenant(uint32_t n)
{
    record(true);
    printf("ready\n");
    fflush(stdout);
    for (uint32_t i = 0; i < n; i++) {
        launch(n, NULL); /* the grid names the tenant */
    }
    DRV(cu.CtxSynchronize());
    record(false);
    check_int(flush_all(0), CUPTI_SUCCESS, "flush");
    check_int(rows.by_kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], n, "own kernels");
    check_true(rows.in_order, "kernels are in order");
    for (uint32_t i = 0; i < KERNELS_KEPT && i < n; i++) {
        check_int(rows.kernel[i].gridX, (n + 127) / 128, "no other tenant's kernel");
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 0;
    if (strcmp(what, "ranges") == 0) {
        scenario_ranges();
        return driver_end();
    }
    if (strcmp(what, "resources") == 0) {
        scenario_resources();
        return driver_end();
    }
    another.arguments = argc > 3 ? argv + 2 : NULL;
    begin();
    if (strcmp(what, "rows") == 0) {
        scenario_rows();
    } else if (strcmp(what, "nvtx") == 0) {
        scenario_nvtx();
    } else if (strcmp(what, "many") == 0) {
        scenario_many(n);
    } else if (strcmp(what, "callbacks") == 0) {
        scenario_callbacks();
    } else if (strcmp(what, "twice") == 0) {
        scenario_twice();
    } else if (strcmp(what, "tenant") == 0) {
        scenario_tenant(n);
    } else if (strcmp(what, "refused") == 0) {
        check_int(refused(), CUPTI_ERROR_NOT_SUPPORTED, "counters");
        check_int(enable((CUpti_ActivityKind)30), CUPTI_ERROR_NOT_SUPPORTED, "sampling");
        check_int(enable(CUPTI_ACTIVITY_KIND_MEMCPY2), CUPTI_SUCCESS, "what is there as MEMCPY");
    } else {
        fprintf(stderr, "usage: as e2e_cupti.c says\n");
        return 2;
    }
    return driver_end();
}
