/*
 * What every library that replaces libcuda.so.1 must offer besides the Driver API itself, shared by
 * the guest library and softgpu: the undocumented export tables that unmodified libcudart, cuBLAS,
 * cuFFT and cuDNN ask for.
 */
#pragma once

#include "proto/common/ctx_storage.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A library's values for one device; they enter the runtime's integrity hash. */
struct weir_common_device {
    CUuuid uuid; /* as cuDeviceGetUuid gives it */
    int32_t pci_domain;
    int32_t pci_bus;
    int32_t pci_device;
};

/*
 * The library behind the tables. All functions may be called by any thread at any time; those after
 * initialized() only once it has returned true.
 */
struct weir_common_ops {
    /* Has cuInit succeeded (and the library not been shut down since)? */
    bool (*initialized)(void);
    /* As cuDriverGetVersion reports it. */
    int (*driver_version)(void);
    /* Devices as cuDeviceGetCount counts them, after CUDA_VISIBLE_DEVICES. */
    int (*device_count)(void);
    void (*device)(int ordinal, struct weir_common_device *ret_device);
    /* The value that cuDevicePrimaryCtxRetain will give, without retaining it. */
    CUresult (*primary_context)(CUdevice device, CUcontext *ret_context);
    /* The calling thread's context, or NULL. */
    CUcontext (*current_context)(void);
    /* The storage inside a live context object; NULL for anything else. */
    struct weir_ctx_storage *(*context_storage)(CUcontext context);
    /* As cuCtxGetId and cuStreamGetId; the latter also for the legacy and per-thread streams. */
    CUresult (*context_id)(CUcontext context, unsigned long long *ret_id);
    CUresult (*stream_id)(CUcontext context, CUstream stream, unsigned long long *ret_id);
    /* The index-th function of a module; CUDA_ERROR_NOT_FOUND past the last. */
    CUresult (*module_function)(CUmodule module, unsigned int index, CUfunction *ret_function);
};

/* The begin or the end of a call of the CUDA runtime. Pointers are borrowed. */
struct weir_common_runtime_call {
    uint32_t id;   /* the runtime's number of its function */
    uint32_t site; /* 0: begin, 1: end */
    const char *name;
    const void *params;
    int *result; /* cudaError_t; valid at the end */
    uint64_t *scratch;
    CUcontext context;
    const void *symbol;
};

/**
 * Have each call of the runtime in this process told, on the thread that makes it; NULL: no more.
 * @thread any; a call under way may still be told
 */
void weir_common_watch_runtime(void (*told)(const struct weir_common_runtime_call *call));

/**
 * Name the library behind the tables. Before the first call of weir_common_export_table().
 *
 * @param ops  borrowed for ever.
 * @thread once, at load or first entry
 */
void weir_common_init(const struct weir_common_ops *ops);

/**
 * cuGetExportTable.
 *
 * @param ret_table  the table, or NULL when it is refused; static memory.
 * @param id         16 bytes.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_VALUE  unknown table, or a NULL argument. Callers have a fallback for
 *                                   a refused table, but not for a wrong one.
 * @thread any, also before cuInit
 */
CUresult weir_common_export_table(const void **ret_table, const CUuuid *id);

/**
 * HMAC-MD2 (RFC 2104 over RFC 1319); here for its test. Only with WEIR_WITH_EXPORT_TABLES.
 *
 * @param key     16 bytes, MD2's block.
 * @param digest  16 bytes.
 * @thread any
 */
void weir_common_hmac_md2(const uint8_t key[16], const void *message, size_t bytes,
                          uint8_t digest[16]);
