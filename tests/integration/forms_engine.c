#include "tests/integration/forms_backend.h"

#include "tests/unit/softgpu_exec/fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <string.h>

static struct weir_exec_device *device;

bool fb_open(void)
{
    device = tx_device();
    return true;
}

void fb_close(void)
{
    weir_exec_device_destroy(device);
}

uint32_t fb_sm_count(void)
{
    return 8;
}

void *fb_load(const char *text, size_t bytes)
{
    assert_int_equal(strlen(text), bytes);
    return tx_load_text(device, text);
}

void fb_unload(void *module)
{
    weir_exec_module_destroy(module);
}

uint64_t fb_global(void *module, const char *name, uint64_t *ret_address)
{
    struct weir_exec_global global;

    if (weir_exec_module_global(module, name, &global) != WEIR_OK) {
        return 0;
    }
    *ret_address = global.address;
    return global.bytes;
}

void fb_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
}

void fb_write(uint64_t to, uint64_t value)
{
    *(uint64_t *)(uintptr_t)to = value;
}

void *fb_alloc(size_t bytes)
{
    return tx_alloc(bytes);
}

void fb_free(void *memory)
{
    tx_free(memory);
}

bool fb_writes_meanwhile(void)
{
    return true;
}

bool fb_run(void *module, const char *kernel, const struct fb_launch *launch)
{
    struct weir_exec_fault fault = {0};
    struct weir_exec_launch l = {
        .kernel = weir_exec_module_kernel(module, kernel),
        .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
        .block = {launch->block, 1, 1},
        .dynamic_shared_bytes = launch->dynamic_bytes,
        .params = launch->params,
        .params_bytes = launch->params_bytes,
        .order_seed = launch->order_seed,
    };

    assert_non_null(l.kernel);
    enum weir_status status = weir_exec_run(device, &l, &fault);

    if (status != WEIR_OK) {
        print_message("%s: %s: %s\n", kernel, weir_status_text(status), fault.message);
    }
    return status == WEIR_OK;
}
