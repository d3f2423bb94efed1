/*
 * Several devices as a program meets them.
 *
 * e2e_devices list                 a line for each: its ordinal and UUID; then what peers say.
 * e2e_devices nvml                what NVML says: how many, and whether the first reaches each.
 * e2e_devices give DEVICE          fill memory on a device, print "handle HEX", wait for a line on
 *                                  stdin, then check that the other process has worked on it.
 * e2e_devices take DEVICE HEX      open that memory, copy it to this device, work, copy it back.
 * e2e_devices all                  work on every device, in turns
 * e2e_devices one DEVICE           print "ready", wait for a line on stdin, then work on a device
 * e2e_devices later DEVICE         there is no context to be had on a device, but work on the first
 *                                  goes on; print "refused", wait for a line, then there is
 * e2e_devices fails WHAT           a call on the second device fails while a kernel on the first
 * does not end, as in a collective operation; print "error CODE" and the codes of calls that do not
 * fail, and exit with status 7. e2e_devices fill DEVICE BYTES    so much must be had on a device,
 * and not as much again.
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

enum { N = 4096, THREADS = 128, MAX_DEVICES = 16 };

static CUresult (*can_access_peer)(int *, CUdevice, CUdevice);
static CUresult (*ipc_get)(CUipcMemHandle *, CUdeviceptr);
static CUresult (*ipc_open)(CUdeviceptr *, CUipcMemHandle, unsigned int);
static CUresult (*ipc_close)(CUdeviceptr);
static CUresult (*copy_peer)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);

static struct {
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*free)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*get_access)(unsigned long long *, const CUmemLocation *, CUdeviceptr);
    CUresult (*export_to)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                          unsigned long long);
    CUresult (*import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*properties)(CUmemAllocationProp *, CUmemGenericAllocationHandle);
} vmm;

static void find(void *place, const char *name)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    DRV(cu.GetProcAddress_v2(name, &found, 12000, 0, &status));
    check_true(found != NULL, name);
    memcpy(place, &found, sizeof found);
}

static CUcontext enter(int device)
{
    CUcontext context = NULL;
    DRV(cu.DevicePrimaryCtxRetain(&context, device));
    DRV(cu.CtxSetCurrent(context));
    return context;
}

static void mix(CUmodule module, CUdeviceptr at, CUstream stream, uint32_t a, uint32_t b)
{
    uint32_t n = N;
    void *params[] = {&at, &n, &a, &b};
    driver_launch(driver_function(module, "mix"), N / THREADS, THREADS, stream, params);
}

/* Is word i of the memory i * factor + start? The device that is current need not be its own. */
static void check_memory(CUdeviceptr at, uint32_t factor, uint32_t start, const char *what)
{
    static uint32_t got[N], want[N];
    DRV(cu.MemcpyDtoH_v2(got, at, sizeof got));
    for (uint32_t i = 0; i < N; i++) {
        want[i] = i * factor + start;
    }
    check_words(got, want, N, what);
}

static void count_up(CUdeviceptr at)
{
    static uint32_t words[N];
    for (uint32_t i = 0; i < N; i++) {
        words[i] = i;
    }
    DRV(cu.MemcpyHtoD_v2(at, words, sizeof words));
}

static void list(int n)
{
    for (int i = 0; i < n; i++) {
        CUuuid uuid;
        size_t bytes = 0;
        DRV(cu.DeviceGetUuid_v2(&uuid, i));
        DRV(cu.DeviceTotalMem_v2(&bytes, i));
        printf("device %d ", i);
        for (int k = 0; k < 16; k++) {
            printf("%02x", (unsigned char)uuid.bytes[k]);
        }
        printf(" %zu\n", bytes);
    }
    for (int i = 1; i < n; i++) {
        int can = -1;
        DRV(can_access_peer(&can, 0, i));
        printf("peer 0 %d %d\n", i, can);
    }
    printf("devices %d\n", n);
}

/* Without CUDA: NVML shows all devices of the tenant. */
static void nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    unsigned int n = 0, status = 99;
    void *first = NULL, *device = NULL;
    check_true(library != NULL, "libnvidia-ml.so.1");
    if (!library) {
        return;
    }
    int (*init)(void), (*count)(unsigned int *), (*handle)(unsigned int, void **);
    int (*uuid)(void *, char *, unsigned int);
    int (*p2p)(void *, void *, unsigned int, unsigned int *);
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
    *(void **)&handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&uuid = dlsym(library, "nvmlDeviceGetUUID");
    *(void **)&p2p = dlsym(library, "nvmlDeviceGetP2PStatus");
    check_int(init(), 0, "nvmlInit");
    check_int(count(&n), 0, "nvmlDeviceGetCount");
    check_int(handle(0, &first), 0, "the first device");
    for (unsigned int i = 0; i < n; i++) {
        char text[96] = "";
        check_int(handle(i, &device), 0, "a device");
        check_int(uuid(device, text, sizeof text), 0, "its UUID");
        check_int(p2p(first, device, 0, &status), 0, "nvmlDeviceGetP2PStatus");
        printf("nvml %u %s %u\n", i, text, status);
    }
    check_true(handle(n, &device) != 0, "and no more");
}

/* Numbers in memory of the device, mixed there by a kernel. */
static CUdeviceptr mixed_on(int device, CUmodule *ret_module)
{
    CUdeviceptr memory;
    enter(device);
    DRV(cu.ModuleLoadData(ret_module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&memory, N * 4));
    count_up(memory);
    mix(*ret_module, memory, NULL, 3, 1);
    return memory;
}

static void give(int device)
{
    CUipcMemHandle handle;
    CUmodule module;
    CUdeviceptr memory = mixed_on(device, &module);
    DRV(cu.CtxSynchronize());
    DRV(ipc_get(&handle, memory));
    printf("handle ");
    for (size_t i = 0; i < sizeof handle; i++) {
        printf("%02x", ((const unsigned char *)&handle)[i]);
    }
    printf("\n");
    while (getchar() != '\n') {
    }
    check_memory(memory, 6, 9, "what the other process made of it");
    DRV(cu.MemFree_v2(memory));
}

static void take(int device, const char *text)
{
    CUipcMemHandle handle;
    CUdeviceptr theirs = 0, mine;
    CUmodule module;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned int byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    enter(device);
    DRV(ipc_open(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.MemAlloc_v2(&mine, N * 4));
    DRV(cu.MemcpyDtoD_v2(mine, theirs, N * 4));
    check_memory(mine, 3, 1, "what the other process had made");
    mix(module, mine, NULL, 2, 7);
    DRV(cu.MemcpyDtoD_v2(theirs, mine, N * 4));
    DRV(cu.CtxSynchronize());
    DRV(ipc_close(theirs));
    DRV(cu.MemFree_v2(mine));
}

/* Work goes to the devices in turns, so that consecutive records are for different ones. */
static void all(int n)
{
    CUdeviceptr memory[MAX_DEVICES], copy;
    CUcontext contexts[MAX_DEVICES];
    CUmodule modules[MAX_DEVICES];
    CUstream streams[MAX_DEVICES];
    CUevent event;
    for (int i = 0; i < n; i++) {
        contexts[i] = enter(i);
        DRV(cu.ModuleLoadData(&modules[i], e2e_ptx));
        DRV(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        DRV(cu.MemAlloc_v2(&memory[i], N * 4));
        count_up(memory[i]);
    }
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < n; i++) {
            DRV(cu.CtxSetCurrent(contexts[i]));
            mix(modules[i], memory[i], streams[i], 1, (uint32_t)i + 1);
        }
    }
    for (int i = 0; i < n; i++) {
        int device = -1;
        DRV(cu.StreamSynchronize(streams[i])); /* of whichever device */
        check_memory(memory[i], 1, 50 * ((uint32_t)i + 1), "fifty kernels on a device");
        DRV(cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory[i]));
        check_int(device, i, "its memory");
    }
    DRV(cu.CtxSetCurrent(contexts[0]));
    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    mix(modules[0], memory[0], streams[0], 1, 1);
    DRV(cu.EventRecord(event, streams[0]));
    DRV(cu.CtxSetCurrent(contexts[n - 1]));
    DRV(cu.MemAlloc_v2(&copy, N * 4));
    DRV(cu.StreamWaitEvent(streams[n - 1], event, 0));
    DRV(copy_peer(copy, contexts[n - 1], memory[0], contexts[0], N * 4, streams[n - 1]));
    DRV(cu.StreamSynchronize(streams[n - 1]));
    check_memory(copy, 1, 51, "a copy behind another device's event");
}

static void wait_for_line(const char *after)
{
    printf("%s\n", after);
    while (getchar() != '\n') {
    }
}

static void work_on(int device)
{
    CUmodule module;
    CUdeviceptr memory = mixed_on(device, &module);
    check_memory(memory, 3, 1, "a kernel on the device");
    DRV(cu.MemFree_v2(memory));
    DRV(cu.ModuleUnload(module));
}

/* The error is that of the call that needs the context, and of no other. */
static void later(int device)
{
    CUcontext context = NULL;
    work_on(0);
    for (int i = 0; i < 2; i++) {
        check_code(cu.DevicePrimaryCtxRetain(&context, device), CUDA_ERROR_OUT_OF_MEMORY,
                   "a context on a full device");
        check_code(cu.CtxCreate_v2(&context, 0, device), CUDA_ERROR_OUT_OF_MEMORY,
                   "another one on a full device");
        work_on(0);
        DRV(cu.CtxSynchronize());
    }
    wait_for_line("refused");
    work_on(device);
    work_on(0);
}

/* As NCCL does it: memory of one device, mapped for another that only imports it. */
static void mapped(int n, int remote)
{
    const size_t bytes = 2u << 20;
    CUmemGenericAllocationHandle made = 0, imported = 0;
    CUmemAllocationProp prop, seen;
    CUmemAccessDesc access;
    CUdeviceptr at = 0;
    unsigned long long flags = 0;
    int fd = -1, device = -1;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = n - 1;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    DRV(vmm.create(&made, bytes, &prop, 0));
    imported = made;
    if (!remote) {
        DRV(vmm.export_to(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        DRV(vmm.import(&imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        DRV(vmm.release(made));
    }
    DRV(vmm.properties(&seen, imported));
    check_int(seen.location.id, n - 1, "imported memory is where it was made");
    DRV(vmm.reserve(&at, bytes, 0, 0, 0));
    DRV(vmm.map(at, bytes, 0, imported, 0));
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRV(vmm.access(at, bytes, &access, 1));
    DRV(vmm.get_access(&flags, &access.location, at));
    check_int((long long)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the first device has access");
    DRV(cu.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    check_int(device, n - 1, "mapped memory is the other device's");
    enter(0);
    count_up(at);
    check_memory(at, 1, 0, "copies to and from the other device's mapped memory");
    CUmodule module;
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix(module, at, NULL, 5, 2);
    check_memory(at, 5, 2, "a kernel in the other device's mapped memory");
    DRV(cu.CtxSynchronize());
    DRV(vmm.unmap(at, bytes));
    DRV(vmm.free(at, bytes));
    DRV(vmm.release(imported));
}

/* What a call on the second device says that must fail. */
static CUresult failing(const char *what, CUmodule module, CUdeviceptr memory)
{
    CUfunction function;
    CUdeviceptr wild = 0x10, got = 0;
    if (strcmp(what, "memory") == 0) {
        return cu.MemAlloc_v2(&got, (size_t)1 << 50);
    }
    if (strcmp(what, "copy") == 0) {
        return cu.MemcpyDtoD_v2(memory, wild, 4);
    }
    if (strcmp(what, "function") == 0) {
        return cu.ModuleGetFunction(&function, module, "no such function");
    }
    mix(module, wild, NULL, 1, 1);
    return cu.CtxSynchronize();
}

static void fails(const char *what)
{
    uint32_t rounds = UINT32_MAX;
    CUmodule first, second;
    CUstream stream;
    CUdeviceptr there = mixed_on(1, &second), here = mixed_on(0, &first);
    void *params[] = {&here, &rounds};
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    driver_launch(driver_function(first, "spin"), 1, 1, stream, params);
    check_code(cu.StreamQuery(stream), CUDA_ERROR_NOT_READY, "a kernel that does not end");
    enter(1);
    printf("error %d\n", failing(what, second, there));
    printf("then %d\n", cu.MemsetD32_v2(there, 1, 1));
    fflush(stdout);
    exit(7);
}

static void fill(int device, size_t bytes)
{
    CUdeviceptr memory = 0, more = 0;
    size_t free_bytes = 0, total = 0;
    enter(device);
    check_code(cu.MemAlloc_v2(&memory, bytes), CUDA_SUCCESS, "as much as there is");
    DRV(cu.MemGetInfo_v2(&free_bytes, &total));
    check_true(free_bytes < bytes, "then less is free");
    check_code(cu.MemAlloc_v2(&more, bytes), CUDA_ERROR_OUT_OF_MEMORY, "and no more");
    DRV(cu.MemFree_v2(memory));
}

int main(int argc, char **argv)
{
    int n = 0;
    if (argc == 2 && strcmp(argv[1], "nvml") == 0) {
        check_begin("e2e_devices");
        nvml();
        return check_end();
    }
    driver_open("e2e_devices");
    DRV(cu.Init(0));
    DRV(cu.DeviceGetCount(&n));
    find(&can_access_peer, "cuDeviceCanAccessPeer");
    find(&ipc_get, "cuIpcGetMemHandle");
    find(&ipc_open, "cuIpcOpenMemHandle");
    find(&ipc_close, "cuIpcCloseMemHandle");
    find(&copy_peer, "cuMemcpyPeerAsync");
    find(&vmm.create, "cuMemCreate");
    find(&vmm.release, "cuMemRelease");
    find(&vmm.reserve, "cuMemAddressReserve");
    find(&vmm.free, "cuMemAddressFree");
    find(&vmm.map, "cuMemMap");
    find(&vmm.unmap, "cuMemUnmap");
    find(&vmm.access, "cuMemSetAccess");
    find(&vmm.get_access, "cuMemGetAccess");
    find(&vmm.export_to, "cuMemExportToShareableHandle");
    find(&vmm.import, "cuMemImportFromShareableHandle");
    find(&vmm.properties, "cuMemGetAllocationPropertiesFromHandle");
    n = n < MAX_DEVICES ? n : MAX_DEVICES;
    if (argc == 3 && strcmp(argv[1], "give") == 0) {
        give(atoi(argv[2]));
    } else if (argc == 4 && strcmp(argv[1], "take") == 0 && strlen(argv[3]) == 128) {
        take(atoi(argv[2]), argv[3]);
    } else if (argc == 4 && strcmp(argv[1], "fill") == 0) {
        fill(atoi(argv[2]), strtoull(argv[3], NULL, 0));
    } else if (argc == 3 && strcmp(argv[1], "one") == 0) {
        wait_for_line("ready");
        work_on(atoi(argv[2]));
    } else if (argc == 3 && strcmp(argv[1], "later") == 0) {
        later(atoi(argv[2]));
    } else if (argc == 3 && strcmp(argv[1], "fails") == 0) {
        fails(argv[2]);
    } else if (argc == 2 && strcmp(argv[1], "all") == 0) {
        all(n);
        mapped(n, getenv("E2E_REMOTE") != NULL);
    } else {
        list(n);
    }
    return check_end();
}
