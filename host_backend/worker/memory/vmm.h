/*
 * Virtual memory management for guests: memory without an address (struct weir_vmm_alloc), and a
 * session's reservations and mappings of it.
 *
 * Memory lives while something refers to it: a session's handle, a mapping, an exported descriptor
 * that is open in any process (memory/export.c). It is cleared before any guest can read it: when
 * it is first made accessible, or exported if that is earlier.
 *
 * Source: docs/design/vmm.md
 */
#pragma once

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
    bool on_host; /* memory of the host (vmm_host.c); device and memory mean nothing */
    int file;     /* owned: of memory of the host; of a device: as of a chunk's fd, or -1 */
    uint64_t cleared_bytes; /* cleared from the start on; all before another session sees it */
    struct weir_amounts charged;
    uint32_t handle_types; /* handle types with which the memory may be exported */
    uint32_t device;       /* index of the worker's device that the memory lies on */
    CUmemGenericAllocationHandle memory;
    bool kept;      /* the supervisor holds a descriptor of it */
    bool seen;      /* others may have it, or have had it */
    uint32_t away;  /* number in the list of what is away (away.c); 0: it is not */
    bool published; /* this worker or another has published it */
    uint8_t key[WEIR_ENTRY_KEY_BYTES]; /* key in the directory */
    uint32_t refs;                     /* guarded by the tenant's lock */
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
 * Import memory of another worker, with one reference. It is not charged again.
 * @param token  the token of a guest's descriptor.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (unknown, or of another tenant), as
 *         weir_ipc_memory_import()
 * @thread a session's
 */
CUresult weir_vmm_alloc_import(struct weir_tenant *tenant, const uint8_t token[16],
                               struct weir_vmm_alloc **ret_alloc);
/**
 * Make the memory of another worker, which has ended or will, here again, with one reference.
 * @param as  bytes, cleared_bytes, handle_types, device; file is taken, also on failure.
 * @return as weir_vmm_alloc_create()
 * @thread the session's
 */
CUresult weir_vmm_alloc_adopt(struct weir_session *session, struct weir_vmm_alloc as,
                              struct weir_vmm_alloc **ret_alloc);
/** Gets the memory itself: weir_vmm_alloc_back(), or a file of the host. */
typedef CUresult (*weir_vmm_back_fn)(struct weir_session *session, struct weir_vmm_alloc *alloc);
/**
 * Charge the session's tenant, and make memory with one reference.
 * @param as  copied; `tenant`, `id` and `refs` are set here. `charged` is the cost.
 * @return CUDA_SUCCESS; as weir_session_charge_all(); what `back` returns; CUDA_ERROR_OUT_OF_MEMORY
 * @thread the session's
 */
CUresult weir_vmm_alloc_make(struct weir_session *session, const struct weir_vmm_alloc *as,
                             weir_vmm_back_fn back, struct weir_vmm_alloc **ret_alloc);
/** Release what only one session has; its mappings are gone. Charge and references stay. */
void weir_vmm_alloc_unback(struct weir_vmm_alloc *alloc);
/** Give it memory again, which holds anything. @return CUDA_SUCCESS, as weir_memory_create()
 * @thread the session's */
CUresult weir_vmm_alloc_back(struct weir_session *session, struct weir_vmm_alloc *alloc);
/** Drop a reference; the last releases the memory. @thread any with the context current */
void weir_vmm_alloc_put(struct weir_vmm_alloc *alloc);
/** Clear what no guest has seen yet, through a mapping of the worker's own. @param stream a stream
 * of its device */
CUresult weir_vmm_alloc_clear(struct weir_vmm_alloc *alloc, CUstream stream);

/** Make a worker's table of the addresses that its sessions reserve. NULL: out of memory. @thread
 * main */
struct weir_vmm_area *weir_vmm_area_create(void);
/** No session may be left. Accepts NULL. @thread main */
void weir_vmm_area_destroy(struct weir_vmm_area *area);

/**
 * Reserve addresses for a session.
 * @param alignment  0: the granularity.
 * @param held       they may get memory of the host: the driver reserves them once memory of a
 *                   device is mapped there.
 * @thread owner
 */
CUresult weir_session_vmm_reserve(struct weir_session *session, uint64_t bytes, uint64_t alignment,
                                  uint64_t hint, bool held, uint64_t *ret_base);
CUresult weir_session_vmm_unreserve(struct weir_session *session, uint64_t base);
/**
 * Map the first bytes of alloc, with a reference of its own.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
 *         CUDA_ERROR_NOT_SUPPORTED (memory of the host and of devices in one reservation), the
 *         driver's
 * @thread owner
 */
CUresult weir_session_vmm_map(struct weir_session *session, uint64_t base, uint64_t bytes,
                              struct weir_vmm_alloc *alloc);
CUresult weir_session_vmm_unmap(struct weir_session *session, uint64_t base, uint64_t bytes);
CUresult weir_session_vmm_access(struct weir_session *session, uint64_t base, uint64_t bytes,
                                 uint32_t flags);
/**
 * Map a piece of the worker's first memory of the host and unmap it, as guests will. Programs that
 * are refused at once do without (NCCL); what fails later ends them.
 * @return CUDA_SUCCESS, as weir_session_vmm_map()
 * @thread owner
 */
CUresult weir_session_vmm_try_host(struct weir_session *session, struct weir_vmm_alloc *alloc);
/** At the session's end: make all mappings in the range writable. @thread owner */
bool weir_session_vmm_make_writable(struct weir_session *session, uint64_t base, uint64_t bytes);
/** At the session's end: undo all mappings and reservations. No work uses them. @thread owner */
void weir_session_vmm_finish(struct weir_session *session);

/** Drop the reference of a guest's handle. */
void weir_vmm_handle_drop(struct weir_session *session, struct weir_host_vmm_handle *handle);

/* vmm_host.c */

/**
 * Make memory of the host with one reference, charged to the session's tenant as pinned memory. The
 * worker's first one shows whether the driver can map it.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED
 * @thread the session's
 */
CUresult weir_vmm_host_create(struct weir_session *session, uint64_t bytes, uint32_t handle_types,
                              struct weir_vmm_alloc **ret_alloc);
/**
 * Make the memory of the host of another worker, which has ended or will, here again, with one
 * reference.
 * @param fd  its file; taken, also on failure.
 * @return as weir_vmm_host_create(); CUDA_ERROR_INVALID_VALUE (not such a file)
 * @thread the session's
 */
CUresult weir_vmm_host_again(struct weir_session *session, uint64_t bytes, uint32_t handle_types,
                             int fd, struct weir_vmm_alloc **ret_alloc);
/**
 * Use a file that another worker has made for memory of the host.
 * @param fd  becomes the alloc's; an error closes it.
 * @return CUDA_SUCCESS; CUDA_ERROR_INVALID_VALUE (not such a file); CUDA_ERROR_OUT_OF_MEMORY (the
 *         tenant may have no descriptor more)
 */
CUresult weir_vmm_host_adopt(struct weir_vmm_alloc *alloc, int fd);
/** Map memory of the host at addresses that the worker holds, and register it. @return as
 * weir_session_vmm_map() @thread owner */
CUresult weir_vmm_host_map(struct weir_session *session, uint64_t base, uint64_t bytes,
                           const struct weir_vmm_alloc *alloc);
/**
 * Undo it, perhaps later (put_off.h); the addresses are held again.
 * @param alloc  the mapping's reference to it is dropped.
 * @thread owner
 */
void weir_vmm_host_unmap(struct weir_session *session, uint64_t base, uint64_t bytes,
                         struct weir_vmm_alloc *alloc);

/* export.c */

/**
 * Make a descriptor for other processes of the tenant.
 * @param alloc   gets one more reference until the last copy of the descriptor is closed; or NULL.
 * @param name    name of a pool, 16 bytes, if alloc is NULL: weir_export_find() returns it.
 * @param ret_fd  gives it.
 */
CUresult weir_export_create(struct weir_tenant *tenant, struct weir_vmm_alloc *alloc,
                            const uint8_t name[16], int *ret_fd);
/**
 * Find the memory of a token, and add a reference; or the name of its pool. Either may belong to
 * another worker.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (unknown, or of another tenant), as
 *         weir_directory_find(), as weir_vmm_alloc_import()
 * @thread a session's
 */
CUresult weir_export_find_alloc(struct weir_tenant *tenant, const uint8_t token[16],
                                struct weir_vmm_alloc **ret_alloc);
CUresult weir_export_find_name(struct weir_tenant *tenant, const uint8_t token[16],
                               uint8_t ret_name[16]);
/** Guests have closed descriptors: drop their exports. @thread main */
void weir_exports_look(struct weir_worker *worker);
/** Drop all exports of a tenant that is being destroyed. */
void weir_exports_drop_all(struct weir_tenant *tenant);
