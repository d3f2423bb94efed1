/* GPU faults: counted against the tenants that caused them, or may have. */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"

/* Who reported it may be about a tenant that has gone since, or another one in its slot. */
static struct weir_sup_tenant *tenant_of(struct weir_supervisor *sup,
                                         const struct weir_link_fault *fault)
{
    struct weir_sup_tenant *tenant;

    if (fault->tenant_index >= WEIR_CONFIG_TENANTS_MAX) {
        return NULL;
    }
    tenant = &sup->tenants[fault->tenant_index];
    return tenant->used && !tenant->gone && tenant->goings == fault->goings ? tenant : NULL;
}

/* Under MPS every client meets the error of one. The first to say so is a suspect, no more, unless
 * all programs of the domain are of its tenant. */
static uint32_t suspects_of(struct weir_supervisor *sup, int worker,
                            const struct weir_link_fault *fault)
{
    struct weir_sup_mps *domain = weir_mps_of(sup, &sup->workers[worker]);
    uint32_t n = domain != NULL ? weir_mps_tenants(sup, domain) : 1;

    return n > fault->n_suspects ? n : fault->n_suspects;
}

void weir_sup_fault(struct weir_supervisor *sup, int worker, const struct weir_link_fault *fault)
{
    struct weir_sup_mps *domain = weir_mps_of(sup, &sup->workers[worker]);
    struct weir_sup_tenant *tenant = tenant_of(sup, fault);
    uint32_t n_suspects = suspects_of(sup, worker, fault);

    if (domain != NULL && domain->leaving) {
        return; /* another was the first */
    }
    if (domain != NULL) {
        weir_mps_faulted(sup, domain);
    }
    if (tenant == NULL) {
        return;
    }
    tenant->faults.sure += n_suspects == 1;
    tenant->faults.suspected += n_suspects != 1;
    tenant->faults.last_ns = weir_clock_now_ns();
    weir_log_warn(
        "supervisor: GPU fault tenant=%s suspects=%u result=%d faults=%llu suspected=%llu",
        tenant->config.name, n_suspects, fault->error, (unsigned long long)tenant->faults.sure,
        (unsigned long long)tenant->faults.suspected);
}

void weir_sup_faults_show(const struct weir_sup_tenant *tenant, struct weir_status_tenant *row)
{
    const struct weir_sup_faults *f = &tenant->faults;

    row->faults = f->sure;
    row->suspected_faults = f->suspected;
    row->fault_age_s =
        f->last_ns != 0 ? (double)(weir_clock_now_ns() - f->last_ns) / (double)WEIR_NS_PER_S : 0;
}
