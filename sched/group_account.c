/*
 * Compare the work that tenants get done in a policy's group with what turns would give them.
 *
 * A policy's group may suit two kernels but not their tenants' weights, or be a mistake: a kernel
 * that finds no room on the SMs beside another's does not progress while they are together, and the
 * watchdog cannot see that, since its tenant has nothing waiting. So the core keeps an account of
 * each member. In turns a member would work for its weight's part of the time. The work that it got
 * done is measured by the time that its kernels are known to take alone:
 *
 *     owed = its part of the time  -  what it got done
 *
 * The core assumes that a kernel on the device is as fast as alone until it has had its known time,
 * and does not progress after that. When the kernel ends or has stopped, its progress is known, and
 * the account is corrected.
 *
 * When a member is owed too much, the group ends and the accounts are settled. The members take
 * turns, as their policy `next` says, until both of these are true:
 *
 *   - members that got more done than their part have paid it back to those that got less;
 *   - the loss of all members together is at most 1/error_part of the time.
 *
 * A member keeps what it gains by sharing: the others are not owed for it.
 *
 * While the group has the device its members pay for it by weight, whatever places they have. If
 * they paid by places, a policy could make one of two equals pay for three quarters of the device,
 * and that tenant would wait accordingly longer for its turns after the group.
 */
#include "sched/private.h"

/* Has the turn a group of several members that a policy has made? */
static bool group_is_policys(const struct weir_sched *sched)
{
    return (sched->turn.members > 1 && !sched->turn.beside) || sched->turn.by_work;
}

bool group_is_barred(const struct weir_sched *sched, const struct tenant *tenant)
{
    return sched->now_ns < tenant->grouped.barred_until_ns;
}

static int64_t added(int64_t ns, double more_ns, int64_t least_ns)
{
    double sum_ns = (double)ns + more_ns;

    return sum_ns > (double)least_ns ? (int64_t)sum_ns : least_ns;
}

static void owe(struct tenant *tenant, double more_ns)
{
    tenant->grouped.owed_ns = added(tenant->grouped.owed_ns, more_ns, -(int64_t)tuning.slack_ns);
    tenant->grouped.lost_ns = added(tenant->grouped.lost_ns, more_ns, -tuning.group_trial_owed_ns);
}

static struct turn_member *member_of(struct turn *turn, const struct tenant *tenant)
{
    uint32_t i = 0;

    while (i < turn->members && turn->member[i].tenant != tenant) {
        i++;
    }
    return i < turn->members ? &turn->member[i] : NULL;
}

void group_serve(struct weir_sched *sched, struct item *item, uint64_t service_ns, uint64_t ns)
{
    struct turn_member *member =
        group_is_policys(sched) ? member_of(&sched->turn, item->queue->tenant) : NULL;
    uint64_t before_ns, hoped_ns;

    if (!member) {
        item->group.late_ns += item->group.by_work ? service_ns : 0;
        return;
    }
    double speed = member->tenant->grouped.speed != 0 ? member->tenant->grouped.speed : 1;
    before_ns = item->had.busy_ns - item->group.ns - ns + item->group.hoped_ns;
    hoped_ns = item->counted_ns > before_ns
                   ? min_u64(item->counted_ns - before_ns, (uint64_t)((double)ns * speed))
                   : 0;
    member->paid_ns += service_ns;
    member->done_ns += hoped_ns;
    item->group.by_work = sched->turn.by_work;
    item->group.ns += ns;
    item->group.hoped_ns += hoped_ns;
    item->group.counted_ns += hoped_ns;
    member->tenant->view.work_ns += hoped_ns;
    owe(member->tenant, -(double)hoped_ns);
}

/* The sum of the weights of members that have work; 0: fewer than two have. */
static double weights_of(const struct turn *turn, uint64_t *ret_paid_ns)
{
    uint32_t count = 0;
    double weights = 0;

    *ret_paid_ns = 0;
    for (uint32_t i = 0; i < turn->members; i++) {
        const struct turn_member *member = &turn->member[i];

        count += member->tenant->is_ready;
        weights += member->tenant->is_ready ? member->tenant->view.weight : 0;
        *ret_paid_ns += member->paid_ns;
    }
    return count > 1 ? weights : 0;
}

void group_pass(struct weir_sched *sched, uint64_t ns)
{
    struct turn *turn = &sched->turn;
    uint64_t paid_ns;

    if (!group_is_policys(sched)) {
        return;
    }
    double weights = weights_of(turn, &paid_ns);
    for (uint32_t i = 0; i < turn->members; i++) {
        struct turn_member *member = &turn->member[i];

        bool counts = weights > 0 && member->tenant->is_ready;
        double part = counts ? member->tenant->view.weight / weights : 0;
        double costs_ns = turn->by_work ? (double)member->done_ns * sched->config.sms
                          : counts      ? part * (double)paid_ns
                                        : (double)member->paid_ns;

        charge_more(member->tenant, (int64_t)costs_ns - (int64_t)member->paid_ns);
        if (counts) {
            owe(member->tenant, part * (double)ns * (tuning.error_part - 1) / tuning.error_part);
        }
        member->paid_ns = member->done_ns = 0;
    }
}

static void note_speed(struct tenant *tenant, double speed)
{
    speed = speed < 1 ? speed : 1;
    tenant->grouped.speed += (speed - tenant->grouped.speed) / (tenant->grouped.speed != 0 ? 2 : 1);
}

void group_correct(const struct weir_sched *sched, struct item *item, uint64_t done_ns)
{
    uint64_t alone_ns = item->had.busy_ns - item->group.ns;

    if (item->group.ns == 0) {
        return;
    }
    if (item->group.by_work) {
        charge_more(item->queue->tenant,
                    ((int64_t)done_ns - (int64_t)item->group.hoped_ns) * sched->config.sms -
                        (int64_t)item->group.late_ns);
        item->group.late_ns = 0;
    }
    done_ns = done_ns > alone_ns ? done_ns - alone_ns : 0;
    note_speed(item->queue->tenant, (double)done_ns / (double)item->group.ns);
    owe(item->queue->tenant, (double)item->group.hoped_ns - (double)done_ns);
    item->group.hoped_ns = done_ns;
}

/* The most that a member may be owed. What it is owed since trials does not end the group that they
 * have found: what it gains there makes up for that. */
static int64_t most_ns(const struct weir_sched *sched, const struct tenant *tenant)
{
    return sched->turn.sample ? tuning.group_trial_owed_ns
                              : (int64_t)tuning.slack_ns + tenant->grouped.tried_ns;
}

/* The work that a member is still owed after its part of the common loss; negative: it owes. */
static double due_ns(const struct turn_member *member, double weights, double lost_ns)
{
    return (double)member->tenant->grouped.lost_ns -
           member->tenant->view.weight / weights * lost_ns;
}

/*
 * Let members that got more done than their part pay those that got less. Then bar all of them from
 * groups until this and their common loss are made up for. A member that gained more than others
 * lost only pays for their loss.
 */
static void settle(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;
    double weights = 0, lost_ns = 0, due = 0, paid = 0, wait_ns;

    for (uint32_t i = 0; i < turn->members; i++) {
        weights += turn->member[i].tenant->view.weight;
        lost_ns += (double)turn->member[i].tenant->grouped.lost_ns;
    }
    lost_ns = lost_ns > 0 ? lost_ns : 0;
    for (uint32_t i = 0; i < turn->members; i++) {
        double ns = due_ns(&turn->member[i], weights, lost_ns);

        due += ns > 0 ? ns : 0;
        paid -= ns < 0 ? ns : 0;
    }
    wait_ns = lost_ns * tuning.error_part / (turn->sample ? 2 : 1);
    for (uint32_t i = 0; i < turn->members; i++) {
        struct tenant *tenant = turn->member[i].tenant;
        double ns = due_ns(&turn->member[i], weights, lost_ns);
        double alone_ns = ns / (1 - tenant->view.weight / weights); /* ns beyond its part take */

        ns *= ns < 0 && paid > due ? due / paid : 1;
        charge_more(tenant, turn->by_work ? 0 : -(int64_t)(ns * sched->config.sms));
        wait_ns = alone_ns > wait_ns ? alone_ns : wait_ns;
    }
    for (uint32_t i = 0; i < turn->members; i++) {
        struct tenant *tenant = turn->member[i].tenant;

        tenant->grouped.owed_ns = tenant->grouped.lost_ns = tenant->grouped.tried_ns = 0;
        tenant->grouped.barred_until_ns =
            sched->now_ns + min_u64((uint64_t)wait_ns, tuning.barred_max_ns);
    }
}

/* During a trial all that a tenant is owed counts as owed by trials. Afterwards that part stays, as
 * long as the tenant is still owed so much. */
static void note_tried(const struct weir_sched *sched, struct tenant *tenant)
{
    int64_t owed_ns = tenant->grouped.owed_ns > 0 ? tenant->grouped.owed_ns : 0;

    if (sched->turn.sample || owed_ns < tenant->grouped.tried_ns) {
        tenant->grouped.tried_ns = owed_ns;
    }
}

bool group_settle(struct weir_sched *sched)
{
    uint32_t i = 0;

    if (!group_is_policys(sched)) {
        return false;
    }
    for (uint32_t k = 0; k < sched->turn.members; k++) {
        note_tried(sched, sched->turn.member[k].tenant);
    }
    while (i < sched->turn.members && sched->turn.member[i].tenant->grouped.owed_ns <=
                                          most_ns(sched, sched->turn.member[i].tenant)) {
        i++;
    }
    if (i == sched->turn.members) {
        return false;
    }
    settle(sched);
    return true;
}

/* When the group ends if this member gets no new work. */
static uint64_t held_until_ns(const struct weir_sched *sched, const struct turn_member *member)
{
    return member->tenant->is_ready ? NEVER : member->tenant->idle_ns + sched->turn.hold_ns;
}

bool group_is_held(const struct weir_sched *sched)
{
    const struct turn *turn = &sched->turn;
    uint32_t i = 0;

    if (turn->members == 0 || turn->hold_ns == 0 || sched->now_ns >= turn->valid_until_ns) {
        return false;
    }
    while (i < turn->members && held_until_ns(sched, &turn->member[i]) > sched->now_ns) {
        i++;
    }
    return i == turn->members;
}

void group_wake(const struct weir_sched *sched, uint64_t *wake_ns)
{
    uint64_t paid_ns;
    double weights = group_is_policys(sched) ? weights_of(&sched->turn, &paid_ns) : 0;

    for (uint32_t i = 0; i < sched->turn.members && weights > 0; i++) {
        const struct tenant *tenant = sched->turn.member[i].tenant;
        double left_ns = (double)(most_ns(sched, tenant) + 1 - tenant->grouped.owed_ns) * weights /
                         tenant->view.weight;

        *wake_ns = min_u64(*wake_ns, sched->now_ns + (uint64_t)left_ns + tuning.wake_min_ns);
    }
    for (uint32_t i = 0; i < sched->turn.members && sched->turn.hold_ns != 0; i++) {
        *wake_ns = min_u64(*wake_ns, held_until_ns(sched, &sched->turn.member[i]));
    }
}
