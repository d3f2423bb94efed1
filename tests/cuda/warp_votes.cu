/* Votes, ballots, active masks and lane masks, in full and in split warps. */
#include "check.h"

__device__ static unsigned lane_mask_lt(void)
{
    unsigned mask;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
    return mask;
}

__global__ static void votes(unsigned *out)
{
    unsigned lane = threadIdx.x % 32, *mine = out + lane * 8;

    mine[0] = __activemask();
    mine[1] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    mine[2] = __any_sync(0xffffffffu, lane == 31) ? 1 : 0;
    mine[3] = __all_sync(0xffffffffu, lane < 31) ? 1 : 0;
    mine[4] = __all_sync(0xffffffffu, lane < 32) ? 1 : 0;
    mine[5] = lane_mask_lt();
    if (lane < 12) {
        mine[6] = __ballot_sync(0x00000fffu, lane & 1);
        mine[7] = __any_sync(0x00000fffu, lane > 20) ? 1 : 0;
    } else {
        mine[6] = __ballot_sync(0xfffff000u, lane & 1);
        mine[7] = __all_sync(0xfffff000u, lane > 11) ? 1 : 0;
    }
}

/* Each lane that keeps something finds its place by counting the ballots below it. */
__global__ static void compact(const int *in, int *out, int *count)
{
    int lane = threadIdx.x, v = in[lane];
    unsigned keep = __ballot_sync(0xffffffffu, v % 2 == 0);

    if (v % 2 == 0) {
        out[__popc(keep & lane_mask_lt())] = v;
    }
    if (lane == 0) {
        *count = __popc(keep);
    }
    __syncwarp();
}

int main(void)
{
    unsigned want[32 * 8];
    int in[32], kept[32] = {0}, count = 0;
    uint32_t seed = 3;

    check_begin("warp_votes");
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned *row = want + lane * 8;
        row[0] = 0xffffffffu;
        row[1] = 0x49249249u;
        row[2] = 1;
        row[3] = 0;
        row[4] = 1;
        row[5] = (1u << lane) - 1;
        row[6] = lane < 12 ? 0x00000aaau : 0xaaaaa000u;
        row[7] = lane < 12 ? 0 : 1;
        in[lane] = (int)(check_random(&seed) % 100);
        if (in[lane] % 2 == 0) {
            kept[count++] = in[lane];
        }
    }
    unsigned *device = device_new<unsigned>(32 * 8);
    votes<<<1, 32>>>(device);
    check_launch();
    check_device(device, want, 32 * 8, "votes and masks of every lane");
    int *device_in = to_device(in, 32), *device_out = device_new<int>(33);
    compact<<<1, 32>>>(device_in, device_out, device_out + 32);
    check_launch();
    check_device(device_out, kept, 32, "stream compaction by ballot");
    check_device(device_out + 32, &count, 1, "number kept");
    return check_end();
}
