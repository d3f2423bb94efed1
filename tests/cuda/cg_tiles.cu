/* Cooperative groups inside a block: tiles, nested tiles, coalesced threads. */
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ static void tiles(int *out)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<16> sixteen = cg::tiled_partition<16>(block);
    cg::thread_block_tile<4> four = cg::tiled_partition<4>(sixteen);
    int *row = out + block.thread_rank() * 8, sum = (int)sixteen.thread_rank();

    for (int step = 8; step > 0; step /= 2) {
        sum += sixteen.shfl_xor(sum, step);
    }
    row[0] = sum;
    row[1] = (int)sixteen.meta_group_rank();
    row[2] = (int)four.meta_group_rank();
    row[3] = four.shfl((int)block.thread_rank(), 3);
    row[4] = (int)four.ballot(four.thread_rank() % 2 == 0);
    row[5] = sixteen.any(sixteen.thread_rank() == 15) + 2 * sixteen.all(block.thread_rank() < 50);
    block.sync();
    row[6] = (int)(block.size() + block.group_index().x);
    row[7] = 0;
    if (block.thread_rank() % 3 == 1) {
        cg::coalesced_group active = cg::coalesced_threads();
        row[7] = (int)(active.size() * 100 + active.thread_rank());
    }
}

int main(void)
{
    int want[64 * 8];

    check_begin("cg_tiles");
    for (int i = 0; i < 64; i++) {
        int *row = want + i * 8, base = i / 32 * 32, rank = 0, size = 0;
        row[0] = 120;
        row[1] = i / 16;
        row[2] = i % 16 / 4;
        row[3] = i / 4 * 4 + 3;
        row[4] = 5;
        row[5] = 1 + 2 * (i / 16 * 16 + 15 < 50);
        row[6] = 64;
        for (int k = base; k < base + 32; k++) {
            size += k % 3 == 1;
            rank += k % 3 == 1 && k < i;
        }
        row[7] = i % 3 == 1 ? size * 100 + rank : 0;
    }
    int *device = device_new<int>(64 * 8);
    tiles<<<1, 64>>>(device);
    check_launch();
    check_device(device, want, 64 * 8, "tiles of 16 and 4, and coalesced threads");
    return check_end();
}
