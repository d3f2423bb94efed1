/*
 * One line per event, formatted into a buffer on the stack and written with one write(), so that
 * lines of several threads and processes that share a file do not mix.
 */
#include "base/log.h"
#include "base/clock.h"
#include "base/log_rate.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* Longer lines are cut; fits PIPE_BUF, so writes to pipes stay whole. */
#define LINE_MAX_BYTES 1024
/* Longest line that another process completes: that process adds the time, a name and the level. */
#define BARE_MAX_BYTES (LINE_MAX_BYTES - 128)

static const char *const level_names[WEIR_LOG_COUNT] = {"none", "error", "warn", "info", "debug"};

/* Relaxed, since the level publishes no other data. */
static int current_level = WEIR_LOG_NONE;
static int log_fd = STDERR_FILENO;
static const char *log_who;

static bool to_journal; /* standard error is the journal's stream */
static bool is_bare;    /* another process completes the lines */
static uint64_t n_lost; /* lines that found no room and are not reported yet; atomic */

/* The limit on lines that this thread writes; NULL: there is none. */
static _Thread_local struct weir_log_rate *thread_rate;
static _Thread_local const char *thread_whose;

static int parse_level(const char *name, size_t len)
{
    int at = WEIR_FIRST(i, WEIR_LOG_COUNT,
                        strlen(level_names[i]) == len && memcmp(level_names[i], name, len) == 0);
    return at < WEIR_LOG_COUNT ? at : -1;
}

/* systemd names its stream by device and inode (systemd.exec(5)); a program's own standard error
 * may be another file. */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char mine[64];
    struct statx info;

    WEIR_FAIL_IF(!stream || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0, false);
    snprintf(mine, sizeof mine, "%llu:%llu",
             (unsigned long long)makedev(info.stx_dev_major, info.stx_dev_minor),
             (unsigned long long)info.stx_ino);
    return strcmp(stream, mine) == 0;
}

enum weir_status weir_log_init(const char *spec, const char *who)
{
    if (!spec || !*spec) {
        spec = "none";
    }
    const char *path = strchr(spec, ':');
    int level = parse_level(spec, path ? (size_t)(path - spec) : strlen(spec));
    WEIR_FAIL_IF(level < 0, WEIR_ERR_INVALID);
    int fd = STDERR_FILENO;
    if (path) {
        int saved_errno = errno;
        fd = open(path + 1, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
        errno = saved_errno;
        WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    }
    if (log_fd != STDERR_FILENO) {
        close(log_fd);
    }
    log_fd = fd;
    log_who = who;
    to_journal = !path && is_journal(fd);
    __atomic_store_n(&current_level, level, __ATOMIC_RELAXED);
    return WEIR_OK;
}

void weir_log_for_reader(void)
{
    log_fd = STDERR_FILENO;
    to_journal = false;
    is_bare = true;
}

enum weir_log_level weir_log_level(void)
{
    return (enum weir_log_level)__atomic_load_n(&current_level, __ATOMIC_RELAXED);
}

/* Syslog's priorities in the form that the journal expects before a line (sd-daemon(3)). */
static const char *const priorities[WEIR_LOG_COUNT] = {"", "<3>", "<4>", "<6>", "<7>"};

/* Write the prefix "2026-01-31T12:00:00.000Z who level ", at most LINE_MAX_BYTES; without the time
 * for the journal. */
static int format_prefix(char *line, const char *who, enum weir_log_level level)
{
    struct timespec now;
    struct tm utc;
    int len = snprintf(line, LINE_MAX_BYTES, "%s", to_journal || is_bare ? priorities[level] : "");
    if (is_bare) {
        return len;
    }
    if (!to_journal) {
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        len += (int)strftime(line + len, (size_t)(LINE_MAX_BYTES - len), "%Y-%m-%dT%H:%M:%S", &utc);
        len +=
            snprintf(line + len, (size_t)(LINE_MAX_BYTES - len), ".%03ldZ ", now.tv_nsec / 1000000);
    }
    return len + snprintf(line + len, (size_t)(LINE_MAX_BYTES - len), "%.64s%s%s ", who ? who : "",
                          who ? " " : "", level_names[level]);
}

/* Returns false if the line cannot be written; if only room is missing now, it is counted. */
static bool WEIR_PRINTF(3, 0)
    write_line(const char *who, enum weir_log_level level, const char *fmt, va_list args)
{
    char line[LINE_MAX_BYTES];
    int len = format_prefix(line, who, level), most = is_bare ? BARE_MAX_BYTES : LINE_MAX_BYTES;
    int n = vsnprintf(line + len, (size_t)(most - len - 1), fmt, args);
    if (n > 0) {
        int room = most - len - 2;
        len += WEIR_MIN(n, room);
    }
    line[len] = 0;
    /* A message may quote a guest's text, which must not be able to forge lines. */
    len = (int)weir_text_blot(line);
    line[len++] = '\n';
    bool good = write(log_fd, line, (size_t)len) == len;
    if (!good && errno == EAGAIN) {
        __atomic_fetch_add(&n_lost, 1, __ATOMIC_RELAXED);
    }
    return good;
}

/* Write a line about lines that were left out. It has no limit. */
static bool WEIR_PRINTF(1, 2) say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool good = write_line(log_who, WEIR_LOG_WARN, fmt, args);
    va_end(args);
    return good;
}

static void say_lost(void)
{
    uint64_t n = __atomic_exchange_n(&n_lost, 0, __ATOMIC_RELAXED);
    if (n && !say("log: lines were lost, since their reader had no room lines=%llu",
                  (unsigned long long)n)) {
        /* The report was lost, too, and has been counted: only the older lines count again. */
        __atomic_fetch_add(&n_lost, n - 1, __ATOMIC_RELAXED);
    }
}

/* May this thread write a line of this level now? First reports lines that were left out. */
static bool may_write(enum weir_log_level level)
{
    uint64_t left_out;
    if (!thread_rate) {
        return true;
    }
    enum weir_log_verdict verdict =
        weir_log_rate_ask(thread_rate, level, weir_clock_now_ns(), &left_out);
    if (left_out) {
        (void)say("log: lines were left out tenant=%s lines=%llu", thread_whose,
                  (unsigned long long)left_out);
    }
    if (verdict == WEIR_LOG_WRITE_LAST) {
        (void)say("log: %u lines of a level in %d s, more are left out tenant=%s",
                  weir_log_rate_lines(thread_rate, level), WEIR_LOG_RATE_INTERVAL_S, thread_whose);
    }
    return verdict != WEIR_LOG_LEAVE_OUT;
}

void weir_log_limit_thread(struct weir_log_rate *rate, const char *whose)
{
    thread_rate = rate;
    thread_whose = whose;
}

static void WEIR_PRINTF(3, 0)
    write_limited(const char *who, enum weir_log_level level, const char *fmt, va_list args)
{
    if (level <= WEIR_LOG_NONE || level >= WEIR_LOG_COUNT || level > weir_log_level()) {
        return;
    }
    int saved_errno = errno;
    if (may_write(level)) {
        say_lost();
        (void)write_line(who, level, fmt, args);
    }
    errno = saved_errno;
}

void weir_log_write(enum weir_log_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_limited(log_who, level, fmt, args);
    va_end(args);
}

static void WEIR_PRINTF(3, 4)
    write_of(const char *who, enum weir_log_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_limited(who, level, fmt, args);
    va_end(args);
}

void weir_log_relay(const char *who, const char *line)
{
    for (enum weir_log_level level = WEIR_LOG_ERROR; level < WEIR_LOG_COUNT; level++) {
        size_t n = strlen(priorities[level]);
        if (strncmp(line, priorities[level], n) == 0) {
            write_of(who, level, "%s", line + n);
            return;
        }
    }
    write_of(who, WEIR_LOG_WARN, "standard error: %s", line);
}
