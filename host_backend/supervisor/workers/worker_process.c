/*
 * How the keeper starts a worker, or the gate process, and how the next supervisor takes one over.
 *
 * The process gets its descriptors at fixed numbers, and none of the supervisor's. Its output goes
 * into a pipe (worker_log.h). The keeper also holds our ends of link and pipe, and the page that
 * the process shares with us: so a process does not notice when the supervisor ends.
 */
#include "host_backend/supervisor/workers/worker_process.h"

#include "base/fd.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/worker_log.h"
#include "host_backend/supervisor/workers/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TO_US_BYTES (4 << 20)
/* The link holds few messages: behind a flood of one tenant's messages another tenant's guest waits
 * only for these few. */
#define TO_WORKER_BYTES (128 << 10)

/* What the next supervisor must know of a worker (WEIR_BOOK_WORKER). Members are only appended. */
struct row {
    uint32_t version; /* WEIR_LINK_VERSION of the program that it runs */
    uint32_t kind;
    int32_t tenant; /* at its start; a program's worker knows its program's */
    uint32_t domain, program_connections, sm_share_pct, connections;
    uint32_t native;
    uint64_t started_ns;
    char group[WEIR_TENANT_NAME_BYTES];
    char devices[WEIR_DEVICE_LIST_BYTES];
};

static struct row row_of(const struct weir_sup_worker *w)
{
    struct row row = {.version = WEIR_LINK_VERSION,
                      .kind = w->kind,
                      .tenant = w->tenant,
                      .domain = w->program.domain,
                      .program_connections = w->program.connections,
                      .sm_share_pct = w->program.sm_share_pct,
                      .connections = w->connections.wanted,
                      .native = w->program.native,
                      .started_ns = w->started_ns};

    memcpy(row.group, w->group, sizeof row.group);
    memcpy(row.devices, w->devices, sizeof row.devices);
    return row;
}

/* Start the process: descriptor 3 is its link, 4 a worker's listener. */
static pid_t start(struct weir_supervisor *sup, const struct weir_sup_worker *w, int listener,
                   const int to_it[2], const int to_keep[3])
{
    const char *const argv[] = {"weir", w ? "worker" : "gate", NULL};
    const char *env[WEIR_MPS_VARIABLES + 1][2];
    struct weir_mps_room_for_texts texts;
    struct weir_keep_spawn spawn = {.user = sup->running.user,
                                    .is_worker = true,
                                    .lowered = w != NULL,
                                    .by_file = true,
                                    .death_signal = SIGKILL};
    struct row row = w ? row_of(w) : (struct row){.version = WEIR_LINK_VERSION};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int fds[] = {null, to_it[1], to_it[0], listener};
    struct weir_book_process process = {.spawn = &spawn,
                                        .argv = argv,
                                        .env = env,
                                        .fds = fds,
                                        .n_fds = listener >= 0 ? 4 : 3,
                                        .row = &row,
                                        .row_bytes = sizeof row,
                                        .row_fds = to_keep,
                                        .n_row_fds = 3};

    env[0][0] = NULL;
    if (w) {
        weir_mps_environment(sup, w, env, &texts);
    }
    pid_t pid = null >= 0 ? weir_book_spawn(sup, w ? WEIR_BOOK_WORKER : WEIR_BOOK_GATE,
                                            w ? (uint64_t)(w - sup->workers) : 0, &process)
                          : -1;
    int why = errno;
    weir_fd_close(null);
    errno = why;
    return pid;
}

static enum weir_status open_link(int ret_pair[2])
{
    int to_us = TO_US_BYTES, to_it = TO_WORKER_BYTES;

    WEIR_FAIL_IF(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_pair) != 0,
                 weir_status_of_errno(errno));
    (void)fcntl(ret_pair[0], F_SETFL, O_NONBLOCK); /* non-blocking for this end only */
    (void)setsockopt(ret_pair[0], SOL_SOCKET, SO_SNDBUF, &to_it, sizeof to_it);
    (void)setsockopt(ret_pair[1], SOL_SOCKET, SO_SNDBUF, &to_us, sizeof to_us);
    return WEIR_OK;
}

enum weir_status weir_sup_spawn(struct weir_supervisor *sup, const struct weir_sup_worker *worker,
                                int listener, int page_fd, pid_t *ret_pid, int *ret_link,
                                struct weir_sup_log **ret_log)
{
    struct weir_sup_log *log = NULL;
    pid_t pid = -1;
    int pair[2], log_fd = -1;

    WEIR_TRY(open_link(pair));
    enum weir_status status = weir_sup_log_open(&log, &log_fd);
    if (status == WEIR_OK) {
        pid = start(sup, worker, listener, (int[]){pair[1], log_fd},
                    (int[]){pair[0], weir_sup_log_fd(log), page_fd});
        /* EAGAIN: fork() reached RLIMIT_NPROC, or the limit of a cgroup */
        status = pid >= 0 ? WEIR_OK : errno == EAGAIN ? WEIR_ERR_FULL : weir_status_of_errno(errno);
        close(log_fd);
    }
    close(pair[1]);
    if (status != WEIR_OK) {
        weir_sup_log_free(log);
        close(pair[0]);
        return status;
    }
    *ret_pid = pid;
    *ret_link = pair[0];
    *ret_log = log;
    return WEIR_OK;
}

enum weir_status weir_sup_adopt(struct weir_book_row *row, struct weir_sup_worker *worker,
                                int *ret_link, struct weir_sup_log **ret_log, int *ret_page_fd)
{
    struct row old;

    weir_book_read(row, &old, sizeof old);
    *ret_link = weir_book_take_fd(row, 0);
    *ret_page_fd = weir_book_take_fd(row, 2);
    old.group[sizeof old.group - 1] = old.devices[sizeof old.devices - 1] = 0;
    if (worker) {
        *worker =
            (struct weir_sup_worker){.kind = (enum weir_worker_kind)old.kind,
                                     .tenant = old.tenant,
                                     .connections.wanted = old.connections,
                                     .started_ns = old.started_ns,
                                     .program = {.domain = old.domain,
                                                 .connections = old.program_connections,
                                                 .sm_share_pct = old.sm_share_pct,
                                                 .native = old.native != 0,
                                                 .is_older = old.version != WEIR_LINK_VERSION}};
        memcpy(worker->group, old.group, sizeof old.group);
        memcpy(worker->devices, old.devices, sizeof old.devices);
    }
    *ret_log = weir_sup_log_adopt(weir_book_take_fd(row, 1));
    return old.version == WEIR_LINK_VERSION || old.version + 1 == WEIR_LINK_VERSION
               ? WEIR_OK
               : WEIR_ERR_VERSION;
}

const char *weir_sup_no_worker_text(enum weir_status status)
{
    if (status == WEIR_ERR_NO_DESCRIPTOR) {
        return "the host has no file descriptor left for another worker";
    }
    if (status == WEIR_ERR_NO_MEMORY) {
        return "the host has no memory for another process";
    }
    if (status == WEIR_ERR_FULL) {
        return "the host has as many workers or processes as it may";
    }
    return "the host cannot start another worker: its log says why";
}

void weir_sup_config_fill(const struct weir_supervisor *sup, struct weir_link_config *config)
{
    int level = (int)strcspn(sup->config.log, ":"); /* the log's file is open already */

    snprintf(config->driver, sizeof config->driver, "%s", sup->config.driver);
    snprintf(config->softgpu, sizeof config->softgpu, "%s", sup->config.softgpu);
    snprintf(config->cupti, sizeof config->cupti, "%s", sup->config.cupti);
    snprintf(config->log, sizeof config->log, "%.*s", level, sup->config.log);
    snprintf(config->run_dir, sizeof config->run_dir, "%s", sup->config.run_dir);
    config->window_base = sup->config.window_base;
    config->window_bytes = sup->config.window_bytes;
    config->vmm_base = sup->config.vmm_base;
    config->vmm_bytes = sup->config.vmm_bytes;
    config->forms = sup->config.forms;
    weir_sup_worker_user_cache(sup, &config->forms);
    config->scheduler = sup->config.scheduler;
}
