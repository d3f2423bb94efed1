/*
 * Generated loads: up to thousands of tenants, from one line of text, as a trace.
 *
 * The trace has each tenant as if it were alone on the device, so that its times tell which item
 * waits for which, as in a recording (sched/sim/load.h). The same line, seed and duration give the
 * same bytes. Source: weir-trace(1), docs/design/simulation.md
 */
#pragma once

#include "base/status.h"
#include "sched/sim/gpu.h"
#include <stdint.h>

/* Most tenants, streams and items of one generated trace. */
#define WEIR_SIM_GENERATE_TENANTS_MAX 10000u
#define WEIR_SIM_GENERATE_STREAMS_MAX 640000u
#define WEIR_SIM_GENERATE_ITEMS_MAX   (UINT32_C(1) << 25)

struct weir_sim_generate_params {
    struct weir_sim_gpu_params gpu; /* the GPU for which times are computed */
    uint64_t seed;
    uint64_t duration_ns; /* no item begins later */
};

/**
 * Write a trace.
 *
 * @param spec      groups of tenants with ';' or newlines between them, each of KEY=VALUE words; as
 *                  weir-trace(1) lists them.
 * @param fd        the output; it is closed, also on failure.
 * @param ret_diag  the error in spec, and its place; on other errors a message without place.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX   ret_diag.
 * @return WEIR_ERR_TOO_BIG  more than the limits above.
 * @return WEIR_ERR_IO, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_sim_generate(const char *spec, const struct weir_sim_generate_params *params,
                                   int fd, struct weir_diag *ret_diag) WEIR_MUST_CHECK;
