/* cudaPointerGetAttributes: device, interior, pinned, registered, managed and unknown pointers. */
#include "check.h"

static __device__ int variable[16];

static void expect(const void *p, cudaMemoryType type, const char *label)
{
    cudaPointerAttributes a;
    char line[96];

    memset(&a, 0xff, sizeof(a));
    RT(cudaPointerGetAttributes(&a, p));
    snprintf(line, sizeof(line), "%s: type", label);
    check_int(a.type, type, line);
    if (type == cudaMemoryTypeUnregistered) {
        return;
    }
    snprintf(line, sizeof(line), "%s: device and addresses", label);
    check_true(a.device == 0 && a.devicePointer == p &&
                   (type == cudaMemoryTypeDevice ? a.hostPointer == NULL : a.hostPointer == p),
               line);
}

int main(void)
{
    char *device = NULL, *pinned = NULL, *managed = NULL, *heap = host_new<char>(1 << 20);
    void *symbol = NULL;
    int local = 0;

    check_begin("pointer_attributes");
    if (!device_attribute(cudaDevAttrCanMapHostMemory)) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    RT(cudaMalloc((void **)&device, 100000));
    RT(cudaMallocHost((void **)&pinned, 100000));
    expect(device, cudaMemoryTypeDevice, "device");
    expect(device + 99999, cudaMemoryTypeDevice, "last byte of a device block");
    expect(pinned, cudaMemoryTypeHost, "pinned");
    expect(pinned + 12345, cudaMemoryTypeHost, "inside pinned");
    expect(heap, cudaMemoryTypeUnregistered, "heap");
    expect(&local, cudaMemoryTypeUnregistered, "stack");
    RT(cudaHostRegister(heap, 1 << 20, cudaHostRegisterMapped));
    expect(heap + 4097, cudaMemoryTypeHost, "registered");
    RT(cudaHostUnregister(heap));
    expect(heap + 4097, cudaMemoryTypeUnregistered, "unregistered again");
    RT(cudaGetSymbolAddress(&symbol, variable));
    expect(symbol, cudaMemoryTypeDevice, "device variable");
    if (device_attribute(cudaDevAttrManagedMemory)) {
        cudaPointerAttributes a;
        RT(cudaMallocManaged((void **)&managed, 4096, cudaMemAttachGlobal));
        RT(cudaPointerGetAttributes(&a, managed + 5));
        check_true(a.type == cudaMemoryTypeManaged && a.devicePointer == managed + 5 &&
                       a.hostPointer == managed + 5,
                   "managed: type and addresses");
        RT(cudaFree(managed));
    } else {
        check_true(1, "managed: type and addresses");
    }
    RT(cudaFreeHost(pinned));
    RT(cudaFree(device));
    return check_end();
}
