/*
 * Profiled calls: numbers them, has the host record their work, and tells a watcher about them.
 *
 * A call's number travels in the headers of its requests (struct weir_record). A call of the
 * runtime gives its number to the calls of the Driver API that it makes.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include "guest_lib/calls.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>

/**
 * Is this the UUID of proto/profile/session_table.h? Then give that table, static memory.
 * @thread any, also before cuInit
 */
bool weir_guest_profile_table(const CUuuid *id, const void **ret_table);

/** A call begins while WEIR_CALLS_WATCHED is set. @param words as weir_calls_log_add().
 * @thread any; no lock held */
void weir_guest_profile_begin(struct weir_calls_thread *thread, enum weir_symbol symbol,
                              const uint64_t *words);

/**
 * The call for which weir_calls_end() has just returned true ends.
 * @param words  as weir_calls_log_add().
 * @thread any; no lock held
 */
void weir_guest_profile_end(enum weir_symbol symbol, CUresult result, const uint64_t *words);

/** The session is up. If WEIR_PROFILE names a file, let libcupti.so.13 in this library's folder
 * write a profile to it. @thread init_lock held */
void weir_guest_profile_start(void);

/** In a forked child: nobody watches. @thread the child's only one */
void weir_guest_profile_in_child(void);
