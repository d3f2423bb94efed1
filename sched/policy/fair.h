/* The parts of `fair` that `priority` falls back on. Private to sched/policy/. */
#ifndef WEIR_SCHED_POLICY_FAIR_H
#define WEIR_SCHED_POLICY_FAIR_H

#include "sched/policy.h"

/* The state of whoever calls these. */
struct fair {
    /* Where the tenant of each class was that has run out of work last: V, while none is ready. */
    uint64_t last_ns[WEIR_PRIORITY_COUNT];
    uint64_t mean_ns;              /* V of the last round .. */
    enum weir_priority mean_class; /* .. and its class */
    uint64_t domain;               /* whose work the device has .. */
    uint64_t domain_ns;            /* .. since then */
};

/* The first member of the tenant's state of whoever calls these. */
struct fair_tenant {
    uint64_t virtual_ns;        /* wraps; only differences mean something */
    uint64_t seen_ns;           /* service up to which virtual_ns counts */
    uint64_t position;          /* virtual_ns and what is committed, at the last decision */
    uint64_t idle_ns, ready_ns; /* since when it has no work, or has some */
    enum weir_priority class;   /* in which virtual_ns counts */
    bool placed;
    bool owes;          /* it came back ahead of V, and has not been served since */
    bool keeps_credit;  /* it was away for a moment only */
    bool reweighed;     /* its virtual time was counted at another weight */
    uint64_t pause_ns;  /* usual time without work of less than FORGET_NS; 0: it had none */
    uint64_t rested_ns; /* what is left of its rest's worth, of the device's time */
    uint64_t fill_pass; /* turns below a higher class, each divided by the weight */
};

void fair_next(struct weir_policy *self, const struct weir_policy_next_view *view,
               struct weir_policy_choice *choice);
uint32_t fair_filler(struct weir_policy *self, const struct weir_policy_next_view *view);
uint32_t fair_small(struct weir_policy *self, const struct weir_policy_next_view *view);
int64_t fair_lag_ns(const struct weir_policy *self, const struct weir_policy_tenant *tenant);
void fair_ready(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant);
void fair_idle(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant);
void fair_changing(struct weir_policy *self, struct weir_policy_tenant *tenant);
void fair_joined(struct weir_policy *self, struct weir_policy_tenant *tenant);

#endif
