/* The carve-out of twins that share SMs; carve_out.h has the model. */
#include "host_backend/worker/twins/carve_out.h"

#include "host_backend/worker/twins/fit.h"

static void note_locked(struct weir_forms_needs *needs, const struct weir_forms_need *own,
                        uint64_t now_ns)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < WEIR_FORMS_NEEDS && needs->of[at].kernel != own->kernel; i++) {
        if (needs->of[i].kernel == own->kernel || needs->at_ns[i] < needs->at_ns[at]) {
            at = i;
        }
    }
    needs->of[at] = *own;
    needs->at_ns[at] = now_ns;
}

uint32_t weir_forms_needs_kib(struct weir_forms_needs *needs, const struct weir_forms_need *own,
                              uint32_t block_limit, uint64_t now_ns)
{
    uint64_t most = 0;
    uint32_t left = block_limit < own->per_sm ? own->per_sm - block_limit : 0; /* of per_sm */

    pthread_mutex_lock(&needs->lock);
    note_locked(needs, own, now_ns);
    for (uint32_t i = 0; i < WEIR_FORMS_NEEDS && left != 0; i++) {
        const struct weir_forms_need *other = &needs->of[i];
        uint64_t bytes = (uint64_t)other->per_sm * left / own->per_sm * other->block_bytes;
        bool of_late = now_ns <= needs->at_ns[i] + WEIR_FORMS_NEEDS_NS;

        if (other->owner != own->owner && of_late && bytes > most) {
            most = bytes;
        }
    }
    pthread_mutex_unlock(&needs->lock);
    return weir_forms_aside_kib(block_limit * own->block_bytes + most);
}

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
