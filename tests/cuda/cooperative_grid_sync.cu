/* A cooperative launch whose blocks wait for each other, and one that is too large. */
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

enum { BLOCKS = 4, THREADS = 64, N = BLOCKS * THREADS };

/* Each phase reads what another block wrote in the phase before. */
__global__ static void phases(int *a, int *b, int rounds)
{
    cg::grid_group grid = cg::this_grid();
    int i = (int)grid.thread_rank();

    for (int r = 0; r < rounds; r++) {
        b[i] = a[(i + THREADS + 1) % N] + r;
        grid.sync();
        a[i] = b[(i + 2 * THREADS) % N] * 2 % 1000003;
        grid.sync();
    }
}

int main(void)
{
    int a[N], b[N], rounds = 6;

    check_begin("cooperative_grid_sync");
    if (!device_attribute(cudaDevAttrCooperativeLaunch)) {
        check_skip("no cooperative launch");
    }
    for (int i = 0; i < N; i++) {
        a[i] = i * 3;
    }
    int *device_a = to_device(a, N), *device_b = device_new<int>(N);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            b[i] = a[(i + THREADS + 1) % N] + r;
        }
        for (int i = 0; i < N; i++) {
            a[i] = b[(i + 2 * THREADS) % N] * 2 % 1000003;
        }
    }
    void *arguments[] = {&device_a, &device_b, &rounds};
    RT(cudaLaunchCooperativeKernel((void *)phases, BLOCKS, THREADS, arguments, 0, NULL));
    check_launch();
    check_device(device_a, a, N, "six rounds of grid barriers");

    int per_sm = 0, count = device_attribute(cudaDevAttrMultiProcessorCount);
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, phases, THREADS, 0));
    check_true(per_sm >= 1, "at least one block fits an SM");
    check_code(cudaLaunchCooperativeKernel((void *)phases, per_sm * count + 1, THREADS, arguments,
                                           0, NULL),
               cudaErrorCooperativeLaunchTooLarge, "one block too many");
    (void)cudaGetLastError();
    RT(cudaDeviceSynchronize());
    return check_end();
}
