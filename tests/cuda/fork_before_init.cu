/* A fork before CUDA is used: parent and child each start afresh and both work. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ static void square(int *data)
{
    data[threadIdx.x] = (int)(threadIdx.x * threadIdx.x);
}

static int works(void)
{
    int host[32], *device = NULL, good = 1;

    if (cudaMalloc((void **)&device, sizeof(host)) != cudaSuccess) {
        return 0;
    }
    square<<<1, 32>>>(device);
    if (cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost) != cudaSuccess) {
        return 0;
    }
    for (int i = 0; i < 32; i++) {
        good &= host[i] == i * i;
    }
    return good && cudaFree(device) == cudaSuccess;
}

int main(void)
{
    int status = -1;

    check_begin("fork_before_init");
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            exit(works() ? 0 : 3);
        }
        waitpid(child, &status, 0);
        check_true(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child works and exits cleanly");
    }
    check_true(works(), "parent works after its children");
    return check_end();
}
