/*
 * Ended programs that still hold resources, and operations that wait for these.
 * docs/design/host.md, "What an ended program holds", has the model.
 */
#pragma once

#include "base/programs.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_session;
struct weir_tenant;
struct weir_worker;

/** Note that the session's program has ended, or that the session takes no more records. @thread
 * any, while the session is listed or its own */
void weir_session_ended(struct weir_session *session);
/** Has weir_session_ended() been called? @thread as weir_session_ended() */
bool weir_session_has_ended(const struct weir_session *session);
/** Its program's work continues, so others need not wait for the session any more. A second call
 * does nothing. @thread owner */
void weir_session_lasts(struct weir_session *session);
/** The session holds nothing any more and has given up its place: wake the threads that wait for
 * it. A second call does nothing. @thread owner */
void weir_session_gone(struct weir_session *session);

/** Check the sockets of a tenant's sessions for ended programs, since the thread that watches them
 * may be late. @param tenant NULL: of all. @thread any, without the worker's lock */
void weir_worker_ask_sockets(struct weir_worker *worker, const struct weir_tenant *tenant);

/** Count the tenant's programs that ended less than WEIR_ENDING_NS ago, in this worker and in
 * others, and still hold something. @thread any, without the worker's lock */
uint32_t weir_tenant_endings(struct weir_tenant *tenant);
/**
 * The device memory that ended programs of the tenant still hold. @param max_age_ns as of
 * weir_programs_look().
 * @thread any, without the worker's lock
 */
uint64_t weir_tenant_held_by_ended(struct weir_tenant *tenant, uint64_t max_age_ns);

/** Begin an operation: it has lacked nothing yet. @thread owner */
void weir_session_lacks_nothing(struct weir_session *session);
/** Note if the driver lacks device memory for the current operation. @param result the driver's.
 * @return result @thread owner */
CUresult weir_session_note_lack(struct weir_session *session, CUresult result);
/**
 * A charge of the current operation was refused. May the operation be tried again, since ended
 * programs of its tenant still hold something? Then the refusal is not reported.
 * @thread owner
 */
bool weir_session_lacks_quota(struct weir_session *session);
/** Has the operation lacked memory for as long as it may wait? @thread owner */
bool weir_session_lacks_long(struct weir_session *session);
/**
 * May the memory that it lacks be free soon? It may if it has not waited long, and programs of its
 * tenant have ended.
 * @thread owner
 */
bool weir_session_may_hope(struct weir_session *session);

/** Make a text for the log about a refusal: the reason, and what it waited for. @param why borrowed
 * for the call. @thread owner */
void weir_session_lack_text(struct weir_session *session, const char *why, char *text,
                            size_t text_bytes);

/**
 * The device has no memory left. May some be free soon, because workers or programs of any tenant
 * end? Asks idle workers to end.
 * @thread any, holding no lock
 */
bool weir_memory_may_come(struct weir_worker *worker, uint64_t bytes);
/** Pause between two tries to get memory. @thread any */
void weir_memory_pause(void);
/** Wait while memory may become free. @return true: try again. @thread as weir_memory_may_come() */
bool weir_memory_came(struct weir_worker *worker);
