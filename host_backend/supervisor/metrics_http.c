/*
 * GET /metrics: the supervisor's listener for Prometheus.
 *
 * A connection is one request and one answer: READING until its head is complete, WAITING while the
 * workers are asked, SENDING, DRAINING the rest of the client's data, since closing a socket with
 * unread data would discard the answer. Each state has a deadline; nothing blocks. There are at
 * most CLIENTS_MAX connections. A new one replaces the one nearest to its deadline, so silent
 * connections cannot lock others out. However many clients ask, the workers are asked at most ten
 * times a second.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/watch/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_WAIT_NS  (5 * WEIR_NS_PER_S)
#define SEND_WAIT_NS  (5 * WEIR_NS_PER_S)
#define DRAIN_WAIT_NS WEIR_NS_PER_S
#define FRESH_NS      (100 * WEIR_NS_PER_MS)

enum weir_metrics_state {
    WEIR_METRICS_READING,
    WEIR_METRICS_WAITING,
    WEIR_METRICS_SENDING,
    WEIR_METRICS_DRAINING,
};

struct weir_metrics_client {
    int fd; /* -1: free */
    enum weir_metrics_state state;
    bool head_only;
    char head[WEIR_HTTP_HEAD_MAX];
    size_t n_head;
    uint64_t gathering; /* number of the gathering that the client waits for */
    char *text;         /* text of the answer */
    size_t bytes, sent;
    uint64_t deadline_ns;
};

/* All connections, and the socket that accepts them. */
struct weir_sup_metrics {
    int fd;         /* -1: none yet */
    char path[108]; /* path of a unix socket; else "" */
    struct weir_metrics_client clients[WEIR_METRICS_CLIENTS_MAX];
};

static void close_client(struct weir_metrics_client *c)
{
    close(c->fd);
    free(c->text);
    *c = (struct weir_metrics_client){.fd = -1};
}

/* Log the actual address, since the configured port may be 0. */
static void log_listening(const struct weir_supervisor *sup)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    char host[80] = "", port[16] = "";

    if (sup->metrics->path[0] != 0) {
        weir_log_info("supervisor: metrics listen=unix:%s", sup->metrics->path);
    } else if (getsockname(sup->metrics->fd, (struct sockaddr *)&address, &bytes) == 0 &&
               getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                           NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        weir_log_info("supervisor: metrics listen=%s%s%s:%s",
                      address.ss_family == AF_INET6 ? "[" : "", host,
                      address.ss_family == AF_INET6 ? "]" : "", port);
    }
}

/* The path of a unix socket; NULL: the text must be an address. */
static const char *path_of(const char *listen)
{
    const char *path = strncmp(listen, "unix:", 5) == 0 ? listen + 5 : listen;

    return *path == '/' ? path : NULL;
}

bool weir_sup_metrics_ok(const char *listen)
{
    const char *path = path_of(listen);

    return path ? strlen(path) < sizeof((struct weir_sup_metrics *)NULL)->path
                : *listen == 0 || weir_sup_address_ok(listen);
}

/* Listen at an address or path. @return NULL, or the reason of the failure */
static const char *listen_at(struct weir_supervisor *sup, const char *listen)
{
    const char *path = path_of(listen);

    if (!path) {
        return weir_sup_listen_address(listen, &sup->metrics->fd) ? NULL : strerror(errno);
    }
    enum weir_status status =
        weir_sup_listen(path, (mode_t)sup->config.socket_mode, &sup->metrics->fd);
    if (status == WEIR_OK) {
        strcpy(sup->metrics->path, path); /* weir_sup_metrics_ok() has checked its length */
        return NULL;
    }
    return status == WEIR_ERR_IO ? strerror(errno) : weir_status_text(status);
}

static bool make_places(struct weir_supervisor *sup)
{
    sup->metrics = calloc(1, sizeof *sup->metrics);
    for (int i = 0; sup->metrics && i < WEIR_METRICS_CLIENTS_MAX; i++) {
        sup->metrics->clients[i].fd = -1;
    }
    return sup->metrics != NULL;
}

void weir_sup_metrics_open(struct weir_supervisor *sup)
{
    const char *listen = sup->config.metrics_listen, *why = "out of memory";

    if (*listen == 0) {
        weir_sup_extra_unwanted(sup, WEIR_EXTRA_METRICS);
        return;
    }
    if (sup->metrics || make_places(sup)) {
        sup->metrics->fd = -1;
        why = listen_at(sup, listen);
    }
    if (why) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_METRICS, "'%.80s': %s", listen, why);
    } else {
        weir_sup_extra_works(sup, WEIR_EXTRA_METRICS);
        log_listening(sup);
    }
}

void weir_sup_metrics_follow(struct weir_supervisor *sup, const char *listen)
{
    if (strcmp(listen, sup->config.metrics_listen) != 0) {
        weir_sup_metrics_close(sup);
        snprintf(sup->config.metrics_listen, sizeof sup->config.metrics_listen, "%s", listen);
        weir_sup_metrics_open(sup);
    }
}

/* Find a free place, or that of the client nearest to its deadline. */
static struct weir_metrics_client *place(struct weir_supervisor *sup)
{
    struct weir_metrics_client *oldest = &sup->metrics->clients[0];

    for (int i = 0; i < WEIR_METRICS_CLIENTS_MAX; i++) {
        struct weir_metrics_client *c = &sup->metrics->clients[i];

        if (c->fd < 0) {
            return c;
        }
        if (c->deadline_ns < oldest->deadline_ns) {
            oldest = c;
        }
    }
    close_client(oldest);
    return oldest;
}

static void on_connection(void *user, int index)
{
    struct weir_supervisor *sup = user;

    (void)index;
    if (!sup->metrics) {
        return; /* a reload has just closed the socket */
    }
    int fd = weir_sup_accept_operator(sup, sup->metrics->fd, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    struct weir_metrics_client *c = place(sup);
    *c = (struct weir_metrics_client){.fd = fd, .deadline_ns = weir_host_clock_ns() + READ_WAIT_NS};
}

static double start_time_s(const struct weir_supervisor *sup)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 -
           (double)(weir_clock_now_ns() - sup->life.started_ns) / 1e9;
}

static char *metrics_text(struct weir_supervisor *sup, size_t *ret_bytes)
{
    struct weir_status_report report = {0};
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_bytes);

    WEIR_FAIL_IF(!out, NULL);
    weir_sup_admin_report(sup, &report);
    weir_metrics_write(out, &report, start_time_s(sup));
    free(report.tenants);
    free(report.extras);
    free(report.workers);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Send as much of the answer as fits. */
static void send_some(struct weir_metrics_client *c)
{
    while (c->sent < c->bytes) {
        ssize_t n = send(c->fd, c->text + c->sent, c->bytes - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            close_client(c);
            return;
        }
        c->sent += (size_t)n;
    }
    shutdown(c->fd, SHUT_WR);
    c->state = WEIR_METRICS_DRAINING;
    c->deadline_ns = weir_host_clock_ns() + DRAIN_WAIT_NS;
}

/* Build head and body of the answer. */
static void answer(struct weir_supervisor *sup, struct weir_metrics_client *c, int status)
{
    size_t body_bytes = 0;
    char *body = status == 200 ? metrics_text(sup, &body_bytes) : NULL;
    FILE *out = open_memstream(&c->text, &c->bytes);

    if (status == 200 && !body) {
        status = 503;
    }
    if (out) {
        const char *text = body ? body : weir_http_reason(status);
        size_t bytes = body ? body_bytes : strlen(text);

        fprintf(out,
                "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                "Content-Length: %zu\r\n%sConnection: close\r\n\r\n",
                weir_http_reason(status), bytes, status == 405 ? "Allow: GET, HEAD\r\n" : "");
        if (!c->head_only) {
            fwrite(text, 1, bytes, out);
        }
    }
    free(body);
    if (!out || fclose(out) != 0) {
        close_client(c);
        return;
    }
    c->state = WEIR_METRICS_SENDING;
    c->deadline_ns = weir_host_clock_ns() + SEND_WAIT_NS;
    send_some(c);
}

static void read_some(struct weir_supervisor *sup, struct weir_metrics_client *c)
{
    ssize_t n = recv(c->fd, c->head + c->n_head, sizeof c->head - c->n_head, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        close_client(c);
        return;
    }
    c->n_head += (size_t)n;
    int status = weir_http_judge(c->head, c->n_head, &c->head_only);
    if (status == 200 &&
        (sup->admin.gathering || weir_host_clock_ns() - sup->admin.gathered_ns > FRESH_NS)) {
        c->state = WEIR_METRICS_WAITING;
        c->gathering = weir_sup_admin_gather(sup);
    } else if (status != WEIR_HTTP_MORE) {
        answer(sup, c, status);
    }
}

static void drain(struct weir_metrics_client *c)
{
    char waste[4096];
    ssize_t n = recv(c->fd, waste, sizeof waste, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close_client(c);
    }
}

static short events_of(const struct weir_metrics_client *client)
{
    switch (client->state) {
    case WEIR_METRICS_READING:
    case WEIR_METRICS_DRAINING:
        return POLLIN;
    case WEIR_METRICS_SENDING:
        return POLLOUT;
    case WEIR_METRICS_WAITING:
        break;
    }
    return 0;
}

static void on_client(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct weir_metrics_client *client = sup->metrics ? &sup->metrics->clients[index] : NULL;

    if (!client || client->fd < 0) {
        return; /* a reload has just closed it */
    }
    switch (client->state) {
    case WEIR_METRICS_READING:
        read_some(sup, client);
        break;
    case WEIR_METRICS_SENDING:
        send_some(client);
        break;
    case WEIR_METRICS_DRAINING:
        drain(client);
        break;
    case WEIR_METRICS_WAITING:
        close_client(client); /* no events are watched: poll() reports a hang-up only */
        break;
    }
}

void weir_sup_metrics_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; sup->metrics && i < WEIR_METRICS_CLIENTS_MAX; i++) {
        struct weir_metrics_client *c = &sup->metrics->clients[i];

        if (c->fd < 0) {
            continue;
        }
        if (c->state == WEIR_METRICS_WAITING &&
            (c->gathering < sup->admin.n_gatherings || !sup->admin.gathering)) {
            answer(sup, c, 200);
        } else if (now_ns >= c->deadline_ns) {
            close_client(c);
        }
    }
}

void weir_sup_metrics_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    if (!sup->metrics) {
        return;
    }
    weir_host_loop_watch(loop, sup->metrics->fd, POLLIN, on_connection, sup, 0);
    for (int i = 0; i < WEIR_METRICS_CLIENTS_MAX; i++) {
        const struct weir_metrics_client *client = &sup->metrics->clients[i];

        if (client->fd >= 0) {
            weir_host_loop_watch(loop, client->fd, events_of(client), on_client, sup, i);
            weir_host_loop_wake(loop, client->deadline_ns);
        }
    }
}

void weir_sup_metrics_close(struct weir_supervisor *sup)
{
    if (!sup->metrics) {
        return;
    }
    for (int i = 0; i < WEIR_METRICS_CLIENTS_MAX; i++) {
        if (sup->metrics->clients[i].fd >= 0) {
            close_client(&sup->metrics->clients[i]);
        }
    }
    if (sup->metrics->fd >= 0) {
        close(sup->metrics->fd);
        if (sup->metrics->path[0] != 0) {
            unlink(sup->metrics->path);
        }
    }
    free(sup->metrics);
    sup->metrics = NULL;
}
