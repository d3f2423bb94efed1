#include "host_backend/config/scheduler.h"

#include "base/clock.h"
#include "sched/tuning.h"

#define GUESS_NS (20 * WEIR_NS_PER_US) /* assumed duration of work whose duration is unknown */

void weir_scheduler_config(const struct weir_sched_settings *settings, uint32_t sms,
                           enum weir_sched_fill fill, struct weir_sched_config *ret_config)
{
    weir_sched_config_init(ret_config, sms);
    ret_config->alone_ns = settings->alone_us * WEIR_NS_PER_US;
    ret_config->inflight_ns = settings->inflight_us * WEIR_NS_PER_US;
    ret_config->starve_ns = settings->starve_ms * WEIR_NS_PER_MS;
    ret_config->overhead_ppm = settings->overhead_ppm;
    ret_config->guess_ns = GUESS_NS;
    ret_config->fill = fill;
    ret_config->small_sms = fill == WEIR_SCHED_FILL_ALL ? tuning.small_devices * sms : 0;
}
