/* Device memory and an event shared between two processes by IPC handles. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { N = 2000 };

struct message {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

__global__ static void change(int *data, int mul, int add)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        data[i] = data[i] * mul + add;
    }
}

/* The other process: waits for the parent's event, changes the memory, exit status 0 if all well.
 */
static int other_process(int from)
{
    struct message m;
    int *data = NULL, first[2] = {0};
    cudaEvent_t event;

    if (read(from, &m, sizeof(m)) != (ssize_t)sizeof(m)) {
        return 10;
    }
    if (cudaIpcOpenMemHandle((void **)&data, m.memory, cudaIpcMemLazyEnablePeerAccess)) {
        return 11;
    }
    if (cudaIpcOpenEventHandle(&event, m.event) || cudaStreamWaitEvent(0, event, 0)) {
        return 12;
    }
    if (cudaMemcpy(first, data + 1, sizeof(first), cudaMemcpyDeviceToHost) || first[0] != 3 + 1 ||
        first[1] != 6 + 1) {
        return 13;
    }
    change<<<(N + 127) / 128, 128>>>(data, 2, 5);
    if (cudaDeviceSynchronize() || cudaIpcCloseMemHandle(data) || cudaEventDestroy(event)) {
        return 14;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct message m;
    int ends[2], status = -1, want[N], host[N];
    cudaEvent_t event;

    if (argc > 1) {
        return other_process(atoi(argv[1]));
    }
    check_begin("ipc_memory");
    for (int i = 0; i < N; i++) {
        host[i] = i;
        want[i] = (i * 3 + 1) * 2 + 5;
    }
    int *data = to_device(host, N);
    RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    cudaError_t error = cudaIpcGetMemHandle(&m.memory, data);
    if (error == cudaErrorNotSupported) {
        check_skip("no IPC");
    }
    RT(error);
    RT(cudaIpcGetEventHandle(&m.event, event));
    if (pipe(ends) != 0) {
        check_die("pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof(number), "%d", ends[0]);
        execl("/proc/self/exe", argv[0], number, (char *)NULL);
        _exit(20);
    }
    change<<<(N + 127) / 128, 128>>>(data, 3, 1);
    RT(cudaGetLastError());
    RT(cudaEventRecord(event, 0));
    if (write(ends[1], &m, sizeof(m)) != (ssize_t)sizeof(m)) {
        check_die("write");
    }
    waitpid(child, &status, 0);
    check_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0, "the other process");
    check_device(data, want, N, "what it wrote is here");
    RT(cudaFree(data));
    RT(cudaEventDestroy(event));
    return check_end();
}
