/* What workers and the gate process say to each other, and what happens when one goes. */
#include "gate_process_fixture.h"

#include <string.h>
#include <unistd.h>

/* Of the second tenant. */
static void add_usage(void *user)
{
    (void)weir_gate_process_usage(host.process, 1, user);
}

/* What the sessions have used, and then the programs of each name. */
struct uses {
    uint64_t of_session[3], of_program[3]; /* by the worker's id */
    uint64_t device;
};

static void take_use(void *user, const struct weir_link_use *use)
{
    struct uses *uses = user;

    if (use->port != 0) {
        assert_int_equal(use->session, (UINT64_C(7) << 32) + use->port);
        uses->of_session[use->port] += use->sm_ns;
    } else {
        assert_int_equal(strncmp(use->program, "program-", 8), 0);
        uses->of_program[use->program[8] - '0'] += use->sm_ns;
    }
}

static void look_at_uses(void *user)
{
    struct uses *uses = user;
    struct weir_status_device row;

    *uses = (struct uses){0};
    weir_gate_process_uses(host.process, take_use, uses);
    assert_true(weir_gate_process_device(host.process, 0, &row));
    uses->device = row.sm_ns;
}

/* Each queue has a long kernel on the device: its next one waits until that is over. */
static void grants_come_from_the_process(void **state)
{
    struct weir_status_tenant usage;
    struct uses uses;
    uint64_t used_ns;
    struct worker *a, *b;
    struct launch next;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, 1);
    launch(a, 1);
    in_process(know, NULL);
    launch(a, 7);
    launch(b, 7);
    begin(&next, b, 7);
    assert_true(stays_waiting(&next));
    device_reaches(a);
    device_reaches(b);
    end(&next);
    assert_int_equal(next.pass.ns, LONG_NS); /* what the process knows */
    assert_int_equal(counts_now().arrivals, 4);
    in_process(add_usage, &usage);
    assert_int_equal(usage.items, 2);
    in_process(look_at_uses, &uses);
    assert_int_equal(uses.of_program[1], uses.of_session[1]);
    assert_int_equal(uses.of_program[2], uses.of_session[2]);
    assert_int_equal(uses.device, uses.of_session[1] + uses.of_session[2]);
    used_ns = uses.of_program[1];
    worker_gone(a); /* what its program has used stays */
    in_process(look_at_uses, &uses);
    assert_int_equal(uses.of_session[1], 0);
    assert_true(uses.of_program[1] >= used_ns);
    worker_gone(b);
    host_close();
}

/* In the process: all work is decided about. */
static void decide_about_all(void *user)
{
    (void)user;
    weir_sched_allow_alone(host.process->gpus[0].sched, false);
}

/* The watcher sleeps while nothing is in flight. What is given to the device wakes it up. */
static void the_end_is_seen_of_what_comes_while_the_watcher_sleeps(void **state)
{
    struct worker *a;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    in_process(decide_about_all, NULL);
    for (int i = 0; i < 3; i++) {
        await(atomic_load(&a->gate->idle));
        launch(a, 1);
        assert_int_equal(counts_now().items, 1);
        device_reaches(a);
        await(counts_now().items == 0);
    }
    worker_gone(a);
    host_close();
}

/* A worker's gate for its second device goes. */
static void leave(struct worker *second)
{
    weir_gate_queue_destroy(second->queue);
    weir_gate_detach(second->gate);
    weir_gate_destroy(second->gate);
}

/* What is posted about an item names no queue, and the first queue is another device's. */
static void each_device_of_a_worker_is_decided_about(void **state)
{
    struct worker *a, second = {0};

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    second.client = a->client;
    open_gate(&second, 1);
    launch(&second, 1);
    launch(a, 1);
    assert_int_equal(counts_of(1).items, 1);
    device_reaches(&second);
    await(counts_of(1).items == 0);
    assert_int_equal(counts_of(0).items, 1);
    leave(&second);
    worker_gone(a);
    host_close();
}

static void get_spans(void *user)
{
    memcpy(user, host.process->span_tenants, 2 * sizeof(struct weir_sched_span_tenant));
}

/* On which GPUs (bits) tenants 0 and 1 have peers, and whether they take turns. */
static void assert_spans(uint64_t first, uint64_t second, bool take_turns)
{
    struct weir_sched_span_tenant spans[2];

    in_process(get_spans, spans);
    assert_int_equal(spans[0].devices, first);
    assert_int_equal(spans[1].devices, second);
    assert_int_equal(spans[0].span != WEIR_SCHED_SPAN_FREE, take_turns);
    assert_int_equal(spans[1].span != WEIR_SCHED_SPAN_FREE, take_turns);
}

/* Tenants with work on both GPUs take turns once kernels of both may wait for others there, and
 * until queues of such kernels are gone. */
static void tenants_with_peers_take_turns(void **state)
{
    struct worker *a[2], *b[2], second[2] = {{0}};

    (void)state;
    process_open();
    a[0] = worker_new(1, 0, 0);
    b[0] = worker_new(2, 1, 1);
    a[1] = &second[0];
    b[1] = &second[1];
    for (int i = 0; i < 2; i++) {
        second[i].client = (i ? b : a)[0]->client;
        second[i].tenant = (uint32_t)i;
        open_gate(&second[i], 1);
    }
    for (int i = 0; i < 4; i++) {
        launch(i % 2 ? b[i / 2] : a[i / 2], 1);
    }
    assert_spans(0, 0, false);
    for (int i = 0; i < 4; i++) {
        struct worker *w = i % 2 ? b[i / 2] : a[i / 2];

        device_reaches(w);
        w->flags = i == 3 ? 0 : WEIR_SCHED_PEERS;
        launch(w, 1);
        device_reaches(w);
    }
    assert_spans(3, 1, false);
    b[1]->flags = WEIR_SCHED_PEERS;
    launch(b[1], 1);
    assert_spans(3, 3, true);
    device_reaches(b[1]);
    leave(b[1]);
    settle();
    assert_spans(3, 1, false);
    leave(a[1]);
    worker_gone(a[0]);
    settle();
    assert_spans(0, 1, false);
    worker_gone(b[0]);
    host_close();
}

/* The process is told once of a queue whose work may wait for others, while the tenant is alone,
 * and knows it when the queue comes to it again. */
static void work_with_peers_is_told_of_once(void **state)
{
    struct worker *a;
    uint64_t arrivals;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    make_alone(a);
    arrivals = counts_now().arrivals;
    launch(a, 1);
    assert_int_equal(counts_now().arrivals, arrivals);
    a->flags = WEIR_SCHED_PEERS;
    launch(a, 1);
    assert_int_equal(counts_now().arrivals, arrivals + 1);
    assert_spans(1, 0, false);
    assert_true(weir_gate_may_pass(a->queue));
    launch(a, 1);
    assert_int_equal(counts_now().arrivals, arrivals + 1);
    device_reaches(a);
    pthread_mutex_lock(&a->gate->lock);
    weir_gate_delist_locked(a->queue);
    pthread_mutex_unlock(&a->gate->lock);
    settle();
    assert_spans(0, 0, false);
    pthread_mutex_lock(&a->gate->lock);
    weir_gate_enlist_locked(a->queue);
    pthread_mutex_unlock(&a->gate->lock);
    settle();
    assert_spans(1, 0, false);
    worker_gone(a);
    host_close();
}

/* Its own worker does not decide, and is not asked: a tenant alone passes until another worker
 * comes. Then what it has in flight is reported. */
static void alone_ends_when_another_worker_has_work(void **state)
{
    struct worker *a, *b;
    uint64_t arrivals;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, 1);
    make_alone(a);
    arrivals = counts_now().arrivals;
    launch(a, 1);
    launch(a, 1);
    assert_int_equal(counts_now().arrivals, arrivals);
    launch(b, 1);
    await(!weir_gate_may_pass(a->queue));
    await(counts_now().arrivals == arrivals + 3);
    device_reaches(a);
    device_reaches(b);
    await(counts_now().items == 0);
    worker_gone(a);
    worker_gone(b);
    host_close();
}

static void mark_unmarked(struct worker *w, struct weir_gate_batch *batch)
{
    struct weir_gate_mark mark = {.word = &w->words[w->given++], .value = 1};

    weir_gate_batch_close(w->queue, batch, &mark);
}

/* Work without a mark was reported, and its stream goes, when the last of the marks has been
 * reached and an earlier one has not: nothing of it may stay with the scheduler. */
static void unmarked_work_that_is_dropped_ends(void **state)
{
    struct weir_gate_batch first = {0}, second = {0}, dropped = {0};
    struct worker *a, *b;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, 1);
    make_alone(a);
    await(counts_now().items == 0);
    pass_unmarked(a, &first);
    mark_unmarked(a, &first);
    pass_unmarked(a, &second);
    mark_unmarked(a, &second);
    pass_unmarked(a, &dropped);
    __atomic_store_n(&a->words[a->given - 1], 1, __ATOMIC_RELEASE);
    weir_gate_look(a->queue);
    launch(b, 1);
    await(counts_now().items == 3); /* the first, what is unmarked, and b's */
    weir_gate_batch_drop(a->queue, &dropped);
    weir_gate_look(a->queue);
    device_reaches(a);
    device_reaches(b);
    await(counts_now().items == 0);
    worker_gone(a);
    worker_gone(b);
    host_close();
}
/* Two workers with work on the device; the first has a launch that waits for a grant. */
static void open_two(struct worker **ret_a, struct worker **ret_b, struct launch *waiting)
{
    process_open();
    *ret_a = worker_new(1, 0, 0);
    *ret_b = worker_new(2, 1, 1);
    launch(*ret_b, 1); /* so that nobody is alone */
    in_process(know, NULL);
    launch(*ret_a, 7);
    begin(waiting, *ret_a, 7);
    assert_true(stays_waiting(waiting));
}

static void a_worker_that_dies_takes_its_work_along(void **state)
{
    struct worker *a, *b;
    struct launch waiting;

    (void)state;
    open_two(&a, &b, &waiting);
    in_process(remove_port, a);
    await(counts_now().items == 1);
    weir_gate_detach(a->gate); /* as its main thread would be told to */
    end(&waiting);
    worker_gone(a);
    worker_gone(b);
    host_close();
}

static void work_passes_when_the_process_is_lost(void **state)
{
    struct worker *a, *b;
    struct launch waiting;

    (void)state;
    open_two(&a, &b, &waiting);
    weir_gate_detach(a->gate);
    end(&waiting);
    launch(a, 7); /* and it goes on without a decision */
    assert_int_equal(counts_now().arrivals, 3);
    worker_gone(a);
    worker_gone(b);
    host_close();
}

/* Nothing is decided about its work, also where others have work, and nobody pays. What is in
 * flight is reported once there is a process. */
static void work_passes_until_there_is_a_process(void **state)
{
    struct weir_gate_work run = {
        .class = WEIR_SCHED_KERNEL, .key = 7, .blocks = 1000, .flags = WEIR_SCHED_STOPPABLE};
    struct weir_gate_hint hint = {0};
    struct worker *other, second = {0};
    struct weir_gate_pass pass;
    struct launch l;

    (void)state;
    process_open();
    other = worker_new(1, 0, 0);
    launch(other, 1);
    second.client = other->client;
    make_gate(&second, 1);
    for (int i = 0; i < 3; i++) {
        begin(&l, &second, 7);
        end(&l);
        assert_null(l.pass.item);
    }
    assert_int_equal(weir_gate_enter(second.queue, &run, &pass), WEIR_OK);
    assert_null(pass.item); /* nobody could order it to stop .. */
    (void)weir_gate_leave(&pass, &second.batch, false);
    assert_int_equal(weir_gate_run_cost_pct(second.gate, WEIR_PRIORITY_NORMAL, 50, &hint), 0);
    weir_gate_attach(second.gate, second.client);
    assert_int_equal(weir_gate_run_cost_pct(second.gate, WEIR_PRIORITY_NORMAL, 50, &hint),
                     UINT32_MAX);
    launch(&second, 7);
    assert_int_equal(counts_of(1).items, 4);
    device_reaches(&second);
    await(counts_of(1).items == 0);
    leave(&second);
    worker_gone(other);
    host_close();
}

/* The port has room for so many queues: work of others must not pass the scheduler for that. */
static void sessions_that_find_no_room_are_refused(void **state)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = 1, .blocks = 1000};
    struct weir_gate_pass pass;
    struct worker *a, second = {0};
    uint32_t last = 0, slot;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    while ((slot = weir_gate_client_slot_take(a->client)) != WEIR_GATE_PORT_QUEUES) {
        last = slot;
    }
    second.gate = a->gate;
    open_queue(&second, &tl_gate_session_ops, &second.session);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_gate_enter(second.queue, &work, &pass), WEIR_ERR_NO_MEMORY);
    }
    launch(a, 1); /* which has a place */
    weir_gate_client_slot_put(a->client, last);
    launch(&second, 1);
    await(counts_now().queues == 2);
    device_reaches(&second);
    weir_gate_queue_destroy(second.queue);
    worker_gone(a);
    host_close();
}

/* Nobody reads the port: the session's thread finds out by itself. */
static void a_process_that_reads_nothing_is_left(void **state)
{
    struct worker *a;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    launch(a, 1);
    device_reaches(a);
    in_process(remove_port, a);
    atomic_store(&tl_gate_deaf, 0);
    launch(a, 1);
    assert_null(weir_gate_client_of(a->gate));
    assert_int_equal(atomic_load(&tl_gate_deaf), 1);
    worker_gone(a);
    host_close();
}

static void a_port_is_for_its_tenant(void **state)
{
    struct worker *a;
    uint64_t before;

    (void)state;
    process_open();
    a = worker_new(1, 2, 1);
    before = counts_now().queues;
    launch(a, 1); /* it passes, and nobody pays for it */
    assert_int_equal(counts_now().queues, before);
    assert_int_equal(counts_now().arrivals, 0);
    worker_gone(a);
    host_close();
}

static struct weir_gate_request random_request(uint64_t *seed)
{
    uint64_t r = next_random(seed);
    struct weir_gate_request request = {.kind = (uint8_t)(r % 14),
                                        .class = (uint8_t)(r >> 8 & 7),
                                        .flags = (uint16_t)(r >> 16),
                                        .device = (r >> 32 & 15) == 0 ? (uint32_t)r : 0,
                                        .queue = (r >> 36 & 15) == 0 ? (uint32_t)r : r >> 40 & 3,
                                        .item = (r >> 44 & 15) == 0 ? (uint32_t)r : r >> 48 & 7,
                                        .generation = r >> 52 & 1,
                                        .sequence = r >> 56 & 3};

    r = next_random(seed);
    request.at_ns = (r & 3) == 0 ? next_random(seed) : 0;
    request.key = r >> 2 & 7;
    request.size = r >> 5 & 0xffff;
    request.ns = (r >> 24 & 3) == 0 ? next_random(seed) : r >> 26 & 0xfffff;
    request.blocks = (r >> 46 & 7) == 0 ? (uint32_t)r : r >> 49 & 0x3f;
    request.blocks_per_sm = (uint32_t)(r >> 60);
    return request;
}

static void nonsense_harms_nobody_else(void **state)
{
    const uint64_t one = 1;
    struct worker *good, *bad;
    uint64_t seed = 1;

    (void)state;
    process_open();
    good = worker_new(1, 0, 0);
    bad = worker_new(2, 1, 1);
    for (uint32_t i = 0; i < 300000; i++) {
        struct weir_gate_request request = random_request(&seed);

        await(weir_gate_port_post(bad->client->port, bad->client->bell, &request));
        if (i % 3000 == 0) {
            launch(good, 1);
            device_reaches(good);
        }
    }
    atomic_store(&bad->client->port->tail, 12345); /* which the gate does not read */
    atomic_fetch_add(&bad->client->port->head, 2 * WEIR_GATE_PORT_REQUESTS);
    assert_int_equal(write(bad->client->bell, &one, sizeof one), sizeof one);
    await(atomic_load(&bad->client->port->tail) == atomic_load(&bad->client->port->head));
    await(atomic_load(&bad->client->port->asleep)); /* it need not look again */
    (void)counts_now();
    in_process(remove_port, bad);
    await(counts_now().items == 0);
    weir_gate_detach(bad->gate);
    worker_gone(bad);
    worker_gone(good);
    host_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_come_from_the_process),
        cmocka_unit_test(the_end_is_seen_of_what_comes_while_the_watcher_sleeps),
        cmocka_unit_test(each_device_of_a_worker_is_decided_about),
        cmocka_unit_test(tenants_with_peers_take_turns),
        cmocka_unit_test(work_with_peers_is_told_of_once),
        cmocka_unit_test(alone_ends_when_another_worker_has_work),
        cmocka_unit_test(unmarked_work_that_is_dropped_ends),
        cmocka_unit_test(a_worker_that_dies_takes_its_work_along),
        cmocka_unit_test(work_passes_when_the_process_is_lost),
        cmocka_unit_test(work_passes_until_there_is_a_process),
        cmocka_unit_test(sessions_that_find_no_room_are_refused),
        cmocka_unit_test(a_process_that_reads_nothing_is_left),
        cmocka_unit_test(a_port_is_for_its_tenant),
        cmocka_unit_test(nonsense_harms_nobody_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
