/* What tests of the kernel engine share: a device, a module from tests/data/ptx_exec, memory,
 * launches. */
#pragma once

#include "softgpu/exec/exec.h"
#include "softgpu/memory.h"
#include <stdbool.h>
#include <stdint.h>

/* A device of 8 SMs on two threads. */
struct weir_exec_device *tx_device(void);
/* Load tests/data/ptx_exec/<name>; fails the test when that fails. */
struct weir_exec_module *tx_load(struct weir_exec_device *device, const char *name);
struct weir_exec_module *tx_load_text(struct weir_exec_device *device, const char *text);
/* Zeroed memory that kernels may touch; a page of nothing follows. */
void *tx_alloc(uint64_t bytes);
void tx_free(void *memory);
extern const struct weir_exec_memory tx_memory;

struct tx_launch {
    uint32_t grid, block, shared;
    bool cooperative;
    const uint32_t *cancel;
};
/* Launch with the packed parameters; text of printf goes to tx_text. */
enum weir_status tx_run(struct weir_exec_device *device, const struct weir_exec_module *module,
                        const char *kernel, struct tx_launch how, const void *params,
                        uint32_t params_bytes, struct weir_exec_fault *ret_fault);
/* The same, and it must succeed. */
void tx_must(struct weir_exec_device *device, const struct weir_exec_module *module,
             const char *kernel, struct tx_launch how, const void *params, uint32_t params_bytes);
extern char tx_text[65536];
