/*
 * What processes of a tenant share: memory, by its key, and events. Sessions of this worker find
 * shared objects in the tenant, those of its other workers through the supervisor
 * (memory/directory.h).
 *
 * Source: docs/design/ipc.md
 */
#pragma once

#include "base/account.h"
#include "host_backend/worker/memory/directory.h"
#include "proto/cuda_abi.h"

struct weir_session;

/* The 64 bytes that a guest gets to give to its other processes. */
struct weir_ipc_handle {
    uint8_t key[WEIR_ENTRY_KEY_BYTES]; /* key of a chunk or an event */
    uint64_t offset, bytes;            /* place of an allocation in its chunk */
    uint8_t unused[16];
};
_Static_assert(sizeof(struct weir_ipc_handle) == CU_IPC_HANDLE_SIZE, "as CUDA's handles");

/**
 * Publish memory that the tenant has charged.
 *
 * @param memory   of a device.
 * @param file     of memory of the host, where entry->device is WEIR_ENTRY_ON_HOST; borrowed.
 * @param entry    has device, bytes and handle_types; kind and key are filled in.
 * @param charged  the memory's part becomes 0: the supervisor has it from now on.
 * @return as weir_directory_publish(), or an error of the driver
 * @thread a session's; one at a time for the same memory
 */
CUresult weir_ipc_memory_publish(struct weir_tenant *tenant, CUmemGenericAllocationHandle memory,
                                 int file, struct weir_link_entry *entry,
                                 struct weir_amounts *charged);

/**
 * Get memory of another worker. weir_directory_withdraw() gives it up.
 *
 * @param entry       kind (of memory, or of a descriptor for it) and key; the rest, and kind and
 *                    key of the memory, are filled in.
 * @param ret_memory  gives it; unchanged for memory of the host.
 * @param ret_file    gives the file of memory of the host, for the caller to close; NULL: only
 *                    memory of a device will do.
 * @return as weir_directory_find(), or an error of the driver
 * @thread a session's
 */
CUresult weir_ipc_memory_import(struct weir_tenant *tenant, struct weir_link_entry *entry,
                                CUmemGenericAllocationHandle *ret_memory, int *ret_file);

/* An event that several sessions of a tenant may share. */
struct weir_ipc_event {
    struct weir_ipc_event *next; /* list of the tenant, under its lock, once the event has a key */
    uint8_t key[WEIR_ENTRY_KEY_BYTES];
    CUevent native;
    struct weir_amounts charged;
    uint32_t refs; /* guarded by the tenant's lock */
    bool has_key;
    bool is_published; /* this worker published it */
};

/**
 * Make an interprocess event with one reference. @thread a session's
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or an error of the driver
 */
CUresult weir_ipc_event_create(struct weir_session *session, struct weir_ipc_event **ret_event);
/** Give the event a key, if it has none yet. @return as weir_directory_publish() @thread its
 * session's */
CUresult weir_ipc_event_share(struct weir_session *session, struct weir_ipc_event *event);
/**
 * Find the event of a key, and add a reference.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (no such key, or of another tenant), or an error
 *         of the driver
 * @thread a session's, in the context that is to use it
 */
CUresult weir_ipc_event_open(struct weir_session *session, const uint8_t key[WEIR_ENTRY_KEY_BYTES],
                             struct weir_ipc_event **ret_event);
/** Drop a reference; the last destroys the event. @return an error of the driver @thread a
 * session's */
CUresult weir_ipc_event_put(struct weir_session *session, struct weir_ipc_event *event);
