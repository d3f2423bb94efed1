/* Measures how long each stage of a worker's start takes, for the log. */
#pragma once

#include <stdint.h>

/* Stages of a worker's start, in this order. */
enum weir_start_stage {
    WEIR_START_EXEC,     /* fork and exec, until the worker has its configuration */
    WEIR_START_DRIVER,   /* the driver is loaded */
    WEIR_START_INIT,     /* cuInit(), and listing the devices */
    WEIR_START_CONTEXT,  /* opening the context of the first device */
    WEIR_START_PARTS,    /* making what depends on the context */
    WEIR_START_DESCRIBE, /* describing the devices for guests */
    WEIR_START_FORMS,    /* starting the builder of kernels' forms, and the gates */
    WEIR_START_WARM,     /* warming up (warm.h) */
    WEIR_START_TOLD,     /* waiting for the supervisor to send tenants and a port to the gate */
    WEIR_START_COUNT
};

/** A stage ends now, and the next begins. @thread main */
void weir_start_stage_ends(enum weir_start_stage stage);
/** Log all stages, which have ended. @param started_ns when the first began. @thread main */
void weir_start_stages_log(uint64_t started_ns);
