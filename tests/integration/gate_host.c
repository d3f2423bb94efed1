#include "tests/integration/gate_host.h"

#include "../lib/tl_cmocka.h"
#include "../lib/tl_sched_check.h"
#include "base/thread.h"
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_S 60 /* of real time: bounds a hang */

struct gate_host host = {.callers = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static void nothing(void *user)
{
    (void)user;
}

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
    if (task) {
        task(about);
    }
    pthread_mutex_lock(&host.lock);
    host.done = host.task == task; /* else the next one's turn comes */
    pthread_cond_signal(&host.cond);
    pthread_mutex_unlock(&host.lock);
    return task != NULL;
}

static void *serve(void *user)
{
    (void)user;
    (void)!weir_gate_process_run(host.process, host.fd, do_task, NULL);
    return NULL;
}

void in_process_next(void (*task)(void *user))
{
    const uint64_t one = 1;

    pthread_mutex_lock(&host.lock);
    host.task = task;
    pthread_mutex_unlock(&host.lock);
    (void)!write(host.fd, &one, sizeof one);
}

/* Sessions' threads call this, too: nothing of cmocka's. */
void in_process(void (*task)(void *user), void *user)
{
    const uint64_t one = 1;
    struct timespec end;

    pthread_mutex_lock(&host.callers);
    pthread_mutex_lock(&host.lock);
    host.task = task;
    host.user = user;
    host.done = false;
    (void)!write(host.fd, &one, sizeof one);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += AWAIT_S;
    while (!host.done) {
        if (pthread_cond_timedwait(&host.cond, &host.lock, &end) != 0 && !host.done) {
            (void)fprintf(stderr, "the gate process has not done it within %d s\n", AWAIT_S);
            abort();
        }
    }
    pthread_mutex_unlock(&host.lock);
    pthread_mutex_unlock(&host.callers);
}

/* It reads the ports before it looks at its owner's descriptor, and tells the ports after that. */
void settle(void)
{
    in_process(nothing, NULL);
    in_process(nothing, NULL);
}

void host_open(const struct weir_sched_settings *settings, struct weir_spin_page *spin)
{
    struct weir_policy_set policies;
    struct weir_gate_process_params params = {
        .settings = settings, .policies = &policies, .spin = spin};

    assert_int_equal(weir_policy_set_parse(settings->policy, &policies, NULL), WEIR_OK);
    assert_int_equal(weir_gate_process_create(&params, &host.process), WEIR_OK);
    weir_thread_condition_init(&host.cond);
    host.fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(pthread_create(&host.thread, NULL, serve, NULL), 0);
}

void host_close(void)
{
    in_process(NULL, NULL);
    pthread_join(host.thread, NULL);
    weir_gate_process_destroy(host.process);
    pthread_cond_destroy(&host.cond);
    close(host.fd);
}

struct count {
    int gpu;
    struct weir_sched_counts counts;
    const char *wrong;
};

static void count(void *user)
{
    struct count *c = user;
    const struct weir_sched *sched = host.process->gpus[c->gpu].sched;

    weir_sched_count(sched, &c->counts);
    c->wrong = tl_sched_check(sched);
}

struct weir_sched_counts counts_of(int gpu)
{
    struct count c = {.gpu = gpu};

    in_process(count, &c);
    assert_null(c.wrong);
    assert_int_equal(c.counts.nonsense, 0);
    return c.counts;
}

struct weir_sched_counts counts_now(void)
{
    return counts_of(0);
}
