/*
 * What a worker's sessions run on: the driver, its devices, and how long a thread spins for them.
 * Constant from weir_worker_open_device() on, but for windows, what is ready, and the devices'
 * contexts: the first device has one from then on, each other device from its first use on
 * (device/contexts.c).
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATE_PLATFORM_H
#define WEIR_HOST_BACKEND_WORKER_STATE_PLATFORM_H

#include "host_backend/config/config.h"
#include "host_backend/config/control.h"
#include "host_backend/config/link.h"
#include "host_backend/config/spin.h"
#include "host_backend/worker/state/session.h"
#include <pthread.h>

struct weir_directory;
struct weir_nvml;
struct weir_program_ptx;
struct weir_spares;

#define WEIR_ZEROES_BYTES  (1u << 20)
#define WEIR_DEVICE_LIMITS 7 /* that a program may set for its context */

/* One GPU of a worker. */
struct weir_worker_device {
    CUdevice cu;
    struct weir_device about; /* snapshot for guests */
    struct weir_nvml *nvml;
    uint32_t peers; /* bit per device of the worker whose memory this one can reach */

    pthread_mutex_t opening;                  /* held by whoever opens it */
    atomic_bool is_open;                      /* what follows is there, and constant */
    CUcontext context;                        /* its primary context, retained */
    bool write_value_ok;                      /* cuStreamWriteValue32 works */
    uint32_t share_pct;                       /* of the SMs, that the context may use; 0: all */
    size_t limits[WEIR_DEVICE_LIMITS];        /* of the context when it was opened */
    uint64_t limit_bytes[WEIR_DEVICE_LIMITS]; /* charged for each; see weir_context_limit_set() */
};

/* Has the device a context? Whoever has seen that may use it. */
static inline bool weir_device_is_open(const struct weir_worker_device *device)
{
    /* C1: acquires the context; meets the release in weir_worker_device_open(). */
    return atomic_load_explicit(&device->is_open, memory_order_acquire);
}

/* How long a session's thread spins. */
struct weir_worker_spin {
    struct weir_spin_page *page; /* who may spin now; as the supervisor says */
    uint64_t ns;                 /* for the next record, where the host may spin */
    uint64_t owed_ns;            /* the same while the GPU owes the guest a word */
};

/* Device memory that a worker of one tenant has made before its first program comes: cleared, and
 * mapped at the beginning of the window that it holds for the tenant. */
struct weir_ready_chunk {
    bool there; /* and not taken */
    CUdeviceptr base;
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
    CUstream clearing; /* NULL: it is cleared */
};

/* What is made for the tenant that comes first. Under the worker's lock. */
struct weir_worker_ready {
    bool has_window; /* it is held, and no tenant has it */
    uint32_t window;
    struct weir_ready_chunk chunk;
};

struct weir_platform {
    struct weir_driver driver;
    char driver_name[WEIR_HOST_TEXT_BYTES];
    struct weir_worker_device devices[WEIR_DEVICES_MAX]; /* as the configuration lists them */
    uint32_t n_devices;
    uint32_t sm;     /* compute capability times ten; 0: softgpu, or devices that differ */
    bool alone;      /* it serves one tenant */
    bool by_program; /* it is for one program at a time; where contexts are short, for several */
    bool real;       /* NVIDIA's driver, not softgpu */
    bool keeps_out;  /* a call that waits for the device keeps other threads out of the driver */
    bool posix_fds;  /* memory can be exported, of all */
    uint32_t *trial; /* a registered page, in which stream writes are tried */
    /* WEIR_ZEROES_BYTES of pinned memory, to clear arrays with (ops/array.c). NULL: it serves one
     * program, or there was no memory. */
    void *zeroes;
    uint64_t granularity_bytes; /* the largest of them */
    struct weir_worker_spin spin;
    struct weir_program_ptx *program_ptx; /* NULL: the driver compiles what programs load */
    /* Of each window whether a tenant has it, or something else lies there. Under the worker's
     * lock. */
    bool window_taken[WEIR_WINDOWS_MAX];
    struct weir_worker_ready ready;
    struct weir_spares *spares; /* memory that may be wanted again; NULL: none is kept */
};

/** A worker's. Sessions have it as session->platform. @thread any */
const struct weir_platform *weir_worker_platform(const struct weir_worker *worker);

/**
 * Tell the supervisor something, and wait until it has done that and all that this thread has told
 * it before. It is given a second.
 * @param first  what; WEIR_LINK_SYNC: nothing more.
 * @return false: it has not, or the link is lost.
 * @thread any, without the worker's lock
 */
bool weir_worker_sync(struct weir_worker *worker, enum weir_link_type first);

/** A worker's; see directory.h. @thread any */
struct weir_directory *weir_worker_directory(const struct weir_worker *worker);

#endif
