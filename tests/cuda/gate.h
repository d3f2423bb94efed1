/*
 * gate.h: a host function that holds a stream until the program opens the gate.
 *
 * It makes "not ready" a certainty instead of a race. While a gate holds a stream nothing may be
 * called that waits for the whole device: run each kernel once before (lazy loading), allocate
 * before and free after.
 */
#pragma once

#include <unistd.h>

struct gate {
    int entered; /* atomic: the stream has reached the gate */
    int open;    /* atomic: set by the program */
};

/* cudaHostFn_t and CUhostFn; gives up after ten seconds so that a lost gate cannot hang a run. */
__attribute__((unused)) static void gate_hold(void *data)
{
    struct gate *gate = (struct gate *)data;

    __atomic_store_n(&gate->entered, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 100000 && !__atomic_load_n(&gate->open, __ATOMIC_SEQ_CST); i++) {
        usleep(100);
    }
}

__attribute__((unused)) static void gate_open(struct gate *gate)
{
    __atomic_store_n(&gate->open, 1, __ATOMIC_SEQ_CST);
}

/* Waits until the stream stands at the gate; 0 when that does not happen within ten seconds. */
__attribute__((unused)) static int gate_wait_entered(struct gate *gate)
{
    for (int i = 0; i < 100000; i++) {
        if (__atomic_load_n(&gate->entered, __ATOMIC_SEQ_CST)) {
            return 1;
        }
        usleep(100);
    }
    return 0;
}
