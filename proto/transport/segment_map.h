/* Make, map and check segments. Private to proto/. */
#pragma once

#include "base/status.h"
#include "proto/transport/segment.h"
#include <stdbool.h>

/**
 * Make a segment as a sealed memfd and map it.
 *
 * @param params    zeroes become defaults; checked.
 * @param ret_fd    the memfd, close-on-exec: the caller closes it.
 * @param ret_view  the mapping: the caller unmaps it with weir_segment_unmap().
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_segment_create(const struct weir_segment_params *params, int *ret_fd,
                                     struct weir_segment_view *ret_view) WEIR_MUST_CHECK;

/** Make a segment without rings in anonymous memory: the worker's end of a remote session. */
enum weir_status weir_segment_create_private(const struct weir_segment_params *params,
                                             struct weir_segment_view *ret_view) WEIR_MUST_CHECK;

/**
 * Map the segment that a host sent, and check all that it says.
 *
 * @param fd              borrowed.
 * @param expected_bytes  as the host announced.
 * @param ret_view        as above.
 * @return WEIR_OK
 * @return WEIR_ERR_PEER  not sealed, too small, or an impossible geometry.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_segment_map(int fd, uint64_t expected_bytes,
                                  struct weir_segment_view *ret_view) WEIR_MUST_CHECK;

/**
 * Lay out a segment at a place in a file that others share, and map it.
 *
 * @param fd        borrowed.
 * @param offset    of the segment: a multiple of the page size; the bytes there are zero.
 * @param unit      the segment's size is rounded up to a multiple of this.
 * @param ret_view  as above.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_segment_create_at(const struct weir_segment_params *params, int fd,
                                        uint64_t offset, uint64_t unit,
                                        struct weir_segment_view *ret_view) WEIR_MUST_CHECK;

/** The size that weir_segment_create_at() would give the segment; 0: the sizes are impossible. */
uint64_t weir_segment_bytes(const struct weir_segment_params *params, uint64_t unit);

/** Like weir_segment_map(), for a segment inside another file: there are no seals to check. */
enum weir_status weir_segment_map_at(int fd, uint64_t offset, uint64_t expected_bytes,
                                     struct weir_segment_view *ret_view) WEIR_MUST_CHECK;

/** Undo any of these calls. Accepts a zeroed view. @thread any */
void weir_segment_unmap(struct weir_segment_view *view);
