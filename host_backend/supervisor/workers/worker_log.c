/*
 * A guest may control a worker, so the worker may write without end. The supervisor reads one piece
 * at a time, and pauses after a full piece. So such a worker loses lines of its own, and costs
 * others little.
 */
#include "host_backend/supervisor/workers/worker_log.h"

#include "base/fd.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 4096u
#define PAUSE_NS    (10 * WEIR_NS_PER_MS) /* pause between pieces: 400 KiB/s, some 4000 lines */
/* How much to read after a process has ended: the default size of a pipe. Another process may still
 * write, such as a compiler that has not seen yet that its worker is gone. */
#define LAST_PIECES (65536u / PIECE_BYTES)
#define LINE_BYTES  1024u

struct weir_sup_log {
    int fd;
    struct weir_log_rate rate; /* rate limit of a process that serves no tenant, or several */
    uint64_t next_ns;          /* the pipe is not read before that */
    uint32_t n;                /* bytes of the unfinished line */
    char line[LINE_BYTES];
};

enum weir_status weir_sup_log_open(struct weir_sup_log **ret_log, int *ret_fd)
{
    struct weir_sup_log *log = calloc(1, sizeof *log);
    int ends[2];

    WEIR_FAIL_IF(!log, WEIR_ERR_NO_MEMORY);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        enum weir_status status = weir_status_of_errno(errno);

        free(log);
        return status;
    }
    weir_log_rate_init(&log->rate);
    log->fd = ends[0];
    *ret_log = log;
    *ret_fd = ends[1];
    return WEIR_OK;
}

struct weir_sup_log *weir_sup_log_adopt(int fd)
{
    struct weir_sup_log *log = fd >= 0 ? calloc(1, sizeof *log) : NULL;

    if (log) {
        weir_log_rate_init(&log->rate);
        log->fd = fd;
    } else {
        weir_fd_close(fd);
    }
    return log;
}

int weir_sup_log_fd(const struct weir_sup_log *log)
{
    return log->fd;
}

void weir_sup_log_free(struct weir_sup_log *log)
{
    if (log) {
        close(log->fd);
        weir_log_rate_finish(&log->rate);
        free(log);
    }
}

static void end_line(struct weir_sup_log *log, const char *who)
{
    log->line[log->n] = 0;
    log->n = 0;
    weir_log_relay(who, log->line);
}

static void take(struct weir_sup_log *log, const char *who, const char *piece, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (piece[i] != '\n') {
            log->line[log->n++] = piece[i];
        }
        if (piece[i] == '\n' || log->n == LINE_BYTES - 1) {
            end_line(log, who);
        }
    }
}

/* Read a piece. @return false: there is no more, now or ever. */
static bool read_piece(struct weir_sup_log *log, const char *who)
{
    char piece[PIECE_BYTES];
    ssize_t n = read(log->fd, piece, sizeof piece);

    if (n == 0) { /* all writers have closed the pipe, but the process has not ended */
        log->next_ns = WEIR_FOREVER;
    }
    if (n <= 0) {
        return false;
    }
    take(log, who, piece, (size_t)n);
    return (size_t)n == sizeof piece;
}

static uint32_t n_served(const struct weir_supervisor *sup, const struct weir_sup_worker *w)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += sup->tenants[i].used && (!w || sup->tenants[i].worker == (int)(w - sup->workers));
    }
    return n;
}

/* Limit the log lines of a process. Those of a tenant's workers count together with the lines that
 * its guests cause in this process. A worker of several tenants, or the gate process, has one limit
 * for all. */
static void limit_lines(struct weir_supervisor *sup, const struct weir_sup_worker *w,
                        struct weir_sup_log *log)
{
    if (w && w->tenant >= 0) {
        weir_log_limit_thread(weir_sup_log_rate(sup, &sup->tenants[w->tenant]),
                              sup->tenants[w->tenant].config.name);
        return;
    }
    log->rate.several = n_served(sup, w) + 1;
    weir_log_limit_thread(&log->rate, "-");
}

static struct weir_sup_log **log_of(struct weir_supervisor *sup, struct weir_sup_worker *w)
{
    return w ? &w->log : &sup->gate.log;
}

static const char *who_is(const struct weir_sup_worker *w)
{
    return w ? "worker" : "gate";
}

static void read_pieces(struct weir_supervisor *sup, struct weir_sup_worker *w, unsigned n)
{
    struct weir_sup_log *log = *log_of(sup, w);
    bool more = true;

    if (!log) {
        return;
    }
    limit_lines(sup, w, log);
    for (unsigned i = 0; i < n && more; i++) {
        more = read_piece(log, who_is(w));
    }
    weir_log_limit_thread(NULL, NULL);
    if (more) {
        log->next_ns = weir_host_clock_ns() + PAUSE_NS;
    }
}

void weir_sup_log_read(struct weir_supervisor *sup, struct weir_sup_worker *worker)
{
    read_pieces(sup, worker, 1);
}

void weir_sup_logs_read(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used) {
            weir_sup_log_read(sup, &sup->workers[i]);
        }
    }
    weir_sup_log_read(sup, NULL);
}

void weir_sup_log_close(struct weir_supervisor *sup, struct weir_sup_worker *worker)
{
    struct weir_sup_log **at = log_of(sup, worker), *log = *at;

    if (!log) {
        return;
    }
    read_pieces(sup, worker, LAST_PIECES);
    if (log->n != 0) {
        limit_lines(sup, worker, log);
        end_line(log, who_is(worker));
        weir_log_limit_thread(NULL, NULL);
    }
    weir_sup_log_free(log);
    *at = NULL;
}

void weir_sup_log_watch(struct weir_supervisor *sup, struct weir_sup_worker *worker,
                        struct weir_host_loop *loop, weir_host_loop_fn handle, int index)
{
    const struct weir_sup_log *log = *log_of(sup, worker);

    if (log && log->next_ns > weir_host_loop_now_ns(loop)) {
        weir_host_loop_wake(loop, log->next_ns);
    } else if (log) {
        weir_host_loop_watch(loop, log->fd, POLLIN, handle, sup, index);
    }
}
