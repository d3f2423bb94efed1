/* [scheduler] of weir.toml: who decides about the GPU, and within which bounds. A value type. */
#ifndef WEIR_HOST_BACKEND_SCHED_CONFIG_H
#define WEIR_HOST_BACKEND_SCHED_CONFIG_H

#include <stdint.h>

#define WEIR_SCHED_POLICY_BYTES 128

struct weir_sched_settings {
    char policy[WEIR_SCHED_POLICY_BYTES]; /* "fair", "priority,overlap", ..; "off": no scheduler */
    uint32_t inflight_us;                 /* of predicted work a session has granted, contended */
    uint32_t alone_us;                    /* the same while its tenant is alone */
    uint32_t starve_ms;    /* what waited longer is granted, whatever a policy says */
    uint32_t overhead_ppm; /* of the time that switching may cost: epochs follow from it */
    bool fill;             /* a tenant may have what another leaves of the device in its turn */
};

#endif
