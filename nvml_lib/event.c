/*
 * Event sets can be made and waited for, but no event ever comes: the device offers a tenant no
 * event types, because events would tell it about other tenants' work.
 */
#include "nvml_lib/lib.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define EXPORT(name, parameters)                                                                   \
    WEIR_NVML_EXPORT nvmlReturn_t name parameters;                                                 \
    nvmlReturn_t name parameters

struct nvmlEventSet_st {
    uint32_t none;
};

EXPORT(nvmlEventSetCreate, (nvmlEventSet_t * set))
{
    nvmlReturn_t result = weir_nvml_enter();
    if (result != NVML_SUCCESS || !set) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    nvmlEventSet_t made = calloc(1, sizeof *made);
    WEIR_FAIL_IF(!made, NVML_ERROR_MEMORY);
    *set = made;
    return NVML_SUCCESS;
}

EXPORT(nvmlEventSetFree, (nvmlEventSet_t set))
{
    nvmlReturn_t result = weir_nvml_enter();
    if (result != NVML_SUCCESS || !set) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    free(set);
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceGetSupportedEventTypes, (nvmlDevice_t device, unsigned long long *types))
{
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    if (result != NVML_SUCCESS || !types) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    *types = 0;
    return NVML_SUCCESS;
}

EXPORT(nvmlDeviceRegisterEvents,
       (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set))
{
    uint32_t index;
    nvmlReturn_t result = weir_nvml_enter_device(device, &index);
    if (result != NVML_SUCCESS || !set) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    return types ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

EXPORT(nvmlEventSetWait_v2, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms))
{
    nvmlReturn_t result = weir_nvml_enter();
    if (result != NVML_SUCCESS || !set || !data) {
        return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    }
    int saved = errno;
    struct timespec left = {.tv_sec = timeout_ms / 1000,
                            .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    errno = saved;
    return NVML_ERROR_TIMEOUT;
}

EXPORT(nvmlEventSetWait, (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms))
{
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
