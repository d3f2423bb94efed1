/*
 * The barrier of a worker around driver calls that wait for the device. Only device_idle.c uses
 * this file.
 */
#pragma once

#include "base/thread.h"
#include "proto/cuda_abi.h"
#include "proto/wire/control.h"
#include <stdatomic.h>
#include <stdint.h>

struct weir_device_idle {
    atomic_uint closed;      /* 1: no session may begin a handler */
    atomic_uint captures;    /* number of streams under capture, all sessions; see device_idle.h */
    pthread_mutex_t lock;    /* recursive; held around each call that wants an idle device */
    uint32_t depth;          /* how often lock is held; guarded by lock */
    pthread_mutex_t barrier; /* the mutex of opened */
    pthread_cond_t opened;   /* signalled when closed is 0 again */
    _Atomic(CUevent) events[WEIR_CONTROL_MAX_DEVICES]; /* by device; made under lock when needed */
    /* For tests: number of turns in which the device did not become idle, and of calls that were
     * not made for that reason. */
    atomic_uint_fast64_t turns, late;
};
