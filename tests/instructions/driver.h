/* The little of the Driver API that running a case takes, from a library given by its path. */
#pragma once

#include "tests/instructions/case.h"

struct driver_device {
    char name[128];
    int driver_version;
    int capability; /* 90 */
};

enum driver_outcome {
    DRIVER_OK,
    DRIVER_REFUSED, /* the module does not load or launch: why says it; the device is well */
    DRIVER_BROKEN,  /* the kernel faulted: no more can be run in this process */
};

/** Load the library and make a context on device 0; ends the process with 77 when it cannot. */
void driver_open(const char *library, struct driver_device *ret_device);

/**
 * Run a case.
 *
 * @param inputs   case_input_bytes()
 * @param outputs  case_output_bytes(), written on DRIVER_OK; what the kernel leaves alone is 0xee.
 */
enum driver_outcome driver_run(const struct test_case *c, const uint64_t *inputs, void *outputs,
                               char *why, size_t why_bytes);
