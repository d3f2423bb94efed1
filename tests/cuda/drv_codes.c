/* What the driver says of arguments that cannot be, as seen on an H100 and an H200 (driver 580). */
#include "check_driver.h"

#include <sys/stat.h>
#include <unistd.h>

static void names(void)
{
    const char *name;

    check_code(cu.FuncGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE, "the name of no function");
    check_code(cu.KernelGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE, "the name of no kernel");
}

static void devices(void)
{
    int value;

    check_code(cu.DeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)9999, 0, 0),
               CUDA_ERROR_INVALID_DEVICE, "a device beside itself, before the attribute");
    check_code(cu.DeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
               CUDA_ERROR_INVALID_VALUE, "no place for the answer, before the device");
}

static void pinned_memory(void)
{
    unsigned flags = 0;
    size_t free_bytes = 0, total = 0;
    void *memory = &flags;

    check_code(cu.MemHostAlloc(&memory, 0, 0), CUDA_SUCCESS, "no bytes of pinned memory");
    DRV(cu.MemHostAlloc(&memory, 4096, 0));
    DRV(cu.MemHostGetFlags(&flags, memory));
    check_int(flags, CU_MEMHOSTALLOC_DEVICEMAP, "flags of pinned memory that was given none");
    DRV(cu.MemFreeHost(memory));
    check_code(cu.MemFreeHost(NULL), CUDA_SUCCESS, "to free no pinned memory");
    check_code(cu.MemGetInfo_v2(NULL, &total), CUDA_SUCCESS, "the total alone");
    check_code(cu.MemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS, "the free alone");
    check_true(free_bytes != 0 && free_bytes <= total, "some is free");
}

static void images(void)
{
    char folder[] = "/tmp/drv_codesXXXXXX";
    CUmodule module;
    CUlibrary library;
    CUlinkState link;
    char garbage[] = "this is no program at all";

    check_code(cu.ModuleLoadData(&module, ".target sm_70\n.version 7.0\n.address_size 64\n"),
               CUDA_ERROR_INVALID_IMAGE, "PTX that does not begin with its version");
    check_code(cu.ModuleLoadData(&module, "// one\n\n /* and\n another */ .version 7.0\n"
                                          ".target sm_70\n.address_size 64\n"),
               CUDA_SUCCESS, "PTX that begins with comments");
    DRV(cu.ModuleUnload(module));
    if (!mkdtemp(folder)) {
        check_die("mkdtemp");
    }
    check_code(cu.ModuleLoad(&module, folder), CUDA_ERROR_OUT_OF_MEMORY, "a module of a folder");
    check_code(cu.LibraryLoadFromFile(&library, folder, NULL, NULL, 0, NULL, NULL, 0),
               CUDA_ERROR_OUT_OF_MEMORY, "a library of a folder");
    rmdir(folder);
    DRV(cu.LinkCreate_v2(0, NULL, NULL, &link));
    check_code(
        cu.LinkAddData_v2(link, (CUjitInputType)77, garbage, sizeof(garbage), "", 0, NULL, NULL),
        CUDA_ERROR_INVALID_VALUE, "an input of no type for the linker");
    check_code(
        cu.LinkAddData_v2(link, CU_JIT_INPUT_CUBIN, garbage, sizeof(garbage), "", 0, NULL, NULL),
        CUDA_ERROR_INVALID_IMAGE, "garbage as a cubin");
    DRV(cu.LinkDestroy(link));
}

/* Settings are kept; a context's own come before those for all. */
static void core_dumps(void)
{
    char name[1024] = "", file[] = "here.%p", other[] = "there";
    size_t size = sizeof(other);
    _Bool on = 1;

    DRV(cu.CoredumpSetAttributeGlobal(CU_COREDUMP_FILE, other, &size));
    size = sizeof(file);
    check_code(cu.CoredumpSetAttribute(CU_COREDUMP_FILE, file, &size), CUDA_SUCCESS,
               "a core dump's name");
    size = sizeof(name);
    DRV(cu.CoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
    check_true(strcmp(name, file) == 0, "it is the context's");
    size = sizeof(name);
    DRV(cu.CoredumpGetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
    check_true(strcmp(name, other) == 0, "the others' is another");
    size = sizeof(on);
    DRV(cu.CoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
    check_int(on, 0, "a core dump has all memory");
    on = 1;
    size = sizeof(on);
    DRV(cu.CoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
    on = 0;
    size = sizeof(on);
    DRV(cu.CoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &on, &size));
    check_int(on, 1, "but if all contexts are told otherwise");
    check_code(cu.CoredumpGetAttribute((CUcoredumpSettings)99, &on, &size),
               CUDA_ERROR_INVALID_VALUE, "a setting that there is not");
}

static void pools(void)
{
    CUipcMemHandle handle;
    CUdeviceptr memory;

    DRV(cu.MemAllocAsync(&memory, 4096, NULL));
    DRV(cu.CtxSynchronize());
    check_code(cu.IpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE,
               "a handle of a pool's memory");
    DRV(cu.MemFreeAsync(memory, NULL));
}

int main(void)
{
    driver_begin("drv_codes");
    names();
    devices();
    pinned_memory();
    images();
    core_dumps();
    pools();
    return driver_end();
}
