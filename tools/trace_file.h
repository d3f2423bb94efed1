/* Files of scheduler traces: what `weir sim` and `weir trace` share. */
#pragma once

#include "sched/sim/gpu.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Read a whole file, or standard input ("-").
 *
 * @param ret_data  free().
 * @return false, with a complaint.
 */
bool weir_trace_file_read(const char *command, const char *path, void **ret_data,
                          uint64_t *ret_bytes);

/** Read a time such as 20us, 1.5ms or 2s, in nanoseconds; false with a complaint. */
bool weir_option_time(const char *name, const char *text, uint64_t *ret_ns);

/**
 * Make up a trace.
 *
 * @param spec  a line for the generator, or "@FILE".
 * @param fd    takes it.
 * @return false, with a complaint.
 */
bool weir_trace_file_generate(const char *command, const char *spec, const char *seed,
                              const char *duration, const struct weir_sim_gpu_params *gpu, int fd);

/** Make up a trace in memory. @param ret_data free(). */
bool weir_trace_generate_data(const char *command, const char *spec, const char *seed,
                              const char *duration, const struct weir_sim_gpu_params *gpu,
                              void **ret_data, uint64_t *ret_bytes);
