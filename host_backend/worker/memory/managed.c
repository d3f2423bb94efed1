/*
 * Managed memory: its ranges, and how their bytes get to the device. Faults are served in
 * managed_faults.c.
 *
 * Only this session's own files and device memory are copied. An address that the guest or the
 * kernel names is looked up among the ranges, and only its offset in a range is used.
 */
#include "base/fd.h"
#include "host_backend/worker/memory/managed_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memfd.h"
#include "base/thread.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/tenant.h"
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* How many orders may be pending in `joined`: the driver's queue has room for a thousand events. */
#define ORDERS_MOST 256
/* Blocks that a prefetch copies in one step; helpers map them during the next step. 32 MiB take 0.6
 * ms of an H200's bus, and the wait for a copy 0.01 ms. */
#define FETCH_BLOCKS 512

/* ---------------------------------------------------------------- parts */

static void kick(struct weir_managed *m)
{
    uint64_t one = 1;

    (void)!write(m->kick, &one, sizeof one);
}

struct weir_managed_range *weir_managed_find_locked(struct weir_managed *m, uint64_t address)
{
    struct weir_managed_range *r = m->ranges;

    while (r && address - r->chunk->base >= r->chunk->bytes) {
        r = r->next;
    }
    return r;
}

void weir_managed_show_locked(struct weir_managed *m)
{
    uint32_t n = 0;

    for (const struct weir_managed_range *r = m->ranges; r; r = r->next) {
        n += r->watched ? r->blocks.n_cpu : 0;
    }
    m->n_cpu = n;
    n |= m->merging || weir_managed_any_merged_locked(m) ? WEIR_SEGMENT_MANAGED_MERGED : 0;
    weir_session_show_managed(m->session, n);
}

void weir_managed_merging_locked(struct weir_managed *m, bool begins)
{
    m->merging = begins;
    weir_managed_show_locked(m);
}

bool weir_managed_is_idle_locked(struct weir_managed *m)
{
    uint64_t at = m->ordered_at;

    if (m->done_at != at && m->session->driver->cuEventQuery(m->ordered) != CUDA_ERROR_NOT_READY) {
        m->done_at = at; /* or the context is dead */
        m->n_orders = 0;
    }
    return m->done_at == weir_session_calls(m->session);
}

/* Copy each piece by itself. The driver need not support one copy whose device side lies partly in
 * device memory and partly in the host's. */
CUresult weir_managed_copy_locked(struct weir_managed *m, const struct weir_managed_range *r,
                                  uint32_t first, uint32_t n, bool to_device)
{
    uint64_t at = first * WEIR_BLOCK_BYTES, end = at + n * WEIR_BLOCK_BYTES, bytes;
    const struct weir_driver *d = m->session->driver;
    CUresult result = CUDA_SUCCESS;

    for (; at < end && result == CUDA_SUCCESS; at += bytes) {
        CUdeviceptr device = r->chunk->base + at, pages = (uintptr_t)(r->pages + at);

        bytes = WEIR_PIECE_BYTES - at % WEIR_PIECE_BYTES;
        bytes = bytes < end - at ? bytes : end - at;
        result = to_device ? d->cuMemcpyAsync(device, pages, bytes, m->copies)
                           : d->cuMemcpyAsync(pages, device, bytes, m->copies);
    }
    return result;
}

static CUresult copied(struct weir_managed *m, CUresult result)
{
    CUresult waited = m->session->driver->cuStreamSynchronize(m->copies);

    return result == CUDA_SUCCESS ? waited : result;
}

/* ---------------------------------------------------------------- begin and end */

/* Agree with the kernel on faults: on pages that exist and, if it can, on writes to some. */
static bool agree(int fd, bool *ret_protects)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                                         UFFD_FEATURE_WP_HUGETLBFS_SHMEM};

    *ret_protects = ioctl(fd, UFFDIO_API, &api) == 0;
    if (*ret_protects) {
        return true;
    }
    api = (struct uffdio_api){.api = UFFD_API, .features = UFFD_FEATURE_MINOR_SHMEM};
    return ioctl(fd, UFFDIO_API, &api) == 0;
}

/* Charged for: the userfaultfd and the eventfd. */
static const struct weir_amounts descriptors = {.of = {[WEIR_ACCOUNT_DESCRIPTORS] = 2}};

static CUresult make_streams(struct weir_managed *m)
{
    const struct weir_driver *d = m->session->driver;

    WEIR_TRY(d->cuStreamCreate(&m->copies, CU_STREAM_NON_BLOCKING));
    WEIR_TRY(d->cuStreamCreate(&m->joined, CU_STREAM_NON_BLOCKING));
    WEIR_TRY(d->cuEventCreate(&m->ordered, CU_EVENT_DISABLE_TIMING));
    return d->cuEventRecord(m->ordered, m->joined);
}

static void destroy(struct weir_managed *m)
{
    const struct weir_driver *d = m->session->driver;

    if (m->threaded) {
        atomic_store(&m->ends, true);
        kick(m);
        (void)pthread_cancel(m->thread);
        (void)pthread_join(m->thread, NULL);
    }
    weir_managed_paging_end(m);
    if (m->copies) {
        (void)d->cuStreamDestroy_v2(m->copies);
    }
    if (m->joined) {
        (void)d->cuStreamDestroy_v2(m->joined);
    }
    if (m->ordered) {
        (void)d->cuEventDestroy_v2(m->ordered);
    }
    for (uint32_t i = 0; i < WEIR_DEVICES_MAX; i++) {
        if (m->join[i]) {
            (void)d->cuEventDestroy_v2(m->join[i]);
        }
    }
    weir_fd_close(m->kick);
    close(m->fd);
    weir_account_release_all(&m->session->tenant->account, &descriptors);
    pthread_cond_destroy(&m->merged);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

CUresult weir_managed_begin(struct weir_session *session, int fd)
{
    struct weir_managed *m;

    if (session->devices.managed || weir_session_is_remote(session) ||
        weir_session_region(session) || !(m = calloc(1, sizeof *m))) {
        close(fd);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = weir_session_charge_all(session, session->device, &descriptors);
    if (result != CUDA_SUCCESS) {
        close(fd);
        free(m);
        return result;
    }
    m->session = session;
    m->device = session->device;
    m->fd = fd;
    m->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&m->lock, NULL);
    weir_thread_condition_init(&m->merged);
    result = m->kick >= 0 && agree(fd, &m->protects) ? make_streams(m) : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        m->threaded = pthread_create(&m->thread, NULL, weir_managed_serve, m) == 0;
        result = m->threaded ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        destroy(m);
        return result;
    }
    session->devices.managed = m;
    return CUDA_SUCCESS;
}

void weir_managed_end(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;

    if (m) {
        weir_managed_remove_variables(session, NULL);
        (void)weir_session_enter(session, m->device);
        if (m->merged_total != 0) {
            weir_log_info("managed: program and kernels have used memory at once session=%llu "
                          "tenant=%s blocks=%llu",
                          (unsigned long long)session->id, session->tenant->name,
                          (unsigned long long)m->merged_total);
        }
        if (m->paging.bytes != 0) {
            weir_log_info("managed: memory has changed its place, since not all of it found room "
                          "on the device session=%llu tenant=%s bytes=%llu",
                          (unsigned long long)session->id, session->tenant->name,
                          (unsigned long long)m->paging.bytes);
        }
        session->devices.managed = NULL;
        destroy(m);
    }
}

/* ---------------------------------------------------------------- ranges */

/* The file of a range, as it is mapped in this process. */
struct pages {
    uint8_t *at;
    uint64_t bytes;
    struct weir_amounts charged;
};

/* The device is idle. */
static void unpin(struct weir_session *session, void *what)
{
    struct pages *pages = what;

    (void)session->driver->cuMemHostUnregister(pages->at);
    munmap(pages->at, pages->bytes);
    weir_account_release_all(&session->tenant->account, &pages->charged);
    weir_session_unpins(session, pages->bytes);
    free(pages);
}

static CUresult map_file(struct weir_session *session, struct weir_managed_range *r, int *ret_fd)
{
    uint64_t bytes = r->chunk->bytes;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    void *at = MAP_FAILED;
    int fd = weir_memfd_sealed("weir-managed", bytes);

    /* Make all pages now: the kernel reports a fault only where the file has a page. NVIDIA's
     * driver would make them all when it pins them. */
    if (fd >= 0) {
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    if (at != MAP_FAILED) {
        result = session->driver->cuMemHostRegister_v2(at, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    }
    if (result == CUDA_SUCCESS) {
        r->pages = at;
        *ret_fd = fd;
        return CUDA_SUCCESS;
    }
    if (at != MAP_FAILED) {
        munmap(at, bytes);
    }
    weir_fd_close(fd);
    return result;
}

/* Charge for a range's file, make it, and enter the range. @param r  taken in any case */
static CUresult add(struct weir_session *session, struct weir_managed_range *r, int *ret_fd)
{
    struct weir_managed *m = session->devices.managed;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = r->chunk->bytes;
    enum weir_account_item refused;

    if (bytes % WEIR_BLOCK_BYTES != 0 || r->chunk->device != m->device ||
        !weir_blocks_init(&r->blocks, (uint32_t)(bytes / WEIR_BLOCK_BYTES))) {
        free(r);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (r->owner) {
        weir_blocks_moved(&r->blocks, 0, r->blocks.n);
    }
    r->charged = weir_host_memory_cost(bytes, false);
    if (!weir_account_charge_all(&session->tenant->account, &r->charged, &refused)) {
        session->op.lack = WEIR_LACK_REFUSED; /* the guest asks for pinned memory then */
    } else {
        result = map_file(session, r, ret_fd);
        if (result != CUDA_SUCCESS) {
            weir_account_release_all(&session->tenant->account, &r->charged);
        }
    }
    if (result != CUDA_SUCCESS) {
        weir_blocks_finish(&r->blocks);
        free(r);
        return result;
    }
    weir_session_pins(session, bytes);
    WEIR_LOCKED(&m->lock);
    WEIR_PUSH(m->ranges, r);
    return CUDA_SUCCESS;
}

CUresult weir_managed_add(struct weir_session *session, struct weir_host_chunk *chunk, int *ret_fd)
{
    WEIR_FAIL_IF(!session->devices.managed, CUDA_ERROR_NOT_SUPPORTED);
    struct weir_managed_range *r = calloc(1, sizeof *r);
    WEIR_FAIL_IF(!r, CUDA_ERROR_OUT_OF_MEMORY);
    r->chunk = chunk;
    return add(session, r, ret_fd);
}

CUresult weir_managed_add_variable(struct weir_session *session, const void *owner,
                                   uint64_t address, uint64_t bytes, int *ret_fd)
{
    struct weir_managed *m = session->devices.managed;
    struct weir_managed_range *r;

    WEIR_FAIL_IF(!m, CUDA_ERROR_NOT_SUPPORTED);
    for (r = m->ranges; r; r = r->next) { /* only this thread changes the list */
        WEIR_FAIL_IF(address < r->chunk->base + r->chunk->bytes && r->chunk->base < address + bytes,
                     CUDA_ERROR_INVALID_VALUE);
    }
    r = calloc(1, sizeof *r);
    WEIR_FAIL_IF(!r, CUDA_ERROR_OUT_OF_MEMORY);
    r->variable = (struct weir_host_chunk){
        .base = address, .bytes = bytes, .device = (uint8_t)session->device, .fd = -1};
    r->chunk = &r->variable;
    r->owner = owner;
    return add(session, r, ret_fd);
}

void weir_managed_remove_variables(struct weir_session *session, const void *owner)
{
    struct weir_managed *m = session->devices.managed;
    struct weir_managed_range *r = m ? m->ranges : NULL, *next;

    for (; r; r = next) {
        next = r->next;
        if (r->owner && (!owner || r->owner == owner)) {
            weir_managed_remove(session, r->chunk);
        }
    }
}

CUresult weir_managed_watch(struct weir_session *session, uint64_t base)
{
    struct weir_managed *m = session->devices.managed;
    struct weir_managed_range *r = m ? m->ranges : NULL;
    struct uffdio_register watch = {.mode = UFFDIO_REGISTER_MODE_MINOR};

    while (r && r->chunk->base != base) {
        r = r->next;
    }
    WEIR_FAIL_IF(!r, CUDA_ERROR_INVALID_VALUE);
    watch.range = (struct uffdio_range){base, r->chunk->bytes};
    watch.mode |= m->protects ? UFFDIO_REGISTER_MODE_WP : 0;
    bool good = ioctl(m->fd, UFFDIO_REGISTER, &watch) == 0 &&
                (watch.ioctls & (UINT64_C(1) << _UFFDIO_CONTINUE)) != 0;
    WEIR_LOCKED(&m->lock);
    if (good) {
        r->watched = true;
        weir_managed_show_locked(m);
    }
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void weir_managed_remove(struct weir_session *session, const struct weir_host_chunk *chunk)
{
    struct weir_managed *m = session->devices.managed;
    struct weir_managed_range **at, *r;
    struct pages *pages, room;
    uint32_t idle;

    if (!m) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    for (at = &m->ranges; *at && (*at)->chunk != chunk; at = &(*at)->next) {
    }
    r = *at;
    if (r) {
        struct uffdio_range all = {chunk->base, chunk->bytes};

        *at = r->next;
        (void)ioctl(m->fd, UFFDIO_UNREGISTER, &all); /* also wakes the threads that wait there */
        (void)ioctl(m->fd, UFFDIO_WAKE, &all);
        weir_managed_show_locked(m);
    }
    pthread_mutex_unlock(&m->lock);
    if (!r) {
        return;
    }
    room = (struct pages){r->pages, chunk->bytes, r->charged};
    if (r->before) {
        munmap(r->before, chunk->bytes);
    }
    weir_blocks_finish(&r->blocks);
    free(r);
    pages = malloc(sizeof *pages);
    if (!pages) {
        weir_log_error("managed: no memory to free memory, lost bytes=%llu",
                       (unsigned long long)room.bytes);
        return;
    }
    *pages = room;
    if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        unpin(session, pages);
        weir_device_idle_end(session->worker, idle);
    } else {
        weir_put_off(session, unpin, pages, 0, 0);
    }
}

/* ---------------------------------------------------------------- to the device */

/* The blocks of a range that lie in [address, address + bytes); bytes 0: all. */
static bool part_of(const struct weir_managed_range *r, uint64_t address, uint64_t bytes,
                    uint32_t *ret_first, uint32_t *ret_end)
{
    uint64_t base = r->chunk->base, end = base + r->chunk->bytes, last;

    if (bytes == 0) {
        *ret_first = 0;
        *ret_end = r->blocks.n;
        return true;
    }
    if (__builtin_add_overflow(address, bytes, &last) || address >= end || last <= base) {
        return false;
    }
    address = WEIR_MAX(address, base);
    last = WEIR_MIN(last, end);
    *ret_first = (uint32_t)((address - base) / WEIR_BLOCK_BYTES);
    *ret_end = (uint32_t)((last - base + WEIR_BLOCK_BYTES - 1) / WEIR_BLOCK_BYTES);
    return true;
}

void weir_managed_take(struct weir_session *session, uint64_t address, uint64_t bytes,
                       uint64_t *bases, uint64_t *sizes, uint32_t *n)
{
    struct weir_managed *m = session->devices.managed;
    uint32_t room = *n, at, end, first, count;

    *n = 0;
    if (!m) {
        return;
    }
    WEIR_LOCKED(&m->lock);
    for (struct weir_managed_range *r = m->ranges; r; r = r->next) {
        if (!r->watched || !part_of(r, address, bytes, &at, &end)) {
            continue;
        }
        while (*n < room && weir_blocks_take(&r->blocks, &at, end, &first, &count)) {
            bases[*n] = r->chunk->base + first * WEIR_BLOCK_BYTES;
            sizes[(*n)++] = count * WEIR_BLOCK_BYTES;
        }
    }
}

static CUresult move(struct weir_managed *m, struct weir_managed_range *r)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t at = 0, first, n;
    uint8_t state;

    while (result == CUDA_SUCCESS && weir_blocks_moving(&r->blocks, &at, &first, &n, &state)) {
        for (uint32_t i = 0; i < n && state & WEIR_BLOCK_MERGED && result == CUDA_SUCCESS; i++) {
            result = weir_managed_carry_locked(m, r, first + i);
        }
        if (result == CUDA_SUCCESS && !(state & WEIR_BLOCK_ON_GPU)) {
            result = weir_managed_copy_locked(m, r, first, n, true);
        }
    }
    return copied(m, result);
}

CUresult weir_managed_taken(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;
    CUresult result = CUDA_SUCCESS;

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_enter(session, m->device));
    pthread_mutex_lock(&m->lock);
    for (struct weir_managed_range *r = m->ranges; r; r = r->next) {
        uint32_t at = 0, first, n;
        uint8_t state;
        CUresult moved = move(m, r);

        result = result == CUDA_SUCCESS ? moved : result;
        while (weir_blocks_moving(&r->blocks, &at, &first, &n, &state)) {
            weir_blocks_moved(&r->blocks, first, n);
        }
    }
    weir_managed_show_locked(m);
    pthread_mutex_unlock(&m->lock);
    kick(m);
    return result;
}

/* ---------------------------------------------------------------- the end of work */

static void enter(const struct weir_managed *m, uint32_t device)
{
    const struct weir_platform *platform = m->session->platform;

    (void)platform->driver.cuCtxSetCurrent(platform->devices[device].context);
}

/* Make `joined` wait for events behind the work that streams have got, but for captured streams. */
static CUresult join_streams(struct weir_managed *m)
{
    struct weir_session *session = m->session;

    for (struct weir_host_ctx *ctx = weir_session_contexts(session); ctx; ctx = ctx->next) {
        for (struct weir_host_stream *st = ctx->streams; st; st = st->next) {
            if (!weir_host_stream_capturing(session, st)) {
                enter(m, st->o.device);
                WEIR_TRY(weir_order_join(session->driver, &m->join[st->o.device],
                                         weir_host_stream_at(st), m->joined));
            }
        }
    }
    return CUDA_SUCCESS;
}

void weir_managed_order_locked(struct weir_managed *m)
{
    uint64_t now = weir_session_calls(m->session);

    if (m->ordered_at == now || m->n_orders == ORDERS_MOST) {
        return;
    }
    m->n_orders++;
    if (join_streams(m) == CUDA_SUCCESS) {
        enter(m, m->device);
        if (m->session->driver->cuEventRecord(m->ordered, m->joined) == CUDA_SUCCESS) {
            m->ordered_at = now;
        }
    }
    enter(m, m->device);
}

void weir_managed_rest(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;

    if (__builtin_expect(m != NULL, 0)) {
        /* M2: publishes this thread's use of the streams; meets the acquire in order_locked(). */
        atomic_store_explicit(&m->streams, WEIR_MANAGED_OF_NOBODY, memory_order_release);
    }
}

void weir_managed_resume(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;
    int nobody = WEIR_MANAGED_OF_NOBODY;

    /* M3: meets the release in order_locked(), some microseconds later. */
    while (m &&
           !atomic_compare_exchange_weak_explicit(&m->streams, &nobody, WEIR_MANAGED_OF_SESSION,
                                                  memory_order_acquire, memory_order_relaxed)) {
        nobody = WEIR_MANAGED_OF_NOBODY;
        sched_yield();
    }
}

/* ---------------------------------------------------------------- to the program */

/* Copy the blocks that lie only on the device to the program's side. */
static CUresult bring(struct weir_managed *m, struct weir_managed_range *r, uint32_t at,
                      uint32_t end, bool merge)
{
    CUresult result = CUDA_SUCCESS;

    while (at < end && result == CUDA_SUCCESS) {
        uint32_t first = at;

        while (at < end && r->blocks.state[at] == WEIR_BLOCK_ON_GPU) {
            at++;
        }
        if (at == first) {
            at++;
            continue;
        }
        result = copied(m, weir_managed_copy_locked(m, r, first, at - first, false));
        if (result == CUDA_SUCCESS) {
            weir_blocks_brought(&r->blocks, first, at - first);
            if (merge && !weir_managed_merge_locked(m, r, first, at - first)) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return result;
}

/* As bring(), while helpers map the blocks that have come. */
static CUresult fetch(struct weir_managed *m, struct weir_managed_range *r, uint32_t at,
                      uint32_t end, bool merge)
{
    struct weir_managed_mapper *mapper = weir_managed_map_begin(m, r, at, end);
    CUresult result = CUDA_SUCCESS;

    while (at < end && result == CUDA_SUCCESS) {
        uint32_t step = end - at < FETCH_BLOCKS ? end - at : FETCH_BLOCKS;

        result = bring(m, r, at, at + step, merge);
        at += step;
        weir_managed_map_up_to(mapper, at);
    }
    weir_managed_map_end(m, r, mapper);
    return result;
}

/* Is all work done, or does it end within WEIR_MANAGED_SETTLE_NS? The device's context is current
 * afterwards. */
static bool settle_locked(struct weir_session *session, struct weir_managed *m)
{
    uint64_t end_ns = weir_clock_now_ns() + WEIR_MANAGED_SETTLE_NS;
    bool idle;

    weir_managed_order_locked(m);
    (void)weir_session_switch(session, m->device);
    do {
        idle = weir_managed_is_idle_locked(m);
    } while (!idle && weir_clock_now_ns() < end_ns);
    return idle;
}

CUresult weir_managed_merge(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;
    CUresult result = CUDA_SUCCESS;

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_VALUE);
    WEIR_LOCKED(&m->lock);
    if (weir_managed_any_merged_locked(m)) {
        result = weir_managed_carry_all_locked(m, settle_locked(session, m));
    }
    return result;
}

CUresult weir_managed_fetch(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    struct weir_managed *m = session->devices.managed;
    CUresult result = CUDA_SUCCESS;
    uint32_t at, end;

    WEIR_FAIL_IF(!m || bytes == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&m->lock);
    bool idle = settle_locked(session, m);
    weir_managed_merging_locked(m, !idle);
    for (struct weir_managed_range *r = m->ranges; r && result == CUDA_SUCCESS; r = r->next) {
        if (r->watched && part_of(r, address, bytes, &at, &end)) {
            result = fetch(m, r, at, end, !idle);
        }
    }
    weir_managed_merging_locked(m, false);
    pthread_mutex_unlock(&m->lock);
    kick(m);
    return result;
}

/* ---------------------------------------------------------------- work */

void weir_managed_reached_slow(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    struct weir_managed *m = session->devices.managed;
    const unsigned int looked_at = WEIR_BLOCK_ON_CPU | WEIR_BLOCK_MERGED;
    uint32_t at, end;

    WEIR_LOCKED(&m->lock);
    for (struct weir_managed_range *r = m->ranges; r && m->n_cpu != 0; r = r->next) {
        if (!r->watched || !part_of(r, address, bytes, &at, &end)) {
            continue;
        }
        for (; at < end; at++) {
            unsigned int state = r->blocks.state[at];
            const uint64_t offset = at * WEIR_BLOCK_BYTES;

            if ((state & looked_at) == WEIR_BLOCK_ON_CPU &&
                weir_managed_merge_locked(m, r, at, 1) && !(state & WEIR_BLOCK_ON_GPU)) {
                /* Copy the bytes that were compared: the program may be writing to the page. */
                (void)session->driver->cuMemcpyAsync(r->chunk->base + offset,
                                                     (uintptr_t)(r->before + offset),
                                                     WEIR_BLOCK_BYTES, m->copies);
            }
        }
    }
    (void)(m->n_cpu != 0 ? copied(m, CUDA_SUCCESS) : CUDA_SUCCESS);
}

void weir_managed_function_ran(struct weir_session *session)
{
    struct weir_managed *m = session->devices.managed;
    uint64_t asked, end_ns = weir_clock_now_ns() + WEIR_NS_PER_S;

    if (!m) {
        return;
    }
    WEIR_LOCKED(&m->lock);
    bool any = weir_managed_any_merged_locked(m);
    asked = any ? ++m->asked : 0;
    kick(m);
    while (any && m->merges < asked && !atomic_load(&m->ends) &&
           weir_thread_condition_wait(&m->merged, &m->lock, end_ns)) {
    }
}
