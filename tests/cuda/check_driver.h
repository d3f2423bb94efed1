/*
 * check_driver.h: the Driver API for test programs in plain C.
 *
 * The functions come from libcuda.so.1 by dlopen, so these programs need no toolkit to link; with
 * CHECK_LINK_CUDA they are linked with -lcuda instead. cu.MemAlloc_v2(...) calls exactly the
 * symbol cuMemAlloc_v2. Types come from the header named by WEIR_CUDA_HEADER, or from <cuda.h>,
 * whose renaming macros are switched off so that both headers give the same names.
 */
#pragma once

#ifdef WEIR_CUDA_HEADER
#include WEIR_CUDA_HEADER
#else
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#endif

#include <dlfcn.h>

#include "check.h"

#define CHECK_DRIVER_FUNCTIONS(X)                                                                  \
    X(Init)                                                                                        \
    X(DriverGetVersion)                                                                            \
    X(GetErrorName)                                                                                \
    X(GetErrorString)                                                                              \
    X(GetProcAddress_v2)                                                                           \
    X(DeviceGet)                                                                                   \
    X(DeviceGetCount)                                                                              \
    X(DeviceGetName)                                                                               \
    X(DeviceGetAttribute)                                                                          \
    X(DeviceTotalMem_v2)                                                                           \
    X(DeviceGetUuid_v2)                                                                            \
    X(DeviceGetPCIBusId)                                                                           \
    X(DeviceGetByPCIBusId)                                                                         \
    X(DeviceGetExecAffinitySupport)                                                                \
    X(DeviceGetP2PAttribute)                                                                       \
    X(DevicePrimaryCtxRetain)                                                                      \
    X(DevicePrimaryCtxRelease_v2)                                                                  \
    X(DevicePrimaryCtxReset_v2)                                                                    \
    X(DevicePrimaryCtxGetState)                                                                    \
    X(DevicePrimaryCtxSetFlags_v2)                                                                 \
    X(CtxCreate_v2)                                                                                \
    X(CtxDestroy_v2)                                                                               \
    X(CtxAttach)                                                                                   \
    X(CtxDetach)                                                                                   \
    X(CtxPushCurrent_v2)                                                                           \
    X(CtxPopCurrent_v2)                                                                            \
    X(CtxSetCurrent)                                                                               \
    X(CtxGetCurrent)                                                                               \
    X(CtxGetDevice)                                                                                \
    X(CtxGetId)                                                                                    \
    X(CtxGetFlags)                                                                                 \
    X(CtxGetApiVersion)                                                                            \
    X(CtxGetLimit)                                                                                 \
    X(CtxSetLimit)                                                                                 \
    X(CtxSynchronize)                                                                              \
    X(CoredumpGetAttribute)                                                                        \
    X(CoredumpGetAttributeGlobal)                                                                  \
    X(CoredumpSetAttribute)                                                                        \
    X(CoredumpSetAttributeGlobal)                                                                  \
    X(DeviceGetDevResource)                                                                        \
    X(DevSmResourceSplitByCount)                                                                   \
    X(DevResourceGenerateDesc)                                                                     \
    X(CtxFromGreenCtx)                                                                             \
    X(GreenCtxCreate)                                                                              \
    X(GreenCtxDestroy)                                                                             \
    X(GreenCtxGetDevResource)                                                                      \
    X(GreenCtxStreamCreate)                                                                        \
    X(GreenCtxRecordEvent)                                                                         \
    X(GreenCtxWaitEvent)                                                                           \
    X(ModuleLoadData)                                                                              \
    X(ModuleLoadDataEx)                                                                            \
    X(ModuleLoad)                                                                                  \
    X(ModuleLoadFatBinary)                                                                         \
    X(ModuleUnload)                                                                                \
    X(ModuleGetFunction)                                                                           \
    X(ModuleGetGlobal_v2)                                                                          \
    X(LibraryLoadData)                                                                             \
    X(LibraryLoadFromFile)                                                                         \
    X(LibraryUnload)                                                                               \
    X(LibraryGetKernel)                                                                            \
    X(LibraryGetModule)                                                                            \
    X(LibraryGetGlobal)                                                                            \
    X(LibraryGetManaged)                                                                           \
    X(LibraryGetKernelCount)                                                                       \
    X(KernelGetFunction)                                                                           \
    X(KernelGetAttribute)                                                                          \
    X(KernelSetAttribute)                                                                          \
    X(KernelGetName)                                                                               \
    X(KernelGetParamInfo)                                                                          \
    X(FuncGetAttribute)                                                                            \
    X(FuncSetAttribute)                                                                            \
    X(FuncGetName)                                                                                 \
    X(FuncGetModule)                                                                               \
    X(FuncGetParamInfo)                                                                            \
    X(LaunchKernel)                                                                                \
    X(LaunchKernelEx)                                                                              \
    X(LaunchCooperativeKernel)                                                                     \
    X(LaunchHostFunc)                                                                              \
    X(LinkCreate_v2)                                                                               \
    X(LinkAddData_v2)                                                                              \
    X(LinkComplete)                                                                                \
    X(LinkDestroy)                                                                                 \
    X(OccupancyMaxActiveBlocksPerMultiprocessor)                                                   \
    X(OccupancyAvailableDynamicSMemPerBlock)                                                       \
    X(MemGetInfo_v2)                                                                               \
    X(MemAlloc_v2)                                                                                 \
    X(MemAllocPitch_v2)                                                                            \
    X(MemAllocManaged)                                                                             \
    X(MemFree_v2)                                                                                  \
    X(MemGetAddressRange_v2)                                                                       \
    X(MemAllocAsync)                                                                               \
    X(MemFreeAsync)                                                                                \
    X(MemHostAlloc)                                                                                \
    X(MemFreeHost)                                                                                 \
    X(MemHostGetDevicePointer_v2)                                                                  \
    X(MemHostGetFlags)                                                                             \
    X(MemHostRegister_v2)                                                                          \
    X(MemHostUnregister)                                                                           \
    X(MemcpyHtoD_v2)                                                                               \
    X(MemcpyDtoH_v2)                                                                               \
    X(MemcpyDtoD_v2)                                                                               \
    X(Memcpy)                                                                                      \
    X(MemcpyHtoDAsync_v2)                                                                          \
    X(MemcpyBatchAsync_v2)                                                                         \
    X(Memcpy3DBatchAsync_v2)                                                                       \
    X(MemcpyDtoHAsync_v2)                                                                          \
    X(MemcpyDtoDAsync_v2)                                                                          \
    X(Memcpy2D_v2)                                                                                 \
    X(Memcpy3D_v2)                                                                                 \
    X(MemsetD8_v2)                                                                                 \
    X(MemsetD16_v2)                                                                                \
    X(MemsetD32_v2)                                                                                \
    X(MemsetD2D8_v2)                                                                               \
    X(MemsetD2D32_v2)                                                                              \
    X(MemsetD32Async)                                                                              \
    X(MemGetAllocationGranularity)                                                                 \
    X(MemAddressReserve)                                                                           \
    X(MemAddressFree)                                                                              \
    X(MemCreate)                                                                                   \
    X(MemRelease)                                                                                  \
    X(MemRetainAllocationHandle)                                                                   \
    X(MemMap)                                                                                      \
    X(MemUnmap)                                                                                    \
    X(MemSetAccess)                                                                                \
    X(MemGetAccess)                                                                                \
    X(MemExportToShareableHandle)                                                                  \
    X(MemImportFromShareableHandle)                                                                \
    X(MemGetAllocationPropertiesFromHandle)                                                        \
    X(MemPoolCreate)                                                                               \
    X(MemPoolDestroy)                                                                              \
    X(MemPoolTrimTo)                                                                               \
    X(MemPoolExportToShareableHandle)                                                              \
    X(MemPoolImportFromShareableHandle)                                                            \
    X(MemPoolExportPointer)                                                                        \
    X(MemPoolImportPointer)                                                                        \
    X(MemAllocFromPoolAsync)                                                                       \
    X(PointerGetAttribute)                                                                         \
    X(PointerGetAttributes)                                                                        \
    X(StreamCreate)                                                                                \
    X(StreamCreateWithPriority)                                                                    \
    X(StreamDestroy_v2)                                                                            \
    X(StreamSynchronize)                                                                           \
    X(StreamQuery)                                                                                 \
    X(StreamWaitEvent)                                                                             \
    X(StreamGetFlags)                                                                              \
    X(StreamGetCtx)                                                                                \
    X(StreamAddCallback)                                                                           \
    X(StreamBeginCapture_v2)                                                                       \
    X(StreamEndCapture)                                                                            \
    X(StreamBeginCaptureToGraph)                                                                   \
    X(StreamIsCapturing)                                                                           \
    X(ThreadExchangeStreamCaptureMode)                                                             \
    X(StreamGetCaptureInfo_v2)                                                                     \
    X(StreamWaitValue32_v2)                                                                        \
    X(IpcGetMemHandle)                                                                             \
    X(IpcOpenMemHandle_v2)                                                                         \
    X(IpcCloseMemHandle)                                                                           \
    X(IpcGetEventHandle)                                                                           \
    X(IpcOpenEventHandle)                                                                          \
    X(StreamWriteValue32_v2)                                                                       \
    X(StreamGetGreenCtx)                                                                           \
    X(EventCreate)                                                                                 \
    X(EventRecord)                                                                                 \
    X(EventRecordWithFlags)                                                                        \
    X(EventQuery)                                                                                  \
    X(EventSynchronize)                                                                            \
    X(EventElapsedTime_v2)                                                                         \
    X(EventDestroy_v2)                                                                             \
    X(TensorMapEncodeTiled)                                                                        \
    X(TensorMapEncodeIm2col)                                                                       \
    X(TensorMapReplaceAddress)                                                                     \
    X(GraphCreate)                                                                                 \
    X(GraphAddKernelNode_v2)                                                                       \
    X(GraphAddMemsetNode)                                                                          \
    X(GraphAddMemcpyNode)                                                                          \
    X(GraphAddHostNode)                                                                            \
    X(GraphAddChildGraphNode)                                                                      \
    X(GraphChildGraphNodeGetGraph)                                                                 \
    X(GraphAddEventRecordNode)                                                                     \
    X(GraphAddEventWaitNode)                                                                       \
    X(GraphEventRecordNodeGetEvent)                                                                \
    X(GraphClone)                                                                                  \
    X(GraphExecHostNodeSetParams)                                                                  \
    X(GraphAddEmptyNode)                                                                           \
    X(GraphAddMemAllocNode)                                                                        \
    X(GraphAddMemFreeNode)                                                                         \
    X(GraphMemAllocNodeGetParams)                                                                  \
    X(GraphMemFreeNodeGetParams)                                                                   \
    X(DeviceGetGraphMemAttribute)                                                                  \
    X(DeviceGraphMemTrim)                                                                          \
    X(GraphAddBatchMemOpNode)                                                                      \
    X(GraphBatchMemOpNodeGetParams)                                                                \
    X(GraphExecBatchMemOpNodeSetParams)                                                            \
    X(GraphDebugDotPrint)                                                                          \
    X(GraphConditionalHandleCreate)                                                                \
    X(GraphAddNode_v2)                                                                             \
    X(GraphGetNodes)                                                                               \
    X(GraphNodeGetType)                                                                            \
    X(GraphInstantiateWithFlags)                                                                   \
    X(GraphExecKernelNodeSetParams_v2)                                                             \
    X(GraphExecUpdate_v2)                                                                          \
    X(GraphKernelNodeSetParams_v2)                                                                 \
    X(GraphNodeGetEnabled)                                                                         \
    X(GraphNodeSetEnabled)                                                                         \
    X(GraphDestroyNode)                                                                            \
    X(GraphLaunch)                                                                                 \
    X(GraphExecDestroy)                                                                            \
    X(GraphExecGetFlags)                                                                           \
    X(GraphDestroy)                                                                                \
    X(Array3DCreate_v2)                                                                            \
    X(ArrayDestroy)                                                                                \
    X(MipmappedArrayCreate)                                                                        \
    X(MipmappedArrayDestroy)                                                                       \
    X(MipmappedArrayGetLevel)                                                                      \
    X(TexObjectCreate)                                                                             \
    X(TexObjectDestroy)                                                                            \
    X(SurfObjectCreate)                                                                            \
    X(SurfObjectDestroy)

#define CHECK_DRIVER_MEMBER(name) __typeof__(&cu##name) name;
static struct {
    CHECK_DRIVER_FUNCTIONS(CHECK_DRIVER_MEMBER)
} cu;

/* The call must succeed, otherwise the program ends with FAIL. */
#define DRV(call) check_driver((call), #call, __LINE__)

CHECK_UNUSED static void check_driver(CUresult result, const char *text, int line)
{
    if (result != CUDA_SUCCESS) {
        check_die("line %d: %s gave %d", line, text, (int)result);
    }
}

CHECK_UNUSED static void *check_driver_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);

    if (!symbol) {
        check_die("libcuda.so.1 has no %s", name);
    }
    return symbol;
}

/* A function that is not among CHECK_DRIVER_FUNCTIONS: CU(StreamGetCtx)(stream, &context). */
#define CU(name) ((__typeof__(&cu##name))check_driver_symbol(RTLD_DEFAULT, "cu" #name))

/* Opens the library and fills `cu`; calls nothing in it. */
CHECK_UNUSED static void driver_open(const char *name)
{
    check_begin(name);
#ifdef CHECK_LINK_CUDA
#define CHECK_DRIVER_LOAD(fn) cu.fn = cu##fn;
#else
#define CHECK_DRIVER_LOAD(fn) *(void **)&cu.fn = check_driver_symbol(library, "cu" #fn);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        check_die("dlopen: %s", dlerror());
    }
#endif
    CHECK_DRIVER_FUNCTIONS(CHECK_DRIVER_LOAD)
}

/* driver_open(), cuInit, and device 0's primary context current; gives the context. */
CHECK_UNUSED static CUcontext driver_begin(const char *name)
{
    CUdevice device;
    CUcontext context = NULL;

    driver_open(name);
    DRV(cu.Init(0));
    DRV(cu.DeviceGet(&device, 0));
    DRV(cu.DevicePrimaryCtxRetain(&context, device));
    DRV(cu.CtxSetCurrent(context));
    return context;
}

/* Leaves the context, then the verdict. */
CHECK_UNUSED static int driver_end(void)
{
    DRV(cu.CtxSetCurrent(NULL));
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
    return check_end();
}

CHECK_UNUSED static CUfunction driver_function(CUmodule module, const char *name)
{
    CUfunction function = NULL;

    if (cu.ModuleGetFunction(&function, module, name) != CUDA_SUCCESS) {
        check_die("kernel %s not found", name);
    }
    return function;
}

CHECK_UNUSED static void driver_launch(CUfunction function, unsigned blocks, unsigned threads,
                                       CUstream stream, void **params)
{
    DRV(cu.LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}

/* Wait for the kernels, and make calls with nothing under way. */
CHECK_UNUSED static void driver_rest(void)
{
    size_t available, total;

    DRV(cu.CtxSynchronize());
    for (int i = 0; i < 3; i++) {
        DRV(cu.MemGetInfo_v2(&available, &total));
    }
}

/* A file of the include path as a NUL-terminated constant `symbol`, its end at symbol##_end. */
#define CHECK_EMBED(symbol, file)                                                                  \
    __asm__(".pushsection .rodata\n"                                                               \
            ".balign 64\n" #symbol ":\n"                                                           \
            ".incbin \"" file "\"\n" #symbol "_end:\n"                                             \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const char symbol[];                                                                    \
    extern const char symbol##_end[]
