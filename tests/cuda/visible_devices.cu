/* CUDA_VISIBLE_DEVICES: the program runs itself again with other values. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* In the second run: prints nothing, the exit status tells what was seen. */
static int report(void)
{
    int count = -1;
    void *p = NULL;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaErrorNoDevice) {
        return cudaMalloc(&p, 16) == cudaErrorNoDevice ? 100 : 101;
    }
    if (error != cudaSuccess) {
        return 102;
    }
    return cudaMalloc(&p, 16) == cudaSuccess && cudaFree(p) == cudaSuccess ? count : 103;
}

static int run_again(const char *self, const char *visible)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        execl("/proc/self/exe", self, "report", (char *)NULL);
        _exit(120);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 121;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return report();
    }
    check_begin("visible_devices");
    check_int(run_again(argv[0], ""), 100, "empty: no device");
    check_int(run_again(argv[0], "-1"), 100, "minus one: no device");
    check_int(run_again(argv[0], "0"), 1, "zero: one device");
    check_int(run_again(argv[0], "0,-1,1"), 1, "the list ends at the first bad one");
    check_int(run_again(argv[0], "9999"), 100, "only a device that is not there");
    return check_end();
}
