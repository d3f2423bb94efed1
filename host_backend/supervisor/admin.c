/*
 * admin.sock: a client sends a line of words (requests.def), perhaps with a descriptor, and reads
 * rows until the end.
 *
 * A request makes the supervisor ask every ready worker (a gathering). When all have answered, or
 * after a second, every waiting client gets an answer from the rows that have come. The workers got
 * the changes of a request before the question, so their answers also confirm the changes.
 *
 * A client gets its answer as fast as it reads: the supervisor never waits for it.
 */
#include "host_backend/supervisor/admin.h"
#include "base/fd.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/append.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_for.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/fd_pass.h"
#include "host_backend/config/status_text.h"
#include "proto/wire/accept.h"
#include "proto/wire/control.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define REQUEST_WAIT_NS (2 * WEIR_NS_PER_S)
#define GATHER_WAIT_NS  WEIR_NS_PER_S
#define REPLY_WAIT_NS   (5 * WEIR_NS_PER_S) /* time for a client to take its answer */
#define STATS_MAX_BYTES (12u << 20)         /* size limit of an answer */

static void close_client(struct weir_admin_client *client)
{
    weir_fd_close(client->fd);
    if (client->has_passed) {
        close(client->passed_fd);
    }
    weir_status_report_destroy(client->report);
    free(client->reply);
    *client = (struct weir_admin_client){.fd = -1};
}

static void on_connection(void *user, int index)
{
    struct weir_supervisor *sup = user;
    int fd = weir_sup_accept_operator(sup, sup->admin.fd, SOCK_CLOEXEC);

    (void)index;
    if (fd < 0) {
        return;
    }
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        if (sup->admin.clients[i].fd < 0) {
            sup->admin.clients[i] =
                (struct weir_admin_client){.fd = fd,
                                           .id = ++sup->admin.last_client,
                                           .deadline_ns = weir_host_clock_ns() + REQUEST_WAIT_NS};
            return;
        }
    }
    close(fd);
}

/* Is this the first ready worker with its list of devices? Only that worker's rows of devices are
 * used. */
static bool is_first_of_devices(const struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < worker; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->ready && strcmp(w->row.devices, sup->workers[worker].row.devices) == 0) {
            return false;
        }
    }
    return true;
}

static void start_gathering(struct weir_supervisor *sup, bool stats)
{
    struct weir_link_message message = {.type = stats ? WEIR_LINK_STATS : WEIR_LINK_STATUS};

    if (sup->admin.gathering) {
        return;
    }
    sup->admin.gathering = true;
    sup->admin.unasked = false;
    sup->admin.n_gatherings++;
    sup->admin.gathering_stats = stats;
    sup->admin.stats_bytes = 0;
    sup->admin.deadline_ns = weir_host_clock_ns() + GATHER_WAIT_NS;
    sup->admin.gathered.n_sessions = 0;
    sup->admin.gathered.n_tenants = 0;
    sup->admin.gathered.n_devices = 0;
    sup->admin.gathered.n_programs = 0;
    sup->admin.gathered.n_waits = 0;
    sup->admin.n_uses = 0;
    weir_sup_gate_ask(sup, &message);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_sup_worker *w = &sup->workers[i];

        if (w->used && w->ready && !w->answering) { /* else its last question is still open */
            message.devices = is_first_of_devices(sup, i);
            w->n_rows = 0;
            w->answering = weir_sup_worker_send(sup, i, &message, -1);
        }
    }
}

uint64_t weir_sup_admin_gather(struct weir_supervisor *sup)
{
    start_gathering(sup, false);
    return sup->admin.n_gatherings;
}

void weir_sup_admin_look(struct weir_supervisor *sup)
{
    bool begins = !sup->admin.gathering;

    start_gathering(sup, false);
    sup->admin.unasked |= begins;
}

/* The gate process records the trace; its answer comes before its next rows. */
bool weir_sup_trace_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                            char **words, size_t n_words)
{
    struct weir_link_message message = {.type = WEIR_LINK_REQUEST};
    size_t at = 0;

    message.text.client = client->id;
    for (size_t i = 0; i < n_words; i++) {
        at += (size_t)snprintf(message.text.text + at, sizeof message.text.text - at, "%s%s",
                               i == 0 ? "" : "\t", words[i]);
        WEIR_FAIL_IF(at >= sizeof message.text.text, false);
    }
    if (!weir_sup_gate_send(sup, &message, client->has_passed ? client->passed_fd : -1)) {
        weir_sup_note(client->report, "error",
                      strcmp(sup->config.scheduler.policy, "off") == 0
                          ? "there is no scheduler (policy \"off\")"
                          : "the gate process does not run now, try again");
    }
    return true;
}

void weir_sup_admin_answer(struct weir_supervisor *sup, const struct weir_link_text *answer)
{
    static const char error[] = "error: ";
    bool failed = strncmp(answer->text, error, strlen(error)) == 0;

    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        struct weir_admin_client *client = &sup->admin.clients[i];

        if (client->fd >= 0 && client->id == answer->client && answer->text[0] != 0) {
            weir_sup_note(client->report, failed ? "error" : "answer",
                          answer->text + (failed ? strlen(error) : 0));
        }
    }
}

static const struct {
    const char *name;
    weir_sup_request_fn handle;
} requests[] = {
#define WEIR_SUP_REQUEST(name, handler) {name, handler},
#include "host_backend/config/requests.def"
#undef WEIR_SUP_REQUEST
};

/* Execute a whole line, except the answer. @return false: the request is unknown. */
static bool take_request(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    char *words[WEIR_ADMIN_WORDS_MAX], *rest = NULL;
    size_t n = 0;

    for (char *word = strtok_r(client->request, "\t", &rest); word;
         word = strtok_r(NULL, "\t", &rest)) {
        WEIR_FAIL_IF(n == WEIR_ADMIN_WORDS_MAX, false);
        words[n++] = word;
    }
    client->report = calloc(1, sizeof *client->report);
    for (size_t i = 0; n != 0 && client->report && i < WEIR_COUNT(requests); i++) {
        if (strcmp(requests[i].name, words[0]) == 0) {
            return requests[i].handle(sup, client, words, n);
        }
    }
    return false;
}

/* Receive like recv(). A single descriptor belongs to the client; all others are closed. */
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

/* Has the client disconnected? Then it has told its user that the request failed. */
static bool has_gone(const struct weir_admin_client *client)
{
    struct pollfd look = {client->fd, 0, 0};

    return poll(&look, 1, 0) == 1 && (look.revents & POLLHUP) != 0;
}

static void read_request(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    size_t room = sizeof client->request - 1 - client->request_bytes;
    ssize_t n = receive(client, client->request + client->request_bytes, room);

    if (n < 0 && errno == EAGAIN) {
        return;
    }
    client->request_bytes += n > 0 ? (size_t)n : 0;
    client->request[client->request_bytes] = 0;
    char *end = strchr(client->request, '\n');
    if (!end && n > 0 && (size_t)n < room) {
        return; /* the rest of the line may come; else the deadline ends it */
    }
    if (!end || end[1] != 0) {
        close_client(client);
        return;
    }
    *end = 0;
    if (has_gone(client) || !take_request(sup, client)) {
        close_client(client);
        return;
    }
    if (client->fd < 0) { /* the request has moved the connection elsewhere */
        close_client(client);
        return;
    }
    client->asked = true;
    /* A gathering under way may have asked the workers before this request changed something. */
    client->gathering = sup->admin.n_gatherings + (!client->looks || !sup->admin.gathering);
    start_gathering(sup, client->stats);
}

/* Append what a worker wrote into its file. */
static void take_stats(struct weir_supervisor *sup, int fd)
{
    struct stat info;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) { /* a read of anything else may block */
        return;
    }
    off_t bytes = info.st_size;
    if (bytes <= 0 || (size_t)bytes > STATS_MAX_BYTES - sup->admin.stats_bytes) {
        return;
    }
    char *bigger = realloc(sup->admin.stats_text, sup->admin.stats_bytes + (size_t)bytes);
    if (!bigger) {
        return;
    }
    sup->admin.stats_text = bigger;
    ssize_t n = pread(fd, bigger + sup->admin.stats_bytes, (size_t)bytes, 0);
    sup->admin.stats_bytes += n == bytes ? (size_t)n : 0;
}

/* Merge a device's row. Several workers may have the device, and the gate process knows its use. */
static void take_device(struct weir_status_report *g, const struct weir_status_device *row)
{
    for (size_t i = 0; i < g->n_devices; i++) {
        struct weir_status_device *d = &g->devices[i];

        if (strcmp(d->uuid, row->uuid) == 0) {
            weir_status_merge(weir_status_device_fields, d, row);
            return;
        }
    }
    weir_sup_append((void **)&g->devices, &g->n_devices, row, sizeof *row);
}

/* Add refusals that the worker has not reported as events. */
static void take_refusals(struct weir_supervisor *sup, const struct weir_status_tenant *row)
{
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, row->name);

    if (tenant) {
        tenant->refused.device += row->refused_device;
        tenant->refused.pinned += row->refused_pinned;
    }
}

/* Add a row. A session that moves may be in two workers for a moment.
 * @param leaves  it is the one that it leaves */
static void add_session(struct weir_status_report *g, const struct weir_status_session *row,
                        bool leaves)
{
    size_t i = 0;

    while (i < g->n_sessions && g->sessions[i].id != row->id) {
        i++;
    }
    if (i == g->n_sessions) {
        weir_sup_append((void **)&g->sessions, &g->n_sessions, row, sizeof *row);
    } else if (!leaves) {
        g->sessions[i] = *row;
    }
}

void weir_sup_admin_row(struct weir_supervisor *sup, int worker, struct weir_link_message *message,
                        int fd)
{
    struct weir_status_report *g = &sup->admin.gathered;

    if (message->type == WEIR_LINK_ROW_SESSION) {
        struct weir_status_session row = message->session_row;

        weir_status_end_texts(weir_status_session_fields, &row);
        if (worker >= 0) {
            const struct weir_sup_worker *w = &sup->workers[worker];

            row.worker = (uint64_t)w->pid;
            row.worker_age_s =
                (double)(weir_host_clock_ns() - w->started_ns) / (double)WEIR_NS_PER_S;
        }
        add_session(g, &row, worker >= 0 && sup->workers[worker].program.move.asked);
    } else if (message->type == WEIR_LINK_ROW_DEVICE) {
        weir_status_end_texts(weir_status_device_fields, &message->device_row);
        take_device(g, &message->device_row);
        weir_sup_gpus_row(sup, worker, &message->device_row);
    } else if (message->type == WEIR_LINK_ROW_TENANT) {
        weir_status_end_texts(weir_status_tenant_fields, &message->tenant_row);
        take_refusals(sup, &message->tenant_row);
        weir_sup_append((void **)&g->tenants, &g->n_tenants, &message->tenant_row,
                        sizeof message->tenant_row);
    } else {
        if (worker >= 0) {
            weir_sup_worker_row(&sup->workers[worker], &message->worker);
            sup->workers[worker].answering = false;
            weir_sup_gpus_end(sup, worker);
        } else {
            sup->gate.answering = false;
        }
        if (fd >= 0 && sup->admin.gathering_stats) {
            take_stats(sup, fd);
        }
    }
}

void weir_sup_admin_tenants(struct weir_supervisor *sup, const char *name,
                            struct weir_status_report *report)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];
        struct weir_status_tenant row = {0};

        if (!t->used || t->gone || (name && strcmp(t->config.name, name) != 0)) {
            continue;
        }
        for (size_t k = 0; k < sup->admin.gathered.n_tenants; k++) {
            if (strcmp(sup->admin.gathered.tenants[k].name, t->config.name) == 0) {
                weir_status_merge(weir_status_tenant_fields, &row, &sup->admin.gathered.tenants[k]);
            }
        }
        for (int k = 0; k < WEIR_WORKERS_MAX; k++) {
            row.contexts += sup->workers[k].used && sup->workers[k].tenant == i
                                ? sup->workers[k].row.contexts
                                : 0;
        }
        row.used_bytes += weir_sup_directory_bytes(t, WEIR_ACCOUNT_DEVICE_MEMORY);
        row.pinned_bytes += weir_sup_directory_bytes(t, WEIR_ACCOUNT_PINNED_MEMORY);
        row.quota_bytes = weir_sup_quota_bytes(sup, t);
        weir_tenant_config_show(&t->config, &row);
        snprintf(row.source, sizeof row.source, "%s", weir_origin_text(sup, t->source));
        weir_sup_faults_show(t, &row);
        row.refused_device = t->refused.device;
        row.refused_pinned = t->refused.pinned;
        row.refused_sessions = t->refused.sessions;
        row.moved_sessions = t->moved;
        row.drained = weir_sup_drain_of(sup, t) == WEIR_DRAIN_ON;
        row.changed = 0;
        for (size_t k = 0; k < weir_setting_count(); k++) {
            row.changed +=
                t->origins[k] != (uint8_t)t->source && !weir_setting_equal(k, &t->config, &t->base);
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
        w->row.all_devices = strcmp(w->devices, sup->config.devices) == 0;
        snprintf(w->row.state, sizeof w->row.state, "%s", weir_sup_program_state(w));
        if (w->tenant >= 0) {
            memcpy(w->row.tenant, sup->tenants[w->tenant].config.name, sizeof w->row.tenant);
        }
        weir_sup_append((void **)&report->workers, &report->n_workers, &w->row, sizeof w->row);
    }
}

/* Send as much of the reply as fits. Closes the client when it has received all, or has
 * disconnected. */
static void send_some(struct weir_admin_client *client)
{
    while (client->sent < client->reply_bytes) {
        ssize_t n = send(client->fd, client->reply + client->sent,
                         client->reply_bytes - client->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            break;
        }
        client->sent += (size_t)n;
    }
    close_client(client);
}

/* The events for poll(); 0: the client waits for its reply and need not be watched. */
static short events_of(const struct weir_admin_client *client)
{
    if (!client->asked) {
        return POLLIN;
    }
    return client->reply ? POLLOUT : 0;
}

static void on_client(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct weir_admin_client *client = &sup->admin.clients[index];

    if (client->fd >= 0 && !client->asked) {
        read_request(sup, client);
    } else if (client->fd >= 0 && client->reply) {
        send_some(client);
    }
}

/* Make a path absolute, since a client may have another working directory. The file may be gone. */
static void fill_config_path(const struct weir_supervisor *sup, struct weir_status_report *report)
{
    const char *given = sup->params.config_path;
    char real[PATH_MAX];
    const char *path = given ? realpath(given, real) : NULL;

    if (!path && given && given[0] == '/') {
        path = given;
    }
    if (path && strlen(path) < sizeof report->config) {
        memcpy(report->config, path, strlen(path) + 1);
    }
}

static void fill_host(const struct weir_supervisor *sup, struct weir_status_report *report)
{
    report->pid = (uint64_t)getpid();
    report->worker_starts = sup->running.starts;
    report->kept_fds = sup->chunks.n_kept + sup->directory.n_memory;
    snprintf(report->version, sizeof report->version, "%s", WEIR_VERSION);
    report->protocol = WEIR_PROTOCOL;
    memcpy(report->run_dir, sup->config.run_dir,
           strnlen(sup->config.run_dir, sizeof report->run_dir - 1));
    snprintf(report->policy, sizeof report->policy, "%s", sup->config.scheduler.policy);
    report->memory_promised_pct = weir_sup_promised_pct(sup);
    report->drained = sup->drain.all;
    fill_config_path(sup, report);
    report->age_s = (double)(weir_clock_now_ns() - sup->life.started_ns) / (double)WEIR_NS_PER_S;
}

void weir_sup_admin_report(struct weir_supervisor *sup, struct weir_status_report *report)
{
    fill_host(sup, report);
    weir_sup_admin_tenants(sup, NULL, report);
    weir_sup_extras_report(sup, report);
    fill_workers(sup, report);
    weir_sup_uses_join(sup);
    weir_sup_gpus_report(sup);
    report->devices = sup->admin.gathered.devices;
    report->n_devices = sup->admin.gathered.n_devices;
    report->programs = sup->admin.gathered.programs;
    report->n_programs = sup->admin.gathered.n_programs;
    report->waits = sup->admin.gathered.waits;
    report->n_waits = sup->admin.gathered.n_waits;
    report->sessions = sup->admin.gathered.sessions;
    report->n_sessions = sup->admin.gathered.n_sessions;
}

static void answer_status(struct weir_supervisor *sup, struct weir_admin_client *client,
                          struct weir_status_report *report)
{
    (void)client;
    weir_sup_admin_report(sup, report);
}

bool weir_sup_status_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                             char **words, size_t n_words)
{
    (void)sup;
    (void)words;
    client->looks = true;
    client->answer = answer_status;
    return n_words == 1;
}

bool weir_sup_stats_request(struct weir_supervisor *sup, struct weir_admin_client *client,
                            char **words, size_t n_words)
{
    (void)sup;
    (void)words;
    client->looks = true;
    client->stats = true;
    return n_words == 1;
}

static void answer(struct weir_supervisor *sup, struct weir_admin_client *client)
{
    struct weir_status_report report = {0};
    FILE *out = open_memstream(&client->reply, &client->reply_bytes);

    fill_host(sup, &report);
    if (client->answer) {
        client->answer(sup, client, &report);
    }
    report.settings = client->report->settings;
    report.n_settings = client->report->n_settings;
    report.notes = client->report->notes;
    report.n_notes = client->report->n_notes;
    if (out) {
        weir_status_text_write(out, &report);
        fclose(out);
    }
    free(report.tenants);
    free(report.extras);
    free(report.workers);
    free(report.events);
}

static void answer_stats(const struct weir_supervisor *sup, struct weir_admin_client *client)
{
    FILE *out = open_memstream(&client->reply, &client->reply_bytes);

    if (out) {
        if (sup->admin.stats_bytes != 0) {
            (void)fwrite(sup->admin.stats_text, 1, sup->admin.stats_bytes, out);
        }
        fputs(WEIR_STATUS_TEXT_END, out);
        fclose(out);
    }
}

/* Does the finished gathering answer this client? */
static bool is_answered(const struct weir_supervisor *sup, const struct weir_admin_client *client)
{
    return client->gathering <= sup->admin.n_gatherings &&
           (!client->stats || sup->admin.gathering_stats);
}

/* Answer the clients of a finished gathering. @return whether some wait for another one; ret_stats:
 * whether they want statistics. */
static bool answer_all(struct weir_supervisor *sup, uint64_t now_ns, bool *ret_stats)
{
    bool again = false;

    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        struct weir_admin_client *client = &sup->admin.clients[i];

        if (client->fd < 0 || !client->asked || client->reply) {
            continue;
        }
        if (!is_answered(sup, client)) {
            again = true;
            *ret_stats |= client->stats;
            continue;
        }
        if (client->stats) {
            answer_stats(sup, client);
        } else {
            answer(sup, client);
        }
        client->deadline_ns = now_ns + REPLY_WAIT_NS;
        send_some(client);
    }
    return again;
}

/* A client has a deadline until it has asked, and until it has its answer. */
static bool has_deadline(const struct weir_admin_client *client)
{
    return client->fd >= 0 && (!client->asked || client->reply);
}

void weir_sup_admin_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    bool complete = sup->admin.gathering && !sup->gate.answering, again = false, stats = false;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        complete &= !sup->workers[i].used || !sup->workers[i].answering;
    }
    complete |= sup->admin.gathering && now_ns >= sup->admin.deadline_ns;
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        struct weir_admin_client *client = &sup->admin.clients[i];

        if (has_deadline(client) && now_ns >= client->deadline_ns) {
            close_client(client);
        }
    }
    if (complete) {
        sup->admin.gathered_ns = sup->admin.unasked ? 0 : now_ns;
        again = answer_all(sup, now_ns, &stats);
        sup->admin.gathering = false;
        free(sup->admin.stats_text);
        sup->admin.stats_text = NULL;
        sup->admin.stats_bytes = 0;
    }
    if (again) {
        start_gathering(sup, stats);
    }
}

void weir_sup_admin_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->admin.fd, POLLIN, on_connection, sup, 0);
    weir_host_loop_wake(loop, sup->admin.gathering ? sup->admin.deadline_ns : WEIR_FOREVER);
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        const struct weir_admin_client *client = &sup->admin.clients[i];

        if (events_of(client) != 0) { /* poll() would report a hang-up in each turn */
            weir_host_loop_watch(loop, client->fd, events_of(client), on_client, sup, i);
        }
        weir_host_loop_wake(loop, has_deadline(client) ? client->deadline_ns : WEIR_FOREVER);
    }
}

void weir_sup_admin_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        if (sup->admin.clients[i].fd >= 0) {
            close_client(&sup->admin.clients[i]);
        }
    }
    if (sup->admin.fd >= 0) {
        close(sup->admin.fd);
        unlink(sup->admin.path);
    }
    free(sup->admin.stats_text);
    free(sup->admin.gathered.sessions);
    free(sup->admin.gathered.tenants);
    free(sup->admin.gathered.devices);
    free(sup->admin.gathered.programs);
    free(sup->admin.gathered.waits);
    free(sup->admin.uses);
}

void weir_sup_note(struct weir_status_report *report, const char *kind, const char *text)
{
    struct weir_status_note row = {0};

    snprintf(row.kind, sizeof row.kind, "%s", kind);
    snprintf(row.text, sizeof row.text, "%s", text);
    weir_sup_append((void **)&report->notes, &report->n_notes, &row, sizeof row);
}

/* Whoever may open admin.sock may read the state; changes need more rights. */
bool weir_sup_may_change(struct weir_admin_client *client, const char *what)
{
    struct weir_peer peer = {.uid = (uint32_t)-1};
    bool may =
        weir_peer_of(client->fd, &peer) == WEIR_OK && (peer.uid == 0 || peer.uid == geteuid());
    char text[160];

    if (!may) {
        snprintf(text, sizeof text, "permission denied: root and the user of weir serve may %s",
                 what);
        weir_sup_note(client->report, "error", text);
    }
    return may;
}

struct weir_sup_tenant *weir_sup_tenant_named(struct weir_supervisor *sup,
                                              struct weir_admin_client *client, const char *name)
{
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, name);
    char text[160];

    if (tenant && !tenant->gone) {
        return tenant;
    }
    snprintf(text, sizeof text, "there is no tenant '%.64s'", name);
    weir_sup_note(client->report, "error", text);
    return NULL;
}

void weir_sup_admin_renew(struct weir_supervisor *sup)
{
    if (weir_sup_socket_lost(sup->admin.path, &sup->admin.fd) &&
        weir_sup_listen(sup->admin.path, 0660, &sup->admin.fd) != WEIR_OK) {
        sup->admin.fd = -1;
    }
}

enum weir_status weir_sup_admin_open(struct weir_supervisor *sup)
{
    int n = snprintf(sup->admin.path, sizeof sup->admin.path, "%s/admin.sock", sup->config.run_dir);
    enum weir_status status = WEIR_ERR_TOO_BIG;

    if (n >= 0 && (size_t)n < sizeof sup->admin.path) {
        status = weir_sup_listen(sup->admin.path, 0660, &sup->admin.fd); /* for owner and group */
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "weir serve: %s: %s\n", sup->admin.path,
                status == WEIR_ERR_EXISTS ? "a host is running here already (see weir status); "
                                            "another one wants another --run-dir"
                : status == WEIR_ERR_DENIED
                    ? "permission denied: name a --run-dir that this user may write to"
                    : weir_status_text(status));
    }
    return status;
}
