/*
 * A tenant in a worker: the state that its sessions share. Internally locked, except where a member
 * says otherwise.
 */
#pragma once

#include "base/account.h"
#include "base/log_rate.h"
#include "base/thread.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/window.h"
#include "proto/cuda_abi.h"
#include <stdatomic.h>

struct weir_export;
struct weir_host_chunk;
struct weir_host_image;
struct weir_ipc_event;
struct weir_worker;

/* The store of images that programs load (images.h). */
struct weir_host_image_store {
    pthread_mutex_t lock; /* guards all members */
    struct weir_host_image *images;
    uint64_t bytes;
    struct weir_account *account; /* borrowed */
};

struct weir_tenant {
    struct weir_worker *worker;
    uint32_t index;
    char name[WEIR_TENANT_NAME_BYTES]; /* never changes */
    /* Guarded by the worker's lock; weir_tenant_setting() reads single settings without it. */
    struct weir_tenant_config config;
    uint32_t n_arrivals; /* sessions, monitors, and connections without hello. The worker's lock
                            guards this and the members up to generation. */
    bool gone;
    bool has_others;     /* other workers have programs of it; then it has an account page, too */
    atomic_uint drain;   /* enum weir_drain; any thread may read it */
    uint32_t generation; /* as in weir_link_tenant; weir_event_tell() reads it unlocked */
    struct weir_account account;    /* what the tenant uses and may use; internally locked */
    struct weir_programs *programs; /* the account page's programs, or its own; internally locked */
    struct weir_refusals refusals;  /* internally locked */
    struct weir_log_rate log_rate;  /* limits its sessions' log lines; internally locked */
    struct {
        uint32_t n_sessions;                  /* monitors do not count */
        uint64_t bytes[WEIR_ACCOUNT_DEVICES]; /* for raised limits of the devices' contexts */
        uint64_t of[WEIR_ACCOUNT_DEVICES];    /* .. that is charged */
        atomic_uint_fast64_t charged;         /* the sum of that; any thread may read it */
    } limits;                                 /* under the lock of contexts.c */

    pthread_mutex_t lock; /* guards what follows */
    bool reserved;        /* both halves of the window are reserved; else window is invalid */
    uint32_t window;
    struct weir_window device_window;
    struct weir_window host_window;
    struct weir_host_chunk *shared_chunks; /* chunks that have a key */
    struct weir_ipc_event *events;
    struct weir_export *exports;
    pthread_mutex_t publishing; /* held while a descriptor is published; locked before `lock` */
    uint64_t vmm_bytes;         /* bytes reserved of the VMM area; guarded by vmm_area's lock */

    struct weir_host_image_store images; /* internally locked */
};

/** The present value of a setting that is a number or an enum. @thread any */
#define weir_tenant_setting(tenant, setting)                                                       \
    __atomic_load_n(&(tenant)->config.setting, __ATOMIC_RELAXED)
/**
 * Charge several items to a tenant; a refusal of another item than memory is logged.
 * weir_account_release_all() gives them back.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 * @thread any
 */
CUresult weir_tenant_charge(struct weir_tenant *tenant, const struct weir_amounts *amounts);
/** Give back device memory that was charged. @thread any */
void weir_tenant_release(struct weir_tenant *tenant, uint32_t device, uint64_t bytes);
/** Say in the log that there is no more of an item for the tenant. @thread any */
void weir_tenant_refused(struct weir_tenant *tenant, enum weir_account_item item);
