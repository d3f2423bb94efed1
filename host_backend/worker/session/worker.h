/*
 * What the sessions of a worker share: the driver, its devices with a context each, tenants.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_WORKER_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_WORKER_H

#include "host_backend/config/link.h"
#include "host_backend/config/spin.h"
#include "host_backend/worker/session/device_idle.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/window.h"
#include "proto/wire/control.h"

struct weir_device_gate;
struct weir_forms;
struct weir_nvml;
struct weir_prints;
struct weir_session;
struct weir_session_hooks;
struct weir_tenant;
struct region;
struct weir_zmq_server;

/* One GPU of a worker. What follows about is set at the start and immutable. */
struct weir_worker_device {
    CUdevice cu;
    CUcontext context;        /* its primary context, retained */
    struct weir_device about; /* snapshot for guests */
    struct weir_nvml *nvml;
    uint32_t peers; /* bit per device of the worker whose memory this one can reach */
};

struct weir_worker {
    struct weir_link_config config;
    struct weir_driver driver;
    char driver_name[WEIR_HOST_TEXT_BYTES];
    struct weir_worker_device devices[WEIR_DEVICES_MAX]; /* as the configuration lists them */
    uint32_t n_devices;
    uint32_t sm;         /* compute capability times ten; 0: softgpu, or devices that differ */
    bool real;           /* NVIDIA's driver, not softgpu */
    bool write_value_ok; /* cuStreamWriteValue32 works, on all */
    bool posix_fds;      /* memory can be exported, of all */
    uint64_t granularity_bytes;  /* the largest of them */
    uint64_t spin_ns;            /* for the next record of a session, where the host may spin */
    uint64_t owed_spin_ns;       /* the same while the GPU owes the guest a word */
    struct weir_spin_page *spin; /* who may spin now; as the supervisor says */
    uint32_t connections;        /* of its contexts, as far as it can tell */
    uint32_t connections_most;   /* that a program may have it started with */
    bool connections_bound;      /* by the host's environment */
    uint64_t opened_ns;          /* when its contexts were there */
    int link;
    bool may_listen; /* it knows the tenants that were there when it started */
    int tcp_fd;      /* the supervisor's listener for remote guests, until the server has it; -1 */
    char trace_text[WEIR_HOST_TEXT_BYTES]; /* what came of the last request to record */
    int wake_fd;   /* an eventfd: the main thread looks at stopping and sticky */
    int region_fd; /* of a region whose bell has not come yet; -1 */
    struct weir_link_region region;
    int exports_fd; /* an epoll set of the exports' descriptors (session/export.c) */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t idle;  /* n_sessions became smaller */
    struct weir_session *sessions;
    uint32_t n_sessions; /* also those on their way up or down */
    uint32_t n_let_in;   /* of those, the ones that weir_connections_admit() let in */
    bool renewing;       /* the supervisor is to start it again with other connections */
    uint64_t next_session;
    struct weir_tenant *tenants[WEIR_CONFIG_TENANTS_MAX];
    struct weir_ended_session *ended; /* the last ones' statistics, newest first */
    struct region *regions;           /* of virtual machines (worker/regions.c) */
    struct served_port *ports;        /* likewise (worker/stream_ports.c) */

    pthread_mutex_t vmm_lock;    /* guards vmm_area and the tenants' vmm_bytes */
    struct weir_window vmm_area; /* addresses for cuMemAddressReserve, of all tenants; made late */

    struct weir_prints *prints;                       /* session/prints.h */
    struct weir_device_gate *gates[WEIR_DEVICES_MAX]; /* session/gates.h; NULL: no scheduler */
    const struct weir_session_hooks *hooks;           /* NULL: nobody wants to be asked */
    struct weir_forms *forms; /* internally locked; NULL: all kernels are originals */
    struct weir_zmq_server *zmq;
    char zmq_path[WEIR_CONFIG_PATH_BYTES + 96]; /* its socket, beside the tenants' */
    atomic_uint_fast64_t next_chunk;
    atomic_uint_fast64_t objects, chunks, chunk_bytes;
    struct weir_device_idle device_idle;
    atomic_int sticky; /* CUresult that ended the context */
};

/* device.c */

/**
 * Open the driver that the configuration asks for and retain its devices' primary contexts.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND (no driver or device), WEIR_ERR_DRIVER, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_worker_open_device(struct weir_worker *worker) WEIR_MUST_CHECK;
void weir_worker_close_device(struct weir_worker *worker);
/** Make the first device's context current in this thread, with relaxed capture. */
CUresult weir_worker_enter(struct weir_worker *worker);
/** Bytes of all devices. */
uint64_t weir_worker_total_bytes(const struct weir_worker *worker);
/** "NVIDIA H200", or "2 x NVIDIA H200", or both names where they differ. */
void weir_worker_device_text(const struct weir_worker *worker, char *text, size_t bytes);
/** Note an error that no context survives: tells all sessions; the worker then exits.
 * @thread any */
void weir_worker_sticky(struct weir_worker *worker, CUresult error);
/** Is this an error that ends a context? */
bool weir_error_is_sticky(CUresult error);

/* connections.c */

/** Choose CUDA_DEVICE_MAX_CONNECTIONS. @thread main, before the driver is open */
void weir_connections_set(struct weir_worker *worker);
/**
 * May a guest have a session here, although it wants other connections? Waits for 0.3 s at most
 * for sessions that may be ending. Who was let in is counted in n_let_in.
 * @param tenant  its tenant's name, for the log.
 * @param wanted  0: whatever there is; else 1 .. WEIR_CONTROL_MAX_CONNECTIONS.
 * @return false: the supervisor starts this worker again, the guest is to come again
 * @thread a guest's
 */
bool weir_connections_admit(struct weir_worker *worker, const char *tenant, uint32_t wanted);

#endif
