/*
 * A second connection to the host, for NVML: questions of libnvidia-ml.so.1 use it instead of the
 * session's channel.
 *
 * So NVML works without cuInit and whatever CUDA_VISIBLE_DEVICES says. A slow answer (reading power
 * takes milliseconds) delays no launch. A process that has only used NVML may fork and use CUDA in
 * the child, on which PyTorch relies. The host treats such a connection as a monitor: it registers
 * nothing for it, does not count it as a session, and refuses operations that work or allocate.
 *
 * One lock is held through a call: NVML calls of one process are answered one after the other. A
 * later call reconnects a lost connection, at most once a second. A forked child closes the
 * parent's and makes its own. The calling library counts nvmlInit and nvmlShutdown.
 */
#include "guest_lib/monitor.h"

#include "base/clock.h"
#include "base/thread.h"
#include "guest_lib/entry.h"
#include "guest_lib/memory.h"
#include "guest_lib/start.h"
#include "proto/guest_calls.h"
#include "proto/nvml/session_table.h"
#include <stdio.h>
#include <string.h>

#define RETRY_NS WEIR_NS_PER_S

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct weir_channel channel;
static bool wanted;    /* the library was opened and not closed since */
static bool connected; /* channel was made */
static bool prepared;  /* pthread_atfork was called */
static uint64_t tried_ns;
static uint32_t n_devices;                       /* number of devices in the last welcome */
static uint32_t peers[WEIR_CONTROL_MAX_DEVICES]; /* bit per device whose memory can be reached */
static uint32_t asked_device;                    /* device that the present request is about */

static void in_forked_child(void)
{
    pthread_mutex_init(&lock, NULL);
    if (connected) {
        channel.transport->ops->abandon(channel.transport);
        memset(&channel, 0, sizeof channel);
        connected = false;
        tried_ns = 0;
    }
}

static void ignore(void *user, enum weir_op op, const void *body, size_t body_bytes)
{
    (void)user;
    (void)op;
    (void)body;
    (void)body_bytes;
}

static nvmlReturn_t from_status(enum weir_status status)
{
    if (status == WEIR_OK) {
        return NVML_SUCCESS;
    }
    WEIR_FAIL_IF(status == WEIR_ERR_DENIED, NVML_ERROR_NO_PERMISSION);
    return status == WEIR_ERR_NO_MEMORY ? NVML_ERROR_MEMORY : NVML_ERROR_DRIVER_NOT_LOADED;
}

static uint8_t device_of_request(void)
{
    return (uint8_t)asked_device;
}

static void note_devices_locked(const struct weir_welcome *welcome)
{
    n_devices = welcome->n_devices;
    memset(peers, 0, sizeof peers);
    for (uint32_t i = 0; i < n_devices; i++) {
        for (uint32_t k = 0; k < n_devices; k++) {
            char key[16];
            uint64_t can;
            snprintf(key, sizeof key, "peer.%u", k);
            if (weir_device_fact_get(&welcome->devices[i], key, &can) && can) {
                peers[i] |= 1u << k;
            }
        }
    }
}

static nvmlReturn_t connect_locked(void)
{
    static const struct weir_wait_policy policy = {.spin_ns = 20 * WEIR_NS_PER_US,
                                                   .slice_min_ns = 50 * WEIR_NS_PER_US,
                                                   .slice_max_ns = 500 * WEIR_NS_PER_US};
    struct weir_transport *transport = NULL;
    struct weir_welcome *welcome = NULL;
    if (!prepared) {
        pthread_atfork(NULL, NULL, in_forked_child);
        prepared = true;
    }
    tried_ns = weir_clock_now_ns();
    enum weir_status status = weir_guest_connect(true, &transport, &welcome);
    if (status == WEIR_OK) {
        channel.notify = ignore;
        channel.device_of_thread = device_of_request;
        note_devices_locked(welcome);
        status = weir_channel_init(&channel, transport, &policy);
        connected = status == WEIR_OK;
        if (!connected) {
            weir_channel_finish(&channel);
        }
    }
    weir_welcome_destroy(welcome);
    return from_status(status);
}

static void disconnect_locked(void)
{
    if (connected) {
        weir_channel_finish(&channel);
        connected = false;
    }
}

/* Connect again if the connection is lost, for a question about a device. */
static nvmlReturn_t ready_locked(uint32_t device)
{
    WEIR_FAIL_IF(!wanted, NVML_ERROR_UNINITIALIZED);
    if (connected && __atomic_load_n(&channel.dead, __ATOMIC_ACQUIRE)) {
        disconnect_locked();
    }
    WEIR_FAIL_IF(!connected && tried_ns && weir_clock_now_ns() - tried_ns < RETRY_NS,
                 NVML_ERROR_GPU_IS_LOST);
    WEIR_FAIL_IF(!connected && connect_locked() != NVML_SUCCESS, NVML_ERROR_GPU_IS_LOST);
    asked_device = device;
    return device < n_devices ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t from_result(CUresult result)
{
    WEIR_FAIL_IF(result == CUDA_ERROR_DEVICE_UNAVAILABLE, NVML_ERROR_GPU_IS_LOST);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? NVML_ERROR_MEMORY : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t monitor_open(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    WEIR_LOCKED(&lock);
    nvmlReturn_t result = connected ? NVML_SUCCESS : connect_locked();
    wanted = wanted || result == NVML_SUCCESS;
    return result;
}

static void monitor_close(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    WEIR_LOCKED(&lock);
    disconnect_locked();
    wanted = false;
    tried_ns = 0;
}

static uint32_t monitor_device_count(void)
{
    WEIR_LOCKED(&lock);
    uint32_t count = wanted ? n_devices : 0; /* NVML ignores CUDA_VISIBLE_DEVICES */
    return count;
}

static bool monitor_can_access(uint32_t device, uint32_t peer)
{
    WEIR_LOCKED(&lock);
    return device < n_devices && peer < n_devices && (peers[device] >> peer & 1) != 0;
}

static nvmlReturn_t call_locked(struct weir_nvml_request *request)
{
    struct weir_op_nvml_call_in in = {
        .function = request->function, .data = request->data, .n_data = request->in_bytes};
    struct weir_op_nvml_call_out out = {0};
    memcpy(in.arguments, request->arguments, sizeof in.arguments);
    CUresult result = weir_call_nvml_call(&channel, &in, &out);
    if (result != CUDA_SUCCESS) {
        return from_result(result);
    }
    WEIR_FAIL_IF(out.n_data > request->out_bytes, NVML_ERROR_UNKNOWN);
    if (out.n_data) {
        memcpy(request->data, out.data, out.n_data);
    }
    request->ret_bytes = out.n_data;
    return (nvmlReturn_t)out.result;
}

static nvmlReturn_t monitor_call(uint32_t device, struct weir_nvml_request *request)
{
    WEIR_GUEST_KEEP_ERRNO;
    request->ret_bytes = 0;
    WEIR_LOCKED(&lock);
    WEIR_TRY(ready_locked(device));
    return call_locked(request);
}

static uint64_t cached_bytes(uint32_t device)
{
    CUdevice visible = -1;
    if (weir_guest_phase_now() == WEIR_PHASE_READY) {
        visible = weir_guest_ordinal_of_host((int)device);
    }
    return visible >= 0 ? weir_mem_cached_bytes(visible) : 0;
}

static nvmlReturn_t monitor_memory(uint32_t device, uint64_t *ret_free_bytes,
                                   uint64_t *ret_total_bytes)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_op_mem_info_out out = {0};
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = ready_locked(device);
    if (result == NVML_SUCCESS) {
        CUresult cuda_result = weir_call_mem_info(&channel, NULL, &out);
        result = cuda_result == CUDA_SUCCESS ? NVML_SUCCESS : from_result(cuda_result);
    }
    pthread_mutex_unlock(&lock);
    if (result == NVML_SUCCESS) {
        /* As in cuMemGetInfo, unused memory that was granted to this process counts as free. */
        uint64_t available = out.free + cached_bytes(device);
        *ret_free_bytes = WEIR_MIN(available, out.total);
        *ret_total_bytes = out.total;
    }
    return result;
}

static nvmlReturn_t take_processes(const struct weir_op_nvml_processes_out *out,
                                   struct weir_nvml_process *processes, uint32_t *ret_count)
{
    const char *name = out->names, *end = name + out->n_names;
    WEIR_FAIL_IF(out->n_pids != out->n_used_bytes || out->n_pids > WEIR_NVML_PROCESSES_MAX,
                 NVML_ERROR_UNKNOWN);
    for (uint32_t i = 0; i < out->n_pids; i++) {
        size_t left = (size_t)(end - name);
        size_t len = left ? strnlen(name, left) : 0;
        size_t kept = len < WEIR_NVML_PROCESS_NAME_BYTES ? len : WEIR_NVML_PROCESS_NAME_BYTES - 1;
        processes[i].pid = out->pids[i];
        processes[i].used_bytes = out->used_bytes[i];
        memset(processes[i].name, 0, sizeof processes[i].name);
        if (kept) {
            memcpy(processes[i].name, name, kept);
        }
        name += len < left ? len + 1 : left;
    }
    *ret_count = out->n_pids;
    return NVML_SUCCESS;
}

static nvmlReturn_t monitor_processes(uint32_t device, struct weir_nvml_process *processes,
                                      uint32_t *ret_count)
{
    WEIR_GUEST_KEEP_ERRNO;
    WEIR_LOCKED(&lock);
    WEIR_TRY(ready_locked(device));
    struct weir_op_nvml_processes_out out = {0};
    CUresult cuda_result = weir_call_nvml_processes(&channel, NULL, &out);
    return cuda_result == CUDA_SUCCESS ? take_processes(&out, processes, ret_count)
                                       : from_result(cuda_result);
}

static int monitor_cuda_version(void)
{
    return weir_guest.driver_version;
}

bool weir_monitor_table(const CUuuid *id, const void **ret_table)
{
    static const uint8_t uuid[16] = WEIR_NVML_TABLE_UUID;
    static const struct weir_nvml_table table = {.table_bytes = sizeof table,
                                                 .version = WEIR_NVML_TABLE_VERSION,
                                                 .open = monitor_open,
                                                 .close = monitor_close,
                                                 .device_count = monitor_device_count,
                                                 .can_access = monitor_can_access,
                                                 .call = monitor_call,
                                                 .memory = monitor_memory,
                                                 .processes = monitor_processes,
                                                 .cuda_version = monitor_cuda_version};
    if (memcmp(id->bytes, uuid, sizeof uuid) != 0) {
        return false;
    }
    *ret_table = &table;
    return true;
}
