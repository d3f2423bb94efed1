/*
 * How long each stage of this process's start as a worker takes, for the log.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_START_STAGES_H
#define WEIR_HOST_BACKEND_WORKER_STATE_START_STAGES_H

#include <stdint.h>

/* In this order. */
enum weir_start_stage {
    WEIR_START_EXEC,     /* fork and exec, until it has its configuration */
    WEIR_START_DRIVER,   /* the driver is loaded */
    WEIR_START_INIT,     /* cuInit(), and which devices there are */
    WEIR_START_CONTEXT,  /* of the first device, and nothing but that */
    WEIR_START_PARTS,    /* what hangs on the context */
    WEIR_START_DESCRIBE, /* the devices, for guests */
    WEIR_START_FORMS,    /* what builds kernels' forms, and the gates */
    WEIR_START_WARM,     /* warm.h */
    WEIR_START_TOLD,     /* it waits for what the supervisor tells: tenants, a port to the gate */
    WEIR_START_COUNT
};

/** A stage has ended now; the next begins. @thread main */
void weir_start_stage_ends(enum weir_start_stage stage);
/** All have ended. @param started_ns  when the first began. @thread main */
void weir_start_stages_log(uint64_t started_ns);

#endif
