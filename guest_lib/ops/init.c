/* Calls that are answered before cuInit, too, and the profiler's calls, which do nothing. */
#include "guest_lib/cupti.h"
#include "guest_lib/export_tables.h"
#include "guest_lib/monitor.h"
#include "guest_lib/profile.h"
#include "guest_lib/start.h"
#include "proto/common/common.h"
#include "proto/guest_hand.h"

CUresult weir_guest_cuInit(unsigned int Flags)
{
    CUresult result = Flags ? CUDA_ERROR_INVALID_VALUE : weir_guest_init();
    if (result == CUDA_SUCCESS) {
        weir_guest_cupti_replace();
    }
    return result;
}

CUresult weir_guest_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    if (ppExportTable && pExportTableId &&
        (weir_monitor_table(pExportTableId, ppExportTable) ||
         weir_guest_profile_table(pExportTableId, ppExportTable))) {
        return CUDA_SUCCESS;
    }
    weir_guest_export_tables_start(); /* tables are handed out before cuInit */
    return weir_common_export_table(ppExportTable, pExportTableId);
}
