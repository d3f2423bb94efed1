/* A worker that was taken over, with a port of its own: what it posts reaches no other tenant. */
#include "gate_process_fixture.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEY  7u
#define US   UINT64_C(1000)
#define TOOK (70 * US)

static void post(struct worker *w, struct weir_gate_request request)
{
    await(weir_gate_port_post(w->client->port, w->client->bell, &request));
}

static bool is_read(const struct worker *w)
{
    return atomic_load(&w->client->port->tail) == atomic_load(&w->client->port->head);
}

static struct weir_gate_request learn(const struct worker *w, enum weir_sched_class class,
                                      uint64_t key, uint64_t ns)
{
    return (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_LEARN,
                                      .class = (uint8_t) class,
                                      .queue = w->queue->slot,
                                      .key = key,
                                      .size = 1000,
                                      .ns = ns,
                                      .blocks = 1};
}

/* What is known of a tenant's work, in the process. */
struct asked {
    enum weir_sched_class class;
    uint32_t tenant;
    uint64_t key, ns;
};

static void ask(void *user)
{
    struct asked *a = user;

    a->ns =
        weir_predict_ask(host.process->gpus[0].predict, a->class, key_of(a->tenant, a->key), 1000);
}

static uint64_t known(enum weir_sched_class class, uint32_t tenant, uint64_t key)
{
    struct asked asked = {.class = class, .tenant = tenant, .key = key};

    in_process(ask, &asked);
    return asked.ns;
}

static void open_victim_and_hostile(struct worker **ret_victim, struct worker **ret_hostile)
{
    process_open();
    *ret_victim = worker_new(1, 0, 0);
    *ret_hostile = worker_new(2, 1, 1);
    for (int i = 0; i < 4; i++) {
        post(*ret_victim, learn(*ret_victim, WEIR_SCHED_KERNEL, KEY, TOOK));
        post(*ret_victim, learn(*ret_victim, WEIR_SCHED_H2D, 0, TOOK));
    }
    assert_int_equal(known(WEIR_SCHED_KERNEL, 0, KEY), TOOK);
    assert_int_equal(known(WEIR_SCHED_H2D, 0, 0), TOOK);
}

static void close_both(struct worker *victim, struct worker *hostile)
{
    worker_gone(hostile);
    worker_gone(victim);
    host_close();
}

static void get_owner(void *user)
{
    *(uint64_t *)user = key_of(0, 0);
}

/* It knows the kernel, and even how the gate marks the other tenant's keys. */
static void a_worker_teaches_nothing_about_others_work(void **state)
{
    struct worker *victim, *hostile;
    uint64_t owner;

    (void)state;
    open_victim_and_hostile(&victim, &hostile);
    in_process(get_owner, &owner);
    for (int i = 0; i < 100; i++) {
        post(hostile, learn(hostile, WEIR_SCHED_KERNEL, KEY, 9000 * TOOK));
        post(hostile, learn(hostile, WEIR_SCHED_KERNEL, owner | KEY, 9000 * TOOK));
        post(hostile, learn(hostile, WEIR_SCHED_H2D, owner, 9000 * TOOK));
    }
    await(is_read(hostile));
    assert_int_equal(known(WEIR_SCHED_KERNEL, 1, KEY), 9000 * TOOK); /* of its own it may */
    assert_int_equal(known(WEIR_SCHED_H2D, 1, 0), 9000 * TOOK);
    assert_int_equal(known(WEIR_SCHED_KERNEL, 0, KEY), TOOK);
    assert_int_equal(known(WEIR_SCHED_H2D, 0, 0), TOOK);
    close_both(victim, hostile);
}

/* By work that ends, too: the scheduler learns how long that took. */
static void work_of_another_tenants_key_teaches_nothing_either(void **state)
{
    const struct timespec pause = {0, 2 * 1000 * 1000};
    struct worker *victim, *hostile;
    uint64_t owner;

    (void)state;
    open_victim_and_hostile(&victim, &hostile);
    in_process(get_owner, &owner);
    for (int i = 0; i < 5; i++) {
        launch(hostile, i % 2 == 0 ? KEY : owner | KEY);
        nanosleep(&pause, NULL);
        device_reaches(hostile);
        await(counts_now().items == 0);
    }
    assert_true(known(WEIR_SCHED_KERNEL, 1, KEY) >= 2000 * US);
    assert_int_equal(known(WEIR_SCHED_KERNEL, 0, KEY), TOOK);
    close_both(victim, hostile);
}

/* Its port is not for them, and a queue that it does not have has no keys. */
static void queues_of_other_tenants_are_refused(void **state)
{
    struct worker *victim, *hostile;
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_QUEUE, .queue = 900, .item = 0, .blocks = 100};
    uint64_t before;

    (void)state;
    open_victim_and_hostile(&victim, &hostile);
    before = counts_now().queues;
    post(hostile, request);
    request = learn(hostile, WEIR_SCHED_KERNEL, KEY, 9000 * TOOK);
    request.queue = 900;
    for (int i = 0; i < 100; i++) {
        post(hostile, request);
    }
    await(is_read(hostile));
    assert_int_equal(counts_now().queues, before);
    assert_int_equal(known(WEIR_SCHED_KERNEL, 0, KEY), TOOK);
    close_both(victim, hostile);
}

/* However many kernels it makes up: the others' stay. */
static void a_worker_does_not_push_out_what_others_have_taught(void **state)
{
    struct worker *victim, *hostile;

    (void)state;
    open_victim_and_hostile(&victim, &hostile);
    for (uint64_t key = 1; key <= 20000; key++) { /* more than there is room for */
        post(hostile, learn(hostile, WEIR_SCHED_KERNEL, key, TOOK));
    }
    await(is_read(hostile));
    assert_int_equal(known(WEIR_SCHED_KERNEL, 1, 20000), TOOK);
    assert_int_equal(known(WEIR_SCHED_KERNEL, 0, KEY), TOOK);
    assert_int_equal(known(WEIR_SCHED_H2D, 0, 0), TOOK);
    close_both(victim, hostile);
}

/* ---------------------------------------------------------------- what stays shared */

/* Another worker of the tenant, which passes undecided, knows what the first has taught. */
static void what_a_tenant_taught_its_next_worker_knows(void **state)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = KEY, .blocks = 1000};
    struct weir_gate_pass pass;
    struct worker *first, *other, *next;

    (void)state;
    open_victim_and_hostile(&first, &other);
    next = worker_new(3, 0, 0);
    await((weir_gate_predict(next->gate, &work, &pass), !pass.guessed));
    assert_int_equal(pass.ns, TOOK);
    work.key = KEY + 1;
    weir_gate_predict(next->gate, &work, &pass);
    assert_true(pass.guessed);
    worker_gone(next);
    next = worker_new(4, 1, 1); /* and nobody else's */
    await(is_read(next));
    work.key = KEY;
    weir_gate_predict(next->gate, &work, &pass);
    assert_true(pass.guessed);
    worker_gone(next);
    close_both(first, other);
}

/* ---------------------------------------------------------------- who may serve whom */

static void allow(void *user)
{
    const struct worker *w = user;

    weir_gate_process_port_tenant(host.process, w->id, w->tenant);
}

/* The worker is told of the tenant right after the gate, which reads ports first: what it posts
 * before the gate has read all that the supervisor says is no mistake. */
static void open_before_it_is_allowed(void *user)
{
    struct worker *w = user;
    struct weir_gate_request request = {
        .kind = WEIR_GATE_REQUEST_QUEUE, .queue = 901, .item = w->tenant, .blocks = 100};

    assert_true(weir_gate_port_post(w->client->port, w->client->bell, &request));
    in_process_next(allow);
}

static void a_tenant_that_is_about_to_be_told_is_waited_for(void **state)
{
    struct worker *w;

    (void)state;
    process_open();
    w = worker_new(1, 2, -1);
    await(is_read(w));
    assert_int_equal(counts_now().queues, 0); /* nobody's work yet */
    in_process(open_before_it_is_allowed, w);
    await(counts_now().queues == 1);
    worker_gone(w);
    host_close();
}

static void tenant_goes(void *user)
{
    weir_gate_process_tenant_remove(host.process, *(const uint32_t *)user);
}

/* Its slot may be another's next: the worker has no part in that. */
static void a_tenant_that_goes_leaves_its_workers(void **state)
{
    struct worker *old, *next;
    uint32_t tenant = 1;

    (void)state;
    process_open();
    old = worker_new(1, 1, 1);
    launch(old, KEY);
    await(counts_now().queues == 1);
    in_process(tenant_goes, &tenant);
    assert_int_equal(counts_now().queues, 0);
    next = worker_new(2, 1, 1); /* another tenant, with the same slot */
    await(counts_now().queues == 1);
    post(old, (struct weir_gate_request){
                  .kind = WEIR_GATE_REQUEST_QUEUE, .queue = 902, .item = 1, .blocks = 100});
    await(is_read(old));
    assert_int_equal(counts_now().queues, 1);
    weir_gate_detach(old->gate);
    worker_gone(old);
    worker_gone(next);
    host_close();
}

/* ---------------------------------------------------------------- GPUs */

static void name_gpu(struct worker *w, uint32_t device, const char uuid[16])
{
    struct weir_gate_request request = {.kind = WEIR_GATE_REQUEST_DEVICE,
                                        .device = device,
                                        .key = w->id << 8 | device,
                                        .blocks = 1};

    if (uuid) {
        memcpy(&request.key, uuid, sizeof request.key);
        memcpy(&request.size, uuid + sizeof request.key, sizeof request.size);
    }
    post(w, request);
}

static void count_gpus(void *user)
{
    *(uint32_t *)user = host.process->n_gpus;
}

static uint32_t gpus_now(void)
{
    uint32_t n;

    in_process(count_gpus, &n); /* which reads the ports first */
    return n;
}

/* However many it makes up: there is room for the real ones, and they are what they are. */
static void gpus_are_those_that_the_supervisor_named(void **state)
{
    static const char second[16] = "another GPU";
    struct worker *victim, other = {0}, *hostile[5];

    (void)state;
    process_open();
    for (uint32_t i = 0; i < 5; i++) {
        hostile[i] = worker_new(2 + i, 1, 1);
        for (uint32_t device = 2; device < WEIR_GATE_PORT_DEVICES; device++) {
            name_gpu(hostile[i], device, NULL); /* with a UUID of its own */
        }
    }
    assert_int_equal(gpus_now(), 1);
    name_gpu(hostile[0], 1, second); /* it is the first who uses that one, as if with one SM */
    assert_int_equal(gpus_now(), 2);
    assert_int_equal(host.process->gpus[1].of->sms, host.process->gpus[0].of->sms);
    victim = worker_new(1, 0, 0);
    other.client = victim->client;
    open_gate(&other, 1);
    launch(&other, KEY);
    await(counts_of(1).items == 1);
    device_reaches(&other);
    weir_gate_queue_destroy(other.queue);
    weir_gate_detach(other.gate);
    weir_gate_destroy(other.gate);
    worker_gone(victim);
    for (uint32_t i = 0; i < 5; i++) {
        worker_gone(hostile[i]);
    }
    host_close();
}

/* ---------------------------------------------------------------- the process itself */

/* Who shares a descriptor can make it block, and empty it between an event and a read. */
static void a_bell_is_never_read(void **state)
{
    const uint64_t one = 1;
    struct worker *w;
    uint64_t rung = 0;

    (void)state;
    process_open();
    w = worker_new(1, 0, 0);
    await(is_read(w));
    await(atomic_load(&w->client->port->asleep));
    assert_int_equal(write(w->bell_fd, &one, sizeof one), sizeof one);
    post(w, learn(w, WEIR_SCHED_KERNEL, KEY, TOOK)); /* which is heard all the same */
    await(is_read(w));
    await(atomic_load(&w->client->port->asleep));
    assert_int_equal(read(w->bell_fd, &rung, sizeof rung), sizeof rung);
    assert_true(rung >= 1);
    post(w, learn(w, WEIR_SCHED_KERNEL, KEY, TOOK));
    await(is_read(w));
    worker_gone(w);
    host_close();
}

/* Queues that come and go cost most. */
static void post_queues(struct worker *w)
{
    for (uint32_t i = 0; i < 256; i++) {
        post(w, (struct weir_gate_request){.kind = i % 2 == 0 ? WEIR_GATE_REQUEST_QUEUE
                                                              : WEIR_GATE_REQUEST_QUEUE_GONE,
                                           .queue = 900,
                                           .item = 1,
                                           .blocks = 100});
    }
}

/* A place in each part of the table of items. */
static void fill_items(struct worker *w)
{
    for (uint32_t i = 0; i < WEIR_GATE_PORT_ITEMS; i += SERVED_ITEMS_CHUNK) {
        post(w, (struct weir_gate_request){.kind = WEIR_GATE_REQUEST_ARRIVE,
                                           .class = WEIR_SCHED_KERNEL,
                                           .flags = WEIR_SCHED_STARTED,
                                           .queue = w->queue->slot,
                                           .item = i,
                                           .generation = 1});
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * WEIR_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The least that reading once took. */
static uint64_t least_ns;

static void read_at_once(void *user)
{
    uint64_t begin_ns;

    post_queues(user);
    begin_ns = cpu_ns();
    (void)served_port_read(host.process, host.process->ports[0]);
    begin_ns = cpu_ns() - begin_ns;
    least_ns = begin_ns < least_ns ? begin_ns : least_ns;
}

/* Others wait so long. Looking for the items of each queue in all places took 7 ms and more. */
static void queues_that_come_and_go_keep_nobody_waiting(void **state)
{
    struct worker *w;

    (void)state;
    process_open();
    w = worker_new(1, 1, 1);
    fill_items(w);
    await(is_read(w));
    least_ns = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        in_process(read_at_once, w);
        await(is_read(w));
    }
    assert_in_range(least_ns, 1, 3 * WEIR_NS_PER_MS);
    worker_gone(w);
    host_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_teaches_nothing_about_others_work),
        cmocka_unit_test(work_of_another_tenants_key_teaches_nothing_either),
        cmocka_unit_test(queues_of_other_tenants_are_refused),
        cmocka_unit_test(a_worker_does_not_push_out_what_others_have_taught),
        cmocka_unit_test(what_a_tenant_taught_its_next_worker_knows),
        cmocka_unit_test(a_tenant_that_is_about_to_be_told_is_waited_for),
        cmocka_unit_test(a_tenant_that_goes_leaves_its_workers),
        cmocka_unit_test(gpus_are_those_that_the_supervisor_named),
        cmocka_unit_test(a_bell_is_never_read),
        cmocka_unit_test(queues_that_come_and_go_keep_nobody_waiting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
