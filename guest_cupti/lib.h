/*
 * Shared by the files of Weir's libcupti.so.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include "proto/profile/cupti_abi.h"
#include "proto/profile/session_table.h"
#include <stdbool.h>
#include <time.h>

#define WEIR_CUPTI_EXPORT __attribute__((visibility("default")))

/* ---------------------------------------------------------------- lib.c */

/** The table of Weir's libcuda.so.1. @return NULL: the program has another libcuda, or none
 * @thread any */
const struct weir_profile_table *weir_cupti_session(void);

/** Begin or end watching the program's calls, as activities and callbacks need it. @thread any */
void weir_cupti_watch(void);

/** The calling thread's number in the system. @thread any */
uint32_t weir_cupti_thread(void);

/** The clock's time in ns. @thread any */
uint64_t weir_cupti_clock_ns(clockid_t id);

/* ---------------------------------------------------------------- buffers.c */

/**
 * Get room for a record in the program's buffers. All but its kind is zeroed. It stays valid until
 * the lock is released.
 *
 * @return NULL: the program gives no buffer; the record is counted as dropped.
 * @thread any, between weir_cupti_lock() and weir_cupti_unlock()
 */
void *weir_cupti_record(CUpti_ActivityKind kind);

/** The lock under which records are made. */
void weir_cupti_lock(void);
/** Release it, and hand full buffers to the program. */
void weir_cupti_unlock(void);

/** Count lost records. @thread any */
void weir_cupti_dropped(uint64_t n);

/* ---------------------------------------------------------------- activity.c */

/** Does the program want any activity for which its calls must be watched? @thread any */
bool weir_cupti_activities(void);
/** Is the kind wanted? @thread any */
bool weir_cupti_wants(CUpti_ActivityKind kind);

/** Is any kind wanted that is work on the device? @thread any */
bool weir_cupti_wants_work(void);

/** A call has returned: make its records. @thread the call's */
void weir_cupti_driver_called(const struct weir_profile_call *call);
void weir_cupti_runtime_called(const struct weir_profile_runtime *call);

/* ---------------------------------------------------------------- work.c */

/** Remember a call whose work the host records. @thread the call's */
void weir_cupti_work_add(const struct weir_profile_call *call);

/** Take the host's records, and make the program's from them. @thread any; no lock held */
void weir_cupti_work_take(void);

/** Copy a name to memory that is never freed. @return the same pointer for equal names; "": no
 * memory. @thread any; no lock of work.c held */
const char *weir_cupti_keep_name(const char *name);

/* The overhead record of a wait in the gate points to this: CUPTI's struct, then the cause. */
struct weir_cupti_gate {
    uint32_t command_buffer_length, channel_id, channel_type;
    const char *cause; /* in one word or two */
};

/* ---------------------------------------------------------------- callback.c */

/** Does the program want callbacks for which all calls must be watched? @thread any */
bool weir_cupti_callbacks(void);

/** Call the program back. @param at_end the call has returned @thread the call's; no lock held */
void weir_cupti_driver_callback(const struct weir_profile_call *call, bool at_end);
void weir_cupti_runtime_callback(const struct weir_profile_runtime *call);

/** CUPTI's number of a function of the Driver API; 0: it has none. @thread any */
uint32_t weir_cupti_driver_id(const struct weir_profile_call *call);
