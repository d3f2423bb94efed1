/*
 * Copies: each direction has a list of queues whose next item is a copy that way, higher classes
 * first, then by their tenants' shares (copy_share.c).
 *
 * Without a policy of kind ORDER the shortest of the first few copies whose shares allow it is
 * granted. If one tenant alone copies in a direction, it gets up to alone_ns. If several do, or did
 * a moment ago, they get up to inflight_ns of predicted rest in the direction, so that the copy
 * engine never waits and a newcomer waits for little more than the copy that runs. With such a
 * policy a copy is granted when the device has less than inflight_ns to do in the direction: one
 * runs, one follows at once, all others are decided later. The policy chooses among the tenants
 * that are not ahead of the first of the list by more than ORDER_SLACK_NS.
 *
 * A copy in pieces continues before another is chosen (copy_share.c). If several tenants copy, a
 * copy of LONG_COPY_NS or more has the direction for itself: it waits for the end of the copies
 * before it, and the next copy waits for its end.
 *
 * A task, as CuMAS defines it, is copies to the device, then compute, then copies back. A queue
 * keeps its task under way and its last one, because a live program's later items are not known.
 *
 * Source: CuMAS (ICS 2016) 3.1, 3.2
 */
#include "sched/private.h"
#include <string.h>

#define LONG_COPY_NS      300000u
#define ORDERED_ON_DEVICE 2u
#define SHORT_SLACK_NS    1000000u
#define LOOK_AT           16u
#define ORDER_SLACK_NS    10000000u /* about two of the longest copies of CuMAS's applications */

/* ---- tasks ---- */

/* Does an item of this resource begin a new task after the items of `task`? */
static bool begins_task(const struct task *task, enum weir_sched_resource resource)
{
    return resource == WEIR_SCHED_TO_DEVICE
               ? task->ns[WEIR_SCHED_COMPUTE] + task->ns[WEIR_SCHED_FROM_DEVICE] > 0
               : resource == WEIR_SCHED_COMPUTE && task->ns[WEIR_SCHED_FROM_DEVICE] > 0;
}

void task_grow(struct weir_sched *sched, struct item *item)
{
    struct queue *queue = item->queue;
    enum weir_sched_resource resource = resource_of(item);

    if (begins_task(&queue->task, resource)) {
        sched->memory_bytes -= queue->task.memory_bytes;
        queue->last_task = queue->task;
        queue->task = (struct task){0};
    }
    queue->task.ns[resource] += item->counted_ns;
    queue->task.memory_bytes += item->params.memory_bytes;
    sched->memory_bytes += item->params.memory_bytes;
}

/* Free the memory of a task that has ended with its last copy back. */
void task_shrink(struct weir_sched *sched, struct queue *queue)
{
    const struct item *next = queue->candidate;

    if (queue->on_device == 0 && (!next || begins_task(&queue->task, resource_of(next))) &&
        (queue->task.ns[WEIR_SCHED_FROM_DEVICE] > 0 || !next)) {
        sched->memory_bytes -= queue->task.memory_bytes;
        queue->task.memory_bytes = 0;
    }
}

/* The time of the pieces of a copy that have not arrived yet. */
static uint64_t rest_behind_ns(const struct item *item)
{
    return !item->next ? item->rest_ns : 0;
}

/* The rest of the task from the queue's listed copy on. */
static struct weir_policy_task task_ahead(const struct queue *queue)
{
    const struct item *copy = queue->listed;
    const struct task *last =
        begins_task(&queue->task, resource_of(copy)) ? &queue->task : &queue->last_task;
    struct task ahead = {0};
    const struct item *item = copy;
    struct weir_policy_task task = {
        .item = copy->id,
        .tenant = &queue->tenant->view,
        .arrived_ns = copy->arrived_ns,
        .copy_ns = copy->predicted_ns != 0 ? copy->predicted_ns + copy->rest_ns : 0,
    };

    for (; item && !begins_task(&ahead, resource_of(item)); item = item->next) {
        ahead.ns[resource_of(item)] += item->counted_ns + rest_behind_ns(item);
        ahead.memory_bytes += item->params.memory_bytes;
    }
    task.complete = item || ahead.ns[WEIR_SCHED_FROM_DEVICE] > 0;
    if (!task.complete) {
        if (ahead.ns[WEIR_SCHED_COMPUTE] == 0) {
            ahead.ns[WEIR_SCHED_COMPUTE] = last->ns[WEIR_SCHED_COMPUTE];
        }
        ahead.ns[WEIR_SCHED_FROM_DEVICE] = last->ns[WEIR_SCHED_FROM_DEVICE];
    }
    task.to_device_ns = ahead.ns[WEIR_SCHED_TO_DEVICE];
    task.compute_ns = ahead.ns[WEIR_SCHED_COMPUTE];
    task.from_device_ns = ahead.ns[WEIR_SCHED_FROM_DEVICE];
    task.memory_bytes = ahead.memory_bytes;
    return task;
}

/* ---- granting ---- */

static uint64_t rest_ns(const struct weir_sched *sched, const struct item *item)
{
    return item->counted_ns - min_u64(served_time_ns(sched, item), item->counted_ns);
}

/* Predicted rest of the copies on the device in a direction: head items and those behind them. */
static uint64_t busy_ns(const struct weir_sched *sched, enum weir_sched_resource way)
{
    uint64_t sum_ns = 0;

    for (const struct item *i = sched->front_first[way]; i; i = i->front_next) {
        sum_ns += i->queue->copies_ns - i->counted_ns + rest_ns(sched, i);
    }
    return sum_ns;
}

/* The time on a resource that the last task had beyond this one. */
static uint64_t missing_ns(const struct queue *queue, const struct task *known,
                           enum weir_sched_resource resource)
{
    uint64_t last_ns = queue->last_task.ns[resource];

    return last_ns - min_u64(known->ns[resource], last_ns);
}

/*
 * The time that a queue's task under way still needs of each resource: its granted items, those
 * that wait behind them, and those that have not arrived, as in the last task. Nothing is counted
 * from the next copy to the device on, because that is a candidate of its own.
 */
static void task_rest(const struct weir_sched *sched, const struct queue *queue,
                      struct task *ret_rest)
{
    struct task known = queue->task;
    const struct item *item = queue->first;

    *ret_rest = (struct task){0};
    for (; item != queue->candidate; item = item->next) {
        ret_rest->ns[resource_of(item)] += rest_ns(sched, item) + rest_behind_ns(item);
    }
    for (; item && resource_of(item) != WEIR_SCHED_TO_DEVICE &&
           !begins_task(&known, resource_of(item));
         item = item->next) {
        ret_rest->ns[resource_of(item)] += item->counted_ns;
        known.ns[resource_of(item)] += item->counted_ns;
    }
    if (!item && queue->first && known.ns[WEIR_SCHED_TO_DEVICE] > 0) {
        if (known.ns[WEIR_SCHED_FROM_DEVICE] == 0) {
            ret_rest->ns[WEIR_SCHED_COMPUTE] += missing_ns(queue, &known, WEIR_SCHED_COMPUTE);
        }
        ret_rest->ns[WEIR_SCHED_FROM_DEVICE] += missing_ns(queue, &known, WEIR_SCHED_FROM_DEVICE);
    }
}

/* Add a task behind the others, to find when each resource is free. */
static void busy_append(uint64_t *busy_ns, const struct task *rest)
{
    const uint64_t *ns = rest->ns;

    if (ns[WEIR_SCHED_TO_DEVICE] > 0) {
        busy_ns[WEIR_SCHED_TO_DEVICE] += ns[WEIR_SCHED_TO_DEVICE];
        busy_ns[WEIR_SCHED_COMPUTE] =
            max_u64(busy_ns[WEIR_SCHED_COMPUTE], busy_ns[WEIR_SCHED_TO_DEVICE]);
    }
    if (ns[WEIR_SCHED_COMPUTE] > 0) {
        busy_ns[WEIR_SCHED_COMPUTE] += ns[WEIR_SCHED_COMPUTE];
        busy_ns[WEIR_SCHED_FROM_DEVICE] =
            max_u64(busy_ns[WEIR_SCHED_FROM_DEVICE], busy_ns[WEIR_SCHED_COMPUTE]);
    }
    busy_ns[WEIR_SCHED_FROM_DEVICE] += ns[WEIR_SCHED_FROM_DEVICE];
}

/* The time until the tasks under way, one after the other, leave each resource free. Tasks that
 * copy to the device come last. */
static void busy_with_tasks(const struct weir_sched *sched, uint64_t *ret_busy_ns)
{
    struct task rest;
    struct queue *queue;
    uint32_t at = 0;

    memset(ret_busy_ns, 0, RESOURCES * sizeof(*ret_busy_ns));
    while ((queue = table_next(&sched->queues, &at))) {
        if (queue->first &&
            !(queue->first->is_front && resource_of(queue->first) == WEIR_SCHED_TO_DEVICE)) {
            task_rest(sched, queue, &rest);
            busy_append(ret_busy_ns, &rest);
        }
    }
    for (const struct item *i = sched->front_first[WEIR_SCHED_TO_DEVICE]; i; i = i->front_next) {
        task_rest(sched, i->queue, &rest);
        busy_append(ret_busy_ns, &rest);
    }
}

static bool is_long(const struct item *copy)
{
    return copy->counted_ns >= LONG_COPY_NS;
}

/*
 * Must a copy wait for the end of other queues' copies in its direction, and until when? It waits
 * for a long copy and, if it is long itself, for any. If both were on the device, the end of the
 * shorter would not be seen before the end of the long one, and its stream would not go on either
 * (H200, 2026-11-23: kernels waited 3 ms for data that had long been there, and 2.5 to 5 ms where a
 * copy of 0.1 ms had been granted just before the long one). It does not wait for an overdue end,
 * since that copy may be waiting itself.
 */
static bool has_to_wait(const struct weir_sched *sched, enum weir_sched_resource way,
                        const struct queue *own, bool for_any, uint64_t *wake_ns)
{
    uint64_t hold = 0;

    for (const struct item *i = sched->front_first[way]; i; i = i->front_next) {
        uint64_t patience_ns = copy_patience_ns(sched, i);

        if (i->queue != own && (is_long(i) || for_any) && i->busy_ns < patience_ns) {
            hold = max_u64(hold, patience_ns - i->busy_ns);
        }
    }
    *wake_ns = hold != 0 ? min_u64(*wake_ns, sched->now_ns + hold) : *wake_ns;
    return hold != 0;
}

/* Must a queue's copy wait for another's end, or for the next copy of the last tenant? */
static bool is_held(struct weir_sched *sched, enum weir_sched_resource way,
                    const struct queue *queue, uint64_t *wake_ns)
{
    uint64_t until_ns = copy_expected_ns(sched, way, queue);
    const struct queue *own = copy_going_on(sched, way, queue) == queue ? queue : NULL;

    if (sched->copy_tenants[way] > 1 &&
        has_to_wait(sched, way, own, is_long(queue->listed) || until_ns == NEVER, wake_ns)) {
        return true;
    }
    if (until_ns == 0 || until_ns == NEVER) {
        return false;
    }
    *wake_ns = min_u64(*wake_ns, until_ns);
    return true;
}

/* Choose the queue whose copy is granted next, as soon as it need not wait. */
static void name_next(struct weir_sched *sched, enum weir_sched_resource way, struct queue *queue)
{
    const struct item *copy = queue->listed;

    if (sched->copy_next[way] != queue && sched->env.soon) {
        sched->env.soon(sched->env.user, copy->id, copy->params.user);
    }
    sched->copy_next[way] = queue;
}

static void grant_copy(struct weir_sched *sched, struct queue *queue)
{
    static const struct weir_sched_place anywhere;

    item_start(sched, queue->listed, &anywhere);
    tenant_refresh(sched, queue->tenant);
}

/* The queue whose copy in pieces continues before `next`, if its next piece has arrived. */
static struct queue *next_piece(const struct weir_sched *sched, enum weir_sched_resource way,
                                const struct queue *next)
{
    struct queue *queue = copy_going_on(sched, way, next);

    return queue && queue->listed && resource_of(queue->listed) == way ? queue : NULL;
}

/*
 * The queue with the shortest copy among the first LOOK_AT that have room for more and whose
 * tenants are not ahead of the first by more than SHORT_SLACK_NS. Work that needs the data of a
 * short copy then need not wait for a long one, too.
 */
static struct queue *shortest_with_room(const struct weir_sched *sched,
                                        enum weir_sched_resource way, uint64_t bound_ns)
{
    struct queue *first = NULL;
    struct queue *best = NULL;
    uint32_t seen = 0;

    for (struct queue *queue = sched->copy_first[way]; queue && seen < LOOK_AT;
         queue = queue->list_next) {
        if (queue->on_device != 0 && queue_rest_ns(sched, queue) >= bound_ns) {
            continue;
        }
        if (!first) {
            first = best = queue;
        } else if (queue->tenant->view.priority < first->tenant->view.priority ||
                   !copy_is_within(queue, first->listed->copy_start, SHORT_SLACK_NS)) {
            break;
        } else if (copy_whole_ns(queue->listed) < copy_whole_ns(best->listed)) {
            best = queue;
        }
        seen++;
    }
    return best;
}

/* The queue whose copy is next without a policy; NULL: none has room. */
static struct queue *next_by_shares(const struct weir_sched *sched, enum weir_sched_resource way,
                                    uint64_t bound_ns)
{
    struct queue *best = shortest_with_room(sched, way, bound_ns);
    struct queue *whole = next_piece(sched, way, best ? best : sched->copy_first[way]);

    if (!whole) {
        return best;
    }
    return whole->on_device == 0 || queue_rest_ns(sched, whole) < bound_ns ? whole : NULL;
}

/* A queue whose copy has waited for starve_ns, at limited intervals; or NULL. */
static struct queue *starved(struct weir_sched *sched, enum weir_sched_resource way)
{
    struct queue *oldest = sched->copy_first[way];

    if (sched->now_ns < sched->copy_check_ns[way]) {
        return NULL;
    }
    for (struct queue *queue = oldest; queue; queue = queue->list_next) {
        oldest = queue->listed->since_ns < oldest->listed->since_ns ? queue : oldest;
    }
    sched->copy_check_ns[way] = oldest->listed->since_ns + sched->config.starve_ns;
    if (sched->now_ns < sched->copy_check_ns[way]) {
        return NULL;
    }
    sched->copy_check_ns[way] = sched->now_ns + RESCUE_SLICE_NS * RESCUE_EVERY;
    return oldest;
}

/* Wake when the direction has no more than inflight_ns left to do, or soon if it has less. */
static void wake_near_end(const struct weir_sched *sched, uint64_t rest_ns, uint64_t *wake_ns)
{
    uint64_t early_ns = rest_ns - min_u64(sched->config.inflight_ns, rest_ns);

    *wake_ns = min_u64(*wake_ns, sched->now_ns + max_u64(early_ns, WAKE_MIN_NS));
}

/* Grant the first copy of the list that may go now. @return false: none may */
static bool grant_first(struct weir_sched *sched, enum weir_sched_resource way, uint64_t *wake_ns)
{
    const struct weir_sched_config *config = &sched->config;
    bool shared = copies_are_shared(sched, way);
    uint64_t rest_ns = busy_ns(sched, way);
    struct queue *queue = next_by_shares(
        sched, way, sched->copy_tenants[way] > 1 ? config->inflight_ns : config->alone_ns);

    if (queue && is_held(sched, way, queue, wake_ns)) {
        if (rest_ns <= config->inflight_ns) {
            name_next(sched, way, queue);
        } else {
            wake_near_end(sched, rest_ns, wake_ns);
        }
        return false;
    }
    if (!queue || (shared && sched->front_first[way] && rest_ns >= config->inflight_ns)) {
        if (sched->front_first[way]) {
            wake_near_end(sched, rest_ns, wake_ns);
        }
        return false;
    }
    grant_copy(sched, queue);
    return true;
}

static void grant_by_shares(struct weir_sched *sched, enum weir_sched_resource way,
                            uint64_t *wake_ns)
{
    struct queue *queue = starved(sched, way);

    if (queue) {
        sched->counts.rescues++;
        grant_copy(sched, queue);
    }
    while (sched->copy_first[way] && grant_first(sched, way, wake_ns)) {
    }
    if (sched->copy_first[way]) {
        *wake_ns = min_u64(*wake_ns, sched->copy_check_ns[way]);
    }
}

/* Could the listed copy begin as soon as the direction is free? Not behind kernels of its queue. */
static bool could_begin(const struct queue *queue, enum weir_sched_resource way)
{
    return queue->on_device == 0 || (queue->kernels == 0 && resource_of(queue->first) == way);
}

static uint32_t collect(const struct weir_sched *sched, enum weir_sched_resource way,
                        struct weir_policy_task *tasks, struct queue **queues)
{
    uint32_t count = 0;

    for (struct queue *queue = sched->copy_first[way]; queue && count < WEIR_POLICY_TASKS_MAX;
         queue = queue->list_next) {
        if (count > 0 && queue->tenant->view.priority < queues[0]->tenant->view.priority) {
            break;
        }
        if (could_begin(queue, way) &&
            (count == 0 || copy_is_within(queue, queues[0]->listed->copy_start, ORDER_SLACK_NS))) {
            queues[count] = queue;
            tasks[count++] = task_ahead(queue);
        }
    }
    return count;
}

/* Ask the policy for a task's index; WEIR_POLICY_WAIT: none. */
static uint32_t ask_order(struct weir_sched *sched, enum weir_sched_resource way,
                          const struct weir_policy_task *tasks, uint32_t count)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_ORDER];
    struct weir_policy_order_view view = {
        .now_ns = sched->now_ns,
        .direction = way,
        .tasks = tasks,
        .task_count = count,
        .memory_used_bytes = sched->memory_bytes,
        .memory_limit_bytes = sched->config.memory_limit_bytes,
    };
    uint32_t pick;

    busy_with_tasks(sched, view.busy_ns);
    pick = policy->ops->order(policy, &view);
    if (pick >= count && pick != WEIR_POLICY_WAIT) {
        policy_blame(sched, WEIR_POLICY_ORDER, MISTAKE_NONSENSE, "named no task", NULL);
        pick = 0;
    }
    return pick;
}

/* Is it time to decide which copy is next? If not, *wake_ns is when it will be. */
static bool is_due(const struct weir_sched *sched, enum weir_sched_resource way, uint64_t *wake_ns)
{
    uint64_t left_ns = busy_ns(sched, way);
    bool has_room =
        sched->copies_on[way] < ORDERED_ON_DEVICE || next_piece(sched, way, sched->copy_first[way]);

    if (sched->copies_on[way] == 0 || (has_room && left_ns <= sched->config.inflight_ns)) {
        return true;
    }
    if (has_room) {
        *wake_ns = min_u64(*wake_ns, sched->now_ns +
                                         max_u64(left_ns - sched->config.inflight_ns, WAKE_MIN_NS));
    }
    return false;
}

/*
 * The queue whose copy the policy named, or names now. It is asked once, though the copy may then
 * wait for another's end, unless a tenant of a higher class or one far behind arrives. NULL: none.
 */
static struct queue *next_in_order(struct weir_sched *sched, enum weir_sched_resource way)
{
    struct weir_policy_task tasks[WEIR_POLICY_TASKS_MAX];
    struct queue *queues[WEIR_POLICY_TASKS_MAX];
    struct queue *chosen = sched->copy_next[way];
    uint32_t count;
    uint32_t pick;

    if (next_piece(sched, way, sched->copy_first[way])) {
        return next_piece(sched, way, sched->copy_first[way]);
    }
    if (chosen && chosen->tenant->view.priority >= sched->copy_first[way]->tenant->view.priority &&
        copy_is_within(chosen, sched->copy_first[way]->listed->copy_start, ORDER_SLACK_NS)) {
        return chosen;
    }
    count = collect(sched, way, tasks, queues);
    pick = count > 0 ? ask_order(sched, way, tasks, count) : WEIR_POLICY_WAIT;
    return pick != WEIR_POLICY_WAIT ? queues[pick] : NULL;
}

static void grant_in_order(struct weir_sched *sched, enum weir_sched_resource way,
                           uint64_t *wake_ns)
{
    while (sched->copy_first[way] && is_due(sched, way, wake_ns)) {
        struct queue *queue =
            has_to_wait(sched, way, NULL, false, wake_ns) ? NULL : starved(sched, way);

        if (queue) {
            policy_blame(sched, WEIR_POLICY_ORDER, MISTAKE_STARVED, "let somebody wait",
                         queue->tenant);
            sched->counts.rescues++;
            grant_copy(sched, queue);
            continue;
        }
        queue = next_in_order(sched, way);
        if (!queue || is_held(sched, way, queue, wake_ns)) {
            if (queue) {
                name_next(sched, way, queue);
            }
            *wake_ns = min_u64(*wake_ns, sched->copy_check_ns[way]);
            return;
        }
        grant_copy(sched, queue);
    }
}

void copies_decide(struct weir_sched *sched, uint64_t *wake_ns)
{
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        if (!sched->copy_first[way]) {
            sched->copy_share[way].idle_since_ns = 0;
            continue;
        }
        if (sched->policy[WEIR_POLICY_ORDER].ops) {
            grant_in_order(sched, (enum weir_sched_resource)way, wake_ns);
        } else {
            grant_by_shares(sched, (enum weir_sched_resource)way, wake_ns);
        }
    }
}
