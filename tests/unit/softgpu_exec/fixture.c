#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

char tx_text[65536];
static pthread_mutex_t text_lock = PTHREAD_MUTEX_INITIALIZER;

struct weir_exec_device *tx_device(void)
{
    const struct weir_exec_device_params params = {.sm_count = 8,
                                                   .thread_count = 2,
                                                   .compute_capability = 90,
                                                   .max_threads_per_sm = 2048,
                                                   .max_blocks_per_sm = 32,
                                                   .shared_bytes_per_sm = 233472,
                                                   .registers_per_sm = 65536};
    struct weir_exec_device *device;
    assert_int_equal(weir_exec_device_create(&params, &device), WEIR_OK);
    return device;
}

void *tx_alloc(uint64_t bytes)
{
    uint64_t pages = (bytes + 4095) / 4096 * 4096;
    char *base =
        mmap(NULL, pages + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + pages, 4096, PROT_NONE), 0);
    assert_int_equal(weir_soft_memory_add((uintptr_t)base, bytes, WEIR_SOFT_READ | WEIR_SOFT_WRITE),
                     WEIR_OK);
    return base;
}

void tx_free(void *memory)
{
    struct weir_soft_range range;
    assert_true(weir_soft_memory_find((uintptr_t)memory, &range));
    assert_int_equal(weir_soft_memory_remove((uintptr_t)memory), WEIR_OK);
    munmap(memory, (range.bytes + 4095) / 4096 * 4096 + 4096);
}

static enum weir_status allocate(void *user, uint64_t bytes, uint64_t alignment, bool managed,
                                 uint64_t *ret_address)
{
    (void)user;
    (void)managed;
    (void)alignment; /* pages are aligned enough */
    *ret_address = (uintptr_t)tx_alloc(bytes);
    return WEIR_OK;
}

static void release(void *user, uint64_t address)
{
    (void)user;
    tx_free((void *)(uintptr_t)address);
}

const struct weir_exec_memory tx_memory = {.allocate = allocate, .release = release};

static char *read_file(const char *name, size_t *ret_bytes)
{
    char path[512];
    snprintf(path, sizeof path, WEIR_TEST_DATA "/ptx_exec/%s", name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail_msg("cannot open %s", path);
    }
    char *text = malloc(1u << 22);
    assert_non_null(text);
    *ret_bytes = fread(text, 1, 1u << 22, file);
    fclose(file);
    return text;
}

static struct weir_exec_module *load(struct weir_exec_device *device, const char *text,
                                     size_t bytes, const char *name)
{
    struct weir_exec_source source = {.text = text, .bytes = bytes, .name = name};
    struct weir_diag diag = {0};
    struct weir_exec_module *module;
    enum weir_status status = weir_exec_module_load(device, &source, 1, &tx_memory, &diag, &module);
    if (status != WEIR_OK) {
        fail_msg("%s:%u:%u: %s: %s", name, diag.line, diag.column, weir_status_text(status),
                 diag.message);
    }
    return module;
}

struct weir_exec_module *tx_load(struct weir_exec_device *device, const char *name)
{
    size_t bytes;
    char *text = read_file(name, &bytes);
    struct weir_exec_module *module = load(device, text, bytes, name);
    free(text);
    return module;
}

struct weir_exec_module *tx_load_text(struct weir_exec_device *device, const char *text)
{
    return load(device, text, strlen(text), "text");
}

static void print(void *user, const char *text, size_t bytes)
{
    (void)user;
    pthread_mutex_lock(&text_lock);
    size_t n = strlen(tx_text);
    if (n + bytes < sizeof tx_text) {
        memcpy(tx_text + n, text, bytes);
        tx_text[n + bytes] = '\0';
    }
    pthread_mutex_unlock(&text_lock);
}

enum weir_status tx_run(struct weir_exec_device *device, const struct weir_exec_module *module,
                        const char *kernel, struct tx_launch how, const void *params,
                        uint32_t params_bytes, struct weir_exec_fault *ret_fault)
{
    const struct weir_exec_kernel *k = weir_exec_module_kernel(module, kernel);
    if (!k) {
        fail_msg("no kernel %s", kernel);
        return WEIR_ERR_NOT_FOUND;
    }
    struct weir_exec_launch launch = {.kernel = k,
                                      .grid = {how.grid, 1, 1},
                                      .block = {how.block, 1, 1},
                                      .dynamic_shared_bytes = how.shared,
                                      .params = params,
                                      .params_bytes = params_bytes,
                                      .cooperative = how.cooperative,
                                      .print = print,
                                      .heap_bytes = 1u << 20,
                                      .cancel = how.cancel};
    tx_text[0] = '\0';
    return weir_exec_run(device, &launch, ret_fault);
}

void tx_must(struct weir_exec_device *device, const struct weir_exec_module *module,
             const char *kernel, struct tx_launch how, const void *params, uint32_t params_bytes)
{
    struct weir_exec_fault fault = {0};
    enum weir_status status = tx_run(device, module, kernel, how, params, params_bytes, &fault);
    if (status != WEIR_OK) {
        const struct weir_exec_kernel_info *info =
            weir_exec_kernel_info(weir_exec_module_kernel(module, kernel));
        fail_msg("%s: %s; fault %u at line %u: %s; %s", kernel, weir_status_text(status),
                 fault.code, fault.line, fault.message, info->unsupported ? info->unsupported : "");
    }
}
