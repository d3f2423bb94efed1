/*
 * Charges for a session's memory: to the tenant's account, and, for each device, against the limit
 * that the session's guest asked for (struct weir_limit_wish). A wish can only reduce the tenant's
 * quota. Refusals are counted, logged and reported to the supervisor, which makes events of them.
 *
 * Owner thread only, unless a function says otherwise.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_LIMITS_H
#define WEIR_HOST_BACKEND_WORKER_STATE_LIMITS_H

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
 * Charge memory to the session's tenant: the one check of the tenant's quota, and of what the guest
 * itself asked to be held to of a device. weir_account_release() gives it back.
 *
 * @param device  index of the worker's; not looked at for pinned memory.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_session_charge(struct weir_session *session, uint32_t device,
                             enum weir_account_item item, uint64_t bytes);

/**
 * What a session does not get for its tenant's quota: to be tried again, or else counted and
 * logged (state/ending.h).
 * @return CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_session_over_quota(struct weir_session *session, enum weir_account_item item,
                                 uint64_t bytes);

/**
 * Note for the program's user why memory was refused to the operation in hand; the guest asks for
 * it (memory_refused).
 * @param asked  in the item's unit; 0: not known.
 * @param why    borrowed for the call.
 */
void weir_session_note_refusal(struct weir_session *session, enum weir_account_item item,
                               uint64_t asked, const char *why);

/** What was noted last; "": nothing. @return borrowed until the next note */
const char *weir_session_last_refusal(const struct weir_session *session);

/** The function of the Driver API that sent the operation in hand; else the operation's name.
 * @param name  WEIR_CALLER_NAME_BYTES of room. @return name */
const char *weir_session_caller(const struct weir_session *session, char *name);

/** Like weir_session_charge(), for several items; a refusal of anything but memory is logged. */
CUresult weir_session_charge_all(struct weir_session *session, uint32_t device,
                                 const struct weir_amounts *amounts);

/**
 * Divide among tenants what this process has once, such as descriptors.
 * @return owned by the caller: free(); NULL: out of memory
 * @thread main
 */
struct weir_account_pool *weir_worker_pool_create(void);
/** A worker's; NULL: nothing is divided. @thread any */
struct weir_account_pool *weir_worker_pool(const struct weir_worker *worker);
/** Ask the supervisor for more of the machine's memory, and wait for its answer: for struct
 * weir_account, of a tenant with a page. @thread any */
void weir_tenant_ask(struct weir_account *account, enum weir_account_item item, uint64_t amount);

/**
 * What host memory is charged as that a session maps for the GPU: pinned or registered.
 * @param guarded  its pages can be taken away (state/bus_guard.h).
 */
static inline struct weir_amounts weir_host_memory_cost(uint64_t bytes, bool guarded)
{
    /* The mapping splits the one that it replaces, so it counts as two. */
    return (struct weir_amounts){.of = {[WEIR_ACCOUNT_PINNED_MEMORY] = bytes,
                                        [WEIR_ACCOUNT_MAPPINGS] = 2,
                                        [WEIR_ACCOUNT_BUS_GUARDS] = guarded}};
}

/** Count device memory that it has got, or given back. */
void weir_session_hold(struct weir_session *session, uint32_t device, uint64_t bytes);
void weir_session_let_go(struct weir_session *session, uint32_t device, uint64_t bytes);

/** Count host memory that it has pinned or registered, or no longer has. */
void weir_session_pins(struct weir_session *session, uint64_t bytes);
void weir_session_unpins(struct weir_session *session, uint64_t bytes);

/** Lower what is shown of a device to the wish. */
void weir_session_limit_info(const struct weir_session *session, uint32_t device,
                             uint64_t *free_bytes, uint64_t *total_bytes);

/** Take the refusals that were not reported yet: the caller reports them. @thread any */
uint64_t weir_refusals_take(struct weir_tenant *tenant, enum weir_account_item item);

/** Tell the supervisor what happened; the tenant's part of the message is filled in. @thread any */
void weir_event_tell(struct weir_worker *worker, const struct weir_tenant *tenant,
                     struct weir_link_event event);

/** Tell it about a session that is no monitor's. @thread any */
void weir_session_event(const struct weir_session *session, enum weir_event_kind kind,
                        const char *why);

#endif
