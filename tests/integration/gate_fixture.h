/*
 * The gate without a GPU, a guest or a worker process: sessions are structs, a launch is a thread
 * that goes through the gate, the device is a list of marks that the test lets be reached, and the
 * clock stands still until it is put forward. Behind the gate is the gate process, a thread.
 */
#pragma once

#include "../lib/tl_cmocka.h"
#include "host_backend/gate/private.h"
#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/handles.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include "host_backend/worker/twins/orders.h"
#include "tests/integration/gate_host.h"

#define GATE_SMS 16u

/* One stream and one session of a tenant. */
struct guest {
    struct weir_session session;
    struct weir_session_about about;
    struct weir_session_channel channel;
    struct weir_transport transport;
    struct weir_handles handles;
    struct weir_host_stream stream;
    atomic_uint looks; /* so often it has looked up in the gate */
};

struct gate_fixture {
    struct weir_driver driver;
    struct weir_worker worker;
    struct weir_tenant tenants[3];
    struct weir_device_attribute attributes[1];
    struct weir_gate *gate;
};
extern struct gate_fixture fx;

/* A worker with three tenants (0 and 2 normal, 1 high and named so), under a policy. */
void gate_open(const char *policy);
/* The same, on a device whose streams have levels. */
void gate_open_leveled(const char *policy);
/* The same, and equals fill, and small graphs pass; its SMs can be divided by two. */
void gate_open_filling(const char *policy);
/* The same, but the driver does not divide its SMs. */
void gate_open_undivided(const char *policy);
/* In a context that has so many percent of the SMs. */
void gate_open_share(const char *policy, uint32_t percent);
void gate_close(void);

void clock_forward(uint64_t ns);

/* A tenant's SM limit, in percent. */
void set_limit(uint32_t tenant, uint32_t percent);

struct guest *guest_new(uint32_t tenant, uint32_t sm_pct);
/* All that it has given is done, and known to be. */
void finish(struct guest *guest);
/* It ends as sessions do: what it has in flight is still there, and then its streams are gone. */
void guest_gone(struct guest *guest);

/* ---- launches */

enum launch_state { LAUNCH_COMES, LAUNCH_GIVEN, LAUNCH_LEFT };

struct launch {
    struct guest *guest;
    struct weir_gate_work work;
    CUresult driver_says; /* of the driver's call */
    struct weir_run *run; /* it is one, once given */
    struct weir_admission admission;
    CUresult result; /* of weir_admission_enter() */
    pthread_t thread;
    atomic_int state; /* enum launch_state */
    atomic_bool may_leave;
};

/* Begin one: it comes to the gate, is given, and stays in the driver's call
 * until launch_leave(). */
void launch_begin(struct launch *launch, struct guest *guest, struct weir_gate_work work);
/* It has passed the gate. */
void launch_await_given(struct launch *launch);
/* The same, and meanwhile the clock goes on. */
void launch_await_given_in_time(struct launch *launch);
/* It has come, and the scheduler lets it wait. */
void launch_await_waiting(const struct launch *launch);
/* The driver's call returns; joins. */
void launch_leave(struct launch *launch);
/* Both: once it has passed. */
void launch_end(struct launch *launch);
/* All of it, which must succeed. */
void launch_once(struct guest *guest, struct weir_gate_work work);

/* The same while the device needs ns for what the guest gave before, and sleeps in the gate take
 * time of the clock. How long it waited. */
uint64_t launch_while_device_works(struct guest *guest, struct weir_gate_work work, uint64_t ns);

/* Have everybody learn what work takes. */
void teach(const struct weir_gate_work *work, uint64_t took_ns);
/* A kernel of a key; predicted if ns is not 0. */
struct weir_gate_work kernel_of(uint64_t key, uint64_t predicted_ns);

/* May its next item pass beside the scheduler? And let it be so: nobody else has had work for a
 * while. */
bool is_alone(const struct guest *guest);
void make_alone(struct guest *guest);
/* It waits in the gate, has looked up once from begin to end, and waits on. */
void looks_up(const struct launch *launch);

/* ---- the device */

/* Marks that were put into a stream, ever; and let them all be reached. */
uint32_t marks_in(const struct guest *guest);
void device_reaches(struct guest *guest);
void device_reaches_some(struct guest *guest, uint32_t marks);

/* ---- what runs were told: wrapped functions of runs/run.h */

struct run_log {
    atomic_uint stops, resumes, resizes, puts;
    atomic_uint sm_count; /* of the last resize */
    atomic_int stop_says; /* CUresult of weir_run_stop() */
};
extern struct run_log runs;

/* What the driver was told of streams' priorities. */
struct priority_log {
    int last;
    uint32_t sets;
};
extern struct priority_log priorities;

/* What the driver was last told of parts of the device. */
struct part_log {
    uint32_t sms;      /* of it, when a stream was made there */
    int priority;      /* of that stream */
    CUstream from, to; /* of which one waits for what the other has been given */
    uint32_t made;     /* how many green contexts */
};
extern struct part_log part;

/* The worker has taken what the gate process has ordered, and carries it out or has. */
void orders_taken(void);
/* The run of an item tells what has happened to it; it ends. */
void run_says(struct weir_gate_item *item, struct weir_run *run, enum weir_run_event event);
void run_ends(struct weir_gate_item *item);

/* Wait until an expression holds; fails the test after ten seconds. */
#define await(expression)                                                                          \
    do {                                                                                           \
        uint64_t end_ = await_begin();                                                             \
        while (!(expression)) {                                                                    \
            await_pause(end_, #expression, __FILE__, __LINE__);                                    \
        }                                                                                          \
    } while (0)
uint64_t await_begin(void);
void await_pause(uint64_t end_ns, const char *what, const char *file, int line);

/* Something under the gate's lock. */
#define locked(expression)                                                                         \
    __extension__({                                                                                \
        pthread_mutex_lock(&fx.gate->lock);                                                        \
        __typeof__(expression) value_ = (expression);                                              \
        pthread_mutex_unlock(&fx.gate->lock);                                                      \
        value_;                                                                                    \
    })

struct weir_gate_queue *queue_of(const struct guest *guest);
