/* [scheduler] of weir.toml: who decides about the GPU, and within which bounds. A value type. */
#pragma once

#include "sched/sched.h"
#include <stdint.h>

#define WEIR_SCHED_POLICY_BYTES 128

struct weir_sched_settings {
    char policy[WEIR_SCHED_POLICY_BYTES]; /* "fair", "priority", ..; "off": no scheduler */
    uint32_t inflight_us;      /* predicted work in flight of a session when tenants contend */
    uint32_t alone_us;         /* predicted work in flight of a session whose tenant is alone */
    uint32_t graph_piece_us;   /* longer graphs are launched in pieces of this length; 0: never */
    uint32_t starve_ms;        /* work that waited longer is granted, whatever a policy says */
    uint32_t overhead_ppm;     /* part of the time that switching may cost; sets the epochs */
    enum weir_sched_fill fill; /* which tenants may fill what the leader leaves free in its turn */
};

/** The settings that apply without a table [scheduler]. @thread any */
static inline struct weir_sched_settings weir_sched_settings_default(void)
{
    return (struct weir_sched_settings){.policy = "fair,corun",
                                        .inflight_us = 200,
                                        .alone_us = 10000,
                                        .graph_piece_us = 1000,
                                        .starve_ms = 1000,
                                        .overhead_ppm = 15000,
                                        .fill = WEIR_SCHED_FILL_ALL};
}

/**
 * Derive the configuration of a device's scheduler from the settings: times, bounds, and whether
 * small graphs run beside each other. Workers use it to guess durations.
 *
 * @param sms   of the device, 1 or more.
 * @param fill  the setting, lowered to what the device supports.
 * @param ret_config  without a predictor, without levels above and without a part of the SMs.
 * @thread any
 */
void weir_scheduler_config(const struct weir_sched_settings *settings, uint32_t sms,
                           enum weir_sched_fill fill, struct weir_sched_config *ret_config);
