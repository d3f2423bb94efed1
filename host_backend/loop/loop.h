/*
 * A loop over descriptors and times; the supervisor's main thread runs one.
 *
 * Before each turn each part of the program says again what it waits for. So the watched
 * descriptors follow from the current state, and nobody has to unregister anything.
 *
 *     weir_host_loop_begin(loop);
 *     for each part: weir_host_loop_watch(loop, ..), weir_host_loop_wake(loop, ..)
 *     weir_host_loop_turn(loop);
 *
 * All functions: @thread one for each loop
 */
#pragma once

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct weir_host_loop;

/** Something happened at a watched descriptor. Another handler of the same turn may have closed
 * it. @param user, index  as given to weir_host_loop_watch() */
typedef void (*weir_host_loop_fn)(void *user, int index);

/**
 * @param watches_max  descriptors at a time; others are not watched.
 * @param ret_loop     for weir_host_loop_destroy().
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_host_loop_create(size_t watches_max,
                                       struct weir_host_loop **ret_loop) WEIR_MUST_CHECK;
/** Accepts NULL. The descriptors stay open. */
void weir_host_loop_destroy(struct weir_host_loop *loop);

/**
 * The monotonic clock, without the times in which this process was stopped or had no core for a
 * second. Deadlines for peers use this clock: messages that they sent during such a pause are read
 * before a deadline ends. @thread the one that runs the loop
 */
uint64_t weir_host_clock_ns(void);

/** Begin a turn at a time of weir_host_clock_ns(): no descriptor is watched, and no wake-up is
 * set. */
void weir_host_loop_begin(struct weir_host_loop *loop, uint64_t now_ns);
/** When the turn began. */
uint64_t weir_host_loop_now_ns(const struct weir_host_loop *loop);

/**
 * Watch a descriptor in this turn.
 *
 * @param fd      -1: the call does nothing.
 * @param events  as for poll(); 0: its end and errors, which poll() always reports.
 * @param handle  called in weir_host_loop_turn(), in the order of the calls of this function.
 */
void weir_host_loop_watch(struct weir_host_loop *loop, int fd, short events,
                          weir_host_loop_fn handle, void *user, int index);

/** Let the turn sleep no longer than until at_ns. @param at_ns  WEIR_FOREVER: no limit */
void weir_host_loop_wake(struct weir_host_loop *loop, uint64_t at_ns);

/** How long the turn sleeps at most, in ms, as for poll(); -1: until something happens. */
int weir_host_loop_wait_ms(const struct weir_host_loop *loop);

/**
 * Sleep until an event or a wake-up, for at most a second, and call the handlers of the events.
 *
 * @param ret_woken_ns  when the sleep ended.
 * @return WEIR_OK, also after a signal; WEIR_ERR_IO  poll() failed: see errno
 */
enum weir_status weir_host_loop_turn(struct weir_host_loop *loop,
                                     uint64_t *ret_woken_ns) WEIR_MUST_CHECK;
