/*
 * The state of a device, for operators: NVML's values, and the driver's value of free memory if the
 * worker has a context there. Other values stay unknown: softgpu has no temperature.
 */
#include "host_backend/worker/device/device_status.h"

#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/state/platform.h"
#include <stdio.h>
#include <string.h>

/* Ask for the first number of an answer. @return false: there is none */
static bool ask(const struct weir_worker_device *device, const char *function, uint32_t *ret_word)
{
    const struct weir_nvml_question question = {.function = function}; /* sensor 0 is the GPU */
    static struct weir_nvml_answer answer;                             /* for the main thread */

    if (weir_nvml_ask(device->nvml, &question, &answer) != NVML_SUCCESS ||
        answer.n_data < sizeof *ret_word) {
        return false;
    }
    memcpy(ret_word, answer.data, sizeof *ret_word);
    return true;
}

static void look(const struct weir_driver *driver, const struct weir_worker_device *device,
                 struct weir_status_device *row)
{
    size_t free_bytes = 0, total_bytes = 0;
    uint64_t nvml_free_bytes;
    uint32_t word;

    if (!weir_device_is_open(device)) {
        if (weir_nvml_free_bytes(device->nvml, &nvml_free_bytes)) {
            row->free_bytes = (double)nvml_free_bytes;
        }
    } else if (driver->cuCtxSetCurrent(device->context) == CUDA_SUCCESS &&
               driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        row->free_bytes = (double)free_bytes;
    }
    if (ask(device, "nvmlDeviceGetUtilizationRates", &word)) {
        row->utilization_pct = word;
    }
    if (ask(device, "nvmlDeviceGetTemperature", &word)) {
        row->temperature_c = word;
    }
    if (ask(device, "nvmlDeviceGetPowerUsage", &word)) {
        row->power_w = word / 1000.0;
    }
}

void weir_device_status(const struct weir_worker *worker, uint32_t device, bool looks,
                        struct weir_status_device *row)
{
    const struct weir_platform *platform = weir_worker_platform(worker);
    const struct weir_worker_device *d = &platform->devices[device];

    weir_status_device_init(row, d->about.uuid);
    snprintf(row->name, sizeof row->name, "%s", d->about.name);
    row->ordinal = (uint32_t)d->cu;
    row->sms = weir_worker_sms(worker, device);
    row->memory_bytes = d->about.total_memory_bytes;
    if (looks) {
        look(&platform->driver, d, row);
    }
}
