/* Managed memory that moves, the program's side: see moves.h. */
#include "guest_lib/moves.h"

#include "base/log.h"
#include "base/thread.h"
#include "guest_lib/entry.h"
#include "guest_lib/module.h"
#include "proto/guest_calls.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW_UFFD _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW, Linux 6.1; headers may be older */

/* Held from managed_take to managed_taken: the thread that is told to unmap pages does that. */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards asked, moves */
static bool asked, moves;
uint32_t weir_moves_count;

/* Open a userfaultfd that also serves accesses by system calls, which needs a privilege. */
static int open_uffd(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) {
            fd = ioctl(device, NEW_UFFD, O_CLOEXEC | O_NONBLOCK);
            close(device);
        }
    }
    return fd;
}

static bool ask_locked(void)
{
    if (weir_guest.same_process || !weir_guest.channel.passes_fds) {
        weir_log_info("guest: managed memory is host memory, which kernels read and write over the "
                      "bus: the host is another machine");
        return false;
    }
    int fd = open_uffd();
    if (fd < 0) {
        weir_log_info("guest: managed memory is host memory, which kernels read and write over the "
                      "bus. It moves to the GPU where this program may open /dev/userfaultfd, or "
                      "vm.unprivileged_userfaultfd is 1, error=\"%s\"",
                      strerror(errno));
        return false;
    }
    struct weir_channel_extra extra = {.send_fd = true, .fd = fd};
    CUresult result = weir_channel_call_extra(weir_guest_channel(), WEIR_OP_managed_begin, NULL,
                                              NULL, &extra, false);
    close(fd);
    if (result != CUDA_SUCCESS) {
        weir_log_info("guest: managed memory is host memory, which kernels read and write over the "
                      "bus: this kernel's userfaultfd cannot serve shared memory (Linux 5.14 can)");
    }
    return result == CUDA_SUCCESS;
}

bool weir_moves_begin(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    WEIR_LOCKED(&lock);
    if (!asked) {
        moves = ask_locked();
        asked = true;
    }
    return moves;
}

CUresult weir_moves_add(uint64_t chunk, uint64_t base, uint64_t bytes)
{
    WEIR_GUEST_KEEP_ERRNO;
    /* Natively a child has no managed memory, and the host serves only this process. */
    (void)madvise((void *)(uintptr_t)base, bytes, MADV_DONTFORK);
    WEIR_TRY(weir_call_managed_mapped(weir_guest_channel(),
                                      &(struct weir_op_managed_mapped_in){.chunk = chunk}, NULL));
    /* Pages that other threads read before the host watched are mapped for writing: unmap
     * them. */
    (void)madvise((void *)(uintptr_t)base, bytes, MADV_DONTNEED);
    __atomic_fetch_add(&weir_moves_count, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&weir_managed_count, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

void weir_moves_remove(void)
{
    __atomic_fetch_sub(&weir_managed_count, 1, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&weir_moves_count, 1, __ATOMIC_RELEASE);
}

/* Unmap pages, which stay in their file. The program may have locked them in memory (mlock). */
static CUresult unmap(uint64_t base, uint64_t bytes)
{
    bool of_window = base >= weir_guest.window_base && bytes <= weir_guest.window_bytes &&
                     base - weir_guest.window_base <= weir_guest.window_bytes - bytes;
    WEIR_FAIL_IF(!of_window && !weir_managed_variable_moves(base, bytes),
                 CUDA_ERROR_DEVICE_UNAVAILABLE);
    void *at = (void *)(uintptr_t)base;
    bool done = madvise(at, bytes, MADV_DONTNEED) == 0 ||
                (munlock(at, bytes) == 0 && madvise(at, bytes, MADV_DONTNEED) == 0);
    return done ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult weir_moves_take(uint64_t address, uint64_t bytes)
{
    WEIR_GUEST_KEEP_ERRNO;
    const struct weir_op_managed_take_in in = {.address = address, .bytes = bytes};
    struct weir_op_managed_take_out out;
    CUresult result;
    WEIR_LOCKED(&taking);
    do {
        memset(&out, 0, sizeof out);
        result = weir_call_managed_take(weir_guest_channel(), &in, &out);
        for (uint32_t i = 0; result == CUDA_SUCCESS && i < out.n_bases && i < out.n_sizes; i++) {
            result = unmap(out.bases[i], out.sizes[i]);
        }
        WEIR_THEN(result, weir_post_managed_taken(weir_guest_channel(), NULL));
    } while (result == CUDA_SUCCESS && out.n_bases == WEIR_OP_managed_take_out_bases_max);
    return result;
}

CUresult weir_moves_merge(void)
{
    return weir_call_managed_merge(weir_guest_channel(), NULL, NULL);
}

CUresult weir_moves_fetch(uint64_t address, uint64_t bytes)
{
    return weir_call_managed_fetch(
        weir_guest_channel(),
        &(struct weir_op_managed_fetch_in){.address = address, .bytes = bytes}, NULL);
}

void weir_moves_place(uint64_t address, uint64_t bytes, enum weir_managed_place place)
{
    (void)weir_call_managed_place(
        weir_guest_channel(),
        &(struct weir_op_managed_place_in){.address = address, .bytes = bytes, .place = place},
        NULL);
}

void weir_moves_finish(void)
{
    pthread_mutex_lock(&lock);
    asked = moves = false;
    pthread_mutex_unlock(&lock);
    __atomic_fetch_sub(&weir_managed_count, weir_moves_count, __ATOMIC_RELAXED);
    __atomic_store_n(&weir_moves_count, 0, __ATOMIC_RELAXED);
}
