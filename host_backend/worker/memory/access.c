/* Device memory of a worker: see access.h. */
#include "host_backend/worker/memory/access.h"

#include "base/clock.h"
#include "host_backend/worker/state/platform.h"
#include <string.h>

/* An H200 clears 64 MiB in 20 us, but a sleep takes a hundred. */
#define CLEAR_SPIN_NS (200 * WEIR_NS_PER_US)

struct weir_amounts weir_device_memory_cost(const struct weir_worker *worker, uint32_t device,
                                            uint64_t bytes)
{
    struct weir_amounts cost = weir_account_device_bytes(device, bytes);

    cost.of[WEIR_ACCOUNT_DESCRIPTORS] = weir_worker_platform(worker)->real ? 0 : 1;
    return cost;
}

/* Can a device among `users` reach another one's memory? */
static bool reaches(const struct weir_worker *worker, uint32_t i, uint32_t users, uint32_t device)
{
    return i != device && (users >> i & 1) != 0 &&
           (weir_worker_platform(worker)->devices[i].peers >> device & 1) != 0;
}

CUresult weir_memory_access(struct weir_worker *worker, uint32_t device, uint32_t users,
                            uint64_t base, uint64_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access[WEIR_DEVICES_MAX];
    size_t n = 1;

    memset(access, 0, sizeof access);
    for (uint32_t i = 0; i < weir_worker_platform(worker)->n_devices; i++) {
        size_t at = i == device ? 0 : n;

        if (i == device || reaches(worker, i, users, device)) {
            access[at].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
            access[at].location.id = weir_worker_platform(worker)->devices[i].cu;
            access[at].flags = flags;
            n += i != device;
        }
    }
    CUresult result = weir_worker_platform(worker)->driver.cuMemSetAccess(base, bytes, access, n);
    if (result != CUDA_SUCCESS && n > 1) {
        /* The number of links to peers is limited: beyond that, copies are staged. */
        result = weir_worker_platform(worker)->driver.cuMemSetAccess(base, bytes, access, 1);
    }
    return result;
}

void weir_memory_reach(struct weir_worker *worker, uint32_t device, uint32_t users, uint64_t base,
                       uint64_t bytes, CUmemAccess_flags flags)
{
    if (WEIR_ANY(i, weir_worker_platform(worker)->n_devices,
                 reaches(worker, i, users, device))) { /* without access, copies are staged */
        (void)weir_memory_access(worker, device, users, base, bytes, flags);
    }
}

CUresult weir_memory_cleared(const struct weir_driver *driver, CUstream stream)
{
    uint64_t end_ns = weir_clock_now_ns() + CLEAR_SPIN_NS;
    CUresult result;

    do {
        result = driver->cuStreamQuery(stream);
    } while (result == CUDA_ERROR_NOT_READY && weir_clock_now_ns() < end_ns);
    return result == CUDA_ERROR_NOT_READY ? driver->cuStreamSynchronize(stream) : result;
}
