/* The call log's file: lines from all threads, through one buffer. */
#include "guest_lib/calls_log.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "guest_lib/calls.h"
#include "guest_lib/lock.h"
#include "guest_lib/profile.h"
#include "proto/calls_log_table.h"
#include "proto/errors.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define MAX_AGE_NS   (100 * WEIR_NS_PER_MS)
#define END_BYTES    160u /* room for the line that says that the log ended early */

static struct {
    pthread_mutex_t lock;
    bool asked; /* the environment was read */
    bool finished;
    bool eager; /* a forked child, which may end by _exit(): it writes lines at once */
    int fd;     /* -1: no file is open */
    int why;    /* errno of the failure that keeps calls out of the file; 0: none */
    pid_t pid;
    uint64_t zero_ns; /* when the log began, on the monotonic clock */
    uint64_t flushed_ns;
    size_t used;
    char *buffer;
} call_log = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---------------------------------------------------------------- the file */

/* Make the file's name: each %p becomes the process's number. */
static bool file_name(const char *pattern, char *name, size_t room)
{
    size_t used = 0;
    for (; *pattern && used < room; pattern++) {
        if (pattern[0] == '%' && pattern[1] == 'p') {
            used += (size_t)snprintf(name + used, room - used, "%d", (int)getpid());
            pattern++;
        } else {
            name[used++] = *pattern;
        }
    }
    WEIR_FAIL_IF(used >= room, false);
    name[used] = 0;
    return true;
}

/*
 * The file took only the buffer's first `written` bytes, so nothing is recorded from now on. Remove
 * the cut line, and as many lines before it as needed for one that says that the log ended early.
 */
static void end_locked(size_t written, int why)
{
    char text[END_BYTES];
    struct weir_calls_log_line line = {.text = text, .room = sizeof text};
    size_t keep = written > END_BYTES ? written - END_BYTES : 0;
    off_t end = lseek(call_log.fd, 0, SEEK_END);
    while (keep > 0 && call_log.buffer[keep - 1] != '\n') {
        keep--;
    }
    weir_calls_log_put(&line, "# %s, at %llu us, pid %d\n",
                       why == ENOSPC ? "the log ends here: the disk is full" : "the log ends here",
                       (unsigned long long)((weir_clock_now_ns() - call_log.zero_ns) / 1000),
                       (int)call_log.pid);
    if (end >= (off_t)written && ftruncate(call_log.fd, end - (off_t)(written - keep)) == 0) {
        (void)weir_fd_write(call_log.fd, line.text, line.used);
    }
    call_log.finished = true;
    call_log.why = why;
}

static void flush_locked(void)
{
    int saved_errno = errno;
    size_t written = weir_fd_write(call_log.fd, call_log.buffer, call_log.used);
    if (written < call_log.used) { /* a full disk costs lines, not the program */
        end_locked(written, errno);
    }
    call_log.used = 0;
    call_log.flushed_ns = weir_clock_now_ns();
    errno = saved_errno;
}

static void append_locked(const char *bytes, size_t n)
{
    if (n > BUFFER_BYTES - call_log.used) {
        flush_locked();
    }
    memcpy(call_log.buffer + call_log.used, bytes, n);
    call_log.used += n;
}

static void head_locked(void)
{
    struct weir_calls_log_line line = {.text = (char[256]){0}, .room = 256};
    weir_calls_log_put(&line, "# weir trace 1, pid %d, seconds since the first call\n",
                       (int)call_log.pid);
    append_locked(line.text, line.used);
}

static bool open_locked(void)
{
    char name[PATH_MAX];
    const char *pattern = getenv("WEIR_TRACE");
    WEIR_FAIL_IF(!pattern || !*pattern || !file_name(pattern, name, sizeof name), false);
    call_log.buffer = malloc(BUFFER_BYTES);
    call_log.fd = call_log.buffer
                      ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)
                      : -1;
    if (call_log.fd < 0) {
        call_log.why = errno;
        free(call_log.buffer);
        call_log.buffer = NULL;
        return false;
    }
    call_log.pid = getpid();
    call_log.zero_ns = call_log.flushed_ns = weir_clock_now_ns();
    call_log.used = 0;
    head_locked();
    return true;
}

static void lock_for_fork(void)
{
    pthread_mutex_lock(&call_log.lock);
}

static void unlock_in_parent(void)
{
    pthread_mutex_unlock(&call_log.lock);
}

static void restart_in_child(void)
{
    bool again = call_log.fd >= 0 && strstr(getenv("WEIR_TRACE") ? getenv("WEIR_TRACE") : "", "%p");
    weir_fd_close(call_log.fd);
    free(call_log.buffer);
    call_log.buffer = NULL;
    call_log.fd = -1;
    call_log.why = 0;
    call_log.used = 0;
    call_log.eager = true;
    call_log.finished = false;
    if (!again || !open_locked()) {
        __atomic_fetch_and(&weir_calls_detail, ~(uint32_t)WEIR_CALLS_LOGGED, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&call_log.lock);
}

bool weir_calls_log_wanted(void)
{
    int saved_errno = errno;
    pthread_mutex_lock(&call_log.lock);
    if (!call_log.asked) {
        call_log.asked = true;
        if (open_locked()) {
            pthread_atfork(lock_for_fork, unlock_in_parent, restart_in_child);
        }
    }
    bool wanted = call_log.fd >= 0;
    pthread_mutex_unlock(&call_log.lock);
    errno = saved_errno;
    return wanted;
}

void weir_calls_log_finish(void)
{
    WEIR_LOCKED(&call_log.lock);
    if (call_log.fd >= 0 && !call_log.finished) {
        if (call_log.used > 0) {
            flush_locked();
        }
        call_log.finished = true; /* calls from later exit handlers are not logged */
    }
    if (call_log.why != 0) { /* not earlier: messages cannot be logged at the first calls */
        weir_log_error("guest: WEIR_TRACE: %s (errno %d): calls are missing in the file",
                       call_log.why == ENOSPC ? "the disk is full" : "cannot write", call_log.why);
    }
}

/* ---------------------------------------------------------------- lines */

static const char *class_name(uint32_t marks)
{
    return marks & WEIR_CALLS_WAITED ? "waited" : marks & WEIR_CALLS_POSTED ? "posted" : "guest";
}

static void put_result(struct weir_calls_log_line *line, CUresult result)
{
    const char *name = weir_cuda_error_name(result);
    if (name) {
        weir_calls_log_put(line, "%s", name);
    } else {
        weir_calls_log_put(line, "%d", (int)result);
    }
}

static void put_call(struct weir_calls_log_line *line, const struct weir_calls_last *call,
                     enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    unsigned long long at_ns = call->start_ns - call_log.zero_ns;
    unsigned long long ns = call->ns;
    weir_calls_log_put(line, "[%d/%ld] %llu.%09llu %s(", (int)call_log.pid, syscall(SYS_gettid),
                       at_ns / WEIR_NS_PER_S, at_ns % WEIR_NS_PER_S,
                       weir_calls_log_symbols[symbol].name);
    weir_calls_log_put_args(line, symbol, result, words);
    if (line->used > line->room - 128) {
        /* The line has the result even if its arguments do not fit. */
        line->used = line->room - 128;
        weir_calls_log_put(line, "..");
    }
    weir_calls_log_put(line, ") = ");
    put_result(line, result);
    weir_calls_log_put(line, " <%llu.%09llu> %s\n", ns / WEIR_NS_PER_S, ns % WEIR_NS_PER_S,
                       class_name(call->marks));
}

/* Is this an error after which a program is likely to end? */
static bool is_grave(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

void weir_calls_log_begin(struct weir_calls_thread *mine, enum weir_symbol symbol,
                          const uint64_t *words)
{
    if (__atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED) & WEIR_CALLS_WATCHED) {
        weir_guest_profile_begin(mine, symbol, words);
    }
}

void weir_calls_log_add(enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    char text[WEIR_CALLS_LOG_LINE_BYTES];
    struct weir_calls_log_line line = {.text = text, .room = sizeof text};
    struct weir_calls_last call = weir_calls_last();
    weir_guest_profile_end(symbol, result, words);
    if (!(__atomic_load_n(&weir_calls_detail, __ATOMIC_RELAXED) & WEIR_CALLS_LOGGED)) {
        return;
    }
    put_call(&line, &call, symbol, result, words);
    WEIR_LOCKED(&call_log.lock);
    if (call_log.fd >= 0 && !call_log.finished) {
        append_locked(line.text, line.used);
        if (call_log.eager || is_grave(result) ||
            weir_clock_now_ns() - call_log.flushed_ns > MAX_AGE_NS) {
            flush_locked();
        }
    }
}
