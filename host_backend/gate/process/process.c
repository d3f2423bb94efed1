/*
 * The loop: reads all ports in turn, advances the schedulers, sends news, and sleeps.
 *
 * The process sleeps when no port has a request. It says so in every port before it checks the
 * ports a last time, so a worker that posts then rings the port's bell. The process polls the bell
 * edge-triggered and never reads it: the worker shares the descriptor and its flags, so it could
 * make the read block. After a request the process polls for more before it sleeps (pace.h), if it
 * may spin now.
 */
#include "host_backend/gate/process/pace.h"
#include "host_backend/gate/process/served.h"

#include "host_backend/config/control.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SLACK_NS 1000ul /* timer slack of this thread's sleeps; the default is 50 us */
#define PAUSES   16
#define LINK_NS  (5 * WEIR_NS_PER_MS) /* how often the supervisor's link is read during work */
#define KEEP_NS  (10 * WEIR_NS_PER_S) /* how often the learned durations may be saved */
#define EVENTS   64

/* ---------------------------------------------------------------- begin, end */

enum weir_status weir_gate_process_create(const struct weir_gate_process_params *params,
                                          struct weir_gate_process **ret_process)
{
    struct weir_gate_process *process = calloc(1, sizeof *process);

    WEIR_FAIL_IF(!process, WEIR_ERR_NO_MEMORY);
    process->settings = *params->settings;
    process->policies = *params->policies;
    process->spin = params->spin;
    process->times = (struct served_times){.fd = -1, .kept_ns = weir_clock_now_ns()};
    served_spans_begin(process);
    process->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (process->epoll < 0) {
        free(process);
        return WEIR_ERR_IO;
    }
    *ret_process = process;
    return WEIR_OK;
}

void weir_gate_process_destroy(struct weir_gate_process *process)
{
    char text[WEIR_HOST_TEXT_BYTES];

    if (!process) {
        return;
    }
    while (process->n_ports != 0) {
        weir_gate_process_port_remove(process, process->ports[0]->id);
    }
    weir_gate_process_trace_stop(process, text, sizeof text);
    served_times_close(process);
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        served_gpu_destroy(&process->gpus[i]);
    }
    close(process->epoll);
    free(process);
}

/* ---------------------------------------------------------------- ports */

static struct served_port *port_of(struct weir_gate_process *process, uint32_t id,
                                   uint32_t *ret_index)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        if (process->ports[i]->id == id) {
            *ret_index = i;
            return process->ports[i];
        }
    }
    return NULL;
}

static enum weir_status open_port(struct weir_gate_process *process, struct served_port *port,
                                  int port_fd, int bell_fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = -1};
    WEIR_TRY(weir_gate_port_map(port_fd, &port->port));
    port->bell = dup(bell_fd);
    event.data.fd = port->bell;
    if (port->bell < 0 || epoll_ctl(process->epoll, EPOLL_CTL_ADD, port->bell, &event) != 0) {
        close(port->bell);
        weir_gate_port_unmap(port->port);
        return WEIR_ERR_IO;
    }
    return WEIR_OK;
}

enum weir_status weir_gate_process_port_add(struct weir_gate_process *process, uint32_t id,
                                            int32_t tenant, uint32_t domain, int port_fd,
                                            int bell_fd)
{
    uint32_t index;

    WEIR_FAIL_IF(port_of(process, id, &index) || process->n_ports == SERVED_PORTS_MAX,
                 WEIR_ERR_EXISTS);
    struct served_port *port = calloc(1, sizeof *port);
    WEIR_FAIL_IF(!port, WEIR_ERR_NO_MEMORY);
    port->id = id;
    if (tenant >= 0 && tenant < WEIR_CONFIG_TENANTS_MAX) {
        served_tenants_put(&port->may_serve, (uint32_t)tenant, true);
    }
    port->domain = domain;
    enum weir_status status = open_port(process, port, port_fd, bell_fd);
    if (status != WEIR_OK) {
        free(port);
        return status;
    }
    process->ports[process->n_ports++] = port;
    return WEIR_OK;
}

void weir_gate_process_port_tenant(struct weir_gate_process *process, uint32_t id, uint32_t tenant)
{
    uint32_t index;
    struct served_port *port = port_of(process, id, &index);

    if (port && tenant < WEIR_CONFIG_TENANTS_MAX) {
        served_tenants_put(&port->may_serve, tenant, true);
    }
}

void weir_gate_process_port_remove(struct weir_gate_process *process, uint32_t id)
{
    uint32_t index;
    struct served_port *port = port_of(process, id, &index);

    if (port) {
        process->ports[index] = process->ports[--process->n_ports];
        (void)epoll_ctl(process->epoll, EPOLL_CTL_DEL, port->bell, NULL);
        close(port->bell);
        served_port_close(port);
    }
}

/* ---------------------------------------------------------------- policies, predictions */

void weir_gate_process_policies_set(struct weir_gate_process *process,
                                    const struct weir_policy_set *policies)
{
    process->policies = *policies;
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        served_gpu_policies(&process->gpus[i], policies);
    }
}

bool weir_gate_process_prediction(struct weir_gate_process *process, uint32_t gpu,
                                  struct weir_status_prediction *row)
{
    struct weir_predict_stats stats;

    WEIR_FAIL_IF(gpu >= process->n_gpus, false);
    weir_predict_stats(process->gpus[gpu].predict, &stats);
    *row = (struct weir_status_prediction){.device = gpu,
                                           .keys = stats.keys,
                                           .keys_found = process->gpus[gpu].keys_found,
                                           .asked = stats.asked,
                                           .known = stats.known,
                                           .kernels = stats.kernels.count,
                                           .kernel_mean = stats.kernels.mean,
                                           .kernel_median = stats.kernels.median,
                                           .copies = stats.copies.count,
                                           .copy_mean = stats.copies.mean,
                                           .copy_median = stats.copies.median};
    return true;
}

/* ---------------------------------------------------------------- traces */

void weir_gate_process_trace_start(struct weir_gate_process *process, uint64_t gpu, int fd,
                                   char *text, size_t bytes)
{
    if (gpu >= process->n_gpus) {
        snprintf(text, bytes, "error: there is no such device, or nothing has used it yet");
        close(fd);
        return;
    }
    served_trace_start(&process->gpus[gpu], fd, text, bytes);
}

void weir_gate_process_trace_stop(struct weir_gate_process *process, char *text, size_t bytes)
{
    snprintf(text, bytes, "nothing was being recorded");
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        served_trace_stop(&process->gpus[i], text, bytes);
    }
}

/* ---------------------------------------------------------------- the loop */

/* Read all ports once. @return how many requests there were */
static uint32_t read_ports(struct weir_gate_process *process)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < process->n_ports; i++) {
        n += served_port_read(process, process->ports[i]);
    }
    return n;
}

static void tell_ports(struct weir_gate_process *process)
{
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        served_gpu_tick(process, &process->gpus[i], weir_clock_now_ns());
    }
    weir_sched_spans_tick(&process->spans, weir_clock_now_ns());
    for (uint32_t i = 0; i < process->n_ports; i++) {
        struct served_port *port = process->ports[i];

        served_port_rooms(port);
        if (port->has_orders) {
            port->has_orders = false;
            weir_gate_port_call(port->port);
        }
    }
}

/* The earliest time at which a GPU's scheduler wants to be called. */
static uint64_t next_ns(const struct weir_gate_process *process)
{
    uint64_t at_ns = process->spans.next_ns;

    for (uint32_t i = 0; i < process->n_gpus; i++) {
        uint64_t gpu_ns = served_gpu_next_ns(&process->gpus[i]);

        at_ns = WEIR_MIN(gpu_ns, at_ns);
    }
    return at_ns;
}

static bool any_request(const struct weir_gate_process *process)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        const struct served_port *port = process->ports[i];

        if (port->holds || atomic_load(&port->port->head) != port->tail) {
            return true;
        }
    }
    return false;
}

static void say_asleep(struct weir_gate_process *process, bool asleep)
{
    for (uint32_t i = 0; i < process->n_ports; i++) {
        atomic_store(&process->ports[i]->port->asleep, asleep);
    }
}

/* Sleep until an event or for for_ns. @return whether the owner's descriptor can be read */
static bool wait_for_events(struct weir_gate_process *process, int fd, uint64_t for_ns)
{
    struct timespec limit = {(time_t)(for_ns / WEIR_NS_PER_S), (long)(for_ns % WEIR_NS_PER_S)};
    struct pollfd all = {process->epoll, POLLIN, 0};
    struct epoll_event events[EVENTS];
    bool mine = false;

    /* Wait by ppoll() first, because epoll_wait() counts milliseconds. */
    if (for_ns != 0 && ppoll(&all, 1, &limit, NULL) <= 0) {
        process->heard++;
        return false;
    }
    int n = epoll_wait(process->epoll, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        mine |= events[i].data.fd == fd;
    }
    process->heard += !mine && n < EVENTS; /* the owner's event may be among those beyond EVENTS */
    return mine;
}

static bool sleep_until(struct weir_gate_process *process, int fd, uint64_t at_ns)
{
    uint64_t now_ns = weir_clock_now_ns(), for_ns = at_ns > now_ns ? at_ns - now_ns : 0;

    say_asleep(process, true);
    bool mine = wait_for_events(process, fd, any_request(process) ? 0 : for_ns);
    say_asleep(process, false);
    return mine;
}

struct times {
    struct served_pace pace;
    uint64_t heard_ns, kept_ns;
};

/* Had several tenants work on a GPU in the last second? */
static bool has_company(const struct weir_gate_process *process)
{
    uint32_t crowded = 0;

    for (uint32_t i = 0; i < process->n_gpus; i++) {
        crowded |= process->gpus[i].crowded;
    }
    return crowded != 0;
}

/* May the process poll for the next request without sleeping? */
static bool looks_on(struct weir_gate_process *process, struct served_pace *pace, uint64_t now_ns)
{
    bool for_long = served_pace_is_often(pace) && has_company(process);

    return served_pace_looks(pace, for_long, now_ns) &&
           (for_long ? weir_spin_gate_may(process->spin) : weir_spin_host_may(process->spin));
}

/* Poll for requests without sleeping. @return as wait_for_events(), which is called now and then */
static bool look_on(struct weir_gate_process *process, int fd, struct times *times, uint32_t n)
{
    uint64_t now_ns = weir_clock_now_ns();

    for (int i = 0; n == 0 && i < PAUSES; i++) {
        weir_cpu_pause();
    }
    if (now_ns - times->heard_ns <= LINK_NS) {
        return false;
    }
    times->heard_ns = now_ns;
    return wait_for_events(process, fd, 0);
}

/* Read requests, decide, send news, and wait for more. @return as wait_for_events() */
static bool go_round(struct weir_gate_process *process, int fd, struct times *times, bool spins)
{
    uint64_t now_ns = weir_clock_now_ns(), at_ns;
    uint32_t n = read_ports(process);

    tell_ports(process);
    served_pace_note(&times->pace, n, n != 0 ? weir_clock_now_ns() : now_ns);
    if (now_ns - times->kept_ns > KEEP_NS) {
        served_times_tick(process, now_ns);
        times->kept_ns = now_ns;
    }
    if (n != 0 || (spins && looks_on(process, &times->pace, now_ns))) {
        return look_on(process, fd, times, n);
    }
    served_pace_sleep(&times->pace);
    at_ns = next_ns(process);
    return sleep_until(process, fd, at_ns < now_ns + KEEP_NS ? at_ns : now_ns + KEEP_NS);
}

enum weir_status weir_gate_process_run(struct weir_gate_process *process, int fd,
                                       bool (*handle)(void *user), void *user)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    bool many_cores = sysconf(_SC_NPROCESSORS_ONLN) >= SERVED_MANY_CORES, goes_on = true;
    struct times times = {.kept_ns = weir_clock_now_ns()};

    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS);
    WEIR_FAIL_IF(epoll_ctl(process->epoll, EPOLL_CTL_ADD, fd, &event) != 0, WEIR_ERR_IO);
    while (goes_on) {
        if (go_round(process, fd, &times, many_cores && process->real)) {
            (void)read_ports(process); /* handle requests that were posted before the owner wrote */
            goes_on = handle(user);
        }
    }
    (void)epoll_ctl(process->epoll, EPOLL_CTL_DEL, fd, NULL);
    return WEIR_OK;
}
