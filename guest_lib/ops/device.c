/* Devices, whose properties came with the welcome, and their primary contexts. */
#include "guest_lib/ops/forward.h"
#include "proto/guest_hand.h"
#include <stdio.h>
#include <string.h>

/* Guards retain counts and `going`. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t primary_gone = PTHREAD_COND_INITIALIZER;
static __thread bool goes_here; /* the thread is destroying a primary context */

CUresult weir_guest_cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
    const struct weir_guest_device *device = weir_guest_device_get(dev);
    WEIR_FAIL_IF(!luid || !deviceNodeMask, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    memcpy(luid, device->luid, sizeof device->luid);
    *deviceNodeMask = device->luid_mask;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                                     const CUatomicOperation *operations,
                                                     unsigned int count, CUdevice srcDevice,
                                                     CUdevice dstDevice)
{
    return weir_guest_device_get(dstDevice) ? weir_guest_cuDeviceGetHostAtomicCapabilities(
                                                  capabilities, operations, count, srcDevice)
                                            : CUDA_ERROR_INVALID_DEVICE;
}

CUresult weir_guest_cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    const struct weir_guest_device *device = weir_guest_device_get(dev);
    WEIR_FAIL_IF(!pciBusId || len <= 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    char text[sizeof device->pci_bus_id];
    memcpy(text, device->pci_bus_id, sizeof text);
    text[sizeof text - 1] = '\0';
    if (!text[0]) {
        const int *a = device->attributes;
        snprintf(text, sizeof text, "%04X:%02X:%02X.0", a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
                 a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID], a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
    }
    snprintf(pciBusId, (size_t)len, "%s", text);
    return CUDA_SUCCESS;
}

bool weir_guest_can_access(CUdevice device, CUdevice peer)
{
    const struct weir_guest_device *devices = weir_guest.devices;
    return device != peer && (devices[device].peers >> devices[peer].host_ordinal & 1) != 0;
}

CUresult weir_guest_cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    WEIR_FAIL_IF(!canAccessPeer, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_guest_device_get(dev) || !weir_guest_device_get(peerDev),
                 CUDA_ERROR_INVALID_DEVICE);
    *canAccessPeer = weir_guest_can_access(dev, peerDev);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib,
                                            CUdevice srcDevice, CUdevice dstDevice)
{
    WEIR_FAIL_IF(!value, CUDA_ERROR_INVALID_VALUE);
    if (!weir_guest_device_get(srcDevice) || !weir_guest_device_get(dstDevice) ||
        srcDevice == dstDevice) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    WEIR_FAIL_IF((int)attrib < 1 || (int)attrib >= WEIR_GUEST_P2P_ATTRIBUTES,
                 CUDA_ERROR_INVALID_VALUE);
    *value = weir_guest.devices[srcDevice].p2p[weir_guest.devices[dstDevice].host_ordinal][attrib];
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- primary contexts */

static CUresult retain_locked(struct weir_guest_ctx *ctx)
{
    CUresult result = ctx->retain_count ? CUDA_SUCCESS : weir_ctx_activate(ctx);
    ctx->retain_count += result == CUDA_SUCCESS;
    return result;
}

/*
 * While a thread destroys a primary context, other threads that retain or release it wait here.
 * Destructors of context-local storage call back in that same thread; for them the context is
 * already destroyed.
 * @return false: this is such a call
 */
static bool lock_primary(const struct weir_guest_ctx *ctx)
{
    pthread_mutex_lock(&primary_lock);
    while (ctx->going && !goes_here) {
        pthread_cond_wait(&primary_gone, &primary_lock);
    }
    if (ctx->going) {
        pthread_mutex_unlock(&primary_lock);
        return false;
    }
    return true;
}

CUresult weir_guest_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    const struct weir_guest_device *device = weir_guest_device_get(dev);
    WEIR_FAIL_IF(!pctx, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    WEIR_FAIL_IF(!lock_primary(device->primary), CUDA_ERROR_INVALID_CONTEXT);
    CUresult result = retain_locked(device->primary);
    pthread_mutex_unlock(&primary_lock);
    if (result == CUDA_SUCCESS) {
        *pctx = (CUcontext)(uintptr_t)device->primary->handle;
    }
    return result;
}

static CUresult take_apart(struct weir_guest_ctx *ctx)
{
    goes_here = true;
    CUresult result = weir_ctx_deactivate(ctx);
    goes_here = false;
    WEIR_LOCKED(&primary_lock);
    ctx->going = false;
    pthread_cond_broadcast(&primary_gone);
    return result;
}

CUresult weir_guest_primary_release(const struct weir_guest_device *device, bool reset)
{
    struct weir_guest_ctx *ctx = device->primary;
    WEIR_FAIL_IF(!lock_primary(ctx), CUDA_ERROR_INVALID_CONTEXT);
    CUresult result = ctx->retain_count || reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    bool had = ctx->retain_count != 0;
    ctx->retain_count -= had ? reset ? ctx->retain_count : 1 : 0;
    bool last = had && !ctx->retain_count;
    ctx->going = last;
    pthread_mutex_unlock(&primary_lock);
    return last ? take_apart(ctx) : result;
}

CUresult weir_guest_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    const struct weir_guest_device *device = weir_guest_device_get(dev);
    WEIR_FAIL_IF(!flags || !active, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *flags = __atomic_load_n(&device->primary->flags, __ATOMIC_RELAXED);
    *active = __atomic_load_n(&device->primary->state, __ATOMIC_ACQUIRE) == WEIR_CTX_ACTIVE;
    return CUDA_SUCCESS;
}
