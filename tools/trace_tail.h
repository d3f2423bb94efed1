/* weir trace tail: why items of a recording waited. */
#ifndef WEIR_TOOLS_TRACE_TAIL_H
#define WEIR_TOOLS_TRACE_TAIL_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Print what the policy justifies of all waits, and name the rest.
 *
 * @param path      for complaints.
 * @param n_worst   so many waits one by one.
 * @param bound_ns  most that may be unexplained of one item.
 * @param is_json   one JSON object instead of text.
 * @return an exit status: failed, with a complaint, when the trace is not in order, or a wait is
 *         beyond the bound.
 */
int weir_trace_tail(const char *path, const void *data, uint64_t bytes, uint32_t n_worst,
                    uint64_t bound_ns, bool is_json);

#endif
