/*
 * Threads that use a context in many ways, while another takes it apart. A program must order these
 * itself; one that does not gets errors, but must neither hang nor die.
 *
 * Included by a program of its own, and by a test in which the whole host is in one process.
 */
#pragma once

#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <pthread.h>
#include <stdbool.h>

enum { CONTEXT_USERS = 4, CONTEXT_BYTES = 1 << 16 };

enum context_end {
    CONTEXT_RESETS,   /* the primary context is reset */
    CONTEXT_DESTROYS, /* a created one is destroyed, by two threads */
    CONTEXT_RELEASES, /* the users themselves retain and release the primary one: legal */
};

static struct {
    enum context_end end;
    int over;          /* atomic */
    CUcontext created; /* atomic; of CONTEXT_DESTROYS */
} contexts;

/* What a call may give while its context goes; NULL: this one may not. */
static const char *context_error(CUresult result)
{
    switch ((int)result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_NOT_READY:
        return "";
    case CUDA_ERROR_INVALID_VALUE: /* memory that went with it */
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return contexts.end == CONTEXT_RELEASES ? NULL : "gone";
    default:
        return NULL;
    }
}

/* false: the round is over, for the context is gone. */
static bool context_step(CUresult result, const char *call)
{
    const char *error = context_error(result);

    if (!error) {
        check_die("%s gave %d", call, (int)result);
    }
    return *error == '\0';
}

#define CONTEXT_STEP(call)                                                                         \
    if (!context_step((call), #call)) {                                                            \
        return;                                                                                    \
    }

/* With objects of all kinds; what an error leaves behind goes with the context. */
static void context_use(unsigned round)
{
    char pageable[CONTEXT_BYTES];
    CUstream streams[] = {NULL, CU_STREAM_PER_THREAD, NULL};
    CUdeviceptr memory, pooled;
    CUfunction mix;
    CUmodule module;
    CUevent event;
    void *pinned;
    int value;

    CONTEXT_STEP(cu.StreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
    CUstream stream = streams[round % 3];
    CONTEXT_STEP(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CONTEXT_STEP(cu.MemAlloc_v2(&memory, CONTEXT_BYTES));
    CONTEXT_STEP(cu.MemHostAlloc(&pinned, CONTEXT_BYTES, 0));
    CONTEXT_STEP(cu.ModuleLoadData(&module, e2e_ptx));
    CONTEXT_STEP(cu.ModuleGetFunction(&mix, module, "mix"));
    uint32_t n = 0, one = 1; /* a kernel that touches nothing */
    void *params[] = {&memory, &n, &one, &one};
    for (int i = 0; i < 4; i++) {
        CONTEXT_STEP(cu.LaunchKernel(mix, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        CONTEXT_STEP(cu.FuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, mix));
        CONTEXT_STEP(cu.MemsetD32Async(memory, round, CONTEXT_BYTES / 4, stream));
        CONTEXT_STEP(cu.MemcpyDtoHAsync_v2(pageable, memory, sizeof(pageable), stream));
        CONTEXT_STEP(cu.EventRecord(event, stream));
        CONTEXT_STEP(cu.EventQuery(event));
        CONTEXT_STEP(cu.EventSynchronize(event));
        CONTEXT_STEP(cu.MemAllocAsync(&pooled, CONTEXT_BYTES, stream));
        CONTEXT_STEP(cu.MemFreeAsync(pooled, stream));
        CONTEXT_STEP(cu.StreamSynchronize(stream));
    }
    CONTEXT_STEP(cu.ModuleUnload(module));
    CONTEXT_STEP(cu.MemFreeHost(pinned));
    CONTEXT_STEP(cu.MemFree_v2(memory));
    CONTEXT_STEP(cu.EventDestroy_v2(event));
    CONTEXT_STEP(cu.StreamDestroy_v2(streams[2]));
    CONTEXT_STEP(cu.CtxSynchronize());
}

static CUresult context_enter(void)
{
    CUcontext context = NULL;
    CUresult result = CUDA_SUCCESS;

    if (contexts.end == CONTEXT_DESTROYS) {
        context = __atomic_load_n(&contexts.created, __ATOMIC_ACQUIRE);
    } else {
        result = cu.DevicePrimaryCtxRetain(&context, 0);
    }
    return result == CUDA_SUCCESS ? cu.CtxSetCurrent(context) : result;
}

/* Threads come and go, too, and take their per-thread streams along. */
static void *context_user(void *number)
{
    unsigned round = (unsigned)(uintptr_t)number;

    if (context_step(context_enter(), "entering")) {
        context_use(round);
    }
    (void)cu.CtxSetCurrent(NULL);
    if (contexts.end != CONTEXT_DESTROYS) {
        (void)context_step(cu.DevicePrimaryCtxRelease_v2(0), "cuDevicePrimaryCtxRelease");
    }
    return NULL;
}

static void *context_users(void *number)
{
    for (unsigned round = (unsigned)(uintptr_t)number;
         !__atomic_load_n(&contexts.over, __ATOMIC_RELAXED); round++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, context_user, (void *)(uintptr_t)round) != 0 ||
            pthread_join(thread, NULL) != 0) {
            check_die("no thread");
        }
    }
    return NULL;
}

static void context_make(void)
{
    CUcontext made;

    DRV(cu.CtxCreate_v2(&made, 0, 0));
    DRV(cu.CtxSetCurrent(NULL));
    __atomic_store_n(&contexts.created, made, __ATOMIC_RELEASE);
}

static void *context_destroyer(void *context)
{
    CUresult result = cu.CtxDestroy_v2(context);

    return (void *)(intptr_t)(result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_SUCCESS : result);
}

/* Two threads destroy one context: one of them does. */
static void context_destroy(void)
{
    CUcontext gone = contexts.created;
    pthread_t thread;
    void *other;

    if (pthread_create(&thread, NULL, context_destroyer, gone) != 0) {
        check_die("no thread");
    }
    CUresult result = (CUresult)(intptr_t)context_destroyer(gone);
    pthread_join(thread, &other);
    check_code((int)(intptr_t)other | (int)result, CUDA_SUCCESS, "destroyed by two threads");
    context_make();
}

/* Work that must be right, in the primary context, when all others have gone. */
static void context_works(void)
{
    CUdeviceptr memory;
    CUcontext context;
    unsigned word = 0;

    DRV(cu.DevicePrimaryCtxRetain(&context, 0));
    DRV(cu.CtxSetCurrent(context));
    DRV(cu.MemAlloc_v2(&memory, CONTEXT_BYTES));
    DRV(cu.MemsetD32_v2(memory, 77, CONTEXT_BYTES / 4));
    DRV(cu.MemcpyDtoH_v2(&word, memory + CONTEXT_BYTES - 4, 4));
    check_int(word, 77, "a context works afterwards");
    DRV(cu.MemFree_v2(memory));
    DRV(cu.CtxSetCurrent(NULL));
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
}

static void contexts_go(enum context_end end, unsigned times)
{
    pthread_t users[CONTEXT_USERS];

    contexts.end = end;
    __atomic_store_n(&contexts.over, 0, __ATOMIC_RELAXED);
    if (end == CONTEXT_DESTROYS) {
        context_make();
    }
    for (uintptr_t i = 0; i < CONTEXT_USERS; i++) {
        if (pthread_create(&users[i], NULL, context_users, (void *)i) != 0) {
            check_die("no thread");
        }
    }
    for (unsigned i = 0; i < times; i++) {
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
        if (end == CONTEXT_RESETS) {
            DRV(cu.DevicePrimaryCtxReset_v2(0));
        } else if (end == CONTEXT_DESTROYS) {
            context_destroy();
        }
    }
    __atomic_store_n(&contexts.over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CONTEXT_USERS; i++) {
        pthread_join(users[i], NULL);
    }
    if (end == CONTEXT_DESTROYS) {
        DRV(cu.CtxDestroy_v2(contexts.created));
    }
    context_works();
}
