/*
 * How long the gate process looks for requests before it sleeps.
 *
 * Waking it up costs whoever waits for a grant 10 to 60 us, and more where the machine is virtual.
 * Looking costs a core. So it looks for long only while requests of several tenants come often, and
 * only if the supervisor says that a core is idle (host_backend/config/spin.h).
 *
 * Source: docs/design/waiting.md
 */
#ifndef WEIR_HOST_BACKEND_GATE_PROCESS_PACE_H
#define WEIR_HOST_BACKEND_GATE_PROCESS_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed at first. Owner thread only. */
struct served_pace {
    uint64_t request_ns; /* when the last request came */
    uint64_t window_ns;  /* when the window began that is counted in */
    uint32_t n;          /* requests in it */
    bool often;          /* many came in the window before it */
    uint64_t looked_ns;  /* when it looked last; 0: it has slept since */
    uint32_t sleeps;     /* so many times it is to sleep at once, since it lost its core */
};

/** It has read n requests, or none, until then. */
void served_pace_note(struct served_pace *pace, uint32_t n, uint64_t now_ns);

/** Do requests come so often that it pays to look for the next one for long? */
bool served_pace_is_often(const struct served_pace *pace);

/** Look on instead of sleeping? @param for_long  as above. */
bool served_pace_looks(struct served_pace *pace, bool for_long, uint64_t now_ns);

/** It sleeps now. */
void served_pace_sleep(struct served_pace *pace);

#endif
