/*
 * Costs of the Driver API as a program sees them: run it natively and through Weir and compare.
 *
 * Prints one line a measure: name, unit, p50, p99, samples (tab-separated). Loads libcuda.so.1 by
 * name, so the environment decides what is measured. With names as arguments, only those.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PROGRAM "driver_bench"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxGetCurrent)                                                                             \
    F(cuCtxGetDevice)                                                                              \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreate)                                                                              \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamQuery)                                                                               \
    F(cuEventCreate)                                                                               \
    F(cuEventRecord)                                                                               \
    F(cuEventQuery)                                                                                \
    F(cuEventSynchronize)                                                                          \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemGetInfo_v2)                                                                             \
    F(cuMemAllocAsync)                                                                             \
    F(cuMemFreeAsync)                                                                              \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemFreeHost)                                                                               \
    F(cuMemcpyHtoD_v2)                                                                             \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemcpyHtoDAsync_v2)                                                                        \
    F(cuMemcpyDtoHAsync_v2)                                                                        \
    F(cuMemsetD8Async)                                                                             \
    F(cuCtxSynchronize)

#include "tests/bench/cu.h"

#define MAX_SAMPLES 20000
static double samples[MAX_SAMPLES];
static int n_samples;
static char **wanted;
static CUstream stream;
static CUfunction empty_kernel;

static const char ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                          ".visible .entry empty(.param .u64 p)\n{\n ret;\n}\n";

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void sample(double value)
{
    if (n_samples < MAX_SAMPLES) {
        samples[n_samples++] = value;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Rates are given by their slow end: p99 of a rate is the rate that 99 % of the samples reach. */
static void report(const char *name, const char *unit)
{
    qsort(samples, (size_t)n_samples, sizeof(samples[0]), compare);
    int high = n_samples * 99 / 100;
    int index99 = strcmp(unit, "GB/s") == 0 ? n_samples - 1 - high : high;
    index99 = index99 < 0 ? 0 : index99 >= n_samples ? n_samples - 1 : index99;
    printf("%s\t%s\t%.3f\t%.3f\t%d\n", name, unit, samples[n_samples / 2], samples[index99],
           n_samples);
    fflush(stdout);
    n_samples = 0;
}

static int want(const char *name)
{
    if (!*wanted) {
        return 1;
    }
    for (char **at = wanted; *at; at++) {
        if (strcmp(*at, name) == 0) {
            return 1;
        }
    }
    return 0;
}

static void launch(void)
{
    CUdeviceptr argument = 0;
    void *params[] = {&argument};
    CHECK(cu.cuLaunchKernel(empty_kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void bench_launch(void)
{
    if (want("launch_enqueue")) {
        for (int round = 0; round < 100; round++) {
            for (int i = 0; i < 100; i++) {
                double t = now_us();
                launch();
                sample(now_us() - t);
            }
            CHECK(cu.cuStreamSynchronize(stream));
        }
        report("launch_enqueue", "us");
    }
    if (want("launch_burst")) { /* time per launch when nothing but launches is done */
        for (int round = 0; round < 20; round++) {
            double t = now_us();
            for (int i = 0; i < 2000; i++) {
                launch();
            }
            CHECK(cu.cuStreamSynchronize(stream));
            sample((now_us() - t) / 2000);
        }
        report("launch_burst", "us");
    }
    if (want("launch_sync")) {
        for (int i = 0; i < 5000; i++) {
            double t = now_us();
            launch();
            CHECK(cu.cuStreamSynchronize(stream));
            sample(now_us() - t);
        }
        report("launch_sync", "us");
    }
}

static void bench_queries(void)
{
    CUevent event;
    CHECK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (want("event_record")) {
        for (int i = 0; i < 3000; i++) {
            double t = now_us();
            CHECK(cu.cuEventRecord(event, stream));
            sample(now_us() - t);
            if (i % 100 == 0) {
                CHECK(cu.cuStreamSynchronize(stream));
            }
        }
        report("event_record", "us");
    }
    CHECK(cu.cuEventRecord(event, stream));
    CHECK(cu.cuEventSynchronize(event));
    if (want("event_query")) {
        for (int i = 0; i < 5000; i++) {
            double t = now_us();
            CHECK(cu.cuEventQuery(event));
            sample(now_us() - t);
        }
        report("event_query", "us");
    }
    if (want("stream_query")) {
        for (int i = 0; i < 5000; i++) {
            double t = now_us();
            CHECK(cu.cuStreamQuery(stream));
            sample(now_us() - t);
        }
        report("stream_query", "us");
    }
    if (want("stream_query_busy")) { /* until the work is done: what polling programs do */
        for (int i = 0; i < 500; i++) {
            launch();
            CUresult result = CUDA_ERROR_NOT_READY;
            while (result == CUDA_ERROR_NOT_READY) {
                double t = now_us();
                result = cu.cuStreamQuery(stream);
                sample(now_us() - t);
            }
            CHECK(result);
        }
        report("stream_query_busy", "us");
    }
    if (want("ctx_get_device")) {
        for (int i = 0; i < 5000; i++) {
            CUdevice device;
            double t = now_us();
            CHECK(cu.cuCtxGetDevice(&device));
            sample(now_us() - t);
        }
        report("ctx_get_device", "us");
    }
}

static void bench_memory(void)
{
    if (want("mem_alloc_1M")) {
        CUdeviceptr warm;
        CHECK(cu.cuMemAlloc_v2(&warm, 1 << 20));
        static double frees[MAX_SAMPLES];
        int n = 500;
        for (int i = 0; i < n; i++) {
            CUdeviceptr p;
            double t = now_us();
            CHECK(cu.cuMemAlloc_v2(&p, 1 << 20));
            sample(now_us() - t);
            t = now_us();
            CHECK(cu.cuMemFree_v2(p));
            frees[i] = now_us() - t;
        }
        report("mem_alloc_1M", "us");
        for (int i = 0; i < n; i++) {
            sample(frees[i]);
        }
        report("mem_free_1M", "us");
        CHECK(cu.cuMemFree_v2(warm));
    }
    if (want("mem_alloc_2M_kept")) {
        CUdeviceptr kept[64];
        for (int i = 0; i < 64; i++) {
            double t = now_us();
            CHECK(cu.cuMemAlloc_v2(&kept[i], 2 << 20));
            sample(now_us() - t);
        }
        report("mem_alloc_2M_kept", "us");
        for (int i = 0; i < 64; i++) {
            CHECK(cu.cuMemFree_v2(kept[i]));
        }
    }
    if (want("mem_alloc_async_1M")) {
        for (int i = 0; i < 1000; i++) {
            CUdeviceptr p;
            double t = now_us();
            CHECK(cu.cuMemAllocAsync(&p, 1 << 20, stream));
            sample(now_us() - t);
            CHECK(cu.cuMemFreeAsync(p, stream));
        }
        CHECK(cu.cuStreamSynchronize(stream));
        report("mem_alloc_async_1M", "us");
    }
}

#define PIECES_MAX 32

/* Sizes of a round; other > 0: others than in the round before. */
static size_t mixed_bytes(unsigned i, unsigned other)
{
    uint32_t x = (i + other * PIECES_MAX + 1) * 2654435761u;
    return ((size_t)(x >> 16) % 250 + 1) << 21; /* 2 to 500 MiB */
}

/* A round allocates n pieces and frees them; as PyTorch does that empties its cache. */
static void rounds_of(const char *name, size_t bytes, unsigned n, unsigned n_rounds, bool others)
{
    CUdeviceptr pieces[PIECES_MAX];
    size_t free_bytes, total_bytes;
    char first[64];
    if (!want(name)) {
        return;
    }
    CHECK(cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    if (free_bytes < (bytes ? bytes * n : 500ull * n << 20)) {
        return; /* the device is too small */
    }
    for (unsigned round = 0; round < n_rounds; round++) {
        double begin = now_us();
        for (unsigned i = 0; i < n; i++) {
            size_t size = bytes ? bytes : mixed_bytes(i, others ? round : 0);
            CHECK(cu.cuMemAlloc_v2(&pieces[i], size));
        }
        for (unsigned i = 0; i < n; i++) {
            CHECK(cu.cuMemFree_v2(pieces[i]));
        }
        sample(now_us() - begin);
        if (round == 0) {
            snprintf(first, sizeof(first), "%s_first", name);
            report(first, "us");
        }
    }
    report(name, "us");
}

static void bench_large_memory(void)
{
    rounds_of("mem_16x64M", 64u << 20, 16, 50, false);
    rounds_of("mem_16x512M", 512u << 20, 16, 30, false);
    rounds_of("mem_mixed", 0, 24, 30, false);
    rounds_of("mem_mixed_others", 0, 24, 30, true);
}

static void copy_rate(const char *name, void *host, CUdeviceptr device, size_t bytes, int to_device)
{
    for (int i = 0; i < 22; i++) {
        double t = now_us();
        if (to_device) {
            CHECK(cu.cuMemcpyHtoDAsync_v2(device, host, bytes, stream));
        } else {
            CHECK(cu.cuMemcpyDtoHAsync_v2(host, device, bytes, stream));
        }
        CHECK(cu.cuStreamSynchronize(stream));
        if (i >= 2) {
            sample((double)bytes / (now_us() - t) * 1e-3);
        }
    }
    report(name, "GB/s");
}

static void bench_copies(void)
{
    static const struct {
        const char *pinned_in, *pinned_out, *pageable_in, *pageable_out;
        size_t bytes;
    } rows[] = {
        {"pinned_h2d_1M", "pinned_d2h_1M", "pageable_h2d_1M", "pageable_d2h_1M", 1u << 20},
        {"pinned_h2d_16M", "pinned_d2h_16M", "pageable_h2d_16M", "pageable_d2h_16M", 16u << 20},
        {"pinned_h2d_64M", "pinned_d2h_64M", "pageable_h2d_64M", "pageable_d2h_64M", 64u << 20},
        {"pinned_h2d_256M", "pinned_d2h_256M", "pageable_h2d_256M", "pageable_d2h_256M",
         256u << 20},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!want("copies") && !want(rows[i].pinned_in)) {
            continue;
        }
        CUdeviceptr device;
        void *pinned;
        CHECK(cu.cuMemAlloc_v2(&device, rows[i].bytes));
        CHECK(cu.cuMemHostAlloc(&pinned, rows[i].bytes, 0));
        char *pageable = malloc(rows[i].bytes);
        memset(pinned, 1, rows[i].bytes);
        memset(pageable, 2, rows[i].bytes);
        copy_rate(rows[i].pinned_in, pinned, device, rows[i].bytes, 1);
        copy_rate(rows[i].pinned_out, pinned, device, rows[i].bytes, 0);
        copy_rate(rows[i].pageable_in, pageable, device, rows[i].bytes, 1);
        copy_rate(rows[i].pageable_out, pageable, device, rows[i].bytes, 0);
        free(pageable);
        CHECK(cu.cuMemFreeHost(pinned));
        CHECK(cu.cuMemFree_v2(device));
    }
    if (want("copy_4B")) {
        CUdeviceptr device;
        int value = 1;
        CHECK(cu.cuMemAlloc_v2(&device, 4096));
        for (int i = 0; i < 3000; i++) {
            double t = now_us();
            CHECK(cu.cuMemcpyHtoD_v2(device, &value, 4));
            sample(now_us() - t);
        }
        report("h2d_4B", "us");
        for (int i = 0; i < 3000; i++) {
            double t = now_us();
            CHECK(cu.cuMemcpyDtoH_v2(&value, device, 4));
            sample(now_us() - t);
        }
        report("d2h_4B", "us");
        CHECK(cu.cuMemFree_v2(device));
    }
}

int main(int argc, char **argv)
{
    wanted = argv + (argc > 0 ? 1 : 0);
    (void)load_driver();
    CUdevice device;
    CUcontext context;
    CUmodule module;
    double t = now_us();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    sample((now_us() - t) / 1e3);
    report("init_and_context", "ms");
    t = now_us();
    CHECK(cu.cuModuleLoadData(&module, ptx));
    CHECK(cu.cuModuleGetFunction(&empty_kernel, module, "empty"));
    launch();
    CHECK(cu.cuStreamSynchronize(stream));
    sample((now_us() - t) / 1e3);
    report("module_and_first_launch", "ms");
    bench_launch();
    bench_queries();
    bench_memory();
    bench_large_memory();
    bench_copies();
    CHECK(cu.cuCtxSynchronize());
    return 0;
}
