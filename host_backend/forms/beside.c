/* The carve-out of twins that share SMs: beside.h. */
#include "host_backend/forms/beside.h"

void weir_forms_beside_set(const struct weir_driver *driver, CUfunction twin, bool shares,
                           struct weir_forms_beside *beside)
{
    const CUfunction_attribute id = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    int value = CU_SHAREDMEM_CARVEOUT_MAX_SHARED;

    if (beside->shares == shares) {
        return;
    }
    if (shares && driver->cuFuncGetAttribute(&beside->carveout, id, twin) != CUDA_SUCCESS) {
        return;
    }
    if (driver->cuFuncSetAttribute(twin, id, shares ? value : beside->carveout) == CUDA_SUCCESS) {
        beside->shares = shares;
    }
}
