/* Status codes of Weir's own functions, and diagnostics for anything that has source text. */
#pragma once

#include "base/search.h"
#include <stdint.h>

#define WEIR_MUST_CHECK        __attribute__((warn_unused_result))
#define WEIR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum weir_status {
    WEIR_OK = 0,
#define WEIR_STATUS(name, text) WEIR_ERR_##name,
#include "base/status.def"
#undef WEIR_STATUS
    WEIR_STATUS_COUNT
};

/* Return an error from the function if a condition holds: what the function itself checks. The
 * error is a status, or the false or NULL by which such a function says that it failed; or
 * a call that tells it and returns it. */
#define WEIR_FAIL_IF(condition, error)                                                             \
    do {                                                                                           \
        if (condition) {                                                                           \
            return error;                                                                          \
        }                                                                                          \
    } while (0)

/* Make a call, and return its result from the function if it is an error. What is no error is 0:
 * WEIR_OK, CUDA_SUCCESS and the like. */
#define WEIR_TRY(call)                                                                             \
    do {                                                                                           \
        __typeof__(call) try_result = (call);                                                      \
        if (try_result != 0) {                                                                     \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)

/* Make a call, and keep its result, if none before it has failed: in functions that clean up at
 * their end. `result` is a variable. */
#define WEIR_THEN(result, call)                                                                    \
    do {                                                                                           \
        if ((result) == 0) {                                                                       \
            (result) = (call);                                                                     \
        }                                                                                          \
    } while (0)

/* Write a value where the caller wants it; NULL: nowhere. */
#define WEIR_GIVE(to, value)                                                                       \
    do {                                                                                           \
        if (to) {                                                                                  \
            *(to) = (value);                                                                       \
        }                                                                                          \
    } while (0)

/**
 * The text of a status.
 *
 * @param status  any value.
 * @return a static string, never NULL; "unknown status" outside the table.
 * @thread any
 */
const char *weir_status_text(enum weir_status status);

/**
 * What an errno means; WEIR_ERR_IO where it says no more.
 *
 * @param error  an errno, not 0.
 * @thread any
 */
enum weir_status weir_status_of_errno(int error);

/* Where and why a text (PTX, a configuration file) was refused. Line and column count from 1. */
struct weir_diag {
    uint32_t line;
    uint32_t column;
    char message[200];
};

/**
 * Fill a diagnostic; the message is truncated to fit.
 *
 * @param diag    may be NULL: nothing happens.
 * @param line    from 1; 0 when there is no position.
 * @param column  from 1; 0 when there is no position.
 * @param fmt     printf format.
 * @thread any
 */
void weir_diag_set(struct weir_diag *diag, uint32_t line, uint32_t column, const char *fmt, ...)
    WEIR_PRINTF(4, 5);
