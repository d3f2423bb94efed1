/* The parts of `fair` that `priority` also uses. Private to sched/policy/. */
#pragma once

#include "sched/policy.h"

/* The state of a policy that calls these functions. */
struct fair {
    /* By class: virtual time of the tenant that ran out of work last; V while none is ready. */
    uint64_t last_ns[WEIR_PRIORITY_COUNT];
    uint64_t mean_ns;              /* V of the last round */
    enum weir_priority mean_class; /* class of the last round */
    uint64_t weights;              /* sum of the weights in the last round */
    uint64_t domain;               /* the domain whose work is on the device */
    uint64_t domain_ns;            /* since when that domain has the device */
    uint32_t ready_count;          /* number of tenants that have work */
    uint64_t idle_ns;              /* when a tenant last ran out of work */
    uint64_t forgiven_ns;          /* debts from before this time are forgotten */
};

/* The first member of the tenant's state in a policy that calls these functions. */
struct fair_tenant {
    uint64_t virtual_ns;        /* may wrap around: only differences count */
    uint64_t seen_ns;           /* the service that virtual_ns includes */
    uint64_t position;          /* virtual_ns plus committed work, at the last decision */
    uint64_t idle_ns, ready_ns; /* since when it has no work; since when it has some */
    enum weir_priority class;   /* the class in which virtual_ns counts */
    bool placed;                /* virtual_ns was placed relative to V: place() */
    bool owes;                  /* it came back ahead of V and was not served since */
    bool keeps_credit;          /* it was away for no longer than fair_away_ns */
    bool reweighed;             /* its weight, class or limit changed */
    uint64_t pause_ns;          /* usual length of its short pauses; 0: it had none */
    uint64_t rested_ns;         /* device time for which it may still go first after a rest */
    uint64_t fill_pass;         /* counts its turns as a filler below a higher class, by weight */
};

void fair_next(struct weir_policy *self, const struct weir_policy_next_view *view,
               struct weir_policy_choice *choice);
uint32_t fair_beside(struct weir_policy *self, const struct weir_policy_next_view *view);
void fair_ready(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant);
void fair_idle(struct weir_policy *self, uint64_t now_ns, struct weir_policy_tenant *tenant);
void fair_changing(struct weir_policy *self, struct weir_policy_tenant *tenant);
void fair_joined(struct weir_policy *self, struct weir_policy_tenant *tenant);
