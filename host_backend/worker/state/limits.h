/*
 * Charges for a session's memory: to the tenant's account, and, for each device, against the limit
 * that the session's guest asked for (struct weir_limit_wish). A wish can only reduce the tenant's
 * quota. Refusals are counted, logged, and reported to the supervisor, which adds events for them.
 *
 * Owner thread only, unless a function says otherwise.
 */
#pragma once

#include "base/account.h"
#include "host_backend/config/link.h"
#include "proto/cuda_abi.h"
#include "proto/wire/caller.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct weir_session;
struct weir_tenant;
struct weir_worker;

/* Refusals of a tenant. Zeroed: there were none. Internally locked (lock-free). */
struct weir_refusals {
    atomic_uint_fast64_t pending[2]; /* not yet reported: device memory, pinned memory */
    atomic_uint_fast64_t told_ns;    /* time of the last report */
};

/**
 * Charge memory to the session's tenant. This is the only check of the tenant's quota, and of the
 * limit that the guest itself asked for on a device. weir_account_release() gives it back.
 *
 * @param device  index of the worker's device; ignored for pinned memory.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_session_charge(struct weir_session *session, uint32_t device,
                             enum weir_account_item item, uint64_t bytes);

/**
 * Handle a request that exceeds the tenant's quota: it is to be tried again, or else counted and
 * logged (state/ending.h).
 * @return CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_session_over_quota(struct weir_session *session, enum weir_account_item item,
                                 uint64_t bytes);

/**
 * Store for the program's user why memory was refused to the current operation; the guest can ask
 * for that (memory_refused).
 * @param asked  in the item's unit; 0: not known.
 * @param why    borrowed for the call.
 */
void weir_session_note_refusal(struct weir_session *session, enum weir_account_item item,
                               uint64_t asked, const char *why);

/** The last such reason; "": none. @return borrowed until the next one */
const char *weir_session_last_refusal(const struct weir_session *session);

/**
 * Find the function of the Driver API that sent the current operation; else the operation's name.
 * @param name WEIR_CALLER_NAME_BYTES of room. @return name
 */
const char *weir_session_caller(const struct weir_session *session, char *name);

/** How much more device memory the session may be charged, by its tenant's quotas and the limit
 * that its guest asked for. @thread the session's */
uint64_t weir_session_device_left(const struct weir_session *session, uint32_t device);

/** Like weir_session_charge(), for several items; a refusal of anything but memory is logged. */
CUresult weir_session_charge_all(struct weir_session *session, uint32_t device,
                                 const struct weir_amounts *amounts);

/**
 * Make a pool that divides this process's resources among tenants, such as descriptors.
 * @return the caller frees it with free(); NULL: out of memory
 * @thread main
 */
struct weir_account_pool *weir_worker_pool_create(void);
/** The worker's pool; NULL: nothing is divided. @thread any */
struct weir_account_pool *weir_worker_pool(const struct weir_worker *worker);
/** Ask the supervisor for more of the machine's memory, and wait for its answer. For struct
 * weir_account of a tenant with a page. @thread any */
void weir_tenant_ask(struct weir_account *account, enum weir_account_item item, uint64_t amount);

/**
 * The charge for host memory that a session maps for the GPU: pinned or registered.
 * @param guarded  its pages may vanish (state/bus_guard.h).
 */
static inline struct weir_amounts weir_host_memory_cost(uint64_t bytes, bool guarded)
{
    /* The mapping splits the one that it replaces, so it counts as two. */
    return (struct weir_amounts){.of = {[WEIR_ACCOUNT_PINNED_MEMORY] = bytes,
                                        [WEIR_ACCOUNT_MAPPINGS] = 2,
                                        [WEIR_ACCOUNT_BUS_GUARDS] = guarded}};
}

/** Count device memory that the session has got, or given back. */
void weir_session_hold(struct weir_session *session, uint32_t device, uint64_t bytes);
void weir_session_let_go(struct weir_session *session, uint32_t device, uint64_t bytes);

/** Count device memory of another program that the session has opened, or closed. */
void weir_session_opens(struct weir_session *session, uint64_t bytes);
void weir_session_closes(struct weir_session *session, uint64_t bytes);

/** Count host memory that the session has pinned or registered, or released. */
void weir_session_pins(struct weir_session *session, uint64_t bytes);
void weir_session_unpins(struct weir_session *session, uint64_t bytes);

/** Count managed memory that has no room on a device. @param bytes  negative: less of it */
void weir_session_lacks_room(struct weir_session *session, int64_t bytes);
uint64_t weir_session_lacking_room(const struct weir_session *session);

/** Reduce the size of a device that is shown to the guest to the limit that it asked for. */
void weir_session_limit_info(const struct weir_session *session, uint32_t device,
                             uint64_t *free_bytes, uint64_t *total_bytes);

/** Take the refusals that were not reported yet, to report them. @thread any */
uint64_t weir_refusals_take(struct weir_tenant *tenant, enum weir_account_item item);

/** Report an event to the supervisor; the tenant's part of the message is filled in. @thread any */
void weir_event_tell(struct weir_worker *worker, const struct weir_tenant *tenant,
                     struct weir_link_event event);

/** Report an event of a session, unless it is a monitor. @thread any */
void weir_session_event(const struct weir_session *session, enum weir_event_kind kind,
                        const char *why);
