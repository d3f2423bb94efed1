#include "host_backend/worker/state/start_stages.h"

#include "base/clock.h"
#include "base/log.h"
#include <stdio.h>

static uint64_t end_ns[WEIR_START_COUNT];

static const char *const names[WEIR_START_COUNT] = {
    "exec", "driver", "init", "context", "parts", "describe", "forms", "warm", "told"};

void weir_start_stage_ends(enum weir_start_stage stage)
{
    end_ns[stage] = weir_clock_now_ns();
}

void weir_start_stages_log(uint64_t started_ns)
{
    uint64_t begin_ns = started_ns;
    char text[256] = "";
    size_t at = 0;

    for (int i = 0; i < WEIR_START_COUNT && at < sizeof text; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, " %s=%llu", names[i],
                               (unsigned long long)((end_ns[i] - begin_ns) / WEIR_NS_PER_US));
        begin_ns = end_ns[i];
    }
    weir_log_debug("worker: its start us:%s all=%llu", text,
                   (unsigned long long)((begin_ns - started_ns) / WEIR_NS_PER_US));
}
