/*
 * Threads copy between GPUs, as a solver does that exchanges the edges of its parts. There is a
 * thread for each GPU. It copies to the memory of the GPU before its own and of the one behind,
 * with each of the driver's functions that copy between GPUs. No context was given access to
 * another (cuCtxEnablePeerAccess), and the driver copies all the same. A single GPU is its own
 * neighbour.
 */
#include "check_driver.h"

#include <pthread.h>

enum { THREADS_MAX = 4, WORDS = 1 << 16, STEPS = 20, WAYS = 4 };

#define BYTES ((size_t)WORDS * 4)

struct part {
    CUcontext context;
    CUdeviceptr own, edges; /* edges: a block for each way in which a neighbour copies */
    CUstream stream;
    CUevent given;
};

static struct part parts[THREADS_MAX];
static pthread_barrier_t barrier;
static int n_parts;

static void make_part(struct part *part, int device)
{
    DRV(cu.DevicePrimaryCtxRetain(&part->context, device));
    DRV(cu.CtxSetCurrent(part->context));
    DRV(cu.MemAlloc_v2(&part->own, BYTES));
    DRV(cu.MemAlloc_v2(&part->edges, WAYS * BYTES));
    DRV(cu.StreamCreate(&part->stream, device % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    DRV(cu.EventCreate(&part->given, CU_EVENT_DISABLE_TIMING));
    DRV(cu.MemsetD32_v2(part->edges, 0, WAYS * (size_t)WORDS));
    DRV(cu.CtxSynchronize());
}

/* The first, third and fourth block of the next part, and the second of the one before. */
static void give(struct part *part, struct part *before, struct part *next, unsigned value)
{
    CUDA_MEMCPY2D rows;

    memset(&rows, 0, sizeof(rows));
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = part->own;
    rows.dstDevice = next->edges + 3 * BYTES;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 4096;
    rows.Height = BYTES / 4096;
    DRV(cu.MemsetD32Async(part->own, value, WORDS, part->stream));
    DRV(cu.MemcpyDtoDAsync_v2(next->edges, part->own, BYTES, part->stream));
    DRV(CU(MemcpyPeerAsync)(before->edges + BYTES, before->context, part->own, part->context, BYTES,
                            part->stream));
    DRV(CU(MemcpyAsync)(next->edges + 2 * BYTES, part->own, BYTES, part->stream));
    DRV(CU(Memcpy2DAsync_v2)(&rows, part->stream));
    DRV(cu.EventRecord(part->given, part->stream));
}

static void *run(void *number)
{
    int i = (int)(intptr_t)number, next = (i + 1) % n_parts, before = (i + n_parts - 1) % n_parts;
    struct part *part = &parts[i];

    make_part(part, i);
    pthread_barrier_wait(&barrier);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned got[WAYS], from_before = (unsigned)before * 1000 + step;
        unsigned want[WAYS] = {from_before, (unsigned)next * 1000 + step, from_before, from_before};

        give(part, &parts[before], &parts[next], (unsigned)i * 1000 + step);
        pthread_barrier_wait(&barrier);
        DRV(cu.StreamWaitEvent(part->stream, parts[before].given, 0));
        DRV(cu.StreamWaitEvent(part->stream, parts[next].given, 0));
        for (unsigned way = 0; way < WAYS; way++) {
            DRV(cu.MemcpyDtoHAsync_v2(&got[way], part->edges + (way + 1) * BYTES - 4, 4,
                                      part->stream));
        }
        DRV(cu.StreamSynchronize(part->stream));
        if (memcmp(got, want, sizeof(got)) != 0) {
            return (void *)(uintptr_t) "wrong edges";
        }
        pthread_barrier_wait(&barrier);
        DRV(cu.Memcpy(parts[next].edges, part->own, BYTES));
        DRV(cu.MemcpyDtoD_v2(parts[next].edges, part->own, BYTES));
        DRV(cu.CtxSynchronize()); /* a copy on the device returns before it is done */
        pthread_barrier_wait(&barrier);
    }
    DRV(cu.MemFree_v2(part->own));
    DRV(cu.MemFree_v2(part->edges));
    DRV(cu.StreamDestroy_v2(part->stream));
    DRV(cu.EventDestroy_v2(part->given));
    DRV(cu.DevicePrimaryCtxRelease_v2(i));
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS_MAX];
    const char *why = NULL;

    driver_open("drv_peer_copies");
    DRV(cu.Init(0));
    DRV(cu.DeviceGetCount(&n_parts));
    n_parts = n_parts < THREADS_MAX ? n_parts : THREADS_MAX;
    pthread_barrier_init(&barrier, NULL, (unsigned)n_parts);
    for (int i = 0; i < n_parts; i++) {
        pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i);
    }
    for (int i = 0; i < n_parts; i++) {
        void *result;
        pthread_join(threads[i], &result);
        why = why ? why : result;
    }
    check_detail(!why, "all edges arrive, in each step", why);
    return check_end();
}
