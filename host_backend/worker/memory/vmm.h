/*
 * Virtual memory management for guests: memory without an address (struct weir_vmm_alloc), and a
 * session's reservations and mappings of it.
 *
 * Memory lives while something refers to it: a session's handle, a mapping, an exported descriptor
 * that is open somewhere (memory/export.c). It is cleared before any guest can read it: where it
 * is first made accessible, or, if it is exported before that, then.
 *
 * Source: docs/design/vmm.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_VMM_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_VMM_H

#include "base/account.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/state/object.h"
#include "proto/cuda_abi.h"

struct weir_session;
struct weir_tenant;
struct weir_vmm_area;
struct weir_worker;

struct weir_vmm_alloc {
    struct weir_tenant *tenant;
    uint64_t id, bytes;
    uint64_t cleared_bytes; /* cleared from the beginning on; all before a second session sees it */
    struct weir_amounts charged;
    uint32_t handle_types; /* handle types that the memory may be exported as */
    uint32_t device;       /* index of the worker's device that the memory lies on */
    CUmemGenericAllocationHandle memory;
    bool kept;                         /* the supervisor holds a descriptor */
    bool published;                    /* this worker or another has put it into the directory */
    uint8_t key[WEIR_ENTRY_KEY_BYTES]; /* key in the directory */
    uint32_t refs;                     /* under the tenant's lock */
};

/* The object behind a guest's handle. */
struct weir_host_vmm_handle {
    struct weir_object o;
    struct weir_vmm_alloc *alloc; /* a reference */
    bool imported;
};

/** Make memory with one reference, charged to the session's tenant. @thread the session's */
CUresult weir_vmm_alloc_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                               uint32_t handle_types, struct weir_vmm_alloc **ret_alloc);
/**
 * Memory of another worker, with one reference. It is not charged again.
 * @param token  of a guest's descriptor.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (none, or of another tenant), as
 *         weir_ipc_memory_import()
 * @thread a session's
 */
CUresult weir_vmm_alloc_import(struct weir_tenant *tenant, const uint8_t token[16],
                               struct weir_vmm_alloc **ret_alloc);
/** Drop a reference; the last releases the memory. @thread any with the context current */
void weir_vmm_alloc_put(struct weir_vmm_alloc *alloc);
/** Clear what no guest has seen yet, through a mapping of our own. stream: of its device */
CUresult weir_vmm_alloc_clear(struct weir_vmm_alloc *alloc, CUstream stream);

/** A worker's part: the addresses that its sessions reserve. NULL: out of memory. @thread main */
struct weir_vmm_area *weir_vmm_area_create(void);
/** No session may be left. Accepts NULL. @thread main */
void weir_vmm_area_destroy(struct weir_vmm_area *area);

/** Reserve addresses for a session. alignment 0: the granularity. @thread owner */
CUresult weir_session_vmm_reserve(struct weir_session *session, uint64_t bytes, uint64_t alignment,
                                  uint64_t hint, uint64_t *ret_base);
CUresult weir_session_vmm_unreserve(struct weir_session *session, uint64_t base);
/** Map the first bytes of alloc; takes a reference of its own. @thread owner */
CUresult weir_session_vmm_map(struct weir_session *session, uint64_t base, uint64_t bytes,
                              struct weir_vmm_alloc *alloc);
CUresult weir_session_vmm_unmap(struct weir_session *session, uint64_t base, uint64_t bytes);
CUresult weir_session_vmm_access(struct weir_session *session, uint64_t base, uint64_t bytes,
                                 uint32_t flags);
/** Have nothing in the range that may only be read: for the session's end. @thread owner */
bool weir_session_vmm_make_writable(struct weir_session *session, uint64_t base, uint64_t bytes);
/** Undo all mappings and reservations: the session's end. No work uses them. @thread owner */
void weir_session_vmm_finish(struct weir_session *session);

/** What a session's object held is given up. */
void weir_vmm_handle_drop(struct weir_session *session, struct weir_host_vmm_handle *handle);

/* export.c */

/**
 * Make a descriptor for other processes of the tenant.
 * @param alloc   gets one more reference until the last copy of the descriptor is closed; or NULL.
 * @param name    of a pool when alloc is NULL: what weir_export_find() tells; 16 bytes.
 * @param ret_fd  gives it.
 */
CUresult weir_export_create(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc,
                            const uint8_t name[16], int *ret_fd);
/**
 * The memory of a token, with a reference, or the name of its pool: of this worker or another.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (none, or of another tenant), as
 *         weir_directory_find(), as weir_vmm_alloc_import()
 * @thread a session's
 */
CUresult weir_export_find_alloc(struct weir_tenant *tenant, const uint8_t token[16],
                                struct weir_vmm_alloc **ret_alloc);
CUresult weir_export_find_name(struct weir_tenant *tenant, const uint8_t token[16],
                               uint8_t ret_name[16]);
/** Descriptors were closed: forget their exports. @thread main */
void weir_exports_look(struct weir_worker *worker);
/** Forget all of a tenant that is being destroyed. */
void weir_exports_drop_all(struct weir_tenant *tenant);

#endif
