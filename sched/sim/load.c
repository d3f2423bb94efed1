/*
 * Make a load from a trace: follow every item through the trace, then compute how much work it had.
 *
 * First pass, record by record: a struct story for each item (when it came, began, ran where, and
 * whether another tenant's kernels ran meanwhile). Then, with all stories known, the work of each
 * item and what it waited for.
 *
 * Files are hostile: every id is looked up, counts grow only by what the file really has, and the
 * time is bounded by a few steps per record.
 */
#include "sched/sim/load.h"

#include "base/grow.h"
#include "sched/sim/idmap.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* Most work of an item: a day of all SMs that a model may have. */
#define SM_NS_MAX 4e16

/* If more kernels than this run beside a new one, only the new one is marked as disturbed. */
#define BESIDE_MAX 64u

struct story {
    uint64_t arrived_ns;
    uint64_t started_ns; /* NEVER: not started */
    uint64_t ended_ns;   /* when it finished or was withdrawn; NEVER: not yet */
    uint64_t since_ns;   /* it has run since then; NEVER: it does not run */
    double ran_sm_ns;
    struct weir_sched_place place;
    bool is_disturbed; /* another tenant's compute ran beside it */
    bool was_moved;    /* it was stopped or resized, so took_ns is not one run's */
    bool is_open;
    bool is_withdrawn;
    bool is_beside; /* it is listed in reading.beside */
};

/* The sums for the mean work of a block, from undisturbed kernels of a key. */
struct key_mean {
    double sm_ns;
    double blocks;
};

struct reading {
    struct weir_sim_load *load;
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error *error;
    struct story *stories; /* as long as load->items' capacity */
    struct weir_sim_idmap tenants, queues, items, keys, natures;
    uint32_t *beside; /* compute items that are on the device */
    uint32_t n_beside, cap_beside;
    struct key_mean *means;
    uint32_t n_means, cap_means;
    uint64_t base_ns; /* time of the first record */
    bool has_base;
    bool is_loose; /* the trace has gaps: unknown ids are skipped */
};

/* Add a zeroed element at the end of an array. */
#define ADD_ONE(array, n, cap)                                                                     \
    (WEIR_GROW(array, n, cap) ? (memset(&(array)[(n)++], 0, sizeof *(array)), WEIR_OK)             \
                              : WEIR_ERR_NO_MEMORY)

static enum weir_status complain(struct reading *r, const char *what, uint64_t id)
{
    r->error->offset = r->reader.offset - WEIR_SCHED_TRACE_RECORD_BYTES;
    (void)snprintf(r->error->text, sizeof r->error->text, "%s %" PRIx64, what, id);
    return WEIR_ERR_SYNTAX;
}

/* Index of an id. WEIR_ERR_NOT_FOUND: unknown, but that may be, as the trace has gaps. */
static enum weir_status look_up(struct reading *r, const struct weir_sim_idmap *map, uint64_t id,
                                const char *what, uint32_t *ret_index)
{
    uint64_t index;
    if (weir_sim_idmap_get(map, id, &index)) {
        *ret_index = (uint32_t)index;
        return WEIR_OK;
    }
    WEIR_FAIL_IF(!r->is_loose, complain(r, what, id));
    r->load->unknown++;
    return WEIR_ERR_NOT_FOUND;
}

static enum weir_status introduce(struct reading *r, struct weir_sim_idmap *map, uint64_t id,
                                  const char *what, uint32_t index)
{
    uint64_t other;
    WEIR_FAIL_IF(weir_sim_idmap_get(map, id, &other) && !r->is_loose, complain(r, what, id));
    return weir_sim_idmap_set(map, id, index) ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

/* A recorded tenant's settings. What it might do because of other devices is the rule's. */
static struct weir_sched_tenant_params params_of(const struct weir_sched_record *rec)
{
    struct weir_sched_tenant_params params = weir_sched_tenant_unpacked(rec->value);
    params.span = WEIR_SCHED_SPAN_FREE;
    params.span_more = 0;
    return params;
}

static enum weir_status add_tenant(struct reading *r, const struct weir_sched_record *rec)
{
    struct weir_sim_load *load = r->load;
    WEIR_TRY(introduce(r, &r->tenants, rec->tenant, "a second tenant", load->n_tenants));
    WEIR_TRY(ADD_ONE(load->tenants, load->n_tenants, load->cap_tenants));
    load->tenants[load->n_tenants - 1].params = params_of(rec);
    load->tenants[load->n_tenants - 1].context = weir_sched_trace_context(rec);
    return WEIR_OK;
}

static enum weir_status change_tenant(struct reading *r, const struct weir_sched_record *rec)
{
    struct weir_sim_load *load = r->load;
    uint32_t tenant;
    WEIR_TRY(look_up(r, &r->tenants, rec->tenant, "no tenant", &tenant));
    WEIR_TRY(ADD_ONE(load->changes, load->n_changes, load->cap_changes));
    load->changes[load->n_changes - 1] = (struct weir_sim_change){
        .at_ns = rec->at_ns - r->base_ns, .tenant = tenant, .params = params_of(rec)};
    return WEIR_OK;
}

static enum weir_status name_tenant(struct reading *r, const struct weir_sched_record *rec)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    uint32_t tenant;
    WEIR_TRY(look_up(r, &r->tenants, rec->tenant, "no tenant", &tenant));
    char *name = r->load->tenants[tenant].name;
    size_t length = rec->flags ? strlen(name) : 0;
    weir_sched_trace_text(rec, text);
    (void)snprintf(name + length, sizeof r->load->tenants[tenant].name - length, "%s", text);
    return WEIR_OK;
}

static enum weir_status add_queue(struct reading *r, const struct weir_sched_record *rec)
{
    struct weir_sim_load *load = r->load;
    uint32_t tenant;
    WEIR_TRY(look_up(r, &r->tenants, rec->tenant, "no tenant", &tenant));
    WEIR_TRY(introduce(r, &r->queues, rec->queue, "a second queue", load->n_queues));
    WEIR_TRY(ADD_ONE(load->queues, load->n_queues, load->cap_queues));
    struct weir_sim_queue *queue = &load->queues[load->n_queues - 1];
    uint32_t rank = weir_sched_trace_rank(rec);
    bool follows = load->n_queues > 1 && queue[-1].tenant == tenant && queue[-1].rank + 1 == rank;
    WEIR_FAIL_IF(rank != 0 && !follows && !r->is_loose,
                 complain(r, "a rank without the one before it", rec->queue));
    *queue = (struct weir_sim_queue){.tenant = tenant,
                                     .first = WEIR_SIM_NONE,
                                     .last = WEIR_SIM_NONE,
                                     .sm_limit = weir_sched_queue_sm_limit(rec->value),
                                     .domain = weir_sched_queue_domain(rec->value),
                                     .gpu = weir_sched_trace_gpu(rec),
                                     .rank = follows ? rank : 0};
    return WEIR_OK;
}

static bool is_compute(enum weir_sched_class class)
{
    return class != WEIR_SCHED_H2D && class != WEIR_SCHED_D2H;
}

static void fill_item(struct reading *r, const struct weir_sched_record *rec, uint32_t queue)
{
    struct weir_sim_load *load = r->load;
    struct weir_sim_item *item = &load->items[load->n_items - 1];
    uint64_t value;
    *item = (struct weir_sim_item){
        .tenant = load->queues[queue].tenant,
        .queue = queue,
        .next = WEIR_SIM_NONE,
        .params = {.class = (enum weir_sched_class)rec->class,
                   .flags = rec->flags & ~(uint32_t)WEIR_SCHED_STARTED,
                   .key = weir_sched_trace_key(rec),
                   .bytes = rec->bytes,
                   .rest_bytes = weir_sched_trace_rest_bytes(rec),
                   .blocks = rec->blocks,
                   .blocks_per_sm = rec->blocks_per_sm,
                   .predicted_ns = rec->value},
        /* Without a known geometry the kernel fills the device once. */
        .blocks = rec->blocks && rec->blocks_per_sm ? rec->blocks : load->header.sms,
        .blocks_per_sm = rec->blocks && rec->blocks_per_sm ? rec->blocks_per_sm : 1,
    };
    if (weir_sim_idmap_get(&r->natures, item->params.key, &value)) {
        const struct weir_sched_record nature = {.value = value};
        item->nature = weir_sched_trace_nature_of(&nature);
    }
}

static enum weir_status add_item(struct reading *r, const struct weir_sched_record *rec)
{
    struct weir_sim_load *load = r->load;
    uint32_t queue;
    uint32_t cap = load->cap_items;
    WEIR_TRY(look_up(r, &r->queues, rec->queue, "no queue", &queue));
    WEIR_TRY(introduce(r, &r->items, rec->item, "a second item", load->n_items));
    WEIR_TRY(ADD_ONE(load->items, load->n_items, load->cap_items));
    if (cap != load->cap_items) {
        struct story *stories = realloc(r->stories, load->cap_items * sizeof *stories);
        WEIR_FAIL_IF(!stories, WEIR_ERR_NO_MEMORY);
        r->stories = stories;
    }
    fill_item(r, rec, queue);
    r->stories[load->n_items - 1] = (struct story){.arrived_ns = rec->at_ns - r->base_ns,
                                                   .started_ns = NEVER,
                                                   .ended_ns = NEVER,
                                                   .since_ns = NEVER,
                                                   .is_open = weir_sched_trace_is_open(rec)};
    return WEIR_OK;
}

/* SMs that an item holds at its place if it is alone. */
static double sms_of(const struct reading *r, uint32_t i)
{
    const struct weir_sim_item *item = &r->load->items[i];
    const struct weir_sched_place *place = &r->stories[i].place;
    double sms = place->sm_count ? place->sm_count : r->load->header.sms;
    if (place->block_limit && place->block_limit < item->blocks_per_sm) {
        sms *= (double)place->block_limit / item->blocks_per_sm;
    }
    return fmin(sms, (double)item->blocks / item->blocks_per_sm);
}

/* Add an item's run since since_ns to its work. */
static void count_run(struct reading *r, uint32_t i, uint64_t now_ns)
{
    struct story *story = &r->stories[i];
    if (story->since_ns != NEVER && now_ns > story->since_ns) {
        story->ran_sm_ns += (double)(now_ns - story->since_ns) * sms_of(r, i);
    }
    story->since_ns = NEVER;
}

/* Mark an item, and other tenants' items on the device, as disturbed. */
static enum weir_status put_beside(struct reading *r, uint32_t i)
{
    struct weir_sim_load *load = r->load;
    if (load->header.flags & WEIR_SCHED_TRACE_GENERATED) {
        return WEIR_OK; /* each tenant is alone in a generated trace */
    }
    r->stories[i].is_disturbed |= r->n_beside > BESIDE_MAX;
    for (uint32_t k = 0; k < r->n_beside && k < BESIDE_MAX; k++) {
        if (load->items[r->beside[k]].tenant != load->items[i].tenant) {
            r->stories[r->beside[k]].is_disturbed = true;
            r->stories[i].is_disturbed = true;
        }
    }
    if (r->stories[i].is_beside || r->n_beside > BESIDE_MAX) {
        return WEIR_OK;
    }
    WEIR_TRY(ADD_ONE(r->beside, r->n_beside, r->cap_beside));
    r->beside[r->n_beside - 1] = i;
    r->stories[i].is_beside = true;
    return WEIR_OK;
}

static void take_from_beside(struct reading *r, uint32_t i)
{
    for (uint32_t k = 0; r->stories[i].is_beside && k < r->n_beside; k++) {
        if (r->beside[k] == i) {
            r->beside[k] = r->beside[--r->n_beside];
            r->stories[i].is_beside = false;
        }
    }
}

/* An item is started or resumed. It runs if it is the first of its queue on the device. */
static enum weir_status go(struct reading *r, uint32_t i, const struct weir_sched_record *rec)
{
    struct story *story = &r->stories[i];
    struct weir_sim_queue *queue = &r->load->queues[r->load->items[i].queue];
    uint64_t now_ns = rec->at_ns - r->base_ns;
    story->place = rec->place;
    if (story->started_ns == NEVER) {
        story->started_ns = now_ns;
        /* queue->last: the one started last, while reading. */
        uint32_t before = queue->last;
        bool is_first = before == WEIR_SIM_NONE || r->stories[before].ended_ns != NEVER;
        if (before != WEIR_SIM_NONE) {
            r->load->items[before].next = i;
        }
        queue->last = i;
        story->since_ns = is_first ? now_ns : NEVER;
    } else {
        story->since_ns = now_ns;
    }
    return is_compute(r->load->items[i].params.class) ? put_beside(r, i) : WEIR_OK;
}

static void end(struct reading *r, uint32_t i, const struct weir_sched_record *rec)
{
    struct story *story = &r->stories[i];
    struct weir_sim_item *item = &r->load->items[i];
    uint64_t now_ns = rec->at_ns - r->base_ns;
    bool is_told = rec->kind == WEIR_SCHED_REC_FINISH && rec->value != 0 &&
                   rec->value != WEIR_SCHED_UNKNOWN && !story->was_moved;
    count_run(r, i, now_ns);
    if (is_told) {
        story->ran_sm_ns = (double)rec->value * sms_of(r, i);
    }
    story->ended_ns = now_ns;
    story->is_withdrawn = rec->kind == WEIR_SCHED_REC_WITHDRAW;
    take_from_beside(r, i);
    weir_sim_idmap_remove(&r->items, rec->item);
    uint32_t next = item->next;
    if (next != WEIR_SIM_NONE && r->stories[next].started_ns != NEVER &&
        r->stories[next].ended_ns == NEVER && !r->stories[next].was_moved) {
        r->stories[next].since_ns = now_ns;
    }
}

/* Follow a record about an item. */
static enum weir_status follow(struct reading *r, const struct weir_sched_record *rec)
{
    uint64_t now_ns = rec->at_ns - r->base_ns;
    uint32_t i;
    WEIR_TRY(look_up(r, &r->items, rec->item, "no item", &i));
    struct story *story = &r->stories[i];
    switch (rec->kind) {
    case WEIR_SCHED_REC_START:
    case WEIR_SCHED_REC_RESUME:
        return go(r, i, rec);
    case WEIR_SCHED_REC_RUNNING:
        if (story->started_ns != NEVER && story->since_ns == NEVER && story->was_moved) {
            story->since_ns = now_ns;
        }
        break;
    case WEIR_SCHED_REC_RESIZE:
        if (story->since_ns != NEVER) {
            count_run(r, i, now_ns);
            story->since_ns = now_ns;
        }
        story->place = rec->place;
        story->was_moved = true;
        break;
    case WEIR_SCHED_REC_STOPPED:
        count_run(r, i, now_ns);
        story->was_moved = true;
        take_from_beside(r, i);
        break;
    case WEIR_SCHED_REC_FINISH:
    case WEIR_SCHED_REC_WITHDRAW:
        end(r, i, rec);
        break;
    default:
        break;
    }
    return WEIR_OK;
}

static enum weir_status take(struct reading *r, const struct weir_sched_record *rec)
{
    uint32_t index;
    enum weir_status status = WEIR_OK;
    switch (rec->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
        return add_tenant(r, rec);
    case WEIR_SCHED_REC_TENANT_SET:
        return change_tenant(r, rec);
    case WEIR_SCHED_REC_TENANT_REMOVE:
        status = look_up(r, &r->tenants, rec->tenant, "no tenant", &index);
        weir_sim_idmap_remove(&r->tenants, rec->tenant);
        return status;
    case WEIR_SCHED_REC_QUEUE_ADD:
        return add_queue(r, rec);
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        status = look_up(r, &r->queues, rec->queue, "no queue", &index);
        weir_sim_idmap_remove(&r->queues, rec->queue);
        return status;
    case WEIR_SCHED_REC_ARRIVE:
        status = add_item(r, rec);
        if (status == WEIR_OK && rec->flags & WEIR_SCHED_STARTED) {
            struct weir_sched_record start = *rec;
            start.place = (struct weir_sched_place){0};
            status = go(r, r->load->n_items - 1, &start);
        }
        return status;
    case WEIR_SCHED_REC_CHOOSE:
    case WEIR_SCHED_REC_TICK:
    case WEIR_SCHED_TRACE_POLICY:
    case WEIR_SCHED_TRACE_END:
        return WEIR_OK;
    case WEIR_SCHED_TRACE_NAME:
        return name_tenant(r, rec);
    case WEIR_SCHED_TRACE_LOST:
        r->is_loose = true;
        r->load->lost += rec->value;
        return WEIR_OK;
    case WEIR_SCHED_TRACE_KERNEL:
        return !rec->key || weir_sim_idmap_set(&r->natures, rec->key, rec->value)
                   ? WEIR_OK
                   : WEIR_ERR_NO_MEMORY;
    default:
        return follow(r, rec);
    }
}

static enum weir_status read_records(struct reading *r)
{
    struct weir_sched_record rec;
    enum weir_status status;
    while ((status = weir_sched_trace_next(&r->reader, &rec, r->error)) == WEIR_OK) {
        if (!r->has_base) {
            r->base_ns = rec.at_ns;
            r->has_base = true;
        }
        status = take(r, &rec);
        if (status != WEIR_OK && !(status == WEIR_ERR_NOT_FOUND && r->is_loose)) {
            return status;
        }
    }
    r->load->is_cut = r->reader.is_cut || !r->reader.has_ended;
    return status == WEIR_ERR_NOT_FOUND ? WEIR_OK : status;
}

/* ------------------------------------------------------------------ how much work */

static bool is_measured(const struct story *story)
{
    return story->ended_ns != NEVER && !story->is_withdrawn && story->ran_sm_ns > 0;
}

/* Sum up, by key, the work of undisturbed kernels. */
static enum weir_status find_means(struct reading *r)
{
    for (uint32_t i = 0; i < r->load->n_items; i++) {
        const struct weir_sim_item *item = &r->load->items[i];
        uint64_t at;
        if (!item->params.key || !is_compute(item->params.class) || !is_measured(&r->stories[i]) ||
            r->stories[i].is_disturbed) {
            continue;
        }
        if (!weir_sim_idmap_get(&r->keys, item->params.key, &at)) {
            at = r->n_means;
            WEIR_TRY(ADD_ONE(r->means, r->n_means, r->cap_means));
            WEIR_FAIL_IF(!weir_sim_idmap_set(&r->keys, item->params.key, at), WEIR_ERR_NO_MEMORY);
        }
        r->means[at].sm_ns += r->stories[i].ran_sm_ns;
        r->means[at].blocks += item->blocks;
    }
    return WEIR_OK;
}

/* SM-nanoseconds of a compute item's work; < 0: not known. */
static double work_of(struct reading *r, uint32_t i)
{
    const struct weir_sim_item *item = &r->load->items[i];
    const struct story *story = &r->stories[i];
    uint64_t at;
    bool has_own = is_measured(story);
    if (has_own && !story->is_disturbed) {
        return story->ran_sm_ns;
    }
    r->load->estimated += !has_own || story->is_disturbed;
    if (weir_sim_idmap_get(&r->keys, item->params.key, &at)) {
        return r->means[at].sm_ns / r->means[at].blocks * item->blocks;
    }
    if (has_own) {
        return story->ran_sm_ns;
    }
    if (!item->params.predicted_ns) {
        return -1;
    }
    return (double)item->params.predicted_ns *
           fmin((double)item->blocks / item->blocks_per_sm, r->load->header.sms);
}

static void set_anchor(struct reading *r, uint32_t i, uint32_t before, bool is_open)
{
    struct weir_sim_item *item = &r->load->items[i];
    uint64_t arrived_ns = r->stories[i].arrived_ns;
    item->after = WEIR_SIM_AT;
    item->delay_ns = arrived_ns;
    if (is_open || r->stories[i].is_open || before == WEIR_SIM_NONE) {
        return;
    }
    const struct story *last = &r->stories[before];
    if (last->ended_ns <= arrived_ns) {
        item->after = WEIR_SIM_AFTER_FINISH;
        item->delay_ns = arrived_ns - last->ended_ns;
    } else if (last->started_ns <= arrived_ns) {
        item->after = WEIR_SIM_AFTER_START;
        item->delay_ns = arrived_ns - last->started_ns;
    }
}

/* Set items' work, arrivals and queues. Leave out items of unknown work or that never ran. */
static void settle(struct reading *r, bool is_open)
{
    struct weir_sim_load *load = r->load;
    for (uint32_t q = 0; q < load->n_queues; q++) {
        load->queues[q].first = load->queues[q].last = WEIR_SIM_NONE;
    }
    for (uint32_t i = 0; i < load->n_items; i++) {
        struct weir_sim_item *item = &load->items[i];
        struct weir_sim_queue *queue = &load->queues[item->queue];
        double work = is_compute(item->params.class) ? work_of(r, i) : 0;
        item->next = WEIR_SIM_NONE;
        if (work < 0 || (r->stories[i].is_withdrawn && r->stories[i].started_ns == NEVER)) {
            load->left_out++;
            continue;
        }
        item->sm_ns = (uint64_t)fmin(fmax(work, 1), SM_NS_MAX);
        set_anchor(r, i, queue->last, is_open);
        if (queue->last == WEIR_SIM_NONE) {
            queue->first = i;
        } else {
            load->items[queue->last].next = i;
        }
        queue->last = i;
        queue->n_kernels += is_compute(item->params.class);
        load->tenants[item->tenant].n_items++;
    }
}

static void reading_finish(struct reading *r)
{
    weir_sim_idmap_finish(&r->tenants);
    weir_sim_idmap_finish(&r->queues);
    weir_sim_idmap_finish(&r->items);
    weir_sim_idmap_finish(&r->keys);
    weir_sim_idmap_finish(&r->natures);
    free(r->stories);
    free(r->beside);
    free(r->means);
}

enum weir_status weir_sim_load_read(const void *data, uint64_t bytes, bool is_open,
                                    struct weir_sim_load *ret_load,
                                    struct weir_sched_trace_error *ret_error)
{
    struct weir_sim_load load = {0};
    struct reading r = {.load = &load, .error = ret_error};
    *ret_error = (struct weir_sched_trace_error){0};
    enum weir_status status = weir_sched_trace_open(data, bytes, &r.reader, ret_error);
    if (status == WEIR_OK) {
        load.header = r.reader.header;
        r.is_loose = (load.header.flags & WEIR_SCHED_TRACE_MIDDLE) != 0;
        status = read_records(&r);
    }
    WEIR_THEN(status, find_means(&r));
    if (status == WEIR_OK) {
        settle(&r, is_open);
        *ret_load = load;
    } else {
        weir_sim_load_finish(&load);
        if (!ret_error->text[0]) {
            ret_error->offset = r.reader.offset;
            (void)snprintf(ret_error->text, sizeof ret_error->text, "%s", weir_status_text(status));
        }
    }
    reading_finish(&r);
    return status;
}

void weir_sim_load_finish(struct weir_sim_load *load)
{
    if (!load) {
        return;
    }
    free(load->tenants);
    free(load->queues);
    free(load->items);
    free(load->changes);
    *load = (struct weir_sim_load){0};
}
