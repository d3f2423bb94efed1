#include "gate_process_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_NS (40 * WEIR_NS_PER_S)
#define SMS      16u

static const uint8_t uuids[2][16] = {"a GPU", "another GPU"};
static struct weir_spin_page spin_page = {.level = WEIR_SPIN_NOBODY};

/* ---------------------------------------------------------------- waiting */

uint64_t end_in(void)
{
    return weir_clock_now_ns() + AWAIT_NS;
}

void pause_until(uint64_t end_ns, const char *what, int line)
{
    struct timespec pause = {0, 100 * 1000};

    if (weir_clock_now_ns() > end_ns) {
        print_error("line %d: it never came to this: %s\n", line, what);
        fail();
    }
    nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- the gate process */

static void name_gpus(void *user)
{
    (void)user;
    for (size_t i = 0; i < 2; i++) {
        struct weir_link_gpu gpu = {.sms = SMS, .fill = WEIR_SCHED_FILL_NONE};

        memcpy(gpu.uuid, uuids[i], sizeof gpu.uuid);
        weir_gate_process_gpu(host.process, &gpu);
    }
}

void process_open(void)
{
    struct weir_sched_settings settings = weir_sched_settings_default();

    settings.starve_ms = 60000;
    settings.fill = WEIR_SCHED_FILL_NONE;
    host_open(&settings, &spin_page);
    in_process(name_gpus, NULL);
}

/* ---------------------------------------------------------------- workers */

static void add_port(void *user)
{
    struct worker *w = user;

    assert_int_equal(
        weir_gate_process_port_add(host.process, w->id, w->of, 1, w->port_fd, w->bell_fd), WEIR_OK);
}

void remove_port(void *user)
{
    weir_gate_process_port_remove(host.process, ((struct worker *)user)->id);
}

static void tell_tenant(void *user)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    const struct worker *w = user;
    struct weir_tenant_config settings;

    weir_tenant_config_default(&settings, names[w->tenant]);
    weir_gate_process_tenant_set(host.process, w->tenant, &settings);
}

void open_queue(struct worker *w, const struct weir_gate_session_ops *ops, void *session)
{
    assert_int_equal(
        weir_gate_queue_create(w->gate, w->tenant, "own", 100, ops, session, &w->queue), WEIR_OK);
}

/* A gate with a queue, which knows of no gate process. */
void make_gate(struct worker *w, uint32_t device)
{
    struct weir_sched_settings settings = weir_sched_settings_default();
    struct weir_gate_params gate = {.device = device,
                                    .sms = SMS,
                                    .settings = &settings,
                                    .spin = &spin_page,
                                    .uuid = uuids[device],
                                    .ops = &tl_gate_ops};

    assert_int_equal(weir_gate_create(&gate, &w->gate), WEIR_OK);
    open_queue(w, &tl_gate_session_ops, &w->session);
}

void open_gate(struct worker *w, uint32_t device)
{
    make_gate(w, device);
    weir_gate_attach(w->gate, w->client);
}

/* @param of  the tenant that its port is for; -1: nobody. */
struct worker *worker_new(uint32_t id, uint32_t tenant, int32_t of)
{
    struct worker *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->id = id;
    w->session.number = (UINT64_C(7) << 32) + id;
    w->tenant = tenant;
    w->of = of;
    assert_int_equal(weir_gate_port_create(&w->port_fd, &w->bell_fd), WEIR_OK);
    in_process(tell_tenant, w);
    in_process(add_port, w);
    assert_int_equal(weir_gate_client_create(w->port_fd, w->bell_fd, NULL, &w->client), WEIR_OK);
    open_gate(w, 0);
    return w;
}

void device_reaches(struct worker *w)
{
    for (uint32_t i = 0; i < w->given; i++) {
        __atomic_store_n(&w->words[i], 1, __ATOMIC_RELEASE);
    }
}

void worker_gone(struct worker *w)
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
uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void *go_through(void *user)
{
    struct launch *l = user;
    struct weir_gate_work work = {
        .class = WEIR_SCHED_KERNEL, .key = l->key, .blocks = 1000, .flags = l->worker->flags};

    l->status = weir_gate_enter(l->worker->queue, &work, &l->pass);
    atomic_store(&l->passed, true);
    return NULL;
}

void begin(struct launch *l, struct worker *w, uint64_t key)
{
    *l = (struct launch){.worker = w, .key = key};
    assert_int_equal(pthread_create(&l->thread, NULL, go_through, l), 0);
}

/* It has passed: the device has it, with a mark behind it. */
void end(struct launch *l)
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

void launch(struct worker *w, uint64_t key)
{
    struct launch l;

    begin(&l, w, key);
    end(&l);
}

uint64_t key_of(uint32_t tenant, uint64_t key)
{
    return host.process->gpus[0].members[tenant].owner | key;
}

void know(void *user)
{
    (void)user;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t tenant = 0; tenant < 2; tenant++) {
            weir_predict_learn(host.process->gpus[0].predict, WEIR_SCHED_KERNEL, key_of(tenant, 7),
                               1000, LONG_NS);
        }
    }
}

bool stays_waiting(const struct launch *l)
{
    struct timespec pause = {0, 20 * 1000 * 1000};

    nanosleep(&pause, NULL);
    return !atomic_load(&((struct launch *)(uintptr_t)l)->passed);
}

void make_alone(struct worker *w)
{
    struct timespec pause = {0, 2 * 1000 * 1000};

    for (int i = 0; i < 100 && !weir_gate_may_pass(w->queue); i++) {
        launch(w, 1);
        device_reaches(w);
        nanosleep(&pause, NULL);
    }
    assert_true(weir_gate_may_pass(w->queue));
}

/* Undecided work in a batch that has no mark yet. */
void pass_unmarked(struct worker *w, struct weir_gate_batch *batch)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = 1, .blocks = 1000};
    struct weir_gate_pass pass;

    assert_int_equal(weir_gate_enter(w->queue, &work, &pass), WEIR_OK);
    assert_null(pass.item);
    (void)weir_gate_leave(&pass, batch, true);
}
