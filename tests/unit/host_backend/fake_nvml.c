/*
 * A libnvidia-ml.so.1 for test_nvml.c: every function that Weir asks for, with answers that tell
 * which arguments arrived. calls counts what was really asked.
 */
#include "proto/nvml/abi.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define U      unsigned int
#define Q      unsigned long long
#define D      nvmlDevice_t device

EXPORT unsigned int fake_nvml_calls;
EXPORT unsigned int fake_nvml_inits;

#define BODY(name, parameters, ...)                                                                \
    EXPORT nvmlReturn_t name parameters;                                                           \
    nvmlReturn_t name parameters                                                                   \
    {                                                                                              \
        fake_nvml_calls++;                                                                         \
        __VA_ARGS__                                                                                \
    }
#define OF_DEVICE                                                                                  \
    if (device != (nvmlDevice_t)(uintptr_t)0x77) {                                                 \
        return NVML_ERROR_INVALID_ARGUMENT;                                                        \
    }

EXPORT nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlInit_v2(void)
{
    fake_nvml_inits++;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlShutdown(void)
{
    fake_nvml_inits--;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    static const char *const uuids[] = {"GPU-01020304-0506-0708-090a-0b0c0d0e0f10",
                                        "GPU-02000000-0000-0000-0000-000000000000"};
    for (unsigned int i = 0; i < 2; i++) {
        if (strcmp(uuid, uuids[i]) == 0) {
            *device = (nvmlDevice_t)(uintptr_t)(0x77 + i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

BODY(nvmlDeviceGetPowerUsage, (D, U *a), OF_DEVICE *a = 70000; return NVML_SUCCESS;)
BODY(nvmlDeviceGetMemoryInfo, (D, nvmlMemory_t *memory),
     OF_DEVICE *memory = (nvmlMemory_t){.total = 100, .free = 20, .used = 80};
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetMinorNumber, (D, U *a), OF_DEVICE *a = 3; return NVML_SUCCESS;)
BODY(nvmlDeviceGetFanSpeed, (D, U *a), OF_DEVICE *a = 99; return NVML_ERROR_NOT_SUPPORTED;)
BODY(nvmlDeviceGetEccMode, (D, U *a, U *b), OF_DEVICE *a = 1; *b = 2; return NVML_SUCCESS;)
BODY(nvmlDeviceGetEncoderStats, (D, U *a, U *b, U *c), OF_DEVICE *a = 1; *b = 2; *c = 3;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetRemappedRows, (D, U *a, U *b, U *c, U *d), OF_DEVICE *a = 1; *b = 2; *c = 3;
     *d = 4; return NVML_SUCCESS;)
BODY(nvmlDeviceGetTotalEnergyConsumption, (D, Q *a), OF_DEVICE *a = 1ull << 40;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetLastBBXFlushTime, (D, Q *a, unsigned long *b), OF_DEVICE *a = 5; *b = 6;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetClockInfo, (D, U i, U *a), OF_DEVICE *a = 1000 + i; return NVML_SUCCESS;)
BODY(nvmlDeviceGetTemperature, (D, U sensor, U *a), OF_DEVICE *a = 50 + sensor;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetClock, (D, U i, U j, U *a), OF_DEVICE *a = i * 10 + j; return NVML_SUCCESS;)
BODY(nvmlDeviceGetMinMaxClockOfPState, (D, U i, U j, U *a, U *b), OF_DEVICE *a = i; *b = j;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetNvLinkState, (D, U i, U *a), OF_DEVICE *a = i < 18; return NVML_SUCCESS;)
BODY(nvmlDeviceGetTopologyCommonAncestor, (D, nvmlDevice_t peer, U *a),
     OF_DEVICE *a = (U)(uintptr_t)peer;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetTotalEccErrors, (D, U i, U j, Q *a), OF_DEVICE *a = i * 10 + j;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetMemoryErrorCounter, (D, U i, U j, U k, Q *a), OF_DEVICE *a = i * 100 + j * 10 + k;
     return NVML_SUCCESS;)
BODY(
    nvmlDeviceGetName, (D, char *text, U length),
    OF_DEVICE if (length < 10) { return NVML_ERROR_INSUFFICIENT_SIZE; } snprintf(text, length,
                                                                                 "Fake H200");
    return NVML_SUCCESS;)
BODY(nvmlDeviceGetInforomVersion, (D, U i, char *text, U length),
     OF_DEVICE snprintf(text, length, "rom %u", i);
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetGspFirmwareVersion, (D, char *text), OF_DEVICE strcpy(text, "580");
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetUtilizationRates, (D, U *pair), OF_DEVICE pair[0] = 40; pair[1] = 20;
     return NVML_SUCCESS;)
/* The real one writes more than old clients have room for. */
BODY(nvmlDeviceGetPciInfo_v2, (D, char *pci), OF_DEVICE memset(pci, 'x', 68); return NVML_SUCCESS;)
BODY(nvmlDeviceGetViolationStatus, (D, U i, Q *pair), OF_DEVICE pair[0] = i; pair[1] = 2;
     return NVML_SUCCESS;)
BODY(nvmlDeviceGetDetailedEccErrors, (D, U i, U j, Q *four), OF_DEVICE four[0] = i; four[3] = j;
     return NVML_SUCCESS;)
BODY(
    nvmlDeviceGetTemperatureV, (D, U *v),
    OF_DEVICE if (v[0] != WEIR_NVML_VERSION(12, 1)) {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    } v[2] = 30 + v[1];
    return NVML_SUCCESS;)
BODY(nvmlDeviceGetDramEncryptionMode, (D, U *a, U *b), OF_DEVICE a[1] = 1; b[1] = 2;
     return NVML_SUCCESS;)
BODY(
    nvmlDeviceGetSupportedMemoryClocks, (D, U *count, U *list), OF_DEVICE U room = *count;
    *count = 2; if (room < 2) { return NVML_ERROR_INSUFFICIENT_SIZE; } list[0] = 10; list[1] = 20;
    return NVML_SUCCESS;)
BODY(nvmlDeviceGetSupportedGraphicsClocks, (D, U i, U *count, U *list), OF_DEVICE *count = 1;
     list[0] = i; return NVML_SUCCESS;)
BODY(nvmlDeviceGetRetiredPages, (D, U i, U *count, Q *list), OF_DEVICE *count = 1;
     list[0] = (1ull << 36) + i; return NVML_SUCCESS;)
BODY(nvmlDeviceGetSupportedPerformanceStates, (D, U *list, U bytes),
     OF_DEVICE memset(list, 0xff, bytes);
     list[0] = 0; return NVML_SUCCESS;)
BODY(nvmlSystemGetDriverVersion, (char *text, U length), snprintf(text, length, "580.1");
     return NVML_SUCCESS;)
BODY(nvmlSystemGetConfComputeState, (U * three), three[0] = 1; three[1] = 2; three[2] = 3;
     return NVML_SUCCESS;)
BODY(nvmlSystemGetConfComputeSettings, (U * v), v[1] = 9; return NVML_SUCCESS;)
BODY(nvmlSystemGetDriverBranch, (U * v, U length), v[1] = length; return NVML_SUCCESS;)
BODY(
    nvmlDeviceGetFieldValues, (D, int n, nvmlFieldValue_t *f),
    OF_DEVICE if (n != 1) { return NVML_ERROR_INVALID_ARGUMENT; } f->nvmlReturn = NVML_SUCCESS;
    f->value[0] = (uint8_t)(f->fieldId + f->scopeId); return NVML_SUCCESS;)
