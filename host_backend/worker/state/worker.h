/*
 * The state that the sessions of a worker share: the driver, its devices and their contexts,
 * tenants.
 */
#pragma once

#include "base/thread.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/state/platform.h"

struct weir_device_gate;
struct weir_directory;
struct weir_forms;
struct weir_prints;
struct weir_session;
struct weir_session_hooks;
struct weir_tenant;
struct region;
struct weir_account_pool;
struct weir_connections;
struct weir_device_idle;
struct weir_guests;
struct weir_vmm_area;

struct weir_worker_counts {
    atomic_uint_fast64_t next_chunk;                   /* id of the next memory */
    atomic_uint_fast64_t objects, chunks, chunk_bytes; /* current numbers */
    pthread_mutex_t sync_lock;                         /* guards syncs */
    uint32_t syncs;                                    /* number of WEIR_LINK_SYNC that were sent */
    struct weir_account_pool *pool; /* the pool that tenants share; owned; NULL: none (limits.c) */
};

/*
 * The state that sessions share. Only their own files know the inside of the parts in the second
 * half: it is in one .c file each, or in a header for it (barrier.h, vmm_area.h).
 */
struct weir_worker {
    struct weir_link_config config;
    struct weir_platform platform;
    int link;          /* descriptor of the supervisor's link */
    int wake_fd;       /* eventfd that makes the main thread check `stopping` and `sticky` */
    atomic_int sticky; /* CUresult that ended the context */
    struct weir_worker_counts counts;

    pthread_mutex_t lock; /* guards what follows, up to ended (weir_sessions_lock()) */
    pthread_cond_t idle;  /* signalled when n_sessions became smaller */
    struct weir_session *sessions;
    uint32_t n_sessions; /* also counts sessions that are starting or ending */
    struct weir_tenant *tenants[WEIR_CONFIG_TENANTS_MAX];
    struct region *regions;           /* regions of virtual machines (worker/regions.c) */
    struct weir_ended_session *ended; /* statistics of the last sessions, newest first (stats.c) */

    struct weir_connections *connections; /* connections to the GPU */
    struct weir_guests *guests;       /* connections that are no sessions yet (worker/guests.c) */
    struct weir_directory *directory; /* objects that programs share (memory/directory.h) */
    struct weir_vmm_area *vmm_area;   /* addresses that sessions reserve */
    struct weir_device_idle *device_idle;             /* barrier for calls that need idle devices */
    struct weir_prints *prints;                       /* which session has the printf output */
    struct weir_device_gate *gates[WEIR_DEVICES_MAX]; /* NULL: no scheduler, or not open */
    const struct weir_session_hooks *hooks;           /* NULL: there are none */
    struct weir_forms *forms;                         /* NULL: all kernels are originals */
};
