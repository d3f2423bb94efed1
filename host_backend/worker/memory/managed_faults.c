/*
 * The thread that serves the faults of a session's managed memory.
 *
 * The thread waits for nothing that the guest does: a fault that cannot be served yet stays in a
 * list, and is tried again. A fault must wait for work that may be changing its block. If the work
 * takes longer than PATIENCE_NS, it may never end without the program, or may not touch the block
 * at all. So the program then gets the block as it is, and both sides are merged (managed_blocks.h)
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
/* Time between two checks of the work that faults wait for. An H200's event is seen after 5 us; a
 * check costs 1 us. */
#define LOOK_NS (20 * WEIR_NS_PER_US)
/* Time between two comparisons of merged blocks. It is at least MERGE_RATIO times as long as the
 * last comparison took, so that this thread uses at most a tenth of a core. */
#define MERGE_NS    WEIR_NS_PER_MS
#define MERGE_RATIO 9
#define CONTINUE_WP 2u /* UFFDIO_CONTINUE_MODE_WP, Linux 6.4; headers may be older */
/* Threads that map prefetched blocks beside the session's thread: an H200's machine maps 1 GiB of
 * pages in 35 ms, and copies it in 19.5. They are started for HELP_BLOCKS (32 MiB) or more, since a
 * thread starts in 0.05 ms. */
#define HELPERS     2
#define HELP_BLOCKS 512
#define TRIES       8 /* attempts at a call that the program's other threads may disturb */

/* ---------------------------------------------------------------- the program's mappings */

static void wake(const struct weir_managed *m, uint64_t address, uint64_t bytes)
{
    struct uffdio_range range = {address & ~(uint64_t)(PAGE_BYTES - 1), bytes};

    (void)ioctl(m->fd, UFFDIO_WAKE, &range);
}

/* Map pages of the file at the program's addresses. Pages that the program has mapped meanwhile
 * stay. @return false: this kernel cannot map for reading only */
static bool map_pages(const struct weir_managed *m, uint64_t address, uint64_t bytes, bool writable)
{
    uint64_t at = address, end = address + bytes;
    uint32_t tries = 0;

    while (at < end && tries < TRIES) {
        struct uffdio_continue ask = {.range = {at, end - at}, .mode = writable ? 0 : CONTINUE_WP};

        if (ioctl(m->fd, UFFDIO_CONTINUE, &ask) == 0) {
            break;
        }
        WEIR_FAIL_IF(errno == EINVAL && !writable, false);
        if (ask.mapped > 0) {
            at += (uint64_t)ask.mapped;
            tries = 0;
        } else if (errno == EEXIST) {
            at += PAGE_BYTES;
            tries = 0;
        } else {
            tries++; /* EAGAIN, or the program has unmapped the range */
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

/* Make `before`, with which merged blocks are compared. It is charged while the range lives. */
static bool make_before_locked(struct weir_managed *m, struct weir_managed_range *r)
{
    const struct weir_amounts cost = {.of = {[WEIR_ACCOUNT_PINNED_MEMORY] = r->chunk->bytes}};

    if (r->before) {
        return true;
    }
    WEIR_FAIL_IF(weir_tenant_charge(m->session->tenant, &cost) != CUDA_SUCCESS, false);
    void *at = mmap(NULL, r->chunk->bytes, PROT_READ | PROT_WRITE,
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

    WEIR_FAIL_IF(!make_before_locked(m, r), false);
    memcpy(r->before + offset, r->pages + offset, n * WEIR_BLOCK_BYTES);
    for (uint32_t i = first; i < first + n; i++) {
        weir_blocks_merge(&r->blocks, i);
    }
    m->merged_total += n;
    weir_managed_show_locked(m);
    m->merge_ns = weir_clock_now_ns() + MERGE_NS;
    return true;
}

/* Compare a word of the page with `before` and the device's. @return must the program's word go to
 * the device? Where both sides have changed the word, the program's stays. */
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
            /* A MOVING block, too: the program reads it until it has unmapped it. */
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
 * Record an event behind all work that streams have got, unless the session's thread is using the
 * streams. Record none while a function of the program runs in a stream: the function may wait for
 * a fault, and if the driver's queue behind the function is full, recording would wait for it.
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

/* Compare merged blocks, if it is time to. @return are some left? */
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
    /* Do not wait for a function of the program: it may have caused this fault. */
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
        /* The context is dead, as all calls report. The program must not hang as well. */
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
        /* The block is mapped, but the program has unmapped this page: map the page again. */
        writable = (r->blocks.state[first] & WEIR_BLOCK_WRITABLE) != 0;
        (void)map_pages(m, fault->address & ~(uint64_t)(PAGE_BYTES - 1), PAGE_BYTES, writable);
        return true;
    case WEIR_BLOCK_FAULT_OPENS:
        n = weir_blocks_row(&r->blocks, first);
        weir_blocks_mapped(&r->blocks, first, n, true);
        open_pages(m, r->chunk->base + first * WEIR_BLOCK_BYTES, n * WEIR_BLOCK_BYTES);
        return true;
    case WEIR_BLOCK_FAULT_BRINGS:
        WEIR_FAIL_IF(!fetch_locked(m, r, fault, first, &n), false);
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

/* ---------------------------------------------------------------- what is prefetched */

/* A task for helpers: map blocks for reading while their neighbours are still being copied. The
 * program then reads without faults, as it would natively after a prefetch. */
struct weir_managed_mapper {
    const struct weir_managed *m;
    const struct weir_managed_range *r;
    uint32_t first, end;
    atomic_uint next;    /* the first block that no thread has taken */
    atomic_uint brought; /* blocks up to here have their bytes */
    atomic_bool refused; /* this kernel cannot map for reading only */
    pthread_t helpers[HELPERS];
    uint32_t n_helpers;
};

/* May the block be mapped for reading without any other change of its state? */
static bool may_map(const struct weir_managed_range *r, uint32_t block)
{
    const unsigned int either = WEIR_BLOCK_ON_GPU | WEIR_BLOCK_MERGED;

    return (r->blocks.state[block] & ~either) == WEIR_BLOCK_ON_CPU;
}

static void map_some(struct weir_managed_mapper *p, uint32_t at, uint32_t end)
{
    while (at < end) {
        uint32_t first = at;

        while (at < end && may_map(p->r, at)) {
            at++;
        }
        if (at == first) {
            at++;
        } else if (!map_pages(p->m, p->r->chunk->base + first * WEIR_BLOCK_BYTES,
                              (at - first) * WEIR_BLOCK_BYTES, false)) {
            atomic_store(&p->refused, true);
        }
    }
}

static void *map_on(void *mapper)
{
    struct weir_managed_mapper *p = mapper;
    const struct timespec look = {.tv_nsec = LOOK_NS};
    uint32_t at;

    while ((at = atomic_fetch_add(&p->next, WEIR_BLOCKS_MOST)) < p->end) {
        uint32_t end = at + WEIR_BLOCKS_MOST < p->end ? at + WEIR_BLOCKS_MOST : p->end;

        /* M4: meets the release in weir_managed_map_up_to(), after the blocks' states. */
        while (atomic_load_explicit(&p->brought, memory_order_acquire) < end) {
            (void)nanosleep(&look, NULL);
        }
        if (!atomic_load(&p->refused)) {
            map_some(p, at, end);
        }
    }
    return NULL;
}

struct weir_managed_mapper *weir_managed_map_begin(struct weir_managed *m,
                                                   struct weir_managed_range *r, uint32_t first,
                                                   uint32_t end)
{
    struct weir_managed_mapper *p = m->protects ? calloc(1, sizeof *p) : NULL;

    if (!p) {
        return NULL; /* the program's faults map the pages */
    }
    p->m = m;
    p->r = r;
    p->first = first;
    p->end = end;
    atomic_init(&p->next, first);
    atomic_init(&p->brought, first);
    while (end - first >= HELP_BLOCKS && p->n_helpers < HELPERS &&
           pthread_create(&p->helpers[p->n_helpers], NULL, map_on, p) == 0) {
        p->n_helpers++;
    }
    return p;
}

void weir_managed_map_up_to(struct weir_managed_mapper *p, uint32_t block)
{
    if (p) {
        atomic_store_explicit(&p->brought, block, memory_order_release); /* M4 */
    }
}

void weir_managed_map_end(struct weir_managed *m, struct weir_managed_range *r,
                          struct weir_managed_mapper *p)
{
    if (!p) {
        return;
    }
    weir_managed_map_up_to(p, p->end);
    (void)map_on(p);
    for (uint32_t i = 0; i < p->n_helpers; i++) {
        (void)pthread_join(p->helpers[i], NULL);
    }
    m->protects = !atomic_load(&p->refused);
    for (uint32_t i = p->first; i < p->end && m->protects; i++) {
        if (may_map(r, i)) {
            weir_blocks_mapped(&r->blocks, i, 1, false);
        }
    }
    free(p);
}

/* ---------------------------------------------------------------- the thread */

/*
 * Read pending faults. The program has the descriptor, too, and may have made it blocking. So no
 * lock is held here, and weir_managed_end() cancels a blocked read.
 * @return false: the program is gone
 */
static bool read_faults(struct weir_managed *m)
{
    struct uffd_msg messages[16];
    size_t room = WEIR_MANAGED_FAULTS - m->n_faults, most = WEIR_COUNT(messages);

    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    ssize_t got = read(m->fd, messages, WEIR_MIN(room, most) * sizeof messages[0]);
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
    bool merging = false, there = true;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    (void)prctl(PR_SET_NAME, "weir-managed");
    (void)platform->driver.cuCtxSetCurrent(platform->devices[m->device].context);
    while (!atomic_load(&m->ends)) {
        uint64_t wait_ns = m->n_faults != 0 ? LOOK_NS : MERGE_NS, kicks;
        struct timespec wait = {.tv_nsec = (long)wait_ns};
        bool waits = m->n_faults != 0 || merging;

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
        pthread_mutex_unlock(&m->lock);
    }
    return NULL;
}
