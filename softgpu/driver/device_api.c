/* The cuDevice* entries, cuInit and the version. */
#include "proto/array_format.h"
#include "proto/common/common.h"
#include "softgpu/driver/driver.h"

#include <stdio.h>

CUresult weir_soft_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!value, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    return weir_soft_device_attribute(device, (int)attribute, value);
}

static int attribute_of(const struct weir_soft_device *device, CUdevice_attribute id)
{
    int value = 0;
    return weir_soft_device_attribute(device, (int)id, &value) == CUDA_SUCCESS ? value : 0;
}

CUresult weir_soft_cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!major || !minor, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *major = (int)device->compute_capability / 10;
    *minor = (int)device->compute_capability % 10;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceGetPCIBusId(char *text, int len, CUdevice dev)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    WEIR_FAIL_IF(!text || len <= 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    snprintf(text, (size_t)len, "0000:%02X:00.0", (unsigned)device->pci_bus);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
                                                      unsigned channels, CUdevice dev)
{
    const struct weir_soft_device *device = weir_soft_device_at(dev);
    if (!width || weir_format_bytes(format) == 0 ||
        (channels != 1 && channels != 2 && channels != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_FAIL_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *width = (size_t)attribute_of(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
    WEIR_FAIL_IF(!can, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_soft_device_at(dev) || !weir_soft_device_at(peer),
                 CUDA_ERROR_INVALID_DEVICE);
    *can = dev != peer; /* all memory of the devices belongs to this process */
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                           CUdevice src, CUdevice dst)
{
    WEIR_FAIL_IF(!value, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_soft_device_at(src) || !weir_soft_device_at(dst) || src == dst,
                 CUDA_ERROR_INVALID_DEVICE);
    if (attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
        attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
             attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                                    const CUatomicOperation *operations,
                                                    unsigned int count, CUdevice src, CUdevice dst)
{
    WEIR_FAIL_IF(!weir_soft_device_at(dst) || src == dst, CUDA_ERROR_INVALID_DEVICE);
    return weir_soft_cuDeviceGetHostAtomicCapabilities(capabilities, operations, count, src);
}
