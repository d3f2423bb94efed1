#include "proto/common/coredump.h"

#include "base/status.h"
#include "base/thread.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 1024 /* size that CUDA's documentation names, with the NUL */

/* Zeroed: nothing is set. */
struct weir_coredump {
    unsigned int set; /* bit per CUcoredumpSettings */
    bool flags[CU_COREDUMP_MAX];
    int generation_flags;
    char names[2][NAME_BYTES]; /* CU_COREDUMP_FILE, CU_COREDUMP_PIPE */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all settings */
static struct weir_coredump everywhere;

static bool is_name(CUcoredumpSettings attrib)
{
    return attrib == CU_COREDUMP_FILE || attrib == CU_COREDUMP_PIPE;
}

static bool is_known(CUcoredumpSettings attrib)
{
    return (int)attrib >= CU_COREDUMP_ENABLE_ON_EXCEPTION && (int)attrib < CU_COREDUMP_MAX;
}

static size_t bytes_of(CUcoredumpSettings attrib)
{
    return attrib == CU_COREDUMP_GENERATION_FLAGS ? sizeof(int) : sizeof(bool);
}

/* The default names are core.cuda.HOST.PID and corepipe.cuda.HOST.PID; of the flags, only
 * CU_COREDUMP_TRIGGER_HOST is set. */
static void fill_default(struct weir_coredump *settings)
{
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    memset(settings, 0, sizeof *settings);
    settings->flags[CU_COREDUMP_TRIGGER_HOST] = true;
    for (int i = 0; i < 2; i++) {
        snprintf(settings->names[i], NAME_BYTES, "%s.cuda.%s.%d", i == 0 ? "core" : "corepipe",
                 host, (int)getpid());
    }
}

static CUresult set_locked(struct weir_coredump *settings, CUcoredumpSettings attrib,
                           const void *value, const size_t *size)
{
    WEIR_FAIL_IF(!value || !size || !is_known(attrib), CUDA_ERROR_INVALID_VALUE);
    if (is_name(attrib)) {
        char *name = settings->names[attrib == CU_COREDUMP_PIPE];
        size_t n = strnlen(value, *size);
        WEIR_FAIL_IF(n >= NAME_BYTES, CUDA_ERROR_INVALID_VALUE);
        memcpy(name, value, n);
        name[n] = '\0';
    } else if (*size < bytes_of(attrib)) {
        return CUDA_ERROR_INVALID_VALUE;
    } else if (attrib == CU_COREDUMP_GENERATION_FLAGS) {
        memcpy(&settings->generation_flags, value, sizeof(int));
    } else {
        settings->flags[attrib] = *(const uint8_t *)value != 0;
    }
    settings->set |= 1u << attrib;
    return CUDA_SUCCESS;
}

CUresult weir_coredump_set(struct weir_coredump **own, CUcoredumpSettings attrib, const void *value,
                           const size_t *size)
{
    WEIR_LOCKED(&lock);
    if (own && !*own) {
        *own = calloc(1, sizeof(**own));
    }
    struct weir_coredump *settings = own ? *own : &everywhere;
    return settings ? set_locked(settings, attrib, value, size) : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult get_locked(const struct weir_coredump *own, CUcoredumpSettings attrib, void *value,
                           size_t *size)
{
    const struct weir_coredump *settings = own;
    struct weir_coredump fresh;
    WEIR_FAIL_IF(!size || !is_known(attrib), CUDA_ERROR_INVALID_VALUE);
    if (!own || !(own->set >> attrib & 1)) {
        settings = &everywhere;
    }
    if (!(settings->set >> attrib & 1)) {
        fill_default(&fresh);
        settings = &fresh;
    }
    const void *from = &settings->flags[attrib];
    size_t bytes = bytes_of(attrib);
    if (is_name(attrib)) {
        from = settings->names[attrib == CU_COREDUMP_PIPE];
        bytes = strlen(from) + 1;
    } else if (attrib == CU_COREDUMP_GENERATION_FLAGS) {
        from = &settings->generation_flags;
    }
    size_t room = *size;
    *size = bytes;
    WEIR_FAIL_IF(value && room < bytes, CUDA_ERROR_INVALID_VALUE);
    if (value) {
        memcpy(value, from, bytes);
    }
    return CUDA_SUCCESS;
}

CUresult weir_coredump_get(struct weir_coredump *const *own, CUcoredumpSettings attrib, void *value,
                           size_t *size)
{
    WEIR_LOCKED(&lock);
    return get_locked(own ? *own : NULL, attrib, value, size);
}
