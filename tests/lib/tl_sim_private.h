/* What tl_sim.c (the device, events, the environment) and tl_sim_setup.c share. */
#pragma once

#include "tests/lib/tl_cmocka.h"
#include "tests/lib/tl_sim.h"

#define TENANTS_MAX 1024u
#define SMS_MAX     1024u
#define SAMPLE_NS   10000000u
#define SAMPLES_MAX 1024u
#define HEAP_MAX    65536u

enum work_state {
    WORK_WAITING,
    WORK_LAUNCHED,
    WORK_AT_WORK,
    WORK_STOPPING,
    WORK_STOPPED,
    WORK_DONE
};

struct lane;

struct work {
    weir_sched_id item;
    struct lane *lane;
    struct work *next; /* in the lane's order */
    struct work *dev_next, *dev_prev;
    bool on_device, seen_work;
    enum work_state state;
    bool movable, stoppable;
    uint32_t need_sms, enough_sms;
    uint32_t blocks_per_sm, enough_blocks;
    double lost_beside;
    bool has_sms; /* a kernel, now */
    struct weir_sched_place place;
    double rest; /* SM-ns, or ns of a copy */
    double whole;
    double rate;
    uint32_t blocks;
    uint64_t arrived_ns;
    uint32_t version; /* events of before are void */
    enum weir_sched_class class;
    uint32_t references; /* events that name it */
    bool gone;
};

/* A queue and its items in order. */
struct lane {
    weir_sched_id queue;
    uint32_t tenant;
    struct work *first, *last;
    uint32_t brought;
    bool closed;
};

struct sim_tenant {
    weir_sched_id id;
    bool gone;
    enum weir_priority priority;
    struct tl_sim_load load;
    struct lane *lanes;
    struct tl_sim_stats stats;
    double sample[SAMPLES_MAX];
};

enum event_kind {
    EVENT_ARRIVE,
    EVENT_BEGIN,
    EVENT_STOP,
    EVENT_STOPPED,
    EVENT_REFUSED,
    EVENT_RESIZE,
    EVENT_DONE,
    EVENT_SAMPLE
};

struct event {
    uint64_t at_ns;
    uint64_t order;
    enum event_kind kind;
    struct work *work;
    struct lane *lane;
    uint32_t version;
    struct weir_sched_place place;
};

struct tl_sim {
    struct tl_sim_params params;
    struct weir_sched *sched;
    uint64_t now_ns, timer_ns;
    uint64_t random;
    uint64_t orders;
    struct event *heap;
    uint32_t heap_count;
    struct sim_tenant *tenant[TENANTS_MAX];
    uint32_t tenants;
    struct work *dev_first, *dev_last; /* launched, in order */
    uint32_t samples;
    uint32_t stops, pending, dropped;
    weir_sched_id last_item; /* the newest */
    uint64_t trace_hash;
    uint32_t log_lines;
    char last_line[200];
    bool inside; /* a call into the scheduler is under way */
};

void sim_push(struct tl_sim *sim, struct event event);
struct event sim_pop(struct tl_sim *sim);
void sim_work_put(struct work *work);
void sim_dev_remove(struct tl_sim *sim, struct work *work);

/* The next item of a lane comes after that time, if its load has more. */
void sim_bring_next(struct tl_sim *sim, struct lane *lane, uint64_t after_ns);

/* Around each call into the scheduler. */
void sim_enter(struct tl_sim *sim);
void sim_leave(struct tl_sim *sim);

struct weir_sched_env sim_env(struct tl_sim *sim, bool traced);
