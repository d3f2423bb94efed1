/*
 * What the sessions of a worker share: the driver, its devices and their contexts, tenants.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_WORKER_H
#define WEIR_HOST_BACKEND_WORKER_STATE_WORKER_H

#include "host_backend/config/link.h"
#include "host_backend/worker/state/platform.h"
#include <pthread.h>

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
    atomic_uint_fast64_t next_chunk;                   /* ids of memory that were given */
    atomic_uint_fast64_t objects, chunks, chunk_bytes; /* that there are */
    pthread_mutex_t sync_lock;                         /* guards: */
    uint32_t syncs;                                    /* WEIR_LINK_SYNC that were sent */
    struct weir_account_pool *pool; /* what tenants divide; owned; NULL: nothing (limits.c) */
};

/*
 * What sessions share. The parts in the second half are known to their own files only: their
 * insides are in one .c file each, or in a header for it (barrier.h, vmm_area.h).
 */
struct weir_worker {
    struct weir_link_config config;
    struct weir_platform platform;
    int link;          /* to the supervisor */
    int wake_fd;       /* an eventfd: the main thread looks at stopping and sticky */
    atomic_int sticky; /* CUresult that ended the context */
    struct weir_worker_counts counts;

    pthread_mutex_t lock; /* guards what follows, up to ended (weir_sessions_lock()) */
    pthread_cond_t idle;  /* n_sessions became smaller */
    struct weir_session *sessions;
    uint32_t n_sessions; /* also those on their way up or down */
    struct weir_tenant *tenants[WEIR_CONFIG_TENANTS_MAX];
    struct region *regions;           /* of virtual machines (worker/regions.c) */
    struct weir_ended_session *ended; /* the last ones' statistics, newest first (worker/stats.c) */

    struct weir_connections *connections; /* to the GPU */
    struct weir_guests *guests;       /* connections that are no sessions yet (worker/guests.c) */
    struct weir_directory *directory; /* what programs share (memory/directory.h) */
    struct weir_vmm_area *vmm_area;   /* addresses that sessions reserve */
    struct weir_device_idle *device_idle;             /* around calls that wait for the device */
    struct weir_prints *prints;                       /* who owns the device's printf */
    struct weir_device_gate *gates[WEIR_DEVICES_MAX]; /* NULL: no scheduler, or not open */
    const struct weir_session_hooks *hooks;           /* NULL: nobody wants to be asked */
    struct weir_forms *forms;                         /* NULL: all kernels are originals */
};

#endif
