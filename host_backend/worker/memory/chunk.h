/* Memory that guests are granted, and device memory without an address (memory/chunk.c). */
#pragma once

#include "base/account.h"
#include "host_backend/config/link.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include "proto/wire/op_kinds.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_host_chunk;
struct weir_piece;
struct weir_region_end;
struct weir_session;
struct weir_tenant;
struct weir_worker;

/* State of unused device memory in the list of memory/spare.c. */
struct weir_spare {
    struct weir_host_chunk *next;
    const struct weir_session *session; /* the session that had the memory */
    uint64_t since_ns;
};

/* Device memory or pinned host memory, at one address in worker and guest. */
struct weir_host_chunk {
    struct weir_tenant *tenant;
    uint64_t id;
    uint64_t base, bytes;
    bool pinned;
    uint8_t device; /* index of the worker's device that the memory lies on */
    /* Device memory that is not managed; 0: it was put away (away.h). */
    CUmemGenericAllocationHandle memory;
    struct weir_piece *pieces; /* managed: memory/pieces.h; owned */
    struct weir_amounts charged;
    /* Pinned: the memfd; of a device: the driver's descriptor. -1: none is held here. Other workers
     * go on with it (rebuild/memory.c). */
    int fd;
    struct weir_region_end *region_end; /* pinned memory of a virtual machine: its session's end */
    uint64_t region_offset;             /* pinned, virtual machine: place in the region */
    bool kept;                          /* the supervisor holds a descriptor of it */
    bool published;                     /* this worker or another has published it */
    uint32_t refs;                      /* guarded by the tenant's lock */
    /* For device memory with a key for other processes (memory/ipc.h): */
    struct weir_host_chunk *next_shared; /* list of the tenant, under the tenant's lock */
    uint8_t key[WEIR_ENTRY_KEY_BYTES];
    bool shared;
    struct weir_spare spare; /* guarded by the lock of its list */
};

/**
 * Make a chunk with one reference: memory that reads as zero, or (not managed) that the session has
 * had before, mapped at an address of the window and charged to the session's tenant.
 * @param device  index of the worker's: where device memory lies; its context is current.
 * @param stream  of that device, for clearing; synchronized before it returns.
 * @param end     pinned memory comes out of this session's region; NULL: it is a file of its own.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, the driver's
 */
CUresult weir_chunk_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                           enum weir_grant_kind kind, CUstream stream, struct weir_region_end *end,
                           struct weir_host_chunk **ret_chunk);
/** The guest has the file, or needs none: close it if no other worker may need it. The mapping
 * stays. */
void weir_chunk_file_sent(struct weir_host_chunk *chunk);
/**
 * Make the chunk of another worker, which has ended or will, here again at its address.
 * @param as  base, bytes, pinned, device; fd is taken, also on failure.
 * @return as weir_chunk_create()
 */
CUresult weir_chunk_adopt(struct weir_session *session, const struct weir_host_chunk *as,
                          struct weir_host_chunk **ret_chunk);
/** Let these devices of the session (a bit each) access the chunk, too. @thread the session's */
void weir_chunk_reach(struct weir_session *session, const struct weir_host_chunk *chunk,
                      uint32_t users);
/** Release the memory of a session's chunk, whose addresses and charge stay. */
void weir_chunk_unback(struct weir_host_chunk *chunk);
/** Give such a chunk memory again, which holds anything. @return CUDA_SUCCESS, as
 * weir_memory_create() @thread the session's */
CUresult weir_chunk_back(struct weir_session *session, struct weir_host_chunk *chunk);
/** Unmap and release device memory that has no reference, and free the chunk. @thread any */
void weir_chunk_release(struct weir_host_chunk *chunk);
/** Drop a session's reference. The last one unmaps and releases the chunk, perhaps later
 * (put_off.h, spare.h). The device has no work with it. @thread the session's */
void weir_chunk_put(struct weir_session *session, struct weir_host_chunk *chunk);
/**
 * Give device memory that was granted to a session a key, if it has none yet.
 * @return CUDA_SUCCESS, as weir_ipc_memory_publish()
 * @thread the session's
 */
CUresult weir_chunk_share(struct weir_host_chunk *chunk);
/**
 * Find the chunk of a key and add a reference. If it belongs to another worker, it is mapped here.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (no such key, or of another tenant), as
 *         weir_chunk_create()
 * @thread a session's
 */
CUresult weir_chunk_open(struct weir_session *session, const uint8_t key[WEIR_ENTRY_KEY_BYTES],
                         struct weir_host_chunk **ret_chunk);
/**
 * Make the first chunk of a worker's first program in advance, in the window that the worker holds
 * (weir_worker_window_prepare()). The GPU clears it behind the stream's work.
 * @param stream  taken if the worker has such a chunk afterwards and the GPU does not clear it in
 *     time: weir_chunk_ready_cleared() says which.
 * @return CUDA_SUCCESS, or the driver's error
 * @thread main, before there are sessions
 */
CUresult weir_chunk_ready_make(struct weir_worker *worker, CUstream stream);
/** The caller may use the stream again, since the memory is cleared. @thread main, before any
 * session */
void weir_chunk_ready_cleared(struct weir_worker *worker);
/** Release the ready chunk if it was not taken. false: there was none. @thread any, without the
 * worker's lock
 */
bool weir_chunk_ready_drop(struct weir_worker *worker);

/**
 * Make device memory without an address, exportable if the driver can. @return CUDA_SUCCESS, the
 * driver's error; CUDA_ERROR_OUT_OF_MEMORY has been noted (weir_session_note_lack()).
 * @thread a session's
 */
CUresult weir_memory_create(struct weir_session *session, uint32_t device, uint64_t bytes,
                            CUmemGenericAllocationHandle *ret_memory);
/**
 * Give the supervisor a descriptor of the memory, under this id.
 * @param fd  a descriptor of the memory, or -1; gives the one that the worker holds itself, or -1.
 * @return false: it did not get one
 */
bool weir_memory_keep(struct weir_tenant *tenant, CUmemGenericAllocationHandle memory, uint64_t id,
                      uint64_t base, uint64_t bytes, int *fd);
/** May the worker hold this descriptor of memory, because another worker may need it? */
bool weir_memory_holds_file(const struct weir_worker *worker, int fd);
/** Let the supervisor close the descriptor. */
void weir_memory_drop(struct weir_worker *worker, uint64_t id);
