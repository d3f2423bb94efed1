#include "base/status.h"
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
