/*
 * admin.sock: a client sends a line ("status", "stats", "tenant ...", "trace ...", the last with a
 * file's descriptor), and reads rows until the end.
 *
 * A request makes the supervisor ask every ready worker (a gathering); when all have answered, or
 * after a second, everyone who waits is answered with what is there. What a request changed was
 * sent to the workers before the question, so their answers also say that they have it.
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/log.h"
#include "host_backend/config/status_text.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define REQUEST_WAIT_NS (2 * WEIR_NS_PER_S)
#define GATHER_WAIT_NS  WEIR_NS_PER_S
#define STATS_MAX_BYTES (12u << 20) /* of an answer: what a client takes */

static void close_client(struct weir_admin_client *client)
{
    close(client->fd);
    if (client->has_passed) {
        close(client->passed_fd);
    }
    weir_status_report_destroy(client->report);
    *client = (struct weir_admin_client){.fd = -1};
}

void weir_sup_admin_accept(struct weir_supervisor *sup)
{
    struct timeval limit = {1, 0};
    int fd = weir_sup_accept_operator(sup, sup->admin_fd, SOCK_CLOEXEC);

    if (fd < 0) {
        return;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        if (sup->clients[i].fd < 0) {
            sup->clients[i] = (struct weir_admin_client){
                .fd = fd, .deadline_ns = weir_clock_now_ns() + REQUEST_WAIT_NS};
            return;
        }
    }
    close(fd);
}

static void start_gathering(struct weir_supervisor *sup, bool stats)
{
    struct weir_link_message message = {.type = stats ? WEIR_LINK_STATS : WEIR_LINK_STATUS};

    if (sup->gathering) {
        return;
    }
    sup->gathering = true;
    sup->n_gatherings++;
    sup->gathering_stats = stats;
    sup->stats_bytes = 0;
    sup->gather_deadline_ns = weir_clock_now_ns() + GATHER_WAIT_NS;
    sup->gathered.n_sessions = 0;
    sup->gathered.n_tenants = 0;
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->ready) {
            w->answering = weir_sup_worker_send(sup, i, &message, -1);
        }
    }
}

uint64_t weir_sup_admin_gather(struct weir_supervisor *sup)
{
    start_gathering(sup, false);
    return sup->n_gatherings;
}

/* The worker that all tenants share, or -1. */
static int shared_worker(const struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used && sup->workers[i].ready && sup->workers[i].tenant < 0) {
            return i;
        }
    }
    return -1;
}

/* "start DEVICE", with a file, or "stop". The workers' next rows say what came of it. */
static bool trace_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                          const char *words)
{
    struct weir_link_message message = {.type = WEIR_LINK_TRACE};
    char *end;

    if (strcmp(words, "stop") == 0) {
        for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
            if (sup->workers[i].used && sup->workers[i].ready) {
                (void)weir_sup_worker_send(sup, i, &message, -1);
            }
        }
        return true;
    }
    if (strncmp(words, "start ", 6) != 0 || words[6] < '0' || words[6] > '9' ||
        !client->has_passed) {
        return false;
    }
    message.trace.device = (uint32_t)strtoul(words + 6, &end, 10);
    (void)weir_sup_worker_send(sup, shared_worker(sup), &message, client->passed_fd);
    return *end == 0;
}

/* What a whole line asks for; does what it says about a tenant. false: nothing known. */
static bool take_request(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    client->wish = WEIR_WANTS_STATUS;
    if (strcmp(client->request, "status") == 0) {
        return true;
    }
    if (strcmp(client->request, "stats") == 0) {
        client->wish = WEIR_WANTS_STATS;
        return true;
    }
    if (strncmp(client->request, "trace ", 6) == 0) {
        client->wish = WEIR_WANTS_TRACE;
        return trace_request(sup, client, client->request + 6);
    }
    if (strncmp(client->request, "policy ", 7) == 0) {
        client->wish = WEIR_WANTS_POLICY;
        return weir_sup_policy_request(sup, client, client->request + 7);
    }
    client->wish = WEIR_WANTS_TENANT;
    return weir_sup_tenant_request(sup, client, client->request);
}

/* As recv(). One descriptor is the client's; of several none is, and neither is a second one. */
static ssize_t receive(struct weir_admin_client *client, void *buffer, size_t bytes)
{
    struct weir_fds fds;
    ssize_t n = weir_fd_receive(client->fd, buffer, bytes, MSG_DONTWAIT, &fds);

    if (fds.n == 1 && !client->has_passed) {
        client->passed_fd = fds.fd[0];
        client->has_passed = true;
    } else {
        weir_fds_close(&fds);
    }
    return n;
}

void weir_sup_admin_read(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    size_t room = sizeof client->request - 1 - client->request_bytes;
    ssize_t n = receive(client, client->request + client->request_bytes, room);
    char *end;

    if (n < 0 && errno == EAGAIN) {
        return;
    }
    client->request_bytes += n > 0 ? (size_t)n : 0;
    client->request[client->request_bytes] = 0;
    end = strchr(client->request, '\n');
    if (end == NULL && n > 0 && (size_t)n < room) {
        return; /* the rest is on its way, or the deadline is */
    }
    if (end == NULL || end[1] != 0) {
        close_client(client);
        return;
    }
    *end = 0;
    if (!take_request(sup, client)) {
        close_client(client);
        return;
    }
    client->asked = true;
    /* One that is under way may have asked the workers before this changed something. */
    client->gathering = sup->n_gatherings + (client->wish >= WEIR_WANTS_TENANT || !sup->gathering);
    start_gathering(sup, client->wish == WEIR_WANTS_STATS);
}

/* Append a copy of an element; a lack of memory loses a row of a report, no more. */
void weir_sup_append(void **array, size_t *n, const void *element, size_t size)
{
    void *bigger = realloc(*array, (*n + 1) * size);

    if (bigger != NULL) {
        *array = bigger;
        memcpy((char *)bigger + (*n)++ * size, element, size);
    }
}

/* Append what a worker wrote into its file. */
static void take_stats(struct weir_supervisor *sup, int fd)
{
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *bigger;
    ssize_t n;

    if (bytes <= 0 || (size_t)bytes > STATS_MAX_BYTES - sup->stats_bytes) {
        return;
    }
    bigger = realloc(sup->stats_text, sup->stats_bytes + (size_t)bytes);
    if (bigger == NULL) {
        return;
    }
    sup->stats_text = bigger;
    n = pread(fd, bigger + sup->stats_bytes, (size_t)bytes, 0);
    sup->stats_bytes += n == bytes ? (size_t)n : 0;
}

void weir_sup_admin_row(struct weir_supervisor *sup, int worker,
                        const struct weir_link_message *message, int fd)
{
    struct weir_status_report *g = &sup->gathered;

    if (message->type == WEIR_LINK_ROW_SESSION) {
        weir_sup_append((void **)&g->sessions, &g->n_sessions, &message->session_row,
                        sizeof message->session_row);
    } else if (message->type == WEIR_LINK_ROW_TENANT) {
        weir_sup_append((void **)&g->tenants, &g->n_tenants, &message->tenant_row,
                        sizeof message->tenant_row);
    } else {
        sup->workers[worker].row = message->worker;
        sup->workers[worker].answering = false;
        if (fd >= 0 && sup->gathering_stats) {
            take_stats(sup, fd);
        }
    }
}

/* A row for every configured tenant, with what its worker said of it. */
static void fill_tenants(struct weir_supervisor *sup, struct weir_status_report *report)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];
        struct weir_status_tenant row = {0};

        if (!t->used || t->gone) {
            continue;
        }
        for (size_t k = 0; k < sup->gathered.n_tenants; k++) {
            if (strcmp(sup->gathered.tenants[k].name, t->config.name) == 0) {
                row = sup->gathered.tenants[k];
            }
        }
        weir_tenant_config_show(&t->config, &row);
        snprintf(row.source, sizeof row.source, "%s", weir_origin_text(t->source));
        row.changed = 0;
        for (size_t k = 0; k < weir_setting_count(); k++) {
            row.changed += !weir_setting_equal(k, &t->config, &t->base);
        }
        weir_sup_append((void **)&report->tenants, &report->n_tenants, &row, sizeof row);
    }
}

static void fill_workers(struct weir_supervisor *sup, struct weir_status_report *report)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (!w->used) {
            continue;
        }
        w->row.pid = (uint64_t)w->pid;
        w->row.restarts = w->restarts;
        if (w->tenant >= 0) {
            memcpy(w->row.tenant, sup->tenants[w->tenant].config.name, sizeof w->row.tenant);
        }
        weir_sup_append((void **)&report->workers, &report->n_workers, &w->row, sizeof w->row);
    }
}

static void send_text(int fd, const char *text, size_t bytes)
{
    size_t sent = 0;

    while (text != NULL && sent < bytes) {
        ssize_t n = send(fd, text + sent, bytes - sent, MSG_NOSIGNAL);

        if (n <= 0) {
            break;
        }
        sent += (size_t)n;
    }
}

/* Rows of one tenant, with what was asked of it. */
static void fill_tenant_answer(struct weir_supervisor *sup, const struct weir_admin_client *client,
                               struct weir_status_report *report)
{
    const struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, client->tenant);
    struct weir_status_report all = {0};

    fill_tenants(sup, &all);
    for (size_t i = 0; i < all.n_tenants; i++) {
        if (strcmp(all.tenants[i].name, client->tenant) == 0) {
            weir_sup_append((void **)&report->tenants, &report->n_tenants, &all.tenants[i],
                            sizeof all.tenants[i]);
        }
    }
    free(all.tenants);
    report->settings = client->report->settings;
    report->n_settings = client->report->n_settings;
    report->notes = client->report->notes;
    report->n_notes = client->report->n_notes;
    if (tenant != NULL && tenant->worker >= 0 &&
        (!sup->workers[tenant->worker].ready || sup->workers[tenant->worker].answering)) {
        struct weir_status_note note = {"warning", "its worker has not said yet that it has this"};

        weir_sup_append((void **)&client->report->notes, &client->report->n_notes, &note,
                        sizeof note);
        report->notes = client->report->notes;
        report->n_notes = client->report->n_notes;
    }
}

/* Who asks may stand in another directory. */
static void fill_config_path(const struct weir_supervisor *sup, struct weir_status_report *report)
{
    char path[PATH_MAX];

    if (sup->params.config_path != NULL && realpath(sup->params.config_path, path) != NULL &&
        strlen(path) < sizeof report->config) {
        memcpy(report->config, path, strlen(path) + 1);
    }
}

static void fill_host(const struct weir_supervisor *sup, struct weir_status_report *report)
{
    report->pid = (uint64_t)getpid();
    report->kept_fds = sup->n_kept;
    snprintf(report->version, sizeof report->version, "%s", WEIR_VERSION);
    memcpy(report->run_dir, sup->config.run_dir,
           strnlen(sup->config.run_dir, sizeof report->run_dir - 1));
    snprintf(report->policy, sizeof report->policy, "%s", sup->config.scheduler.policy);
    fill_config_path(sup, report);
    report->age_s = (double)(weir_clock_now_ns() - sup->started_ns) / (double)WEIR_NS_PER_S;
}

void weir_sup_admin_report(struct weir_supervisor *sup, struct weir_status_report *report)
{
    fill_host(sup, report);
    fill_tenants(sup, report);
    fill_workers(sup, report);
    report->sessions = sup->gathered.sessions;
    report->n_sessions = sup->gathered.n_sessions;
}

static void answer(struct weir_supervisor *sup, const struct weir_admin_client *client)
{
    struct weir_status_report report = {0};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (client->wish == WEIR_WANTS_TENANT) {
        fill_host(sup, &report);
        fill_tenant_answer(sup, client, &report);
    } else if (client->wish == WEIR_WANTS_POLICY) {
        fill_host(sup, &report);
        report.notes = client->report->notes;
        report.n_notes = client->report->n_notes;
    } else {
        weir_sup_admin_report(sup, &report);
    }
    if (out != NULL) {
        weir_status_text_write(out, &report);
        fclose(out);
    }
    send_text(client->fd, text, bytes);
    free(text);
    free(report.tenants);
    free(report.workers);
}

/* Does the gathering that is over answer this client? */
static bool is_answered(const struct weir_supervisor *sup, const struct weir_admin_client *client)
{
    return client->gathering <= sup->n_gatherings &&
           (client->wish != WEIR_WANTS_STATS || sup->gathering_stats);
}

/* A gathering is over: answer, and say whether somebody waits for another,
 * with statistics or not. */
static bool answer_all(struct weir_supervisor *sup, bool *ret_stats)
{
    bool again = false;

    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        struct weir_admin_client *client = &sup->clients[i];

        if (client->fd < 0 || !client->asked) {
            continue;
        }
        if (!is_answered(sup, client)) {
            again = true;
            *ret_stats |= client->wish == WEIR_WANTS_STATS;
            continue;
        }
        if (client->wish == WEIR_WANTS_STATS) {
            send_text(client->fd, sup->stats_text, sup->stats_bytes);
            send_text(client->fd, WEIR_STATUS_TEXT_END, sizeof WEIR_STATUS_TEXT_END - 1);
        } else {
            answer(sup, client);
        }
        close_client(client);
    }
    return again;
}

void weir_sup_admin_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    bool complete = sup->gathering, again = false, stats = false;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        complete &= !sup->workers[i].used || !sup->workers[i].answering;
    }
    complete |= sup->gathering && now_ns >= sup->gather_deadline_ns;
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        struct weir_admin_client *client = &sup->clients[i];

        if (client->fd >= 0 && !client->asked && now_ns >= client->deadline_ns) {
            close_client(client);
        }
    }
    if (complete) {
        sup->gathered_ns = now_ns;
        again = answer_all(sup, &stats);
        sup->gathering = false;
        free(sup->stats_text);
        sup->stats_text = NULL;
        sup->stats_bytes = 0;
    }
    if (again) {
        start_gathering(sup, stats);
    }
}

int weir_sup_admin_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns)
{
    uint64_t next_ns = sup->gathering ? sup->gather_deadline_ns : WEIR_FOREVER;

    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        if (sup->clients[i].fd >= 0 && !sup->clients[i].asked &&
            sup->clients[i].deadline_ns < next_ns) {
            next_ns = sup->clients[i].deadline_ns;
        }
    }
    return weir_poll_ms(next_ns, now_ns);
}

void weir_sup_admin_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        if (sup->clients[i].fd >= 0) {
            close_client(&sup->clients[i]);
        }
    }
    if (sup->admin_fd >= 0) {
        close(sup->admin_fd);
        unlink(sup->admin_path);
    }
    free(sup->stats_text);
    free(sup->gathered.sessions);
    free(sup->gathered.tenants);
}
