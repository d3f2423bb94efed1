/*
 * __managed__ variables, found in each way that there is: the program reads and writes them at the
 * address that kernels use. It does so only while none of its kernels runs.
 */
#include "check_driver.h"

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 count = 9;\n"
    ".visible .global .align 4 .u32 plain = 7;\n"
    ".visible .entry increase()\n{\n .reg .b32 %r1;\n .reg .b64 %rd1;\n"
    " mov.u64 %rd1, count;\n cvta.global.u64 %rd1, %rd1;\n ld.u32 %r1, [%rd1];\n"
    " add.u32 %r1, %r1, 1;\n st.u32 [%rd1], %r1;\n ret;\n}\n"
    ".visible .entry increase_at(.param .u64 at)\n{\n .reg .b32 %r1;\n .reg .b64 %rd1;\n"
    " ld.param.u64 %rd1, [at];\n ld.u32 %r1, [%rd1];\n"
    " add.u32 %r1, %r1, 1;\n st.u32 [%rd1], %r1;\n ret;\n}\n";

static CUstream stream;
static CUevent event;

static CUresult wait_stream(void)
{
    return cu.StreamSynchronize(stream);
}

static CUresult query_stream(void)
{
    CUresult result;

    while ((result = cu.StreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
    }
    return result;
}

static CUresult wait_event(void)
{
    return cu.EventSynchronize(event);
}

static CUresult query_event(void)
{
    CUresult result;

    while ((result = cu.EventQuery(event)) == CUDA_ERROR_NOT_READY) {
    }
    return result;
}

static CUresult wait_context(void)
{
    return cu.CtxSynchronize();
}

static const struct {
    const char *name;
    CUresult (*wait)(void);
} waits[] = {{"cuStreamSynchronize", wait_stream},
             {"cuStreamQuery", query_stream},
             {"cuEventSynchronize", wait_event},
             {"cuEventQuery", query_event},
             {"cuCtxSynchronize", wait_context}};

static volatile unsigned *host(CUdeviceptr at)
{
    return (volatile unsigned *)(uintptr_t)at;
}

static void in_turn(CUdeviceptr at, CUfunction increase, CUfunction increase_at)
{
    void *params[] = {&at};
    unsigned want = 100;
    char label[80];

    *host(at) = want;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        driver_launch(increase, 1, 1, stream, NULL);
        driver_launch(increase_at, 1, 1, stream, params);
        DRV(cu.EventRecord(event, stream));
        DRV(waits[i].wait());
        want += 2;
        snprintf(label, sizeof(label), "what kernels wrote, behind %s", waits[i].name);
        check_int(*host(at), want, label);
        want *= 3;
        *host(at) = want; /* seen by the next kernels */
    }
}

/* The program's writes come before copies and fills; these are seen by the program. */
static void copies(CUdeviceptr at, CUdeviceptr device)
{
    unsigned word = 0;

    *host(at) = 0x11223344;
    DRV(cu.MemcpyDtoH_v2(&word, at, sizeof(word)));
    check_int(word, 0x11223344, "a copy from what the program wrote");
    *host(at) = 0x55667788;
    DRV(cu.MemcpyDtoD_v2(device, at, sizeof(word)));
    DRV(cu.MemcpyDtoH_v2(&word, device, sizeof(word)));
    check_int(word, 0x55667788, "one to other memory");
    word = 12;
    DRV(cu.MemcpyHtoD_v2(at, &word, sizeof(word)));
    check_int(*host(at), 12, "a copy to it");
    *host(at) = 0x11223344;
    DRV(cu.MemsetD8_v2(at, 0xff, 1));
    DRV(cu.CtxSynchronize());
    check_int(*host(at), 0x112233ff, "a fill of a part of it");
}

static void attributes(CUdeviceptr at)
{
    unsigned managed = 0;
    void *pointer = NULL;

    DRV(cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    check_int(managed, 1, "IS_MANAGED");
    DRV(cu.PointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, at));
    check_true((CUdeviceptr)(uintptr_t)pointer == at, "its address for the program");
}

static void use(const char *how, CUdeviceptr at, size_t bytes, CUmodule module)
{
    CUdeviceptr device;

    check_int((long long)bytes, 4, how);
    check_int(*host(at), 9, "its first value");
    DRV(cu.MemAlloc_v2(&device, 4096));
    in_turn(at, driver_function(module, "increase"), driver_function(module, "increase_at"));
    copies(at, device);
    attributes(at);
    DRV(cu.MemFree_v2(device));
}

static void of_module(CUmodule module)
{
    CUdeviceptr at = 0, plain = 0;
    size_t bytes = 0;
    unsigned managed = 1;

    DRV(cu.ModuleGetGlobal_v2(&plain, &bytes, module, "plain"));
    DRV(cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
    check_int(managed, 0, "another variable is not managed");
    check_code(cu.ModuleGetGlobal_v2(NULL, NULL, module, "count"), CUDA_ERROR_INVALID_VALUE,
               "a place for neither address nor size");
    DRV(cu.ModuleGetGlobal_v2(NULL, &bytes, module, "count"));
    DRV(cu.ModuleGetGlobal_v2(&at, NULL, module, "count"));
    use("found by cuModuleGetGlobal", at, bytes, module);
}

static void of_library(int managed)
{
    CUdeviceptr at = 0;
    CUlibrary library;
    CUmodule module;
    size_t bytes = 0;

    DRV(cu.LibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cu.LibraryGetModule(&module, library));
    DRV(managed ? cu.LibraryGetManaged(&at, &bytes, library, "count")
                : cu.LibraryGetGlobal(&at, &bytes, library, "count"));
    use(managed ? "found by cuLibraryGetManaged" : "found by cuLibraryGetGlobal", at, bytes,
        module);
    DRV(cu.LibraryUnload(library));
}

static void of_linked_module(void)
{
    CUlinkState link;
    CUmodule module;
    void *linked;
    size_t bytes;

    DRV(cu.LinkCreate_v2(0, NULL, NULL, &link));
    DRV(cu.LinkAddData_v2(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)image, sizeof(image), "image",
                          0, NULL, NULL));
    DRV(cu.LinkComplete(link, &linked, &bytes));
    DRV(cu.ModuleLoadData(&module, linked));
    DRV(cu.LinkDestroy(link));
    of_module(module);
    DRV(cu.ModuleUnload(module));
}

int main(void)
{
    CUmodule module;

    driver_begin("drv_managed_variables");
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    DRV(cu.ModuleLoadData(&module, image));
    of_module(module);
    DRV(cu.ModuleUnload(module));
    of_library(0);
    of_library(1);
    of_linked_module();
    DRV(cu.EventDestroy_v2(event));
    DRV(cu.StreamDestroy_v2(stream));
    return driver_end();
}
