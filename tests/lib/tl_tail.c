/*
 * Follow a trace record by record. Between two records nothing changes, so for each queue whose
 * next item waits, the time between them has one cause, or two where a bound is passed in between.
 *
 * Who was served is reckoned as the scheduler does (charge.c): of each queue on the device only the
 * first item is at work, its *front*; SMs go to fronts in their order, higher classes first,
 * fillers last; what is small or has a place takes no more than that. What ran beside fillers is
 * corrected to its predicted time when it has ended. Each tenant has a virtual time for each
 * resource, and is behind by
 *
 *     lag = (mean virtual time of its class - its own) * its weight
 *
 * which may grow to its longest slice, its longest item and inflight_ns before its turn has come
 * (policy/fair.c; Stoica and Abdel-Wahab 1995). It has come, too, when the scheduler has chosen it.
 * From then on only what was on the device before that is an explanation.
 *
 * What this cannot see: waits before an item reaches the scheduler, and after its grant (locks, a
 * thread that wakes up late); what a min_share adds to a weight; groups of a policy of kind
 * `together` are served and pay as they are placed, and whether the group was right is not judged.
 */
#include "tests/lib/tl_tail_private.h"

#include <stdlib.h>
#include <string.h>

const struct tl_tail_cause_info tl_tail_causes[TL_TAIL_COUNT] = {
#define TL_TAIL_CAUSE(name, word_, explained, text_)                                               \
    [TL_TAIL_##name] = {.word = word_, .text = text_, .is_explained = explained},
#include "tests/lib/tl_tail_causes.def"
#undef TL_TAIL_CAUSE
};

/* Room for one more; false: no memory, which is noted. */
static bool grow(struct reading *r, void **rows, uint32_t n, uint32_t *cap, size_t row_bytes)
{
    if (n == *cap) {
        uint32_t more = *cap ? 2 * *cap : 64;
        void *grown = more > *cap ? realloc(*rows, more * row_bytes) : NULL;
        if (!grown) {
            r->is_short = true;
            return false;
        }
        *rows = grown;
        *cap = more;
    }
    return true;
}

/* ------------------------------------------------------------------ lists of queues */

static void list_add(struct reading *r, struct list *list, uint32_t queue, uint32_t *at)
{
    if (*at == NONE && grow(r, (void **)&list->at, list->n, &list->cap, sizeof *list->at)) {
        *at = list->n;
        list->at[list->n++] = queue;
    }
}

/* The order stays. is_front: which of its queue's places is of this list. */
static void list_remove(struct reading *r, struct list *list, uint32_t *at, bool is_front)
{
    if (*at == NONE) {
        return;
    }
    for (uint32_t i = *at + 1; i < list->n; i++) {
        struct queue *moved = &r->queues[list->at[i]];
        *(is_front ? &moved->front_at : &moved->waits_at) = i - 1;
        list->at[i - 1] = list->at[i];
    }
    list->n--;
    *at = NONE;
}

/* ------------------------------------------------------------------ virtual times */

/* The round of a class, but for one tenant. */
static struct round round_without(const struct reading *r, unsigned resource, uint32_t left_out)
{
    struct round round = {.weights = 0};
    for (uint32_t i = 0; i < r->tail->n_tenants; i++) {
        const struct tenant *t = &r->tenants[i];
        if (i != left_out && t->active[resource] && t->class == r->tenants[left_out].class) {
            round.weights += t->weight;
            round.sum_ns += t->virtual_ns[resource] * t->weight;
        }
    }
    return round;
}

/* It has work again: its place among those who have some, as policy/fair.c finds it. */
static void place(const struct reading *r, uint32_t index, unsigned resource)
{
    struct tenant *t = &r->tenants[index];
    struct round round = round_without(r, resource, index);
    uint64_t away_ns = r->at_ns - t->idle_ns[resource];
    bool is_new = !t->had_work[resource];
    double ahead_ns, credit_ns;
    if (round.weights <= 0 || (!is_new && away_ns <= FORGET_NS)) {
        return;
    }
    ahead_ns = (t->virtual_ns[resource] - mean_of(&round)) * t->weight;
    credit_ns = away_ns <= AWAY_NS && resource == WEIR_SCHED_COMPUTE ? CREDIT_NS : 0;
    ahead_ns = is_new                   ? 0
               : ahead_ns < -credit_ns  ? -credit_ns
               : ahead_ns > DEBT_MAX_NS ? DEBT_MAX_NS
                                        : ahead_ns;
    t->virtual_ns[resource] = mean_of(&round) + ahead_ns / t->weight;
}

/* ------------------------------------------------------------------ where a queue stands */

/* Out of all lists and counts; stand() puts it back where it now belongs. */
static void unstand(struct reading *r, struct queue *queue)
{
    const struct item *first = queue->first != NONE ? &r->items[queue->first] : NULL;
    list_remove(r, &r->waits, &queue->waits_at, false);
    if (first) {
        struct tenant *t = &r->tenants[queue->tenant];
        t->active[first->resource]--;
        t->fronts[first->resource] -= queue->front_at != NONE;
        t->below -= queue->front_at != NONE && first->is_filler;
        if (queue->front_at != NONE && r->fronts[first->resource].n == 1) {
            r->idle_ns[first->resource] = r->at_ns;
        }
        list_remove(r, &r->fronts[first->resource], &queue->front_at, true);
        if (!t->active[first->resource]) {
            t->idle_ns[first->resource] = r->at_ns;
        }
    }
}

static void share(struct reading *r, struct list *fronts)
{
    for (uint32_t i = 0; fronts->n > 1 && i < fronts->n; i++) {
        r->queues[fronts->at[i]].is_shared = true;
    }
}

static void stand(struct reading *r, uint32_t index)
{
    struct queue *queue = &r->queues[index];
    struct item *first = queue->first != NONE ? &r->items[queue->first] : NULL;
    if (!first) {
        return;
    }
    struct tenant *t = &r->tenants[queue->tenant];
    if (!t->active[first->resource]) {
        place(r, queue->tenant, first->resource);
        t->had_work[first->resource] = true;
    }
    t->active[first->resource]++;
    if (first->on && !first->is_stopped) {
        t->fronts[first->resource]++;
        t->below += first->is_filler;
        list_add(r, &r->fronts[first->resource], index, &queue->front_at);
        if (first->front_ns == NEVER) {
            first->front_ns = r->at_ns;
            queue->is_shared = false;
            queue->was_stopped = false;
        }
        share(r, &r->fronts[first->resource]);
    }
    if (head_of(r, queue) != NONE) {
        list_add(r, &r->waits, index, &queue->waits_at);
    }
}

/* ------------------------------------------------------------------ waits that are over */

static void keep_worst(struct reading *r, const struct tl_tail_wait *wait)
{
    struct tl_tail *tail = r->tail;
    uint32_t at = tail->n_worst < r->cap_worst ? tail->n_worst++ : r->cap_worst;
    if (at == r->cap_worst) {
        if (at == 0 || tail->worst[at - 1].unexplained_ns >= wait->unexplained_ns) {
            return;
        }
        at--;
    }
    for (; at > 0 && tail->worst[at - 1].unexplained_ns < wait->unexplained_ns; at--) {
        tail->worst[at] = tail->worst[at - 1];
    }
    tail->worst[at] = *wait;
}

/* Of an item that was granted, or is left. */
static void tell(struct reading *r, const struct item *item)
{
    const struct queue *queue = &r->queues[item->queue];
    struct tl_tail_tenant *t = &r->tail->tenants[queue->tenant];
    struct tl_tail_wait wait = {.tenant = queue->tenant,
                                .class = item->class,
                                .ended_by = r->event,
                                .queue = queue->id,
                                .item = item->id,
                                .arrived_ns = item->arrived_ns - r->begin_ns,
                                .waited_ns = item->waited_ns};
    memcpy(wait.cause_ns, item->cause_ns, sizeof wait.cause_ns);
    t->items++;
    t->waited_ns += wait.waited_ns;
    t->longest_ns = wait.waited_ns > t->longest_ns ? wait.waited_ns : t->longest_ns;
    for (unsigned i = 0; i < TL_TAIL_COUNT; i++) {
        uint64_t ns = wait.cause_ns[i];
        t->cause_ns[i] += ns;
        t->longest_by_cause_ns[i] = ns > t->longest_by_cause_ns[i] ? ns : t->longest_by_cause_ns[i];
        wait.unexplained_ns += tl_tail_causes[i].is_explained ? 0 : ns;
    }
    t->unexplained_ns += wait.unexplained_ns;
    if (wait.unexplained_ns > t->longest_unexplained_ns) {
        t->longest_unexplained_ns = wait.unexplained_ns;
    }
    if (wait.unexplained_ns) {
        keep_worst(r, &wait);
    }
}

/* It waits no more: what was not accounted for was behind others of its queue. */
static void wait_ends(struct reading *r, struct item *item)
{
    uint64_t waited_ns = r->at_ns - item->since_ns, known_ns = 0;
    item->waited_ns += waited_ns;
    for (unsigned i = 0; i < TL_TAIL_COUNT; i++) {
        known_ns += item->cause_ns[i];
    }
    if (item->waited_ns > known_ns) {
        item->cause_ns[TL_TAIL_OWN] += item->waited_ns - known_ns;
    }
    if (r->event == WEIR_SCHED_REC_TICK && r->event_ns == r->at_ns) {
        item->cause_ns[TL_TAIL_TIMER] += item->cause_ns[TL_TAIL_IDLE];
        item->cause_ns[TL_TAIL_IDLE] = 0;
    }
}

/* ------------------------------------------------------------------ items */

static struct item *item_of(struct reading *r, weir_sched_id id)
{
    uint64_t index;
    if (!weir_sim_idmap_get(&r->item_ids, id, &index)) {
        r->tail->unknown++;
        return NULL;
    }
    return &r->items[index];
}

static uint32_t new_item(struct reading *r)
{
    uint32_t index = r->free_items;
    if (index != NONE) {
        r->free_items = r->items[index].next;
        return index;
    }
    if (r->n_items == NONE - 1 ||
        !grow(r, (void **)&r->items, r->n_items, &r->cap_items, sizeof *r->items)) {
        return NONE;
    }
    return r->n_items++;
}

static unsigned resource_of(uint8_t class)
{
    return class == WEIR_SCHED_H2D   ? WEIR_SCHED_TO_DEVICE
           : class == WEIR_SCHED_D2H ? WEIR_SCHED_FROM_DEVICE
                                     : WEIR_SCHED_COMPUTE;
}

/* As small_look() of sched/small.c. */
static uint32_t small_sms(const struct reading *r, const struct weir_sched_record *record)
{
    uint32_t sms = 0;
    if (r->header.small_sms && record->class == WEIR_SCHED_GRAPH && record->blocks &&
        record->blocks_per_sm && !(record->flags & WEIR_SCHED_STOPPABLE)) {
        sms = (record->blocks - 1) / record->blocks_per_sm + 1;
    }
    return sms <= r->header.sms / 2 ? sms : 0;
}

/* The device has it. */
static void grant(struct reading *r, struct queue *queue, struct item *item)
{
    item->on = true;
    queue->n_on++;
    queue->n_unsure += !item->is_sure;
    queue->on_ns += item->is_sure ? item->predicted_ns : 0;
    r->tenants[queue->tenant].granted_ns[item->resource] += item->predicted_ns;
    queue->granted_ns = r->at_ns;
    queue->next = item->next;
    r->tenants[queue->tenant].due_ns[item->resource] = NEVER;
}

static void arrive(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t index;
    uint32_t at;
    if (!weir_sim_idmap_get(&r->queue_ids, record->queue, &index)) {
        r->tail->unknown++;
        return;
    }
    at = new_item(r);
    if (at == NONE || !weir_sim_idmap_set(&r->item_ids, record->item, at)) {
        r->is_short = true;
        return;
    }
    struct queue *queue = &r->queues[index];
    unstand(r, queue);
    r->items[at] = (struct item){
        .queue = (uint32_t)index,
        .prev = queue->last,
        .next = NONE,
        .class = record->class,
        .resource = (uint8_t)resource_of(record->class),
        .is_sure = record->value && !(record->flags & WEIR_SCHED_UNSURE),
        .small_sms = small_sms(r, record),
        .predicted_ns = record->value < UINT32_MAX * 1000ull ? record->value : UINT32_MAX * 1000ull,
        .arrived_ns = record->at_ns,
        .since_ns = record->at_ns,
        .front_ns = NEVER,
        .id = record->item};
    *(queue->last != NONE ? &r->items[queue->last].next : &queue->first) = at;
    queue->last = at;
    queue->next = queue->next == NONE ? at : queue->next;
    if ((record->flags & WEIR_SCHED_STARTED) && queue->next == at) {
        grant(r, queue, &r->items[at]);
        tell(r, &r->items[at]);
    }
    stand(r, (uint32_t)index);
}

static void start(struct reading *r, struct item *item, const struct weir_sched_record *record)
{
    struct queue *queue = &r->queues[item->queue];
    if (item->on || queue->next == NONE || &r->items[queue->next] != item) {
        r->tail->unknown++;
        return;
    }
    unstand(r, queue);
    wait_ends(r, item);
    tell(r, item);
    item->is_filler = record->value == 1;
    item->place_sms = record->place.sm_count;
    grant(r, queue, item);
    stand(r, item->queue);
}

/* A run that has stopped waits again; it counts as an item with each of its waits. */
static void stopped(struct reading *r, struct item *item, bool is_stopped)
{
    struct queue *queue = &r->queues[item->queue];
    if (!item->on || item->is_stopped == is_stopped || &r->items[queue->first] != item) {
        return;
    }
    unstand(r, queue);
    item->is_stopped = is_stopped;
    queue->was_stopped = true;
    if (is_stopped) {
        item->waited_ns = 0;
        memset(item->cause_ns, 0, sizeof item->cause_ns);
        item->since_ns = r->at_ns;
    } else {
        wait_ends(r, item);
        tell(r, item);
        queue->granted_ns = r->at_ns;
        r->tenants[queue->tenant].due_ns[item->resource] = NEVER;
    }
    stand(r, item->queue);
}

/*
 * It has ended behind another's front without having been served what it is known to take: the
 * device let it go in between. What is missing is moved from the other's account to its own.
 */
static void claim(struct reading *r, const struct queue *queue, struct item *item)
{
    const struct list *fronts = &r->fronts[WEIR_SCHED_COMPUTE];
    double claim_ns = (double)item->predicted_ns - item->served_ns;
    uint32_t i = 0;
    while (i < queue->front_at && (r->items[r->queues[fronts->at[i]].first].small_sms ||
                                   r->items[r->queues[fronts->at[i]].first].place_sms)) {
        i++;
    }
    if (claim_ns <= 0 || i >= queue->front_at) {
        return;
    }
    struct queue *before = &r->queues[fronts->at[i]];
    struct tenant *other = &r->tenants[before->tenant], *t = &r->tenants[queue->tenant];
    t->virtual_ns[WEIR_SCHED_COMPUTE] += claim_ns / t->weight;
    other->virtual_ns[WEIR_SCHED_COMPUTE] -= claim_ns / other->weight;
    item->served_ns += claim_ns;
    r->items[before->first].served_ns -= claim_ns;
}

/* What an item was charged too much or too little by time, beside small work, is that one's. */
static void owe(struct reading *r, double owed_ns)
{
    const struct list *fronts = &r->fronts[WEIR_SCHED_COMPUTE];
    double sms = 0;
    for (uint32_t i = 0; i < fronts->n; i++) {
        sms += r->items[r->queues[fronts->at[i]].first].small_sms;
    }
    for (uint32_t i = 0; i < fronts->n && sms > 0; i++) {
        struct tenant *t = &r->tenants[r->queues[fronts->at[i]].tenant];
        double part = r->items[r->queues[fronts->at[i]].first].small_sms / sms;
        t->virtual_ns[WEIR_SCHED_COMPUTE] += owed_ns * part / t->weight;
    }
}

/* It has ended, or is forgotten. */
static void leave(struct reading *r, struct item *item, bool has_ended)
{
    struct queue *queue = &r->queues[item->queue];
    struct tenant *t = &r->tenants[queue->tenant];
    uint32_t at = (uint32_t)(item - r->items);
    if (has_ended && item->is_sure && !item->is_filler && !item->small_sms && !item->place_sms &&
        item->resource == WEIR_SCHED_COMPUTE && queue->front_at != NONE && queue->first == at) {
        claim(r, queue, item);
    }
    unstand(r, queue);
    if (has_ended && item->on && item->served_ns > t->longest_ns[item->resource]) {
        t->longest_ns[item->resource] = item->served_ns;
    }
    if (has_ended && item->is_sure && !item->small_sms && !item->place_sms &&
        (item->by_work || item->by_small)) { /* what it is known to take, instead */
        double more_ns = (double)item->predicted_ns - item->served_ns;
        double owed_ns = item->by_small ? min_of(-more_ns, item->served_ns / 2) : 0;
        t->virtual_ns[item->resource] += (item->by_work ? more_ns : -owed_ns) / t->weight;
        owe(r, owed_ns);
    }
    if (item->on) {
        queue->n_on--;
        queue->n_unsure -= !item->is_sure;
        queue->on_ns -= item->is_sure ? item->predicted_ns : 0;
        t->granted_ns[item->resource] -= item->predicted_ns;
    }
    queue->next = queue->next == at ? item->next : queue->next;
    *(item->prev != NONE ? &r->items[item->prev].next : &queue->first) = item->next;
    *(item->next != NONE ? &r->items[item->next].prev : &queue->last) = item->prev;
    weir_sim_idmap_remove(&r->item_ids, item->id);
    item->id = 0;
    item->next = r->free_items;
    r->free_items = at;
    stand(r, (uint32_t)(queue - r->queues));
}

static void follow_item(struct reading *r, const struct weir_sched_record *record)
{
    struct item *item = item_of(r, record->item);
    if (!item) {
        return;
    }
    switch (record->kind) {
    case WEIR_SCHED_REC_START:
        start(r, item, record);
        break;
    case WEIR_SCHED_REC_STOPPED:
        stopped(r, item, true);
        break;
    case WEIR_SCHED_REC_RESUME:
    case WEIR_SCHED_REC_RUNNING:
        stopped(r, item, false);
        break;
    case WEIR_SCHED_REC_RESIZE:
        item->place_sms = record->place.sm_count;
        break;
    case WEIR_SCHED_REC_FINISH:
    case WEIR_SCHED_REC_WITHDRAW:
        leave(r, item, record->kind == WEIR_SCHED_REC_FINISH);
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------ tenants and queues */

/* What it is, from a value of a record; a changed class or weight begins anew. */
static void describe(struct reading *r, uint32_t index, uint64_t value)
{
    struct weir_sched_tenant_params params = weir_sched_tenant_unpacked(value);
    struct tenant *t = &r->tenants[index];
    bool is_changed = t->weight != params.weight || t->class != params.priority;
    t->weight = params.weight ? params.weight : 1;
    t->class = params.priority < CLASSES ? (unsigned)params.priority : 0;
    t->has_limit = params.sm_limit && params.sm_limit < 100;
    for (unsigned resource = 0; is_changed && resource < RESOURCES; resource++) {
        struct round round = round_without(r, resource, index);
        if (round.weights > 0) {
            t->virtual_ns[resource] = mean_of(&round);
        }
    }
    r->tail->tenants[index].weight = t->weight;
    r->tail->tenants[index].priority = (uint8_t)t->class;
}

static void add_tenant(struct reading *r, const struct weir_sched_record *record)
{
    uint32_t n = r->tail->n_tenants, cap = r->cap_tenants;
    if (!grow(r, (void **)&r->tenants, n, &cap, sizeof *r->tenants) ||
        !grow(r, (void **)&r->tail->tenants, n, &r->cap_tenants, sizeof *r->tail->tenants) ||
        !weir_sim_idmap_set(&r->tenant_ids, record->tenant, n)) {
        r->is_short = true;
        return;
    }
    r->tenants[n] = (struct tenant){.due_ns = {NEVER, NEVER, NEVER}};
    r->tail->tenants[n] = (struct tl_tail_tenant){.name = ""};
    if (r->first && n < r->first->tail->n_tenants) {
        const struct tenant *known = &r->first->tenants[n];
        r->tenants[n].slice_ns = known->slice_ns;
        memcpy(r->tenants[n].longest_ns, known->longest_ns, sizeof known->longest_ns);
    }
    r->tail->n_tenants++;
    describe(r, n, record->value);
}

static void add_queue(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t tenant;
    if (!weir_sim_idmap_get(&r->tenant_ids, record->tenant, &tenant)) {
        r->tail->unknown++;
        return;
    }
    if (!grow(r, (void **)&r->queues, r->n_queues, &r->cap_queues, sizeof *r->queues) ||
        !weir_sim_idmap_set(&r->queue_ids, record->queue, r->n_queues)) {
        r->is_short = true;
        return;
    }
    r->has_domains |=
        r->n_queues && weir_sched_queue_domain(record->value) != r->queues[r->n_queues - 1].domain;
    r->queues[r->n_queues++] =
        (struct queue){.tenant = (uint32_t)tenant,
                       .domain = weir_sched_queue_domain(record->value),
                       .has_limit = weir_sched_queue_sm_limit(record->value) < 100,
                       .id = record->queue,
                       .first = NONE,
                       .last = NONE,
                       .next = NONE,
                       .front_at = NONE,
                       .waits_at = NONE};
}

/* Its items are forgotten: nobody waits for them any more. */
static void empty_queue(struct reading *r, struct queue *queue)
{
    while (queue->first != NONE) {
        leave(r, &r->items[queue->first], false);
    }
}

/* A queue is removed, or all of a tenant's. */
static void remove_queues(struct reading *r, const struct weir_sched_record *record)
{
    bool is_tenant = record->kind == WEIR_SCHED_REC_TENANT_REMOVE;
    uint64_t index;
    if (!weir_sim_idmap_get(is_tenant ? &r->tenant_ids : &r->queue_ids,
                            is_tenant ? record->tenant : record->queue, &index)) {
        r->tail->unknown++;
        return;
    }
    for (uint32_t i = is_tenant ? 0 : (uint32_t)index; i < r->n_queues; i++) {
        if (!is_tenant || r->queues[i].tenant == index) {
            empty_queue(r, &r->queues[i]);
        }
        if (!is_tenant) {
            weir_sim_idmap_remove(&r->queue_ids, record->queue);
            break;
        }
    }
    if (is_tenant) {
        weir_sim_idmap_remove(&r->tenant_ids, record->tenant);
        r->leader = r->leader == index ? NONE : r->leader;
    }
}

static void choose(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t tenant;
    if (!weir_sim_idmap_get(&r->tenant_ids, record->tenant, &tenant)) {
        r->leader = NONE;
        return;
    }
    if (r->leader != tenant) {
        r->leader = (uint32_t)tenant;
        r->leader_ns = record->at_ns;
    }
    r->turn_ns = record->at_ns;
    r->is_clean = (r->header.flags & WEIR_SCHED_TRACE_FILL_ALL) &&
                  record->at_ns - r->tenants[tenant].clean_ns >= CLEAN_NS;
    if (r->is_clean) {
        r->tenants[tenant].clean_ns = record->at_ns;
    }
    r->turn_end_ns =
        record->at_ns + (record->value < NEVER / 4 ? 2 * record->value : 0) +
        (uint64_t)min_of(r->tenants[tenant].longest_ns[WEIR_SCHED_COMPUTE], (double)LONGEST_NS);
    if ((double)record->value > r->tenants[tenant].slice_ns) {
        r->tenants[tenant].slice_ns = (double)record->value;
    }
}

static void name_tenant(struct reading *r, const struct weir_sched_record *record)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    uint64_t index;
    if (weir_sim_idmap_get(&r->tenant_ids, record->tenant, &index)) {
        char *name = r->tail->tenants[index].name;
        size_t length = record->flags == 0 ? 0 : strlen(name);
        weir_sched_trace_text(record, text);
        for (const char *c = text; *c && length + 1 < WEIR_SCHED_TRACE_NAME_BYTES; c++) {
            name[length++] = *c;
        }
        name[length] = '\0';
    }
}

static void set_policy(struct reading *r, const struct weir_sched_record *record)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    weir_sched_trace_text(record, text);
    if (record->class == 0) { /* of kind `next` (sched/policy.h) */
        r->keeps_no_shares = !(record->flags & 1) && strcmp(text, "fair") != 0;
    } else if (record->class == 2) { /* of kind `order` */
        r->has_order = !(record->flags & 1);
    }
}

static bool is_told(uint8_t kind)
{
    return kind < WEIR_SCHED_REC_KIND_COUNT && kind != WEIR_SCHED_REC_START &&
           kind != WEIR_SCHED_REC_STOP && kind != WEIR_SCHED_REC_RESUME &&
           kind != WEIR_SCHED_REC_RESIZE && kind != WEIR_SCHED_REC_CHOOSE &&
           kind != WEIR_SCHED_REC_WAIT;
}

static void follow(struct reading *r, const struct weir_sched_record *record)
{
    uint64_t index;
    if (!r->has_begun) {
        r->has_begun = true;
        r->begin_ns = r->at_ns = record->at_ns;
    }
    tl_tail_pass(r, record->at_ns);
    if (is_told(record->kind)) {
        r->event = record->kind;
        r->event_ns = record->at_ns;
    }
    switch (record->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
        add_tenant(r, record);
        break;
    case WEIR_SCHED_REC_TENANT_SET:
        if (weir_sim_idmap_get(&r->tenant_ids, record->tenant, &index)) {
            describe(r, (uint32_t)index, record->value);
        }
        break;
    case WEIR_SCHED_REC_QUEUE_ADD:
        add_queue(r, record);
        break;
    case WEIR_SCHED_REC_TENANT_REMOVE:
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        remove_queues(r, record);
        break;
    case WEIR_SCHED_REC_CHOOSE:
        choose(r, record);
        break;
    case WEIR_SCHED_REC_ARRIVE:
        arrive(r, record);
        break;
    case WEIR_SCHED_TRACE_NAME:
        name_tenant(r, record);
        break;
    case WEIR_SCHED_TRACE_POLICY:
        set_policy(r, record);
        break;
    case WEIR_SCHED_TRACE_LOST:
        r->tail->lost += record->value;
        break;
    default:
        if (weir_sched_trace_is_core(record->kind) && record->item) {
            follow_item(r, record);
        }
        break;
    }
}

/* ------------------------------------------------------------------ all of it */

/* What still waits has waited that long. */
static void tell_rest(struct reading *r)
{
    r->event = WEIR_SCHED_REC_KIND_COUNT;
    for (uint32_t i = 0; i < r->n_items; i++) {
        struct item *item = &r->items[i];
        if (item->id && (!item->on || item->is_stopped)) {
            wait_ends(r, item);
            tell(r, item);
        }
    }
    r->tail->ns = r->at_ns - r->begin_ns;
}

static void finish(struct reading *r)
{
    for (unsigned resource = 0; resource < RESOURCES; resource++) {
        free(r->fronts[resource].at);
    }
    free(r->waits.at);
    free(r->items);
    free(r->queues);
    free(r->tenants);
    weir_sim_idmap_finish(&r->tenant_ids);
    weir_sim_idmap_finish(&r->queue_ids);
    weir_sim_idmap_finish(&r->item_ids);
}

static enum weir_status read_once(const void *data, uint64_t bytes, struct reading *r,
                                  struct weir_sched_trace_error *ret_error)
{
    struct weir_sched_trace_reader reader;
    struct weir_sched_record record;
    enum weir_status status = weir_sched_trace_open(data, bytes, &reader, ret_error);
    if (status != WEIR_OK) {
        return status;
    }
    r->header = reader.header;
    while (status == WEIR_OK && !r->is_short) {
        status = weir_sched_trace_next(&reader, &record, ret_error);
        if (status == WEIR_OK) {
            follow(r, &record);
        }
    }
    return r->is_short ? WEIR_ERR_NO_MEMORY : status == WEIR_ERR_NOT_FOUND ? WEIR_OK : status;
}

/* Twice: how long slices and items are at most counts from the beginning. */
enum weir_status tl_tail_read(const void *data, uint64_t bytes, uint32_t n_worst,
                              struct tl_tail *ret_tail, struct weir_sched_trace_error *ret_error)
{
    struct tl_tail first_tail = {.worst = NULL};
    struct tl_tail tail = {.worst = calloc(n_worst + 1ull, sizeof *tail.worst)};
    struct reading first = {.tail = &first_tail, .free_items = NONE, .leader = NONE};
    struct reading r = {
        .tail = &tail, .free_items = NONE, .leader = NONE, .cap_worst = n_worst, .first = &first};
    enum weir_status status =
        tail.worst ? read_once(data, bytes, &first, ret_error) : WEIR_ERR_NO_MEMORY;
    if (status == WEIR_OK) {
        status = read_once(data, bytes, &r, ret_error);
    }
    if (status == WEIR_OK) {
        tell_rest(&r);
        *ret_tail = tail;
    } else {
        tl_tail_finish(&tail);
    }
    tl_tail_finish(&first_tail);
    finish(&first);
    finish(&r);
    return status;
}

void tl_tail_finish(struct tl_tail *tail)
{
    free(tail->tenants);
    free(tail->worst);
    memset(tail, 0, sizeof *tail);
}
