/* The trace's file: lines from all threads, through one buffer. */
#include "guest_lib/trace.h"
#include "base/clock.h"
#include "guest_lib/calls.h"
#include "guest_lib/lock.h"
#include "proto/errors.h"
#include "proto/trace_table.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define MAX_AGE_NS   (100 * WEIR_NS_PER_MS)

static struct {
    pthread_mutex_t lock;
    bool asked; /* the environment has been looked at */
    bool json;
    bool finished;
    bool eager; /* a forked child, which ends by _exit(): write each line at once */
    int fd;     /* -1: no trace */
    pid_t pid;
    uint64_t zero_ns; /* when the trace began */
    uint64_t flushed_ns;
    size_t used;
    char *buffer;
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---------------------------------------------------------------- the file */

/* The name with the process's number for each %p. */
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
    if (used >= room) {
        return false;
    }
    name[used] = 0;
    return true;
}

static void write_all(const char *bytes, size_t n)
{
    while (n) {
        ssize_t done = write(trace.fd, bytes, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return; /* a full disk costs lines, not the program */
        }
        bytes += done;
        n -= (size_t)done;
    }
}

static void flush_locked(void)
{
    int saved_errno = errno;
    write_all(trace.buffer, trace.used);
    trace.used = 0;
    trace.flushed_ns = weir_clock_now_ns();
    errno = saved_errno;
}

static void append_locked(const char *bytes, size_t n)
{
    if (n > BUFFER_BYTES - trace.used) {
        flush_locked();
    }
    memcpy(trace.buffer + trace.used, bytes, n);
    trace.used += n;
}

static void head_locked(void)
{
    struct weir_trace_line line = {.text = (char[256]){0}, .room = 256};
    if (trace.json) {
        weir_trace_put(&line,
                       "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
                       "\"CUDA through Weir\"}}",
                       (int)trace.pid);
    } else {
        weir_trace_put(&line, "# weir trace 1, pid %d, seconds since the first call\n",
                       (int)trace.pid);
    }
    append_locked(line.text, line.used);
}

static bool open_locked(void)
{
    char name[PATH_MAX];
    const char *pattern = getenv("WEIR_TRACE");
    if (!pattern || !*pattern || !file_name(pattern, name, sizeof name)) {
        return false;
    }
    size_t length = strlen(name);
    trace.buffer = malloc(BUFFER_BYTES);
    trace.fd =
        trace.buffer ? open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (trace.fd < 0) {
        free(trace.buffer);
        trace.buffer = NULL;
        return false;
    }
    trace.json = length > 5 && strcmp(name + length - 5, ".json") == 0;
    trace.pid = getpid();
    trace.zero_ns = trace.flushed_ns = weir_clock_now_ns();
    trace.used = 0;
    head_locked();
    return true;
}

static void lock_for_fork(void)
{
    pthread_mutex_lock(&trace.lock);
}

static void unlock_in_parent(void)
{
    pthread_mutex_unlock(&trace.lock);
}

static void restart_in_child(void)
{
    bool again = trace.fd >= 0 && strstr(getenv("WEIR_TRACE") ? getenv("WEIR_TRACE") : "", "%p");
    if (trace.fd >= 0) {
        close(trace.fd);
    }
    free(trace.buffer);
    trace.buffer = NULL;
    trace.fd = -1;
    trace.used = 0;
    trace.eager = true;
    trace.finished = false;
    if (!again || !open_locked()) {
        __atomic_fetch_and(&weir_calls_detail, ~(uint32_t)WEIR_CALLS_TRACED, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&trace.lock);
}

bool weir_trace_wanted(void)
{
    int saved_errno = errno;
    pthread_mutex_lock(&trace.lock);
    if (!trace.asked) {
        trace.asked = true;
        if (open_locked()) {
            pthread_atfork(lock_for_fork, unlock_in_parent, restart_in_child);
        }
    }
    bool wanted = trace.fd >= 0;
    pthread_mutex_unlock(&trace.lock);
    errno = saved_errno;
    return wanted;
}

void weir_trace_finish(void)
{
    pthread_mutex_lock(&trace.lock);
    if (trace.fd >= 0 && !trace.finished) {
        if (trace.json) {
            append_locked("\n]\n", 3);
        }
        flush_locked();
        trace.finished = true; /* exit handlers that still call are not recorded */
    }
    pthread_mutex_unlock(&trace.lock);
}

/* ---------------------------------------------------------------- lines */

static const char *class_name(uint32_t marks)
{
    return marks & WEIR_CALLS_WAITED ? "waited" : marks & WEIR_CALLS_POSTED ? "posted" : "guest";
}

static void put_result(struct weir_trace_line *line, CUresult result)
{
    const char *name = weir_cuda_error_name(result);
    if (name) {
        weir_trace_put(line, "%s", name);
    } else {
        weir_trace_put(line, "%d", (int)result);
    }
}

static void put_text(struct weir_trace_line *line, const struct weir_calls_last *call,
                     enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    unsigned long long at_ns = call->start_ns - trace.zero_ns;
    unsigned long long ns = call->ns;
    weir_trace_put(line, "[%d/%ld] %llu.%09llu %s(", (int)trace.pid, syscall(SYS_gettid),
                   at_ns / WEIR_NS_PER_S, at_ns % WEIR_NS_PER_S, weir_trace_symbols[symbol].name);
    weir_trace_put_args(line, symbol, result, words, false);
    if (line->used > line->room - 128) {
        line->used = line->room - 128; /* whatever the arguments are, the result is there */
        weir_trace_put(line, "..");
    }
    weir_trace_put(line, ") = ");
    put_result(line, result);
    weir_trace_put(line, " <%llu.%09llu> %s\n", ns / WEIR_NS_PER_S, ns % WEIR_NS_PER_S,
                   class_name(call->marks));
}

static void put_json(struct weir_trace_line *line, const struct weir_calls_last *call,
                     enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    unsigned long long at_ns = call->start_ns - trace.zero_ns;
    unsigned long long ns = call->ns;
    weir_trace_put(
        line,
        ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,"
        "\"pid\":%d,\"tid\":%ld,\"args\":{"
        "\"result\":\"",
        weir_trace_symbols[symbol].name, class_name(call->marks), at_ns / 1000, at_ns % 1000,
        ns / 1000, ns % 1000, (int)trace.pid, syscall(SYS_gettid));
    put_result(line, result);
    weir_trace_put(line, "\"");
    size_t bare = line->used;
    weir_trace_put(line, "%s", weir_trace_symbols[symbol].n_args ? "," : "");
    weir_trace_put_args(line, symbol, result, words, true);
    if (line->used > line->room - 8) {
        line->used = bare; /* cut JSON would be none: go without the arguments */
    }
    weir_trace_put(line, "}}");
}

/* An error after which a program is likely to end. */
static bool is_grave(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
}

void weir_trace_call(enum weir_symbol symbol, CUresult result, const uint64_t *words)
{
    char text[WEIR_TRACE_LINE_BYTES];
    struct weir_trace_line line = {.text = text, .room = sizeof text};
    struct weir_calls_last call = weir_calls_last();
    (trace.json ? put_json : put_text)(&line, &call, symbol, result, words);
    pthread_mutex_lock(&trace.lock);
    if (trace.fd >= 0 && !trace.finished) {
        append_locked(line.text, line.used);
        if (trace.eager || is_grave(result) ||
            weir_clock_now_ns() - trace.flushed_ns > MAX_AGE_NS) {
            flush_locked();
        }
    }
    pthread_mutex_unlock(&trace.lock);
}
