/*
 * The time by which a virtual machine's silence is measured: it stands still while QEMU does, so
 * that a suspended machine misses nothing. In windows of a second, one counts if QEMU had any time
 * of a processor in it, which a running kernel's ticks see to.
 *
 * Whoever owns it locks it.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_VM_CLOCK_H
#define WEIR_HOST_BACKEND_WORKER_VM_CLOCK_H

#include <stdint.h>

struct weir_vm_clock {
    int64_t pid;           /* QEMU's; 0: not known, and all time counts */
    uint64_t run_ns;       /* time in which the machine ran, as far as was looked */
    uint64_t window_ns;    /* when the present look at QEMU began .. */
    uint64_t window_ticks; /* .. and what time of the processor it had had by then */
};

/** Look at QEMU, once a second at most. @return run_ns @thread owner */
uint64_t weir_vm_clock_advance(struct weir_vm_clock *clock);

#endif
