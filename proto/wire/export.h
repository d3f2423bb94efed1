/*
 * What is in the descriptor for shared memory (cuMemExportToShareableHandle) or a pool.
 *
 * The descriptor is one end of a SOCK_SEQPACKET pair whose buffer contains one such message from
 * the host. Processes read it with MSG_PEEK, so any number of them can. The host holds the other
 * end, and so learns when the last copy of the descriptor is closed.
 *
 * Source: docs/design/vmm.md
 */
#pragma once

#include <stdint.h>

#define WEIR_EXPORT_MAGIC       "weirshr1"
#define WEIR_EXPORT_TOKEN_BYTES 16

struct weir_export_message {
    char magic[8];
    uint8_t token[WEIR_EXPORT_TOKEN_BYTES]; /* random; only valid for the tenant that made it */
};
_Static_assert(sizeof(struct weir_export_message) == 24, "on the wire");
