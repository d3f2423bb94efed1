/*
 * A GPU that takes no time to watch: kernels of given durations on a virtual clock, under a
 * scheduler.
 *
 * Tenants run loads: endless loops of one kernel (or copy), asynchronous (the next item is there as
 * soon as the last was given to the device, as behind the live gate) or synchronous (the next comes
 * some time after the last was seen to be done). The device deals its SMs out to kernels in the
 * order in which they came to it, higher classes first, one kernel of a queue at a time; a kernel
 * that is told to stop goes on working for some time. What each tenant was served is added up here,
 * independently of what the scheduler charges.
 *
 * Every failure of tl_sched_check() and every order of the scheduler that makes no sense
 * (starting what runs, resuming what was not stopped, going back in a queue) fails the cmocka test.
 */
#pragma once

#include "sched/policy.h"
#include "sched/sched.h"

struct tl_sim;

struct tl_sim_params {
    struct weir_sched_config config; /* sms, and the rest of the scheduler's */
    uint64_t stop_ns;                /* from stop to stopped; */
    uint64_t drain_ns;               /* of that, at half speed at the end */
    uint64_t launch_ns;              /* from start or resume to the first block */
    uint64_t resize_ns;
    uint64_t notice_ns; /* from done, or stopped, until the scheduler hears of it */
    uint64_t seed;
    bool check;       /* tl_sched_check() after each call */
    bool refuse_stop; /* stops are answered with running(), every other one for ever */
};

/* What an H200 does. */
void tl_sim_params_init(struct tl_sim_params *params, uint32_t sms);

struct tl_sim_load {
    uint64_t duration_ns; /* alone on the device */
    uint64_t jitter_ns;   /* up to that much more, by seed */
    enum weir_sched_class class;
    uint32_t flags;
    uint32_t blocks, blocks_per_sm;
    uint32_t enough_sms;    /* more do not make it faster (it waits for memory); 0: all do */
    uint32_t enough_blocks; /* the same, of blocks per SM */
    double lost_beside;     /* part of its speed that it loses beside another's kernel, 0 .. 1 */
    uint64_t key;
    uint64_t bytes;
    uint64_t rest_bytes; /* of a copy: that each says are to follow, whether they do or not */
    bool predicted;      /* the scheduler is told the duration */
    bool sync;           /* the next comes think_ns after the last is done; else at once */
    uint64_t think_ns;   /* of an asynchronous one: between items given and brought */
    uint32_t queues;     /* 0: 1 */
    uint32_t sm_limit;   /* of each queue, of 100; 0: none */
    uint32_t domain;     /* of each queue */
    uint64_t from_ns;    /* when it begins */
    uint32_t count;      /* items per queue, 0: endless */
};

struct tl_sim *tl_sim_create(const struct tl_sim_params *params);
void tl_sim_destroy(struct tl_sim *sim);

struct weir_sched *tl_sim_sched(struct tl_sim *sim);
uint64_t tl_sim_now(const struct tl_sim *sim);

/* A tenant with a load; returns its number. load->count 0 and no more arrivals after
 * tl_sim_leave(). */
uint32_t tl_sim_tenant(struct tl_sim *sim, uint32_t weight, enum weir_priority priority,
                       const struct tl_sim_load *load);
weir_sched_id tl_sim_id(const struct tl_sim *sim, uint32_t tenant);

/* The tenant goes, with what it has under way: that is gone from the device, too. */
void tl_sim_leave(struct tl_sim *sim, uint32_t tenant);

/* An item that is not on the device at all: whoever brings it says when it is done. Takes it at
 * once. */
void tl_sim_bring(struct tl_sim *sim, weir_sched_id queue,
                  const struct weir_sched_item_params *params, weir_sched_id *ret_item);

/* weir_sched_policy_set(), or with NULL weir_sched_policy_clear(), while there is work. */
void tl_sim_policy(struct tl_sim *sim, int kind, const struct weir_policy_ops *ops);

/* weir_sched_tenant_set(), if it has not left. */
void tl_sim_change(struct tl_sim *sim, uint32_t tenant,
                   const struct weir_sched_tenant_params *params);

bool tl_sim_is_endless(const struct tl_sim *sim, uint32_t tenant);

void tl_sim_run(struct tl_sim *sim, uint64_t for_ns);

struct tl_sim_stats {
    double service_ns;    /* of the whole device's time, on SMs; of copies: of a direction's */
    double lost_ns;       /* of that, blocks that drained beside idle SMs */
    uint64_t finished;    /* items */
    uint64_t wait_max_ns; /* arrival to first work on the device */
    uint64_t turn_max_ns; /* arrival to done */
    uint64_t turn_sum_ns;
    uint64_t copied_ns;
    uint64_t fillers; /* items granted below the leader's work */
};
void tl_sim_stats(const struct tl_sim *sim, uint32_t tenant, struct tl_sim_stats *ret_stats);

/* Service up to the k-th ten milliseconds. */
double tl_sim_service_at(const struct tl_sim *sim, uint32_t tenant, uint32_t k);

/* Items that the scheduler was given and that were neither finished nor withdrawn. */
uint32_t tl_sim_pending(const struct tl_sim *sim);

/* Items that went with their tenants. */
uint32_t tl_sim_dropped(const struct tl_sim *sim);

/* A hash of all that the scheduler traced. */
uint64_t tl_sim_trace_hash(const struct tl_sim *sim);

/* What the scheduler wrote to the log: lines. */
uint32_t tl_sim_log_lines(const struct tl_sim *sim);
const char *tl_sim_last_line(const struct tl_sim *sim);

/* A number by seed, the same everywhere. */
uint64_t tl_sim_random(struct tl_sim *sim, uint64_t below);
