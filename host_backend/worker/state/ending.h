/*
 * Programs that have ended and still hold something, and what an operation lacks for it.
 * docs/design/host.md, "What an ended program holds", has the model.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_ENDING_H
#define WEIR_HOST_BACKEND_WORKER_STATE_ENDING_H

#include "base/programs.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>

struct weir_session;
struct weir_tenant;
struct weir_worker;

/** The session's program has ended, or the session takes no more records. @thread any, while the
 * session is listed or its own */
void weir_session_ended(struct weir_session *session);
/** Has weir_session_ended() been called? @thread as that */
bool weir_session_has_ended(const struct weir_session *session);
/** Others need not wait for the session any more: its program's work goes on. A second call does
 * nothing. @thread owner */
void weir_session_lasts(struct weir_session *session);
/** The session holds nothing any more and has given up its place: wake those who wait. A second
 * call does nothing. @thread owner */
void weir_session_gone(struct weir_session *session);

/** Find the sessions of a tenant whose programs have ended: the thread that watches their sockets
 * may be late. @param tenant  NULL: of all. @thread any, without the worker's lock */
void weir_worker_ask_sockets(struct weir_worker *worker, const struct weir_tenant *tenant);

/** How many of the tenant's programs have ended less than WEIR_ENDING_NS ago, in this worker and in
 * others, and still hold something? @thread any, without the worker's lock */
uint32_t weir_tenant_endings(struct weir_tenant *tenant);
/** What those hold of device memory that have ended. @param max_age_ns  as of weir_programs_look().
 * @thread any, without the worker's lock */
uint64_t weir_tenant_held_by_ended(struct weir_tenant *tenant, uint64_t max_age_ns);

/** Begin an operation: nothing has been lacking yet. @thread owner */
void weir_session_lacks_nothing(struct weir_session *session);
/** Note if the driver has no memory of the device for the operation in hand. @param result  the
 * driver's. @return result @thread owner */
CUresult weir_session_note_lack(struct weir_session *session, CUresult result);
/**
 * A charge for the operation in hand was refused. May the operation be tried again, as programs of
 * its tenant have ended and still hold something? Then the refusal is not reported.
 * @thread owner
 */
bool weir_session_lacks_quota(struct weir_session *session);
/** Has it lacked something for as long as an operation may wait? @thread owner */
bool weir_session_lacks_long(struct weir_session *session);
/** May what it lacks be there soon: not for long yet, and programs of its tenant have ended?
 * @thread owner */
bool weir_session_may_hope(struct weir_session *session);

/** What the log says of a refusal: why, and for what it waited in vain. @param why  borrowed for
 * the call. @thread owner */
void weir_session_lack_text(struct weir_session *session, const char *why, char *text,
                            size_t text_bytes);

/**
 * The device has no memory left. May some be free soon, because workers or programs of any tenant
 * end? Idle workers are asked to end.
 * @thread any, holding no lock
 */
bool weir_memory_may_come(struct weir_worker *worker);
/** Pause between two tries to get memory. @thread any */
void weir_memory_pause(void);
/** Wait while some may come. @return true: try again. @thread as weir_memory_may_come() */
bool weir_memory_came(struct weir_worker *worker);

#endif
