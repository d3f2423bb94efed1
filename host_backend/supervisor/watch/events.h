/*
 * Events for `weir events`: a bounded ring, and a stream for followers. Private to
 * host_backend/supervisor, like supervisor.h.
 */
#pragma once

#include "host_backend/config/link.h"
#include "host_backend/supervisor/state/supervisor.h"

#define WEIR_FOLLOWERS_MAX 8u

/* An event. Members that do not apply are zero or NULL. */
struct weir_sup_event {
    enum weir_event_kind kind;
    const struct weir_sup_tenant *tenant;
    const char *program, *call;
    uint64_t pid;    /* pid of the program */
    uint64_t worker; /* pid */
    uint64_t session, bytes;
    uint64_t n; /* how many events this one stands for; 0 means 1 */
};

/** Begin without events. @return false: no memory */
bool weir_sup_events_open(struct weir_supervisor *sup);
/** Close the connections of all followers. */
void weir_sup_events_close(struct weir_supervisor *sup);

/** Add an event. @param why  for people, a format; "" if there is nothing to say. */
void weir_sup_event(struct weir_supervisor *sup, const struct weir_sup_event *what, const char *why,
                    ...) WEIR_PRINTF(3, 4);

/** Add an event that a worker reports; nothing in it is trusted. */
void weir_sup_worker_event(struct weir_supervisor *sup, int worker, struct weir_link_event *event);

/** Watch the connections of followers. */
void weir_sup_events_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
