/*
 * Tenants whose kernels on several devices wait for each other: the rule by which they take turns
 * on all of these devices together. The owner says which these are (WEIR_SCHED_PEERS).
 * Each device has a scheduler of its own (sched.h); the gate process and the simulator apply the
 * rule.
 *
 * Source: docs/design/jobs.md
 */
#pragma once

#include "sched/sched.h"

#define WEIR_SCHED_SPANS_DEVICES 64u /* most devices */

/* A tenant on a device. */
struct weir_sched_member {
    struct weir_sched *sched; /* the device's, whether the tenant is there or not */
    weir_sched_id id;         /* of the tenant in that scheduler; 0: it is not there */
};

/* Finds a tenant on a device. Both are numbers from 0. */
typedef struct weir_sched_member (*weir_sched_member_fn)(void *user, uint32_t device,
                                                         uint32_t tenant);

/* What the rule knows of a tenant. Zeroed: it has no queue. */
struct weir_sched_span_tenant {
    uint64_t devices;          /* bits: devices where it has a queue of such work */
    uint32_t next;             /* number + 1 of the next tenant that takes turns; 0: none */
    enum weir_sched_span span; /* on all of its devices */
    enum weir_priority class;
    bool works, waits, starves; /* when the rule last looked: is that so on any of its devices? */
    bool helped;                /* it got its turn because it starved */
    uint64_t virtual_ns;        /* the length of its turns, in 1/1024 ns, divided by its weight */
    uint64_t seen_ns;           /* up to when virtual_ns counts */
    uint64_t turn_ns;           /* when its turn began, or was renewed */
    uint64_t idle_ns;           /* in its turn: since when it has no work; 0: it has some */
    uint64_t unseen_ns;         /* until then it may have work on devices that nobody told */
    uint64_t moved_ns;          /* its turn ends: when the last item came, went or was let in */
    uint64_t moves;             /* items that have come or gone until then */
    uint64_t rest_ns;           /* predicted time of what was on the devices then */
    uint32_t tries;             /* how often items were let in since nothing came or went */
    uint64_t starts[WEIR_SCHED_SPANS_DEVICES]; /* its starts when its turn began */
};

/* What the rule remembers. Zeroed but for `tenants`: nobody has such work. */
struct weir_sched_spans {
    weir_sched_member_fn member;
    void *user;
    struct weir_sched_span_tenant *tenants; /* the owner's, n_tenants of them */
    uint32_t n_tenants, n_devices;
    uint32_t first;   /* tenants that take turns are a list: number + 1 of its first; 0: none */
    bool stale;       /* who takes turns must be found out again */
    uint64_t news;    /* sum of weir_sched_span_news() when the rule looked last */
    uint64_t next_ns; /* when it wants to look again; UINT64_MAX: when something happens */
};

/**
 * A tenant has a queue on a device whose kernels may wait for those on another device. Call it
 * before the first of these comes. The schedulers may give orders meanwhile.
 * @param tenant  its number.
 * @thread owner of all schedulers
 */
void weir_sched_spans_come(struct weir_sched_spans *spans, uint64_t now_ns, uint32_t device,
                           uint32_t tenant);

/** A tenant has no such queue on a device any more. @thread owner of all schedulers */
void weir_sched_spans_forget(struct weir_sched_spans *spans, uint32_t device, uint32_t tenant);

/**
 * Let turns begin and end. Call it after each call into a scheduler, and at spans->next_ns. The
 * schedulers may give orders meanwhile.
 * @param now_ns  the time of the schedulers' calls.
 * @thread owner of all schedulers
 */
void weir_sched_spans_tick(struct weir_sched_spans *spans, uint64_t now_ns);
