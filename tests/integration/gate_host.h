/* The gate process as a thread of the test: gates attach to it over real ports, as workers do. */
#pragma once

#include "host_backend/gate/process/served.h"

struct gate_host {
    struct weir_gate_process *process;
    pthread_t thread;
    int fd;                  /* its owner writes here, so that it runs the task */
    pthread_mutex_t callers; /* one at a time */
    pthread_mutex_t lock;    /* guards what follows */
    pthread_cond_t cond;     /* done has changed */
    void (*task)(void *user);
    void *user;
    bool done;
};

extern struct gate_host host;

/** Begin a process that serves no GPU yet. @param spin  borrowed */
void host_open(const struct weir_sched_settings *settings, struct weir_spin_page *spin);
void host_close(void);
/** Have the process's thread do something. @thread any */
void in_process(void (*task)(void *user), void *user);
/** In the process: its owner's next message is there already. @param task  gets this one's user */
void in_process_next(void (*task)(void *user));
/** The process has read what was posted before, decided, and told the workers. @thread any */
void settle(void);
/** Of a GPU's scheduler, which must be consistent. */
struct weir_sched_counts counts_of(int gpu);
struct weir_sched_counts counts_now(void);
