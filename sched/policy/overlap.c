/*
 * overlap: the order of tasks that lets copies in both directions run beside others' kernels.
 *
 * CuMAS takes the calls of an application as tasks [s, p, r]: copies to the device, kernels, copies
 * back. Each of the three has its resource, which serves one task at a time, all in one order: a
 * flow shop with three machines, whose order decides how long resources wait for each other.
 *
 *     to the device    aaaabcc             baaaacc
 *     kernels          ....abbbbbc         .bbbbbac
 *     from the device  .....a....bc        ......bac
 *
 * The best order of a set U of tasks is taken to be the best of: one of them last, the best order
 * of the others before it (Held and Karp, with the end of each resource carried along instead of
 * the delays of the paper's equations 1 and 2, which are their differences). That is near the
 * optimum, not always at it, since the best order of the others need not be what suits the last
 * one. Only tasks within a re-ordering window are looked at, and no task is overtaken by more than
 * a window has.
 *
 * What differs:
 *
 * - The paper gives all copies of a window to the device in the order found. Here one copy is given
 *   at a time (two are on the device), and what is left of the window is ordered again together
 *   with what has come in the meantime, as long as the window has had fewer than `order_window`
 * tasks (8 unless set: beyond it, the paper says, searching costs more than it wins).
 * - A task is what waits in a queue: of what the live host does not know yet (kernels that come
 *   behind a copy which the guest waits for) the length is that of the queue's last task.
 * - An order that needs more memory than there is, is not dropped but waits until enough is free
 *   again: then every set has an order.
 * - Where all that could be won is less than finding it costs, the order is that of arrival.
 * - Copies back go in the order in which they could begin: their resource is the last one, and any
 *   order without gaps ends at the same time.
 *
 * Kernels are ordered by the policies `next` and `together`; that the first task to have its data
 * is the first to have the SMs is the common case, and what the search assumes.
 *
 * Source: CuMAS (ICS 2016) 3.1, 3.2 (tasks, window), 4.2 to 4.4 (model, search)
 */
#include "sched/policy/overlap.h"
#include "sched/policy.h"
#include <stdbool.h>

/* A window of less work than that in all is not worth ordering: a search of 8 takes up to 30 us. */
#define WORTH_NS 500000u

/* The best order of a subset: where each resource ends, and who is last. */
struct best {
    uint64_t send_ns, process_ns, receive_ns;
    uint8_t last;
};

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_over(const struct overlap_start *start, uint64_t bytes)
{
    return start->memory_limit_bytes != 0 && bytes > start->memory_limit_bytes;
}

static struct best before_all(const struct overlap_start *start)
{
    return (struct best){.send_ns = start->send_ns,
                         .process_ns = start->process_ns,
                         .receive_ns = start->receive_ns};
}

static struct best append(const struct best *before, const struct overlap_task *task,
                          uint64_t memory_at_ns)
{
    struct best after;

    after.send_ns = max_u64(before->send_ns, memory_at_ns) + task->send_ns;
    after.process_ns = max_u64(before->process_ns, after.send_ns) + task->process_ns;
    after.receive_ns = max_u64(before->receive_ns, after.process_ns) + task->receive_ns;
    return after;
}

/*
 * When there is memory for a task behind the best order of `set`: who ends last there is looked at
 * first, and whoever does not fit beside it has to have ended. Ends of an order never decrease.
 */
static uint64_t memory_free_ns(const struct overlap_task *tasks, const struct overlap_start *start,
                               const struct best *best, uint32_t set, uint64_t bytes)
{
    uint64_t held_bytes = bytes;

    while (set != 0) {
        held_bytes += tasks[best[set].last].memory_bytes;
        if (is_over(start, held_bytes)) {
            return best[set].receive_ns;
        }
        set &= ~(1u << best[set].last);
    }
    held_bytes += start->memory_used_bytes;
    return is_over(start, held_bytes) && start->memory_used_bytes > 0
               ? max_u64(start->send_ns, max_u64(start->process_ns, start->receive_ns))
               : 0;
}

/* Sooner done; else sooner ready for the next. */
static bool is_better(const struct best *a, const struct best *b)
{
    if (a->receive_ns != b->receive_ns) {
        return a->receive_ns < b->receive_ns;
    }
    return a->process_ns != b->process_ns ? a->process_ns < b->process_ns : a->send_ns < b->send_ns;
}

static void search_set(const struct overlap_task *tasks, const struct overlap_start *start,
                       struct best *best, uint32_t set)
{
    bool found = false;

    /* From the last to come on: among equals who came first goes first. */
    for (uint32_t left = set; left != 0;) {
        uint32_t k = 31u - (uint32_t)__builtin_clz(left);
        uint32_t others = set & ~(1u << k);
        uint64_t free_ns = start->memory_limit_bytes != 0
                               ? memory_free_ns(tasks, start, best, others, tasks[k].memory_bytes)
                               : 0;
        struct best with = append(&best[others], &tasks[k], free_ns);

        left &= ~(1u << k);
        if (!found || is_better(&with, &best[set])) {
            best[set] = with;
            best[set].last = (uint8_t)k;
            found = true;
        }
    }
}

uint64_t overlap_search(const struct overlap_task *tasks, uint32_t count,
                        const struct overlap_start *start, uint8_t *ret_order)
{
    struct best best[1u << OVERLAP_TASKS_MAX];
    uint32_t all = (1u << count) - 1;
    uint64_t total_ns;

    best[0] = before_all(start);
    for (uint32_t set = 1; set <= all; set++) { /* subsets of a set come before it */
        search_set(tasks, start, best, set);
    }
    total_ns = best[all].receive_ns;
    for (uint32_t i = count; i > 0; i--) {
        ret_order[i - 1] = best[all].last;
        all &= ~(1u << best[all].last);
    }
    return total_ns;
}

uint64_t overlap_total_ns(const struct overlap_task *tasks, uint32_t count,
                          const struct overlap_start *start, const uint8_t *order)
{
    struct best best[1u << OVERLAP_TASKS_MAX];
    uint32_t set = 0;

    best[0] = before_all(start);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t with = set | 1u << order[i];

        best[with] = append(&best[set], &tasks[order[i]],
                            memory_free_ns(tasks, start, best, set, tasks[order[i]].memory_bytes));
        best[with].last = order[i];
        set = with;
    }
    return best[set].receive_ns;
}

/* ---- the window ---- */

struct overlap {
    weir_sched_id
        item[OVERLAP_TASKS_MAX]; /* the window, in the order found; who came since at the end */
    uint32_t count;
    uint32_t admitted; /* since it was last empty */
    bool grown;        /* since it was ordered */
};

static uint32_t index_of(const struct weir_policy_order_view *view, weir_sched_id item)
{
    uint32_t i = 0;

    while (i < view->task_count && view->tasks[i].item != item) {
        i++;
    }
    return i;
}

static bool is_in(const struct overlap *overlap, weir_sched_id item)
{
    for (uint32_t i = 0; i < overlap->count; i++) {
        if (overlap->item[i] == item) {
            return true;
        }
    }
    return false;
}

/* Who was granted, or went, is out; who came is in, until the window has had its tasks. */
static void move_window(struct overlap *overlap, uint32_t window,
                        const struct weir_policy_order_view *view, uint32_t *ret_index)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < overlap->count; i++) {
        uint32_t at = index_of(view, overlap->item[i]);

        if (at < view->task_count) {
            overlap->item[kept] = overlap->item[i];
            ret_index[kept++] = at;
        }
    }
    overlap->count = kept;
    overlap->admitted = kept == 0 ? 0 : overlap->admitted;
    for (uint32_t i = 0; i < view->task_count && overlap->admitted < window; i++) {
        if (!is_in(overlap, view->tasks[i].item)) {
            overlap->item[overlap->count] = view->tasks[i].item;
            ret_index[overlap->count++] = i;
            overlap->admitted++;
            overlap->grown = true;
        }
    }
}

static bool fits(const struct weir_policy_order_view *view, const struct weir_policy_task *task)
{
    return view->memory_limit_bytes == 0 || view->memory_used_bytes == 0 ||
           view->memory_used_bytes + task->memory_bytes <= view->memory_limit_bytes;
}

/* Put the window, whose tasks are at `index`, into the order that a search finds. */
static void arrange(struct overlap *overlap, const struct weir_policy_order_view *view,
                    uint32_t *index)
{
    struct overlap_task tasks[OVERLAP_TASKS_MAX];
    struct overlap_start start = {
        .send_ns = view->busy_ns[WEIR_SCHED_TO_DEVICE],
        .process_ns = view->busy_ns[WEIR_SCHED_COMPUTE],
        .receive_ns = view->busy_ns[WEIR_SCHED_FROM_DEVICE],
        .memory_used_bytes = view->memory_used_bytes,
        .memory_limit_bytes = view->memory_limit_bytes,
    };
    uint32_t found[OVERLAP_TASKS_MAX];
    uint8_t order[OVERLAP_TASKS_MAX];
    uint64_t all_ns = 0;

    overlap->grown = false;
    for (uint32_t i = 0; i < overlap->count; i++) {
        const struct weir_policy_task *task = &view->tasks[index[i]];

        tasks[i] = (struct overlap_task){.send_ns = task->to_device_ns,
                                         .process_ns = task->compute_ns,
                                         .receive_ns = task->from_device_ns,
                                         .memory_bytes = task->memory_bytes};
        all_ns += task->to_device_ns + task->compute_ns + task->from_device_ns;
    }
    if (overlap->count < 2 || all_ns < WORTH_NS) {
        return;
    }
    overlap_search(tasks, overlap->count, &start, order);
    for (uint32_t i = 0; i < overlap->count; i++) {
        found[i] = index[order[i]];
    }
    for (uint32_t i = 0; i < overlap->count; i++) {
        index[i] = found[i];
        overlap->item[i] = view->tasks[found[i]].item;
    }
}

static uint32_t overlap_order(struct weir_policy *self, const struct weir_policy_order_view *view)
{
    uint32_t index[OVERLAP_TASKS_MAX] = {0};
    struct overlap *overlap = self->state;

    if (view->direction != WEIR_SCHED_TO_DEVICE) {
        return 0;
    }
    move_window(overlap, self->config->order_window, view, index);
    if (overlap->grown) {
        arrange(overlap, view, index);
    }
    for (uint32_t i = 0; i < overlap->count; i++) {
        if (fits(view, &view->tasks[index[i]])) {
            return index[i];
        }
    }
    return WEIR_POLICY_WAIT;
}

const struct weir_policy_ops weir_policy_overlap = {
    .name = "overlap",
    .kind = WEIR_POLICY_ORDER,
    .state_bytes = sizeof(struct overlap),
    .order = overlap_order,
};
