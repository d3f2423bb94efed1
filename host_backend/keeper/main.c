/*
 * The keeper's loop: one supervisor at a time, the ends of processes, and the end of the host.
 *
 * When a supervisor has gone without END, the keeper waits linger_s for the next one. Then it
 * starts the last supervisor's command once more, with --end: that takes everything over and ends
 * it in order. The keeper itself only knows how to kill. Without linger_s, or when that command has
 * failed, it does that at once. The keeper's own death kills its children, too (spawn.c).
 *
 * A process that has ended stays a zombie until the supervisor knows: so nobody else gets its
 * number while a supervisor might still signal it.
 *
 * The keeper has no system call filter: NVIDIA's daemons are its children and would inherit it.
 */
#include "host_backend/keeper/book.h"
#include "host_backend/keeper/keep.h"
#include "host_backend/keeper/spawn.h"

#include "base/clock.h"
#include "host_backend/config/notify.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINK_BYTES     (1 << 20) /* so that neither end waits for the other to send */
#define KILLED_WAIT_MS 5000
#define END_WAIT_NS    (120 * WEIR_NS_PER_S) /* longer than stop.c takes */

static struct {
    struct weir_keep_book book;
    struct weir_keep_message message; /* the message to handle or to send */
    int listen_fd, conn, signal_fd;   /* conn: -1: no supervisor */
    uint64_t linger_ns;
    uint64_t deadline_ns;  /* when to act without a supervisor; WEIR_FOREVER: never */
    pid_t conn_pid;        /* pid of the process behind conn */
    pid_t ender;           /* the process that ends the host; 0: none */
    bool serves;           /* a supervisor has said HELLO */
    bool stays;            /* started by its service: it stays without processes */
    char socket_path[108]; /* "": it has no name that it must remove */
    uint32_t end_bytes;    /* of the words of the command that ends the host */
    char end_words[WEIR_KEEP_BYTES_MAX];
} k = {.conn = -1, .deadline_ns = WEIR_FOREVER};

static _Noreturn void kill_all(void)
{
    for (struct weir_keep_row *row = weir_keep_book_next(&k.book, NULL); row;
         row = weir_keep_book_next(&k.book, row)) {
        if (row->pid > 0 && !row->ended) {
            kill(row->pid, SIGKILL);
        }
    }
    if (k.ender > 0) {
        kill(k.ender, SIGKILL);
    }
    /* The next host finds our socket until nothing of this one is left. A process that hangs in the
     * driver is left behind. */
    while (weir_keep_book_next(&k.book, NULL)) {
        weir_keep_book_drop(&k.book, weir_keep_book_next(&k.book, NULL));
    }
    for (int i = 0; i < KILLED_WAIT_MS && waitpid(-1, NULL, WNOHANG) >= 0; i++) {
        poll(NULL, 0, 1);
    }
    if (k.socket_path[0] != 0) {
        unlink(k.socket_path);
    }
    _exit(0);
}

/* Send what k.message says, with its data; a lost supervisor is noticed at the next receive. */
static void tell(enum weir_keep_type type, const struct weir_keep_row *row, int32_t pid,
                 int32_t value, bool whole)
{
    k.message.type = type;
    k.message.owner = row ? row->owner : 0;
    k.message.key = row ? row->key : 0;
    k.message.pid = pid;
    k.message.value = value;
    k.message.bytes = whole ? row->bytes : 0;
    if (whole) {
        memcpy(k.message.data, row->data, row->bytes);
    }
    (void)weir_keep_send(k.conn, &k.message, whole ? row->fds.fd : NULL, whole ? row->fds.n : 0);
}

static void tell_end(const struct weir_keep_row *row)
{
    if (k.conn >= 0 && k.serves) {
        tell(WEIR_KEEP_EXITED, row, row->pid, row->wait_status, false);
    }
}

/* ---------------------------------------------------------------- processes */

/* A stop or continuation goes to the supervisor, once; an end is noted, and the zombie stays. */
static void look_at_process(struct weir_keep_row *row)
{
    siginfo_t info = {0};

    while (waitid(P_PID, (id_t)row->pid, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        if (k.conn >= 0 && k.serves) {
            tell(WEIR_KEEP_EXITED, row, row->pid,
                 info.si_code == CLD_CONTINUED ? 0xffff : info.si_status << 8 | 0x7f, false);
        }
        info.si_pid = 0;
    }
    if (waitid(P_PID, (id_t)row->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        row->ended = true;
        row->wait_status = info.si_code == CLD_EXITED   ? (info.si_status & 0xff) << 8
                           : info.si_code == CLD_DUMPED ? info.si_status | 0x80
                                                        : info.si_status;
        tell_end(row);
    }
}

static void look_at_processes(void)
{
    int status;

    for (struct weir_keep_row *row = weir_keep_book_next(&k.book, NULL); row;
         row = weir_keep_book_next(&k.book, row)) {
        if (row->pid > 0 && !row->ended) {
            look_at_process(row);
        }
    }
    if (k.ender > 0 && waitpid(k.ender, &status, WNOHANG) == k.ender) {
        k.ender = 0;
        if (k.conn < 0) {
            kill_all(); /* the command has ended, but not the host */
        }
    }
}

static void on_spawn(struct weir_fds *fds)
{
    struct weir_keep_spawn spawn;
    const uint8_t *row_data = weir_keep_spawn_row(&k.message, &spawn);
    uint32_t n_used = row_data ? spawn.n_fds + spawn.by_file : 0;
    struct weir_fds row_fds = {.n = 0};
    pid_t pid = -1;
    int why = EINVAL;

    if (row_data && n_used <= fds->n) {
        char *words = (char *)k.message.data + sizeof spawn + spawn.row_bytes;

        pid = weir_keep_fork(&spawn, words, (char *)k.message.data + k.message.bytes, fds->fd);
        why = errno;
    }
    if (pid > 0) {
        row_fds.n = fds->n - n_used;
        memcpy(row_fds.fd, fds->fd + n_used, row_fds.n * sizeof row_fds.fd[0]);
        fds->n = n_used;
    }
    struct weir_keep_row *row = pid > 0
                                    ? weir_keep_book_put(&k.book, k.message.owner, k.message.key,
                                                         row_data, spawn.row_bytes, &row_fds)
                                    : NULL;
    if (pid > 0 && !row) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        pid = -1;
        why = ENOMEM;
    }
    if (row) {
        row->pid = pid;
        row->ended = false;
        k.book.n_processes++;
    }
    tell(WEIR_KEEP_SPAWNED, row, pid, why, false);
}

static void on_reaped(pid_t pid)
{
    for (struct weir_keep_row *row = weir_keep_book_next(&k.book, NULL); row;
         row = weir_keep_book_next(&k.book, row)) {
        if (row->pid == pid && pid > 0 && row->ended) {
            (void)waitpid(pid, NULL, WNOHANG);
            weir_keep_book_drop(&k.book, row);
            k.book.n_processes--;
            return;
        }
    }
}

/* ---------------------------------------------------------------- the supervisor */

static void on_hello(void)
{
    const struct weir_keep_row *row = NULL;

    k.serves = true;
    if (k.ender == 0 || k.conn_pid != k.ender) { /* its deadline stays */
        k.deadline_ns = WEIR_FOREVER;
    }
    k.linger_ns = k.message.pid > 0 ? (uint64_t)k.message.pid * WEIR_NS_PER_S : 0;
    k.end_bytes = k.message.bytes;
    memcpy(k.end_words, k.message.data, k.message.bytes);
    tell(WEIR_KEEP_HELLO, NULL, 0, WEIR_KEEP_VERSION, false);
    while ((row = weir_keep_book_next(&k.book, row))) {
        tell(WEIR_KEEP_ROW, row, row->pid, 0, true);
    }
    tell(WEIR_KEEP_LISTED, NULL, 0, 0, false);
    while ((row = weir_keep_book_next(&k.book, row))) {
        if (row->ended) {
            tell_end(row);
        }
    }
}

/* The supervisor has gone. */
static void on_gone(void)
{
    close(k.conn);
    k.conn = -1;
    if (!k.serves) {
        return; /* it has never said HELLO */
    }
    k.serves = false;
    if ((k.linger_ns == 0 && !k.stays) || (k.book.n_processes == 0 && !k.stays) ||
        (k.ender > 0 && k.conn_pid == k.ender)) {
        kill_all();
    }
    k.deadline_ns = k.book.n_processes == 0 ? WEIR_FOREVER : weir_clock_now_ns() + k.linger_ns;
}

static void on_message(void)
{
    struct weir_fds fds;
    struct weir_keep_row *row;

    if (!weir_keep_receive(k.conn, &k.message, &fds)) {
        on_gone();
        return;
    }
    switch (k.message.type) {
    case WEIR_KEEP_HELLO:
        on_hello();
        break;
    case WEIR_KEEP_SPAWN:
        on_spawn(&fds);
        break;
    case WEIR_KEEP_REAPED:
        on_reaped(k.message.pid);
        break;
    case WEIR_KEEP_PUT:
        (void)weir_keep_book_put(&k.book, k.message.owner, k.message.key, k.message.data,
                                 k.message.bytes, &fds);
        break;
    case WEIR_KEEP_DROP:
        row = weir_keep_book_find(&k.book, k.message.owner, k.message.key);
        if (row && row->pid == 0) {
            weir_keep_book_drop(&k.book, row);
        }
        break;
    case WEIR_KEEP_END:
        kill_all();
    default: /* torn, or of a later version */
        break;
    }
    weir_fds_close(&fds);
}

/* May the process behind a connection be a supervisor? Where workers have the host's own user, a
 * guest that has taken one over could connect, too, and have programs started that no filter
 * confines. Workers make no processes, so refusing the workers themselves is enough. */
static bool may_serve(const struct ucred *peer)
{
    const struct weir_keep_row *row = NULL;

    while ((row = weir_keep_book_next(&k.book, row)) && row->pid != peer->pid) {
    }
    return !row && peer->uid == geteuid() && kill(peer->pid, 0) == 0;
}

static void on_connection(void)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    int size = LINK_BYTES, fd = accept4(k.listen_fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0) {
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || !may_serve(&peer)) {
        close(fd);
        return;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    k.conn = fd;
    k.conn_pid = peer.pid;
}

/* ---------------------------------------------------------------- the end of the host */

/* No supervisor has come in time: run the command that ends everything in order. */
static void on_deadline(void)
{
    struct weir_keep_spawn spawn = {.death_signal = SIGKILL};

    for (uint32_t i = 0; i < k.end_bytes; i++) {
        spawn.n_argv += k.end_words[i] == 0;
    }
    for (char **at = environ; *at && k.end_bytes + strlen(*at) < sizeof k.end_words; at++) {
        memcpy(k.end_words + k.end_bytes, *at, strlen(*at) + 1);
        k.end_bytes += (uint32_t)strlen(*at) + 1;
    }
    if (k.ender > 0 || spawn.n_argv == 0) {
        kill_all(); /* the command hangs, or there is none */
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    spawn.n_fds = 2;
    k.ender = weir_keep_fork(&spawn, k.end_words, k.end_words + k.end_bytes,
                             (int[]){null, STDERR_FILENO});
    close(null);
    if (k.ender < 0) {
        kill_all();
    }
    k.deadline_ns = weir_clock_now_ns() + END_WAIT_NS;
}

static void on_signals(void)
{
    struct signalfd_siginfo info;

    while (read(k.signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTERM && k.conn < 0) { /* else the supervisor decides */
            k.stays = false;
            k.deadline_ns = weir_clock_now_ns();
            if (k.book.n_processes == 0) {
                kill_all();
            }
        }
    }
    look_at_processes();
}

static void loop(void)
{
    struct pollfd waits[2] = {{k.signal_fd, POLLIN, 0}, {0, POLLIN, 0}};

    for (;;) {
        waits[1].fd = k.conn >= 0 ? k.conn : k.listen_fd;
        if (poll(waits, 2, weir_poll_ms(k.deadline_ns, weir_clock_now_ns())) < 0 &&
            errno != EINTR) {
            return;
        }
        if (waits[0].revents != 0) {
            on_signals();
        }
        if (waits[1].revents != 0) {
            k.conn >= 0 ? on_message() : on_connection();
        }
        if (weir_clock_now_ns() >= k.deadline_ns && (k.conn < 0 || k.ender > 0)) {
            on_deadline();
        }
    }
}

/* Listen in the run directory, unless the supervisor that started this process has done that. */
static bool open_socket(const char *run_dir, bool passed)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(k.socket_path, sizeof k.socket_path, "%s/" WEIR_KEEP_SOCKET, run_dir);

    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof k.socket_path, false);
    if (passed) {
        k.listen_fd = WEIR_KEEP_LISTEN_FD;
        return fcntl(k.listen_fd, F_SETFD, FD_CLOEXEC) == 0;
    }
    memcpy(address.sun_path, k.socket_path, sizeof k.socket_path);
    (void)unlink(address.sun_path);
    (void)umask(0077);
    k.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return k.listen_fd >= 0 &&
           bind(k.listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
           listen(k.listen_fd, 4) == 0;
}

int weir_keeper_main(int argc, char **argv)
{
    bool passed = argc == 3 && strcmp(argv[2], "started") == 0;
    struct rlimit limit;
    sigset_t set;

    if (argc != 2 && !passed) {
        fprintf(stderr, "usage: weir keep RUN_DIR\n");
        return 2;
    }
    (void)prctl(PR_SET_NAME, "weir-keep");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    k.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    k.stays = !passed;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) { /* it holds what the supervisor has */
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (k.signal_fd < 0 || !open_socket(argv[1], passed)) {
        fprintf(stderr, "weir keep: cannot listen in '%s': %s\n", argv[1], strerror(errno));
        return 1;
    }
    if (k.stays) {
        weir_notify("READY=1");
    }
    loop();
    return 1;
}
