/* Calls that are answered before cuInit too, and the profiler, which is not there. */
#include "guest_lib/entry.h"
#include "guest_lib/export_tables.h"
#include "guest_lib/monitor.h"
#include "proto/common/common.h"
#include "proto/common/procaddr.h"
#include "proto/errors.h"
#include "proto/guest_hand.h"

CUresult weir_guest_cuInit(unsigned int Flags)
{
    return Flags ? CUDA_ERROR_INVALID_VALUE : weir_guest_init();
}

CUresult weir_guest_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion,
                                     cuuint64_t flags)
{
    return weir_procaddr_get_v1(symbol, pfn, cudaVersion, flags);
}

CUresult weir_guest_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                        cuuint64_t flags,
                                        CUdriverProcAddressQueryResult *symbolStatus)
{
    return weir_procaddr_get(symbol, pfn, cudaVersion, flags, symbolStatus);
}

CUresult weir_guest_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    if (ppExportTable && pExportTableId && weir_monitor_table(pExportTableId, ppExportTable)) {
        return CUDA_SUCCESS;
    }
    weir_guest_export_tables_start(); /* tables are handed out before cuInit */
    return weir_common_export_table(ppExportTable, pExportTableId);
}

CUresult weir_guest_cuGetErrorString(CUresult error, const char **pStr)
{
    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = weir_cuda_error_string(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuGetErrorName(CUresult error, const char **pStr)
{
    if (!pStr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = weir_cuda_error_name(error);
    return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuProfilerInitialize(const char *configFile, const char *outputFile,
                                         CUoutput_mode outputMode)
{
    (void)configFile;
    (void)outputFile;
    (void)outputMode;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuProfilerStart(void)
{
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuProfilerStop(void)
{
    return CUDA_SUCCESS;
}
