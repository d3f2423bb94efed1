/*
 * Memory of the host and of the GPU by turns, as NCCL makes them: ask for the granularity, make or
 * import the memory, reserve addresses, map. Each kind has addresses of its own.
 */
#include "vmm.h"

#include <pthread.h>

enum { ROUNDS = 4, THREADS = 3 };

#define LARGE (2ull << 30)

struct piece {
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle;
};

static CUmemAllocationProp prop_of(int host)
{
    CUmemAllocationProp prop = vmm_prop(1);

    prop.location.type = host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

static void map_there(const struct piece *piece, int host)
{
    CUmemAccessDesc access;

    vmm_map(piece->at, vmm_unit, piece->handle);
    if (host) {
        memset(&access, 0, sizeof(access));
        access.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        DRV(cu.MemSetAccess(piece->at, vmm_unit, &access, 1));
    }
}

static void map_new(struct piece *piece, int host)
{
    DRV(cu.MemAddressReserve(&piece->at, vmm_unit, vmm_unit, 0, 0));
    map_there(piece, host);
}

static CUmemGenericAllocationHandle create(int host)
{
    CUmemAllocationProp prop = prop_of(host);
    CUmemGenericAllocationHandle handle = 0;
    size_t unit = 0;

    DRV(cu.MemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    DRV(cu.MemCreate(&handle, vmm_unit, &prop, 0));
    return handle;
}

static struct piece make(int host)
{
    struct piece piece = {0, create(host)};

    map_new(&piece, host);
    return piece;
}

/* As PyTorch makes its segments: a large reservation before the memory for it. The thread has named
 * memory of the host last. */
static void in_a_large_reservation(void)
{
    struct piece piece = {0, 0};

    DRV(cu.MemAddressReserve(&piece.at, LARGE, 0, 0, 0));
    for (int host = 0; host < 2; host++) {
        piece.handle = create(host);
        map_there(&piece, host);
        DRV(cu.MemsetD32_v2(piece.at, 7, 1));
        check_int((int)vmm_word(piece.at), 7, host ? "memory of the host" : "memory of the GPU");
        DRV(cu.MemUnmap(piece.at, vmm_unit));
        DRV(cu.MemRelease(piece.handle));
    }
    DRV(cu.MemAddressFree(piece.at, LARGE));
}

/* The same memory at another address. */
static struct piece import(const struct piece *from, int host)
{
    struct piece piece = {0, 0};
    int fd = -1;

    DRV(cu.MemExportToShareableHandle(&fd, from->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    DRV(cu.MemImportFromShareableHandle(&piece.handle, (void *)(intptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    map_new(&piece, host);
    return piece;
}

static void drop(const struct piece *piece)
{
    DRV(cu.MemUnmap(piece->at, vmm_unit));
    DRV(cu.MemRelease(piece->handle));
    DRV(cu.MemAddressFree(piece->at, vmm_unit));
}

/* @return is what was written there afterwards, at both addresses? */
static int by_turns(void)
{
    int good = 1;
    struct piece own[2 * ROUNDS], others[2 * ROUNDS];

    for (int i = 0; i < 2 * ROUNDS; i++) {
        own[i] = make(i % 2);
        DRV(cu.MemsetD32_v2(own[i].at, (unsigned)i, vmm_unit / 4));
        others[i] = import(&own[i], i % 2);
    }
    DRV(cu.CtxSynchronize());
    for (int i = 0; i < 2 * ROUNDS; i++) {
        good &= (int)vmm_word(others[i].at) == i;
        if (i % 2) {
            good &= ((volatile int *)(uintptr_t)own[i].at)[vmm_unit / 4 - 1] == i;
        }
        drop(&others[i]);
        drop(&own[i]);
    }
    return good;
}

static void *in_a_thread(void *context)
{
    DRV(cu.CtxSetCurrent(context));
    return (void *)(intptr_t)by_turns();
}

int main(void)
{
    pthread_t threads[THREADS];
    CUcontext context;
    struct piece trial;

    vmm_begin("drv_vmm_order");
    if (!vmm_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        check_skip("no memory of the host by cuMemCreate");
    }
    trial = make(1); /* NCCL tries whether there is such memory, before it makes any other */
    drop(&trial);
    in_a_large_reservation();
    check_true(by_turns(), "by turns");
    DRV(cu.CtxGetCurrent(&context));
    for (int i = 0; i < THREADS; i++) {
        check_int(pthread_create(&threads[i], NULL, in_a_thread, context), 0, "a thread");
    }
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;

        pthread_join(threads[i], &good);
        check_true(good != NULL, "by turns, in a thread");
    }
    return driver_end();
}
