/*
 * A program that has another libcupti than Weir's: e2e_cupti_other.c, or a library that is linked
 * with it, e2e_cupti_linked.c. It is loaded before CUDA is initialised ("early") or after that, but
 * before code is loaded ("late").
 */
#pragma once

#include "proto/profile/cupti_abi.h"
#include "tests/cuda/check_driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A library that brings another libcupti, or is one. */
static struct {
    char **arguments; /* "early" or "late", the library's path; NULL: there is none */
    void *library;
    CUptiResult (*finalize)(void);
    const struct {
        const char *name;
        void *function;
    } * (*find)(const char *); /* its relocated words; NULL: it is no library that was linked */
} another;

/* Load it, if now is when. */
static inline void another_load(const char *now)
{
    if (!another.arguments || strcmp(another.arguments[0], now) != 0) {
        return;
    }
    another.library = dlopen(another.arguments[1], RTLD_LAZY);
    check_true(another.library != NULL, another.arguments[1]);
    *(void **)&another.find = dlsym(another.library, "e2e_cupti_find");
    *(void **)&another.finalize =
        dlsym(another.library, another.find ? "e2e_cupti_finalize" : "cuptiFinalize");
    check_true(another.finalize && another.finalize() == CUPTI_ERROR_UNKNOWN,
               "another libcupti, which fails");
}

static inline bool another_is_writable(const void *address)
{
    unsigned long first, end;
    char line[512], writes = '?';
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx r%c", &first, &end, &writes) == 3 &&
            (uintptr_t)address - first < end - first) {
            break;
        }
    }
    check_true(maps && fclose(maps) == 0, "/proc/self/maps");
    return writes != '-';
}

/* What was bound to the other libcupti calls Weir's now. */
static inline void another_check(void)
{
    CUptiResult (*last_error)(void);
    if (another.find) {
        *(void **)&last_error = dlsym(another.library, "e2e_cupti_last_error");
        check_int(another.finalize(), CUPTI_SUCCESS, "a function that was called before");
        check_int(last_error(), CUPTI_SUCCESS, "one that was not");
        check_true(!another_is_writable(another.find("cuptiSubscribe")),
                   "relocated data are read-only");
    }
}

/* The word that has a function's address. */
static inline void *another_find(void *library, const char *name)
{
    return another.find ? another.find(name)->function : dlsym(library, name);
}
