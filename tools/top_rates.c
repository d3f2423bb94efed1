#include "tools/top_rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weir_top_sort_names[WEIR_TOP_SORT_COUNT] = {"share", "memory", "wait", "copies",
                                                              "name"};

/* How much a counter has grown. After a reset, its whole value is new. */
static double grown(uint64_t before, uint64_t now)
{
    return (double)(now >= before ? now - before : now);
}

static const struct weir_status_tenant *tenant_before(const struct weir_status_report *before,
                                                      const char *name)
{
    size_t at = WEIR_FIRST(i, before->n_tenants, strcmp(before->tenants[i].name, name) == 0);
    return at < before->n_tenants ? &before->tenants[at] : NULL;
}

static const struct weir_status_rate nothing_known = {.share_pct = NAN,
                                                      .sm_pct = NAN,
                                                      .sm_s = NAN,
                                                      .to_device_bytes_per_s = NAN,
                                                      .from_device_bytes_per_s = NAN,
                                                      .wait_pct = NAN,
                                                      .calls_per_s = NAN};

/* A new tenant's rates begin at 0, because its counts may be older than this interval. */
static struct weir_status_rate tenant_rate(const struct weir_status_report *before,
                                           const struct weir_status_tenant *now, double seconds)
{
    const struct weir_status_tenant *old = tenant_before(before, now->name);
    struct weir_status_rate rate = nothing_known;
    old = old ? old : now;
    rate.sessions = now->sessions;
    rate.memory_bytes = now->used_bytes;
    rate.quota_bytes = now->quota_bytes;
    memcpy(rate.tenant, now->name, sizeof rate.tenant);
    memcpy(rate.labels, now->labels, sizeof rate.labels);
    if (now->scheduled) {
        /* SM time, until all tenants are known and it becomes a percentage. */
        rate.share_pct = grown(old->service_sm_ns, now->service_sm_ns);
        rate.sm_s = (double)now->service_sm_ns / 1e9;
        rate.to_device_bytes_per_s = grown(old->copy_h2d_bytes, now->copy_h2d_bytes) / seconds;
        rate.from_device_bytes_per_s = grown(old->copy_d2h_bytes, now->copy_d2h_bytes) / seconds;
        rate.wait_pct = grown(old->wait_ns, now->wait_ns) / 1e7 / seconds;
    }
    return rate;
}

static struct weir_status_rate process_rate(const struct weir_status_report *before,
                                            const struct weir_status_session *now, double seconds,
                                            bool scheduled)
{
    struct weir_status_rate rate = nothing_known;
    uint64_t sm_ns = 0, calls = 0;
    rate.pid = now->pid;
    rate.session = now->id;
    rate.sessions = 1;
    rate.memory_bytes = now->used_bytes;
    rate.quota_bytes = now->memory_limit_bytes;
    memcpy(rate.tenant, now->tenant, sizeof rate.tenant);
    memcpy(rate.program, now->program, sizeof rate.program);
    for (size_t i = 0; i < before->n_sessions; i++) {
        const struct weir_status_session *s = &before->sessions[i];
        if (s->id == now->id && s->worker == now->worker) {
            sm_ns = s->sm_ns;
            calls = s->calls;
        }
    }
    rate.calls_per_s = grown(calls, now->calls) / seconds;
    if (scheduled) {
        rate.share_pct = grown(sm_ns, now->sm_ns);
        rate.sm_s = (double)now->sm_ns / 1e9;
    }
    return rate;
}

static struct weir_status_rate device_rate(const struct weir_status_report *before,
                                           const struct weir_status_device *now, double seconds)
{
    struct weir_status_rate rate = nothing_known;
    uint64_t sm_ns = now->sm_ns;
    rate.device = now->ordinal;
    rate.memory_bytes = now->memory_bytes;
    for (size_t i = 0; i < before->n_devices; i++) {
        if (strcmp(before->devices[i].uuid, now->uuid) == 0) {
            sm_ns = before->devices[i].sm_ns;
        }
    }
    if (now->scheduled) {
        rate.sm_s = (double)now->sm_ns / 1e9;
    }
    if (now->scheduled && now->sms) {
        rate.sm_pct = grown(sm_ns, now->sm_ns) / 1e7 / seconds / now->sms;
    }
    return rate;
}

/* From SM-nanoseconds to percent. */
static void to_shares(struct weir_status_rate *rows, size_t n, double all_ns, double room_ns)
{
    for (size_t i = 0; i < n; i++) {
        double ns = rows[i].share_pct;
        if (!isnan(ns)) {
            rows[i].share_pct = all_ns > 0 ? 100 * ns / all_ns : 0;
            rows[i].sm_pct = room_ns > 0 ? 100 * ns / room_ns : NAN;
        }
    }
}

/* ------------------------------------------------------------------ order */

static enum weir_top_sort order; /* a static, since qsort() passes the comparison no context */

static double key_of(const struct weir_status_rate *r)
{
    switch (order) {
    case WEIR_TOP_BY_MEMORY:
        return (double)r->memory_bytes;
    case WEIR_TOP_BY_WAIT:
        return r->wait_pct;
    case WEIR_TOP_BY_COPIES:
        return r->to_device_bytes_per_s + r->from_device_bytes_per_s;
    case WEIR_TOP_BY_SHARE:
    case WEIR_TOP_BY_NAME:
    case WEIR_TOP_SORT_COUNT:
        break;
    }
    return r->share_pct;
}

static int compare(const void *left, const void *right)
{
    const struct weir_status_rate *a = left;
    const struct weir_status_rate *b = right;
    double x = key_of(a), y = key_of(b);
    if (order != WEIR_TOP_BY_NAME && x != y && !(isnan(x) && isnan(y))) {
        return isnan(x) || x < y ? 1 : -1;
    }
    int names = strcmp(a->tenant, b->tenant);
    return names ? names : a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* ------------------------------------------------------------------ all of it */

static void fill(const struct weir_status_report *before, const struct weir_status_report *now,
                 struct weir_top_rates *r)
{
    double all_ns = 0, room_ns = 0;
    bool scheduled = false;
    for (size_t i = 0; i < now->n_devices; i++) {
        r->devices[i] = device_rate(before, &now->devices[i], r->seconds);
        r->device_of[i] = &now->devices[i];
        room_ns += now->devices[i].sms * r->seconds * 1e9;
    }
    for (size_t i = 0; i < now->n_tenants; i++) {
        r->tenants[i] = tenant_rate(before, &now->tenants[i], r->seconds);
        all_ns += now->tenants[i].scheduled ? r->tenants[i].share_pct : 0;
        scheduled |= now->tenants[i].scheduled != 0;
    }
    for (size_t i = 0; i < now->n_sessions; i++) {
        r->processes[i] = process_rate(before, &now->sessions[i], r->seconds, scheduled);
    }
    to_shares(r->tenants, now->n_tenants, all_ns, room_ns);
    to_shares(r->processes, now->n_sessions, all_ns, room_ns);
}

bool weir_top_rates_make(const struct weir_status_report *before,
                         const struct weir_status_report *now, enum weir_top_sort sort,
                         struct weir_top_rates *ret_rates)
{
    struct weir_top_rates r = {.n_devices = now->n_devices,
                               .n_tenants = now->n_tenants,
                               .n_processes = now->n_sessions,
                               .seconds = fmax(now->age_s - before->age_s, 0.001)};
    r.devices = calloc(r.n_devices + 1, sizeof *r.devices);
    r.tenants = calloc(r.n_tenants + 1, sizeof *r.tenants);
    r.processes = calloc(r.n_processes + 1, sizeof *r.processes);
    r.device_of = calloc(r.n_devices + 1, sizeof(const struct weir_status_device *));
    r.tenant_of = calloc(r.n_tenants + 1, sizeof(const struct weir_status_tenant *));
    if (!r.devices || !r.tenants || !r.processes || !r.device_of || !r.tenant_of) {
        weir_top_rates_finish(&r);
        return false;
    }
    fill(before, now, &r);
    order = sort;
    qsort(r.tenants, r.n_tenants, sizeof *r.tenants, compare);
    qsort(r.processes, r.n_processes, sizeof *r.processes, compare);
    for (size_t i = 0; i < r.n_tenants; i++) {
        r.tenant_of[i] = tenant_before(now, r.tenants[i].tenant);
    }
    *ret_rates = r;
    return true;
}

void weir_top_rates_finish(struct weir_top_rates *rates)
{
    free(rates->devices);
    free(rates->tenants);
    free(rates->processes);
    free(rates->device_of);
    free(rates->tenant_of);
    *rates = (struct weir_top_rates){0};
}
