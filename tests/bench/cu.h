/*
 * The driver as programs of this folder call it: found by name, so that the environment decides
 * whose it is. Each program defines, before it includes this,
 *
 *     PROGRAM                 its name, a string
 *     FUNCTIONS(F)            F(cuInit) F(cuDeviceGet) ..: what it cannot do without
 *     OPTIONAL_FUNCTIONS(F)   if it likes: what stays NULL where a driver has it not
 *
 * and has cu.cuInit() and so on from load_driver() on.
 */
#pragma once

#include "proto/cuda_abi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_NONE 77 /* there is nothing to measure */

#ifndef OPTIONAL_FUNCTIONS
#define OPTIONAL_FUNCTIONS(F)
#endif

static struct {
#define F(name) __typeof__(name) *name;
    FUNCTIONS(F) OPTIONAL_FUNCTIONS(F)
#undef F
} cu;

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, PROGRAM ": %s gave %d\n", #call, (int)result_);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Ends the program where there is no driver, or none with all FUNCTIONS. @return it has the
 * optional ones, too */
static inline bool load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool all = true;

    if (!library) {
        fprintf(stderr, PROGRAM ": %s\n", dlerror());
        exit(EXIT_NONE);
    }
#define F(name)                                                                                    \
    *(void **)&cu.name = dlsym(library, #name);                                                    \
    if (!cu.name) {                                                                                \
        fprintf(stderr, PROGRAM ": no %s\n", #name);                                               \
        exit(1);                                                                                   \
    }
    FUNCTIONS(F)
#undef F
#define F(name)                                                                                    \
    *(void **)&cu.name = dlsym(library, #name);                                                    \
    all &= cu.name != NULL;
    OPTIONAL_FUNCTIONS(F)
#undef F
    return all;
}
