/* Services of the host beside the GPU. If one fails, this is logged, and nothing else is
 * affected. */
#include "host_backend/supervisor/state/extras.h"

#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[WEIR_EXTRA_COUNT] = {
#define WEIR_EXTRA(extra, name) [WEIR_EXTRA_##extra] = name,
#include "host_backend/supervisor/state/extras.def"
#undef WEIR_EXTRA
};

const char *weir_sup_extra_name(enum weir_extra extra)
{
    return names[extra];
}

void weir_sup_extra_works(struct weir_supervisor *sup, enum weir_extra extra)
{
    struct weir_sup_extra *e = &sup->extras.of[extra];

    if (e->why[0] != 0) {
        weir_log_info("supervisor: %s: works again", names[extra]);
    }
    e->wanted = true;
    e->why[0] = 0;
}

void weir_sup_extra_fails(struct weir_supervisor *sup, enum weir_extra extra, const char *why, ...)
{
    struct weir_sup_extra *e = &sup->extras.of[extra];
    char text[sizeof e->why];
    va_list args;

    va_start(args, why);
    vsnprintf(text, sizeof text, why, args);
    va_end(args);
    if (strcmp(text, e->why) != 0) { /* attempts may fail for the same reason */
        weir_log_warn("supervisor: %s: %s: the host goes on without, and tries again every %d s",
                      names[extra], text, WEIR_EXTRAS_AGAIN_S);
    }
    e->wanted = true;
    memcpy(e->why, text, sizeof text);
}

void weir_sup_extra_unwanted(struct weir_supervisor *sup, enum weir_extra extra)
{
    sup->extras.of[extra] = (struct weir_sup_extra){.wanted = false};
}
