/*
 * The turn, and its group: the leader and the tenants that share the device with it, each with its
 * place.
 *
 * There are three kinds of groups: the leader alone; a leader with an SM limit beside the tenants
 * that wait longest for the SMs that the limit leaves; a group that the policy `together` makes.
 * group_account.c makes sure that no tenant loses by the last kind.
 */
#include "sched/private.h"

static void group_clear(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;

    for (uint32_t i = 0; i < turn->members; i++) {
        turn->member[i].tenant->view.member = false;
    }
    turn->members = 0;
    turn->sample = false;
    turn->beside = false;
    turn->valid_until_ns = 0;
    turn->hold_ns = 0;
    turn->by_work = turn->quiet = false;
}

static void group_join(struct weir_sched *sched, struct tenant *tenant,
                       const struct weir_sched_place *place)
{
    struct turn *turn = &sched->turn;
    uint32_t i = turn->members++;

    tenant->view.member = true;
    turn->member[i] =
        (struct turn_member){.tenant = tenant, .place = *place, .key = tenant->view.kernel.key};
}

static struct weir_sched_place whole(const struct weir_sched *sched, const struct tenant *tenant)
{
    uint32_t sms = tenant->view.sm_limit;

    return (struct weir_sched_place){.sm_count = sms < sched->config.sms ? sms : 0};
}

void group_alone(struct weir_sched *sched)
{
    group_clear(sched);
    if (sched->turn.leader) {
        struct weir_sched_place place = whole(sched, sched->turn.leader);

        group_join(sched, sched->turn.leader, &place);
    }
}

void turn_begin(struct weir_sched *sched, struct tenant *leader, uint64_t slice_ns,
                uint64_t keep_ns)
{
    struct turn *turn = &sched->turn;

    sched->counts.switches += leader != turn->leader;
    turn->leader = leader;
    turn->slice_ns = slice_ns;
    turn->used_ns = 0;
    turn->linger_ns = 0;
    turn->linger_until_ns = 0;
    turn->keep_ns = keep_ns;
    turn->kept_until_ns = 0;
    turn->rescue = false;
    turn->clear_by_ns = sched->now_ns + tuning.wait_max_ns;
    fill_begin(sched);
    trace(sched, WEIR_SCHED_REC_CHOOSE, leader, NULL, NULL, slice_ns);
}

void turn_forget(struct weir_sched *sched, const struct tenant *tenant)
{
    struct turn *turn = &sched->turn;

    for (uint32_t i = 0; i < turn->members; i++) {
        if (turn->member[i].tenant == tenant) {
            turn->leader = NULL;
            group_alone(sched);
        }
    }
    if (turn->filler == tenant) {
        turn->filler = NULL;
    }
    if (sched->alone.sole == tenant) {
        sched->alone.sole = NULL;
    }
}

/* Is an unmovable compute item of the tenant listed? It may use any SM. */
static bool wants_all(const struct tenant *tenant)
{
    const struct queue *queue = tenant->queues;

    while (queue && (!queue->listed || !is_compute(queue->listed) ||
                     (queue->listed->params.flags & WEIR_SCHED_MOVABLE) != 0)) {
        queue = queue->next;
    }
    return queue != NULL;
}

/* The most SMs that the limits of a tenant and its queues allow its movable work. */
static uint32_t widest(const struct tenant *tenant)
{
    uint32_t sms = 0;

    for (const struct queue *queue = tenant->queues; queue; queue = queue->next) {
        sms = limit_sms(queue) > sms ? limit_sms(queue) : sms;
    }
    return sms;
}

/* Does the leader's limit leave SMs that others can use? */
static bool leaves_sms(const struct weir_sched *sched)
{
    const struct tenant *leader = sched->turn.leader;

    return leader->bound.limits != 0 && !leader->exclusive && widest(leader) < sched->config.sms &&
           leader->view.kernel.movable && !wants_all(leader) && sched->env.resize;
}

/* May the new leader stay in a group that was made because of SM limits? */
static bool stays_beside(const struct weir_sched *sched, uint32_t at)
{
    return leaves_sms(sched) && sched->turn.member[at].place.sm_count == widest(sched->turn.leader);
}

/* Does the group continue under a new leader? It does if the new leader is a member, and the group
 * is valid for a time (valid_until_ns) or was made because of SM limits. */
bool group_keeps(struct weir_sched *sched, const struct tenant *leader)
{
    struct turn *turn = &sched->turn;
    uint32_t at = 0;

    while (at < turn->members && turn->member[at].tenant != leader) {
        at++;
    }
    if (at == turn->members ||
        (turn->beside ? !stays_beside(sched, at) : sched->now_ns >= turn->valid_until_ns)) {
        return false;
    }
    if (at != 0) { /* the leader is the first */
        struct turn_member first = turn->member[0];

        turn->member[0] = turn->member[at];
        turn->member[at] = first;
    }
    return true;
}

/* Can a tenant work in a range of SMs beside the leader? */
static bool suits(const struct weir_sched *sched, const struct tenant *tenant)
{
    return tenant->is_ready && !tenant->exclusive && tenant->view.kernel.movable &&
           !wants_all(tenant) && is_beside(tenant, sched->turn.leader);
}

static bool goes_before(const struct weir_policy_tenant *a, const struct weir_policy_tenant *b)
{
    return a->priority != b->priority ? a->priority > b->priority
                                      : a->waiting_since_ns < b->waiting_since_ns;
}

/*
 * Find the next tenant to get some of `sms` SMs: the one of the highest class that has waited
 * longest; NULL: none. Work that can be moved but not stopped runs in a context with a fixed share
 * of the SMs, whatever its place, so there must be room for that whole share.
 */
static struct tenant *next_beside(struct weir_sched *sched, uint32_t sms)
{
    struct tenant *best = NULL;

    for (uint32_t i = 0; i < sched->ready.count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.list[i]);

        view_refresh(sched, tenant);
        if (!tenant->view.member && suits(sched, tenant) &&
            (tenant->view.kernel.stoppable || widest(tenant) <= sms) &&
            (!best || goes_before(&tenant->view, &best->view))) {
            best = tenant;
        }
    }
    return best;
}

/* Find the next range of SMs, from *first on, that no member has. *first is moved behind the
 * range. */
static struct weir_sched_place free_from(const struct weir_sched *sched, uint32_t *first)
{
    const struct turn *turn = &sched->turn;
    struct weir_sched_place place = {.sm_first = *first};
    uint32_t behind = sched->config.sms;

    for (uint32_t i = 0; i < turn->members; i++) {
        const struct weir_sched_place *other = &turn->member[i].place;

        if (other->sm_first <= place.sm_first &&
            place.sm_first < other->sm_first + other->sm_count) {
            place.sm_first = other->sm_first + other->sm_count;
            i = UINT32_MAX; /* from the beginning */
        }
    }
    for (uint32_t i = 0; i < turn->members; i++) {
        if (turn->member[i].place.sm_first > place.sm_first &&
            turn->member[i].place.sm_first < behind) {
            behind = turn->member[i].place.sm_first;
        }
    }
    place.sm_count = behind - place.sm_first;
    *first = behind;
    return place;
}

/* Find the largest range of SMs that no member has; sm_count 0: there is none. */
static struct weir_sched_place free_sms(const struct weir_sched *sched)
{
    struct weir_sched_place best = {0};
    uint32_t first = 0;

    while (first < sched->config.sms) {
        struct weir_sched_place place = free_from(sched, &first);

        best = place.sm_count > best.sm_count ? place : best;
    }
    return best;
}

/* Let other tenants join, to use the SMs that the members' limits leave free. */
static void group_fill(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;
    struct weir_sched_place place;
    struct tenant *next;

    if (turn->members == 1) {
        turn->member[0].place = (struct weir_sched_place){.sm_count = widest(turn->leader)};
    }
    while (turn->members < WEIR_POLICY_GROUP_MAX && (place = free_sms(sched)).sm_count != 0 &&
           (next = next_beside(sched, place.sm_count))) {
        uint32_t most = widest(next);

        place.sm_count = WEIR_MIN(most, place.sm_count);
        group_join(sched, next, &place);
    }
    turn->beside = turn->members > 1;
}

void group_of(struct weir_sched *sched)
{
    group_alone(sched);
    view_refresh(sched, sched->turn.leader);
    if (leaves_sms(sched)) {
        group_fill(sched);
    }
}

/* Remove members that have no work for their SMs; the others stay where they are. */
static void drop_idle(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;
    uint32_t left = 1; /* the leader stays */

    for (uint32_t i = 1; i < turn->members; i++) {
        struct tenant *tenant = turn->member[i].tenant;

        view_refresh(sched, tenant);
        tenant->view.member = suits(sched, tenant);
        if (tenant->view.member) {
            turn->member[left++] = turn->member[i];
        }
    }
    turn->members = left;
}

/* Is a member beside the leader of a lower class than a tenant that has no SMs? */
static bool is_lower_beside(struct weir_sched *sched)
{
    const struct turn *turn = &sched->turn;
    const struct tenant *next = next_beside(sched, sched->config.sms);
    uint32_t i = 1;

    while (i < turn->members &&
           (!next || turn->member[i].tenant->view.priority >= next->view.priority)) {
        i++;
    }
    return i < turn->members;
}

/* Update the group of a leader with an SM limit. If its next item cannot be moved, the leader has
 * the device alone, and its limit bounds its time. Otherwise other tenants join and leave. */
void group_outgrown(struct weir_sched *sched)
{
    struct turn *turn = &sched->turn;
    struct tenant *leader = turn->leader;

    if (!leader || !leader->is_ready) {
        return;
    }
    if (turn->beside || (turn->members == 1 && leader->bound.limits != 0)) {
        view_refresh(sched, leader);
        if (!leaves_sms(sched)) {
            if (turn->beside) {
                group_alone(sched);
            }
        } else if (turn->members > 1 &&
                   (turn->member[0].place.sm_count != widest(leader) || is_lower_beside(sched))) {
            group_of(sched);
        } else {
            drop_idle(sched);
            group_fill(sched);
        }
    }
}

/* Must the policy be asked for the group again? */
bool group_is_over(struct weir_sched *sched)
{
    const struct turn *turn = &sched->turn;
    bool tried = turn->sample;

    if (!sched->policy[WEIR_POLICY_TOGETHER].ops || turn->beside || turn->rescue || !turn->leader ||
        !turn->leader->is_ready) {
        return false;
    }
    if (group_settle(sched)) {
        return true;
    }
    for (uint32_t i = 0; i < turn->members; i++) {
        struct tenant *tenant = turn->member[i].tenant;

        view_refresh(sched, tenant);
        if ((!tenant->is_ready && !group_is_held(sched)) ||
            (tenant->view.kernel.key != turn->member[i].key && turn->valid_until_ns == 0)) {
            return true;
        }
        tried &= turn->member[i].tried;
    }
    return tried ||
           (turn->valid_until_ns != 0 ? sched->now_ns >= turn->valid_until_ns : sched->news.group);
}

static bool place_is_sound(const struct weir_sched *sched, const struct weir_sched_place *place)
{
    uint32_t sms = sched->config.sms;

    return place->sm_first < sms && place->sm_count <= sms &&
           place->sm_first + place->sm_count <= sms &&
           (place->sm_count != 0 || place->sm_first == 0) &&
           place->block_limit <= WEIR_POLICY_BLOCKS_MAX;
}

static bool group_is_sound(const struct weir_sched *sched, const struct weir_policy_group *group)
{
    if (group->count < 1 || group->count > WEIR_POLICY_GROUP_MAX || group->member[0].ready != 0) {
        return false;
    }
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->member[i].ready >= sched->ready.order_count ||
            !place_is_sound(sched, &group->member[i].place)) {
            return false;
        }
        WEIR_FAIL_IF(WEIR_ANY(k, i, group->member[k].ready == group->member[i].ready), false);
    }
    return true;
}

/* Set sched->ready.order to the leader and the tenants that a policy may put into its group. */
static void order_joiners(struct weir_sched *sched)
{
    const struct tenant *leader = sched->turn.leader;
    uint32_t count = 1;

    sched->ready.order[0] = &leader->view;
    for (uint32_t i = 0; i < sched->ready.count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.list[i]);

        view_refresh(sched, tenant);
        if (tenant != leader && !tenant->exclusive && !leader->exclusive &&
            is_beside(tenant, leader) && tenant->view.priority == leader->view.priority &&
            !group_is_barred(sched, tenant)) {
            sched->ready.order[count++] = sched->ready.list[i];
        }
    }
    sched->ready.order_count = count;
}

/* Form the group that the policy chose, with places cut to the tenants' limits. */
static void group_take(struct weir_sched *sched, const struct weir_policy_group *group)
{
    group_clear(sched);
    for (uint32_t i = 0; i < group->count; i++) {
        struct tenant *tenant = tenant_of(sched->ready.order[group->member[i].ready]);
        struct weir_sched_place place = group->member[i].place;
        uint32_t sms = place.sm_count != 0 ? place.sm_count : sched->config.sms;

        if (sms > tenant->view.sm_limit) {
            place.sm_count = tenant->view.sm_limit;
        }
        group_join(sched, tenant, &place);
    }
    sched->turn.sample = group->sample;
    if (group->valid_ns != 0) {
        uint64_t valid_ns = WEIR_MAX(group->valid_ns, SLICE_MIN_NS);

        sched->turn.valid_until_ns = sched->now_ns + min_u64(valid_ns, SLICE_MAX_NS);
        sched->turn.hold_ns = group->hold_ns;
        sched->turn.by_work = group->by_work;
        sched->turn.quiet = group->quiet;
    }
}

void group_ask(struct weir_sched *sched)
{
    struct weir_policy *policy = &sched->policy[WEIR_POLICY_TOGETHER];
    const struct weir_policy *next = &sched->policy[WEIR_POLICY_NEXT];
    struct turn *turn = &sched->turn;
    struct weir_policy_group plain = {.count = 1};

    order_joiners(sched);
    struct weir_policy_together_view view = (struct weir_policy_together_view){
        .now_ns = sched->now_ns,
        .ready = sched->ready.order,
        .ready_count = sched->ready.order_count,
        .behind_ns = next->ops->lag_ns ? next->ops->lag_ns(next, &turn->leader->view) : 0,
    };
    plain.member[0].place = whole(sched, turn->leader);
    struct weir_policy_group group = plain;
    sched->news.group = false;
    if (group_is_barred(sched, turn->leader)) {
        group_take(sched, &plain);
        return;
    }
    policy->ops->together(policy, &view, &group);
    if (!group_is_sound(sched, &group)) {
        policy_blame(sched, WEIR_POLICY_TOGETHER, MISTAKE_NONSENSE, "made no sound group", NULL);
        group = plain;
    }
    group_take(sched, &group);
}
