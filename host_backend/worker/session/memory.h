/*
 * The memory of a session: what it may name (session/memory.c), and what that is charged to
 * (session/limits.c): the tenant's account, and what the session holds of each device against the
 * limit that its guest asked for (struct weir_limit_wish). A wish can only make less of the
 * tenant's quota.
 *
 * Owner thread only, unless a function says otherwise.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_MEMORY_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_MEMORY_H

#include "base/account.h"
#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_holdings;
struct weir_session;

/** A session's part. NULL: out of memory. */
struct weir_holdings *weir_holdings_create(void);
/** Nothing may be held. Accepts NULL. */
void weir_holdings_destroy(struct weir_holdings *holdings);

/** From now on the guest may name this memory, too. @param owner  what it goes away with */
enum weir_status weir_session_admit(struct weir_session *session, uint64_t address, uint64_t bytes,
                                    const void *owner) WEIR_MUST_CHECK;
/** An owner goes. */
void weir_session_unadmit(struct weir_session *session, const void *owner);
/** The same for an owner that has one range, from address on. */
void weir_session_unadmit_at(struct weir_session *session, uint64_t address, const void *owner);

/** As weir_session_check_dptr(), and the memory may be written. */
CUresult weir_session_check_write(struct weir_session *session, uint64_t address, uint64_t bytes);

/** Is it the guest's own memory that it has registered? @param address  for the GPU */
bool weir_session_registered(const struct weir_session *session, uint64_t address);

/** Let a device that the session has not used before reach all device memory that it may name. */
void weir_session_memory_reach(struct weir_session *session, uint32_t device);

/** The current device's stream for clearing memory. */
CUresult weir_session_work_stream(struct weir_session *session, CUstream *ret_stream);
/** Destroy those of all devices. */
void weir_session_work_streams_end(struct weir_session *session);
/** Ask the driver if the contexts live: a dead one is the worker's end (weir_session_fault()). */
void weir_session_look_at_contexts(struct weir_session *session);

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
 * logged (session/ending.h).
 * @return CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult weir_session_over_quota(struct weir_session *session, enum weir_account_item item,
                                 uint64_t bytes);

/** The same for several items; a refusal of something else than memory is logged. */
CUresult weir_session_charge_all(struct weir_session *session, uint32_t device,
                                 const struct weir_amounts *amounts);

/**
 * Divide among tenants what this process has once, such as descriptors.
 * @return owned by the caller: free(); NULL: out of memory
 * @thread main
 */
struct weir_account_pool *weir_worker_pool_create(void);
/** Ask the supervisor for more of the machine's memory, and wait for its answer: for struct
 * weir_account, of a tenant with a page. @thread any */
void weir_tenant_ask(struct weir_account *account, enum weir_account_item item, uint64_t amount);

/**
 * What host memory is charged as that a session maps for the GPU: pinned or registered.
 * @param guarded  its pages can be taken away (session/bus_guard.h).
 */
static inline struct weir_amounts weir_host_memory_cost(uint64_t bytes, bool guarded)
{
    /* Its mapping splits the one in whose place it comes. */
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

#endif
