/*
 * Two hosts that serve one GPU would each hand out all of its memory and time. So a host listens on
 * a socket for each of its GPUs. If another process listens there already, the host does not start.
 *
 * The socket's name is abstract: "weir-gpu-" and the GPU's UUID. So a host that was killed leaves
 * nothing behind, hosts of all users meet there whatever folders they may write to, and the kernel
 * identifies the holder. A client that connects gets the holder's run directory.
 *
 * An abstract name belongs to a network namespace. So hosts in containers with networks of their
 * own do not see each other. The GPU itself has no means to claim it.
 *
 * Any user can listen on such a name. A host of root starts nevertheless.
 */
#include "host_backend/supervisor/workers/claims.h"
#include "base/fd.h"
#include "host_backend/supervisor/state/book.h"

#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 500
#define TRIES     20

static socklen_t name_of(const char *uuid, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weir-gpu-%s", uuid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Ask the process that listens on the name. @return false: no process does, or no longer. */
static bool ask_holder(const struct sockaddr_un *name, socklen_t bytes,
                       struct weir_claim_holder *holder)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd wait = {fd, POLLIN, 0};
    struct ucred peer;
    socklen_t peer_bytes = sizeof peer;

    *holder = (struct weir_claim_holder){.uid = (uid_t)-1};
    if (fd < 0) {
        return true;
    }
    /* EAGAIN: a process listens, but its backlog is full. */
    bool there = connect(fd, (const struct sockaddr *)name, bytes) == 0 || errno == EAGAIN;
    if (there && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0) {
        holder->pid = peer.pid;
        holder->uid = peer.uid;
    }
    if (there && poll(&wait, 1, ANSWER_MS) == 1) {
        ssize_t n = recv(fd, holder->run_dir, sizeof holder->run_dir - 1, 0);

        holder->run_dir[n > 0 ? n : 0] = 0;
    }
    close(fd);
    return there;
}

static enum weir_status enter(struct weir_claims *claims, const char *uuid, int fd)
{
    struct weir_claim *claim = &claims->of[claims->n++];

    snprintf(claim->uuid, sizeof claim->uuid, "%s", uuid);
    claim->fd = fd;
    return WEIR_OK;
}

/* Must this host respect the holder? A host of root respects only holders that are certainly
 * root's. */
static bool binds_us(const struct weir_claim_holder *holder)
{
    return geteuid() != 0 || holder->uid == 0;
}

enum weir_status weir_claims_take(struct weir_claims *claims, const char *uuid,
                                  struct weir_claim_holder *ret_holder)
{
    struct sockaddr_un name;
    socklen_t bytes = name_of(uuid, &name);

    *ret_holder = (struct weir_claim_holder){.pid = -1};
    for (unsigned i = 0; i < claims->n; i++) {
        if (strcmp(claims->of[i].uuid, uuid) == 0) {
            return WEIR_OK;
        }
    }
    WEIR_FAIL_IF(claims->n == WEIR_CLAIMS_MAX, WEIR_ERR_TOO_BIG);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    for (int i = 0; bind(fd, (const struct sockaddr *)&name, bytes) != 0; i++) {
        bool taken = errno == EADDRINUSE, there = taken && ask_holder(&name, bytes, ret_holder);

        if (taken && !there && i < TRIES) { /* the holder has just started, or just ended */
            (void)poll(NULL, 0, 1);
            continue;
        }
        close(fd);
        WEIR_FAIL_IF(!taken, WEIR_ERR_IO);
        WEIR_FAIL_IF(there && binds_us(ret_holder), WEIR_ERR_EXISTS);
        if (!there) { /* a process that binds but does not listen is no host */
            ret_holder->pid = -1;
        }
        return enter(claims, uuid, -1);
    }
    ret_holder->pid = -1;
    if (listen(fd, 8) != 0) {
        close(fd);
        return WEIR_ERR_IO;
    }
    return enter(claims, uuid, fd);
}

void weir_claims_release(struct weir_claims *claims)
{
    for (unsigned i = 0; i < claims->n; i++) {
        weir_fd_close(claims->of[i].fd);
    }
    claims->n = 0;
}

/* ---------------------------------------------------------------- the host's GPUs */

static void describe(const struct weir_claim_holder *holder, char *text, size_t bytes)
{
    char run_dir[2 * sizeof holder->run_dir];

    snprintf(text, bytes, "pid=%d user=%d run_dir=\"%s\"", (int)holder->pid, (int)holder->uid,
             weir_text_visible(holder->run_dir, run_dir, sizeof run_dir));
}

#define CLAIM "gpu:" /* the name of a claim's socket in the book begins with it */

static void listens(struct weir_supervisor *sup, const struct weir_claim *claim)
{
    char name[sizeof claim->uuid + sizeof CLAIM];

    snprintf(name, sizeof name, CLAIM "%s", claim->uuid);
    weir_book_listens(sup, name, claim->fd);
}

void weir_claims_adopt(struct weir_supervisor *sup)
{
    char name[sizeof sup->claims.of[0].uuid + sizeof CLAIM - 1];
    int fd;

    while (sup->claims.n < WEIR_CLAIMS_MAX &&
           (fd = weir_book_listener_like(sup, CLAIM, name, sizeof name)) >= 0) {
        (void)enter(&sup->claims, name + sizeof CLAIM - 1, fd);
    }
}

/* Claim a GPU for this host. @return false: another host has it. */
static bool claim(struct weir_supervisor *sup, const char *uuid)
{
    struct weir_claim_holder holder;
    unsigned n = sup->claims.n;
    enum weir_status status = weir_claims_take(&sup->claims, uuid, &holder);
    char text[700];

    if (status != WEIR_OK && status != WEIR_ERR_EXISTS) {
        weir_log_warn("supervisor: it cannot be seen whether another host serves this GPU gpu=%s "
                      "why=\"%s\"",
                      uuid, weir_status_text(status));
    } else if (holder.pid != -1) {
        describe(&holder, text, sizeof text);
        if (status == WEIR_OK) {
            weir_log_warn("supervisor: a host of another user serves this GPU, too gpu=%s %s", uuid,
                          text);
        } else {
            weir_log_error("supervisor: another host serves this GPU: stop it, give one of the two "
                           "other devices, or set exclusive = false in weir.toml gpu=%s %s",
                           uuid, text);
        }
    }
    if (sup->claims.n > n) {
        listens(sup, &sup->claims.of[n]);
    }
    return status != WEIR_ERR_EXISTS;
}

void weir_sup_claim(struct weir_supervisor *sup, int worker, const struct weir_link_devices *gpus)
{
    struct weir_status_device row;
    bool all = true;

    if (!sup->config.exclusive || gpus->n > WEIR_LINK_DEVICES_MAX) {
        return;
    }
    for (uint32_t i = 0; i < gpus->n; i++) {
        weir_status_device_init(&row, gpus->uuid[i]);
        all = claim(sup, row.uuid) && all;
    }
    if (all) {
        return;
    }
    if (!sup->life.announced) {
        sup->life.stopping = true;
        sup->life.exit_status = WEIR_SERVE_EXIT_TAKEN;
    }
    weir_mps_kill(sup, &sup->workers[worker]);
}

void weir_sup_claim_answer(struct weir_supervisor *sup, unsigned i)
{
    int fd = weir_sup_accept_operator(sup, sup->claims.of[i].fd, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        const char *run_dir = sup->config.run_dir;

        (void)!send(fd, run_dir, strlen(run_dir), MSG_NOSIGNAL); /* harmless if the asker is gone */
        close(fd);
    }
}

static void on_question(void *user, int index)
{
    weir_sup_claim_answer(user, (unsigned)index);
}

void weir_sup_claims_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (unsigned i = 0; i < sup->claims.n; i++) {
        weir_host_loop_watch(loop, sup->claims.of[i].fd, POLLIN, on_question, sup, (int)i);
    }
}
