/*
 * Managed memory that moves between the program and the device (docs/design/managed.md).
 *
 * A managed chunk is device memory at an address of the window, and a file that the program has
 * mapped there. The program passes a userfaultfd for its address space, and a thread of the session
 * serves the faults of those mappings.
 *
 * For the session's thread, unless a function says otherwise.
 */
#pragma once

#include "host_backend/worker/state/session.h"
#include "proto/wire/op_kinds.h"
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
/** Stop serving faults: the program finds what its pages hold. Ranges must have been removed. */
void weir_managed_end(struct weir_session *session);

/**
 * Make a file for the program, as large as a chunk of device memory, which is zero.
 * @param ret_fd  the file; the caller closes it.
 * @return CUDA_SUCCESS, CUDA_ERROR_NOT_SUPPORTED (not begun), CUDA_ERROR_OUT_OF_MEMORY, the
 * driver's
 */
CUresult weir_managed_add(struct weir_session *session, struct weir_host_chunk *chunk, int *ret_fd);
/**
 * Make such a file for a part of a __managed__ variable. The variable's device memory stays where
 * the driver has put it, and the program finds its bytes.
 * @param owner  the module or library whose memory this is, as the caller has seen.
 * @param address, bytes  whole pages, and a multiple of WEIR_BLOCK_BYTES.
 * @return as above; CUDA_ERROR_INVALID_VALUE (some of it has a file)
 */
CUresult weir_managed_add_variable(struct weir_session *session, const void *owner,
                                   uint64_t address, uint64_t bytes, int *ret_fd);
/** Remove the variables of a module or library that goes; NULL: all. Accepts any object. */
void weir_managed_remove_variables(struct weir_session *session, const void *owner);
/** The program has mapped a file at `base`, where its chunk or variable begins.
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (nothing begins there, or it is not mapped) */
CUresult weir_managed_watch(struct weir_session *session, uint64_t base);
/** The chunk goes, or is no longer managed. Accepts any chunk. */
void weir_managed_remove(struct weir_session *session, const struct weir_host_chunk *chunk);

/**
 * Work is about to be given that can reach managed memory in [address, address + bytes): find the
 * pages that the program must unmap before. Faults on them wait until weir_managed_taken().
 * @param bytes  0: all managed memory
 * @param bases, sizes  the runs of pages.
 * @param n  in: room; out: how many runs. If they fill the room, call this again.
 */
void weir_managed_take(struct weir_session *session, uint64_t address, uint64_t bytes,
                       uint64_t *bases, uint64_t *sizes, uint32_t *n);
/** The program has unmapped those runs: copy their bytes to the device before returning. */
CUresult weir_managed_taken(struct weir_session *session);
/** Copy the bytes of a range to the program's pages. They stay right on the device, too. */
CUresult weir_managed_fetch(struct weir_session *session, uint64_t address, uint64_t bytes);

/** The program has found out that work is done: copy what kernels have changed in MERGED blocks to
 * its pages before returning. */
CUresult weir_managed_merge(struct weir_session *session);

/**
 * Work is being given that can reach managed memory in [address, address + bytes); bytes 0: all.
 * Blocks that the program has got again since weir_managed_take(), because another of its threads
 * has touched them or a neighbour, become MERGED.
 */
void weir_managed_reached_slow(struct weir_session *session, uint64_t address, uint64_t bytes);
static inline void weir_managed_reached(struct weir_session *session, uint64_t address,
                                        uint64_t bytes)
{
    if (__builtin_expect(session->devices.managed != NULL, 0)) {
        weir_managed_reached_slow(session, address, bytes);
    }
}

/** Where the piece (pieces.h) begins that has this address; 0: no managed memory has it. */
uint64_t weir_managed_piece(const struct weir_session *session, uint64_t address);

/**
 * A kernel or a graph is about to be launched: what its arguments name is used, and may come to the
 * device. Waits for earlier work only if something is to move.
 * @param params  all that the kernel gets, or what the graph names, `bytes` of them.
 */
void weir_managed_launches_slow(struct weir_session *session, const void *params, size_t bytes);
static inline void weir_managed_launches(struct weir_session *session, const void *params,
                                         size_t bytes)
{
    if (__builtin_expect(session->devices.managed != NULL, 0)) {
        weir_managed_launches_slow(session, params, bytes);
    }
}

/* Addresses that a copy or a fill names; they may be of any memory. bytes 0: none. */
struct weir_managed_part {
    CUdeviceptr address;
    uint64_t bytes;
};

/**
 * A node of a graph is about to be made, or to be changed, that copies or fills these parts: their
 * pieces come to the device and stay there, since the driver keeps for such a node where its memory
 * was (docs/design/managed.md).
 * @return CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: a piece stays on the host, for want of room or
 *         because work is under way that does not end
 */
CUresult weir_managed_in_node_slow(struct weir_session *session,
                                   const struct weir_managed_part *parts, uint32_t n);
static inline CUresult weir_managed_in_node(struct weir_session *session,
                                            const struct weir_managed_part *parts, uint32_t n)
{
    return __builtin_expect(session->devices.managed != NULL, 0)
               ? weir_managed_in_node_slow(session, parts, n)
               : CUDA_SUCCESS;
}

/**
 * The program wants the pieces to lie there of which the range has at least half. Those that are to
 * lie on the host leave the device now, if no work is under way and the host has room, or else as
 * the first that make room.
 */
void weir_managed_place(struct weir_session *session, uint64_t address, uint64_t bytes,
                        enum weir_managed_place place);

/** How much managed memory lies on the device and could leave it. */
uint64_t weir_managed_on_device(const struct weir_session *session);
/**
 * Move managed memory off the device, the least recently used first.
 * @param bytes  at least so many, if there are so many.
 * @param most  no more than so many.
 * @return how many have left; fewer also if work is under way, or the host has no room
 */
uint64_t weir_managed_give_way(struct weir_session *session, uint64_t bytes, uint64_t most);
/** Do that if the session may not be charged `bytes` more of a device's memory. */
void weir_managed_make_room(struct weir_session *session, uint32_t device, uint64_t bytes);

/** The session's thread is about to wait for a record. It uses no stream until
 * weir_managed_resume(), so that the thread that serves faults may use them. */
void weir_managed_rest(struct weir_session *session);
void weir_managed_resume(struct weir_session *session);

/** A function of the guest has run in a stream: on return the work behind it sees what it wrote.
 * @thread any */
void weir_managed_function_ran(struct weir_session *session);
