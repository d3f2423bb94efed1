/*
 * Registered memory as a program sees it: run it natively and through Weir and compare.
 *
 * Prints a line a measure, with tabs: name, unit, value. Copies: the first of each kind after the
 * memory was registered, and the median of those from the tenth on. Calls: of as many as the name
 * says, per call. fork: how long the parent is in it.
 */
#include "tests/bench/timing.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "registered"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuLaunchKernel)                                                                              \
    F(cuStreamCreate)                                                                              \
    F(cuStreamSynchronize)                                                                         \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemFree_v2)                                                                                \
    F(cuMemHostRegister_v2)                                                                        \
    F(cuMemHostUnregister)                                                                         \
    F(cuMemHostGetDevicePointer_v2)                                                                \
    F(cuMemcpyHtoD_v2)                                                                             \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuMemcpyHtoDAsync_v2)                                                                        \
    F(cuMemcpyDtoHAsync_v2)

#include "tests/bench/cu.h"

#define PAGE   4096u
#define MIB    (1u << 20)
#define COPIES 40
#define STEADY 10 /* the first copy that counts as steady */
#define MANY   10000

enum way { TO_DEVICE, FROM_DEVICE, TO_DEVICE_ASYNC, FROM_DEVICE_ASYNC, N_WAYS };

static const char *const ways[N_WAYS] = {"to device", "from device", "to device, async",
                                         "from device, async"};
static const char ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                          ".visible .entry empty(.param .u64 p)\n{\n ret;\n}\n";
static CUstream stream;
static CUfunction empty;

static void say(const char *name, const char *unit, double value)
{
    printf("%s\t%s\t%.3f\n", name, unit, value);
    fflush(stdout);
}

static void *memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        fprintf(stderr, PROGRAM ": no memory\n");
        exit(1);
    }
    memset(at, 1, bytes);
    return at;
}

static void copy(enum way way, CUdeviceptr device, void *host, size_t bytes)
{
    switch (way) {
    case TO_DEVICE:
        CHECK(cu.cuMemcpyHtoD_v2(device, host, bytes));
        break;
    case FROM_DEVICE:
        CHECK(cu.cuMemcpyDtoH_v2(host, device, bytes));
        break;
    case TO_DEVICE_ASYNC:
        CHECK(cu.cuMemcpyHtoDAsync_v2(device, host, bytes, stream));
        break;
    case FROM_DEVICE_ASYNC:
        CHECK(cu.cuMemcpyDtoHAsync_v2(host, device, bytes, stream));
        break;
    case N_WAYS:
        break;
    }
    CHECK(cu.cuStreamSynchronize(stream));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* GB/s of large copies, microseconds of small ones. */
static void say_copy(const char *when, enum way way, size_t bytes, double ms)
{
    char name[96];

    if (bytes >= MIB) {
        snprintf(name, sizeof name, "%s copy %s, %zu MiB", when, ways[way], bytes / MIB);
        say(name, "GB/s", (double)bytes / ms * 1e-6);
    } else {
        snprintf(name, sizeof name, "%s copy %s, %zu B", when, ways[way], bytes);
        say(name, "us", ms * 1e3);
    }
}

static void measure_copies(size_t bytes)
{
    CUdeviceptr device;

    CHECK(cu.cuMemAlloc_v2(&device, bytes));
    for (int way = 0; way < N_WAYS; way++) {
        void *host = memory(bytes);
        double ms[COPIES];

        CHECK(cu.cuMemHostRegister_v2(host, bytes, 0));
        for (int i = 0; i < COPIES; i++) {
            double begin = bench_now_ms();

            copy((enum way)way, device, host, bytes);
            ms[i] = bench_now_ms() - begin;
        }
        say_copy("first", (enum way)way, bytes, ms[0]);
        qsort(ms + STEADY, COPIES - STEADY, sizeof ms[0], compare);
        say_copy("steady", (enum way)way, bytes, ms[STEADY + (COPIES - STEADY) / 2]);
        CHECK(cu.cuMemHostUnregister(host));
        munmap(host, bytes);
    }
    CHECK(cu.cuMemFree_v2(device));
}

/* Per call; mapped: as DEVICEMAP, and a kernel is launched in between. */
static void measure_calls(unsigned n, size_t bytes, unsigned flags)
{
    char *at = memory(n * bytes), name[96];
    CUdeviceptr p = 0;
    void *params[] = {&p};
    double begin = bench_now_ms(), registered, launched, end;

    for (unsigned i = 0; i < n; i++) {
        CHECK(cu.cuMemHostRegister_v2(at + i * bytes, bytes, flags));
    }
    registered = bench_now_ms();
    CHECK(cu.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    CHECK(cu.cuStreamSynchronize(stream));
    launched = bench_now_ms();
    for (unsigned i = 0; i < n; i++) {
        CHECK(cu.cuMemHostUnregister(at + i * bytes));
    }
    end = bench_now_ms();
    const char *mapped = flags & CU_MEMHOSTREGISTER_DEVICEMAP ? ", mapped" : "";
    snprintf(name, sizeof name, "register %u of %zu KiB%s", n, bytes >> 10, mapped);
    say(name, "us", (registered - begin) * 1e3 / n);
    snprintf(name, sizeof name, "launch after registering %u of %zu KiB%s", n, bytes >> 10, mapped);
    say(name, "us", (launched - registered) * 1e3);
    snprintf(name, sizeof name, "unregister %u of %zu KiB%s", n, bytes >> 10, mapped);
    say(name, "us", (end - launched) * 1e3 / n);
    munmap(at, n * bytes);
}

static int stop;

static void *work(void *user)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    }
    return user;
}

/* From registering until kernels reach it, and back, beside other threads. */
static void measure_reach(size_t bytes, unsigned n_threads)
{
    pthread_t threads[64];
    void *host = memory(bytes);
    CUdeviceptr device;
    char name[96];
    double begin, reached, end;

    __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < n_threads; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
            n_threads = i;
        }
    }
    begin = bench_now_ms();
    CHECK(cu.cuMemHostRegister_v2(host, bytes, 0));
    CHECK(cu.cuMemHostGetDevicePointer_v2(&device, host, 0));
    reached = bench_now_ms();
    if (n_threads == 0) {
        pid_t pid = fork();

        if (pid == 0) {
            _exit(0);
        }
        snprintf(name, sizeof name, "fork beside %zu KiB that kernels reach", bytes >> 10);
        say(name, "us", (bench_now_ms() - reached) * 1e3);
        (void)!waitpid(pid, NULL, 0);
    }
    end = bench_now_ms();
    CHECK(cu.cuMemHostUnregister(host));
    snprintf(name, sizeof name, "register and reach %zu KiB, %u threads", bytes >> 10, n_threads);
    say(name, "us", (reached - begin) * 1e3);
    snprintf(name, sizeof name, "unregister %zu KiB that was reached, %u threads", bytes >> 10,
             n_threads);
    say(name, "us", (bench_now_ms() - end) * 1e3);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    munmap(host, bytes);
}

int main(int argc, char **argv)
{
    size_t large = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) * MIB : 256u * MIB;
    CUcontext context;
    CUmodule module;

    load_driver();
    if (cu.cuInit(0) != CUDA_SUCCESS) {
        return EXIT_NONE;
    }
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuModuleLoadData(&module, ptx));
    CHECK(cu.cuModuleGetFunction(&empty, module, "empty"));
    CHECK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    measure_copies(64);
    measure_copies(4 * MIB);
    measure_copies(large);
    measure_calls(1, PAGE, 0);
    measure_calls(1000, PAGE, 0);
    measure_calls(MANY, PAGE, 0);
    measure_calls(MANY, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP);
    measure_calls(1, large, 0);
    measure_reach(PAGE, 0);
    measure_reach(PAGE, 16);
    measure_reach(large, 0);
    measure_reach(large, 16);
    return 0;
}
