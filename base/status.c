#include "base/status.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const texts[WEIR_STATUS_COUNT] = {
    [WEIR_OK] = "success",
#define WEIR_STATUS(name, text) [WEIR_ERR_##name] = text,
#include "base/status.def"
#undef WEIR_STATUS
};

const char *weir_status_text(enum weir_status status)
{
    if ((unsigned)status >= WEIR_STATUS_COUNT) {
        return "unknown status";
    }
    return texts[status];
}

enum weir_status weir_status_of_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case ECONNREFUSED:
        return WEIR_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return WEIR_ERR_DENIED;
    case ENOMEM:
    case ENOBUFS:
        return WEIR_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return WEIR_ERR_NO_DESCRIPTOR;
    case ENOSPC:
    case EDQUOT:
        return WEIR_ERR_NO_SPACE;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
        return WEIR_ERR_CLOSED;
    case EADDRINUSE:
        return WEIR_ERR_EXISTS;
    case EMSGSIZE:
    case EFBIG:
        return WEIR_ERR_TOO_BIG;
    case EAGAIN:
        return WEIR_ERR_AGAIN;
    default:
        return WEIR_ERR_IO;
    }
}

void weir_diag_set(struct weir_diag *diag, uint32_t line, uint32_t column, const char *fmt, ...)
{
    if (!diag) {
        return;
    }
    diag->line = line;
    diag->column = column;
    va_list args;
    va_start(args, fmt);
    vsnprintf(diag->message, sizeof diag->message, fmt, args);
    va_end(args);
}
