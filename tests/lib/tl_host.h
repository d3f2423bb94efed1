/*
 * A worker in a thread, for tests of the guest library over the loop transport. Memory it grants is
 * memory of the test's process, so device addresses can be read; work is done when its record
 * arrives, except that marks can be held back.
 */
#pragma once

#include "proto/ops.h"
#include <stdbool.h>
#include <stdint.h>

struct tl_host;

/** Start the worker and weir_guest_start() on it. Fails the test when that fails. */
struct tl_host *tl_host_start(void);

/** Stop the guest and the worker, free all. */
void tl_host_stop(struct tl_host *host);

/** Hold back (true) or let go all word writes: work then looks unfinished. */
void tl_host_hold(struct tl_host *host, bool hold);

/** How often an operation has arrived. */
unsigned int tl_host_count(struct tl_host *host, enum weir_op op);

/** Chunks granted and not returned. */
unsigned int tl_host_chunks(struct tl_host *host);

/** Report a deferred error. sticky: for ever. */
void tl_host_fail(struct tl_host *host, int error, bool sticky);

/** Refuse host functions from now on. */
void tl_host_refuse_functions(struct tl_host *host);

/** The worker vanishes: its end is destroyed. */
void tl_host_kill(struct tl_host *host);

/** Round trip: everything posted before has arrived. */
void tl_host_drain(void);
