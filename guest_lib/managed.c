/*
 * __managed__ variables: memory that the program reads and writes by the address that kernels use.
 *
 * The driver places such a variable in the worker. When the program first asks for its address, the
 * guest maps memory at that address. The whole blocks of a variable move as allocations do
 * (moves.h), if those can. The rest, less than two blocks, is a mirror: private memory whose bytes
 * the guest copies to the device before work is posted, and back after a synchronising call.
 * concurrentManagedAccess = 0 allows this: the program touches managed memory only while no kernel
 * of its own runs. Only bytes that differ from the device's known content are copied, so a program
 * that only reads costs one copy back per synchronisation.
 */
#include "base/thread.h"
#include "guest_lib/module.h"

#include "base/addresses.h"
#include "base/log.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A mirror, or a part of a variable that moves. */
struct mirror {
    uint64_t address;
    uint64_t bytes;
    uint8_t *known; /* the device's content, as far as the guest knows it; NULL: the part moves */
    const void *owner;
    struct mirror *next;
};

/* A page stays mapped while a mirror lies in it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards mirrors */
static struct mirror *mirrors;
static bool stale; /* work was posted since the last pull; guarded by lock */
uint32_t weir_managed_count;

static uint64_t page_floor(uint64_t address)
{
    return address & ~(uint64_t)(sysconf(_SC_PAGESIZE) - 1);
}

static bool page_used_locked(uint64_t page)
{
    return WEIR_LINKED(m, mirrors,
                       page >= page_floor(m->address) && page < m->address + m->bytes) != NULL;
}

static bool in_window(uint64_t page)
{
    return page >= weir_guest.window_base &&
           page - weir_guest.window_base < weir_guest.window_bytes;
}

/* Unmap pages. Addresses inside the tenant's window stay reserved. */
static void unmap_pages(uint64_t page, size_t bytes)
{
    if (!in_window(page)) {
        munmap((void *)(uintptr_t)page, bytes);
    } else if (!weir_addresses_reclaim(page, bytes)) {
        weir_log_warn("guest: a managed variable's pages stay mapped");
    }
}

static CUresult map_pages_locked(uint64_t address, uint64_t bytes)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (uint64_t page = page_floor(address); page < address + bytes; page += page_bytes) {
        if (page_used_locked(page)) {
            continue;
        }
        void *wanted = (void *)(uintptr_t)page;
        void *mapped =
            mmap(wanted, page_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | (in_window(page) ? MAP_FIXED : MAP_FIXED_NOREPLACE),
                 -1, 0);
        if (mapped == MAP_FAILED || mapped != wanted) {
            if (mapped != MAP_FAILED) {
                munmap(mapped, page_bytes);
            }
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

/* Copy between the device and staging, and wait. The mirror is ordinary memory. */
static CUresult transfer_on(struct weir_guest_stream *stream, uint64_t address, uint8_t *data,
                            uint64_t bytes, bool to_device)
{
    CUresult result = CUDA_SUCCESS;
    const uint64_t piece_max = weir_staging_max_bytes();
    for (uint64_t at = 0; result == CUDA_SUCCESS && at < bytes; at += piece_max) {
        uint64_t piece = bytes - at < piece_max ? bytes - at : piece_max;
        uint64_t arena;
        result = weir_staging_take(piece, &arena);
        if (result != CUDA_SUCCESS) {
            break;
        }
        if (to_device) {
            result = weir_staging_write(arena, data + at, piece);
        }
        const struct weir_op_copy_in in = {
            .dst = to_device ? address + at : arena,
            .src = to_device ? arena : address + at,
            .bytes = piece,
            .rest = bytes - at - piece,
            .s = stream->handle,
            .flags = to_device ? 2 : 1,
        };
        weir_guest_stream_work_begin(stream);
        WEIR_THEN(result, weir_post_copy(weir_guest_channel(), &in));
        result = weir_guest_stream_work_end(stream, result);
        struct weir_stream_point point = weir_guest_stream_here(stream);
        WEIR_THEN(result, weir_guest_stream_wait(&point));
        if (result == CUDA_SUCCESS && !to_device) {
            result = weir_staging_read(arena, data + at, piece);
        }
        weir_staging_free_after(arena, &point);
    }
    return result;
}

/*
 * A hidden context for copies, destroyed with the primary one. cudart asks for its managed
 * variables before any context is current or retained. It is also used during a capture, which
 * might forbid work in the legacy stream.
 */
static struct weir_guest_ctx *own; /* guarded by lock */

static CUresult own_stream_locked(struct weir_guest_stream **ret_stream)
{
    if (!own) {
        struct weir_guest_ctx *ctx;
        WEIR_TRY(weir_ctx_new(0, false, 0, &ctx));
        WEIR_TRY(weir_ctx_activate(ctx));
        own = ctx;
    }
    *ret_stream = own->legacy;
    return CUDA_SUCCESS;
}

static CUresult transfer(uint64_t address, uint8_t *data, uint64_t bytes, bool to_device)
{
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(CU_STREAM_LEGACY, &stream);
    if (result == CUDA_ERROR_INVALID_CONTEXT ||
        (result == CUDA_SUCCESS && weir_guest_capturing())) {
        result = own_stream_locked(&stream);
    }
    return result == CUDA_SUCCESS ? transfer_on(stream, address, data, bytes, to_device) : result;
}

static CUresult pull_locked(struct mirror *mirror)
{
    WEIR_TRY(transfer(mirror->address, mirror->known, mirror->bytes, false));
    memcpy((void *)(uintptr_t)mirror->address, mirror->known, mirror->bytes);
    return CUDA_SUCCESS;
}

/* Make a mirror of a part whose pages are mapped. */
static CUresult mirror_locked(uint64_t address, uint64_t bytes, const void *owner)
{
    if (!bytes) {
        return CUDA_SUCCESS;
    }
    struct mirror *mirror = malloc(sizeof(*mirror));
    uint8_t *known = malloc(bytes);
    if (!mirror || !known) {
        free(mirror);
        free(known);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *mirror = (struct mirror){address, bytes, known, owner, mirrors};
    mirrors = mirror;
    __atomic_fetch_add(&weir_managed_count, 1, __ATOMIC_RELEASE);
    return pull_locked(mirror);
}

/* Map the host's file in the place of the part's pages. */
static CUresult map_file(uint64_t handle, uint64_t address, uint64_t bytes)
{
    const struct weir_op_managed_variable_in in = {handle, address, bytes};
    void *at = (void *)(uintptr_t)address;
    int fd;
    WEIR_TRY(weir_call_managed_variable(weir_guest_channel(), &in, NULL));
    WEIR_TRY(weir_channel_receive_fd(weir_guest_channel(), &fd));
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    return got == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : weir_moves_add(address, address, bytes);
}

/* Make a part of a variable move whose pages are mapped. @return false: nothing has changed */
static bool move_locked(uint64_t handle, uint64_t address, uint64_t bytes, const void *owner)
{
    struct mirror *part = bytes && weir_moves_begin() ? malloc(sizeof(*part)) : NULL;
    if (!part) {
        return false;
    }
    weir_mem_fd_lock();
    CUresult result = map_file(handle, address, bytes);
    weir_mem_fd_unlock();
    if (result != CUDA_SUCCESS) {
        (void)mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        free(part);
        return false;
    }
    *part = (struct mirror){address, bytes, NULL, owner, mirrors};
    mirrors = part;
    return true;
}

/* @param handle  the owner's. */
static CUresult add_variable_locked(uint64_t address, uint64_t bytes, uint64_t handle,
                                    const void *owner)
{
    uint64_t first = page_floor(address + (uint64_t)sysconf(_SC_PAGESIZE) - 1);
    uint64_t end = address + bytes;
    uint64_t moving = end > first ? (end - first) / WEIR_MOVES_BLOCK * WEIR_MOVES_BLOCK : 0;
    for (struct mirror *m = mirrors; m; m = m->next) {
        if (address - m->address < m->bytes) {
            return CUDA_SUCCESS; /* known */
        }
    }
    CUresult result = map_pages_locked(address, bytes);
    if (result != CUDA_SUCCESS || !move_locked(handle, first, moving, owner)) {
        return result == CUDA_SUCCESS ? mirror_locked(address, bytes, owner) : result;
    }
    WEIR_TRY(mirror_locked(address, first - address, owner));
    return mirror_locked(first + moving, end - first - moving, owner);
}

CUresult weir_module_note_global(struct weir_guest_ctx *ctx, uint64_t address, uint64_t bytes,
                                 bool managed, void *owner)
{
    WEIR_GUEST_KEEP_ERRNO;
    CUresult result = weir_mem_note_global(ctx, address, bytes, managed, owner);
    if (result != CUDA_SUCCESS || !managed || weir_guest.same_process || !bytes) {
        return result;
    }
    pthread_mutex_lock(&lock);
    result = add_variable_locked(address, bytes,
                                 ctx ? ((struct weir_guest_module *)owner)->handle
                                     : ((struct weir_library *)owner)->handle,
                                 owner);
    pthread_mutex_unlock(&lock);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        return result;
    }
    weir_log_warn("guest: the program cannot read a __managed__ variable, for something else lies "
                  "at its address; kernels can, address=%#llx bytes=%llu",
                  (unsigned long long)address, (unsigned long long)bytes);
    return CUDA_SUCCESS;
}

/* Are there mirrors, and not only memory that moves? */
static bool any(void)
{
    return __atomic_load_n(&weir_managed_count, __ATOMIC_RELAXED) !=
           __atomic_load_n(&weir_moves_count, __ATOMIC_RELAXED);
}

CUresult weir_managed_push_slow(void)
{
    CUresult result = CUDA_SUCCESS;
    if (!any()) {
        return result;
    }
    WEIR_LOCKED(&lock);
    for (struct mirror *m = mirrors; m && result == CUDA_SUCCESS && !stale; m = m->next) {
        const void *here = (const void *)(uintptr_t)m->address;
        if (m->known && memcmp(here, m->known, m->bytes) != 0) {
            memcpy(m->known, here, m->bytes);
            result = transfer(m->address, m->known, m->bytes, true);
        }
    }
    stale = true;
    return result;
}

CUresult weir_managed_pull_slow(void)
{
    CUresult result = CUDA_SUCCESS;
    if (!any()) {
        return result;
    }
    WEIR_LOCKED(&lock);
    for (struct mirror *m = mirrors; m && result == CUDA_SUCCESS && stale; m = m->next) {
        result = m->known ? pull_locked(m) : CUDA_SUCCESS;
    }
    stale = stale && result != CUDA_SUCCESS;
    return result;
}

/* Unmap a mirror that was removed from the list. */
static void unmap_mirror_locked(const struct mirror *mirror)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (uint64_t page = page_floor(mirror->address); page < mirror->address + mirror->bytes;
         page += page_bytes) {
        if (!page_used_locked(page)) {
            unmap_pages(page, page_bytes);
        }
    }
}

void weir_managed_forget(const void *owner)
{
    WEIR_LOCKED(&lock);
    struct mirror **at = &mirrors;
    while (*at) {
        struct mirror *mirror = *at;
        if (mirror->owner != owner) {
            at = &mirror->next;
            continue;
        }
        *at = mirror->next;
        if (mirror->known) {
            unmap_mirror_locked(mirror);
            __atomic_fetch_sub(&weir_managed_count, 1, __ATOMIC_RELEASE);
        } else {
            unmap_pages(mirror->address, mirror->bytes);
            weir_moves_remove();
        }
        free(mirror->known);
        free(mirror);
    }
}

bool weir_managed_variable_moves(uint64_t address, uint64_t bytes)
{
    WEIR_LOCKED(&lock);
    const struct mirror *mirror =
        WEIR_LINKED(m, mirrors, !m->known && address - m->address < m->bytes);
    return mirror && bytes <= mirror->bytes - (address - mirror->address);
}

void weir_managed_context_gone(void)
{
    pthread_mutex_lock(&lock);
    struct weir_guest_ctx *gone = own;
    own = NULL;
    pthread_mutex_unlock(&lock);
    if (gone) {
        (void)!weir_ctx_deactivate(
            gone); /* its work has ended; the end of the session also frees it */
    }
}
