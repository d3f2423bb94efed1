/*
 * The gate process and workers' gates that are attached to it: here threads of one process, over
 * real ports. The device is words that the test writes.
 */
#include "../lib/tl_cmocka.h"
#include "host_backend/gate/process/served.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_NS (40 * WEIR_NS_PER_S)
#define SMS      16u
#define LONG_NS  (80 * WEIR_NS_PER_MS)
#define WORDS    256u

static const uint8_t uuids[2][16] = {"a GPU", "another GPU"};
static struct weir_spin_page spin_page = {.level = WEIR_SPIN_NOBODY};

/* ---------------------------------------------------------------- waiting */

#define await(expression) await_that((expression), end_in(), #expression, __LINE__)
#define await_that(expression, end, what, line)                                                    \
    do {                                                                                           \
        uint64_t end_ns_ = (end);                                                                  \
        while (!(expression)) {                                                                    \
            pause_until(end_ns_, what, line);                                                      \
        }                                                                                          \
    } while (0)

static uint64_t end_in(void)
{
    return weir_clock_now_ns() + AWAIT_NS;
}

static void pause_until(uint64_t end_ns, const char *what, int line)
{
    struct timespec pause = {0, 100 * 1000};

    if (weir_clock_now_ns() > end_ns) {
        print_error("line %d: it never came to this: %s\n", line, what);
        fail();
    }
    nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- the gate process */

static struct {
    struct weir_gate_process *process;
    pthread_t thread;
    int fd;
    /* What its thread is to do next, and has done. */
    pthread_mutex_t lock; /* guards the two; the descriptor alone shows no order to a sanitizer */
    void (*task)(void *user);
    void *user;
    atomic_bool done;
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool do_task(void *user)
{
    void (*task)(void *user);
    void *about;
    uint64_t n;

    (void)user;
    (void)!read(host.fd, &n, sizeof n);
    pthread_mutex_lock(&host.lock);
    task = host.task;
    about = host.user;
    pthread_mutex_unlock(&host.lock);
    if (task != NULL) {
        task(about);
    }
    atomic_store(&host.done, true);
    return task != NULL;
}

static void *serve(void *user)
{
    (void)user;
    (void)!weir_gate_process_run(host.process, host.fd, do_task, NULL);
    return NULL;
}

/* Let the process's thread do something; NULL: end. */
static void in_process(void (*task)(void *user), void *user)
{
    const uint64_t one = 1;

    pthread_mutex_lock(&host.lock);
    host.task = task;
    host.user = user;
    pthread_mutex_unlock(&host.lock);
    atomic_store(&host.done, false);
    assert_int_equal(write(host.fd, &one, sizeof one), sizeof one);
    await(atomic_load(&host.done));
}

static void process_open(void)
{
    struct weir_sched_settings settings = weir_sched_settings_default();
    struct weir_policy_set policies;
    struct weir_gate_process_params params = {
        .settings = &settings, .policies = &policies, .spin = &spin_page, .times_dir = "none"};

    settings.starve_ms = 60000;
    settings.fill = WEIR_SCHED_FILL_NONE;
    assert_int_equal(weir_policy_set_parse("fair", &policies, NULL), WEIR_OK);
    assert_int_equal(weir_gate_process_create(&params, &host.process), WEIR_OK);
    host.fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(pthread_create(&host.thread, NULL, serve, NULL), 0);
}

static void process_close(void)
{
    in_process(NULL, NULL);
    pthread_join(host.thread, NULL);
    weir_gate_process_destroy(host.process);
    close(host.fd);
}

static struct weir_sched_counts counts;
static const char *wrong;

static void count(void *user)
{
    const struct weir_sched *sched = host.process->gpus[*(const int *)user].gate->sched;

    weir_sched_count(sched, &counts);
    wrong = weir_sched_check(sched);
}

static struct weir_sched_counts counts_of(int gpu)
{
    in_process(count, &gpu);
    assert_null(wrong);
    assert_int_equal(counts.nonsense, 0);
    return counts;
}

static struct weir_sched_counts counts_now(void)
{
    return counts_of(0);
}

/* ---------------------------------------------------------------- workers */

struct worker {
    struct weir_gate *gate;
    struct weir_gate_client *client;
    struct weir_gate_queue *queue;
    struct weir_gate_batch batch;
    uint32_t id, tenant, given;
    int32_t of; /* the tenant that the port is for */
    int port_fd, bell_fd;
    uint32_t words[WORDS];
    atomic_bool over;
};

static bool is_over(void *session)
{
    return atomic_load(&((struct worker *)session)->over);
}

static bool attend(void *session)
{
    (void)session;
    return false;
}

static void rests(void *session, bool begins)
{
    (void)session;
    (void)begins;
}

/* Each item gets its mark when it is given, so nothing is unmarked. */
static void mark_all(void *session, struct weir_gate_queue *queue)
{
    (void)session;
    (void)queue;
}

static void thread_begins(void *user)
{
    (void)user;
}

static void item_gone(void *room)
{
    (void)room;
}

static void describe(const void *room, char *text, size_t bytes)
{
    (void)room;
    snprintf(text, bytes, "run=0");
}

static const struct weir_gate_session_ops session_ops = {
    .is_over = is_over, .attend = attend, .rests = rests, .mark_all = mark_all};
static const struct weir_gate_ops gate_ops = {
    .thread_begins = thread_begins, .describe = describe, .item_gone = item_gone};

static void add_port(void *user)
{
    struct worker *w = user;

    assert_int_equal(
        weir_gate_process_port_add(host.process, w->id, w->of, 1, w->port_fd, w->bell_fd), WEIR_OK);
}

static void remove_port(void *user)
{
    weir_gate_process_port_remove(host.process, ((struct worker *)user)->id);
}

static void tell_tenant(void *user)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const struct worker *w = user;
    struct weir_sched_tenant_params params = {
        .name = names[w->tenant], .weight = 100, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};

    weir_gate_process_tenant_set(host.process, w->tenant, &params);
}

static void open_queue(struct worker *w, const struct weir_gate_session_ops *ops, void *session)
{
    struct weir_sched_tenant_params params = {
        .name = "own", .weight = 100, .sm_limit = 100, .priority = WEIR_PRIORITY_NORMAL};

    assert_int_equal(
        weir_gate_queue_create(w->gate, w->tenant, &params, 100, ops, session, &w->queue), WEIR_OK);
}

/* A gate of the worker's client, with a queue. */
static void open_gate(struct worker *w, uint32_t device)
{
    struct weir_sched_settings settings = weir_sched_settings_default();
    struct weir_policy_set policies;
    struct weir_gate_params gate = {.device = device,
                                    .sms = SMS,
                                    .settings = &settings,
                                    .policies = &policies,
                                    .spin = &spin_page,
                                    .times_dir = "none",
                                    .uuid = uuids[device],
                                    .ops = &gate_ops};

    assert_int_equal(weir_policy_set_parse("fair", &policies, NULL), WEIR_OK);
    assert_int_equal(weir_gate_create(&gate, &w->gate), WEIR_OK);
    weir_gate_attach(w->gate, w->client);
    open_queue(w, &session_ops, w);
}

/* @param of  the tenant that its port is for; -1: anybody. */
static struct worker *worker_new(uint32_t id, uint32_t tenant, int32_t of)
{
    struct worker *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->id = id;
    w->tenant = tenant;
    w->of = of;
    assert_int_equal(weir_gate_port_create(&w->port_fd, &w->bell_fd), WEIR_OK);
    in_process(tell_tenant, w);
    in_process(add_port, w);
    assert_int_equal(weir_gate_client_create(w->port_fd, w->bell_fd, NULL, &w->client), WEIR_OK);
    open_gate(w, 0);
    return w;
}

static void device_reaches(struct worker *w)
{
    for (uint32_t i = 0; i < w->given; i++) {
        __atomic_store_n(&w->words[i], 1, __ATOMIC_RELEASE);
    }
}

static void worker_gone(struct worker *w)
{
    device_reaches(w);
    weir_gate_queue_destroy(w->queue);
    in_process(remove_port, w);
    weir_gate_destroy(w->gate);
    weir_gate_client_destroy(w->client);
    close(w->port_fd);
    free(w);
}

/* ---------------------------------------------------------------- work */

/* Numbers that repeat: splitmix64. */
static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct launch {
    struct worker *worker;
    uint64_t key;
    pthread_t thread;
    struct weir_gate_pass pass;
    enum weir_status status;
    atomic_bool passed;
};

static void *go_through(void *user)
{
    struct launch *l = user;
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = l->key, .blocks = 1000};

    l->status = weir_gate_enter(l->worker->queue, &work, &l->pass);
    atomic_store(&l->passed, true);
    return NULL;
}

static void begin(struct launch *l, struct worker *w, uint64_t key)
{
    *l = (struct launch){.worker = w, .key = key};
    assert_int_equal(pthread_create(&l->thread, NULL, go_through, l), 0);
}

/* It has passed: the device has it, with a mark behind it. */
static void end(struct launch *l)
{
    struct worker *w = l->worker;
    struct weir_gate_mark mark = {.word = &w->words[w->given], .value = 1};

    await(atomic_load(&l->passed));
    pthread_join(l->thread, NULL);
    assert_int_equal(l->status, WEIR_OK);
    assert_true(w->given < WORDS);
    w->given++;
    (void)weir_gate_leave(&l->pass, &w->batch, true);
    weir_gate_batch_close(w->queue, &w->batch, &mark);
}

static void launch(struct worker *w, uint64_t key)
{
    struct launch l;

    begin(&l, w, key);
    end(&l);
}

static void know(void *user)
{
    (void)user;
    for (int i = 0; i < 4; i++) {
        weir_predict_learn(host.process->gpus[0].gate->predict, WEIR_SCHED_KERNEL, 7, 1000,
                           LONG_NS);
    }
}

static bool stays_waiting(const struct launch *l)
{
    struct timespec pause = {0, 20 * 1000 * 1000};

    nanosleep(&pause, NULL);
    return !atomic_load(&((struct launch *)(uintptr_t)l)->passed);
}

static void make_alone(struct worker *w)
{
    struct timespec pause = {0, 2 * 1000 * 1000};

    for (int i = 0; i < 100 && !weir_gate_is_alone(w->queue); i++) {
        launch(w, 1);
        device_reaches(w);
        nanosleep(&pause, NULL);
    }
    assert_true(weir_gate_is_alone(w->queue));
}

/* ---------------------------------------------------------------- cases */

/* Of the second tenant. */
static void add_usage(void *user)
{
    (void)weir_gate_process_usage(host.process, 1, user);
}

/* Each queue has a long kernel on the device: its next one waits until that is over. */
static void grants_come_from_the_process(void **state)
{
    struct weir_gate_usage usage;
    struct worker *a, *b;
    struct launch next;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, -1);
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
    weir_gate_tenant_usage(b->gate, b->tenant, &usage); /* which adds nothing */
    assert_int_equal(usage.gated, 2);
    worker_gone(a);
    worker_gone(b);
    process_close();
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
    weir_gate_queue_destroy(second.queue);
    weir_gate_detach(second.gate);
    weir_gate_destroy(second.gate);
    worker_gone(a);
    process_close();
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
    await(!weir_gate_is_alone(a->queue));
    await(counts_now().arrivals == arrivals + 3);
    device_reaches(a);
    device_reaches(b);
    await(counts_now().items == 0);
    worker_gone(a);
    worker_gone(b);
    process_close();
}

/* Undecided work in a batch that has no mark yet. */
static void pass_unmarked(struct worker *w, struct weir_gate_batch *batch)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = 1, .blocks = 1000};
    struct weir_gate_pass pass;

    assert_int_equal(weir_gate_enter(w->queue, &work, &pass), WEIR_OK);
    assert_null(pass.item);
    (void)weir_gate_leave(&pass, batch, true);
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
    process_close();
}

/* ---------------------------------------------------------------- a session with everything */

#define STREAMS      2u
#define STRESS_STEPS 600u

/* A session's thread that does, in a random order, what sessions do with streams and marks. */
struct session {
    struct worker *worker;
    struct weir_gate_batch unmarked[STREAMS];
    uint32_t words[WORDS]; /* of the device, used in turn: each counts up to its mark's number */
    uint32_t given, reached;
    uint64_t seed;
    pthread_t thread;
};

static void mark_stream(struct session *s, uint32_t stream)
{
    uint32_t *word = &s->words[s->given % WORDS];
    struct weir_gate_mark mark = {.word = word, .value = s->given + 1};

    if (s->unmarked[stream].n == 0 || !weir_gate_batch_may_close(s->worker->queue)) {
        return;
    }
    __atomic_store_n(word, s->given++, __ATOMIC_RELAXED);
    weir_gate_batch_close(s->worker->queue, &s->unmarked[stream], &mark);
}

static void mark_streams(void *session, struct weir_gate_queue *queue)
{
    struct session *s = session;

    (void)queue;
    for (uint32_t i = 0; i < STREAMS; i++) {
        mark_stream(s, i);
    }
}

static void reach(struct session *s, uint32_t n)
{
    for (; n != 0 && s->reached != s->given; n--, s->reached++) {
        __atomic_store_n(&s->words[s->reached % WORDS], s->reached + 1, __ATOMIC_RELEASE);
    }
}

/* While it waits for a grant its device goes on. */
static bool attend_session(void *session)
{
    reach(session, 1);
    return true;
}

static bool session_is_over(void *session)
{
    return atomic_load(&((struct session *)session)->worker->over);
}

static const struct weir_gate_session_ops stress_ops = {
    .is_over = session_is_over, .attend = attend_session, .rests = rests, .mark_all = mark_streams};

static void give_one(struct session *s, uint32_t stream, uint64_t key, bool given)
{
    struct weir_gate_work work = {.class = key % 2 ? WEIR_SCHED_KERNEL : WEIR_SCHED_GRAPH,
                                  .key = key,
                                  .blocks = 4,
                                  .blocks_per_sm = 1};
    struct weir_gate_batch *unmarked = &s->unmarked[stream];
    struct weir_gate_pass pass;

    if (weir_gate_enter(s->worker->queue, &work, &pass) != WEIR_OK) {
        return;
    }
    if (weir_gate_begins_apart(&pass, unmarked)) {
        mark_stream(s, stream);
    }
    if (weir_gate_leave(&pass, unmarked, given)) {
        mark_stream(s, stream);
    }
}

static void do_anything(struct session *s)
{
    uint64_t r = next_random(&s->seed);
    struct timespec pause = {0, (long)(r >> 16 & 0x1fffff)}; /* up to 2 ms */
    uint32_t stream = r >> 8 & 1;

    switch (r & 15) {
    case 0:
        nanosleep(&pause, NULL); /* long enough now and then that another is alone */
        break;
    case 1:
        weir_gate_batch_drop(s->worker->queue, &s->unmarked[stream]);
        break;
    case 2:
        mark_stream(s, stream);
        break;
    case 3:
        weir_gate_look(s->worker->queue);
        break;
    case 4:
    case 5:
    case 6:
        reach(s, r >> 9 & 7);
        break;
    default:
        give_one(s, stream, 1 + (r >> 12 & 3), (r >> 40 & 15) != 0);
    }
}

static void *run_session(void *user)
{
    struct session *s = user;

    for (uint32_t i = 0; i < STRESS_STEPS; i++) {
        do_anything(s);
    }
    mark_streams(s, s->worker->queue);
    reach(s, UINT32_MAX);
    return NULL;
}

static uint32_t names_in_use(struct weir_gate_client *client)
{
    uint32_t n = client->handles_made;

    for (uint32_t at = client->free_handle; at != 0; at = client->handles[at - 1].next_free) {
        n--;
    }
    return n;
}

/* Tenants are alone and are not, in turn: when all work has ended, nobody holds anything. */
static void nothing_is_left_when_all_has_ended(void **state)
{
    struct session sessions[4] = {0};

    (void)state;
    process_open();
    for (uint32_t i = 0; i < 4; i++) {
        struct worker *w = worker_new(i + 1, i, (int32_t)i);

        weir_gate_queue_destroy(w->queue);
        sessions[i] = (struct session){.worker = w, .seed = i + 1};
        open_queue(w, &stress_ops, &sessions[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&sessions[i].thread, NULL, run_session, &sessions[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(sessions[i].thread, NULL);
    }
    await(counts_now().items == 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(names_in_use(sessions[i].worker->client), 0);
        worker_gone(sessions[i].worker);
    }
    process_close();
}

/* A session that ends has work on the device, some of it undecided and reported. */
static void a_queue_that_goes_gives_its_names_back(void **state)
{
    struct weir_gate_batch unmarked = {0};
    struct worker *a, *b;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, 1);
    make_alone(a);
    launch(a, 1);
    pass_unmarked(a, &unmarked);
    launch(b, 1);
    await(names_in_use(a->client) == 2);
    weir_gate_queue_destroy(a->queue);
    assert_int_equal(names_in_use(a->client), 0);
    open_queue(a, &session_ops, a);
    worker_gone(a);
    worker_gone(b);
    process_close();
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
    process_close();
}

static void work_passes_when_the_process_is_lost(void **state)
{
    struct worker *a, *b;
    struct launch waiting;

    (void)state;
    open_two(&a, &b, &waiting);
    weir_gate_detach(a->gate);
    end(&waiting);
    launch(a, 7); /* and this process decides */
    assert_int_equal(counts_now().arrivals, 3);
    worker_gone(a);
    worker_gone(b);
    process_close();
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
    launch(a, 1);
    assert_null(weir_gate_client_of(a->gate));
    worker_gone(a);
    process_close();
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
    process_close();
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
    (void)counts_now();
    in_process(remove_port, bad);
    await(counts_now().items == 0);
    weir_gate_detach(bad->gate);
    worker_gone(bad);
    worker_gone(good);
    process_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_come_from_the_process),
        cmocka_unit_test(each_device_of_a_worker_is_decided_about),
        cmocka_unit_test(alone_ends_when_another_worker_has_work),
        cmocka_unit_test(unmarked_work_that_is_dropped_ends),
        cmocka_unit_test(nothing_is_left_when_all_has_ended),
        cmocka_unit_test(a_queue_that_goes_gives_its_names_back),
        cmocka_unit_test(a_worker_that_dies_takes_its_work_along),
        cmocka_unit_test(work_passes_when_the_process_is_lost),
        cmocka_unit_test(a_process_that_reads_nothing_is_left),
        cmocka_unit_test(a_port_is_for_its_tenant),
        cmocka_unit_test(nonsense_harms_nobody_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
