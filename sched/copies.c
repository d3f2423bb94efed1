/*
 * Copies: each direction has a list of queues whose next item is a copy that way, higher classes
 * first, then as they came.
 *
 * Without a policy of kind ORDER they are granted in that order: while one tenant alone copies that
 * way, up to alone_ns; else up to inflight_ns of predicted rest in the direction, so that the copy
 * engine never waits and a newcomer waits for little more than the copy that runs. With such a
 * policy a copy is granted when it is first of its queue and fewer than two are on the device: one
 * runs, one follows at once, everything else is still to be decided.
 *
 * A task, as CuMAS has it: copies to the device, then compute, then copies back. A queue's task
 * under way and its last one are kept, because live the items behind the next one are not known
 * yet.
 *
 * Source: CuMAS (ICS 2016) 3.1, 3.2
 */
#include "sched/private.h"

#define ORDERED_ON_DEVICE 2u

void copy_list(struct weir_sched *sched, struct queue *queue)
{
    enum weir_sched_resource way = resource_of(queue->listed);
    struct queue *after = sched->copy_last[way];

    while (after != NULL && after->tenant->view.priority < queue->tenant->view.priority) {
        after = after->list_prev;
    }
    queue->list_prev = after;
    queue->list_next = after != NULL ? after->list_next : sched->copy_first[way];
    *(queue->list_next != NULL ? &queue->list_next->list_prev : &sched->copy_last[way]) = queue;
    *(after != NULL ? &after->list_next : &sched->copy_first[way]) = queue;
    sched->copy_tenants[way] += queue->tenant->copies[way]++ == 0;
}

void copy_unlist(struct weir_sched *sched, struct queue *queue)
{
    enum weir_sched_resource way = resource_of(queue->listed);

    *(queue->list_prev != NULL ? &queue->list_prev->list_next : &sched->copy_first[way]) =
        queue->list_next;
    *(queue->list_next != NULL ? &queue->list_next->list_prev : &sched->copy_last[way]) =
        queue->list_prev;
    queue->list_next = queue->list_prev = NULL;
    sched->copy_tenants[way] -= --queue->tenant->copies[way] == 0;
}

/* ---- tasks ---- */

/* Does an item begin a new task, after what this one has had? */
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

/* Its memory is free again once its last copy back is done. */
void task_shrink(struct weir_sched *sched, struct queue *queue)
{
    const struct item *next = queue->candidate;

    if (queue->on_device == 0 && (next == NULL || begins_task(&queue->task, resource_of(next))) &&
        (queue->task.ns[WEIR_SCHED_FROM_DEVICE] > 0 || next == NULL)) {
        sched->memory_bytes -= queue->task.memory_bytes;
        queue->task.memory_bytes = 0;
    }
}

/* What is to come of the task that a queue's candidate stands in. */
static struct weir_policy_task task_ahead(const struct queue *queue)
{
    const struct item *copy = queue->listed;
    struct task ahead = {0};
    const struct item *item = copy;
    struct weir_policy_task task = {
        .item = copy->id,
        .tenant = &queue->tenant->view,
        .arrived_ns = copy->arrived_ns,
        .copy_ns = copy->predicted_ns,
    };

    for (; item != NULL && !begins_task(&ahead, resource_of(item)); item = item->next) {
        ahead.ns[resource_of(item)] += item->counted_ns;
        ahead.memory_bytes += item->params.memory_bytes;
    }
    task.complete = item != NULL || ahead.ns[WEIR_SCHED_FROM_DEVICE] > 0;
    if (!task.complete) {
        if (ahead.ns[WEIR_SCHED_COMPUTE] == 0) {
            ahead.ns[WEIR_SCHED_COMPUTE] = queue->last_task.ns[WEIR_SCHED_COMPUTE];
        }
        ahead.ns[WEIR_SCHED_FROM_DEVICE] = queue->last_task.ns[WEIR_SCHED_FROM_DEVICE];
    }
    task.to_device_ns = ahead.ns[WEIR_SCHED_TO_DEVICE];
    task.compute_ns = ahead.ns[WEIR_SCHED_COMPUTE];
    task.from_device_ns = ahead.ns[WEIR_SCHED_FROM_DEVICE];
    task.memory_bytes = ahead.memory_bytes;
    return task;
}

/* ---- granting ---- */

/* Predicted rest of what is at work in a direction, or on the SMs. */
static uint64_t busy_ns(const struct weir_sched *sched, enum weir_sched_resource resource)
{
    uint64_t sum_ns = 0;

    for (const struct item *i = sched->front_first[resource]; i != NULL; i = i->front_next) {
        uint64_t served =
            resource == WEIR_SCHED_COMPUTE ? i->served_ns / sched->config.sms : i->served_ns;

        sum_ns += i->counted_ns - min_u64(served, i->counted_ns);
    }
    return sum_ns;
}

static void grant_copy(struct weir_sched *sched, struct queue *queue)
{
    static const struct weir_sched_place anywhere;

    item_start(sched, queue->listed, &anywhere);
    tenant_refresh(sched, queue->tenant);
}

/* The first queue of a list that has room for more of its own. */
static struct queue *first_with_room(const struct weir_sched *sched, enum weir_sched_resource way,
                                     uint64_t bound_ns)
{
    for (struct queue *queue = sched->copy_first[way]; queue != NULL; queue = queue->list_next) {
        if (queue->on_device == 0 || queue_rest_ns(sched, queue) < bound_ns) {
            return queue;
        }
    }
    return NULL;
}

/* Somebody of a lower class has waited too long: its queue, once each starve_ns at most. */
static struct queue *starved(struct weir_sched *sched, enum weir_sched_resource way)
{
    struct queue *oldest = sched->copy_first[way];

    if (sched->now_ns < sched->copy_check_ns[way]) {
        return NULL;
    }
    for (struct queue *queue = oldest; queue != NULL; queue = queue->list_next) {
        oldest = queue->listed->since_ns < oldest->listed->since_ns ? queue : oldest;
    }
    sched->copy_check_ns[way] = oldest->listed->since_ns + sched->config.starve_ns;
    if (sched->now_ns < sched->copy_check_ns[way]) {
        return NULL;
    }
    sched->copy_check_ns[way] = sched->now_ns + RESCUE_SLICE_NS * RESCUE_EVERY;
    return oldest;
}

static void grant_as_they_come(struct weir_sched *sched, enum weir_sched_resource way,
                               uint64_t *wake_ns)
{
    bool contended = sched->copy_tenants[way] > 1;
    uint64_t bound_ns = contended ? sched->config.inflight_ns : sched->config.alone_ns;
    struct queue *queue;
    uint64_t rest_ns;

    queue = starved(sched, way);
    if (queue != NULL) {
        sched->counts.rescues++;
        grant_copy(sched, queue);
    }
    while (sched->copy_first[way] != NULL) {
        rest_ns = busy_ns(sched, way);
        queue = first_with_room(sched, way, bound_ns);
        if (queue == NULL ||
            (contended && sched->front_first[way] != NULL && rest_ns >= bound_ns)) {
            rest_ns = rest_ns > bound_ns + WAKE_MIN_NS ? rest_ns - bound_ns : WAKE_MIN_NS;
            if (sched->front_first[way] != NULL) {
                *wake_ns = min_u64(*wake_ns, sched->now_ns + rest_ns);
            }
            *wake_ns = min_u64(*wake_ns, sched->copy_check_ns[way]);
            return;
        }
        grant_copy(sched, queue);
    }
}

static uint32_t collect(const struct weir_sched *sched, enum weir_sched_resource way,
                        struct weir_policy_task *tasks, struct queue **queues)
{
    uint32_t count = 0;

    for (struct queue *queue = sched->copy_first[way];
         queue != NULL && count < WEIR_POLICY_TASKS_MAX; queue = queue->list_next) {
        if (count > 0 && queue->tenant->view.priority < queues[0]->tenant->view.priority) {
            break;
        }
        if (queue->on_device == 0) {
            queues[count] = queue;
            tasks[count++] = task_ahead(queue);
        }
    }
    return count;
}

/* Which of the tasks; WEIR_POLICY_WAIT: none. */
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

    for (int i = 0; i < RESOURCES; i++) {
        view.busy_ns[i] = busy_ns(sched, (enum weir_sched_resource)i);
    }
    pick = policy->ops->order(policy, &view);
    if (pick >= count && pick != WEIR_POLICY_WAIT) {
        policy_blame(sched, WEIR_POLICY_ORDER, MISTAKE_NONSENSE, "named no task", NULL);
        pick = 0;
    }
    return pick;
}

static void grant_in_order(struct weir_sched *sched, enum weir_sched_resource way,
                           uint64_t *wake_ns)
{
    struct weir_policy_task tasks[WEIR_POLICY_TASKS_MAX];
    struct queue *queues[WEIR_POLICY_TASKS_MAX];

    while (sched->copies_on[way] < ORDERED_ON_DEVICE) {
        struct queue *queue = starved(sched, way);
        uint32_t count;
        uint32_t pick;

        if (queue != NULL) {
            policy_blame(sched, WEIR_POLICY_ORDER, MISTAKE_STARVED, "let somebody wait",
                         queue->tenant);
            sched->counts.rescues++;
            grant_copy(sched, queue);
            continue;
        }
        count = collect(sched, way, tasks, queues);
        pick = count > 0 ? ask_order(sched, way, tasks, count) : WEIR_POLICY_WAIT;
        if (pick == WEIR_POLICY_WAIT) {
            if (sched->copy_first[way] != NULL) {
                *wake_ns = min_u64(*wake_ns, sched->copy_check_ns[way]);
            }
            return;
        }
        grant_copy(sched, queues[pick]);
    }
}

void copies_decide(struct weir_sched *sched, uint64_t *wake_ns)
{
    for (int way = WEIR_SCHED_TO_DEVICE; way < RESOURCES; way++) {
        if (sched->copy_first[way] == NULL) {
            continue;
        }
        if (sched->policy[WEIR_POLICY_ORDER].ops != NULL) {
            grant_in_order(sched, (enum weir_sched_resource)way, wake_ns);
        } else {
            grant_as_they_come(sched, (enum weir_sched_resource)way, wake_ns);
        }
    }
}
