/* What a session's memory and the like are charged to: see memory.h. */
#include "host_backend/worker/session/about.h"
#include "host_backend/worker/session/bus_guard.h"
#include "host_backend/worker/session/memory.h"
#include "host_backend/worker/session/tenant.h"

#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/worker.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* By what its guest asked to be held to. */
static bool may_hold(const struct weir_session *session, uint32_t device, uint64_t bytes)
{
    uint64_t limit = session->about->wish.memory_bytes[device];
    uint64_t held = atomic_load(&session->about->device_bytes[device]);

    return limit == 0 || (held <= limit && bytes <= limit - held);
}

/* A half is for connections, for the driver and for this process itself. */
static uint64_t descriptors_of_tenants(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : 0;
}

/* A half is for sessions' segments and threads, for the driver and for this process. */
static uint64_t mappings_of_tenants(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    uint64_t most = 65530; /* the kernel's default */

    if (file != NULL) {
        (void)!fscanf(file, "%" SCNu64, &most);
        fclose(file);
    }
    return most / 2;
}

/* A half is for pinned memory, for the driver and for all else on this machine. */
static uint64_t host_memory_of_tenants(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

struct weir_account_pool *weir_worker_pool_create(void)
{
    struct weir_account_pool *pool = malloc(sizeof *pool);

    if (pool != NULL) {
        weir_account_pool_init(pool);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_DESCRIPTORS, descriptors_of_tenants(),
                                 WEIR_WINDOWS_MAX);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_MAPPINGS, mappings_of_tenants(),
                                 WEIR_WINDOWS_MAX);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_BUS_GUARDS,
                                 WEIR_BUS_GUARDS_MAX / 2, /* a half is for virtual machines */
                                 WEIR_WINDOWS_MAX);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_HOST_MEMORY, host_memory_of_tenants(),
                                 WEIR_WINDOWS_MAX);
    }
    return pool;
}

CUresult weir_session_charge_all(struct weir_session *session, uint32_t device,
                                 const struct weir_amounts *amounts)
{
    uint64_t bytes = amounts->of[WEIR_ACCOUNT_DEVICE_MEMORY];

    return bytes == 0 || may_hold(session, device, bytes)
               ? weir_tenant_charge(session->tenant, amounts)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_session_charge(struct weir_session *session, uint32_t device,
                             enum weir_account_item item, uint64_t bytes)
{
    if (item == WEIR_ACCOUNT_DEVICE_MEMORY && !may_hold(session, device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return weir_account_charge(&session->tenant->account, item, bytes) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_session_hold(struct weir_session *session, uint32_t device, uint64_t bytes)
{
    atomic_fetch_add(&session->about->held_bytes, bytes);
    atomic_fetch_add(&session->about->device_bytes[device], bytes);
}

void weir_session_let_go(struct weir_session *session, uint32_t device, uint64_t bytes)
{
    atomic_fetch_sub(&session->about->held_bytes, bytes);
    atomic_fetch_sub(&session->about->device_bytes[device], bytes);
}

/* A monitor holds nothing; NVML in a process must agree with cuMemGetInfo in it. */
static uint64_t held_by_process(const struct weir_session *session, uint32_t device)
{
    uint64_t held = 0;

    if (!session->about->monitor) {
        return atomic_load(&session->about->device_bytes[device]);
    }
    for (const struct weir_session *s = weir_sessions_lock(session->worker); s != NULL;
         s = s->next) {
        if (s->tenant == session->tenant && s->about->pid == session->about->pid) {
            held += atomic_load(&s->about->device_bytes[device]);
        }
    }
    weir_sessions_unlock(session->worker);
    return held;
}

void weir_session_limit_info(const struct weir_session *session, uint32_t device,
                             uint64_t *free_bytes, uint64_t *total_bytes)
{
    uint64_t limit = session->about->wish.memory_bytes[device];
    uint64_t held, left;

    if (limit == 0) {
        return;
    }
    held = held_by_process(session, device);
    left = held < limit ? limit - held : 0;
    *free_bytes = *free_bytes < left ? *free_bytes : left;
    *total_bytes = *total_bytes < limit ? *total_bytes : limit;
}
