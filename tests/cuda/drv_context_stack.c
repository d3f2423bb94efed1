/* Contexts: the stack of each thread, create, push, pop, set, destroy, and what goes wrong. */
#include <pthread.h>
#include <semaphore.h>

#include "check_driver.h"

static CUcontext doomed;
static sem_t ready, destroyed;
static int thread_fresh, thread_set, thread_after;

static CUcontext current(void)
{
    CUcontext context = NULL;

    DRV(cu.CtxGetCurrent(&context));
    return context;
}

static void *other_thread(void *unused)
{
    CUdeviceptr p = 0;

    (void)unused;
    thread_fresh = !current();
    thread_set = (int)cu.CtxSetCurrent(doomed);
    sem_post(&ready);
    sem_wait(&destroyed);
    thread_after = (int)cu.MemAlloc_v2(&p, 64);
    return NULL;
}

static void stack(CUcontext a, CUcontext b)
{
    CUcontext popped = NULL;

    check_true(current() == b, "the newest context is current");
    DRV(cu.CtxPopCurrent_v2(&popped));
    check_true(popped == b && current() == a, "pop gives it back");
    DRV(cu.CtxPushCurrent_v2(b));
    check_true(current() == b, "push");
    DRV(cu.CtxSetCurrent(a));
    DRV(cu.CtxPopCurrent_v2(&popped));
    check_true(popped == a && current() == a, "set replaces the top only");
    DRV(cu.CtxPopCurrent_v2(&popped));
    check_true(!current(), "empty stack");
    check_code(cu.CtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT, "pop of an empty stack");
    DRV(cu.CtxSetCurrent(NULL));
    check_true(!current(), "set of null on an empty stack");
}

static void properties(CUcontext a, CUcontext b)
{
    unsigned long long id_a = 0, id_b = 0;
    unsigned version = 0, flags = 0;
    CUdevice device = -1;
    size_t limit = 0;

    DRV(cu.CtxGetId(a, &id_a));
    DRV(cu.CtxGetId(b, &id_b));
    check_true(id_a != id_b, "identities differ");
    DRV(cu.CtxGetApiVersion(a, &version));
    check_true(version >= 3010, "API version");
    DRV(cu.CtxSetCurrent(b));
    DRV(cu.CtxGetFlags(&flags));
    check_int(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC, "flags of the second context");
    DRV(cu.CtxGetDevice(&device));
    check_int(device, 0, "device");
    DRV(cu.CtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    DRV(cu.CtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
    check_true(limit >= 4096, "limit of one context");
    check_true(cu.CtxSetLimit((CUlimit)999, 1) != CUDA_SUCCESS, "unknown limit");
    DRV(cu.CtxSetCurrent(NULL));
}

int main(void)
{
    CUcontext a = NULL, b = NULL, popped = NULL;
    CUdevice device;
    CUdeviceptr p = 0;
    pthread_t thread;

    driver_open("drv_context_stack");
    DRV(cu.Init(0));
    DRV(cu.DeviceGet(&device, 0));
    check_true(!current(), "no context at first");
    DRV(cu.CtxCreate_v2(&a, 0, device));
    DRV(cu.CtxCreate_v2(&b, CU_CTX_SCHED_BLOCKING_SYNC, device));
    check_true(a && b && a != b, "two contexts");
    stack(a, b);
    properties(a, b);
    check_code(cu.MemAlloc_v2(&p, 64), CUDA_ERROR_INVALID_CONTEXT, "malloc without a context");

    DRV(cu.CtxSetCurrent(b));
    DRV(cu.MemAlloc_v2(&p, 1 << 20));
    DRV(cu.CtxDestroy_v2(b));
    check_true(!current(), "destroying the current context pops it");
    DRV(cu.CtxSetCurrent(a));
    check_code(cu.MemFree_v2(p), CUDA_ERROR_INVALID_VALUE, "its memory went with it");

    DRV(cu.CtxCreate_v2(&doomed, 0, device));
    DRV(cu.CtxPopCurrent_v2(&popped));
    sem_init(&ready, 0, 0);
    sem_init(&destroyed, 0, 0);
    pthread_create(&thread, NULL, other_thread, NULL);
    sem_wait(&ready);
    DRV(cu.CtxDestroy_v2(doomed));
    sem_post(&destroyed);
    pthread_join(thread, NULL);
    check_true(thread_fresh, "a new thread has no context");
    check_code(thread_set, CUDA_SUCCESS, "a thread takes a context");
    check_code(thread_after, CUDA_ERROR_CONTEXT_IS_DESTROYED, "which another thread destroys");
    DRV(cu.CtxDestroy_v2(a));
    return check_end();
}
