/*
 * Any text to the kernel engine: it is refused, or its kernels run with one block or cluster each
 * and end, by themselves, by a fault or by cancelling. Memory outside what they were given stays as
 * it was: the sanitizers watch.
 */
#include "softgpu/exec/exec.h"
#include "softgpu/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_KERNELS      4u
#define MAX_MODULE_BYTES (8u << 20)
#define MAX_PARAM_BYTES  32768u
#define DATA_BYTES       65536u
#define KERNEL_MS        20u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct weir_exec_device *device;
static char *room;       /* what kernels may touch */
static uint64_t texture; /* an object over its begin */
static uint64_t deadline_ms;
static uint32_t cancel;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void *watch(void *arg)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    (void)arg;
    for (;;) {
        nanosleep(&pause, NULL);
        if (now_ms() >= __atomic_load_n(&deadline_ms, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static enum weir_status allocate(void *user, uint64_t bytes, uint64_t alignment, bool managed,
                                 uint64_t *ret_address)
{
    void *at;
    (void)user;
    (void)managed;
    if (bytes > MAX_MODULE_BYTES || posix_memalign(&at, alignment, bytes) != 0) {
        return WEIR_ERR_NO_MEMORY;
    }
    memset(at, 0, bytes);
    if (weir_soft_memory_add((uintptr_t)at, bytes, WEIR_SOFT_READ | WEIR_SOFT_WRITE) != WEIR_OK) {
        free(at);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_address = (uintptr_t)at;
    return WEIR_OK;
}

static void release(void *user, uint64_t address)
{
    (void)user;
    if (weir_soft_memory_remove(address) != WEIR_OK) {
        abort();
    }
    free((void *)(uintptr_t)address);
}

static void must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void set_up(void)
{
    const struct weir_exec_device_params params = {.sm_count = 2,
                                                   .thread_count = 1,
                                                   .compute_capability = 90,
                                                   .max_threads_per_sm = 2048,
                                                   .max_blocks_per_sm = 32,
                                                   .shared_bytes_per_sm = 233472,
                                                   .registers_per_sm = 65536};
    pthread_t thread;
    must(weir_exec_device_create(&params, &device) == WEIR_OK);
    room = calloc(1, DATA_BYTES);
    must(room && weir_soft_memory_add((uintptr_t)room, DATA_BYTES,
                                      WEIR_SOFT_READ | WEIR_SOFT_WRITE) == WEIR_OK);
    const struct weir_exec_texture t = {.format = WEIR_EXEC_TEX_F32,
                                        .channels = 1,
                                        .n_levels = 1,
                                        .linear_filter = true,
                                        .levels[0] = {.base = (uintptr_t)room,
                                                      .width = 8,
                                                      .height = 8,
                                                      .depth = 8,
                                                      .row_bytes = 32,
                                                      .slice_bytes = 256}};
    must(weir_exec_texture_register(&t, &texture) == WEIR_OK);
    deadline_ms = UINT64_MAX;
    must(pthread_create(&thread, NULL, watch, NULL) == 0 && pthread_detach(thread) == 0);
}

static void print(void *user, const char *text, size_t bytes)
{
    (void)user;
    (void)text;
    (void)bytes;
}

static void run_kernel(const struct weir_exec_kernel *kernel)
{
    static uint64_t params[MAX_PARAM_BYTES / 8];
    const struct weir_exec_kernel_info *info = weir_exec_kernel_info(kernel);
    struct weir_exec_fault fault;
    if (info->param_bytes > MAX_PARAM_BYTES) {
        return;
    }
    for (uint32_t k = 0; k < MAX_PARAM_BYTES / 8; k++) {
        params[k] = k % 4 == 3 ? texture : (uintptr_t)room + 256ull * (k % 4);
    }
    struct weir_exec_launch launch = {.kernel = kernel,
                                      .grid = {1, 1, 1},
                                      .block = {40, 1, 1},
                                      .dynamic_shared_bytes = 256,
                                      .params = params,
                                      .params_bytes = info->param_bytes,
                                      .print = print,
                                      .heap_bytes = 65536,
                                      .cancel = &cancel};
    if (info->required_block[0] != 0) {
        memcpy(launch.block, info->required_block, sizeof(launch.block));
    }
    for (uint32_t d = 0; d < 3; d++) { /* one cluster, if the kernel names a size */
        launch.grid[d] = info->required_cluster[d] != 0 ? info->required_cluster[d] : 1;
    }
    __atomic_store_n(&cancel, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&deadline_ms, now_ms() + KERNEL_MS, __ATOMIC_RELEASE);
    (void)!weir_exec_run(device, &launch, &fault);
    __atomic_store_n(&deadline_ms, UINT64_MAX, __ATOMIC_RELEASE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct weir_exec_memory memory = {.allocate = allocate, .release = release};
    struct weir_exec_source source = {.text = (const char *)data, .bytes = bytes};
    struct weir_diag diag = {0};
    struct weir_exec_module *module;
    if (!device) {
        set_up();
    }
    if (weir_exec_module_load(device, &source, 1, &memory, &diag, &module) != WEIR_OK) {
        return 0;
    }
    for (uint32_t k = 0; k < MAX_KERNELS; k++) {
        const struct weir_exec_kernel *kernel = weir_exec_module_kernel_at(module, k);
        if (kernel) {
            run_kernel(kernel);
        }
    }
    weir_exec_module_destroy(module);
    return 0;
}
