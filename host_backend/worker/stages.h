/* Measures how long the stages of a program's start take. */
#pragma once

#include "host_backend/config/link.h"
#include <stdint.h>

/* When an arrival reached each stage of its start. */
struct weir_stages {
    struct weir_link_start before; /* times that the supervisor measured */
    uint64_t taken_ns;             /* the main thread took the connection */
    uint64_t hello_ns;             /* its hello was read */
    uint64_t window_ns;            /* it has a range of addresses */
    uint64_t welcome_ns;           /* its welcome was sent */
};

/** Log the stages, in microseconds, at the level debug: the start ends now. @thread any */
void weir_stages_log(const struct weir_stages *stages, const char *tenant, uint64_t session);
