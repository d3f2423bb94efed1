/* What the parts of Weir's libnvidia-ml.so.1 share. Source: docs/design/nvml.md */
#pragma once

#include "base/status.h"
#include "proto/nvml/session_table.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_NVML_EXPORT __attribute__((visibility("default")))

/**
 * What every function but a few begins with: is the library initialised?
 * @return NVML_SUCCESS, NVML_ERROR_UNINITIALIZED
 * @thread any
 */
nvmlReturn_t weir_nvml_enter(void);

/** The table of Weir's libcuda.so.1; only after weir_nvml_enter() has succeeded. */
const struct weir_nvml_table *weir_nvml_session(void);

/** The version of CUDA that libcuda.so.1 offers, also before nvmlInit. @thread any */
nvmlReturn_t weir_nvml_cuda_version(int *ret_version);

/** The handle of a device, or NULL. @thread any, after weir_nvml_enter() */
nvmlDevice_t weir_nvml_device(uint32_t index);

/**
 * Enter, and find a device.
 * @return NVML_SUCCESS, NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT
 */
nvmlReturn_t weir_nvml_enter_device(nvmlDevice_t device, uint32_t *ret_index);

/* One carried call. Blocks of data are described in proto/nvml/shapes.h. */
struct weir_nvml_carry {
    const char *function;
    uint32_t arguments[WEIR_NVML_ARGUMENTS];
    void *data;
    uint32_t in_bytes;
    uint32_t out_bytes;
};

/**
 * Ask the host. NVML_SUCCESS: exactly out_bytes were written; otherwise nothing was.
 * @param device  NULL for the functions that have none (has_device false).
 */
nvmlReturn_t weir_nvml_carry(nvmlDevice_t device, bool has_device,
                             const struct weir_nvml_carry *carry);

/** A text that the host knows. */
nvmlReturn_t weir_nvml_carry_text(nvmlDevice_t device, bool has_device, const char *function,
                                  const uint32_t *first, char *text, uint32_t length);

/**
 * How far two devices of the tenant are from each other.
 *
 * @param from, to   their PCI bus ids.
 * @param ret_level  nvmlGpuTopologyLevel_t.
 * @return NVML_SUCCESS, NVML_ERROR_NOT_FOUND: not a device of the tenant's, and what the host says
 */
nvmlReturn_t weir_nvml_distance(const char *from, const char *to, uint32_t *ret_level);

/** nvmlInternalGetExportTable's table for nvidia-smi, or NULL (export_table.c). */
const void *weir_nvml_export_table(const uint8_t id[16]);

/* The tenant's processes, for several functions (process.c). */
struct weir_nvml_process_list {
    uint32_t n;
    struct weir_nvml_process entries[WEIR_NVML_PROCESSES_MAX];
};

/** The path that a process was started by, if it is visible here, else its name. @thread any */
void weir_nvml_process_name(const struct weir_nvml_process *process, char *name, size_t bytes);

/** Get the list of processes, to be freed with free(). */
nvmlReturn_t weir_nvml_processes(nvmlDevice_t device, struct weir_nvml_process_list **ret_list);
