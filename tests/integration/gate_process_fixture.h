/*
 * Workers' gates that are attached to the gate process (gate_host.h). The device is words that the
 * test writes.
 */
#pragma once

#include "../lib/tl_cmocka.h"
#include "host_backend/gate/private.h"
#include "tests/integration/gate_host.h"
#include "tests/lib/tl_gate_ops.h"

#define LONG_NS (80 * WEIR_NS_PER_MS)
#define WORDS   256u

/* Fail at this line if the expression is not true in time. */
#define await(expression) await_that((expression), end_in(), #expression, __LINE__)
#define await_that(expression, end, what, line)                                                    \
    do {                                                                                           \
        uint64_t end_ns_ = (end);                                                                  \
        while (!(expression)) {                                                                    \
            pause_until(end_ns_, what, line);                                                      \
        }                                                                                          \
    } while (0)

/* A worker, with one session on one device. */
struct worker {
    struct weir_gate *gate;
    struct weir_gate_client *client;
    struct weir_gate_queue *queue;
    struct weir_gate_batch batch;
    uint32_t id, tenant, given;
    uint32_t flags; /* of its work: enum weir_sched_item_flags */
    int32_t of;     /* the tenant that the port is for; -1: none yet */
    int port_fd, bell_fd;
    uint32_t words[WORDS];
    struct tl_gate_session session;
};

/* A launch on a thread of its own. */
struct launch {
    struct worker *worker;
    uint64_t key;
    pthread_t thread;
    struct weir_gate_pass pass;
    enum weir_status status;
    atomic_bool passed;
};

/** When waiting that begins now fails. */
uint64_t end_in(void);
/** Sleep 0.1 ms; fail after end_ns: it never came to this. */
void pause_until(uint64_t end_ns, const char *what, int line);
/** A process that serves two GPUs, which nobody has used yet. */
void process_open(void);
void open_queue(struct worker *w, const struct weir_gate_session_ops *ops, void *session);
/** A gate for one of the worker's devices, with a queue; attached to nothing. */
void make_gate(struct worker *w, uint32_t device);
/** The same, attached to the worker's client. */
void open_gate(struct worker *w, uint32_t device);
/** @param of  the tenant that its port is for; -1: nobody. */
struct worker *worker_new(uint32_t id, uint32_t tenant, int32_t of);
/** The GPU has done all that the worker gave it. */
void device_reaches(struct worker *w);
void worker_gone(struct worker *w);
/** Numbers that repeat: splitmix64. */
uint64_t next_random(uint64_t *seed);
/** A thread goes through the gate. */
void begin(struct launch *l, struct worker *w, uint64_t key);
/** It has passed: the device has it, with a mark behind it. */
void end(struct launch *l);
void launch(struct worker *w, uint64_t key);
/** In the process: what it calls a tenant's kernel of a key. */
uint64_t key_of(uint32_t tenant, uint64_t key);
/** In the process: kernels of key 7 take LONG_NS, for the first two tenants. */
void know(void *user);
bool stays_waiting(const struct launch *l);
/** The worker passes undecided from now on. */
void make_alone(struct worker *w);
/** Undecided work in a batch that has no mark yet. */
void pass_unmarked(struct worker *w, struct weir_gate_batch *batch);
/** In the process: the worker's port goes. */
void remove_port(void *user);
