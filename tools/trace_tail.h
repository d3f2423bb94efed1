/* weir trace tail: print why the items of a recording waited. */
#ifndef WEIR_TOOLS_TRACE_TAIL_H
#define WEIR_TOOLS_TRACE_TAIL_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Print why items waited: sums, and the longest waits one by one.
 *
 * @param path      the trace's name, for error messages.
 * @param data, bytes  the trace file's content.
 * @param n_worst   how many of the longest waits are listed one by one.
 * @param bound_ns  how much of one item's wait may stay unexplained, in nanoseconds.
 * @param is_json   one JSON object instead of text.
 * @return an exit status. It says failed, after an error message, if the trace is damaged or more
 *         than bound_ns of a wait stays unexplained.
 */
int weir_trace_tail(const char *path, const void *data, uint64_t bytes, uint32_t n_worst,
                    uint64_t bound_ns, bool is_json);

#endif
