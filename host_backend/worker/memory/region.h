/*
 * A session's part of its virtual machine's region: units that it takes and gives back
 * (docs/design/kvm.md). Only the worker allots them. Internally locked.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_region_end;

/**
 * Take units of the region for a session: they contain zeros.
 *
 * @param bytes       rounded up to units.
 * @param ret_fd      the region's file; borrowed.
 * @param ret_offset  where they begin in the region, which is also the guest's offset.
 * @return WEIR_OK, WEIR_ERR_QUOTA
 * @thread any
 */
enum weir_status weir_region_take(struct weir_region_end *end, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_offset) WEIR_MUST_CHECK;

/** Convert an offset in the region to one in the region's file. @thread any */
uint64_t weir_region_file_offset(const struct weir_region_end *end, uint64_t offset);

/** May the region's pages vanish under a mapping, so that the bus guard must know each mapping?
 * @thread any */
bool weir_region_end_is_loose(const struct weir_region_end *end);

/** Give units back. After weir_region_end_closing() they stay the guest's until its process
 * ends. */
void weir_region_give(struct weir_region_end *end, uint64_t offset, uint64_t bytes);

/**
 * The session is being destroyed. If the guest's process lives on, it keeps its mappings, including
 * its own registered pages, until it ends.
 * @thread the session's
 */
void weir_region_end_closing(struct weir_region_end *end);
