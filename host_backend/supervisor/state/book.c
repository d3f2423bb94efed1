/*
 * The supervisor's side of the keeper.
 *
 * What is sent to the keeper stays in its socket when this process dies, so a row is safe as soon
 * as weir_book_put() returns. Only SPAWN waits for an answer, which the keeper gives at once.
 */
#include "host_backend/supervisor/state/book.h"

#include "base/fd.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define LINK_BYTES    (1 << 20)
#define RETRY_MS      10
#define HELLO_WAIT_MS 10000 /* a supervisor that is ending leaves the keeper before */

struct event {
    struct event *next;
    pid_t pid;
    int status;
};

struct weir_book {
    int fd;
    int program_fd; /* this program's own file, even if another has taken its name */
    bool lost;      /* the keeper has ended */
    struct weir_book_row *rows;
    struct event *events, **last_event;
    struct weir_keep_message message; /* the message to send, or that was received */
};

/* ---------------------------------------------------------------- messages */

static bool send_message(struct weir_book *book, enum weir_keep_type type, uint32_t owner,
                         uint64_t key, int32_t pid, const int *fds, uint32_t n)
{
    int there[WEIR_FDS_MAX];
    uint32_t n_there = 0;

    for (uint32_t i = 0; i < n && n_there < WEIR_FDS_MAX; i++) {
        if (fds[i] >= 0) {
            there[n_there++] = fds[i];
        }
    }
    book->message.type = type;
    book->message.owner = owner;
    book->message.key = key;
    book->message.pid = pid;
    return weir_keep_send(book->fd, &book->message, there, n_there);
}

static void note_event(struct weir_book *book, pid_t pid, int status)
{
    struct event *event = malloc(sizeof *event);

    if (event) {
        *event = (struct event){NULL, pid, status};
        *book->last_event = event;
        book->last_event = &event->next;
    }
}

static void note_row(struct weir_book *book, struct weir_fds *fds)
{
    struct weir_book_row *row = malloc(sizeof *row + book->message.bytes);

    if (!row) {
        return;
    }
    *row = (struct weir_book_row){.next = book->rows,
                                  .owner = book->message.owner,
                                  .key = book->message.key,
                                  .pid = book->message.pid,
                                  .fds = *fds,
                                  .bytes = book->message.bytes};
    memcpy(row->data, book->message.data, book->message.bytes);
    fds->n = 0;
    book->rows = row;
}

/* Receive one message and note it. @return its type; WEIR_KEEP_END: the keeper has ended */
static enum weir_keep_type receive(struct weir_book *book)
{
    struct weir_fds fds;

    if (book->lost || !weir_keep_receive(book->fd, &book->message, &fds)) {
        book->lost = true;
        return WEIR_KEEP_END;
    }
    if (book->message.type == WEIR_KEEP_EXITED) {
        note_event(book, book->message.pid, book->message.value);
    } else if (book->message.type == WEIR_KEEP_ROW) {
        note_row(book, &fds);
    }
    weir_fds_close(&fds);
    return (enum weir_keep_type)book->message.type;
}

/* ---------------------------------------------------------------- the keeper's start */

static bool socket_path(const struct weir_supervisor *sup, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path, sizeof address->sun_path, "%s/" WEIR_KEEP_SOCKET,
                     sup->config.run_dir);
    return n >= 0 && (size_t)n < sizeof address->sun_path;
}

/* Give up the terminal, if there is one, since a process can make input for its terminal. The
 * session stays the same: where Linux divides cores by session (sched_autogroup), a new session
 * would give the keeper's children cores as a group of their own. */
static void leave_terminal(void)
{
    int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);

    (void)setpgid(0, 0);
    if (terminal >= 0) {
        (void)ioctl(terminal, TIOCNOTTY);
        close(terminal);
    }
}

/* Become the keeper, without a terminal and with no descriptor of this process but its socket.
 * Whoever reads our output does not wait for the keeper's end. */
static _Noreturn void become_keeper(const struct weir_supervisor *sup, int program_fd,
                                    int listen_fd)
{
    char *argv[] = {(char *)(uintptr_t) "weir", (char *)(uintptr_t) "keep",
                    (char *)(uintptr_t)sup->config.run_dir, (char *)(uintptr_t) "started", NULL};
    int program = fcntl(program_fd, F_DUPFD_CLOEXEC, 16), null = open("/dev/null", O_RDWR);
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    leave_terminal();
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(null, STDERR_FILENO) < 0 || program < 0 || dup2(listen_fd, WEIR_KEEP_LISTEN_FD) < 0 ||
        dup3(program, WEIR_KEEP_LISTEN_FD + 1, O_CLOEXEC) < 0) {
        _exit(1);
    }
    (void)close_range(WEIR_KEEP_LISTEN_FD + 2, ~0u, 0);
    fexecve(WEIR_KEEP_LISTEN_FD + 1, argv, environ);
    _exit(1);
}

static bool start_keeper(const struct weir_supervisor *sup, int program_fd,
                         const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    (void)unlink(address->sun_path);
    bool good = fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) == 0 &&
                bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 &&
                listen(fd, 4) == 0;
    if (good) {
        pid_t pid = fork();

        if (pid == 0) {
            become_keeper(sup, program_fd, fd);
        }
        good = pid > 0;
    }
    weir_fd_close(fd);
    return good;
}

static bool connect_to(const struct weir_supervisor *sup, struct weir_book *book)
{
    struct sockaddr_un address;
    int size = LINK_BYTES;

    if (!socket_path(sup, &address)) {
        errno = ENAMETOOLONG;
        return false;
    }
    book->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)setsockopt(book->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return book->fd >= 0 && (connect(book->fd, (struct sockaddr *)&address, sizeof address) == 0 ||
                             ((errno == ENOENT || errno == ECONNREFUSED) &&
                              start_keeper(sup, book->program_fd, &address) &&
                              connect(book->fd, (struct sockaddr *)&address, sizeof address) == 0));
}

/* The command that ends the host: this one, with --end. */
static void fill_command(struct weir_keep_message *message)
{
    char *at = (char *)message->data;
    ssize_t n = readlink("/proc/self/exe", at, 4096);
    size_t used = n > 0 ? (size_t)n : 0;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    char words[16384], *deleted;

    at[used] = 0;
    deleted = strstr(at, " (deleted)");
    if (deleted) {
        *deleted = 0;
    }
    used = strlen(at) + 1;
    n = fd >= 0 ? read(fd, words, sizeof words - 1) : -1;
    words[n > 0 ? n : 0] = 0;
    size_t skip = strlen(words) + 1;
    if (n > 0 && skip < (size_t)n) {
        memcpy(at + used, words + skip, (size_t)n - skip);
        used += (size_t)n - skip;
    }
    memcpy(at + used, "--end", 6);
    message->bytes = (uint32_t)used + 6;
    weir_fd_close(fd);
}

static bool say_hello(const struct weir_supervisor *sup, struct weir_book *book)
{
    struct pollfd wait = {book->fd, POLLIN, 0};
    enum weir_keep_type type;

    fill_command(&book->message);
    book->message.value = WEIR_KEEP_VERSION;
    if (!send_message(book, WEIR_KEEP_HELLO, 0, 0, (int32_t)sup->config.linger_s, NULL, 0)) {
        return false;
    }
    if (poll(&wait, 1, HELLO_WAIT_MS) != 1) {
        errno = ETIMEDOUT;
        return false;
    }
    do {
        type = receive(book);
    } while (type != WEIR_KEEP_LISTED && type != WEIR_KEEP_END);
    return type == WEIR_KEEP_LISTED;
}

bool weir_book_open(struct weir_supervisor *sup)
{
    struct weir_book *book = calloc(1, sizeof *book);
    int tries = HELLO_WAIT_MS / RETRY_MS;
    bool good = false;

    WEIR_FAIL_IF(!book, false);
    book->fd = -1;
    book->last_event = &book->events;
    book->program_fd =
        open(sup->params.program ? sup->params.program : "/proc/self/exe", O_RDONLY | O_CLOEXEC);
    sup->book = book;
    /* A keeper that is ending takes connections to the last moment: then try again. */
    while (book->program_fd >= 0 && !good && tries-- > 0) {
        good = connect_to(sup, book) && say_hello(sup, book);
        if (!good && !book->lost && errno != ECONNRESET && errno != EPIPE) {
            break;
        }
        if (!good) {
            close(book->fd);
            book->fd = -1;
            book->lost = false;
            poll(NULL, 0, RETRY_MS);
        }
    }
    if (!good) {
        weir_log_error("supervisor: no keeper, which starts the host's processes run_dir=%s "
                       "why=\"%s\"",
                       sup->config.run_dir, strerror(errno));
        return false;
    }
    return true;
}

static void free_rows(struct weir_book *book)
{
    for (struct weir_book_row *row; (row = WEIR_POP(book->rows));) {
        for (uint32_t i = 0; i < row->fds.n; i++) {
            weir_fd_close(row->fds.fd[i]);
        }
        free(row);
    }
}

void weir_book_close(struct weir_supervisor *sup, bool end)
{
    struct weir_book *book = sup->book;

    if (!book) {
        return;
    }
    if (end && book->fd >= 0) {
        book->message.bytes = 0;
        (void)send_message(book, WEIR_KEEP_END, 0, 0, 0, NULL, 0);
        while (receive(book) != WEIR_KEEP_END) {
        }
    }
    free_rows(book);
    for (struct event *event; (event = WEIR_POP(book->events));) {
        free(event);
    }
    weir_fd_close(book->fd);
    weir_fd_close(book->program_fd);
    free(book);
    sup->book = NULL;
}

bool weir_book_has_processes(const struct weir_supervisor *sup)
{
    for (const struct weir_book_row *row = sup->book->rows; row; row = row->next) {
        if (row->pid > 0) {
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- rows */

void weir_book_put(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key,
                   const void *data, size_t bytes, const int *fds, uint32_t n)
{
    struct weir_book *book = sup->book;

    if (!book) {
        return;
    }
    memcpy(book->message.data, data, bytes);
    book->message.bytes = (uint32_t)bytes;
    if (!send_message(book, WEIR_KEEP_PUT, owner, key, 0, fds, n)) {
        weir_log_error("supervisor: the keeper does not take a row owner=%d why=\"%s\"", (int)owner,
                       strerror(errno));
    }
}

void weir_book_drop(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key)
{
    if (sup->book) {
        sup->book->message.bytes = 0;
        (void)send_message(sup->book, WEIR_KEEP_DROP, owner, key, 0, NULL, 0);
    }
}

struct weir_book_row *weir_book_next(struct weir_supervisor *sup, enum weir_book_owner owner,
                                     struct weir_book_row *after)
{
    struct weir_book_row *row = after ? after->next : sup->book ? sup->book->rows : NULL;

    while (row && row->owner != owner) {
        row = row->next;
    }
    return row;
}

struct weir_book_row *weir_book_adopt(struct weir_supervisor *sup, enum weir_book_owner owner)
{
    struct weir_book_row *row = weir_book_next(sup, owner, NULL);

    while (row && row->adopted) {
        row = weir_book_next(sup, owner, row);
    }
    if (row) {
        row->adopted = true;
    }
    return row;
}

int weir_book_take_fd(struct weir_book_row *row, uint32_t i)
{
    int fd = i < row->fds.n ? row->fds.fd[i] : -1;

    if (fd >= 0) {
        row->fds.fd[i] = -1;
    }
    return fd;
}

void weir_book_read(const struct weir_book_row *row, void *ret_value, size_t bytes)
{
    size_t n = WEIR_MIN(row->bytes, bytes);

    memcpy(ret_value, row->data, n);
    memset((char *)ret_value + n, 0, bytes - n);
}

static uint64_t key_of(const char *name)
{
    uint64_t key = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *name; name++) {
        key = (key ^ (uint8_t)*name) * 0x100000001b3u;
    }
    return key;
}

int weir_book_listener(struct weir_supervisor *sup, const char *name)
{
    uint64_t key = key_of(name);

    for (struct weir_book_row *row = sup->book ? sup->book->rows : NULL; row; row = row->next) {
        if (row->owner == WEIR_BOOK_LISTENER && row->key == key && !row->adopted &&
            (*name != '/' || access(name, F_OK) == 0)) { /* nobody has removed the file */
            row->adopted = true;
            return weir_book_take_fd(row, 0);
        }
    }
    return -1;
}

int weir_book_listener_like(struct weir_supervisor *sup, const char *begin, char *ret_name,
                            size_t bytes)
{
    size_t n = strlen(begin);

    for (struct weir_book_row *row = sup->book ? sup->book->rows : NULL; row; row = row->next) {
        if (row->owner == WEIR_BOOK_LISTENER && !row->adopted && row->bytes >= n &&
            memcmp(row->data, begin, n) == 0) {
            row->adopted = true;
            snprintf(ret_name, bytes, "%.*s", (int)row->bytes, (const char *)row->data);
            return weir_book_take_fd(row, 0);
        }
    }
    return -1;
}

void weir_book_listens(struct weir_supervisor *sup, const char *name, int fd)
{
    if (fd >= 0) {
        weir_book_put(sup, WEIR_BOOK_LISTENER, key_of(name), name, strlen(name), &fd, 1);
    } else {
        weir_book_drop(sup, WEIR_BOOK_LISTENER, key_of(name));
    }
}

void weir_book_settle(struct weir_supervisor *sup)
{
    for (struct weir_book_row *row = sup->book ? sup->book->rows : NULL; row; row = row->next) {
        if (!row->adopted && row->pid > 0) {
            kill(row->pid, SIGKILL);
        } else if (!row->adopted) {
            weir_book_drop(sup, row->owner, row->key);
        }
    }
    if (sup->book) {
        free_rows(sup->book);
    }
}

/* ---------------------------------------------------------------- processes */

static bool is_named(const char *variable, const char *name)
{
    size_t n = strlen(name);

    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

/* Add words. @return false: there is no room */
static bool add_word(struct weir_keep_message *message, const char *name, const char *value)
{
    size_t room = sizeof message->data - message->bytes;
    int n = snprintf((char *)message->data + message->bytes, room, "%s%s%s", name, value ? "=" : "",
                     value ? value : "");

    WEIR_FAIL_IF(n < 0 || (size_t)n >= room, false);
    message->bytes += (uint32_t)n + 1;
    return true;
}

static bool add_environment(struct weir_keep_message *message, const char *const (*env)[2])
{
    bool good = true;

    for (char **at = environ; *at && good; at++) {
        bool other = false;

        for (size_t i = 0; env && env[i][0]; i++) {
            other |= is_named(*at, env[i][0]);
        }
        good = other || add_word(message, *at, NULL);
    }
    for (size_t i = 0; env && env[i][0] && good; i++) {
        good = !env[i][1] || add_word(message, env[i][0], env[i][1]);
    }
    return good;
}

pid_t weir_book_spawn(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key,
                      const struct weir_book_process *p)
{
    struct weir_book *book = sup->book;
    struct weir_keep_spawn spawn = *p->spawn;
    int fds[WEIR_FDS_MAX];
    uint32_t n = 0;
    bool good = true;

    if (!book) {
        errno = ENOTCONN;
        return -1;
    }
    spawn.n_fds = p->n_fds;
    spawn.row_bytes = p->row_bytes;
    memcpy(fds, p->fds, p->n_fds * sizeof fds[0]);
    n = p->n_fds;
    if (spawn.by_file) {
        fds[n++] = book->program_fd;
    }
    for (uint32_t i = 0; i < p->n_row_fds; i++) {
        fds[n++] = p->row_fds[i];
    }
    book->message.bytes = (uint32_t)sizeof spawn + p->row_bytes;
    memcpy(book->message.data + sizeof spawn, p->row, p->row_bytes);
    for (spawn.n_argv = 0; p->argv[spawn.n_argv] && good; spawn.n_argv++) {
        good = add_word(&book->message, p->argv[spawn.n_argv], NULL);
    }
    good = good && add_environment(&book->message, p->env);
    memcpy(book->message.data, &spawn, sizeof spawn);
    if (!good) {
        errno = E2BIG;
        return -1;
    }
    if (!send_message(book, WEIR_KEEP_SPAWN, owner, key, 0, fds, n)) {
        return -1;
    }
    for (;;) {
        enum weir_keep_type type = receive(book);

        if (type == WEIR_KEEP_SPAWNED || type == WEIR_KEEP_END) {
            errno = type == WEIR_KEEP_END ? EPIPE : book->message.value;
            return type == WEIR_KEEP_END ? -1 : book->message.pid;
        }
    }
}

bool weir_book_changed(struct weir_supervisor *sup, pid_t pid, int *ret_status)
{
    struct weir_book *book = sup->book;

    if (!book) {
        return waitpid(pid, ret_status, WNOHANG | WUNTRACED | WCONTINUED) == pid;
    }
    if (book->lost) { /* the keeper's end has killed its children */
        *ret_status = SIGKILL;
        return true;
    }
    for (struct event **at = &book->events; *at; at = &(*at)->next) {
        struct event *event = *at;

        if (event->pid != pid) {
            continue;
        }
        *ret_status = event->status;
        *at = event->next;
        if (book->last_event == &event->next) {
            book->last_event = at;
        }
        free(event);
        if (WIFEXITED(*ret_status) || WIFSIGNALED(*ret_status)) {
            book->message.bytes = 0;
            (void)send_message(book, WEIR_KEEP_REAPED, 0, 0, pid, NULL, 0);
        }
        return true;
    }
    return false;
}

bool weir_book_ended(struct weir_supervisor *sup, pid_t pid, int *ret_status)
{
    while (weir_book_changed(sup, pid, ret_status)) {
        if (WIFEXITED(*ret_status) || WIFSIGNALED(*ret_status)) {
            return true;
        }
    }
    return false;
}

void weir_book_forget_events(struct weir_supervisor *sup)
{
    int status;

    while (sup->book && sup->book->events) {
        (void)weir_book_changed(sup, sup->book->events->pid, &status);
    }
}

bool weir_book_receive(struct weir_supervisor *sup)
{
    struct pollfd wait = {sup->book ? sup->book->fd : -1, POLLIN, 0};

    while (sup->book && !sup->book->lost && poll(&wait, 1, 0) > 0) {
        (void)receive(sup->book);
    }
    return !sup->book || !sup->book->lost;
}

void weir_book_poll(const struct weir_supervisor *sup, struct pollfd *ret_wait)
{
    *ret_wait = (struct pollfd){sup->book ? sup->book->fd : -1, POLLIN, 0};
}

void weir_book_wait(struct weir_supervisor *sup, int wait_ms)
{
    struct pollfd wait = {sup->book ? sup->book->fd : -1, POLLIN, 0};

    if (poll(&wait, 1, wait_ms) > 0) {
        (void)weir_book_receive(sup);
    }
}

void weir_book_watch(struct weir_supervisor *sup, struct weir_host_loop *loop,
                     weir_host_loop_fn handle)
{
    if (sup->book) {
        weir_host_loop_watch(loop, sup->book->fd, POLLIN, handle, sup, 0);
        if (sup->book->events) { /* read beside the answer to SPAWN */
            weir_host_loop_wake(loop, 1);
        }
    }
}
