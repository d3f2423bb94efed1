/*
 * From arrival to grant, through the gate process, when there is room: what a launch of a small
 * graph waits for although nobody is in its way. Needs no GPU and no host.
 *
 *     gate_latency [--sessions N] [--seconds S] [--work-us T] [--gap-us T]
 *
 * A child is the gate process. Here are N workers' ends of ports, a thread with a session each,
 * which asks for a grant, has its work on the "device" for --work-us, is away for --gap-us, and
 * asks again. Prints a line for each way to wait, as the host chooses it by how busy the cores are
 * (host_backend/config/spin.h): all threads of the host may spin, only the gate process may, or
 * none.
 *
 *     gate sessions N spin all|gate|nobody us p50 P p99 P max M n N room R % cpu C %
 *
 * R: of the items, those that the scheduler granted at once. C: what the gate process took of a
 * core. First comes a line of the same sessions with a process that only answers, which is what
 * the machine itself takes:
 *
 *     echo sessions N us p50 P p99 P max M n N
 */
#include "base/clock.h"
#include "host_backend/config/spin.h"
#include "host_backend/gate/gate.h"
#include "host_backend/gate/port.h"
#include "host_backend/gate/process/process.h"
#include "tests/bench/timing.h"
#include "tests/lib/tl_gate_ops.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SMS          132u
#define SESSIONS_MAX 256u
#define SAMPLES_MAX  (1u << 20) /* of a session */
#define WORDS        1024u

static const uint8_t uuid[16] = "a GPU";
static atomic_bool go;

static struct {
    double seconds, work_us, gap_us;
    unsigned sessions;
} o = {.seconds = 2, .work_us = 100, .gap_us = 100, .sessions = 20};

struct session {
    struct tl_gate_session base; /* first */
    uint32_t id;
    int port_fd, bell_fd;
    struct weir_gate *gate;
    struct weir_gate_client *client;
    struct weir_gate_queue *queue;
    struct weir_gate_batch batch;
    uint32_t words[WORDS], given;
    float *us;
    uint32_t n;
    pthread_t thread;
};

static void must(enum weir_status status, const char *what)
{
    if (status != WEIR_OK) {
        fprintf(stderr, "gate_latency: %s: %s\n", what, weir_status_text(status));
        exit(1);
    }
}

/* ------------------------------------------------------------ the gate process */

static bool goes_on(void *user)
{
    (void)user;
    return false; /* the pipe is closed: the parent has what it wanted */
}

/* What the gate process counted: items, and those that it granted later than at once. */
struct counted {
    uint64_t gated, later;
};

static void count(struct weir_gate_process *process, struct counted *ret_counted)
{
    for (uint32_t i = 0; i < o.sessions; i++) {
        struct weir_status_tenant row;

        if (weir_gate_process_usage(process, i, &row)) {
            uint64_t later = row.waits_100us + row.waits_1ms + row.waits_10ms + row.waits_100ms +
                             row.waits_1s + row.waits_longer;

            ret_counted->gated += row.waits_10us + later;
            ret_counted->later += later;
        }
    }
}

static void serve(const struct session *sessions, struct weir_spin_page *spin, int fd,
                  struct counted *ret_counted)
{
    struct weir_sched_settings settings = weir_sched_settings_default();
    struct weir_policy_set policies;
    struct weir_gate_process_params params = {
        .settings = &settings, .policies = &policies, .spin = spin};
    struct weir_tenant_config tenant;
    struct weir_link_gpu gpu = {
        .sms = SMS, .fill = WEIR_SCHED_FILL_ALL, .levels = true, .real = true};
    struct weir_gate_process *process;

    memcpy(gpu.uuid, uuid, sizeof gpu.uuid);
    must(weir_policy_set_parse("fair", &policies, NULL), "policy");
    must(weir_gate_process_create(&params, &process), "gate process");
    weir_gate_process_gpu(process, &gpu);
    for (unsigned i = 0; i < o.sessions; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "t%u", i);
        weir_tenant_config_default(&tenant, name);
        weir_gate_process_tenant_set(process, i, &tenant);
        must(weir_gate_process_port_add(process, i + 1, (int32_t)i, 1, sessions[i].port_fd,
                                        sessions[i].bell_fd),
             "port");
    }
    must(weir_gate_process_run(process, fd, goes_on, NULL), "gate process");
    count(process, ret_counted);
    weir_gate_process_destroy(process);
}

/* ------------------------------------------------------------ the workers */

static float *new_samples(void)
{
    float *us = malloc(SAMPLES_MAX * sizeof *us);

    if (!us) {
        must(WEIR_ERR_NO_MEMORY, "samples");
    }
    return us;
}

static void open_session(struct session *s, const struct weir_spin_page *spin)
{
    struct weir_sched_settings settings = weir_sched_settings_default();
    /* As on a GPU: small graphs run beside each other, so there is room. */
    struct weir_gate_params gate = {.sms = SMS,
                                    .levels = true,
                                    .real = true,
                                    .fill = WEIR_SCHED_FILL_ALL,
                                    .settings = &settings,
                                    .spin = spin,
                                    .uuid = uuid,
                                    .ops = &tl_gate_ops};

    must(weir_gate_client_create(s->port_fd, s->bell_fd, NULL, &s->client), "client");
    must(weir_gate_create(&gate, &s->gate), "gate");
    weir_gate_attach(s->gate, s->client);
    must(weir_gate_queue_create(s->gate, s->id - 1, "own", 100, &tl_gate_session_ops, s, &s->queue),
         "queue");
    s->us = new_samples();
}

static void *run_session(void *user)
{
    struct session *s = user;
    struct weir_gate_work work = {
        .class = WEIR_SCHED_GRAPH, .key = s->id, .blocks = 2, .blocks_per_sm = 1};

    while (!atomic_load(&go)) {
        bench_pause_us(100);
    }
    while (!atomic_load(&s->base.over)) {
        struct weir_gate_mark mark = {.word = &s->words[s->given % WORDS], .value = 1};
        struct weir_gate_pass pass;
        uint64_t begin_ns = weir_clock_now_ns();

        if (weir_gate_enter(s->queue, &work, &pass) != WEIR_OK) {
            break;
        }
        if (pass.item && s->n < SAMPLES_MAX) { /* not one that passed undecided */
            s->us[s->n++] = (float)(weir_clock_now_ns() - begin_ns) * 1e-3f;
        }
        __atomic_store_n(&s->words[s->given++ % WORDS], 0, __ATOMIC_RELAXED);
        (void)weir_gate_leave(&pass, &s->batch, true);
        weir_gate_batch_close(s->queue, &s->batch, &mark);
        bench_pause_us(o.work_us);
        __atomic_store_n((uint32_t *)(uintptr_t)mark.word, 1, __ATOMIC_RELEASE);
        bench_pause_us(o.gap_us);
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void run_threads(struct session *sessions, void *(*run)(void *))
{
    atomic_store(&go, false);
    for (unsigned i = 0; i < o.sessions; i++) {
        if (pthread_create(&sessions[i].thread, NULL, run, &sessions[i]) != 0) {
            must(WEIR_ERR_NO_MEMORY, "thread");
        }
    }
    atomic_store(&go, true);
    bench_pause_us(o.seconds * 1e6);
    for (unsigned i = 0; i < o.sessions; i++) {
        atomic_store(&sessions[i].base.over, true);
    }
    for (unsigned i = 0; i < o.sessions; i++) {
        (void)pthread_join(sessions[i].thread, NULL);
    }
}

/* Of all sessions together, but for the first tenth of each. @return how many */
static size_t print_times(const struct session *sessions)
{
    size_t n = 0, room = 1;

    for (unsigned i = 0; i < o.sessions; i++) {
        room += sessions[i].n;
    }
    float *all = malloc(room * sizeof *all);
    if (!all) {
        must(WEIR_ERR_NO_MEMORY, "samples");
    }
    for (unsigned i = 0; i < o.sessions; i++) {
        for (uint32_t k = sessions[i].n / 10; k < sessions[i].n; k++) {
            all[n++] = sessions[i].us[k];
        }
    }
    if (n != 0) {
        qsort(all, n, sizeof *all, by_size);
        printf("us p50 %.2f p99 %.2f max %.1f n %zu", (double)all[n / 2], (double)all[n * 99 / 100],
               (double)all[n - 1], n);
    }
    free(all);
    return n;
}

static void report(const struct session *sessions, const char *level, const struct counted *counted,
                   const struct rusage *gate)
{
    double gate_s = (double)(gate->ru_utime.tv_sec + gate->ru_stime.tv_sec) +
                    (double)(gate->ru_utime.tv_usec + gate->ru_stime.tv_usec) * 1e-6;
    double at_once = counted->gated != 0 ? 1 - (double)counted->later / (double)counted->gated : 0;

    printf("gate sessions %u spin %s ", o.sessions, level);
    if (print_times(sessions) == 0 || atomic_load(&tl_gate_deaf) != 0) {
        fprintf(stderr, "gate_latency: the gate process granted nothing or stopped reading\n");
        exit(1);
    }
    printf(" room %.1f %% cpu %.0f %%\n", 100 * at_once, 100 * gate_s / o.seconds);
    (void)fflush(stdout); /* the next gate process is forked from here */
}

/* ------------------------------------------------------------ the echo */

/* A session's question, which its answer repeats. */
struct echo {
    _Alignas(64) atomic_uint asked, answered;
};

static void answer_all(struct echo *echo)
{
    for (;;) {
        for (unsigned i = 0; i < o.sessions; i++) {
            unsigned asked = atomic_load_explicit(&echo[i].asked, memory_order_acquire);

            if (asked != atomic_load_explicit(&echo[i].answered, memory_order_relaxed)) {
                atomic_store_explicit(&echo[i].answered, asked, memory_order_release);
            }
        }
    }
}

static struct echo *echoes;

static void *run_echo(void *user)
{
    struct session *s = user;
    struct echo *echo = &echoes[s->id - 1];

    while (!atomic_load(&s->base.over)) {
        uint64_t begin_ns = weir_clock_now_ns();
        unsigned asked = atomic_load(&echo->asked) + 1;

        atomic_store_explicit(&echo->asked, asked, memory_order_release);
        while (atomic_load_explicit(&echo->answered, memory_order_acquire) != asked) {
            weir_cpu_pause();
        }
        if (s->n < SAMPLES_MAX) {
            s->us[s->n++] = (float)(weir_clock_now_ns() - begin_ns) * 1e-3f;
        }
        bench_pause_us(o.work_us);
        bench_pause_us(o.gap_us);
    }
    return NULL;
}

static void measure_echo(void)
{
    struct session *sessions = calloc(o.sessions, sizeof *sessions);
    pid_t child = -1;

    echoes = mmap(NULL, o.sessions * sizeof *echoes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sessions && echoes != MAP_FAILED) {
        child = fork();
    }
    if (child < 0) {
        must(WEIR_ERR_NO_MEMORY, "echo");
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer_all(echoes);
    }
    for (unsigned i = 0; i < o.sessions; i++) {
        sessions[i].id = i + 1;
        sessions[i].us = new_samples();
    }
    run_threads(sessions, run_echo);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    printf("echo sessions %u ", o.sessions);
    (void)print_times(sessions);
    printf("\n");
    (void)fflush(stdout);
    for (unsigned i = 0; i < o.sessions; i++) {
        free(sessions[i].us);
    }
    (void)munmap(echoes, o.sessions * sizeof *echoes);
    free(sessions);
}

/* ------------------------------------------------------------ the gate */

static pid_t start_gate(const struct session *sessions, struct weir_spin_page *spin,
                        const int ends[2], struct counted *counted)
{
    pid_t child = fork();

    if (child < 0) {
        must(WEIR_ERR_NO_MEMORY, "gate process");
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(ends[1]);
        serve(sessions, spin, ends[0], counted);
        _exit(0);
    }
    (void)close(ends[0]);
    return child;
}

static void run_all(struct session *sessions, const struct weir_spin_page *spin)
{
    for (unsigned i = 0; i < o.sessions; i++) {
        open_session(&sessions[i], spin);
    }
    run_threads(sessions, run_session);
}
static void measure(enum weir_spin_level level, bool gate_may, const char *word)
{
    struct session *sessions = calloc(o.sessions, sizeof *sessions);
    struct counted *counted =
        mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct weir_spin_page *spin;
    struct rusage rusage;
    int spin_fd, ends[2], status;

    if (!sessions || counted == MAP_FAILED || pipe(ends) != 0) {
        must(WEIR_ERR_NO_MEMORY, "sessions");
    }
    must(weir_spin_page_create(&spin_fd, &spin), "page");
    atomic_store(&spin->level, level);
    atomic_store(&spin->gate_may, gate_may);
    for (unsigned i = 0; i < o.sessions; i++) {
        sessions[i].id = i + 1;
        sessions[i].base.number = i + 1;
        must(weir_gate_port_create(&sessions[i].port_fd, &sessions[i].bell_fd), "port");
    }
    pid_t child = start_gate(sessions, spin, ends, counted);
    run_all(sessions, spin);
    (void)close(ends[1]); /* the gate process ends */
    if (wait4(child, &status, 0, &rusage) != child || status != 0) {
        must(WEIR_ERR_CLOSED, "gate process");
    }
    report(sessions, word, counted, &rusage);
    for (unsigned i = 0; i < o.sessions; i++) {
        weir_gate_queue_destroy(sessions[i].queue);
        weir_gate_destroy(sessions[i].gate);
        weir_gate_client_destroy(sessions[i].client);
        (void)close(sessions[i].port_fd);
        free(sessions[i].us);
    }
    (void)close(spin_fd);
    (void)munmap(counted, sizeof *counted);
    free(sessions);
}

static double number(const char *text)
{
    char *rest;
    double value = text ? strtod(text, &rest) : -1;

    if (!text || *text == 0 || *rest != 0 || !(value >= 0 && value <= 1e9)) {
        fprintf(stderr, "gate_latency: not a number: %s\n", text ? text : "(nothing)");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--sessions") == 0) {
            o.sessions = (unsigned)number(argv[i + 1]);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            o.seconds = number(argv[i + 1]);
        } else if (strcmp(argv[i], "--work-us") == 0) {
            o.work_us = number(argv[i + 1]);
        } else if (strcmp(argv[i], "--gap-us") == 0) {
            o.gap_us = number(argv[i + 1]);
        } else {
            fprintf(stderr, "usage: gate_latency [--sessions N] [--seconds S] [--work-us T] "
                            "[--gap-us T]\n");
            return 2;
        }
    }
    if (o.sessions < 2 || o.sessions > SESSIONS_MAX) {
        fprintf(stderr, "gate_latency: --sessions is 2 to %u\n", SESSIONS_MAX);
        return 2;
    }
    measure_echo();
    measure(WEIR_SPIN_ALL, true, "all");
    measure(WEIR_SPIN_NOBODY, true, "gate");
    measure(WEIR_SPIN_NOBODY, false, "nobody");
    return 0;
}
