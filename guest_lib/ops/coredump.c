/* Settings of GPU core dumps: kept and given back. Nothing writes one; the host's log says what
 * failed. */
#include "proto/common/coredump.h"
#include "guest_lib/entry.h"
#include "proto/guest_hand.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all settings */
static struct weir_coredump everywhere;

/* A context's own; what it has not set is as everywhere. Never freed, as contexts are not. */
static CUresult of_context(struct weir_guest_ctx **ret_ctx)
{
    CUresult rc = weir_ctx_current(ret_ctx);
    if (rc != CUDA_SUCCESS || (*ret_ctx)->coredump) {
        return rc;
    }
    (*ret_ctx)->coredump = calloc(1, sizeof *(*ret_ctx)->coredump);
    return (*ret_ctx)->coredump ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_guest_cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct weir_guest_ctx *ctx;
    pthread_mutex_lock(&lock);
    CUresult rc = of_context(&ctx);
    rc = rc == CUDA_SUCCESS ? weir_coredump_set(ctx->coredump, attrib, value, size) : rc;
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult weir_guest_cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value,
                                                 size_t *size)
{
    pthread_mutex_lock(&lock);
    CUresult rc = weir_coredump_set(&everywhere, attrib, value, size);
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult weir_guest_cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct weir_guest_ctx *ctx;
    CUresult rc = weir_ctx_current(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    pthread_mutex_lock(&lock);
    rc = weir_coredump_get(ctx->coredump, &everywhere, attrib, value, size);
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult weir_guest_cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value,
                                                 size_t *size)
{
    pthread_mutex_lock(&lock);
    CUresult rc = weir_coredump_get(NULL, &everywhere, attrib, value, size);
    pthread_mutex_unlock(&lock);
    return rc;
}
