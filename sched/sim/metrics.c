/* Run every tenant alone, to compute STP, ANTT and fairness of the run together. */
#include "sched/sim/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

void weir_sim_stp_antt(const double *alone_ns, const double *together_ns, uint32_t n,
                       double *ret_stp, double *ret_antt)
{
    double stp = 0;
    double antt = 0;
    uint32_t counted = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (alone_ns[i] > 0 && together_ns[i] > 0) {
            stp += alone_ns[i] / together_ns[i];
            antt += together_ns[i] / alone_ns[i];
            counted++;
        }
    }
    *ret_stp = stp;
    *ret_antt = counted ? antt / counted : 0;
}

/* A load with one tenant's work; map[i] is the index of its item i in the whole load. */
struct part {
    struct weir_sim_load load;
    uint32_t *map;
};

static void part_finish(struct part *part)
{
    weir_sim_load_finish(&part->load);
    free(part->map);
}

/* items and queues: those of this tenant, in their order, as indices into the whole. */
static enum weir_status part_make(const struct weir_sim_load *load, uint32_t tenant,
                                  const uint32_t *items, uint32_t n_items, const uint32_t *queues,
                                  uint32_t n_queues, uint32_t *new_index, struct part *ret_part)
{
    struct weir_sim_load *to = &ret_part->load;
    *ret_part = (struct part){0};
    to->header = load->header;
    to->tenants = malloc(sizeof *to->tenants);
    to->queues = calloc(n_queues + 1u, sizeof *to->queues);
    to->items = calloc(n_items + 1u, sizeof *to->items);
    ret_part->map = calloc(n_items + 1u, sizeof *ret_part->map);
    if (!to->tenants || !to->queues || !to->items || !ret_part->map) {
        part_finish(ret_part);
        return WEIR_ERR_NO_MEMORY;
    }
    to->tenants[0] = load->tenants[tenant];
    to->n_tenants = 1;
    to->n_queues = n_queues;
    to->n_items = n_items;
    for (uint32_t i = 0; i < n_items; i++) {
        new_index[items[i]] = i;
        ret_part->map[i] = items[i];
    }
    for (uint32_t q = 0; q < n_queues; q++) {
        struct weir_sim_queue queue = load->queues[queues[q]];
        queue.tenant = 0;
        for (uint32_t i = queue.first; i != WEIR_SIM_NONE; i = load->items[i].next) {
            struct weir_sim_item *item = &to->items[new_index[i]];
            *item = load->items[i];
            item->tenant = 0;
            item->queue = q;
            item->next = item->next == WEIR_SIM_NONE ? WEIR_SIM_NONE : new_index[item->next];
        }
        queue.first = queue.first == WEIR_SIM_NONE ? WEIR_SIM_NONE : new_index[queue.first];
        queue.last = queue.last == WEIR_SIM_NONE ? WEIR_SIM_NONE : new_index[queue.last];
        to->queues[q] = queue;
    }
    return WEIR_OK;
}

/* Compare what one tenant finished together with the same items alone. */
static void compare(const struct weir_sim_load *load, const struct weir_sim_result *together,
                    const struct weir_sim_result *alone, const struct part *part,
                    struct weir_sim_tenant_metrics *m)
{
    uint64_t together_end = 0, alone_end = 0, together_first = NEVER, alone_first = NEVER;
    double ntt = 0;
    uint64_t kernels = 0;
    for (uint32_t i = 0; i < part->load.n_items; i++) {
        uint32_t whole = part->map[i];
        enum weir_sched_class class = load->items[whole].params.class;
        if (together->finished_ns[whole] == NEVER || alone->finished_ns[i] == NEVER) {
            continue;
        }
        together_end = WEIR_MAX(together_end, together->finished_ns[whole]);
        alone_end = WEIR_MAX(alone_end, alone->finished_ns[i]);
        together_first = WEIR_MIN(together_first, together->arrived_ns[whole]);
        alone_first = WEIR_MIN(alone_first, alone->arrived_ns[i]);
        if (class != WEIR_SCHED_H2D && class != WEIR_SCHED_D2H) {
            double one = (double)(alone->finished_ns[i] - alone->arrived_ns[i]);
            double with = (double)(together->finished_ns[whole] - together->arrived_ns[whole]);
            ntt += one > 0 ? with / one : 1;
            kernels++;
        }
    }
    m->together_ns = together_end ? (double)(together_end - together_first) : 0;
    m->alone_ns = alone_end ? (double)(alone_end - alone_first) : 0;
    m->slowdown = m->alone_ns > 0 ? m->together_ns / m->alone_ns : 0;
    m->kernel_ntt = kernels ? ntt / (double)kernels : 0;
}

static int by_value(const void *left, const void *right)
{
    uint64_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return a < b ? -1 : a > b;
}

/* The value that this part of the sorted waits does not exceed (nearest rank). */
static uint64_t rank_of(const uint64_t *waits, uint32_t n, double part)
{
    uint32_t rank = (uint32_t)ceil(part * n);
    return n ? waits[rank ? rank - 1 : 0] : 0;
}

static void fill_waits(const struct weir_sim_result *result, const uint32_t *items, uint32_t n,
                       uint64_t *scratch, struct weir_sim_tenant_metrics *m)
{
    uint32_t started = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (result->waited_ns[items[i]] != NEVER) {
            scratch[started++] = result->waited_ns[items[i]];
        }
    }
    qsort(scratch, started, sizeof *scratch, by_value);
    m->wait_p50_ns = rank_of(scratch, started, 0.5);
    m->wait_p99_ns = rank_of(scratch, started, 0.99);
}

/* Indices of rows grouped by tenant: list[first[t]] .. list[first[t + 1]]. */
struct grouped {
    uint32_t *first;
    uint32_t *list;
};

static void grouped_finish(struct grouped *g)
{
    free(g->first);
    free(g->list);
}

static enum weir_status group(const void *rows, uint32_t n, size_t row_bytes, size_t tenant_at,
                              uint32_t n_tenants, struct grouped *ret)
{
    uint32_t tenant;
    *ret = (struct grouped){calloc(n_tenants + 2u, sizeof *ret->first),
                            calloc(n + 1u, sizeof *ret->list)};
    WEIR_FAIL_IF(!ret->first || !ret->list, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&tenant, (const char *)rows + i * row_bytes + tenant_at, sizeof tenant);
        ret->first[tenant + 2]++;
    }
    for (uint32_t t = 2; t < n_tenants + 2; t++) {
        ret->first[t] += ret->first[t - 1];
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&tenant, (const char *)rows + i * row_bytes + tenant_at, sizeof tenant);
        ret->list[ret->first[tenant + 1]++] = i;
    }
    return WEIR_OK;
}

static void fill_shares(const struct weir_sim_load *load, const struct weir_sim_result *result,
                        struct weir_sim_metrics *m)
{
    double all = 0;
    for (uint32_t t = 0; t < m->n_tenants; t++) {
        all += result->tenants[t].sm_ns;
    }
    for (uint32_t t = 0; t < m->n_tenants; t++) {
        m->tenants[t].share = all > 0 ? result->tenants[t].sm_ns / all : 0;
    }
    for (uint32_t g = 0; g < result->n_gpus; g++) {
        const double *sm_ns = result->gpu_sm_ns + (size_t)g * m->n_tenants;
        double held = 0;
        double weights = 0;
        for (uint32_t t = 0; t < m->n_tenants; t++) {
            held += sm_ns[t];
            weights += sm_ns[t] > 0 ? load->tenants[t].params.weight : 0;
        }
        for (uint32_t t = 0; t < m->n_tenants; t++) {
            double part = sm_ns[t] > 0 ? load->tenants[t].params.weight / weights : 0;
            m->tenants[t].entitled += held > 0 ? part * (held / all) : 0;
        }
    }
}

static enum weir_status sum_up(struct weir_sim_metrics *m)
{
    double *alone = calloc(m->n_tenants + 1u, sizeof *alone);
    double *together = calloc(m->n_tenants + 1u, sizeof *together);
    enum weir_status status = alone && together ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    uint32_t with_kernels = 0;
    for (uint32_t t = 0; status == WEIR_OK && t < m->n_tenants; t++) {
        alone[t] = m->tenants[t].alone_ns;
        together[t] = m->tenants[t].together_ns;
        m->n_programs += alone[t] > 0;
        m->kernel_antt += m->tenants[t].kernel_ntt;
        with_kernels += m->tenants[t].kernel_ntt > 0;
    }
    if (status == WEIR_OK) {
        weir_sim_stp_antt(alone, together, m->n_tenants, &m->stp, &m->antt);
        m->kernel_antt /= with_kernels ? with_kernels : 1;
    }
    free(alone);
    free(together);
    return status;
}

enum weir_status weir_sim_measure(const struct weir_sim_load *load,
                                  const struct weir_sim_params *params,
                                  const struct weir_sim_result *result,
                                  struct weir_sim_metrics *ret_metrics, char *ret_error)
{
    struct weir_sim_params alone_params = *params;
    struct weir_sim_metrics m = {.n_tenants = load->n_tenants};
    struct grouped items = {0}, queues = {0};
    uint32_t *new_index = calloc(load->n_items + 1u, sizeof *new_index);
    uint64_t *scratch = calloc(load->n_items + 1u, sizeof *scratch);
    enum weir_status status = WEIR_ERR_NO_MEMORY;
    /* Without watchers and costs. until_ns also ends the runs alone, which do more by then. */
    alone_params.watch = (struct weir_sim_watch){0};
    alone_params.clock = NULL;
    alone_params.bucket_ns = 0;
    alone_params.log = NULL;
    m.tenants = calloc(load->n_tenants + 1u, sizeof *m.tenants);
    if (new_index && scratch && m.tenants) {
        status = group(load->items, load->n_items, sizeof *load->items,
                       offsetof(struct weir_sim_item, tenant), load->n_tenants, &items);
    }
    WEIR_THEN(status, group(load->queues, load->n_queues, sizeof *load->queues,
                            offsetof(struct weir_sim_queue, tenant), load->n_tenants, &queues));
    ret_error[0] = '\0';
    for (uint32_t t = 0; status == WEIR_OK && t < load->n_tenants; t++) {
        struct part part;
        struct weir_sim_result alone;
        const uint32_t *own = items.list + items.first[t];
        uint32_t n_own = items.first[t + 1] - items.first[t];
        status = part_make(load, t, own, n_own, queues.list + queues.first[t],
                           queues.first[t + 1] - queues.first[t], new_index, &part);
        if (status != WEIR_OK) {
            break;
        }
        status = weir_sim_run(&part.load, &alone_params, &alone, ret_error);
        if (status == WEIR_OK) {
            compare(load, result, &alone, &part, &m.tenants[t]);
            fill_waits(result, own, n_own, scratch, &m.tenants[t]);
            weir_sim_result_finish(&alone);
        }
        part_finish(&part);
    }
    if (status == WEIR_OK) {
        fill_shares(load, result, &m);
        status = sum_up(&m);
    }
    grouped_finish(&items);
    grouped_finish(&queues);
    free(new_index);
    free(scratch);
    if (status == WEIR_OK) {
        *ret_metrics = m;
    } else {
        if (!ret_error[0]) {
            (void)snprintf(ret_error, WEIR_SIM_ERROR_BYTES, "%s", weir_status_text(status));
        }
        weir_sim_metrics_finish(&m);
    }
    return status;
}

void weir_sim_metrics_finish(struct weir_sim_metrics *metrics)
{
    free(metrics->tenants);
    *metrics = (struct weir_sim_metrics){0};
}
