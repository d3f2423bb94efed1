/*
 * How long the gate process polls for requests before it sleeps.
 *
 * A session that waits for a grant pays 10 to 60 us for a wake-up, and more on a virtual machine.
 * Polling costs a core. So the process polls long only while requests of several tenants come
 * often, and only if the supervisor says that a core is idle (host_backend/config/spin.h).
 *
 * Source: docs/design/waiting.md
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Zeroed at first. Used by the owner thread only. */
struct served_pace {
    uint64_t request_ns; /* when the last request came */
    uint64_t window_ns;  /* when the current counting window began */
    uint32_t n;          /* requests in the current window */
    bool often;          /* many requests came in the window before */
    uint64_t looked_ns;  /* when the process last polled for requests; 0: it has slept since */
    uint32_t sleeps;     /* further sleeps without polling, after it lost its core */
};

/** Note that n requests, perhaps 0, were read since the last call. */
void served_pace_note(struct served_pace *pace, uint32_t n, uint64_t now_ns);

/** Do requests come so often that it pays to poll long for the next one? */
bool served_pace_is_often(const struct served_pace *pace);

/** Should the process continue to poll instead of sleeping? @param for_long as above. */
bool served_pace_looks(struct served_pace *pace, bool for_long, uint64_t now_ns);

/** Note that the process goes to sleep. */
void served_pace_sleep(struct served_pace *pace);
