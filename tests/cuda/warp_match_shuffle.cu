/* match_any, match_all, and every form of shuffle, also on 64-bit and on narrow groups. */
#include "check.h"

__global__ static void match(unsigned *out)
{
    unsigned lane = threadIdx.x;
    int same = -1, other = -1;

    out[lane * 4 + 0] = __match_any_sync(0xffffffffu, lane / 5);
    out[lane * 4 + 1] = __match_any_sync(0xffffffffu, (unsigned long long)(lane % 4) << 40);
    out[lane * 4 + 2] = __match_all_sync(0xffffffffu, 77, &same);
    out[lane * 4 + 3] = __match_all_sync(0xffffffffu, lane == 9, &other);
    out[lane * 4 + 3] += (unsigned)(same != 0) * 2 + (unsigned)(other != 0);
}

__global__ static void shuffle(long long *out)
{
    int lane = threadIdx.x;
    long long *mine = out + lane * 8;

    mine[0] = __shfl_sync(0xffffffffu, lane * 10, 5);
    mine[1] = __shfl_sync(0xffffffffu, lane * 10, lane + 40);
    mine[2] = __shfl_up_sync(0xffffffffu, lane, 3);
    mine[3] = __shfl_down_sync(0xffffffffu, lane, 3);
    mine[4] = __shfl_xor_sync(0xffffffffu, lane, 9);
    mine[5] = __shfl_up_sync(0xffffffffu, lane, 1, 8);
    mine[6] = __shfl_xor_sync(0xffffffffu, (long long)lane << 33, 1);
    mine[7] = (long long)__shfl_down_sync(0xffffffffu, (double)lane * 0.5, 2, 4) * 2;
}

static unsigned range_mask(int first, int last)
{
    unsigned mask = 0;

    for (int i = first; i <= last && i < 32; i++) {
        mask |= 1u << i;
    }
    return mask;
}

int main(void)
{
    unsigned matched[32 * 4];
    long long moved[32 * 8];

    check_begin("warp_match_shuffle");
    for (int lane = 0; lane < 32; lane++) {
        matched[lane * 4 + 0] = range_mask(lane / 5 * 5, lane / 5 * 5 + 4);
        matched[lane * 4 + 1] = 0x11111111u << (lane % 4);
        matched[lane * 4 + 2] = 0xffffffffu;
        matched[lane * 4 + 3] = 2;
        moved[lane * 8 + 0] = 50;
        moved[lane * 8 + 1] = (lane + 40) % 32 * 10;
        moved[lane * 8 + 2] = lane < 3 ? lane : lane - 3;
        moved[lane * 8 + 3] = lane > 28 ? lane : lane + 3;
        moved[lane * 8 + 4] = lane ^ 9;
        moved[lane * 8 + 5] = lane % 8 == 0 ? lane : lane - 1;
        moved[lane * 8 + 6] = (long long)(lane ^ 1) << 33;
        moved[lane * 8 + 7] = (long long)((lane % 4 < 2 ? lane + 2 : lane) * 0.5) * 2;
    }
    unsigned *device_matched = device_new<unsigned>(32 * 4);
    long long *device_moved = device_new<long long>(32 * 8);
    match<<<1, 32>>>(device_matched);
    check_launch();
    check_device(device_matched, matched, 32 * 4, "match any and match all");
    shuffle<<<1, 32>>>(device_moved);
    check_launch();
    check_device(device_moved, moved, 32 * 8, "shuffles idx, up, down, xor");
    return check_end();
}
