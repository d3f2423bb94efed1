/* Grants of memory, registration of the guest's own, the tenant's account. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/chunk.h"
#include "host_backend/worker/session/ending.h"
#include "host_backend/worker/session/ipc.h"
#include "host_backend/worker/session/platform.h"
#include "host_backend/worker/session/tenant.h"

#include "base/clock.h"
#include "host_backend/worker/session/awaited.h"
#include "host_backend/worker/session/bus_guard.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/holdings.h"
#include "host_backend/worker/session/nvml.h"
#include "host_backend/worker/session/put_off.h"
#include "host_backend/worker/session/region.h"
#include "host_backend/worker/session/spare.h"
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define GRANTS_MAX      65536
#define FD_WAIT_NS      WEIR_NS_PER_S /* it was sent right after the request */
#define LOWEST_ADDRESS  0x10000u
#define HIGHEST_ADDRESS 0x7ffffffff000u
/* Of the window, when the guest's address is not free here. */
#define REGISTRATION_UNIT (2u << 20)

void weir_grant_drop(struct weir_session *session, struct weir_grant *grant)
{
    for (struct weir_grant **at = &session->holdings->grants; *at != NULL; at = &(*at)->next) {
        if (*at == grant) {
            *at = grant->next;
            break;
        }
    }
    weir_session_unadmit(session, grant);
    if (grant->chunk->pinned) {
        weir_session_unpins(session, grant->chunk->bytes);
    } else if (!grant->opened) {
        weir_session_let_go(session, grant->chunk->device, grant->chunk->bytes);
    }
    weir_chunk_put(session, grant->chunk);
    session->holdings->n_grants--;
    free(grant);
}

/* Enter a chunk reference; on failure the reference is dropped. */
static CUresult add_grant(struct weir_session *s, struct weir_host_chunk *chunk, bool opened,
                          uint64_t base, uint64_t bytes, struct weir_grant **ret_grant)
{
    struct weir_grant *grant = s->holdings->n_grants < GRANTS_MAX ? calloc(1, sizeof *grant) : NULL;

    if (grant == NULL || weir_session_admit(s, base, bytes, grant) != WEIR_OK) {
        free(grant);
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
    } else if (!opened) {
        weir_session_hold(s, chunk->device, chunk->bytes);
    }
    *ret_grant = grant;
    return CUDA_SUCCESS;
}

CUresult weir_host_mem_grant(struct weir_session *s, const struct weir_op_mem_grant_in *in,
                             struct weir_op_mem_grant_out *out)
{
    struct weir_host_chunk *chunk;
    struct weir_grant *grant;
    CUstream work;

    if (weir_ops_ctx(s, in->c) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (in->kind >= WEIR_GRANT_KIND_COUNT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_session_work_stream(s, &work));
    WEIR_TRY(weir_chunk_create(s, s->device, in->bytes, in->kind == WEIR_GRANT_PINNED, work,
                               weir_session_region(s), &chunk));
    WEIR_TRY(add_grant(s, chunk, false, chunk->base, chunk->bytes, &grant));
    if (chunk->pinned && weir_session_passes_fds(s)) {
        if (weir_session_send_fd(s, chunk->fd) != WEIR_OK) {
            weir_grant_drop(s, grant);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        out->n_fds = 1;
    }
    weir_chunk_close_file(chunk);
    out->fd_offset = chunk->region_offset;
    out->base = chunk->base;
    out->bytes = chunk->bytes;
    out->chunk = grant->reference;
    return CUDA_SUCCESS;
}

static struct weir_grant *find_grant(struct weir_session *s, uint64_t reference, bool opened)
{
    for (struct weir_grant *g = s->holdings->grants; g != NULL; g = g->next) {
        if (g->reference == reference && g->opened == opened) {
            return g;
        }
    }
    return NULL;
}

struct weir_host_chunk *weir_ops_granted(const struct weir_session *s, uint64_t base,
                                         uint64_t bytes)
{
    for (const struct weir_grant *g = s->holdings->grants; g != NULL; g = g->next) {
        if (!g->opened && !g->chunk->pinned && base >= g->base && bytes != 0 &&
            base - g->base < g->bytes && bytes <= g->bytes - (base - g->base)) {
            return g->chunk;
        }
    }
    return NULL;
}

/*
 * Not waited for here: the guest has made sure that no work uses it, and waiting would block a
 * channel that the work may need (a host function's answer). A guest that lies gets the fault that
 * any wild pointer in a kernel gets.
 */
CUresult weir_host_mem_return(struct weir_session *s, const struct weir_op_mem_return_in *in,
                              struct weir_op_mem_return_out *out)
{
    struct weir_grant *grant = find_grant(s, in->chunk, false);

    (void)out;
    if (grant == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The driver waits to unregister pinned memory; of other memory, nobody could write what
     * streams wait for once it is gone. */
    if ((grant->chunk->pinned || weir_awaited_within(s, grant->chunk->base, grant->chunk->bytes)) &&
        !weir_awaited_settle(s)) {
        return CUDA_ERROR_UNKNOWN;
    }
    weir_grant_drop(s, grant);
    return CUDA_SUCCESS;
}

/* Of the tenant's quota, as if its ended programs held nothing. @param ret_ended  what they hold */
static uint64_t left_of_quota(struct weir_session *s, uint64_t *ret_ended)
{
    const struct weir_account *account = &s->tenant->account;
    struct weir_programs_sum sum = weir_tenant_endings(s->tenant);

    *ret_ended = sum.n_ended != 0
                     ? weir_account_of_ended(account, WEIR_ACCOUNT_DEVICE_MEMORY, sum.alive_bytes)
                     : 0;
    return weir_account_left(account, WEIR_ACCOUNT_DEVICE_MEMORY) + *ret_ended;
}

CUresult weir_host_mem_info(struct weir_session *s, const struct weir_op_mem_info_in *in,
                            struct weir_op_mem_info_out *out)
{
    const struct weir_account *account = &s->tenant->account;
    uint64_t quota = weir_account_limit(account, WEIR_ACCOUNT_DEVICE_MEMORY);
    const struct weir_worker_device *device = &s->platform->devices[s->op.device];
    uint64_t device_free = device->about.total_memory_bytes, ended;
    size_t free_bytes, total_bytes;

    (void)in;
    out->free =
        left_of_quota(s, &ended);    /* before the device is asked: what goes meanwhile counts */
    if (s->op.device != s->device) { /* it has no context */
        (void)weir_nvml_free_bytes(device->nvml, &device_free);
    } else if (s->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        device_free = free_bytes;
    }
    out->total = device->about.total_memory_bytes;
    if (out->total > quota) {
        out->total = quota; /* of all devices together */
    }
    device_free += ended + weir_spare_bytes(s, s->op.device);
    if (out->free > device_free) { /* quotas may add up to more than there is */
        out->free = device_free;
    }
    if (out->free > out->total) {
        out->free = out->total;
    }
    weir_session_limit_info(s, s->op.device, &out->free, &out->total);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- the guest's own memory */

/* The device is idle. */
static void unregister(struct weir_session *session, void *what)
{
    struct weir_registration *registration = what;
    void *at = (void *)(uintptr_t)registration->device;
    struct weir_tenant *t = session->tenant;

    (void)session->driver->cuMemHostUnregister(at);
    if (registration->in_window) {
        (void)weir_window_reclaim(registration->device, registration->room);
    } else {
        munmap(at, registration->bytes);
    }
    if (registration->guarded) {
        weir_bus_unguard(registration->device, registration->bytes);
    }
    if (registration->in_region) {
        weir_region_give(weir_session_region(session), registration->region_offset,
                         registration->bytes);
    }
    weir_account_release_all(&t->account, &registration->charged);
    weir_session_unpins(session, registration->bytes);
    pthread_mutex_lock(&t->lock);
    if (registration->in_window) {
        (void)!weir_window_give(&t->host_window, registration->device, registration->room);
    }
    pthread_mutex_unlock(&t->lock);
    free(registration);
}

void weir_registration_drop(struct weir_session *session, struct weir_registration *registration)
{
    uint32_t idle;

    for (struct weir_registration **r = &session->holdings->registrations; *r != NULL;
         r = &(*r)->next) {
        if (*r == registration) {
            *r = registration->next;
            break;
        }
    }
    weir_session_unadmit(session, registration);
    if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        unregister(session, registration);
        weir_device_idle_end(session->worker, idle);
    } else {
        weir_put_off(session, unregister, registration, registration->device, registration->bytes);
    }
}

/* Where the guest has it, if that is free here; else in the window. */
static CUresult map_guest(struct weir_session *s, struct weir_registration *r, int fd,
                          uint64_t offset)
{
    int protection = PROT_READ | PROT_WRITE;
    struct weir_tenant *t = s->tenant;
    void *at = MAP_FAILED;

    if (!weir_tenant_windows_overlap(s->worker, r->address, r->bytes)) {
        at = mmap((void *)(uintptr_t)r->address, r->bytes, protection,
                  MAP_SHARED | MAP_FIXED_NOREPLACE, fd, (off_t)offset);
        if (at != MAP_FAILED && at != (void *)(uintptr_t)r->address) {
            munmap(at, r->bytes); /* a kernel that does not know the flag */
            at = MAP_FAILED;
        }
    }
    if (at == MAP_FAILED) {
        enum weir_status status;

        r->room = (r->bytes + REGISTRATION_UNIT - 1) / REGISTRATION_UNIT * REGISTRATION_UNIT;
        pthread_mutex_lock(&t->lock);
        status = weir_window_take(&t->host_window, r->room, REGISTRATION_UNIT, &r->device);
        pthread_mutex_unlock(&t->lock);
        if (status != WEIR_OK) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        at = mmap((void *)(uintptr_t)r->device, r->bytes, protection, MAP_SHARED | MAP_FIXED, fd,
                  (off_t)offset);
        r->in_window = true;
        if (at == MAP_FAILED) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    r->device = (uint64_t)(uintptr_t)at;
    return CUDA_SUCCESS;
}

/*
 * Its pages should not be able to go away: memfds that are sealed. A file that the program shares
 * with others cannot be sealed any more: of a tmpfs only (another file system may make us wait for
 * ever), and reading where it was cut gives zeros (session/bus_guard.h).
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
    there = ((uint64_t)info.st_size + page - 1) & ~(page - 1); /* the last page is there in whole */
    return offset <= there && bytes <= there - offset;
}

static CUresult enter_registration(struct weir_session *s, struct weir_registration *r, int fd,
                                   const struct weir_op_host_register_in *in)
{
    unsigned mapped = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUdeviceptr device = 0;
    CUresult result;

    r->next = s->holdings->registrations;
    s->holdings->registrations = r;
    weir_session_pins(s, r->bytes);
    result = map_guest(s, r, fd, in->offset);
    if (result == CUDA_SUCCESS && r->guarded && !weir_bus_guard(r->device, r->bytes)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result =
            s->driver->cuMemHostRegister_v2((void *)(uintptr_t)r->device, r->bytes,
                                            mapped | (in->flags & CU_MEMHOSTREGISTER_READ_ONLY));
    }
    if (result == CUDA_SUCCESS) {
        result = s->driver->cuMemHostGetDevicePointer_v2(&device, (void *)(uintptr_t)r->device, 0);
    }
    if (result == CUDA_SUCCESS && device != r->device) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS && weir_session_admit(s, r->device, r->bytes, r) != WEIR_OK) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult register_fd(struct weir_session *s, const struct weir_op_host_register_in *in,
                            int fd, struct weir_registration **ret_registration)
{
    struct weir_tenant *t = s->tenant;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct weir_registration *r;
    CUresult result;
    bool sealed;

    if (in->bytes == 0 || in->bytes % page != 0 || in->address % page != 0 ||
        in->address < LOWEST_ADDRESS || in->bytes > HIGHEST_ADDRESS ||
        in->address > HIGHEST_ADDRESS - in->bytes || in->offset % page != 0 ||
        !fd_ok(fd, in->offset, in->bytes, &sealed)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (r = s->holdings->registrations; r != NULL; r = r->next) {
        if (r->address < in->address + in->bytes && in->address < r->address + r->bytes) {
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
        }
    }
    if (weir_put_off_holds(s, in->address, in->bytes)) { /* or its address would be another one */
        WEIR_TRY(weir_put_off_settle(s));
    }
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r->address = in->address;
    r->bytes = in->bytes;
    r->guarded = !sealed;
    r->read_only = (in->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    r->charged = weir_host_memory_cost(in->bytes, r->guarded);
    result = weir_session_charge_all(s, s->device, &r->charged);
    if (result != CUDA_SUCCESS) {
        free(r);
        return result;
    }
    result = enter_registration(s, r, fd, in);
    if (result != CUDA_SUCCESS) {
        if (r->device == 0) {
            s->holdings->registrations = r->next; /* nothing was mapped */
            weir_session_unpins(s, r->bytes);
            weir_account_release_all(&t->account, &r->charged);
            free(r);
        } else {
            weir_registration_drop(s, r);
        }
        return result;
    }
    *ret_registration = r;
    return CUDA_SUCCESS;
}

/* A virtual machine's guest cannot send its pages: it gets room, and moves them there. */
static CUresult register_in_region(struct weir_session *s,
                                   const struct weir_op_host_register_in *in,
                                   struct weir_op_host_register_out *out)
{
    struct weir_op_host_register_in there = *in;
    struct weir_registration *r;
    uint64_t offset;
    CUresult result;
    int fd;

    if (weir_ops_ctx(s, in->c) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (weir_region_take(weir_session_region(s), in->bytes, &fd, &there.offset) != WEIR_OK) {
        return in->bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    offset = there.offset;
    there.offset = weir_region_file_offset(weir_session_region(s), offset);
    result = register_fd(s, &there, fd, &r);
    if (result != CUDA_SUCCESS) {
        weir_region_give(weir_session_region(s), offset, in->bytes);
        return result;
    }
    r->in_region = true;
    r->region_offset = out->offset = offset;
    out->device_address = r->device;
    return CUDA_SUCCESS;
}

CUresult weir_host_host_register(struct weir_session *s, const struct weir_op_host_register_in *in,
                                 struct weir_op_host_register_out *out)
{
    struct weir_registration *r;
    enum weir_status status;
    CUresult result;

    if (weir_session_region(s) != NULL) {
        return register_in_region(s, in, out);
    }
    /* The descriptor is on its way whatever we think of the rest: taken first, and once. */
    status = s->op.fd < 0 ? weir_session_receive_fd(s, FD_WAIT_NS, &s->op.fd) : WEIR_OK;
    if (status == WEIR_ERR_UNSUPPORTED) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (status != WEIR_OK) {
        weir_session_end(s);
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = weir_ops_ctx(s, in->c) == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                            : register_fd(s, in, s->op.fd, &r);
    if (result == CUDA_SUCCESS) {
        out->device_address = r->device;
    }
    return result;
}

CUresult weir_host_host_unregister(struct weir_session *s,
                                   const struct weir_op_host_unregister_in *in,
                                   struct weir_op_host_unregister_out *out)
{
    (void)out;
    for (struct weir_registration *r = s->holdings->registrations; r != NULL; r = r->next) {
        if (r->address == in->address) {
            if (!weir_awaited_settle_all(s)) {
                return CUDA_ERROR_UNKNOWN; /* nobody is left to be told */
            }
            weir_registration_drop(s, r);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* ---------------------------------------------------------------- memory of a sister process */

/* A guest may ask for any part of a chunk whose key it knows: its kernels reach all of it. */
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
    out->base = grant->base;
    out->bytes = grant->bytes;
    out->device = chunk->device;
    out->reference = grant->reference;
    return CUDA_SUCCESS;
}

CUresult weir_host_ipc_close(struct weir_session *s, const struct weir_op_ipc_close_in *in,
                             struct weir_op_ipc_close_out *out)
{
    struct weir_grant *grant = find_grant(s, in->reference, true);

    (void)out;
    if (grant == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    weir_grant_drop(s, grant);
    return CUDA_SUCCESS;
}
