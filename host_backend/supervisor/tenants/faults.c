/*
 * GPU faults: counted against the tenants that caused them, or may have; and quarantine.
 *
 * A fault ends everybody's work in a shared worker. So a tenant that has caused one, or may have,
 * gets a worker of its own when the shared one has died: its next faults only end its own work.
 * After quarantine_s without a fault, its worker is asked once a second whether it has a session.
 * When it has none it exits, and the tenant is back in the shared worker. While the worker is
 * asked, the tenant's guests wait in their socket's backlog.
 *
 * Of several suspects all are moved: one alone would often be the wrong one, and the next fault
 * would end everybody's work again. Without marks every tenant is a suspect, so nobody is moved.
 * Only the shared worker serves remote guests, so a tenant that has them is moved only if it
 * certainly caused the fault.
 *
 * A share on demand ends with its program, and its user may ask for another. So the user is in
 * quarantine: its other shares and later ones, too.
 *
 * Programs under MPS share a server in the same way. If a tenant's program may have caused the
 * server's death, the tenant's programs get workers outside MPS until its quarantine ends. A failed
 * assert ends nobody else there.
 */
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/clock.h"
#include "base/log.h"
#include "proto/cuda_abi.h"

#define RELEASE_PAUSE_NS WEIR_NS_PER_S /* pause between asking a worker whether it can end */

/* The tenant that the report is about; NULL: it was removed, and another may have its slot. */
static struct weir_sup_tenant *tenant_of(struct weir_supervisor *sup,
                                         const struct weir_link_fault *fault)
{
    WEIR_FAIL_IF(fault->tenant_index >= WEIR_CONFIG_TENANTS_MAX, NULL);
    struct weir_sup_tenant *tenant = &sup->tenants[fault->tenant_index];
    return tenant->used && !tenant->gone && tenant->generation == fault->generation ? tenant : NULL;
}

/* ---------------------------------------------------------------- quarantine */

/* Must the tenant leave a shared worker because of its fault? */
static bool is_to_be_moved(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                           const struct weir_link_fault *fault)
{
    bool certain = fault->n_suspects == 1;

    return sup->config.quarantine_s != 0 && weir_sup_uses_shared_worker(sup, tenant) &&
           (certain || (fault->marks && !weir_sup_has_remote_guests(sup, tenant)));
}

/* Does the tenant have a worker of its own, though its settings ask for a shared one? It has if a
 * quarantine gave it one, or if its virtual machines had one before the tenant got a key. */
static bool is_moved(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return tenant->used && weir_sup_uses_shared_worker(sup, tenant) &&
           weir_sup_has_own_worker(sup, tenant);
}

/* Has a quarantine taken the tenant's programs out of MPS? */
static bool is_outside_mps(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return tenant->used && weir_sup_by_program(tenant) && tenant->faults.quarantine_end_ns != 0 &&
           !is_moved(sup, tenant);
}

static void tell_event(struct weir_supervisor *sup, enum weir_event_kind kind,
                       const struct weir_sup_tenant *tenant, const char *why)
{
    weir_sup_event(sup, &(struct weir_sup_event){.kind = kind, .tenant = tenant}, "%s", why);
}

/* Let the tenant's next programs run outside MPS, where a fault does not end other tenants'
 * programs. */
static void take_out_of_mps(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                            uint64_t end_ns)
{
    tenant->faults.quarantine_end_ns = end_ns;
    weir_log_warn("supervisor: quarantine begun tenant=%s seconds=%u (outside MPS)",
                  tenant->config.name, sup->config.quarantine_s);
    tell_event(sup, WEIR_EVENT_QUARANTINE_BEGAN, tenant, "its programs run outside MPS");
}

void weir_sup_quarantine_inherit(struct weir_supervisor *sup, struct weir_sup_tenant *share)
{
    const struct weir_sup_user *user = &sup->users[share->demand_user];
    uint64_t now_ns = weir_host_clock_ns();

    if (user->quarantine_end_ns > now_ns) {
        share->faults.quarantine_end_ns = user->quarantine_end_ns;
        weir_log_warn("supervisor: a share begins in its user's quarantine tenant=%s uid=%u "
                      "seconds=%llu",
                      share->base.name, user->uid,
                      (unsigned long long)((user->quarantine_end_ns - now_ns) / WEIR_NS_PER_S));
    }
}

void weir_sup_quarantine_begin(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (!tenant->used || tenant->gone || tenant->worker != worker || !tenant->faults.leaves ||
            is_moved(sup, tenant)) {
            continue;
        }
        tenant->faults.leaves = false;
        int own = weir_sup_worker_for(sup, tenant);
        if (own < 0) {
            tenant->faults.quarantine_end_ns = 0;
            weir_log_error("supervisor: no worker for a quarantine, the tenant stays tenant=%s",
                           tenant->config.name);
            continue;
        }
        weir_sup_tenant_move(sup, tenant, own);
        tell_event(sup, WEIR_EVENT_QUARANTINE_BEGAN, tenant, "it has a worker of its own");
        weir_log_warn(
            "supervisor: quarantine begun tenant=%s worker=%d seconds=%u%s", tenant->config.name,
            own, sup->config.quarantine_s,
            weir_sup_has_remote_guests(sup, tenant) ? " (its remote guests are turned away)" : "");
    }
}

static bool is_over(const struct weir_sup_tenant *tenant, uint64_t now_ns)
{
    return tenant->faults.quarantine_end_ns <= now_ns;
}

bool weir_sup_quarantine_end(struct weir_supervisor *sup, int worker)
{
    int index = sup->workers[worker].tenant;
    struct weir_sup_tenant *tenant = index >= 0 ? &sup->tenants[index] : NULL;

    if (!tenant || !is_moved(sup, tenant) || tenant->gone ||
        !is_over(tenant, weir_host_clock_ns())) {
        return false;
    }
    bool quarantined = tenant->faults.quarantine_end_ns != 0;
    tenant->faults.quarantine_end_ns = 0;
    int shared = weir_sup_worker_for(sup, tenant);
    if (shared < 0) { /* the next death of the worker tries again */
        tenant->faults.quarantine_end_ns = quarantined ? weir_host_clock_ns() : 0;
        return false;
    }
    sup->workers[worker].used = false;
    weir_sup_tenant_move(sup, tenant, shared);
    if (quarantined) {
        weir_log_info("supervisor: quarantine ended tenant=%s", tenant->config.name);
        tell_event(sup, WEIR_EVENT_QUARANTINE_ENDED, tenant, "");
    } else {
        weir_log_info("supervisor: moved to the worker of several tenants tenant=%s",
                      tenant->config.name);
    }
    return true;
}

static void quarantine_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    const struct weir_link_message release = {.type = WEIR_LINK_RELEASE};

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (is_outside_mps(sup, tenant) && is_over(tenant, now_ns)) {
            tenant->faults.quarantine_end_ns = 0;
            weir_log_info("supervisor: quarantine ended tenant=%s", tenant->config.name);
            tell_event(sup, WEIR_EVENT_QUARANTINE_ENDED, tenant, "");
        }
        if (!is_moved(sup, tenant) || !is_over(tenant, now_ns) || tenant->gone ||
            tenant->faults.release_ns > now_ns) {
            continue;
        }
        tenant->faults.release_ns = now_ns + RELEASE_PAUSE_NS;
        if (sup->workers[tenant->worker].ready) {
            sup->workers[tenant->worker].ready = false;
            (void)weir_sup_worker_send(sup, tenant->worker, &release, -1); /* a lost link ends it */
        }
    }
}

void weir_sup_faults_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *tenant = &sup->tenants[i];
        const struct weir_sup_faults *f = &tenant->faults;

        if (is_moved(sup, tenant) && !tenant->gone) {
            weir_host_loop_wake(loop, WEIR_MAX(f->release_ns, f->quarantine_end_ns));
        }
        if (is_outside_mps(sup, tenant)) {
            weir_host_loop_wake(loop, f->quarantine_end_ns);
        }
    }
}

/* ---------------------------------------------------------------- faults */

/* Where a fault was: this decides whose work it ends. */
enum place { PLACE_OWN_WORKER, PLACE_SHARED_WORKER, PLACE_MPS };

/* Put the user in quarantine, since its other shares, also later ones, could cause the same
 * fault. */
static void blame_user(struct weir_supervisor *sup, uint32_t uid, enum place place, uint64_t end_ns)
{
    weir_sup_user(sup, uid)->quarantine_end_ns = end_ns;
    weir_log_warn("supervisor: quarantine begun uid=%u seconds=%u (shares on demand)", uid,
                  sup->config.quarantine_s);
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (place == PLACE_MPS && weir_sup_share_user(sup, i) == uid && !tenant->gone &&
            weir_sup_by_program(tenant) && tenant->faults.quarantine_end_ns == 0) {
            take_out_of_mps(sup, tenant, end_ns);
        }
    }
}

/* Does the fault lead to quarantine? The slot stays the tenant's while a worker has its work. */
static bool is_to_be_quarantined(const struct weir_supervisor *sup,
                                 const struct weir_link_fault *fault, enum place place)
{
    return sup->config.quarantine_s != 0 &&
           (place == PLACE_MPS ||
            (place == PLACE_SHARED_WORKER && fault->tenant_index < WEIR_CONFIG_TENANTS_MAX &&
             is_to_be_moved(sup, &sup->tenants[fault->tenant_index], fault)));
}

/* Count a fault. @param user as of weir_sup_share_user() at the time of the report; may be gone
 * now. */
static void count(struct weir_supervisor *sup, const struct weir_link_fault *fault,
                  enum place place, int64_t user)
{
    uint64_t end_ns = weir_host_clock_ns() + sup->config.quarantine_s * WEIR_NS_PER_S;
    bool quarantined = is_to_be_quarantined(sup, fault, place);
    struct weir_sup_tenant *tenant = tenant_of(sup, fault);

    if (quarantined && tenant && place == PLACE_MPS) {
        take_out_of_mps(sup, tenant, end_ns);
    } else if (quarantined && tenant) {
        tenant->faults.quarantine_end_ns = end_ns;
        tenant->faults.leaves = true;
    }
    if (quarantined && user >= 0) {
        blame_user(sup, (uint32_t)user, place, end_ns);
    }
    if (!tenant) {
        return;
    }
    struct weir_sup_faults *f = &tenant->faults;
    f->sure += fault->n_suspects == 1;
    f->suspected += fault->n_suspects != 1;
    f->last_ns = weir_host_clock_ns();
    weir_log_warn(
        "supervisor: GPU fault tenant=%s suspects=%u result=%d faults=%llu suspected=%llu",
        tenant->config.name, fault->n_suspects, fault->error, (unsigned long long)f->sure,
        (unsigned long long)f->suspected);
    weir_sup_event(sup, &(struct weir_sup_event){.kind = WEIR_EVENT_FAULT, .tenant = tenant},
                   fault->n_suspects == 1 ? "it ended a GPU context: CUDA error %d"
                                          : "it or another tenant ended a GPU context: CUDA error "
                                            "%d, suspects: %u",
                   fault->error, fault->n_suspects);
}

/* The user of the share that caused the fault; -1: none, or another tenant has the slot by now. */
static int64_t user_of(const struct weir_supervisor *sup, const struct weir_link_fault *fault)
{
    int64_t user = weir_sup_share_user(sup, fault->tenant_index);
    const struct weir_sup_tenant *tenant = user >= 0 ? &sup->tenants[fault->tenant_index] : NULL;

    return tenant && tenant->generation - fault->generation <= (tenant->gone ? 1u : 0u) ? user : -1;
}

void weir_sup_fault(struct weir_supervisor *sup, int worker, const struct weir_link_fault *fault)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_sup_mps *domain = weir_mps_of(sup, w);

    if (!domain || fault->error == CUDA_ERROR_ASSERT) {
        w->program.asserted = domain != NULL;
        count(sup, fault, w->kind == WEIR_WORKER_SHARED ? PLACE_SHARED_WORKER : PLACE_OWN_WORKER,
              user_of(sup, fault));
    } else if (!domain->leaving) { /* else another worker has reported the fault */
        weir_mps_blame_begin(sup, domain, fault);
        weir_mps_faulted(sup, domain);
    }
}

void weir_sup_fault_of_dead(struct weir_supervisor *sup, int worker, bool by_signal)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_sup_mps *domain = weir_mps_of(sup, w);
    struct weir_link_fault fault = {.error = CUDA_ERROR_LAUNCH_FAILED, .n_suspects = 1};

    /* If the domain is already closing after a fault with a known cause, a death by signal is not a
     * new fault. */
    if (by_signal && w->tenant >= 0 && (!domain->leaving || domain->blame.open)) {
        fault.tenant_index = (uint32_t)w->tenant;
        fault.generation = sup->tenants[w->tenant].generation;
        weir_mps_blame_settled(domain);
        count(sup, &fault, PLACE_MPS, user_of(sup, &fault));
    }
    weir_mps_faulted(sup, domain);
}

void weir_sup_faults_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_link_fault fault;
    int64_t user;

    for (int i = 0; i < WEIR_MPS_MAX; i++) {
        if (sup->mps.of[i].used && weir_mps_blame_end(&sup->mps.of[i], now_ns, &fault, &user)) {
            count(sup, &fault, PLACE_MPS, user);
        }
    }
    quarantine_tick(sup, now_ns);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)WEIR_NS_PER_S : 0;
}

void weir_sup_faults_show(const struct weir_sup_tenant *tenant, struct weir_status_tenant *row)
{
    const struct weir_sup_faults *f = &tenant->faults;
    uint64_t now_ns = weir_host_clock_ns();

    row->faults = f->sure;
    row->suspected_faults = f->suspected;
    row->fault_age_s = f->last_ns != 0 ? seconds(f->last_ns, now_ns) : 0;
    row->quarantined = f->quarantine_end_ns != 0;
    row->quarantine_s = seconds(now_ns, f->quarantine_end_ns);
}
