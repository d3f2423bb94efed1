/* Sets the carve-out of twins that share SMs; carve_out.h has the model. */
#include "host_backend/worker/twins/carve_out.h"

#include "host_backend/worker/twins/fit.h"

void weir_forms_carve_out_set(const struct weir_driver *driver, CUfunction twin, int percent,
                              struct weir_forms_carve_out *carve_out)
{
    const CUfunction_attribute id = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    bool shares = percent != WEIR_FORMS_NO_CARVEOUT;

    if (carve_out->shares == shares && (!shares || carve_out->set == percent)) {
        return;
    }
    if (shares && !carve_out->shares &&
        driver->cuFuncGetAttribute(&carve_out->own, id, twin) != CUDA_SUCCESS) {
        return;
    }
    if (driver->cuFuncSetAttribute(twin, id, shares ? percent : carve_out->own) == CUDA_SUCCESS) {
        carve_out->shares = shares;
        carve_out->set = percent;
    }
}
