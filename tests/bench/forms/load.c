/*
 * forms_load: a tenant that runs the benchmark's kernels, as the commands on its standard input
 * say.
 *
 *     forms_load KERNEL...                  loads these (all without a name), says "ready KERNELS"
 *
 *     input KERNEL SIZE                     make this input, run it, check what came out
 *     loop SECONDS WARM                     one run behind the other
 *     pulse SECONDS WARM GAP_US             a run, wait for it, a pause of 0.5 to 1.5 of GAP, again
 *
 * Each command is answered by a last line "done", or "failed WHY", after which the process ends.
 * What happens in the first WARM of the SECONDS is not counted. Before "done" come
 *
 *     blocks N                              input
 *     rate RUNS SECONDS                     loop: from the first end of a run that counts to the
 *                                           last
 *     latency us p50 P p99 P max M mean A n N
 *                                           pulse: from launch to synchronised
 *     right                                 loop, pulse: outputs, spoilt before, are to the bit
 *                                           those of the first run, which the host checked
 *
 * Loads libcuda.so.1 by name: the environment decides what is measured.
 */
#include "tests/bench/forms/wait.h"
#include "tests/bench/forms/work.h"
#include "tests/bench/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KERNELS 16u
#define DEPTH       4u /* batches in the queue */
#define BATCH_US    200.0
#define WAIT_S      60.0 /* others may have the GPU for long, and softgpu takes its time */

static struct {
    CUmodule modules[MAX_KERNELS];
    CUfunction functions[MAX_KERNELS];
    CUstream stream;
    CUevent events[DEPTH];
    struct weir_forms_work work;
    CUfunction function; /* of the work */
    double run_us;       /* its first run, about */
    uint32_t random;
} load = {.random = 1};

/* ------------------------------------------------------------ preparing */

static bool open_device(void)
{
    CUdevice device;
    CUcontext context;

    WEIR_FORMS_TRY(cu.cuInit(0));
    WEIR_FORMS_TRY(cu.cuDeviceGet(&device, 0));
    WEIR_FORMS_TRY(cu.cuDevicePrimaryCtxRetain(&context, device));
    WEIR_FORMS_TRY(cu.cuCtxSetCurrent(context));
    WEIR_FORMS_TRY(cu.cuStreamCreate(&load.stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t i = 0; i < DEPTH; i++) {
        WEIR_FORMS_TRY(cu.cuEventCreate(&load.events[i], CU_EVENT_DISABLE_TIMING));
    }
    return weir_forms_wait_init(WAIT_S) && weir_forms_helpers_load(load.stream);
}

static bool load_kernel(uint32_t k)
{
    const struct weir_forms_kernel *kernel = weir_forms_kernels[k];

    WEIR_FORMS_TRY(cu.cuModuleLoadDataEx(&load.modules[k], kernel->ptx, 0, NULL, NULL));
    WEIR_FORMS_TRY(cu.cuModuleGetFunction(&load.functions[k], load.modules[k], kernel->name));
    return true;
}

/* A kernel's number, or weir_forms_n_kernels. */
static uint32_t find_kernel(const char *name)
{
    uint32_t k = 0;

    while (k < weir_forms_n_kernels && strcmp(weir_forms_kernels[k]->name, name) != 0) {
        k++;
    }
    return k;
}

static bool load_kernels(int count, char **names)
{
    for (int i = 0; i < count; i++) {
        uint32_t k = find_kernel(names[i]);

        if (k == weir_forms_n_kernels) {
            return weir_forms_fail("no such kernel: %s", names[i]);
        }
        if (!load_kernel(k)) {
            return false;
        }
    }
    for (uint32_t k = 0; count == 0 && k < weir_forms_n_kernels; k++) {
        if (!load_kernel(k)) {
            return false;
        }
    }
    return true;
}

static bool launch(void)
{
    const uint32_t *g = load.work.grid, *b = load.work.kernel->block;

    WEIR_FORMS_TRY(cu.cuLaunchKernel(load.function, g[0], g[1], g[2], b[0], b[1], b[2], 0,
                                     load.stream, load.work.params, NULL));
    return true;
}

static bool launch_and_wait(void)
{
    if (!launch()) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuStreamSynchronize(load.stream));
    return true;
}

static bool make_input(const char *name, const char *size_name)
{
    uint32_t k = find_kernel(name), size = 0;

    while (size < WEIR_FORMS_SIZE_COUNT && strcmp(weir_forms_size_names[size], size_name) != 0) {
        size++;
    }
    if (k == weir_forms_n_kernels || !load.functions[k] || size == WEIR_FORMS_SIZE_COUNT) {
        return weir_forms_fail("no such input: %s %s", name, size_name);
    }
    weir_forms_work_finish(&load.work);
    load.function = load.functions[k];
    if (!weir_forms_work_init(&load.work, weir_forms_kernels[k], (enum weir_forms_size)size) ||
        !launch_and_wait()) { /* its code is loaded */
        return false;
    }
    double begin_ms = bench_now_ms();

    if (!launch_and_wait()) {
        return false;
    }
    load.run_us = (bench_now_ms() - begin_ms) * 1e3;
    if (!weir_forms_work_keep(&load.work)) {
        return false;
    }
    printf("blocks %u\n", load.work.blocks);
    return true;
}

/* ------------------------------------------------------------ running */

struct times {
    double warm_ms, end_ms;
};

static struct times times_from_now(double seconds, double warm)
{
    double now_ms = bench_now_ms();

    return (struct times){now_ms + warm * 1e3, now_ms + seconds * 1e3};
}

static bool check(void)
{
    uint32_t differences = 0;

    if (!weir_forms_work_compare(&load.work, &differences)) {
        return false;
    }
    if (differences != 0) {
        return weir_forms_fail("%u words are not as they were", differences);
    }
    printf("right\n");
    return true;
}

static bool launch_batch(uint32_t batch, CUevent event)
{
    for (uint32_t i = 0; i < batch; i++) {
        if (!launch()) {
            return false;
        }
    }
    WEIR_FORMS_TRY(cu.cuEventRecord(event, load.stream));
    return true;
}

static bool loop(double seconds, double warm)
{
    uint32_t batch = load.run_us < BATCH_US ? (uint32_t)(BATCH_US / (load.run_us + 1)) + 1 : 1;
    uint32_t first = 0, n = 0;
    uint64_t runs = 0;
    double first_ms = 0, last_ms = 0;
    struct times times = times_from_now(seconds, warm);

    while (n != 0 || bench_now_ms() < times.end_ms) {
        if (n < DEPTH && bench_now_ms() < times.end_ms) {
            if (!launch_batch(batch, load.events[(first + n++) % DEPTH])) {
                return false;
            }
            continue;
        }
        WEIR_FORMS_TRY(cu.cuEventSynchronize(load.events[first]));
        double now_ms = bench_now_ms();

        if (first_ms == 0 && now_ms >= times.warm_ms) {
            first_ms = last_ms = now_ms;
        } else if (first_ms != 0 && now_ms <= times.end_ms) {
            runs += batch;
            last_ms = now_ms;
        }
        first = (first + 1) % DEPTH;
        n--;
    }
    printf("rate %llu %.6f\n", (unsigned long long)runs, (last_ms - first_ms) * 1e-3);
    return true;
}

/* 0.5 .. 1.5, so that runs do not fall into step with what others do. */
static double next_factor(void)
{
    load.random = load.random * 1664525u + 1013904223u;
    return 0.5 + (double)(load.random >> 8) / (1 << 24);
}

static bool pulse(double seconds, double warm, double gap_us)
{
    struct times times = times_from_now(seconds, warm);

    for (double now_ms = bench_now_ms(); now_ms < times.end_ms; now_ms = bench_now_ms()) {
        if (!launch_and_wait()) {
            return false;
        }
        if (now_ms >= times.warm_ms) {
            bench_latency_add((bench_now_ms() - now_ms) * 1e3);
        }
        bench_pause_us(gap_us * next_factor());
    }
    bench_latency_print();
    return true;
}

/* ------------------------------------------------------------ commands */

static bool run(const char *line)
{
    char name[16], size[16];
    double seconds, warm, gap_us;

    if (sscanf(line, "input %15s %15s", name, size) == 2) {
        return make_input(name, size);
    }
    if (!load.work.kernel) {
        return weir_forms_fail("no input yet, or not understood: %.40s", line);
    }
    if (sscanf(line, "loop %lf %lf", &seconds, &warm) == 2) {
        return weir_forms_work_spoil(&load.work) && loop(seconds, warm) && check();
    }
    if (sscanf(line, "pulse %lf %lf %lf", &seconds, &warm, &gap_us) == 3) {
        return weir_forms_work_spoil(&load.work) && pulse(seconds, warm, gap_us) && check();
    }
    return weir_forms_fail("not understood: %.40s", line);
}

int main(int argc, char **argv)
{
    char line[80];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!weir_forms_cuda_load("libcuda.so.1")) {
        fprintf(stderr, "forms_load: %s\n", weir_forms_reason());
        return 77;
    }
    if (!open_device() || !load_kernels(argc - 1, argv + 1)) {
        fprintf(stderr, "forms_load: %s\n", weir_forms_reason());
        return 1;
    }
    printf("ready %u\n", argc > 1 ? (unsigned)argc - 1 : weir_forms_n_kernels);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!run(line)) {
            printf("failed %s\n", weir_forms_reason());
            return 1;
        }
        printf("done\n");
    }
    weir_forms_work_finish(&load.work);
    return 0;
}
