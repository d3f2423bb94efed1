/*
 * The clock for deadlines of a virtual machine: it stops while the machine is suspended.
 *
 * A machine runs while its processors do, and those are threads of QEMU. They run every few seconds
 * even if the machine's kernel is idle. If virsh, QEMU's monitor or a signal has stopped the
 * machine, they do not run at all, though QEMU's first thread still serves its monitor and screen.
 *
 * The owner of a clock locks it.
 */
#pragma once

#include <stdint.h>

#define WEIR_VM_SIGNS_UNKNOWN UINT64_MAX

struct weir_vm_clock {
    int64_t pid;        /* pid of QEMU; 0: not known, and all time counts */
    uint64_t run_ns;    /* time in which the machine ran, up to the last check */
    uint64_t looked_ns; /* time of the last check of the machine; 0: never */
    uint64_t moved_ns;  /* when the processors' activity last changed to `signs` */
    uint64_t signs;     /* weir_vm_signs() at that time */
};

/** Check QEMU, at most once a second. @return run_ns @thread owner */
uint64_t weir_vm_clock_advance(struct weir_vm_clock *clock);

/**
 * Advance the clock by a check's result.
 *
 * @param now_ns  CLOCK_MONOTONIC
 * @param signs   current value of weir_vm_signs()
 * @thread owner
 */
void weir_vm_clock_step(struct weir_vm_clock *clock, uint64_t now_ns, uint64_t signs);

/**
 * A number that changes whenever a processor of the machine has done something.
 *
 * @param pid  QEMU's
 * @return WEIR_VM_SIGNS_UNKNOWN  there is no such process, or it cannot be inspected
 * @thread any
 */
uint64_t weir_vm_signs(int64_t pid);
