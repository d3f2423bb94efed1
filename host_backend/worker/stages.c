/* Measures the stages of a program's start: see stages.h. */
#include "host_backend/worker/stages.h"

#include "base/clock.h"
#include "base/log.h"

static uint64_t us_between(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? (to_ns - from_ns) / WEIR_NS_PER_US : 0;
}

void weir_stages_log(const struct weir_stages *stages, const char *tenant, uint64_t session)
{
    const struct weir_stages *s = stages;
    uint64_t now_ns = weir_clock_now_ns();

    weir_log_debug("session: its start session=%llu tenant=%s us: hello=%llu worker=%llu "
                   "handover=%llu thread=%llu window=%llu welcome=%llu session=%llu all=%llu",
                   (unsigned long long)session, tenant,
                   (unsigned long long)us_between(s->before.arrived_ns, s->before.hello_ns),
                   (unsigned long long)us_between(s->before.hello_ns, s->before.handed_ns),
                   (unsigned long long)us_between(s->before.handed_ns, s->taken_ns),
                   (unsigned long long)us_between(s->taken_ns, s->hello_ns),
                   (unsigned long long)us_between(s->hello_ns, s->window_ns),
                   (unsigned long long)us_between(s->window_ns, s->welcome_ns),
                   (unsigned long long)us_between(s->welcome_ns, now_ns),
                   (unsigned long long)us_between(
                       s->before.arrived_ns != 0 ? s->before.arrived_ns : s->taken_ns, now_ns));
}
