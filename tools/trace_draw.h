/* weir trace draw: what a host has recorded, as a picture. */
#ifndef WEIR_TOOLS_TRACE_DRAW_H
#define WEIR_TOOLS_TRACE_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Draw who held which SMs when, and whose data moved.
 *
 * @param path     for complaints and the title.
 * @param from_ns, to_ns  since the recording began; to_ns 0: its end.
 * @return false, with a complaint
 */
bool weir_trace_draw(const char *path, const void *data, uint64_t bytes, uint64_t from_ns,
                     uint64_t to_ns, FILE *out);

#endif
