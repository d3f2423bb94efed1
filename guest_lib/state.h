/*
 * The only global of the guest library: the process's session and the state that depends on it.
 *
 * Life: NEW -> (cuInit) READY -> (exit) GONE. A forked child of a READY process is FORKED for ever;
 * a child of a NEW process is NEW. Nothing is freed at exit: exit handlers of other libraries still
 * call the library, and get CUDA_ERROR_DEINITIALIZED.
 */
#pragma once

#include "base/thread.h"
#include "guest_lib/channel.h"
#include "guest_lib/objects.h"
#include "proto/cuda_abi.h"
#include "proto/wire/control.h"
#include <stdbool.h>
#include <stdint.h>

enum weir_guest_phase {
    WEIR_PHASE_NEW,
    WEIR_PHASE_READY,
    WEIR_PHASE_FORKED,
    WEIR_PHASE_GONE,
};

#define WEIR_GUEST_MAX_DEVICES    ((int)WEIR_CONTROL_MAX_DEVICES)
#define WEIR_GUEST_P2P_ATTRIBUTES 6 /* CUdevice_P2PAttribute by number; 0 is not one */
#define WEIR_GUEST_MAX_ATTRIBUTES CU_DEVICE_ATTRIBUTE_MAX

/* The host's description of a device at the handshake. Immutable after cuInit. */
struct weir_guest_device {
    int host_ordinal; /* the device's place in the welcome */
    char name[256];
    CUuuid uuid;
    uint64_t total_bytes; /* the tenant's quota, if it is smaller than the device */
    uint32_t peers;       /* bit per host ordinal of each device whose memory this one can reach */
    /* Indexed by the other device's host ordinal. */
    uint8_t p2p[WEIR_CONTROL_MAX_DEVICES][WEIR_GUEST_P2P_ATTRIBUTES];
    uint8_t luid[8];
    uint32_t luid_mask;
    char pci_bus_id[32];
    bool real; /* false: softgpu */
    int priority_least;
    int priority_greatest;
    int attributes[WEIR_GUEST_MAX_ATTRIBUTES];
    uint64_t affinity_sms;            /* for cuCtxGetExecAffinity(); 0: not supported */
    uint64_t limits[WEIR_CTX_LIMITS]; /* values of a fresh context, by CUlimit */
    uint32_t limits_known;            /* bit per CUlimit whose value is known */
    struct weir_guest_ctx *primary;   /* made at cuInit, inactive until retained */
};

struct weir_callback_runner;
struct weir_guest_copy_side;
struct weir_mem;
struct weir_stream_capture_copy;

/*
 * Internally locked where a member says so. `weir_guest` is static, so that reading it needs no
 * pointer, and is valid in every phase.
 */
struct weir_guest {
    uint32_t phase; /* atomic, enum weir_guest_phase */
    /* Counts calls of weir_guest_start(): a thread's cached state belongs to one session. */
    uint32_t session;

    /* Set by cuInit, then immutable. */
    struct weir_channel channel;
    int driver_version; /* as reported by cuDriverGetVersion */
    int n_devices;
    struct weir_guest_device devices[WEIR_GUEST_MAX_DEVICES];
    uint64_t window_base; /* range of this tenant's device addresses; pinned memory lies here too */
    uint64_t window_bytes;
    uint64_t granularity_bytes; /* granularity of cuMemCreate and cuMemAddressReserve */
    bool same_process;          /* loop transport: the worker's mappings are in this process */
    bool launch_blocking;       /* WEIR_LAUNCH_BLOCKING or CUDA_LAUNCH_BLOCKING */
    int n_cpus;

    /* Flags that other parts raise; atomic. */
    uint32_t captures_active; /* number of streams being captured; while it is not 0, stream calls
                                 wait for the host */
    uint32_t uses_printf;     /* a loaded image prints, so synchronising calls fetch the text */

    /*
     * The graph code sets it before the first capture begins; NULL until then. Called for each
     * pageable copy while captures_active is not 0. See stream.h.
     */
    bool (*capture_copy)(struct weir_guest_stream *stream, struct weir_stream_capture_copy *copy,
                         struct weir_guest_copy_side *ret_side, CUresult *ret_result);

    /* Calls from lower to higher parts, which they do not include. Set by weir_guest_start(). */
    struct {
        void (*context_gone)(
            struct weir_guest_ctx *ctx); /* its work has ended: free what it owns */
        CUresult (*stream_gone)(struct weir_guest_stream *stream); /* it leaves its capture */
        void (*pool_forget)(const struct weir_mem *mem);           /* as weir_pool_forget() */
        bool (*pools_give_back)(bool all);                         /* as weir_pools_give_back() */
    } tell;

    struct weir_objects objects;
    pthread_mutex_t init_lock; /* guards NEW -> READY */
};

extern struct weir_guest weir_guest __attribute__((visibility("hidden")));

static inline enum weir_guest_phase weir_guest_phase_now(void)
{
    /* S1: meets the release at the end of cuInit: all members "set by cuInit" are visible. */
    return (enum weir_guest_phase)__atomic_load_n(&weir_guest.phase, __ATOMIC_ACQUIRE);
}

/** Error of a call in a phase other than READY: 3 before cuInit and in a child, 4 at exit. */
CUresult weir_guest_phase_error(enum weir_guest_phase phase);

/** Is any stream of the session being captured? @thread any */
static inline bool weir_guest_capturing(void)
{
    return __atomic_load_n(&weir_guest.captures_active, __ATOMIC_ACQUIRE) != 0;
}

/** Find the device of an ordinal; NULL: none. @thread any */
static inline struct weir_guest_device *weir_guest_device_get(CUdevice device)
{
    return device >= 0 && device < weir_guest.n_devices ? &weir_guest.devices[device] : NULL;
}

/** Can a kernel on one visible device reach the memory of another? False for itself. @thread any */
bool weir_guest_can_access(CUdevice device, CUdevice peer);

/** Find the device with this ordinal of the host; -1: it is not visible. */
static inline CUdevice weir_guest_ordinal_of_host(int host_ordinal)
{
    int at =
        WEIR_FIRST(i, weir_guest.n_devices, weir_guest.devices[i].host_ordinal == host_ordinal);
    return at < weir_guest.n_devices ? at : -1;
}

/** A call is about to fail with CUDA_ERROR_OUT_OF_MEMORY, since the host had no memory: ask the
 * host why, and log that. @thread any; no lock held */
void weir_guest_tell_lack(void);

/**
 * Fetch the text of device printf and write it to stdout; called by every synchronising call when
 * uses_printf is set.
 * @thread any; no lock held
 */
void weir_guest_printf_flush(struct weir_guest_ctx *ctx);
