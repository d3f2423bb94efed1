/*
 * A worker's gates: one for each open device, with what else is needed to admit work: marks in
 * streams, parts of its SMs, and levels of stream priorities.
 *
 * Source: docs/design/gate.md
 */
#pragma once

#include "host_backend/config/link.h"
#include "host_backend/gate/gate.h"
#include "host_backend/worker/device/mark.h"
#include "host_backend/worker/device/part.h"

struct weir_tenant;
struct weir_worker;

/*
 * The gate of one device: the first device's is made when the worker starts, each other when its
 * device is opened. Constant afterwards, except the members that the first one's lock guards.
 */
struct weir_device_gate {
    struct weir_worker *worker;
    uint32_t device;
    struct weir_gate *gate;
    pthread_mutex_t lock;            /* in the first gate: guards making, attaching, listing all */
    struct weir_gate_client *client; /* guarded by lock, too; NULL: never attached */
    bool attached;                   /* attached to client; guarded by lock, too */
    struct weir_gate_ops ops;
    size_t item_room;
    enum weir_sched_fill fill;
    struct weir_marks *marks;
    struct weir_parts *parts; /* NULL: work cannot be kept to parts of the device */
    uint32_t part_step;       /* step of parts (weir_sched_part_step()); 0: it has no parts */
    atomic_uint_fast64_t parts_retry_ns;   /* when to retry making a part that failed */
    int priority_least, priority_greatest; /* the range of stream priorities, in CUDA's numbers */
};

/** SMs of a device; 1 if its driver does not report them. @thread any */
uint32_t weir_worker_sms(const struct weir_worker *worker, uint32_t device);

/** Describe for all devices how the gate process is to schedule them. @thread main */
void weir_gates_describe(struct weir_worker *worker, struct weir_link_reads *ret_gpus);

/**
 * Make the first device's gate, if the worker's configuration wants a scheduler.
 *
 * @param runs  executes orders about runs; the other functions are not used.
 * @param item_room  bytes that runs wants in each item.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER
 * @thread main, with the first device's context
 */
enum weir_status weir_gates_create(struct weir_worker *worker, const struct weir_gate_ops *runs,
                                   size_t item_room) WEIR_MUST_CHECK;

/**
 * Make the gate of a further device, if the first one has one, and attach it if that is attached.
 * @return as weir_gates_create()
 * @thread the one that opens the device, with its context
 */
enum weir_status weir_gates_add(struct weir_worker *worker, uint32_t device) WEIR_MUST_CHECK;

/** No session and no tenant may be left. @thread main */
void weir_gates_destroy(struct weir_worker *worker);

/** The tenant is removed. @thread main */
void weir_gates_tenant_gone(struct weir_tenant *tenant);

/** Add to a row of weir-status(1) what the tenant has copied and how much passed undecided, on all
 * devices. @return whether there is a scheduler @thread any */
void weir_gates_usage(struct weir_tenant *tenant, struct weir_status_tenant *row);

/**
 * The stream priority for work of a tenant's class.
 *
 * @param decided  the scheduler has decided about the work, with this level. Else it passes
 *                 undecided, since its tenant is alone, and the guest's priority counts within the
 *                 class.
 * @param asked    the guest's priority, in CUDA's numbers.
 * @thread any
 */
int weir_device_gate_priority(const struct weir_device_gate *gate, enum weir_priority priority,
                              enum weir_sched_level level, bool decided, int asked);

/** The priority that the guest asked for when it got this stream priority in a tenant's class.
 * @thread any */
int weir_device_gate_asked(const struct weir_device_gate *gate, enum weir_priority priority,
                           int native);

/** Does the device run streams of a higher priority first? @thread any */
bool weir_device_gate_has_levels(const struct weir_device_gate *gate);

/**
 * Let the gate process decide from now on (host_backend/gate/port.h).
 * @param port_fd  borrowed.
 * @param bell_fd  taken.
 * @thread main
 */
void weir_gates_attach(struct weir_worker *worker, int port_fd, int bell_fd);
/** The gate process is lost. @thread main, with the first device's context */
void weir_gates_detach(struct weir_worker *worker);
