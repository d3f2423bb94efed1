/*
 * Managed memory that moves between the program and the device (docs/design/managed.md).
 *
 * A managed chunk is device memory at an address of the window, and a file that the program has
 * mapped there. The program passes a userfaultfd for its address space, and a thread of the session
 * serves the faults of those mappings.
 *
 * For the session's thread, unless a function says otherwise.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_MANAGED_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_MANAGED_H

#include "host_backend/worker/state/session.h"
#include <stdint.h>

struct weir_host_chunk;
struct weir_managed;

/**
 * Serve a program's faults from now on.
 * @param fd  a userfaultfd that was never used; taken in any case.
 * @return CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED (it cannot do what this needs, or there is one
 *         already), CUDA_ERROR_OUT_OF_MEMORY, the driver's
 */
CUresult weir_managed_begin(struct weir_session *session, int fd);
/** Serve no more: the program finds what its pages hold. Ranges must have been removed. */
void weir_managed_end(struct weir_session *session);

/**
 * Give a chunk of device memory, which is zero, a file of as many bytes for the program.
 * @param ret_fd  the file; the caller closes it.
 * @return CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED (not begun), CUDA_ERROR_OUT_OF_MEMORY, the
 *         driver's
 */
CUresult weir_managed_add(struct weir_session *session, struct weir_host_chunk *chunk, int *ret_fd);
/**
 * Give a part of a __managed__ variable such a file. On the device's side its bytes lie where the
 * driver has put them, and they are what the program finds.
 * @param owner           the module or library whose memory this is, as the caller has seen.
 * @param address, bytes  whole pages, and a multiple of WEIR_BLOCK_BYTES.
 * @return as above; CUDA_ERROR_INVALID_VALUE (some of it has a file)
 */
CUresult weir_managed_add_variable(struct weir_session *session, const void *owner,
                                   uint64_t address, uint64_t bytes, int *ret_fd);
/** The variables of a module or library go; NULL: all. Accepts any object. */
void weir_managed_remove_variables(struct weir_session *session, const void *owner);
/** The program has mapped the file of what begins at `base` there. @return CUDA_SUCCESS,
 * CUDA_ERROR_INVALID_VALUE (nothing begins there, or it has not) */
CUresult weir_managed_watch(struct weir_session *session, uint64_t base);
/** The chunk goes, or is no longer managed. Accepts any chunk. */
void weir_managed_remove(struct weir_session *session, const struct weir_host_chunk *chunk);

/**
 * Work is about to be given that can reach managed memory in [address, address + bytes): what of it
 * the program must unmap. Until weir_managed_taken() its faults wait.
 * @param bytes  0: all managed memory
 * @param bases, sizes  the runs of pages. @param n  in: room; out: how many. If that is all, ask
 * again.
 */
void weir_managed_take(struct weir_session *session, uint64_t address, uint64_t bytes,
                       uint64_t *bases, uint64_t *sizes, uint32_t *n);
/** The program has unmapped those runs: their bytes go to the device, and are there on return. */
CUresult weir_managed_taken(struct weir_session *session);
/** Bring the bytes of a range to the program's pages, which stay right on the device, too. */
CUresult weir_managed_fetch(struct weir_session *session, uint64_t address, uint64_t bytes);

/** The program knows that work is done: what kernels have changed of merged blocks is in its pages
 * on return. */
CUresult weir_managed_merge(struct weir_session *session);

/**
 * Work is being given that can reach managed memory in [address, address + bytes); bytes 0: all.
 * What the program has of it all the same, because another of its threads has touched it or a
 * neighbour since managed_take, is merged.
 */
void weir_managed_reached_slow(struct weir_session *session, uint64_t address, uint64_t bytes);
static inline void weir_managed_reached(struct weir_session *session, uint64_t address,
                                        uint64_t bytes)
{
    if (__builtin_expect(session->devices.managed != NULL, 0)) {
        weir_managed_reached_slow(session, address, bytes);
    }
}

/**
 * A kernel is about to be launched: what its arguments name is used, and may come to the device.
 * Waits for earlier work only if something is to move.
 * @param params  all that the kernel gets, `bytes` of them.
 */
void weir_managed_launches_slow(struct weir_session *session, const void *params, size_t bytes);
static inline void weir_managed_launches(struct weir_session *session, const void *params,
                                         size_t bytes)
{
    if (__builtin_expect(session->devices.managed != NULL, 0)) {
        weir_managed_launches_slow(session, params, bytes);
    }
}

/** How much managed memory lies on the device and could leave it. */
uint64_t weir_managed_on_device(const struct weir_session *session);
/**
 * Have managed memory leave the device, what has not been used for longest first.
 * @param bytes  at least so many, where there are. @param most  no more than so many.
 * @return how many have left; less also: work is under way, or the host has no room
 */
uint64_t weir_managed_give_way(struct weir_session *session, uint64_t bytes, uint64_t most);
/** Do so if the session may not be charged `bytes` more of a device's memory. */
void weir_managed_make_room(struct weir_session *session, uint32_t device, uint64_t bytes);

/** The session's thread is about to wait for a record, and touches no stream until it has resumed:
 * the thread that serves faults may meanwhile. */
void weir_managed_rest(struct weir_session *session);
void weir_managed_resume(struct weir_session *session);

/** A function of the guest's has run in a stream: what it wrote is there for the work behind it.
 * @thread any */
void weir_managed_function_ran(struct weir_session *session);

#endif
