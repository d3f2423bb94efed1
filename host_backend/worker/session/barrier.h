/*
 * The inside of a worker: the barrier around driver calls that wait for the device. For
 * device_idle.c alone.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_BARRIER_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_BARRIER_H

#include "proto/cuda_abi.h"
#include "proto/wire/control.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct weir_device_idle {
    atomic_uint closed;
    atomic_uint captures;    /* streams under capture, of all sessions: then nobody may ask */
    pthread_mutex_t lock;    /* recursive; whoever makes such a call */
    uint32_t depth;          /* under it */
    pthread_mutex_t barrier; /* for opened */
    pthread_cond_t opened;   /* closed is 0 again */
    CUevent events[WEIR_CONTROL_MAX_DEVICES]; /* under lock; made at first need */
    atomic_uint_fast64_t turns, forced;       /* given up, and made all the same; for tests */
};

#endif
