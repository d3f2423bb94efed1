/* How far a session is suspended (suspend.h): its own thread and others meet here. */
#pragma once

#include "base/clock.h"
#include "host_backend/config/link.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_REST_NS (50 * WEIR_NS_PER_MS) /* a session without records so long rests */

struct weir_suspension {
    /* The session's thread. */
    uint64_t rests_since_ns; /* since when the session has had nothing to do; 0: it has work */
    bool stays;              /* it could not be suspended, and has not worked since */

    atomic_uint wish;                /* enum weir_suspend: what any thread wants */
    atomic_uint_fast64_t room_bytes; /* for WEIR_SUSPEND_ROOM: as in struct weir_link_suspend */
    atomic_uint_fast64_t away_bytes; /* device memory that is suspended */
    atomic_bool held;                /* the session waits until it is resumed */
};
