/* Sums up the causes of waits in a trace; only durations are computed here. */
#include "sched/sim/waits.h"

#include "sched/sim/idmap.h"
#include <stdlib.h>
#include <string.h>

struct item {
    struct weir_sim_wait wait;
    uint64_t since_ns; /* it has waited since then, for `cause` */
    uint8_t cause;
    weir_sched_id waits_for; /* the other tenant; 0: none */
    bool is_waiting, was_granted;
};

struct reading {
    struct weir_sim_waits *waits;
    struct weir_sim_idmap tenants, queues, items; /* from ids to indices; a queue's: its tenant's */
    struct weir_sim_idmap waited_for;             /* from tenant, other and cause */
    struct item *rows;
    uint32_t n_rows, cap_rows, cap_tenants, cap_worst, cap_waited_for;
    bool has_no_memory;
    uint64_t begin_ns, at_ns;
    uint8_t event; /* kind of the scheduler's last input */
    bool has_begun;
};

/* Make room for one more element; false: no memory. */
static bool grow(void **rows, uint32_t n, uint32_t *cap, size_t row_bytes)
{
    if (n == *cap) {
        uint32_t more = *cap ? 2 * *cap : 64;
        void *grown = more > *cap ? realloc(*rows, more * row_bytes) : NULL;
        if (!grown) {
            return false;
        }
        *rows = grown;
        *cap = more;
    }
    return true;
}

static void keep_most(uint64_t *most_ns, uint64_t ns)
{
    *most_ns = ns > *most_ns ? ns : *most_ns;
}

/* ------------------------------------------------------------------ waits that are over */

static bool is_worse(const struct weir_sim_wait *a, const struct weir_sim_wait *b)
{
    return a->waited.unexplained_ns != b->waited.unexplained_ns
               ? a->waited.unexplained_ns > b->waited.unexplained_ns
               : a->waited.ns > b->waited.ns;
}

static void keep_worst(struct reading *r, const struct weir_sim_wait *wait)
{
    struct weir_sim_waits *waits = r->waits;
    uint32_t at = waits->n_worst;
    if (wait->waited.ns == 0 || r->cap_worst == 0 ||
        (at == r->cap_worst && !is_worse(wait, &waits->worst[at - 1]))) {
        return;
    }
    if (at == r->cap_worst) {
        at--;
    } else {
        waits->n_worst++;
    }
    for (; at > 0 && is_worse(wait, &waits->worst[at - 1]); at--) {
        waits->worst[at] = waits->worst[at - 1];
    }
    waits->worst[at] = *wait;
}

/* Add ns that an item has waited to its tenant's wait for the other tenant that caused it. */
static void count_other(struct reading *r, struct item *item, uint64_t ns)
{
    struct weir_sim_waits *waits = r->waits;
    uint32_t *one = &item->wait.others[item->cause];
    uint64_t other, triple, i = waits->n_waited_for;
    if (ns == 0 || !weir_sim_idmap_get(&r->tenants, item->waits_for, &other)) {
        return;
    }
    *one = *one == 0 || *one == other + 1 ? (uint32_t)other + 1 : WEIR_SIM_WAIT_SEVERAL;
    triple = (item->wait.tenant + UINT64_C(1)) << 36 | (other + 1) << 8 | item->cause;
    if (!weir_sim_idmap_get(&r->waited_for, triple, &i)) {
        if (!grow((void **)&waits->waited_for, waits->n_waited_for, &r->cap_waited_for,
                  sizeof *waits->waited_for) ||
            !weir_sim_idmap_set(&r->waited_for, triple, i)) {
            r->has_no_memory = true;
            return;
        }
        waits->waited_for[waits->n_waited_for++] = (struct weir_sim_waited_for){
            .tenant = item->wait.tenant, .other = (uint32_t)other, .cause = item->cause};
    }
    waits->waited_for[i].ns += ns;
}

/* Add the item's wait up to now to its cause. */
static void count(struct reading *r, struct item *item)
{
    if (item->is_waiting) {
        uint64_t ns = r->at_ns - item->since_ns;
        count_other(r, item, ns);
        item->wait.waited.ns += ns;
        item->wait.waited.cause_ns[item->cause] += ns;
        item->wait.waited.unexplained_ns += weir_sched_causes[item->cause].is_explained ? 0 : ns;
        item->since_ns = r->at_ns;
    }
}

/* Add an item's waits to its tenant's: the item has ended, or the trace has. */
static void tell(struct reading *r, const struct item *item)
{
    const struct weir_sim_waited *waited = &item->wait.waited;
    struct weir_sim_waits_tenant *t = &r->waits->tenants[item->wait.tenant];
    t->items++;
    t->sum.ns += waited->ns;
    t->sum.unexplained_ns += waited->unexplained_ns;
    keep_most(&t->most.ns, waited->ns);
    keep_most(&t->most.unexplained_ns, waited->unexplained_ns);
    for (unsigned i = 0; i < WEIR_SCHED_CAUSE_COUNT; i++) {
        t->sum.cause_ns[i] += waited->cause_ns[i];
        keep_most(&t->most.cause_ns[i], waited->cause_ns[i]);
    }
    keep_worst(r, &item->wait);
}

/* ------------------------------------------------------------------ records */

static enum weir_status arrive(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t tenant;
    if (!weir_sim_idmap_get(&r->queues, record->queue, &tenant)) {
        r->waits->unknown++;
        return WEIR_OK;
    }
    if (!grow((void **)&r->rows, r->n_rows, &r->cap_rows, sizeof *r->rows) ||
        !weir_sim_idmap_set(&r->items, record->item, r->n_rows)) {
        return WEIR_ERR_NO_MEMORY;
    }
    r->rows[r->n_rows++] = (struct item){.wait = {.tenant = (uint32_t)tenant,
                                                  .class = record->class,
                                                  .ended_by = WEIR_SCHED_REC_KIND_COUNT,
                                                  .item = record->item,
                                                  .queue = record->queue,
                                                  .arrived_ns = record->at_ns - r->begin_ns},
                                         .since_ns = record->at_ns,
                                         .cause = WEIR_SCHED_CAUSE_OWN,
                                         .is_waiting = !(record->flags & WEIR_SCHED_STARTED),
                                         .was_granted = (record->flags & WEIR_SCHED_STARTED) != 0};
    return WEIR_OK;
}

/* Remove a row: the last one takes its place. */
static void drop(struct reading *r, uint64_t index)
{
    struct item *last = &r->rows[--r->n_rows];
    weir_sim_idmap_remove(&r->items, r->rows[index].wait.item);
    if (index != r->n_rows) {
        r->rows[index] = *last;
        (void)weir_sim_idmap_set(&r->items, last->wait.item, index); /* its id has a slot already */
    }
}

static void follow(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t index;
    if (!r->rows || !weir_sim_idmap_get(&r->items, record->item, &index)) {
        r->waits->unknown++;
        return;
    }
    struct item *item = &r->rows[index];
    count(r, item);
    switch (record->kind) {
    case WEIR_SCHED_REC_WAIT:
        item->cause = (uint8_t)record->value;
        item->waits_for = record->key;
        break;
    case WEIR_SCHED_REC_START:
        item->wait.ended_by = r->event;
        item->is_waiting = false;
        item->was_granted = true;
        break;
    case WEIR_SCHED_REC_RESUME:
    case WEIR_SCHED_REC_RUNNING:
        item->is_waiting = false;
        break;
    case WEIR_SCHED_REC_STOPPED:
        item->is_waiting = true;
        item->since_ns = r->at_ns;
        item->cause = WEIR_SCHED_CAUSE_OWN;
        item->waits_for = 0;
        break;
    case WEIR_SCHED_REC_FINISH:
        tell(r, item);
        drop(r, index);
        break;
    case WEIR_SCHED_REC_WITHDRAW:
        drop(r, index);
        break;
    default:
        break;
    }
}

static void describe(struct reading *r, uint64_t index, uint64_t packed)
{
    struct weir_sched_tenant_params params = weir_sched_tenant_unpacked(packed);
    r->waits->tenants[index].weight = params.weight;
    r->waits->tenants[index].priority = (uint8_t)params.priority;
}

static enum weir_status add_tenant(struct reading *r, const struct weir_sched_record *record)
{
    uint32_t index = r->waits->n_tenants;
    if (!grow((void **)&r->waits->tenants, index, &r->cap_tenants, sizeof *r->waits->tenants) ||
        !weir_sim_idmap_set(&r->tenants, record->tenant, index)) {
        return WEIR_ERR_NO_MEMORY;
    }
    r->waits->tenants[index] = (struct weir_sim_waits_tenant){.items = 0};
    r->waits->n_tenants++;
    describe(r, index, record->value);
    return WEIR_OK;
}

static void name_tenant(struct reading *r, const struct weir_sched_record *record)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    uint64_t index;
    if (weir_sim_idmap_get(&r->tenants, record->tenant, &index)) {
        char *name = r->waits->tenants[index].name;
        size_t length = record->flags == 0 ? 0 : strlen(name);
        weir_sched_trace_text(record, text);
        (void)snprintf(name + length, WEIR_SCHED_TRACE_NAME_BYTES - length, "%s", text);
    }
}

/* Remove the items of a removed queue or tenant. Those that were never granted are not counted. */
static void remove_items(struct reading *r, const struct weir_sched_record *record)
{
    bool all = record->kind == WEIR_SCHED_REC_TENANT_REMOVE;
    uint64_t tenant;
    bool known = weir_sim_idmap_get(&r->tenants, record->tenant, &tenant);
    for (uint32_t i = r->n_rows; i-- > 0;) {
        struct item *item = &r->rows[i];
        if (all ? known && item->wait.tenant == tenant : item->wait.queue == record->queue) {
            count(r, item);
            if (item->was_granted) {
                tell(r, item);
            }
            drop(r, i);
        }
    }
    weir_sim_idmap_remove(&r->queues, record->queue);
}

static bool is_told(uint8_t kind)
{
    return weir_sched_trace_is_core(kind) && kind != WEIR_SCHED_REC_START &&
           kind != WEIR_SCHED_REC_STOP && kind != WEIR_SCHED_REC_RESUME &&
           kind != WEIR_SCHED_REC_RESIZE && kind != WEIR_SCHED_REC_CHOOSE &&
           kind != WEIR_SCHED_REC_WAIT;
}

static enum weir_status take(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t index;
    if (!r->has_begun) {
        r->has_begun = true;
        r->begin_ns = record->at_ns;
    }
    r->at_ns = record->at_ns;
    r->event = is_told(record->kind) ? record->kind : r->event;
    switch (record->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
        return add_tenant(r, record);
    case WEIR_SCHED_REC_TENANT_SET:
        if (weir_sim_idmap_get(&r->tenants, record->tenant, &index)) {
            describe(r, index, record->value);
        }
        return WEIR_OK;
    case WEIR_SCHED_REC_QUEUE_ADD:
        return weir_sim_idmap_get(&r->tenants, record->tenant, &index) &&
                       !weir_sim_idmap_set(&r->queues, record->queue, index)
                   ? WEIR_ERR_NO_MEMORY
                   : WEIR_OK;
    case WEIR_SCHED_REC_TENANT_REMOVE:
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        remove_items(r, record);
        return WEIR_OK;
    case WEIR_SCHED_REC_ARRIVE:
        return arrive(r, record);
    case WEIR_SCHED_TRACE_NAME:
        name_tenant(r, record);
        return WEIR_OK;
    case WEIR_SCHED_TRACE_LOST:
        r->waits->lost += record->value;
        return WEIR_OK;
    default:
        if (weir_sched_trace_is_core(record->kind) && record->item) {
            follow(r, record);
        }
        return WEIR_OK;
    }
}

/* ------------------------------------------------------------------ all of it */

static enum weir_status read_all(struct reading *r, const void *data, uint64_t bytes,
                                 struct weir_sched_trace_error *ret_error)
{
    struct weir_sched_trace_reader reader;
    struct weir_sched_record record;
    enum weir_status status = weir_sched_trace_open(data, bytes, &reader, ret_error);
    if (status == WEIR_OK && !(reader.header.flags & WEIR_SCHED_TRACE_CAUSES)) {
        ret_error->offset = offsetof(struct weir_sched_trace_header, flags);
        (void)snprintf(ret_error->text, sizeof ret_error->text,
                       "no scheduler has said in it why items wait: it was made up, or recorded by "
                       "an earlier version");
        status = WEIR_ERR_VERSION;
    }
    while (status == WEIR_OK) {
        status = weir_sched_trace_next(&reader, &record, ret_error);
        if (status == WEIR_OK) {
            status = take(r, &record);
        }
    }
    return status == WEIR_ERR_NOT_FOUND ? WEIR_OK : status;
}

enum weir_status weir_sim_waits_read(const void *data, uint64_t bytes, uint32_t n_worst,
                                     struct weir_sim_waits *ret_waits,
                                     struct weir_sched_trace_error *ret_error)
{
    struct weir_sim_waits waits = {.worst = calloc(n_worst + 1ull, sizeof *waits.worst)};
    struct reading r = {.waits = &waits, .cap_worst = n_worst, .event = WEIR_SCHED_REC_KIND_COUNT};
    enum weir_status status =
        waits.worst ? read_all(&r, data, bytes, ret_error) : WEIR_ERR_NO_MEMORY;
    for (uint32_t i = 0; status == WEIR_OK && i < r.n_rows; i++) { /* items left at the end */
        count(&r, &r.rows[i]);
        tell(&r, &r.rows[i]);
    }
    status = status == WEIR_OK && r.has_no_memory ? WEIR_ERR_NO_MEMORY : status;
    waits.ns = r.at_ns - r.begin_ns;
    free(r.rows);
    weir_sim_idmap_finish(&r.tenants);
    weir_sim_idmap_finish(&r.queues);
    weir_sim_idmap_finish(&r.items);
    weir_sim_idmap_finish(&r.waited_for);
    if (status == WEIR_OK) {
        *ret_waits = waits;
    } else {
        weir_sim_waits_finish(&waits);
    }
    return status;
}

void weir_sim_waits_finish(struct weir_sim_waits *waits)
{
    free(waits->tenants);
    free(waits->worst);
    free(waits->waited_for);
    memset(waits, 0, sizeof *waits);
}
