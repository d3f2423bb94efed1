/*
 * Logging: one line per event, "area: what key=value ...", to stderr or to a file.
 *
 * Where standard error is systemd's journal (JOURNAL_STREAM), each line begins with its priority,
 * "<4>" for a warning, so that journalctl -p finds it, and has no time, which the journal adds.
 *
 * The host logs at info; the guest library logs nothing unless WEIR_LOG names a level, or
 * "level:path". Never payload bytes, never on a hot path.
 */
#pragma once

#include "base/status.h"

enum weir_log_level {
    WEIR_LOG_NONE,  /* no lines at all */
    WEIR_LOG_ERROR, /* an operator must act */
    WEIR_LOG_WARN,  /* the service is degraded */
    WEIR_LOG_INFO,  /* life cycle: one line per tenant event */
    WEIR_LOG_DEBUG,
    WEIR_LOG_COUNT
};

/**
 * Set the level, and where lines go.
 *
 * @param spec  "none", "error", "warn", "info", "debug", optionally followed by ":<path>";
 *              borrowed for the call. NULL or "" is "none".
 * @param who   prefix of every line ("weir serve", "worker 0"); borrowed for ever; NULL for none.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID  unknown level: nothing changes.
 * @return WEIR_ERR_IO       the file cannot be opened for appending: nothing changes.
 * @thread call before other threads log
 */
enum weir_status weir_log_init(const char *spec, const char *who) WEIR_MUST_CHECK;

/**
 * From now on another process reads this one's standard error and completes the lines with
 * weir_log_relay(): a line begins only with its priority. This process never waits for the other
 * one. If the pipe is full, lines are lost, and the next one that is written says how many.
 *
 * The level stays. Standard error must be a pipe that does not block, and SIGPIPE must be ignored.
 * @thread call before other threads log
 */
void weir_log_for_reader(void);

/**
 * Write a line of another process, with the time and that process's name, so that nobody can take
 * it for a line of this process. A line without priority comes from a library and becomes a
 * warning. Limited like all lines of this thread (base/log_rate.h).
 *
 * @param who   that process's name, as of weir_log_init(); borrowed for the call.
 * @param line  without its newline. Not trusted; a longer text is cut off.
 * @thread any
 */
void weir_log_relay(const char *who, const char *line);

/** The present level. @thread any */
enum weir_log_level weir_log_level(void);

/** Write one line if the level allows it; errno is preserved. @thread any */
void weir_log_write(enum weir_log_level level, const char *fmt, ...) WEIR_PRINTF(2, 3);

#define weir_log_at(level, ...)                                                                    \
    do {                                                                                           \
        if (__builtin_expect(weir_log_level() >= (level), 0)) {                                    \
            weir_log_write((level), __VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)
#define weir_log_error(...) weir_log_at(WEIR_LOG_ERROR, __VA_ARGS__)
#define weir_log_warn(...)  weir_log_at(WEIR_LOG_WARN, __VA_ARGS__)
#define weir_log_info(...)  weir_log_at(WEIR_LOG_INFO, __VA_ARGS__)
#define weir_log_debug(...) weir_log_at(WEIR_LOG_DEBUG, __VA_ARGS__)
