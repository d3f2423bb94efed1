/* Grants of memory, registration of the guest's own memory, and the tenant's account. */
#include "host_backend/worker/ops/ops.h"

#include "base/addresses.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/pieces.h"
#include "host_backend/worker/memory/region.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define GRANTS_MAX      65536
#define FD_WAIT_NS      WEIR_NS_PER_S /* the descriptor was sent right after the request */
#define LOWEST_ADDRESS  0x10000u
#define HIGHEST_ADDRESS 0x7ffffffff000u
/* Size of the pieces of the window that are taken when the guest's address is not free here. */
#define REGISTRATION_UNIT (2u << 20)

void weir_grant_drop(struct weir_session *session, struct weir_grant *grant)
{
    WEIR_UNLINK(session->holdings->grants, grant, next);
    weir_session_unadmit(session, grant);
    if (!grant->opened) {
        weir_managed_remove(session, grant->chunk);
    }
    if (grant->chunk->pinned) {
        weir_session_unpins(session, grant->chunk->bytes);
    } else if (grant->chunk->pieces) {
        weir_pieces_drop(session, grant->chunk);
    } else if (grant->opened) {
        weir_session_closes(session, grant->chunk->bytes);
    } else {
        weir_session_let_go(session, grant->chunk->device, grant->chunk->bytes);
    }
    weir_chunk_put(session, grant->chunk);
    session->holdings->n_grants--;
    free(grant);
}

/* Add a chunk reference; on failure the reference is dropped. */
static CUresult add_grant(struct weir_session *s, struct weir_host_chunk *chunk, bool opened,
                          uint64_t base, uint64_t bytes, struct weir_grant **ret_grant)
{
    struct weir_grant *grant = s->holdings->n_grants < GRANTS_MAX ? calloc(1, sizeof *grant) : NULL;

    if (!grant || weir_session_admit(s, base, bytes, grant) != WEIR_OK) {
        free(grant);
        weir_pieces_drop(s, chunk);
        weir_chunk_put(s, chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *grant = (struct weir_grant){.next = s->holdings->grants,
                                 .chunk = chunk,
                                 .reference = ++s->holdings->next_reference,
                                 .opened = opened,
                                 .base = base,
                                 .bytes = bytes};
    s->holdings->grants = grant;
    s->holdings->n_grants++;
    if (chunk->pinned) {
        weir_session_pins(s, chunk->bytes);
    } else if (opened) {
        weir_session_opens(s, chunk->bytes);
    } else if (!chunk->pieces) { /* pieces count for themselves */
        weir_session_hold(s, chunk->device, chunk->bytes);
    }
    *ret_grant = grant;
    return CUDA_SUCCESS;
}

CUresult weir_ops_grant_again(struct weir_session *s, struct weir_host_chunk *chunk,
                              uint64_t reference)
{
    struct weir_grant *grant;

    WEIR_TRY(add_grant(s, chunk, false, chunk->base, chunk->bytes, &grant));
    grant->reference = reference;
    return CUDA_SUCCESS;
}

/* Can all devices reach managed memory of this one? (All reach pinned memory.) */
static bool all_reach(const struct weir_session *s)
{
    bool all = true;

    for (uint32_t i = 0; i < s->platform->n_devices; i++) {
        all &= i == s->device || (s->platform->devices[i].peers >> s->device & 1) != 0;
    }
    return all;
}

CUresult weir_host_mem_grant(struct weir_session *s, const struct weir_op_mem_grant_in *in,
                             struct weir_op_mem_grant_out *out)
{
    struct weir_host_chunk *chunk;
    struct weir_grant *grant;
    CUstream work;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(in->kind >= WEIR_GRANT_KIND_COUNT, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_work_stream(s, &work));
    WEIR_FAIL_IF(in->kind == WEIR_GRANT_MANAGED && (!s->devices.managed || !all_reach(s)),
                 CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(weir_chunk_create(s, s->device, in->bytes, (enum weir_grant_kind)in->kind, work,
                               weir_session_region(s), &chunk));
    WEIR_TRY(add_grant(s, chunk, false, chunk->base, chunk->bytes, &grant));
    if (in->kind == WEIR_GRANT_MANAGED) {
        CUresult result = weir_managed_add(s, chunk, &chunk->fd);

        if (result != CUDA_SUCCESS) {
            weir_grant_drop(s, grant);
            return result;
        }
    }
    if (chunk->fd >= 0 && (chunk->pinned || chunk->pieces) && weir_session_passes_fds(s)) {
        if (weir_session_send_fd(s, chunk->fd) != WEIR_OK) {
            weir_chunk_file_sent(chunk);
            weir_grant_drop(s, grant);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        out->n_fds = 1;
    }
    weir_chunk_file_sent(chunk);
    out->fd_offset = chunk->region_offset;
    out->base = chunk->base;
    out->bytes = chunk->bytes;
    out->chunk = grant->reference;
    return CUDA_SUCCESS;
}

static struct weir_grant *find_grant(struct weir_session *s, uint64_t reference, bool opened)
{
    for (struct weir_grant *g = s->holdings->grants; g; g = g->next) {
        if (g->reference == reference && g->opened == opened) {
            return g;
        }
    }
    return NULL;
}

struct weir_host_chunk *weir_ops_granted(const struct weir_session *s, uint64_t base,
                                         uint64_t bytes)
{
    for (const struct weir_grant *g = s->holdings->grants; g; g = g->next) {
        if (!g->opened && !g->chunk->pinned && !g->chunk->pieces && base >= g->base && bytes != 0 &&
            base - g->base < g->bytes && bytes <= g->bytes - (base - g->base)) {
            return g->chunk;
        }
    }
    return NULL;
}

/*
 * Return memory without waiting for work. The guest has made sure that no work uses it, and a wait
 * would block a channel that the work may need (for a host function's answer). If a guest lies, its
 * kernels fault as with any wild pointer.
 */
CUresult weir_host_mem_return(struct weir_session *s, const struct weir_op_mem_return_in *in)
{
    struct weir_grant *grant = find_grant(s, in->chunk, false);

    WEIR_FAIL_IF(!grant, CUDA_ERROR_INVALID_VALUE);
    /* The driver waits for the device to unregister pinned memory. For other memory, values that
     * streams wait for must be written before it is gone. */
    if ((grant->chunk->pinned || weir_awaited_within(s, grant->chunk->base, grant->chunk->bytes)) &&
        !weir_awaited_settle(s)) {
        return CUDA_ERROR_UNKNOWN;
    }
    weir_grant_drop(s, grant);
    return CUDA_SUCCESS;
}

CUresult weir_host_memory_refused(struct weir_session *s, struct weir_op_memory_refused_out *out)
{
    out->text = (const void *)weir_session_last_refusal(s);
    out->n_text = (uint32_t)strlen(weir_session_last_refusal(s));
    return CUDA_SUCCESS;
}

CUresult weir_host_mem_info(struct weir_session *s, struct weir_op_mem_info_out *out)
{
    const struct weir_account *account = &s->tenant->account;
    const enum weir_account_item item = WEIR_ACCOUNT_OF_DEVICE + s->op.device;
    uint64_t quota = weir_account_limit(account, WEIR_ACCOUNT_DEVICE_MEMORY);
    const struct weir_worker_device *device = &s->platform->devices[s->op.device];
    uint64_t device_free = device->about.total_memory_bytes, ended, left;
    size_t free_bytes, total_bytes;

    /* Count memory of ended programs as free. Read this first, since they may free it in
     * between. */
    ended = weir_tenant_held_by_ended(s->tenant, WEIR_ENDING_NS);
    out->free = weir_account_left(account, WEIR_ACCOUNT_DEVICE_MEMORY) + ended;
    left = weir_account_left(account, item);
    if (out->free > left && out->free - left > ended) {
        out->free = left + ended;
    }
    if (s->op.device != s->device) { /* this thread has no context of that device current */
        (void)weir_nvml_free_bytes(device->nvml, &device_free);
    } else if (s->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        device_free = free_bytes;
    }
    out->total = device->about.total_memory_bytes;
    if (out->total > quota) {
        out->total = quota; /* the quota covers all devices together */
    }
    if (out->total > weir_account_limit(account, item)) {
        out->total = weir_account_limit(account, item);
    }
    device_free += ended + weir_spare_bytes(s, s->op.device);
    if (out->free > device_free) { /* quotas may add up to more than the device has */
        out->free = device_free;
    }
    if (out->free > out->total) {
        out->free = out->total;
    }
    weir_session_limit_info(s, s->op.device, &out->free, &out->total);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- managed memory that moves */

/* Receive the descriptor first: the guest has sent it in any case. A retry has it already. */
static CUresult receive_fd(struct weir_session *s)
{
    enum weir_status status =
        s->op.fd < 0 ? weir_session_receive_fd(s, FD_WAIT_NS, &s->op.fd) : WEIR_OK;

    WEIR_FAIL_IF(status == WEIR_ERR_UNSUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
    if (status != WEIR_OK) {
        weir_session_end(s);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_managed_begin(struct weir_session *s)
{
    WEIR_TRY(receive_fd(s));
    int fd = s->op.fd;
    s->op.fd = -1;
    return weir_managed_begin(s, fd) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult weir_host_managed_mapped(struct weir_session *s,
                                  const struct weir_op_managed_mapped_in *in)
{
    struct weir_grant *grant = find_grant(s, in->chunk, false);

    return weir_managed_watch(s, grant ? grant->base : in->chunk);
}

CUresult weir_host_managed_variable(struct weir_session *s,
                                    const struct weir_op_managed_variable_in *in)
{
    const struct weir_range *own = weir_host_range_find(&s->holdings->ranges, in->address);
    const void *owner = weir_host_object_get(s, WEIR_KIND_MODULE, in->owner);
    int fd;

    owner = owner ? owner : weir_host_object_get(s, WEIR_KIND_LIBRARY, in->owner);
    if (!owner || !own || own->owner != owner || in->bytes == 0 ||
        in->bytes > own->bytes - (in->address - own->base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_FAIL_IF(!weir_session_passes_fds(s), CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(weir_managed_add_variable(s, owner, in->address, in->bytes, &fd));
    enum weir_status status = weir_session_send_fd(s, fd);
    close(fd);
    if (status != WEIR_OK) {
        weir_session_end(s); /* the guest waits for the descriptor that a success announces */
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_managed_take(struct weir_session *s, const struct weir_op_managed_take_in *in,
                                struct weir_op_managed_take_out *out)
{
    uint32_t n = WEIR_OP_managed_take_out_bases_max;
    uint64_t *words = weir_session_alloc(s, 2 * (size_t)n * sizeof *words);

    WEIR_FAIL_IF(!words, CUDA_ERROR_OUT_OF_MEMORY);
    out->bases = words;
    out->sizes = words + n;
    weir_managed_take(s, in->address, in->bytes, words, words + n, &n);
    out->n_bases = out->n_sizes = n;
    return CUDA_SUCCESS;
}

CUresult weir_host_managed_taken(struct weir_session *s)
{
    return weir_managed_taken(s);
}

CUresult weir_host_managed_merge(struct weir_session *s)
{
    return weir_managed_merge(s);
}

CUresult weir_host_managed_place(struct weir_session *s, const struct weir_op_managed_place_in *in)
{
    WEIR_FAIL_IF(in->place >= WEIR_MANAGED_PLACE_COUNT, CUDA_ERROR_INVALID_VALUE);
    weir_managed_place(s, in->address, in->bytes, (enum weir_managed_place)in->place);
    return CUDA_SUCCESS;
}

CUresult weir_host_managed_fetch(struct weir_session *s, const struct weir_op_managed_fetch_in *in)
{
    return weir_managed_fetch(s, in->address, in->bytes);
}

/* ---------------------------------------------------------------- the guest's own memory */

/*
 * Registered memory (docs/design/registered.md). Its pages belong to a file that this process maps,
 * too: a file that the guest passes, or memory made here that the guest puts in the place of its
 * pages.
 */

static void give_addresses(struct weir_session *s, const struct weir_registration *r)
{
    struct weir_tenant *t = s->tenant;

    if (!r->in_window) {
        munmap((void *)(uintptr_t)r->device, r->bytes);
        return;
    }
    (void)weir_addresses_reclaim(r->device, r->room);
    WEIR_LOCKED(&t->lock);
    (void)!weir_window_give(&t->host_window, r->device, r->room);
}

/* Unregister memory. The device is idle, or has never accessed it. */
static void unregister(struct weir_session *session, void *what)
{
    struct weir_registration *r = what;

    if (r->pinned) {
        (void)session->driver->cuMemHostUnregister((void *)(uintptr_t)r->device);
    }
    if (r->device != 0) {
        give_addresses(session, r);
    }
    if (r->guarded) {
        weir_bus_unguard(r->device, r->bytes);
    }
    if (r->in_region) {
        weir_region_give(weir_session_region(session), r->region_offset, r->bytes);
    }
    r->file = weir_fd_close(r->file);
    weir_account_release_all(&session->tenant->account, &r->charged);
    weir_session_unpins(session, r->bytes);
    free(r);
}

void weir_registration_drop(struct weir_session *session, struct weir_registration *r)
{
    uint32_t idle;

    weir_host_range_remove_at(&session->holdings->registered, r->device, r);
    session->holdings->n_read_only -= r->read_only;
    weir_session_unadmit_at(session, r->device, r);
    if (!r->pinned) {
        unregister(session, r);
    } else if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        unregister(session, r);
        weir_device_idle_end(session->worker, idle);
    } else {
        weir_put_off(session, unregister, r, r->device, r->bytes);
    }
}

static bool map_at(struct weir_registration *r, uint64_t device, int flag, int fd)
{
    void *want = (void *)(uintptr_t)device;
    void *at =
        mmap(want, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flag, fd, (off_t)r->offset);

    if (at != MAP_FAILED && at != want) {
        munmap(at, r->bytes); /* a kernel that does not know the flag may map elsewhere */
    }
    if (at != want) {
        return false;
    }
    r->device = device;
    return true;
}

/* Map the memory in the window. @param device  where; 0: where there is room */
static CUresult map_in_window(struct weir_session *s, struct weir_registration *r, uint64_t device,
                              int fd)
{
    struct weir_tenant *t = s->tenant;

    r->room = (r->bytes + REGISTRATION_UNIT - 1) / REGISTRATION_UNIT * REGISTRATION_UNIT;
    pthread_mutex_lock(&t->lock);
    enum weir_status status =
        device != 0 ? weir_window_take_at(&t->host_window, device, r->room)
                    : weir_window_take(&t->host_window, r->room, REGISTRATION_UNIT, &device);
    pthread_mutex_unlock(&t->lock);
    WEIR_FAIL_IF(status != WEIR_OK,
                 device != 0 ? CUDA_ERROR_ALREADY_MAPPED : CUDA_ERROR_OUT_OF_MEMORY);
    r->in_window = true;
    r->device = device; /* its addresses are given back from here on */
    return map_at(r, device, MAP_FIXED, fd) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Map the memory at the guest's address if that is free here. */
static bool map_there(struct weir_session *s, struct weir_registration *r, uint64_t address, int fd)
{
    return !weir_tenant_windows_overlap(s->worker, address, r->bytes) &&
           map_at(r, address, MAP_FIXED_NOREPLACE, fd);
}

/*
 * May the file be mapped? The pages of a sealed memfd cannot go away. A file that the program
 * shares cannot be sealed any more: it must be of a tmpfs (another file system may make us wait for
 * ever), and reads behind a new end give zeros (state/bus_guard.h).
 */
static bool fd_ok(int fd, uint64_t offset, uint64_t bytes, bool *ret_sealed)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs system;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), there;
    struct stat info;

    *ret_sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
    if (!*ret_sealed && (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)) {
        return false;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return false;
    }
    there = ((uint64_t)info.st_size + page - 1) & ~(page - 1); /* the last page is whole */
    return offset <= there && bytes <= there - offset;
}

static CUresult pin(struct weir_session *s, struct weir_registration *r)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                     (r->read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
    void *at = (void *)(uintptr_t)r->device;
    CUdeviceptr device = 0;

    WEIR_TRY(s->driver->cuMemHostRegister_v2(at, r->bytes, flags));
    r->pinned = true;
    WEIR_TRY(s->driver->cuMemHostGetDevicePointer_v2(&device, at, 0));
    WEIR_FAIL_IF(device != r->device, CUDA_ERROR_NOT_SUPPORTED);
    return weir_session_admit(s, r->device, r->bytes, r) == WEIR_OK ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Charge for a registration; place() will map it, and then it is listed. */
static CUresult begin(struct weir_session *s, uint64_t address, uint64_t bytes, bool guarded,
                      struct weir_registration **ret)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    if (bytes == 0 || bytes % page != 0 || address % page != 0 || address < LOWEST_ADDRESS ||
        bytes > HIGHEST_ADDRESS || address > HIGHEST_ADDRESS - bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (weir_put_off_holds(s, address, bytes)) { /* otherwise it would get a different address */
        WEIR_TRY(weir_put_off_settle(s));
    }
    struct weir_registration *r = calloc(1, sizeof *r);
    WEIR_FAIL_IF(!r, CUDA_ERROR_OUT_OF_MEMORY);
    r->bytes = bytes;
    r->file = -1;
    r->charged = weir_host_memory_cost(bytes, guarded);
    CUresult result = weir_session_charge_all(s, s->device, &r->charged);
    if (result != CUDA_SUCCESS) {
        free(r);
        return result;
    }
    weir_session_pins(s, bytes);
    *ret = r;
    return CUDA_SUCCESS;
}

/* List a registration that was mapped, or was not. On failure it is freed. */
static CUresult list(struct weir_session *s, struct weir_registration *r, CUresult mapped, int fd)
{
    if (mapped == CUDA_SUCCESS &&
        weir_host_range_add(&s->holdings->registered, r->device, r->bytes, r) != WEIR_OK) {
        mapped = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (mapped != CUDA_SUCCESS) {
        unregister(s, r);
        return mapped;
    }
    if (!r->in_region && weir_memory_holds_file(s->worker, fd)) {
        r->file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    return CUDA_SUCCESS;
}

static CUresult place(struct weir_session *s, struct weir_registration *r, uint64_t address, int fd)
{
    return list(s, r, map_there(s, r, address, fd) ? CUDA_SUCCESS : map_in_window(s, r, 0, fd), fd);
}

/* Place a registration where another worker had it. */
static CUresult place_again(struct weir_session *s, struct weir_registration *r,
                            const struct weir_registration *was)
{
    CUresult mapped = was->in_window ? map_in_window(s, r, was->device, was->file)
                      : map_there(s, r, was->device, was->file) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_ALREADY_MAPPED;

    return list(s, r, mapped, was->file);
}

/*
 * Register the pages of a file.
 * @param as     device (where the guest has them, or another worker had them), bytes, offset,
 *               read_only, in_window; file is borrowed.
 * @param again  another worker had it.
 */
static CUresult register_file(struct weir_session *s, const struct weir_registration *as,
                              bool again, struct weir_registration **ret)
{
    struct weir_registration *r;
    bool sealed;

    if (as->offset % (uint64_t)sysconf(_SC_PAGESIZE) != 0 ||
        !fd_ok(as->file, as->offset, as->bytes, &sealed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(begin(s, as->device, as->bytes, !sealed, &r));
    r->offset = as->offset;
    WEIR_TRY(again ? place_again(s, r, as) : place(s, r, as->device, as->file));
    r->read_only = as->read_only;
    s->holdings->n_read_only += r->read_only;
    r->guarded = !sealed && weir_bus_guard(r->device, r->bytes);
    s->devices.has_peers |= !sealed; /* other programs may have mapped that file */
    if (r->guarded == sealed) {
        weir_registration_drop(s, r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = r;
    /* The set of registrations has it. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return CUDA_SUCCESS;
}

static CUresult pin_or_drop(struct weir_session *s, struct weir_registration *r)
{
    CUresult result = pin(s, r);

    if (result != CUDA_SUCCESS) {
        weir_registration_drop(s, r);
    }
    return result;
}

CUresult weir_ops_register_again(struct weir_session *s, const struct weir_registration *was)
{
    struct weir_registration *r;

    WEIR_TRY(register_file(s, was, true, &r));
    /* The set of registrations has it. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return was->pinned ? pin_or_drop(s, r) : CUDA_SUCCESS;
}

static CUresult register_fd(struct weir_session *s, const struct weir_op_host_register_in *in,
                            uint64_t *ret_device)
{
    const struct weir_registration as = {.device = in->address,
                                         .bytes = in->bytes,
                                         .offset = in->offset,
                                         .file = s->op.fd,
                                         .read_only =
                                             (in->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0};
    struct weir_registration *r;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(register_file(s, &as, false, &r));
    *ret_device = r->device;
    return pin_or_drop(s, r);
}

CUresult weir_host_host_register(struct weir_session *s, const struct weir_op_host_register_in *in,
                                 struct weir_op_host_register_out *out)
{
    WEIR_TRY(receive_fd(s));
    return register_fd(s, in, &out->device_address);
}

/* Get the pages; fd is borrowed if they are the region's. */
static bool take_pages(struct weir_session *s, struct weir_registration *r, int *ret_fd)
{
    struct weir_region_end *end = weir_session_region(s);

    if (!end) {
        *ret_fd = weir_memfd_sealed("weir-registered", r->bytes);
        return *ret_fd >= 0;
    }
    r->in_region = weir_region_take(end, r->bytes, ret_fd, &r->region_offset) == WEIR_OK;
    r->offset = weir_region_file_offset(end, r->region_offset);
    return r->in_region;
}

CUresult weir_host_host_replace(struct weir_session *s, const struct weir_op_host_replace_in *in,
                                struct weir_op_host_replace_out *out)
{
    struct weir_registration *r;
    int fd;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_FAIL_IF(!weir_session_region(s) && !weir_session_passes_fds(s), CUDA_ERROR_NOT_SUPPORTED);
    WEIR_TRY(begin(s, in->address, in->bytes, false, &r));
    if (!take_pages(s, r, &fd)) {
        unregister(s, r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = place(s, r, in->address, fd);
    if (!weir_session_region(s)) {
        if (result == CUDA_SUCCESS && weir_session_send_fd(s, fd) != WEIR_OK) {
            weir_registration_drop(s, r);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        out->n_fds = result == CUDA_SUCCESS;
        close(fd);
    }
    if (result == CUDA_SUCCESS) {
        out->device_address = r->device;
        /* The set of registrations has it. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        out->offset = r->region_offset;
    }
    return result;
}

static struct weir_registration *find(const struct weir_session *s, uint64_t device)
{
    const struct weir_range *range = weir_host_range_find(&s->holdings->registered, device);

    return range && range->base == device ? (void *)(uintptr_t)range->owner : NULL;
}

CUresult weir_host_host_replaced(struct weir_session *s, const struct weir_op_host_replaced_in *in)
{
    struct weir_registration *r = find(s, in->device_address);

    return !r || r->pinned ? CUDA_ERROR_INVALID_VALUE : pin(s, r);
}

CUresult weir_host_host_unregister(struct weir_session *s,
                                   const struct weir_op_host_unregister_in *in)
{
    struct weir_registration *r = find(s, in->device_address);

    WEIR_FAIL_IF(!r, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    WEIR_FAIL_IF(!weir_awaited_settle_all(s),
                 CUDA_ERROR_UNKNOWN); /* the session is ending, so nobody reads the error */
    weir_registration_drop(s, r);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- memory of other processes of the
 * tenant */

/* Is this part within the chunk? A guest may ask for any part of a chunk whose key it knows, since
 * its kernels can access all of it. */
static bool lies_in(const struct weir_ipc_handle *handle, const struct weir_host_chunk *chunk)
{
    return handle->bytes != 0 && handle->offset < chunk->bytes &&
           handle->bytes <= chunk->bytes - handle->offset;
}

CUresult weir_host_ipc_open(struct weir_session *s, const struct weir_op_ipc_open_in *in,
                            struct weir_op_ipc_open_out *out)
{
    struct weir_ipc_handle handle;
    struct weir_host_chunk *chunk;
    struct weir_grant *grant;

    memcpy(&handle, in->handle, sizeof handle);
    WEIR_TRY(weir_chunk_open(s, handle.key, &chunk));
    if (!lies_in(&handle, chunk)) {
        weir_chunk_put(s, chunk);
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(add_grant(s, chunk, true, chunk->base + handle.offset, handle.bytes, &grant));
    s->devices.has_peers = true;
    out->base = grant->base;
    out->bytes = grant->bytes;
    out->device = chunk->device;
    out->reference = grant->reference;
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_close(struct weir_session *s, const struct weir_op_ipc_close_in *in)
{
    struct weir_grant *grant = find_grant(s, in->reference, true);

    WEIR_FAIL_IF(!grant, CUDA_ERROR_INVALID_VALUE);
    weir_grant_drop(s, grant);
    return CUDA_SUCCESS;
}
