/*
 * A library that is linked with a libcupti in a folder of its own (DT_RPATH), as PyTorch's
 * libtorch_cpu.so is. It has libcupti's addresses in data, and in the table by which it calls.
 */
#include "proto/profile/cupti_abi.h"
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define R(name) extern CUptiResult name(void);
#include "tests/e2e/e2e_cupti_functions.def"
#undef R

struct entry {
    const char *name;
    CUptiResult (*function)(void);
};

EXPORT const struct entry *e2e_cupti_find(const char *name);
EXPORT CUptiResult e2e_cupti_finalize(void);
EXPORT CUptiResult e2e_cupti_last_error(void);

const struct entry *e2e_cupti_find(const char *name)
{
    static const struct entry entries[] = {
#define R(name) {#name, name},
#include "tests/e2e/e2e_cupti_functions.def"
#undef R
    };
    const struct entry *entry = entries;
    while (strcmp(entry->name, name) != 0) {
        entry++;
    }
    return entry;
}

/* Called before CUDA is initialised, too. */
CUptiResult e2e_cupti_finalize(void)
{
    return cuptiFinalize();
}

/* Called only afterwards: where it is bound at its first call, Weir's is found. */
CUptiResult e2e_cupti_last_error(void)
{
    return cuptiGetLastError();
}
