/*
 * Tenants that work on several devices: the rule by which they lead on all of them together. Each
 * device has a scheduler of its own (sched.h); the gate process and the simulator apply the rule.
 *
 * Source: docs/design/scheduling.md
 */
#ifndef WEIR_SCHED_SPANS_H
#define WEIR_SCHED_SPANS_H

#include "sched/sched.h"

#define WEIR_SCHED_SPANS_DEVICES 64u /* most devices */

/* A tenant on a device. */
struct weir_sched_member {
    struct weir_sched *sched; /* the device's, whether the tenant is there or not */
    weir_sched_id id;         /* of the tenant in that scheduler; 0: it is not there */
    uint64_t seen_ns;         /* when its last work came that had to be decided; 0: none came */
};

/* Finds a tenant on a device. Both are numbers from 0; params.user of a tenant is its number + 1 in
 * all schedulers. */
typedef struct weir_sched_member (*weir_sched_member_fn)(void *user, uint32_t device,
                                                         uint32_t tenant);

/* What the rule remembers. Zeroed: nobody leads. */
struct weir_sched_spans {
    struct {
        uint32_t leads; /* number + 1 of the tenant that leads and works on others, too; 0: none */
        uint32_t led;   /* and of the one that is to lead, as on an earlier device */
    } device[WEIR_SCHED_SPANS_DEVICES];
};

/** A tenant leaves a device. @param tenant  its number. @thread owner of all schedulers */
void weir_sched_spans_forget(struct weir_sched_spans *spans, uint32_t device, uint32_t tenant);

/**
 * Look who leads where, and set the tenants' `span`. Call it after each call into a scheduler; the
 * schedulers may give orders meanwhile.
 *
 * @param devices  number of devices, 0 .. WEIR_SCHED_SPANS_DEVICES; their order is the order in
 *                 which the rule looks at them.
 * @param now_ns   the time of the schedulers' calls.
 * @thread owner of all schedulers
 */
void weir_sched_spans_tick(struct weir_sched_spans *spans, weir_sched_member_fn member, void *user,
                           uint32_t devices, uint64_t now_ns);

#endif
