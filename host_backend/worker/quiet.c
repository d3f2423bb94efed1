#include "host_backend/worker/quiet.h"

#include "host_backend/forms/forms.h"
#include "host_backend/worker/worker.h"

static bool others_there(struct weir_worker *w)
{
    bool others;

    pthread_mutex_lock(&w->lock);
    others = w->n_sessions > 1;
    pthread_mutex_unlock(&w->lock);
    return others;
}

/* Registered memory is that of all contexts. Errors are the call's own to find. */
static void wait_for_devices(struct weir_worker *w)
{
    CUcontext here = NULL;

    (void)w->driver.cuCtxSynchronize();
    if (w->n_devices < 2 || w->driver.cuCtxGetCurrent(&here) != CUDA_SUCCESS) {
        return;
    }
    for (uint32_t i = 0; i < w->n_devices; i++) {
        if (w->devices[i].context != here &&
            w->driver.cuCtxSetCurrent(w->devices[i].context) == CUDA_SUCCESS) {
            (void)w->driver.cuCtxSynchronize();
        }
    }
    (void)w->driver.cuCtxSetCurrent(here);
}

uint32_t weir_quiet_begin(struct weir_worker *worker)
{
    uint32_t calm = weir_forms_calm_begin(worker->forms);

    if (atomic_load(&worker->captures) == 0 && others_there(worker)) {
        wait_for_devices(worker);
    }
    return calm;
}

void weir_quiet_end(struct weir_worker *worker, uint32_t calm)
{
    weir_forms_calm_end(worker->forms, calm);
}
