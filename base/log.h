/*
 * Logging: one line per event, "area: what key=value ...", to stderr or to a file.
 *
 * Where standard error is systemd's journal (JOURNAL_STREAM), each line begins with its priority,
 * "<4>" for a warning, so that journalctl -p finds it.
 *
 * The host logs at info; the guest library logs nothing unless WEIR_LOG names a level, or
 * "level:path". Never payload bytes, never on a hot path.
 */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include "base/status.h"

enum weir_log_level {
    WEIR_LOG_NONE,  /* nothing at all */
    WEIR_LOG_ERROR, /* an operator must act */
    WEIR_LOG_WARN,  /* degraded */
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

/** The level now in force. @thread any */
enum weir_log_level weir_log_level(void);

/** Write one line if the level is in force; errno is preserved. @thread any */
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

#endif
