/* Mounting a folder into a container that is being made. Private to container/oci. */
#pragma once

#include "base/status.h"
#include <sys/types.h>

/**
 * Mount a folder of this mount namespace, read-only, over one that the container has.
 *
 * The container's first process waits for its runtime, before pivot_root(). This process is in the
 * container's mount namespace afterwards, whether it succeeds or not.
 *
 * @param pid     the container's first process.
 * @param root    its files, as they are seen in its mount namespace before pivot_root().
 * @param target  in the container, from its root on; links in it stay below the root.
 * @param before  a folder of this namespace that must be what is mounted at the target.
 * @return WEIR_OK; else ret_diag says what failed
 * @thread of a process that has no other
 */
enum weir_status weir_oci_mount(const char *folder, pid_t pid, const char *root, const char *target,
                                const char *before, struct weir_diag *ret_diag) WEIR_MUST_CHECK;
