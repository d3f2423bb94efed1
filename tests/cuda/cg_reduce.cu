/* Cooperative-groups algorithms: reduce, scan, and partitions by label. */
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ static void algorithms(const int *in, int *out)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(block);
    int i = (int)block.thread_rank(), *row = out + i * 6;

    row[0] = cg::reduce(warp, in[i], cg::plus<int>());
    row[1] = cg::reduce(eight, in[i], cg::greater<int>());
    row[2] = cg::exclusive_scan(warp, in[i], cg::plus<int>());
    row[3] = cg::inclusive_scan(eight, in[i], cg::plus<int>());
    auto same = cg::labeled_partition(warp, in[i] % 3);
    row[4] = (int)same.size();
    row[5] = cg::reduce(same, in[i], cg::plus<int>());
}

int main(void)
{
    int in[64], want[64 * 6] = {0};
    uint32_t seed = 17;

    check_begin("cg_reduce");
    for (int i = 0; i < 64; i++) {
        in[i] = (int)(check_random(&seed) % 1000);
    }
    for (int i = 0; i < 64; i++) {
        int *row = want + i * 6;
        for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++) {
            row[0] += in[k];
            row[2] += k < i ? in[k] : 0;
            row[4] += in[k] % 3 == in[i] % 3;
            row[5] += in[k] % 3 == in[i] % 3 ? in[k] : 0;
        }
        for (int k = i / 8 * 8; k < i / 8 * 8 + 8; k++) {
            row[1] = in[k] > row[1] ? in[k] : row[1];
            row[3] += k <= i ? in[k] : 0;
        }
    }
    int *device_in = to_device(in, 64), *device_out = device_new<int>(64 * 6);
    algorithms<<<1, 64>>>(device_in, device_out);
    check_launch();
    check_device(device_out, want, 64 * 6, "reduce, scan and labeled partition");
    return check_end();
}
