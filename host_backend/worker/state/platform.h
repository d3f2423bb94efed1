/*
 * What a worker's sessions run on: the driver, its devices, and how long a thread spins for them.
 * Constant from weir_worker_open_device() on, except windows, prepared memory, and the devices'
 * contexts: the first device has one from then on, each other device from its first use on
 * (device/contexts.c).
 */
#pragma once

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
#define WEIR_DEVICE_LIMITS 7 /* number of limits that a program may set for its context */

struct weir_worker_device {
    CUdevice cu;
    struct weir_device about; /* the description that guests get */
    struct weir_nvml *nvml;
    uint32_t peers; /* bit mask of the worker's devices whose memory this one can reach */

    pthread_mutex_t opening;                  /* held by the thread that opens the device */
    atomic_bool is_open;                      /* if set, the members below are valid and constant */
    CUcontext context;                        /* the device's primary context, retained */
    bool write_value_ok;                      /* cuStreamWriteValue32 works */
    uint32_t share_pct;                       /* SMs that the context may use, in %; 0: all */
    size_t limits[WEIR_DEVICE_LIMITS];        /* the context's limits when it was opened */
    uint64_t limit_bytes[WEIR_DEVICE_LIMITS]; /* charge for each; see weir_context_limit_set() */
};

/* Is the device's context open? A thread that has seen true may use it. */
static inline bool weir_device_is_open(const struct weir_worker_device *device)
{
    /* C1: acquires the context; meets the release in weir_worker_device_open(). */
    return atomic_load_explicit(&device->is_open, memory_order_acquire);
}

/* How long a session's thread spins. */
struct weir_worker_spin {
    struct weir_spin_page *page; /* says who may spin now; written by the supervisor */
    uint64_t ns;                 /* how long to spin for the next record, where the host may spin */
    uint64_t owed_ns;            /* how long to spin while the GPU still has to write a word */
};

/* Device memory that a worker of one tenant makes before its first program: it is cleared, and
 * mapped at the beginning of the window that is reserved for the tenant. */
struct weir_ready_chunk {
    bool there; /* the memory exists and was not taken */
    CUdeviceptr base;
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
    CUstream clearing; /* the stream that clears it; NULL: it is cleared */
};

/* What is prepared for the first tenant. The worker's lock guards it. */
struct weir_worker_ready {
    bool has_window; /* the window is reserved, and no tenant has it */
    uint32_t window;
    struct weir_ready_chunk chunk;
};

struct weir_platform {
    struct weir_driver driver;
    char driver_name[WEIR_HOST_TEXT_BYTES];
    struct weir_worker_device devices[WEIR_DEVICES_MAX]; /* in the order of the configuration */
    uint32_t n_devices;
    uint32_t sm;     /* compute capability times ten; 0: softgpu, or devices that differ */
    bool alone;      /* the worker serves one tenant */
    bool by_program; /* the worker serves one program at a time, or several if contexts are short */
    bool real;       /* NVIDIA's driver, not softgpu */
    bool keeps_out;  /* a call that waits for the device blocks other threads' calls */
    bool away_tests; /* softgpu: sessions are suspended and resumed all the time, for tests */
    uint64_t moves_every; /* softgpu: sessions are moved after each so many records; 0: not */
    bool posix_fds;       /* memory of all devices can be exported */
    uint32_t *trial;      /* a registered page for testing stream writes */
    /* Pinned memory of WEIR_ZEROES_BYTES, to clear arrays with (ops/array.c). NULL: the worker
     * serves one program, or there was no memory. */
    void *zeroes;
    uint64_t granularity_bytes; /* the largest granularity of all devices */
    struct weir_worker_spin spin;
    const char *cupti; /* path of libcupti, or "auto"; NULL: not to be used. Borrowed */
    struct weir_program_ptx *program_ptx; /* NULL: the driver compiles programs' code */
    /* Windows that a tenant has, or whose addresses are in use. The worker's lock guards it. */
    bool window_taken[WEIR_WINDOWS_MAX];
    struct weir_worker_ready ready;
    struct weir_spares *spares; /* spare memory that may be reused; NULL: none is kept */
};

/** The worker's platform. Sessions have it as session->platform. @thread any */
const struct weir_platform *weir_worker_platform(const struct weir_worker *worker);

/** Send the supervisor a message without a descriptor. If the link is lost, the main thread notices
 * that at its next receive. @thread any */
void weir_worker_tell(const struct weir_worker *worker, const struct weir_link_message *message);

/** Likewise, with a descriptor, which is borrowed. @return whether it was sent @thread any */
bool weir_worker_pass(const struct weir_worker *worker, const struct weir_link_message *message,
                      int fd);

/**
 * Send the supervisor a message, and wait at most a second until it has processed that and this
 * thread's earlier messages.
 * @param first  the type of the message; WEIR_LINK_SYNC: only wait.
 * @return false: a second has passed, or the link is lost.
 * @thread any, without the worker's lock
 */
bool weir_worker_sync(struct weir_worker *worker, enum weir_link_type first);

/** The worker's end of the directory; see directory.h. @thread any */
struct weir_directory *weir_worker_directory(const struct weir_worker *worker);
