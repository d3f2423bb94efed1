/*
 * What programs that use CUPTI as Kineto does have in common: the functions of the libcupti.so.13
 * that the loader finds, the last records of each kind, and a kernel.
 */
#pragma once

#include "tests/cuda/check_driver.h"
#include "tests/e2e/another_cupti.h"
#include "tests/e2e/kernels.h"

#include <stdlib.h>
#include <time.h>

#define BUFFER_BYTES (64u << 10)
#define WORDS        5000u
#define CUSTOM0      3
#define SLACK        200000 /* ticks: 100 us, twice as far as an anchor may be off (profile.c) */
#define STEP         2000   /* ticks: 1 us, by which times may step where the clock is corrected */
#define LAUNCH_ID    307    /* CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel */

static CUptiResult (*enable)(CUpti_ActivityKind);
static CUptiResult (*enable_and_dump)(CUpti_ActivityKind);
static CUptiResult (*disable)(CUpti_ActivityKind);
static CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc,
                                         CUpti_BuffersCallbackCompleteFunc);
static CUptiResult (*flush_all)(uint32_t);
static CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
static CUptiResult (*n_dropped)(CUcontext, uint32_t, size_t *);
static CUptiResult (*push_id)(CUpti_ExternalCorrelationKind, uint64_t);
static CUptiResult (*pop_id)(CUpti_ExternalCorrelationKind, uint64_t *);
static CUptiResult (*use_clock)(CUpti_TimestampCallbackFunc);
static CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
static CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
static CUptiResult (*enable_domain)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain);
static CUptiResult (*callback_name)(CUpti_CallbackDomain, uint32_t, const char **);
static CUptiResult (*stream_id)(CUcontext, CUstream, uint8_t, uint32_t *);
static CUptiResult (*refused)(void);

static inline void load(void)
{
    static const struct {
        const char *name;
        void *to;
    } functions[] = {{"cuptiActivityEnable", &enable},
                     {"cuptiActivityEnableAndDump", &enable_and_dump},
                     {"cuptiActivityDisable", &disable},
                     {"cuptiActivityRegisterCallbacks", &register_callbacks},
                     {"cuptiActivityFlushAll", &flush_all},
                     {"cuptiActivityGetNextRecord", &next_record},
                     {"cuptiActivityGetNumDroppedRecords", &n_dropped},
                     {"cuptiActivityPushExternalCorrelationId", &push_id},
                     {"cuptiActivityPopExternalCorrelationId", &pop_id},
                     {"cuptiActivityRegisterTimestampCallback", &use_clock},
                     {"cuptiSubscribe", &subscribe},
                     {"cuptiUnsubscribe", &unsubscribe},
                     {"cuptiEnableDomain", &enable_domain},
                     {"cuptiGetCallbackName", &callback_name},
                     {"cuptiGetStreamIdEx", &stream_id},
                     {"cuptiProfilerInitialize", &refused}};
    void *library = dlopen("libcupti.so.13", RTLD_NOW);
    check_true(library != NULL, "libcupti.so.13");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = another_find(library, functions[i].name);
        check_true(found != NULL, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
}

/* ---------------------------------------------------------------- records */

enum { KERNELS_KEPT = 64 };

static struct {
    uint32_t by_kind[CUPTI_ACTIVITY_KIND_COUNT];
    uint32_t kernels;
    bool in_order; /* kernels: times, and correlation ids */
    uint64_t last_end;
    uint32_t last_id;
    CUpti_ActivityKernel10 kernel[KERNELS_KEPT];
    CUpti_ActivityMemcpy6 copy[8];
    CUpti_ActivityMemset4 fill;
    CUpti_ActivityGraphTrace2 graph;
    CUpti_ActivityAPI launch; /* the last call of cuLaunchKernel */
    CUpti_ActivityExternalCorrelation named;
    CUpti_ActivitySynchronization2 waited;
    uint32_t n, at[CUPTI_ACTIVITY_KIND_COUNT]; /* the place of the first record of a kind */
    CUpti_ActivityDevice5 device[4];
    CUpti_ActivityContext3 context[4];
    CUpti_ActivityStream stream[8];
} rows;
static struct {
    CUpti_ActivityMarker2 marker[32];
    CUpti_ActivityMarkerData2 data[32];
    uint32_t n_markers, n_data;
} nvtx;
static uint32_t n_requested, n_completed;
static bool gives_buffers = true;

static inline void requested(uint8_t **buffer, size_t *size, size_t *max)
{
    *buffer = gives_buffers ? aligned_alloc(8, BUFFER_BYTES) : NULL;
    *size = gives_buffers ? BUFFER_BYTES : 0;
    *max = 0;
    n_requested += gives_buffers;
}

static inline void keep(const CUpti_Activity *record)
{
    const void *at = record;
    uint32_t n = rows.by_kind[record->kind]++;
    rows.at[record->kind] = n ? rows.at[record->kind] : rows.n;
    rows.n++;
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *kernel = at;
        rows.in_order = rows.in_order && kernel->start < kernel->end &&
                        kernel->start + STEP >= rows.last_end &&
                        kernel->correlationId + (kernel->graphNodeId != 0) > rows.last_id;
        rows.last_end = kernel->end;
        rows.last_id = kernel->correlationId;
        rows.kernel[n % KERNELS_KEPT] = *kernel;
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        memcpy(&rows.copy[n % 8], at, sizeof rows.copy[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
        memcpy(&rows.graph, at, sizeof rows.graph);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        memcpy(&rows.fill, at, sizeof rows.fill);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        memcpy(&rows.named, at, sizeof rows.named);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
        memcpy(&rows.waited, at, sizeof rows.waited);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MARKER) {
        memcpy(&nvtx.marker[nvtx.n_markers++ % 32], at, sizeof nvtx.marker[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MARKER_DATA) {
        memcpy(&nvtx.data[nvtx.n_data++ % 32], at, sizeof nvtx.data[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_DEVICE) {
        memcpy(&rows.device[n % 4], at, sizeof rows.device[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_CONTEXT) {
        memcpy(&rows.context[n % 4], at, sizeof rows.context[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_STREAM) {
        memcpy(&rows.stream[n % 8], at, sizeof rows.stream[0]);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER &&
               ((const CUpti_ActivityAPI *)at)->cbid == LAUNCH_ID) {
        memcpy(&rows.launch, at, sizeof rows.launch);
    }
}

static inline void completed(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped;
    (void)context;
    (void)stream;
    check_true(valid <= size, "a buffer's valid bytes");
    check_int(n_dropped(NULL, 0, &dropped), CUPTI_SUCCESS, "asked while a buffer is completed");
    check_int((long long)dropped, 0, "nothing is dropped");
    while (next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
        keep(record);
    }
    free(buffer);
    n_completed++;
}

/* A clock of the program's that ticks twice in a nanosecond. */
static inline uint64_t own_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 2 * ((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

static CUcontext context;
static CUfunction mix;
static CUdeviceptr memory;

static inline void begin(void)
{
    CUmodule module;
    another_load("early");
    context = driver_begin("e2e_cupti");
    another_load("late");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    load();
    another_check();
    mix = driver_function(module, "mix");
    DRV(cu.MemAlloc_v2(&memory, WORDS * sizeof(uint32_t)));
    check_int(register_callbacks(requested, completed), CUPTI_SUCCESS, "register callbacks");
}

static inline void record(bool on)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               CUPTI_ACTIVITY_KIND_DRIVER,
                                               CUPTI_ACTIVITY_KIND_RUNTIME,
                                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                               CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
                                               CUPTI_ACTIVITY_KIND_OVERHEAD};
    memset(&rows, 0, on ? sizeof rows : 0);
    rows.in_order = on ? true : rows.in_order;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_int((on ? enable : disable)(kinds[i]), CUPTI_SUCCESS, "enable or disable a kind");
    }
}

static inline void launch(uint32_t n, CUstream stream)
{
    uint32_t a = 1, b = 0;
    void *params[] = {&memory, &n, &a, &b};
    driver_launch(mix, (n + 127) / 128, 128, stream, params);
}
