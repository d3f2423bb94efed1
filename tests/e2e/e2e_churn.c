/*
 * Everything that leaves something with the host, at random, until killed: made for kill -9.
 *
 * e2e_churn SEED. Prints "going" when it has begun. A CUDA error ends it with status 1.
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <unistd.h>

#define VMM_BYTES   ((size_t)2 << 20)
#define VMM_PIECES  64
#define SLOTS       16
#define COPY_BYTES  (1u << 20)
#define SPIN_ROUNDS 20000u

static struct slot {
    CUdeviceptr device;
    void *pinned;
    CUstream stream;
    CUevent event;
    CUmodule module;
    CUgraph graph;
    CUgraphExec exec;
} slots[SLOTS];

static CUfunction mix;
static CUfunction spin;
static uint32_t seed;
static char pageable[COPY_BYTES];

static void step_memory(struct slot *s)
{
    if (s->device) {
        DRV(cu.MemFree_v2(s->device));
        s->device = 0;
    } else {
        DRV(cu.MemAlloc_v2(&s->device, COPY_BYTES + check_random(&seed) % (8u << 20)));
    }
}

static void step_pinned(struct slot *s)
{
    if (s->pinned) {
        DRV(cu.MemFreeHost(s->pinned));
        s->pinned = NULL;
    } else {
        DRV(cu.MemHostAlloc(&s->pinned, COPY_BYTES, 0));
    }
}

static void step_copy(struct slot *s)
{
    if (!s->device) {
        return;
    }
    switch (check_random(&seed) % 4) {
    case 0:
        DRV(cu.MemcpyHtoD_v2(s->device, pageable, COPY_BYTES));
        break;
    case 1:
        DRV(cu.MemcpyDtoH_v2(pageable, s->device, COPY_BYTES));
        break;
    case 2:
        DRV(cu.MemcpyHtoDAsync_v2(s->device, s->pinned ? s->pinned : pageable, COPY_BYTES,
                                  s->stream));
        break;
    default:
        DRV(cu.MemsetD32Async(s->device, 7, COPY_BYTES / 4, s->stream));
        break;
    }
}

static void step_launch(struct slot *s)
{
    uint32_t n = 1024;
    uint32_t rounds = SPIN_ROUNDS;
    uint32_t one = 1;
    void *mix_params[] = {&s->device, &n, &one, &one};
    void *spin_params[] = {&s->device, &rounds};
    if (!s->device) {
        return;
    }
    if (check_random(&seed) % 2) {
        driver_launch(mix, 8, 128, s->stream, mix_params);
    } else {
        driver_launch(spin, 1, 32, s->stream, spin_params);
    }
}

static void step_stream(struct slot *s)
{
    if (s->stream) {
        DRV(cu.StreamDestroy_v2(s->stream));
        s->stream = NULL;
    } else {
        DRV(cu.StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    }
}

static void step_event(struct slot *s)
{
    if (s->event) {
        DRV(cu.EventRecord(s->event, s->stream));
        DRV(cu.StreamWaitEvent(slots[0].stream, s->event, 0));
        DRV(cu.EventDestroy_v2(s->event));
        s->event = NULL;
    } else {
        DRV(cu.EventCreate(&s->event, CU_EVENT_DEFAULT));
    }
}

static void step_module(struct slot *s)
{
    if (s->module) {
        DRV(cu.ModuleUnload(s->module));
        s->module = NULL;
    } else {
        DRV(cu.ModuleLoadData(&s->module, e2e_ptx));
    }
}

static void step_graph(struct slot *s)
{
    CUstream stream;
    if (s->exec) {
        DRV(cu.GraphLaunch(s->exec, NULL));
        DRV(cu.CtxSynchronize());
        DRV(cu.GraphExecDestroy(s->exec));
        DRV(cu.GraphDestroy(s->graph));
        s->exec = NULL;
        return;
    }
    if (!slots[1].device) {
        step_memory(&slots[1]);
    }
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(cu.MemsetD32Async(slots[1].device, 1, 64, stream));
    DRV(cu.StreamEndCapture(stream, &s->graph));
    DRV(cu.GraphInstantiateWithFlags(&s->exec, s->graph, 0));
    DRV(cu.StreamDestroy_v2(stream));
}

static void step_pool(struct slot *s)
{
    CUdeviceptr memory;
    DRV(cu.MemAllocAsync(&memory, COPY_BYTES, s->stream));
    DRV(cu.MemsetD32Async(memory, 3, 256, s->stream));
    DRV(cu.MemFreeAsync(memory, s->stream));
}

/* Addresses, memory and a mapping; what it leaves is the killed guest's to leave. */
static void step_vmm(struct slot *s)
{
    static CUdeviceptr space;
    static size_t used;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access;
    int fd;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!space || used == VMM_PIECES) {
        DRV(cu.MemAddressReserve(&space, VMM_PIECES * VMM_BYTES, 0, 0, 0));
        used = 0;
    }
    CUdeviceptr at = space + used * VMM_BYTES;
    DRV(cu.MemCreate(&handle, VMM_BYTES, &prop, 0));
    DRV(cu.MemMap(at, VMM_BYTES, 0, handle, 0));
    memset(&access, 0, sizeof(access));
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRV(cu.MemSetAccess(at, VMM_BYTES, &access, 1));
    DRV(cu.MemsetD32Async(at, 1, 1024, s->stream));
    if (cu.MemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
        CUDA_SUCCESS) {
        close(fd); /* a remote guest has none */
    }
    DRV(cu.MemRelease(handle));
    if (check_random(&seed) % 4) {
        DRV(cu.MemUnmap(at, VMM_BYTES));
    } else {
        used++;
    }
}

static void step_wait(struct slot *s)
{
    if (check_random(&seed) % 2) {
        DRV(cu.StreamSynchronize(s->stream));
    } else {
        DRV(cu.CtxSynchronize());
    }
}

static void nothing_to_do(void *unused)
{
    (void)unused;
}

static void step_host_function(struct slot *s)
{
    DRV(cu.LaunchHostFunc(s->stream, nothing_to_do, NULL));
}

int main(int argc, char **argv)
{
    static void (*const steps[])(struct slot *) = {
        step_memory, step_pinned,        step_copy,  step_copy,   step_launch,
        step_launch, step_stream,        step_event, step_module, step_graph,
        step_pool,   step_host_function, step_vmm,   step_wait,
    };
    CUmodule module;
    seed = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1;
    driver_begin("e2e_churn");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    spin = driver_function(module, "spin");
    printf("going\n");
    for (;;) {
        struct slot *s = &slots[check_random(&seed) % SLOTS];
        /* A graph in a slot refers to slot 1's memory: that one only grows. */
        if (s == &slots[1] && s->device) {
            continue;
        }
        steps[check_random(&seed) % (sizeof(steps) / sizeof(steps[0]))](s);
    }
}
