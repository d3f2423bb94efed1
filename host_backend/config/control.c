/* The client's half of admin.sock: connects, sends a request, reads the answer to its end. */
#include "host_backend/config/control.h"

#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/peer.h"
#include "host_backend/config/status_text.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Time to wait for an answer, since a host on a busy machine may be slow. base/peer.h finds out
 * about a stopped host after seconds. */
#define ANSWER_TIMEOUT_NS (15 * WEIR_NS_PER_S)
#define CONNECT_TIMEOUT_S 4    /* the backlog is full, and the host accepts nobody */
#define COMES_BACK_MS     5000 /* the same time as in proto/wire/connect.c */
#define RETRY_MS          50
#define ANSWER_MAX_BYTES  (16u << 20)
#define REQUEST_BYTES     3072
#define MACHINE_RUN_DIR   "/run/weir"

const char *weir_control_own_run_dir(void)
{
    static char path[108];
    const char *user = getenv("XDG_RUNTIME_DIR");

    if (geteuid() == 0 || !user || user[0] != '/' || strlen(user) > 80) {
        return MACHINE_RUN_DIR;
    }
    snprintf(path, sizeof path, "%s/weir", user);
    return path;
}

const char *weir_control_default_run_dir(void)
{
    const char *own = weir_control_own_run_dir();
    char admin[128];

    snprintf(admin, sizeof admin, "%s/admin.sock", own);
    return access(admin, F_OK) != 0 && access(MACHINE_RUN_DIR, F_OK) == 0 ? MACHINE_RUN_DIR : own;
}

/* Convert a directory to the name of a folder: "/tmp/a-b/run" becomes "-tmp-a_-b-run". false: no
 * room. */
static bool name_folder(const char *dir, char *text, size_t bytes)
{
    size_t n = 0;

    for (; *dir != 0; dir++) {
        WEIR_FAIL_IF(n + 2 >= bytes, false);
        if (*dir == '-' || *dir == '_') {
            text[n++] = '_';
        }
        text[n++] = *dir;
        if (*dir == '/') {
            text[n - 1] = '-';
        }
    }
    text[n] = 0;
    return true;
}

bool weir_control_vm_memory(const char *run_dir, const char *tenant, char *text, size_t bytes)
{
    const char *dir = run_dir ? run_dir : weir_control_default_run_dir();
    char folder[256] = "";

    if (dir[0] != '/' ||
        (strcmp(dir, MACHINE_RUN_DIR) != 0 && !name_folder(dir, folder, sizeof folder))) {
        return false;
    }
    int len = snprintf(text, bytes, "/dev/shm/weir%s/%s.nvdimm", folder, tenant);
    return len >= 0 && (size_t)len < bytes;
}

static enum weir_status connect_to(const char *run_dir, const char *name, int type, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {CONNECT_TIMEOUT_S, 0};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s",
                     run_dir ? run_dir : weir_control_default_run_dir(), name);

    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof address.sun_path, WEIR_ERR_TOO_BIG);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* limits connect(), too */
    /* Connect to a host that is being restarted: only new.sock stays during a restart. */
    for (int ms = 0; connect(fd, (struct sockaddr *)&address, sizeof address) != 0;
         ms += RETRY_MS) {
        if (errno == ECONNREFUSED && strcmp(name, WEIR_CONTROL_NEW_SOCKET) == 0 &&
            ms < COMES_BACK_MS) {
            (void)poll(NULL, 0, RETRY_MS);
            continue;
        }
        enum weir_status status = errno == EACCES || errno == EPERM ? WEIR_ERR_DENIED
                                  : errno == EAGAIN                 ? WEIR_ERR_TIMED_OUT
                                                                    : WEIR_ERR_NOT_FOUND;

        close(fd);
        return status;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

/* Read until the other end closes; the caller frees the text. */
static enum weir_status read_answer(int fd, char **ret_text)
{
    uint64_t end_ns = weir_clock_now_ns() + ANSWER_TIMEOUT_NS;
    size_t used = 0, room = 4096;
    char *text = malloc(room + 1);

    while (text && used < ANSWER_MAX_BYTES) {
        enum weir_status status = weir_peer_await(fd, end_ns);

        if (status != WEIR_OK) {
            free(text);
            return status;
        }
        if (used == room) {
            char *bigger = realloc(text, room * 2 + 1);

            if (!bigger) {
                break;
            }
            text = bigger;
            room *= 2;
        }
        ssize_t n = read(fd, text + used, room - used);
        if (n == 0) {
            text[used] = 0;
            *ret_text = text;
            return WEIR_OK;
        }
        if (n < 0 && errno != EINTR) {
            free(text);
            return WEIR_ERR_IO;
        }
        used += n > 0 ? (size_t)n : 0;
    }
    free(text);
    return !text ? WEIR_ERR_NO_MEMORY : WEIR_ERR_PEER;
}

/* Send a request, and return the answer with its end row. */
static enum weir_status ask(const char *run_dir, const char *request, int passed, char **ret_text)
{
    enum weir_status status;
    int fd;

    WEIR_TRY(connect_to(run_dir, "admin.sock", SOCK_STREAM, &fd));
    if (weir_fd_send(fd, request, strlen(request), passed, 0) != (ssize_t)strlen(request)) {
        status = WEIR_ERR_IO;
    } else {
        status = read_answer(fd, ret_text);
    }
    close(fd);
    return status;
}

enum weir_status weir_control_status_text(const char *run_dir, char **ret_text)
{
    char *text, *end;
    WEIR_TRY(ask(run_dir, "status\n", -1, &text));
    end = strstr(text, WEIR_STATUS_TEXT_END); /* no value contains it: quotes there are escaped */
    if (!end) {
        free(text); /* the answer was cut off */
        return WEIR_ERR_PEER;
    }
    *end = 0;
    *ret_text = text;
    return WEIR_OK;
}

/* Join the words to a line, separated by tabs, behind the `at` bytes that the line has. */
static enum weir_status join(const char *const *words, size_t n_words, size_t at,
                             char request[REQUEST_BYTES])
{
    for (size_t i = 0; i < n_words; i++) {
        for (const char *c = words[i]; *c != 0; c++) {
            WEIR_FAIL_IF((unsigned char)*c < ' ' || *c == 0x7f, WEIR_ERR_INVALID);
        }
        WEIR_FAIL_IF(at + strlen(words[i]) + 3 > REQUEST_BYTES, WEIR_ERR_TOO_BIG);
        at += (size_t)sprintf(request + at, "%s%s", at == 0 ? "" : "\t", words[i]);
    }
    strcpy(request + at, "\n");
    return WEIR_OK;
}

enum weir_status weir_control_ask(const char *run_dir, const char *const *words, size_t n_words,
                                  int fd, struct weir_status_report **ret_report)
{
    char request[REQUEST_BYTES];
    enum weir_status status = join(words, n_words, 0, request);
    char *text;

    WEIR_THEN(status, ask(run_dir, request, fd, &text));
    if (status == WEIR_OK) {
        status = weir_status_text_read(text, ret_report);
        free(text);
    }
    return status;
}

enum weir_status weir_control_status(const char *run_dir, struct weir_status_report **ret_report)
{
    const char *const words[] = {"status"};

    return weir_control_ask(run_dir, words, 1, -1, ret_report);
}

/* Read a whole line of the stream; false: it is no valid event. */
static bool read_event(char *line, struct weir_status_report **ret_report)
{
    char *text;
    bool good = asprintf(&text, "%s%s", line, WEIR_STATUS_TEXT_END) > 0;

    if (good) {
        good = weir_status_text_read(text, ret_report) == WEIR_OK;
        free(text);
    }
    return good;
}

enum weir_status weir_control_follow(const char *run_dir, weir_event_fn take, void *user)
{
    static const char request[] = "events\tfollow\n";
    char *line = NULL;
    size_t room = 0;
    enum weir_status status = WEIR_OK;
    bool goes_on = true;
    int fd;

    WEIR_TRY(connect_to(run_dir, "admin.sock", SOCK_STREAM, &fd));
    FILE *stream = fdopen(fd, "r");
    if (!stream) {
        close(fd);
        return WEIR_ERR_NO_MEMORY;
    }
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1) {
        status = WEIR_ERR_IO;
    }
    while (status == WEIR_OK && goes_on && getline(&line, &room, stream) > 0) {
        struct weir_status_report *report = NULL;

        if (!read_event(line, &report)) {
            status = WEIR_ERR_PEER;
            break;
        }
        for (size_t i = 0; goes_on && i < report->n_events; i++) {
            goes_on = take(user, &report->events[i]);
        }
        weir_status_report_destroy(report);
    }
    free(line);
    fclose(stream);
    return status == WEIR_OK && goes_on ? WEIR_ERR_CLOSED : status;
}

/* Send one packet, receive one, and return the text of the answer. */
static enum weir_status exchange(const char *run_dir, const char *request, char *reply,
                                 size_t bytes)
{
    enum weir_status status;
    ssize_t n;
    int fd;

    WEIR_TRY(connect_to(run_dir, WEIR_CONTROL_NEW_SOCKET, SOCK_SEQPACKET, &fd));
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
        status = WEIR_ERR_IO;
    } else {
        status = weir_peer_await(fd, weir_clock_now_ns() + ANSWER_TIMEOUT_NS);
    }
    if (status == WEIR_OK) {
        n = recv(fd, reply, bytes - 1, 0);
        status = n > 0 ? WEIR_OK : WEIR_ERR_PEER;
        reply[n > 0 ? n : 0] = 0;
    }
    close(fd);
    return status;
}

enum weir_status weir_control_new(const char *run_dir, const char *container, pid_t pid,
                                  const char *const *words, size_t n_words,
                                  struct weir_new_share *ret_share)
{
    char request[REQUEST_BYTES], reply[REQUEST_BYTES], *name, *folder = NULL;

    *ret_share = (struct weir_new_share){.why = ""};
    int n = !container ? snprintf(request, sizeof request, "run\tself=%d", (int)getpid())
                       : snprintf(request, sizeof request, "container\tself=%d\tpid=%d\tid=%s",
                                  (int)getpid(), (int)pid, container);
    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof request, WEIR_ERR_TOO_BIG);
    enum weir_status status = join(words, n_words, (size_t)n, request);
    if (status == WEIR_ERR_INVALID) {
        snprintf(ret_share->why, sizeof ret_share->why, "a setting has control characters");
    }
    if (status == WEIR_OK) {
        *strchrnul(request, '\n') = 0;
        status = exchange(run_dir, request, reply, sizeof reply);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (strncmp(reply, "error\t", 6) == 0) {
        snprintf(ret_share->why, sizeof ret_share->why, "%.200s", reply + 6);
        return WEIR_ERR_INVALID;
    }
    name = strncmp(reply, "ok\t", 3) == 0 ? reply + 3 : NULL;
    folder = name ? strchr(name, '\t') : NULL;
    if (!folder || (size_t)(folder - name) >= sizeof ret_share->name ||
        strlen(folder + 1) >= sizeof ret_share->folder) {
        return WEIR_ERR_PEER;
    }
    *folder = 0;
    strcpy(ret_share->name, name);
    strcpy(ret_share->folder, folder + 1);
    return WEIR_OK;
}
