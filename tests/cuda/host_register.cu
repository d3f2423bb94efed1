/* Memory from malloc and mmap that is registered, used by kernels, and unregistered. */
#include <sys/mman.h>

#include "check.h"

__global__ static void triple(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] *= 3;
    }
}

static void use(int *memory, int n, unsigned flags, const char *label)
{
    int *device = NULL, same = 1;
    char line[96];

    for (int i = 0; i < n; i++) {
        memory[i] = i;
    }
    RT(cudaHostRegister(memory, n * sizeof(int), flags));
    RT(cudaHostGetDevicePointer((void **)&device, memory, 0));
    triple<<<(n + 255) / 256, 256>>>(device, n);
    check_launch();
    for (int i = 0; i < n; i++) {
        same &= memory[i] == 3 * i;
    }
    snprintf(line, sizeof(line), "%s: kernel works on it in place", label);
    check_true(same, line);
    check_code(cudaHostRegister(memory, n * sizeof(int), flags),
               cudaErrorHostMemoryAlreadyRegistered, "registered twice");
    (void)cudaGetLastError();
    int *copy = device_new<int>(n);
    RT(cudaMemcpyAsync(copy, memory, n * sizeof(int), cudaMemcpyHostToDevice, 0));
    triple<<<(n + 255) / 256, 256>>>(copy, n);
    RT(cudaMemcpyAsync(memory, copy, n * sizeof(int), cudaMemcpyDeviceToHost, 0));
    RT(cudaStreamSynchronize(0));
    same = 1;
    for (int i = 0; i < n; i++) {
        same &= memory[i] == 9 * i;
    }
    snprintf(line, sizeof(line), "%s: asynchronous copies", label);
    check_true(same, line);
    RT(cudaHostUnregister(memory));
    same = 1;
    for (int i = 0; i < n; i++) {
        same &= memory[i] == 9 * i;
        memory[i] = 0;
    }
    snprintf(line, sizeof(line), "%s: still the program's memory afterwards", label);
    check_true(same, line);
    RT(cudaFree(copy));
}

int main(void)
{
    const int n = 40000;
    int *heap = host_new<int>(n);
    int *mapped = (int *)mmap(NULL, n * sizeof(int), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    check_begin("host_register");
    if (!device_attribute(cudaDevAttrCanMapHostMemory)) {
        check_skip("host memory cannot be mapped"); /* over a network */
    }
    use(heap, n, cudaHostRegisterDefault, "malloc");
    use(mapped, n, cudaHostRegisterMapped | cudaHostRegisterPortable, "mmap");
    use(heap, n, cudaHostRegisterMapped, "malloc again");
    check_code(cudaHostUnregister(heap), cudaErrorHostMemoryNotRegistered,
               "unregister what is not registered");
    (void)cudaGetLastError();
    return check_end();
}
