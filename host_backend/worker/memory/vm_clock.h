/*
 * The clock that measures a virtual machine's silence: it stands still while the machine does, so
 * that a suspended machine misses nothing.
 *
 * A machine runs while its processors do, and those are threads of QEMU. They run every few seconds
 * even if the machine's kernel is idle. If virsh, QEMU's monitor or a signal has stopped the
 * machine, they do not run at all, though QEMU's first thread still serves its monitor and screen.
 *
 * The owner of a clock locks it.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_VM_CLOCK_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_VM_CLOCK_H

#include <stdint.h>

#define WEIR_VM_SIGNS_UNKNOWN UINT64_MAX

struct weir_vm_clock {
    int64_t pid;        /* QEMU's; 0: not known, and all time counts */
    uint64_t run_ns;    /* time in which the machine ran, up to the last look */
    uint64_t looked_ns; /* time of the last look at the machine; 0: never */
    uint64_t moved_ns;  /* when its processors were first seen to have reached signs */
    uint64_t signs;     /* weir_vm_signs() at that time */
};

/** Look at QEMU, once a second at most. @return run_ns @thread owner */
uint64_t weir_vm_clock_advance(struct weir_vm_clock *clock);

/**
 * What weir_vm_clock_advance() does with what it sees.
 *
 * @param now_ns  CLOCK_MONOTONIC
 * @param signs   of weir_vm_signs(), now
 * @thread owner
 */
void weir_vm_clock_step(struct weir_vm_clock *clock, uint64_t now_ns, uint64_t signs);

/**
 * A number that changes whenever a processor of the machine has done something.
 *
 * @param pid  QEMU's
 * @return WEIR_VM_SIGNS_UNKNOWN  there is no such process, or it cannot be looked at
 * @thread any
 */
uint64_t weir_vm_signs(int64_t pid);

#endif
