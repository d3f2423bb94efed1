/*
 * The thread that serves the faults of a session's managed memory.
 *
 * It waits for nothing that the guest does: a fault that cannot be served yet stays in a list, and
 * is looked at again. What a fault must wait for is work that may be changing the block. Work that
 * takes longer than PATIENCE_NS may never end without the program, or does not touch the block at
 * all; so the program then gets the block as it is, and both sides are merged (managed_blocks.h)
 * until the work is done.
 */
#include "host_backend/worker/memory/managed_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE_BYTES  4096u
#define PATIENCE_NS (10 * WEIR_NS_PER_MS)
/* Between two looks at work that faults wait for. An event of an H200 is seen after 5 us; a look
 * costs 1 us. */
#define LOOK_NS (20 * WEIR_NS_PER_US)
/* Between two comparisons of merged blocks; and at least so many times what one took, so that this
 * thread has a core for a tenth of the time. */
#define MERGE_NS    WEIR_NS_PER_MS
#define MERGE_RATIO 9
#define CONTINUE_WP 2u /* UFFDIO_CONTINUE_MODE_WP, Linux 6.4; headers may be older */
#define TRIES       8  /* of a call that the program's other threads get in the way of */

/* ---------------------------------------------------------------- the program's mappings */

static void wake(const struct weir_managed *m, uint64_t address, uint64_t bytes)
{
    struct uffdio_range range = {address & ~(uint64_t)(PAGE_BYTES - 1), bytes};

    (void)ioctl(m->fd, UFFDIO_WAKE, &range);
}

/* Map pages of the file where the program has the range. Those that it has mapped meanwhile stay.
 * @return false: not for reading only */
static bool map_pages(const struct weir_managed *m, uint64_t address, uint64_t bytes, bool writable)
{
    uint64_t at = address, end = address + bytes;
    uint32_t tries = 0;

    while (at < end && tries < TRIES) {
        struct uffdio_continue ask = {.range = {at, end - at}, .mode = writable ? 0 : CONTINUE_WP};

        if (ioctl(m->fd, UFFDIO_CONTINUE, &ask) == 0) {
            break;
        }
        if (errno == EINVAL && !writable) {
            return false;
        }
        if (ask.mapped > 0) {
            at += (uint64_t)ask.mapped;
            tries = 0;
        } else if (errno == EEXIST) {
            at += PAGE_BYTES;
            tries = 0;
        } else {
            tries++; /* EAGAIN; or the program has nothing there any more */
        }
    }
    wake(m, address, bytes);
    return true;
}

static void open_pages(const struct weir_managed *m, uint64_t address, uint64_t bytes)
{
    struct uffdio_writeprotect ask = {.range = {address, bytes}};

    for (uint32_t tries = 0;
         tries < TRIES && ioctl(m->fd, UFFDIO_WRITEPROTECT, &ask) != 0 && errno == EAGAIN;
         tries++) {
    }
    wake(m, address, bytes);
}

/* ---------------------------------------------------------------- both at once */

/* Charged while the range lives: the tenant's pinned memory is what this is as much as. */
static bool make_before_locked(struct weir_managed *m, struct weir_managed_range *r)
{
    const struct weir_amounts cost = {.of = {[WEIR_ACCOUNT_PINNED_MEMORY] = r->chunk->bytes}};
    void *at;

    if (r->before) {
        return true;
    }
    if (weir_tenant_charge(m->session->tenant, &cost) != CUDA_SUCCESS) {
        return false;
    }
    at = mmap(NULL, r->chunk->bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        weir_account_release_all(&m->session->tenant->account, &cost);
        return false;
    }
    r->charged.of[WEIR_ACCOUNT_PINNED_MEMORY] += r->chunk->bytes;
    r->before = at;
    return true;
}

bool weir_managed_merge_locked(struct weir_managed *m, struct weir_managed_range *r, uint32_t first,
                               uint32_t n)
{
    uint64_t offset = first * WEIR_BLOCK_BYTES;

    if (!make_before_locked(m, r)) {
        return false;
    }
    memcpy(r->before + offset, r->pages + offset, n * WEIR_BLOCK_BYTES);
    for (uint32_t i = first; i < first + n; i++) {
        weir_blocks_merge(&r->blocks, i);
    }
    m->merged_total += n;
    weir_managed_show_locked(m);
    m->merge_ns = weir_clock_now_ns() + MERGE_NS;
    return true;
}

/* Compare a word of the three. @return must it go to the device? Where both have changed it, the
 * program's word stays. */
static bool compare(uint32_t *page, uint32_t *before, uint32_t device)
{
    uint32_t now = __atomic_load_n(page, __ATOMIC_RELAXED), was = *before;

    if (now == was && device != was) {
        if (__atomic_compare_exchange_n(page, &now, device, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            *before = device;
            return false;
        }
    }
    *before = now;
    return now != was;
}

CUresult weir_managed_carry_locked(struct weir_managed *m, struct weir_managed_range *r,
                                   uint32_t block)
{
    static _Thread_local uint32_t device[WEIR_BLOCK_BYTES / 4];
    const struct weir_driver *d = m->session->driver;
    const uint32_t words = WEIR_BLOCK_BYTES / 4;
    uint64_t offset = block * WEIR_BLOCK_BYTES;
    CUdeviceptr base = r->chunk->base + offset;
    uint32_t *page = (uint32_t *)(void *)(r->pages + offset);
    uint32_t *before = (uint32_t *)(void *)(r->before + offset);
    CUresult result = d->cuMemcpyAsync((uintptr_t)device, base, WEIR_BLOCK_BYTES, m->copies);
    CUresult waited = d->cuStreamSynchronize(m->copies);

    WEIR_TRY(result);
    WEIR_TRY(waited);
    for (uint32_t i = 0; i < words && result == CUDA_SUCCESS; i++) {
        uint32_t first = i;

        while (i < words && compare(&page[i], &before[i], device[i])) {
            i++;
        }
        if (i != first) {
            result = d->cuMemcpyAsync(base + first * 4, (uintptr_t)&before[first],
                                      (i - first) * (size_t)4, m->copies);
        }
    }
    waited = d->cuStreamSynchronize(m->copies);
    return result == CUDA_SUCCESS ? waited : result;
}

bool weir_managed_any_merged_locked(const struct weir_managed *m)
{
    const struct weir_managed_range *r = m->ranges;

    while (r && r->blocks.n_merged == 0) {
        r = r->next;
    }
    return r != NULL;
}

CUresult weir_managed_carry_all_locked(struct weir_managed *m, bool idle)
{
    uint64_t asked = m->asked, begin_ns = weir_clock_now_ns(), took_ns;
    CUresult result = CUDA_SUCCESS;

    for (struct weir_managed_range *r = m->ranges; r; r = r->next) {
        for (uint32_t i = 0; i < r->blocks.n && r->blocks.n_merged != 0; i++) {
            /* Also one that is moving: the program reads it until it has unmapped it. */
            if (r->blocks.state[i] & WEIR_BLOCK_MERGED) {
                CUresult carried = weir_managed_carry_locked(m, r, i);

                result = result == CUDA_SUCCESS ? carried : result;
                if (idle) {
                    weir_blocks_merged(&r->blocks, i);
                }
            }
        }
    }
    took_ns = weir_clock_now_ns() - begin_ns;
    m->merge_ns =
        begin_ns + took_ns + (took_ns * MERGE_RATIO > MERGE_NS ? took_ns * MERGE_RATIO : MERGE_NS);
    m->merges = asked;
    pthread_cond_broadcast(&m->merged);
    weir_managed_show_locked(m);
    return result;
}

/*
 * See when the work that there is will be done, unless the session's thread is giving more. Not
 * while a function of the program's runs in a stream: it may wait for a fault, and where the
 * driver's queue behind it is full an event would wait for the function.
 */
static void order_locked(struct weir_managed *m)
{
    int nobody = WEIR_MANAGED_OF_NOBODY;

    if (weir_host_calls_any(m->session)) {
        return;
    }

    /* M2, M3 */
    if (atomic_compare_exchange_strong_explicit(&m->streams, &nobody, WEIR_MANAGED_OF_FAULTS,
                                                memory_order_acquire, memory_order_relaxed)) {
        weir_managed_order_locked(m);
        atomic_store_explicit(&m->streams, WEIR_MANAGED_OF_NOBODY, memory_order_release);
    }
}

/* Compare merged blocks, if it is time. @return are some left? */
static bool merge_locked(struct weir_managed *m)
{
    bool idle, any = weir_managed_any_merged_locked(m);

    if (any) {
        idle = weir_managed_is_idle_locked(m);
        if (!idle) {
            order_locked(m);
        }
        if (idle || m->asked != m->merges || weir_clock_now_ns() >= m->merge_ns) {
            (void)weir_managed_carry_all_locked(m, idle);
        }
        any = !idle;
    } else if (m->asked != m->merges) {
        m->merges = m->asked;
        pthread_cond_broadcast(&m->merged);
    }
    return any;
}

/* ---------------------------------------------------------------- one fault */

/* May the block's bytes be fetched now? @param ret_merge  kernels may still change them */
static bool may_fetch_locked(struct weir_managed *m, const struct weir_managed_fault *fault,
                             bool *ret_merge)
{
    *ret_merge = false;
    if (weir_managed_is_idle_locked(m)) {
        m->hurried = false;
        return true;
    }
    /* A function of the program's that waits here holds its stream up. */
    *ret_merge = weir_host_calls_any(m->session) || m->hurried ||
                 weir_clock_now_ns() - fault->since_ns >= PATIENCE_NS;
    m->hurried = *ret_merge;
    order_locked(m);
    return *ret_merge;
}

static bool fetch_locked(struct weir_managed *m, struct weir_managed_range *r,
                         const struct weir_managed_fault *fault, uint32_t first, uint32_t *n)
{
    bool merge;

    if (!may_fetch_locked(m, fault, &merge) || (merge && !make_before_locked(m, r))) {
        return false; /* without memory to merge, the program waits for the work */
    }
    *n = weir_blocks_row(&r->blocks, first);
    weir_managed_merging_locked(m, merge);
    CUresult result = weir_managed_copy_locked(m, r, first, *n, false);
    CUresult waited = m->session->driver->cuStreamSynchronize(m->copies);

    if (result != CUDA_SUCCESS || waited != CUDA_SUCCESS) {
        /* The context is dead, and every call of the program says so. It must not hang as well. */
        weir_log_warn("managed: the device's bytes are lost session=%llu result=%d",
                      (unsigned long long)m->session->id, (int)(result ? result : waited));
    }
    weir_blocks_brought(&r->blocks, first, *n);
    if (merge) {
        (void)weir_managed_merge_locked(m, r, first, *n);
        weir_managed_merging_locked(m, false);
    }
    return true;
}

/* @return false: later */
static bool serve_locked(struct weir_managed *m, const struct weir_managed_fault *fault)
{
    struct weir_managed_range *r = weir_managed_find_locked(m, fault->address);
    uint32_t first, n = 0;
    bool writable = fault->write || !m->protects;

    if (!r || !r->watched) {
        wake(m, fault->address, PAGE_BYTES);
        return true;
    }
    first = (uint32_t)((fault->address - r->chunk->base) / WEIR_BLOCK_BYTES);
    switch (weir_blocks_fault(&r->blocks, first, fault->write)) {
    case WEIR_BLOCK_FAULT_WAITS:
        return false;
    case WEIR_BLOCK_FAULT_OVER:
        /* A page that the program has unmapped by itself lacks in a mapped block. */
        writable = (r->blocks.state[first] & WEIR_BLOCK_WRITABLE) != 0;
        (void)map_pages(m, fault->address & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES, writable);
        return true;
    case WEIR_BLOCK_FAULT_OPENS:
        n = weir_blocks_row(&r->blocks, first);
        weir_blocks_mapped(&r->blocks, first, n, true);
        open_pages(m, r->chunk->base + first * WEIR_BLOCK_BYTES, n * WEIR_BLOCK_BYTES);
        return true;
    case WEIR_BLOCK_FAULT_BRINGS:
        if (!fetch_locked(m, r, fault, first, &n)) {
            return false;
        }
        break;
    case WEIR_BLOCK_FAULT_MAPS:
        n = weir_blocks_row(&r->blocks, first);
        break;
    }
    weir_blocks_mapped(&r->blocks, first, n, writable);
    weir_managed_show_locked(m);
    if (!map_pages(m, r->chunk->base + first * WEIR_BLOCK_BYTES, n * WEIR_BLOCK_BYTES, writable)) {
        m->protects = false; /* this kernel cannot map for reading only */
        weir_blocks_mapped(&r->blocks, first, n, true);
        (void)map_pages(m, r->chunk->base + first * WEIR_BLOCK_BYTES, n * WEIR_BLOCK_BYTES, true);
    }
    return true;
}

/* Map some of what has been prefetched, as a read would. @return is there more? */
static bool map_ahead_locked(struct weir_managed *m)
{
    struct weir_managed_range *r = weir_managed_find_locked(m, m->ahead);
    struct weir_managed_fault fault = {.address = m->ahead};
    uint32_t block;

    if (m->ahead >= m->ahead_end || !r || !r->watched) {
        m->ahead = m->ahead_end = 0;
        return false;
    }
    if (atomic_load(&m->streams) == WEIR_MANAGED_OF_SESSION) {
        return true; /* its thread may want the lock */
    }
    block = (uint32_t)((m->ahead - r->chunk->base) / WEIR_BLOCK_BYTES);
    if (weir_blocks_fault(&r->blocks, block, false) == WEIR_BLOCK_FAULT_MAPS) {
        (void)serve_locked(m, &fault);
        block = r->blocks.next;
    } else {
        block++;
    }
    m->ahead = r->chunk->base + block * WEIR_BLOCK_BYTES;
    return true;
}

/* ---------------------------------------------------------------- the thread */

/*
 * Read what faults there are. The program has the descriptor, too: it may have made it block, so no
 * lock is held here, and weir_managed_end() breaks a read off.
 * @return false: the program is gone
 */
static bool read_faults(struct weir_managed *m)
{
    struct uffd_msg messages[16];
    size_t room = WEIR_MANAGED_FAULTS - m->n_faults, most = sizeof messages / sizeof messages[0];
    ssize_t got;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    got = read(m->fd, messages, (room < most ? room : most) * sizeof messages[0]);
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof messages[0]; i++) {
        if (messages[i].event == UFFD_EVENT_PAGEFAULT) {
            const uint64_t writes = UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP;

            m->faults[m->n_faults++] = (struct weir_managed_fault){
                messages[i].arg.pagefault.address, (messages[i].arg.pagefault.flags & writes) != 0,
                weir_clock_now_ns()};
        }
    }
    return got >= 0 || errno == EAGAIN || errno == EINTR;
}

static void serve_all_locked(struct weir_managed *m)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < m->n_faults; i++) {
        struct weir_managed_fault fault = m->faults[i];

        if (!serve_locked(m, &fault)) {
            m->faults[left++] = fault;
        }
    }
    m->n_faults = left;
}

void *weir_managed_serve(void *managed)
{
    struct weir_managed *m = managed;
    struct pollfd fds[] = {{.fd = m->fd, .events = POLLIN}, {.fd = m->kick, .events = POLLIN}};
    const struct weir_platform *platform = m->session->platform;
    bool merging = false, ahead = false, there = true;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    (void)prctl(PR_SET_NAME, "weir-managed");
    (void)platform->driver.cuCtxSetCurrent(platform->devices[m->device].context);
    while (!atomic_load(&m->ends)) {
        uint64_t wait_ns = ahead || m->n_faults != 0 ? LOOK_NS : MERGE_NS, kicks;
        struct timespec wait = {.tv_nsec = (long)wait_ns};
        bool waits = m->n_faults != 0 || merging || ahead;

        fds[0].fd = there && m->n_faults < WEIR_MANAGED_FAULTS ? m->fd : -1;
        fds[0].revents = 0;
        (void)ppoll(fds, 2, waits ? &wait : NULL, NULL);
        (void)!read(m->kick, &kicks, sizeof kicks);
        if (fds[0].revents != 0) {
            there = read_faults(m);
        }
        pthread_mutex_lock(&m->lock);
        serve_all_locked(m);
        merging = merge_locked(m);
        ahead = map_ahead_locked(m);
        pthread_mutex_unlock(&m->lock);
    }
    return NULL;
}
