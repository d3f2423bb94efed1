/*
 * What test_forms.c needs of a GPU: softgpu's engine in this process (forms_engine.c), or whatever
 * libcuda.so.1 the loader finds (forms_driver.c). Failures that are not a kernel's fail the test.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fb_launch {
    uint32_t grid[3];
    uint32_t block;
    uint32_t dynamic_bytes;
    const void *params; /* packed */
    uint32_t params_bytes;
    uint64_t order_seed; /* of the engine only */
};

/** @return false: there is no such device here, and the test is skipped. */
bool fb_open(void);
void fb_close(void);
uint32_t fb_sm_count(void);

/** A module of a PTX text. @param text  ends in NUL. */
void *fb_load(const char *text, size_t bytes);
void fb_unload(void *module);

/** A variable; its size in bytes, or 0 when there is none. */
uint64_t fb_global(void *module, const char *name, uint64_t *ret_address);
void fb_copy(uint64_t to, uint64_t from, uint64_t bytes);
void fb_write(uint64_t to, uint64_t value);

/** Zeroed memory that kernels and this process use by the same address. */
void *fb_alloc(size_t bytes);
void fb_free(void *memory);

/** May this process write what it shares with a kernel while that runs? */
bool fb_writes_meanwhile(void);

/** Launch and wait. @return whether the kernel came to its end. */
bool fb_run(void *module, const char *kernel, const struct fb_launch *launch);
