/*
 * Any events in any order, as workers may report them: ends before earlier ends, of items that
 * wait, stop or are known to nobody, of tenants and queues that come and go. The scheduler is one
 * of a GPU's: its levels, parts of the device, policies and predictor are in use.
 */
#include "sched/policy.h"
#include "sched/predict.h"
#include "sched/sched.h"
#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sched_check.h"
#include <stdlib.h>
#include <string.h>

#define SMS         132u
#define TENANTS     6u
#define QUEUES      4u
#define ITEMS_MAX   64u
#define EVENTS      10000u
#define SEEDS       40u
#define CHECK_EVERY 50u

/* An item, also `user` of it in the scheduler; freed when it leaves its queue. */
struct item {
    weir_sched_id id;
    bool granted, stopping, stopped;
};

struct queue {
    weir_sched_id id; /* 0: there is none */
    struct item *item[ITEMS_MAX];
    uint32_t n;
};

struct tenant {
    weir_sched_id id; /* 0: there is none */
    uint64_t owner;
    struct queue queue[QUEUES];
};

static struct weir_sched *sched;
static struct weir_predict *learned;
static struct tenant tenants[TENANTS];
static uint32_t n_domains;
static uint64_t noise, now_ns, timer_ns;

static uint64_t any(uint64_t below)
{
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    return noise % below;
}

static bool once_in(uint64_t n)
{
    return any(n) == 0;
}

/* ---------------------------------------------------------------- what the scheduler orders */

static void on_start(void *user, weir_sched_id id, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    (void)user;
    (void)place;
    (void)level;
    ((struct item *)item_user)->granted = true;
    assert_in_range(weir_sched_item_cause(sched, id), 0, WEIR_SCHED_CAUSE_COUNT - 1);
}

static void on_stop(void *user, weir_sched_id id, void *item_user, uint64_t lease_ns)
{
    (void)user;
    (void)id;
    (void)lease_ns;
    ((struct item *)item_user)->stopping = true;
}

static void on_place(void *user, weir_sched_id id, void *item_user,
                     const struct weir_sched_place *place)
{
    (void)user;
    (void)id;
    (void)place;
    ((struct item *)item_user)->stopped = false;
}

static void on_timer(void *user, uint64_t at_ns)
{
    (void)user;
    timer_ns = at_ns;
}

static void on_record(void *user, const struct weir_sched_record *record)
{
    (void)user;
    (void)record;
}

/* ---------------------------------------------------------------- what workers report */

static void forget(struct queue *queue, uint32_t k)
{
    free(queue->item[k]);
    memmove(&queue->item[k], &queue->item[k + 1], (queue->n - k - 1) * sizeof *queue->item);
    queue->n--;
}

static void arrive(const struct tenant *tenant, struct queue *queue,
                   struct weir_sched_item_params *params)
{
    struct item *item = calloc(1, sizeof *item);

    assert_non_null(item);
    params->user = item;
    item->granted = (params->flags & WEIR_SCHED_STARTED) != 0;
    queue->item[queue->n++] = item;
    params->key = params->key != 0 ? params->key | tenant->owner : 0;
    if (weir_sched_arrive(sched, now_ns, queue->id, params, &item->id) != WEIR_OK) {
        forget(queue, queue->n - 1); /* a started item behind one that waits */
    }
}

static void work(const struct tenant *tenant, struct queue *queue)
{
    struct weir_sched_item_params params = {
        .class =
            once_in(2) ? WEIR_SCHED_KERNEL : (enum weir_sched_class)any(WEIR_SCHED_CLASS_COUNT),
        .key = any(8),
        .predicted_ns = once_in(3)   ? 0
                        : once_in(3) ? any(20000000)
                                     : 2000 + any(30000),
        .flags = (once_in(4) ? WEIR_SCHED_UNSURE : 0) | (once_in(3) ? WEIR_SCHED_PARTABLE : 0) |
                 (once_in(25) ? WEIR_SCHED_STARTED : 0) | (once_in(5) ? WEIR_SCHED_DIVISIBLE : 0)};
    bool waits = queue->n != 0 && !queue->item[queue->n - 1]->granted;

    if (queue->n == ITEMS_MAX || (waits && !once_in(30))) {
        return;
    }
    if (params.class == WEIR_SCHED_KERNEL) {
        params.flags |= once_in(3) ? (uint32_t)any(4) : 0;
        params.blocks = (uint32_t)any(3000);
        params.blocks_per_sm = (uint32_t)any(9);
    } else if (params.class == WEIR_SCHED_GRAPH) {
        params.flags |= once_in(3) ? WEIR_SCHED_OWN_LEVELS : 0;
        params.blocks = (uint32_t)any(SMS + 8);
        params.blocks_per_sm = once_in(2);
    } else {
        params.bytes = any(10000000);
        params.rest_bytes = once_in(4) ? any(100000000) : 0;
    }
    arrive(tenant, queue, &params);
}

static void end_together(const struct queue *queue, uint32_t k)
{
    weir_sched_id ids[ITEMS_MAX];
    uint32_t n = 0;

    for (; k < queue->n && queue->item[k]->granted; k++) {
        ids[n++] = queue->item[k]->id;
    }
    weir_sched_done_together(sched, now_ns, ids, n);
}

static void end(struct queue *queue)
{
    uint32_t k = once_in(8) ? (uint32_t)any(queue->n) : 0; /* mostly the first */
    struct item *item = queue->item[k];

    if (item->stopping && once_in(2)) {
        item->stopping = false;
        item->stopped = once_in(2) &&
                        weir_sched_stopped(sched, now_ns, item->id, (uint32_t)any(3000)) == WEIR_OK;
        if (!item->stopped) {
            (void)weir_sched_running(sched, now_ns, item->id, once_in(2));
        }
        return;
    }
    if (once_in(10)) {
        end_together(queue, k);
    }
    if (weir_sched_finished(sched, now_ns, item->id,
                            once_in(3)   ? 0
                            : once_in(2) ? WEIR_SCHED_UNKNOWN
                                         : any(3000000)) == WEIR_OK) {
        assert_int_equal(weir_sched_finished(sched, now_ns, item->id, 0), WEIR_ERR_STALE);
        forget(queue, k);
    } else {
        assert_false(item->granted);
    }
}

/* It passes without a grant, or is withdrawn. */
static void give_up(const struct tenant *tenant, struct queue *queue)
{
    struct item *item = queue->item[queue->n - 1];
    struct weir_sched_item_info info;

    assert_int_equal(weir_sched_item_query(sched, item->id, &info), WEIR_OK);
    assert_int_equal(weir_sched_withdraw(sched, now_ns, item->id), WEIR_OK);
    forget(queue, queue->n - 1);
    if (once_in(2)) {
        info.params.flags |= WEIR_SCHED_STARTED;
        arrive(tenant, queue, &info.params);
    }
}

static void close_queue(struct queue *queue)
{
    while (queue->n != 0) {
        forget(queue, 0);
    }
    if (queue->id != 0) {
        assert_int_equal(weir_sched_queue_remove(sched, now_ns, queue->id), WEIR_OK);
    }
    queue->id = 0;
}

/* ---------------------------------------------------------------- tenants */

static struct weir_sched_tenant_params any_params(void)
{
    return (struct weir_sched_tenant_params){
        .name = "t",
        .weight = 1 + (uint32_t)any(1000),
        .sm_limit = once_in(4) ? 1 + (uint32_t)any(100) : 100,
        .priority =
            once_in(4) ? (enum weir_priority)any(WEIR_PRIORITY_COUNT) : WEIR_PRIORITY_NORMAL,
        .min_share = once_in(8) ? (uint32_t)any(101) : 0,
        .exclusive = once_in(20),
        .span = once_in(8) ? (enum weir_sched_span)any(4) : WEIR_SCHED_SPAN_FREE,
        .span_more = any(4)};
}

static void come(struct tenant *tenant, struct queue *queue)
{
    static const char *const names[TENANTS] = {"a", "b", "c", "d", "e", "f"};
    const struct weir_sched_tenant_params params = any_params();

    if (tenant->id == 0) {
        assert_int_equal(weir_sched_tenant_add(sched, now_ns, &params, &tenant->id), WEIR_OK);
        assert_int_equal(weir_predict_owner_comes(learned, names[tenant - tenants], &tenant->owner),
                         WEIR_OK);
    }
    if (queue->id == 0) {
        assert_int_equal(weir_sched_queue_add(sched, tenant->id,
                                              once_in(10) ? 1 + (uint32_t)any(100) : 100,
                                              n_domains > 1 && once_in(2), &queue->id),
                         WEIR_OK);
    }
}

static void leave(struct tenant *tenant)
{
    for (uint32_t i = 0; i < QUEUES; i++) {
        close_queue(&tenant->queue[i]);
    }
    if (tenant->id != 0) {
        assert_int_equal(weir_sched_tenant_remove(sched, now_ns, tenant->id), WEIR_OK);
        weir_predict_owner_goes(learned, tenant->owner);
    }
    tenant->id = 0;
}

static void event(struct tenant *tenant, struct queue *queue)
{
    const struct weir_sched_tenant_params params = any_params();
    uint64_t what = any(100);

    come(tenant, queue);
    if (what < 45) {
        work(tenant, queue);
    } else if (what < 90) {
        if (queue->n != 0) {
            end(queue);
        }
    } else if (what < 93) {
        if (queue->n != 0) {
            give_up(tenant, queue);
        }
    } else if (what < 94) {
        if (once_in(10)) {
            close_queue(queue);
        }
    } else if (what < 95) {
        if (once_in(10)) {
            leave(tenant);
        }
    } else if (what < 96) {
        if (once_in(5)) {
            assert_int_equal(weir_sched_tenant_set(sched, now_ns, tenant->id, &params), WEIR_OK);
        }
    } else if (what < 97) {
        if (once_in(3)) {
            (void)weir_sched_close(sched);
        }
    } else if (queue->n != 0) {
        (void)weir_sched_waits_for_room(sched, queue->item[any(queue->n)]->id);
    }
}

/* ---------------------------------------------------------------- the scheduler */

static void put_in_force(const char *name)
{
    for (uint32_t i = 0; weir_policy_at(i); i++) {
        if (strcmp(weir_policy_at(i)->name, name) == 0) {
            assert_int_equal(weir_sched_policy_set(sched, now_ns, weir_policy_at(i)), WEIR_OK);
        }
    }
}

static void make(uint64_t seed)
{
    const struct weir_sched_env env = {.start = on_start,
                                       .stop = on_stop,
                                       .resume = on_place,
                                       .resize = on_place,
                                       .timer = on_timer,
                                       .trace = seed % 2 != 0 ? on_record : NULL};
    struct weir_sched_config config;

    noise = seed * UINT64_C(0x9e3779b97f4a7c15);
    n_domains = seed % 3 == 0 ? 2 : 1;
    now_ns = 1000000000;
    timer_ns = UINT64_MAX;
    assert_int_equal(weir_predict_create(1024, &learned), WEIR_OK);
    weir_sched_config_init(&config, SMS);
    config.starve_ns = 500000000;
    config.fill = WEIR_SCHED_FILL_ALL;
    config.small_sms = 2 * SMS;
    config.above = 1;
    config.part_step = weir_sched_part_step(SMS);
    config.room_sms = weir_sched_room_sms(SMS);
    config.predict = learned;
    assert_int_equal(weir_sched_create(&config, &env, &sched), WEIR_OK);
    put_in_force(seed % 8 != 0 ? "fair" : "priority");
    put_in_force("corun");
    weir_sched_allow_alone(sched, seed % 4 != 0);
}

static void any_events_leave_it_sound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t n = 1 + seed % TENANTS;

        make(seed);
        for (uint32_t i = 0; i < EVENTS; i++) {
            uint64_t t = any(n);
            struct tenant *tenant = &tenants[t];

            now_ns += !once_in(4) ? any(20000) : !once_in(3) ? any(300000) : any(50000000);
            if (now_ns >= timer_ns) {
                timer_ns = UINT64_MAX;
                weir_sched_tick(sched, now_ns);
            }
            event(tenant, &tenant->queue[any(t % 2 == 0 ? 1 : QUEUES)]);
            if (i % CHECK_EVERY == 0) {
                assert_null(tl_sched_check(sched));
            }
        }
        for (uint32_t i = 0; i < TENANTS; i++) {
            leave(&tenants[i]);
        }
        weir_sched_destroy(sched);
        weir_predict_destroy(learned);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_events_leave_it_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
