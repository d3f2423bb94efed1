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
 * one. Only tasks within a re-ordering window are looked at.
 *
 * What differs:
 *
 * - The search may miss what an older rule finds: with the kernels of one task under way and those
 *   of a window far from done, the best order of a set is often no part of the best order of a
 *   larger one (a window of CuMAS's own twelve: 27.0 ms, and 25.5 by Johnson's rule). And more
 *   tasks wait behind the window, which the search knows nothing of. So orders by Johnson's rule,
 *   which has short copies before long kernels go first, are tried as well, and are preferred: the
 *   searched one has to end sooner by 1/64.
 * - The paper gives all copies of a window to the device in the order found, then takes the next
 *   window. Here one copy is given at a time, when the one before it is nearly done, and whoever
 *   is next in line takes its place in the window (8 unless set: beyond it, the paper says,
 *   searching costs more than it wins). The window is ordered anew for each, by what is under way
 *   by then. What is left of a window is never put before better ones that wait behind it. No
 *   task is overtaken by more than three windows have.
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
 * Source: CuMAS (ICS 2016) 3.1, 3.2 (tasks, window), 4.2 to 4.4 (model, search); Johnson (1954);
 * Campbell, Dudek and Smith (1970)
 */
#include "sched/policy/overlap.h"
#include "sched/policy.h"
#include <stdbool.h>
#include <string.h>

/* Time of a step of the search; a window of n tasks takes n * 2^n steps: 30 us with 8. */
#define STEP_NS       15u
#define WORTH         64u /* a window with less work than so many searches take is not ordered */
#define SOONER        64u /* a searched order must end 1/SOONER sooner than the order by rule */
#define OVERTAKEN_MAX 3u  /* most tasks that overtake one, in windows: fewer give longer orders */

/* The best order of a subset: when each resource is free, and the last task. */
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
 * The time when there is memory for a task behind the best order of `set`. From the last task
 * backwards, the first one that does not fit beside the others must have ended before. Ends in an
 * order never decrease.
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

/* Does order `a` end sooner or, on a tie, leave the other resources sooner? */
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

    /* From the latest arrival on, so that on a tie the earlier arrival goes first. */
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

/* ---- Johnson's rule ---- */

/* A task as two machines see it: the first is the copy to the device, or this and the kernels. */
struct pair {
    uint64_t first_ns, second_ns;
};

/*
 * The pairs of machines that stand for three: the copy to the device and all behind it, or only the
 * kernels; Campbell, Dudek and Smith's sums; the two copies without the kernels.
 */
enum pairing { SEND_REST, SEND_PROCESS, SUMS, SEND_BACK, PAIRINGS };

static struct pair pair_of(const struct overlap_task *task, enum pairing pairing)
{
    uint64_t rest_ns = task->process_ns + task->receive_ns;

    switch (pairing) {
    case SEND_PROCESS:
        return (struct pair){task->send_ns, task->process_ns};
    case SUMS:
        return (struct pair){task->send_ns + task->process_ns, rest_ns};
    case SEND_BACK:
        return (struct pair){task->send_ns, task->receive_ns};
    case SEND_REST:
    case PAIRINGS:
    default:
        return (struct pair){task->send_ns, rest_ns};
    }
}

/* Johnson's rule: first the tasks whose second part is longer than the first, shortest first part
 * ahead; then the others, longest second part ahead. */
static bool goes_before(struct pair a, struct pair b)
{
    bool a_gives = a.first_ns < a.second_ns;
    bool b_gives = b.first_ns < b.second_ns;

    if (a_gives != b_gives) {
        return a_gives;
    }
    return a_gives ? a.first_ns < b.first_ns : a.second_ns > b.second_ns;
}

static void order_by_rule(const struct overlap_task *tasks, uint32_t count, enum pairing pairing,
                          uint8_t *ret_order)
{
    for (uint32_t i = 0; i < count; i++) { /* on a tie the earlier arrival goes first */
        struct pair own = pair_of(&tasks[i], pairing);
        uint32_t at = i;

        for (; at > 0 && goes_before(own, pair_of(&tasks[ret_order[at - 1]], pairing)); at--) {
            ret_order[at] = ret_order[at - 1];
        }
        ret_order[at] = (uint8_t)i;
    }
}

uint64_t overlap_order_by_rules(const struct overlap_task *tasks, uint32_t count,
                                const struct overlap_start *start, uint8_t *ret_order)
{
    uint64_t least_ns = UINT64_MAX;

    for (int i = 0; i < PAIRINGS; i++) {
        uint8_t order[OVERLAP_TASKS_MAX];
        uint64_t total_ns;

        order_by_rule(tasks, count, (enum pairing)i, order);
        total_ns = overlap_total_ns(tasks, count, start, order);
        if (total_ns < least_ns) {
            least_ns = total_ns;
            memcpy(ret_order, order, count);
        }
    }
    return least_ns;
}

/* ---- the window ---- */

struct waiting {
    weir_sched_id item;
    uint32_t overtaken; /* how many tasks have overtaken it */
};

struct overlap {
    struct waiting window[OVERLAP_TASKS_MAX]; /* in the order of arrival */
    uint32_t count;
    weir_sched_id order[OVERLAP_TASKS_MAX]; /* last order found; some items may be gone */
    uint32_t ordered;
    bool used; /* an item of `order` was named, so the work under way has changed */
};

static const struct waiting *find_waiting(const struct overlap *overlap, weir_sched_id item)
{
    for (uint32_t i = 0; i < overlap->count; i++) {
        if (overlap->window[i].item == item) {
            return &overlap->window[i];
        }
    }
    return NULL;
}

/* Set the window to the first waiting tasks. @return whether it has new ones */
static bool move_window(struct overlap *overlap, uint32_t window,
                        const struct weir_policy_order_view *view)
{
    struct waiting now[OVERLAP_TASKS_MAX];
    uint32_t count = view->task_count < window ? view->task_count : window;
    bool grown = false;

    for (uint32_t i = 0; i < count; i++) {
        const struct waiting *before = find_waiting(overlap, view->tasks[i].item);

        now[i] = before ? *before : (struct waiting){.item = view->tasks[i].item};
        grown |= !before;
    }
    memcpy(overlap->window, now, count * sizeof(*now));
    overlap->count = count;
    return grown;
}

static bool fits(const struct weir_policy_order_view *view, const struct weir_policy_task *task)
{
    return view->memory_limit_bytes == 0 || view->memory_used_bytes == 0 ||
           view->memory_used_bytes + task->memory_bytes <= view->memory_limit_bytes;
}

/* Find the order of the tasks: by rule, unless a search finds one that is enough sooner. */
static void find_order(const struct overlap_task *tasks, uint32_t count,
                       const struct overlap_start *start, uint8_t *ret_order)
{
    uint8_t searched[OVERLAP_TASKS_MAX];
    uint64_t rule_ns = overlap_order_by_rules(tasks, count, start, ret_order);

    if (overlap_search(tasks, count, start, searched) < rule_ns - rule_ns / SOONER) {
        memcpy(ret_order, searched, count);
    }
}

/* Order the window. */
static void arrange(struct overlap *overlap, const struct weir_policy_order_view *view)
{
    struct overlap_task tasks[OVERLAP_TASKS_MAX];
    struct overlap_start start = {
        .send_ns = view->busy_ns[WEIR_SCHED_TO_DEVICE],
        .process_ns = view->busy_ns[WEIR_SCHED_COMPUTE],
        .receive_ns = view->busy_ns[WEIR_SCHED_FROM_DEVICE],
        .memory_used_bytes = view->memory_used_bytes,
        .memory_limit_bytes = view->memory_limit_bytes,
    };
    uint8_t order[OVERLAP_TASKS_MAX];
    uint32_t count = overlap->count;
    uint64_t all_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct weir_policy_task *task = &view->tasks[i];

        order[i] = (uint8_t)i;
        tasks[i] = (struct overlap_task){.send_ns = task->to_device_ns,
                                         .process_ns = task->compute_ns,
                                         .receive_ns = task->from_device_ns,
                                         .memory_bytes = task->memory_bytes};
        all_ns += task->to_device_ns + task->compute_ns + task->from_device_ns;
    }
    if (count > 1 && all_ns >= WORTH * STEP_NS * (count << count)) {
        find_order(tasks, count, &start, order);
    }
    overlap->used = false;
    overlap->ordered = count;
    for (uint32_t i = 0; i < count; i++) {
        overlap->order[i] = view->tasks[order[i]].item;
    }
}

/* The first item of the order that still waits and for which there is memory. */
static uint32_t first_that_fits(const struct overlap *overlap,
                                const struct weir_policy_order_view *view)
{
    for (uint32_t i = 0; i < overlap->ordered; i++) {
        for (uint32_t k = 0; k < overlap->count; k++) {
            if (view->tasks[k].item == overlap->order[i] && fits(view, &view->tasks[k])) {
                return k;
            }
        }
    }
    return WEIR_POLICY_WAIT;
}

static uint32_t overlap_order(struct weir_policy *self, const struct weir_policy_order_view *view)
{
    uint32_t window = self->config->order_window;
    struct overlap *overlap = self->state;
    uint32_t pick;

    if (view->direction != WEIR_SCHED_TO_DEVICE) {
        return 0;
    }
    if (move_window(overlap, window, view) || overlap->used) {
        arrange(overlap, view);
    }
    pick = overlap->window[0].overtaken >= OVERTAKEN_MAX * window && fits(view, &view->tasks[0])
               ? 0
               : first_that_fits(overlap, view);
    overlap->used = pick != WEIR_POLICY_WAIT;
    for (uint32_t i = 0; i < pick && i < overlap->count && pick != WEIR_POLICY_WAIT; i++) {
        overlap->window[i].overtaken++;
    }
    return pick;
}

const struct weir_policy_ops weir_policy_overlap = {
    .name = "overlap",
    .kind = WEIR_POLICY_ORDER,
    .state_bytes = sizeof(struct overlap),
    .order = overlap_order,
};
