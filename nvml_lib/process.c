/*
 * The tenant's processes with a CUDA context, each by its pid in its own PID namespace. All are
 * reported as compute processes, none as graphics or MPS ones. Use per process is not measured.
 */
#include "base/file_text.h"
#include "nvml_lib/lib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODE_COMPUTE 0u

#define EXPORT(name, parameters)                                                                   \
    WEIR_NVML_EXPORT nvmlReturn_t name parameters;                                                 \
    nvmlReturn_t name parameters

nvmlReturn_t weir_nvml_processes(nvmlDevice_t device, struct weir_nvml_process_list **ret_list)
{
    uint32_t index;
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    struct weir_nvml_process_list *list = malloc(sizeof *list);
    WEIR_FAIL_IF(!list, NVML_ERROR_MEMORY);
    nvmlReturn_t result = weir_nvml_session()->processes(index, list->entries, &list->n);
    if (result != NVML_SUCCESS) {
        free(list);
        return result;
    }
    *ret_list = list;
    return NVML_SUCCESS;
}

/* The three layouts that a list of processes has had in NVML's versions. */
static void fill(void *infos, uint32_t i, size_t each, const struct weir_nvml_process *process)
{
    nvmlProcessDetail_v1_t detail = {.pid = process->pid,
                                     .usedGpuMemory = process->used_bytes,
                                     .gpuInstanceId = NVML_NOT_AVAILABLE_ID,
                                     .computeInstanceId = NVML_NOT_AVAILABLE_ID};
    memcpy((uint8_t *)infos + i * each, &detail, each); /* each layout extends the one before */
}

static nvmlReturn_t compute_processes(nvmlDevice_t device, unsigned int *count, void *infos,
                                      size_t each)
{
    struct weir_nvml_process_list *list;
    WEIR_TRY(weir_nvml_enter());
    WEIR_FAIL_IF(!count || (*count && !infos), NVML_ERROR_INVALID_ARGUMENT);
    WEIR_TRY(weir_nvml_processes(device, &list));
    bool fits = list->n <= *count;
    for (uint32_t i = 0; fits && i < list->n; i++) {
        fill(infos, i, each, &list->entries[i]);
    }
    *count = list->n;
    free(list);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int *count)
{
    uint32_t index;
    WEIR_TRY(weir_nvml_enter_device(device, &index));
    WEIR_FAIL_IF(!count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetComputeRunningProcesses,
       (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos))
{
    return compute_processes(device, count, infos, sizeof *infos);
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v2,
       (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos))
{
    return compute_processes(device, count, infos, sizeof *infos);
}

EXPORT(nvmlDeviceGetComputeRunningProcesses_v3,
       (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos))
{
    return compute_processes(device, count, infos, sizeof *infos);
}

#define NO_PROCESSES(name)                                                                         \
    EXPORT(name, (nvmlDevice_t device, unsigned int *count, void *infos))                          \
    {                                                                                              \
        (void)infos;                                                                               \
        return no_processes(device, count);                                                        \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

EXPORT(nvmlDeviceGetRunningProcessDetailList,
       (nvmlDevice_t device, nvmlProcessDetailList_v1_t *details))
{
    nvmlReturn_t result = weir_nvml_enter();
    if (result != NVML_SUCCESS || !details) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    WEIR_FAIL_IF(details->version != WEIR_NVML_VERSION(sizeof *details, 1),
                 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (details->mode != MODE_COMPUTE) {
        return no_processes(device, &details->numProcArrayEntries);
    }
    return compute_processes(device, &details->numProcArrayEntries, details->procArray,
                             sizeof *details->procArray);
}

/* Returns no samples: use of the device per process is not measured. */
EXPORT(nvmlDeviceGetProcessUtilization,
       (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
        unsigned long long since))
{
    (void)samples;
    (void)since;
    WEIR_TRY(no_processes(device, count));
    return NVML_ERROR_NOT_FOUND;
}

EXPORT(nvmlDeviceGetProcessesUtilizationInfo, (nvmlDevice_t device, void *info))
{
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    if (result == NVML_SUCCESS && !info) {
        result = NVML_ERROR_INVALID_ARGUMENT;
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

EXPORT(nvmlDeviceGetAccountingMode, (nvmlDevice_t device, unsigned int *mode))
{
    return no_processes(device, mode); /* 0: disabled */
}

EXPORT(nvmlDeviceGetAccountingBufferSize, (nvmlDevice_t device, unsigned int *entries))
{
    return no_processes(device, entries);
}

/* ---------------------------------------------------------------- names */

/* Read the command that started the process from /proc. The pid may be another process's there. */
static bool name_from_proc(unsigned int pid, char *name, size_t bytes)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    return weir_file_text(path, name, bytes); /* NULs separate the arguments: it is the first */
}

void weir_nvml_process_name(const struct weir_nvml_process *process, char *name, size_t bytes)
{
    bool found = name_from_proc(process->pid, name, bytes);
    const char *slash = found ? strrchr(name, '/') : NULL;
    /* The pid is another container's, and may belong to another process here. */
    if (!found || strcmp(slash ? slash + 1 : name, process->name) != 0) {
        snprintf(name, bytes, "%s", process->name);
    }
}

/* Use the name from the host's list, because /proc may have another process with that pid. */
static bool name_from_host(unsigned int pid, char *name, size_t bytes)
{
    struct weir_nvml_process_list *list;
    bool found = false;
    WEIR_FAIL_IF(weir_nvml_processes(weir_nvml_device(0), &list) != NVML_SUCCESS, false);
    for (uint32_t i = 0; i < list->n && !found; i++) {
        if (list->entries[i].pid == pid) {
            weir_nvml_process_name(&list->entries[i], name, bytes);
            found = true;
        }
    }
    free(list);
    return found;
}

EXPORT(nvmlSystemGetProcessName, (unsigned int pid, char *name, unsigned int length))
{
    char text[4096];
    nvmlReturn_t result = weir_nvml_enter();
    if (result != NVML_SUCCESS || !name || !length) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    WEIR_FAIL_IF(!name_from_host(pid, text, sizeof text) && !name_from_proc(pid, text, sizeof text),
                 NVML_ERROR_NOT_FOUND);
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
