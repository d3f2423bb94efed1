/* The driver under measurement, and the reason of the first failure. */
#include "tests/bench/forms/cuda.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct weir_forms_cuda cu;

static char reason[256];
static char told[256];
static bool broken;

bool weir_forms_cuda_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        return weir_forms_fail("%s", dlerror());
    }
#define F(name)                                                                                    \
    *(void **)&cu.name = dlsym(library, #name);                                                    \
    if (!cu.name) {                                                                                \
        return weir_forms_fail("%s has no %s", path, #name);                                       \
    }
    WEIR_FORMS_CUDA(F)
#undef F
    return true;
}

bool weir_forms_ok(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS) {
        return true;
    }
    /* From here on are the errors of running kernels, which end the context (manual, CUresult). */
    if ((int)result >= 700 && result != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) {
        broken = true;
    }
    return weir_forms_fail("%.*s gave %d", (int)strcspn(call, "("), call, (int)result);
}

bool weir_forms_fail(const char *fmt, ...)
{
    va_list args;

    if (reason[0] == '\0') {
        va_start(args, fmt);
        vsnprintf(reason, sizeof(reason), fmt, args);
        va_end(args);
    }
    return false;
}

const char *weir_forms_reason(void)
{
    memcpy(told, reason, sizeof(told));
    reason[0] = '\0';
    return told;
}

bool weir_forms_is_broken(void)
{
    return broken;
}
