/*
 * The whole of Weir for a test executable: `weir serve` of the same build as a child (so that
 * sanitizers see supervisor and worker too), softgpu below, and this process as the guest, with the
 * Driver API's exports linked in.
 */
#pragma once

#include "host_backend/config/control.h"
#include <stdbool.h>
#include <sys/types.h>

struct tl_stack {
    char folder[64]; /* of everything; removed at the end */
    char run_dir[96];
    pid_t supervisor;
};

/**
 * Start a host over softgpu and wait until it serves; asserts on failure.
 *
 * Two tenants, alice (64 MiB of device memory) and bob; WEIR_HOST names alice's socket.
 */
void tl_stack_start(struct tl_stack *stack);

/** Stop it in order; asserts that supervisor and worker ended well. */
void tl_stack_stop(struct tl_stack *stack);

/** Wait until exactly n_sessions live, and nothing is held if that is none; asserts. */
void tl_stack_wait_sessions(const struct tl_stack *stack, size_t n_sessions);
