/*
 * How Weir's libnvidia-ml.so.1 reaches the host: an export table of Weir's libcuda.so.1
 * (cuGetExportTable with WEIR_NVML_TABLE_UUID), private to the two and to one version of Weir.
 *
 * The functions use a connection of their own, apart from the program's CUDA session. So they
 * neither need nor replace cuInit, ignore CUDA_VISIBLE_DEVICES, leave CUDA usable in a forked
 * child, and delay no launch by a slow answer.
 */
#pragma once

#include "proto/nvml/shapes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A random UUID (version 4). */
#define WEIR_NVML_TABLE_UUID                                                                       \
    {                                                                                              \
        0x5b, 0x1d, 0x7e, 0x94, 0x2c, 0x60, 0x4f, 0x3a, 0x9e, 0x8b, 0x71, 0xc2, 0x0d, 0xa6, 0x45,  \
            0xf7                                                                                   \
    }
#define WEIR_NVML_TABLE_VERSION 2u

/* A call of a function of functions.def. */
struct weir_nvml_request {
    const char *function;
    uint32_t arguments[WEIR_NVML_ARGUMENTS];
    void *data;         /* inputs and outputs; see shapes.h */
    uint32_t in_bytes;  /* bytes of data that are sent */
    uint32_t out_bytes; /* room in data for the answer */
    uint32_t ret_bytes; /* bytes of the answer that were written */
};

#define WEIR_NVML_PROCESSES_MAX      1024
#define WEIR_NVML_PROCESS_NAME_BYTES 128

struct weir_nvml_process {
    uint32_t pid; /* pid in the guest's own pid namespace */
    uint64_t used_bytes;
    char name[WEIR_NVML_PROCESS_NAME_BYTES];
};

/* All functions: any thread; they block for at most a round trip, or while connecting. */
struct weir_nvml_table {
    size_t table_bytes;
    uint32_t version; /* WEIR_NVML_TABLE_VERSION */
    /* Connect, unless connected. NVML_ERROR_DRIVER_NOT_LOADED: there is no host; NO_PERMISSION: it
     * refuses. */
    nvmlReturn_t (*open)(void);
    /* Drop the connection. */
    void (*close)(void);
    /* How many devices the tenant has. 0 when not connected. */
    uint32_t (*device_count)(void);
    /* Can a device reach the memory of another device of the tenant? */
    bool (*can_access)(uint32_t device, uint32_t peer);
    nvmlReturn_t (*call)(uint32_t device, struct weir_nvml_request *request);
    /* Returns what cuMemGetInfo returns in this process. */
    nvmlReturn_t (*memory)(uint32_t device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes);
    /* Lists the tenant's processes that have a CUDA context; room for WEIR_NVML_PROCESSES_MAX. */
    nvmlReturn_t (*processes)(uint32_t device, struct weir_nvml_process *processes,
                              uint32_t *ret_count);
    /* As cuDriverGetVersion. */
    int (*cuda_version)(void);
};
