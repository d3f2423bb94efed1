/* A fork after CUDA was used: the child is told so, and the parent is not disturbed. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ static void add_one(int *data)
{
    data[threadIdx.x] += 1;
}

/* Exit status of the child: a bit for each expectation that does not hold. */
static int child_sees(int *device)
{
    int bad = 0, host[32];
    void *p = NULL;

    bad |= cudaMalloc(&p, 64) == cudaErrorInitializationError ? 0 : 1;
    bad |= cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost) ==
                   cudaErrorInitializationError
               ? 0
               : 2;
    bad |= cudaDeviceSynchronize() == cudaErrorInitializationError ? 0 : 4;
    return bad;
}

int main(void)
{
    int want[32], status = -1;

    check_begin("fork_after_init");
    int *device = device_new<int>(32);
    add_one<<<1, 32>>>(device);
    check_launch();
    pid_t child = fork();
    if (child == 0) {
        _exit(child_sees(device));
    }
    waitpid(child, &status, 0);
    check_true(WIFEXITED(status), "child ends by itself");
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    check_true((status & 1) == 0, "malloc in the child: initialization error");
    check_true((status & 2) == 0, "copy in the child: initialization error");
    check_true((status & 4) == 0, "synchronise in the child: initialization error");
    add_one<<<1, 32>>>(device);
    check_launch();
    for (int i = 0; i < 32; i++) {
        want[i] = 2;
    }
    check_device(device, want, 32, "the parent goes on");
    return check_end();
}
