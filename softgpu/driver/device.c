/*
 * The devices that softgpu shows: how many, how large, and every attribute.
 *
 * A device looks like a small GPU of its compute capability (90: Hopper), so that libraries choose
 * the same code as on such a GPU. Environment variables (WEIR_SOFTGPU_*) configure the devices, and
 * CUDA_VISIBLE_DEVICES filters them as in NVIDIA's libcuda.
 */
#include "base/fd.h"
#include "base/log.h"
#include "proto/common/visible.h"
#include "softgpu/driver/driver.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHARED_PER_BLOCK_BYTES 49152
#define DEFAULT_MEMORY_BYTES   (4ull << 30)
#define DEFAULT_SMS            8
#define MAX_THREADS_PER_SM     2048
#define MAX_BLOCKS_PER_SM      32
#define REGISTERS_PER_SM       65536
#define FIRST_PCI_BUS          0x57

static struct weir_soft_device devices[WEIR_SOFT_MAX_DEVICES];
static uint32_t n_devices;

uint32_t weir_soft_device_count(void)
{
    return n_devices;
}

struct weir_soft_device *weir_soft_device_at(int ordinal)
{
    return ordinal >= 0 && (uint32_t)ordinal < n_devices ? &devices[ordinal] : NULL;
}

/* Read a number with an optional K, M, G or T; the default if it is unset or invalid. */
static uint64_t env_number(const char *name, uint64_t fallback, uint64_t least, uint64_t most)
{
    const char *text = getenv(name);
    if (!text || text[0] == '\0') {
        return fallback;
    }
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    static const char units[] = "KMGT";
    const char *unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        value <<= 10 * (unsigned)(unit - units + 1);
    }
    if (value < least || value > most) {
        weir_log_warn("softgpu: %s=%s is out of bounds, using %llu", name, text,
                      (unsigned long long)fallback);
        return fallback;
    }
    return value;
}

/* WEIR_SOFTGPU_CONTEXTS is "N:FILE": of all processes that name this file, at most N have a context
 * on a device. Each locks a byte of the file. */
static CUresult take_place(struct weir_soft_device *device)
{
    const char *text = getenv("WEIR_SOFTGPU_CONTEXTS"), *path = text ? strchr(text, ':') : NULL;
    unsigned long n = text ? strtoul(text, NULL, 10) : 0;
    int fd = path ? open(path + 1, O_RDWR | O_CLOEXEC) : -1;

    if (!path) {
        return CUDA_SUCCESS;
    }
    for (unsigned long i = 0; fd >= 0 && i < n; i++) {
        struct flock lock = {.l_type = F_WRLCK,
                             .l_start = (off_t)(n * (unsigned long)device->ordinal + i),
                             .l_len = 1};

        if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
            device->place_fd = fd;
            return CUDA_SUCCESS;
        }
    }
    weir_fd_close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void weir_soft_device_give_room(struct weir_soft_device *device)
{
    device->place_fd = weir_fd_close(device->place_fd);
}

/* For tests: making a context takes time, a place and memory, and fails without them. The lock is
 * not held. */
CUresult weir_soft_device_make_room(struct weir_soft_device *device)
{
    const char *full = getenv("WEIR_SOFTGPU_FULL");
    const char *held = getenv("WEIR_SOFTGPU_CONTEXT_HELD");
    const struct timespec pause = {.tv_nsec = 1000000};

    while (held && access(held, F_OK) == 0) {
        nanosleep(&pause, NULL);
    }
    return full && access(full, F_OK) == 0 ? CUDA_ERROR_OUT_OF_MEMORY : take_place(device);
}

/* For tests: let so many milliseconds pass. The lock is not held. */
static void pass_ms(const char *name)
{
    uint64_t ms = env_number(name, 0, 0, 10000);
    struct timespec pause = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

    if (ms != 0) {
        nanosleep(&pause, NULL);
    }
}

void weir_soft_device_free_slowly(void)
{
    pass_ms("WEIR_SOFTGPU_FREE_MS");
}

void weir_soft_device_import_slowly(void)
{
    pass_ms("WEIR_SOFTGPU_IMPORT_MS");
}

uint64_t weir_soft_device_wish_bytes(void)
{
    return env_number("WEIR_SOFTGPU_WISH", 0, 0, UINT64_C(1) << 40);
}

/* A program is a client of MPS where a control daemon has its socket. softgpu runs no MPS server;
 * it only gives the program the SMs that a client of MPS would have. */
static bool mps_is_there(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[PATH_MAX];

    if (!folder) { /* do not search the default folder: a real GPU's MPS may run there */
        return false;
    }
    snprintf(path, sizeof path, "%s/control", folder);
    return access(path, F_OK) == 0;
}

/* A share consists of the last SMs, so that tests find code that wrongly expects the first ones. */
static void take_share(struct weir_soft_device *device)
{
    uint64_t percent =
        device->under_mps ? env_number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 100, 1, 100) : 100;

    device->usable_sms = (uint32_t)((device->sm_count * percent + 99) / 100);
    memset(&device->sms, 0, sizeof(device->sms));
    for (uint32_t sm = device->sm_count - device->usable_sms; sm < device->sm_count; sm++) {
        weir_exec_sms_add(&device->sms, sm);
    }
}

bool weir_soft_device_waits(void)
{
    return env_number("WEIR_SOFTGPU_WAITS", 0, 0, 1) != 0;
}

struct shared_sizes {
    uint32_t per_sm;
    uint32_t optin;
};

/* Most shared memory per SM and per block, from the CUDA programming guide's table of families. */
static struct shared_sizes shared_of(uint32_t compute_capability)
{
    switch (compute_capability) {
    case 75:
        return (struct shared_sizes){65536, 65536};
    case 80:
    case 87:
        return (struct shared_sizes){167936, 166912};
    case 86:
    case 89:
        return (struct shared_sizes){102400, 101376};
    default:
        return (struct shared_sizes){233472, 232448};
    }
}

static void device_fill(struct weir_soft_device *device, int index)
{
    static const unsigned char seed[16] = {0x57, 0x65, 0x69, 0x72, 0x73, 0x6f, 0x66, 0x74,
                                           0x67, 0x70, 0x75, 0x40, 0x80, 0x13, 0x00, 0x00};
    memcpy(device->uuid.bytes, seed, sizeof(seed));
    device->uuid.bytes[15] = (char)index;
    snprintf(device->name, sizeof(device->name), "Weir softgpu");
    device->pci_bus = FIRST_PCI_BUS + index;
    device->compute_capability = (uint32_t)env_number("WEIR_SOFTGPU_CC", 90, 75, 90);
    device->sm_count = (uint32_t)env_number("WEIR_SOFTGPU_SMS", DEFAULT_SMS, 1, 256);
    device->under_mps = mps_is_there();
    device->place_fd = -1;
    take_share(device);
    device->total_bytes =
        env_number("WEIR_SOFTGPU_MEMORY", DEFAULT_MEMORY_BYTES, 1ull << 24, 1ull << 40);
}

CUresult weir_soft_devices_init(void)
{
    int n_physical = (int)env_number("WEIR_SOFTGPU_DEVICES", 1, 1, WEIR_SOFT_MAX_DEVICES);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    CUuuid uuids[WEIR_SOFT_MAX_DEVICES];
    int order[WEIR_SOFT_MAX_DEVICES], n = n_physical;
    for (int i = 0; i < n_physical; i++) {
        device_fill(&devices[i], i);
        uuids[i] = devices[i].uuid;
        order[i] = i;
    }
    if (visible) {
        n = weir_visible_order(visible, uuids, n_physical, order);
    }
    for (int i = 0; i < n; i++) {
        device_fill(&devices[i], order[i]);
        devices[i].ordinal = i;
    }
    n_devices = (uint32_t)n;
    return n == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult weir_soft_device_engine(struct weir_soft_device *device,
                                 struct weir_exec_device **ret_engine)
{
    if (!device->engine) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        uint32_t threads = online < 1 ? 1 : (uint32_t)online;
        struct weir_exec_device_params params = {
            .sm_count = device->sm_count,
            .thread_count = WEIR_MIN(threads, device->sm_count),
            .compute_capability = device->compute_capability,
            .max_threads_per_sm = MAX_THREADS_PER_SM,
            .max_blocks_per_sm = MAX_BLOCKS_PER_SM,
            .shared_bytes_per_sm = shared_of(device->compute_capability).per_sm,
            .registers_per_sm = REGISTERS_PER_SM,
        };
        WEIR_FAIL_IF(weir_exec_device_create(&params, &device->engine) != WEIR_OK,
                     CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ret_engine = device->engine;
    return CUDA_SUCCESS;
}

/* Attributes that do not depend on the device, by CUdevice_attribute. Missing attributes are 0. */
static const int fixed_attributes[] = {
    [1] = 1024,
    [2] = 1024,
    [3] = 1024,
    [4] = 64,
    [5] = 2147483647,
    [6] = 65535,
    [7] = 65535,
    [8] = SHARED_PER_BLOCK_BYTES,
    [9] = 65536,
    [10] = 32,
    [11] = 2147483647,
    [12] = 65536,
    [13] = 1000000,
    [14] = 512,
    [15] = 1,
    [18] = 0,
    [19] = 1,
    [20] = 0,
    [21] = 131072,
    [22] = 131072,
    [23] = 65536,
    [24] = 16384,
    [25] = 16384,
    [26] = 16384,
    [27] = 32768,
    [28] = 32768,
    [29] = 2048,
    [30] = 512,
    [31] = 1,
    [32] = 0,
    [35] = 0,
    [36] = 1000000,
    [37] = 64,
    [38] = 4194304,
    [39] = MAX_THREADS_PER_SM,
    [40] = 3,
    [41] = 1,
    [42] = 32768,
    [43] = 2048,
    [44] = 1,
    [45] = 32768,
    [46] = 32768,
    [47] = 8192,
    [48] = 8192,
    [49] = 32768,
    [50] = 0,
    [51] = 32,
    [52] = 32768,
    [53] = 32768,
    [54] = 2046,
    [55] = 32768,
    [56] = 131072,
    [57] = 65536,
    [58] = 16384,
    [59] = 16384,
    [60] = 16384,
    [61] = 32768,
    [62] = 2048,
    [63] = 32768,
    [64] = 32768,
    [65] = 2048,
    [66] = 32768,
    [67] = 32768,
    [68] = 2046,
    [69] = 268435456,
    [70] = 131072,
    [71] = 65000,
    [72] = 2097120,
    [73] = 32768,
    [74] = 32768,
    [77] = 32768,
    [78] = 1,
    [79] = 1,
    [80] = 1,
    [82] = REGISTERS_PER_SM,
    [83] = 1,
    [86] = 0,
    [87] = 2,
    [90] = 1,
    [91] = 1,
    [92] = 1,
    [93] = 1,
    [94] = 1,
    [95] = 1,
    [98] = 0,
    [99] = 1,
    [101] = 0,
    [102] = 1,
    [103] = 1,
    [106] = MAX_BLOCKS_PER_SM,
    [111] = 1024,
    [113] = 1,
    [115] = 1,
    [119] = 0,
    [120] = 1,
    [121] = 0,
    [122] = 1,
    [123] = 1,
    [125] = 1,
    [126] = 1,
    [129] = 0,
    [131] = -1,
    [134] = -1,
    [141] = 1,
    [145] = 1,
    [147] = 0,
};

CUresult weir_soft_device_attribute(const struct weir_soft_device *device, int attribute,
                                    int *ret_value)
{
    struct shared_sizes shared = shared_of(device->compute_capability);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *ret_value = (int)device->usable_sms;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        *ret_value = device->under_mps;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *ret_value = device->pci_bus;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *ret_value = (int)device->compute_capability / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *ret_value = (int)device->compute_capability % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *ret_value = (int)shared.per_sm;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *ret_value = (int)shared.optin;
        return CUDA_SUCCESS;
    default:
        WEIR_FAIL_IF(attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX,
                     CUDA_ERROR_INVALID_VALUE);
        *ret_value =
            (size_t)attribute < WEIR_COUNT(fixed_attributes) ? fixed_attributes[attribute] : 0;
        return CUDA_SUCCESS;
    }
}
