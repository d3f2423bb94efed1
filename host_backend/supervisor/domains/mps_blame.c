/*
 * Finds the process whose fault ended an MPS domain.
 *
 * Every client of the server meets the error of one, and any of them may report it first. But the
 * server names the process in its log (control daemon and server write to one file, mps.c), within
 * some milliseconds of the fault. So the first report of a fault notes which programs are in the
 * domain, and the log is read until it names one of them. If it does not, the first to report is
 * only a suspect.
 */
#include "base/fd.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"

#include "base/clock.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_WAIT_NS (500 * WEIR_NS_PER_MS)
#define LOOK_NS      (10 * WEIR_NS_PER_MS)
#define TAIL_BYTES   16384u

pid_t weir_mps_log_culprit(const char *text)
{
    static const char client[] = "Client {PID: ", fatal[] = "encountered a fatal GPU error";
    const char *at = strstr(text, fatal);
    const char *line = at;

    while (line && line > text && line[-1] != '\n') {
        line--;
    }
    line = line ? strstr(line, client) : NULL;
    return line && line < at ? (pid_t)strtol(line + sizeof client - 1, NULL, 10) : 0;
}

/* Find the process that the log has named since the domain's last fault; 0: none yet. Earlier text
 * is about older clients. */
static pid_t read_culprit(struct weir_sup_mps *m)
{
    char text[TAIL_BYTES + 1];
    int fd = weir_mps_log_open(m, O_RDONLY);
    off_t from = fd >= 0 ? lseek(fd, 0, SEEK_END) - (off_t)TAIL_BYTES : 0;
    ssize_t n = fd >= 0 ? pread(fd, text, TAIL_BYTES, from > m->log_seen ? from : m->log_seen) : -1;

    weir_fd_close(fd);
    text[n > 0 ? n : 0] = 0;
    return weir_mps_log_culprit(text);
}

static void skip_log(struct weir_sup_mps *m)
{
    int fd = weir_mps_log_open(m, O_RDONLY);

    if (fd >= 0) {
        m->log_seen = lseek(fd, 0, SEEK_END);
        close(fd);
    }
}

void weir_mps_blame_begin(struct weir_supervisor *sup, struct weir_sup_mps *m,
                          const struct weir_link_fault *first)
{
    struct weir_mps_blame *b = &m->blame;

    *b = (struct weir_mps_blame){.open = true,
                                 .by_ns = weir_host_clock_ns() + NAME_WAIT_NS,
                                 .first = *first,
                                 .first_user = weir_sup_share_user(sup, first->tenant_index)};
    b->first.n_suspects = weir_mps_tenants(sup, m);
    for (int i = 0; i < WEIR_WORKERS_MAX && b->n < WEIR_MPS_CLIENTS_MAX; i++) {
        const struct weir_sup_worker *w = &sup->workers[i];

        if (weir_mps_has(sup, m, w) && w->tenant >= 0) { /* its program may have ended by now */
            b->clients[b->n++] =
                (struct weir_mps_client){.pid = w->pid,
                                         .tenant_index = (uint32_t)w->tenant,
                                         .generation = sup->tenants[w->tenant].generation,
                                         .user = weir_sup_share_user(sup, (uint32_t)w->tenant)};
        }
    }
}

/* Fill in who caused the fault. @return false: the log names no process of the domain. */
static bool find(struct weir_sup_mps *m, struct weir_link_fault *fault, int64_t *user)
{
    pid_t pid = read_culprit(m);

    for (uint32_t i = 0; pid != 0 && i < m->blame.n; i++) {
        if (m->blame.clients[i].pid == pid) {
            fault->tenant_index = m->blame.clients[i].tenant_index;
            fault->generation = m->blame.clients[i].generation;
            fault->n_suspects = 1;
            *user = m->blame.clients[i].user;
            return true;
        }
    }
    return false;
}

bool weir_mps_blame_end(struct weir_sup_mps *m, uint64_t now_ns, struct weir_link_fault *ret_fault,
                        int64_t *ret_user)
{
    struct weir_mps_blame *b = &m->blame;

    WEIR_FAIL_IF(!b->open, false);
    *ret_fault = b->first;
    *ret_user = b->first_user;
    WEIR_FAIL_IF(!find(m, ret_fault, ret_user) && now_ns < b->by_ns, false);
    b->open = false;
    skip_log(m);
    return true;
}

void weir_mps_blame_settled(struct weir_sup_mps *m)
{
    m->blame.open = false;
    skip_log(m);
}

uint64_t weir_mps_blame_next_ns(const struct weir_sup_mps *m, uint64_t now_ns)
{
    return m->blame.open ? now_ns + LOOK_NS : WEIR_FOREVER;
}
