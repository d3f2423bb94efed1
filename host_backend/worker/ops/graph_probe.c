/* Measures how long a graph takes: see graph_probe.h. */
#include "host_backend/worker/ops/graph_probe.h"

#include "base/clock.h"
#include "host_backend/worker/state/session.h"

#define PROBES 2u /* the first launch also uploads the graph, so the shorter time counts */

/* Can the graph be cut, is nothing known of it, and may other work wait for it? */
static bool is_wanted(const struct weir_session *s, const struct weir_exec *exec)
{
    return exec->inside.cuttable && exec->hint.ns == 0 && exec->probe.n < PROBES &&
           !exec->probe.under_way && s->n_captures == 0 && weir_admission_has_company(s);
}

static CUresult elapsed_ms(const struct weir_driver *d, const struct weir_exec_probe *probe,
                           float *ret_ms)
{
    return weir_driver_has(d, cuEventElapsedTime_v2)
               ? d->cuEventElapsedTime_v2(ret_ms, probe->event[0], probe->event[1])
               : d->cuEventElapsedTime(ret_ms, probe->event[0], probe->event[1]);
}

static CUresult begin(const struct weir_driver *d, struct weir_exec_probe *probe, CUstream at)
{
    for (int i = 0; i < 2; i++) {
        if (!probe->event[i]) {
            WEIR_TRY(d->cuEventCreate(&probe->event[i], CU_EVENT_DEFAULT));
        }
    }
    return d->cuEventRecord(probe->event[0], at);
}

CUresult weir_graph_probe_launch(struct weir_session *session, struct weir_exec *exec, CUstream at)
{
    const struct weir_driver *d = session->driver;
    struct weir_exec_probe *probe = &exec->probe;
    bool timed = is_wanted(session, exec) && begin(d, probe, at) == CUDA_SUCCESS;
    CUresult result = d->cuGraphLaunch(exec->o.native, at);

    probe->under_way = probe->under_way || (timed && result == CUDA_SUCCESS &&
                                            d->cuEventRecord(probe->event[1], at) == CUDA_SUCCESS);
    return result;
}

uint64_t weir_graph_probe_ns(struct weir_session *session, struct weir_exec *exec)
{
    const struct weir_driver *d = session->driver;
    struct weir_exec_probe *probe = &exec->probe;
    float ms = 0;

    if (probe->under_way && d->cuEventQuery(probe->event[1]) == CUDA_SUCCESS) {
        if (elapsed_ms(d, probe, &ms) == CUDA_SUCCESS) {
            uint64_t ns = (uint64_t)((double)ms * (double)WEIR_NS_PER_MS);

            probe->ns = probe->n == 0 || ns < probe->ns ? ns : probe->ns;
        }
        probe->n++;
        probe->under_way = false;
    }
    return exec->hint.ns != 0 ? exec->hint.ns : probe->n == PROBES ? probe->ns : 0;
}
