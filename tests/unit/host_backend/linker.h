/* A driver that can only link: it gives back the text it was given, behind "linked:". */
#pragma once

#include "proto/driver_table.h"
#include <stdio.h>
#include <string.h>

static struct {
    char text[1 << 16];
    unsigned created, destroyed, n_options;
    CUresult result; /* of AddData */
} linker;

static CUresult linker_create(unsigned n, CUjit_option *ids, void **values, CUlinkState *ret)
{
    (void)ids;
    (void)values;
    linker.n_options = n;
    linker.created++;
    *ret = (CUlinkState)&linker;
    return CUDA_SUCCESS;
}

static CUresult linker_add(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                           const char *name, unsigned n, CUjit_option *ids, void **values)
{
    (void)state, (void)name, (void)n, (void)ids, (void)values;
    if (type != CU_JIT_INPUT_PTX || bytes != strlen(data) + 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    snprintf(linker.text, sizeof linker.text, "linked:%s", (const char *)data);
    return linker.result;
}

static CUresult linker_complete(CUlinkState state, void **ret_image, size_t *ret_bytes)
{
    (void)state;
    *ret_image = linker.text;
    *ret_bytes = strlen(linker.text);
    return CUDA_SUCCESS;
}

static CUresult linker_destroy(CUlinkState state)
{
    (void)state;
    linker.destroyed++;
    return CUDA_SUCCESS;
}

static inline void linker_init(struct weir_driver *driver)
{
    memset(driver, 0, sizeof *driver);
    memset(&linker, 0, sizeof linker);
    driver->cuLinkCreate_v2 = linker_create;
    driver->cuLinkAddData_v2 = linker_add;
    driver->cuLinkComplete = linker_complete;
    driver->cuLinkDestroy = linker_destroy;
}
