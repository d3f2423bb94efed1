/* Conway's game of life on a torus, a cell each and 32 cells a word. */
#include "check.h"

enum { W = 64, H = 64, STEPS = 20 };

__global__ static void cells(const unsigned char *in, unsigned char *out)
{
    int x = threadIdx.x, y = blockIdx.x, around = 0;

    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            if (dx != 0 || dy != 0) {
                around += in[(y + dy + H) % H * W + (x + dx + W) % W];
            }
        }
    }
    out[y * W + x] = around == 3 || (around == 2 && in[y * W + x] != 0);
}

/* Counts the neighbours of 32 cells at once with full adders on whole words. */
__global__ static void words(const unsigned *in, unsigned *out)
{
    int x = threadIdx.x % 2, y = threadIdx.x / 2;
    unsigned ones = 0, twos = 0, fours = 0, me = in[y * 2 + x];

    for (int dy = -1; dy <= 1; dy++) {
        const unsigned *row = in + (y + dy + H) % H * 2;
        unsigned here = row[x], other = row[1 - x];
        unsigned part[3] = {__funnelshift_l(other, here, 1), dy == 0 ? 0 : here,
                            __funnelshift_r(here, other, 1)};
        for (int k = 0; k < 3; k++) {
            unsigned carry = ones & part[k];
            ones ^= part[k];
            fours |= twos & carry;
            twos ^= carry;
        }
    }
    out[y * 2 + x] = twos & ~fours & (ones | me);
}

static unsigned char board[2][H * W];

int main(void)
{
    unsigned packed[H * 2] = {0}, want[H * 2] = {0};
    int now = 0, alive = 0;
    uint32_t seed = 2024;

    check_begin("game_of_life");
    for (int i = 0; i < H * W; i++) {
        board[0][i] = check_random(&seed) % 3 == 0;
        packed[i / 32] |= (unsigned)board[0][i] << (i % 32);
    }
    unsigned char *a = to_device(board[0], H * W), *b = device_new<unsigned char>(H * W);
    unsigned *wa = to_device(packed, H * 2), *wb = device_new<unsigned>(H * 2);
    for (int s = 0; s < STEPS; s++, now = 1 - now) {
        for (int i = 0; i < H * W; i++) {
            int around = 0;
            for (int k = 0; k < 9; k++) {
                int y = (i / W + k / 3 - 1 + H) % H, x = (i % W + k % 3 - 1 + W) % W;
                around += k == 4 ? 0 : board[now][y * W + x];
            }
            board[1 - now][i] = around == 3 || (around == 2 && board[now][i]);
        }
        if (s % 2 == 0) {
            cells<<<H, W>>>(a, b);
            words<<<1, H * 2>>>(wa, wb);
        } else {
            cells<<<H, W>>>(b, a);
            words<<<1, H * 2>>>(wb, wa);
        }
    }
    check_launch();
    for (int i = 0; i < H * W; i++) {
        alive += board[now][i];
        want[i / 32] |= (unsigned)board[now][i] << (i % 32);
    }
    check_device(a, board[now], H * W, "twenty steps, a cell each");
    check_device(wa, want, H * 2, "twenty steps, words");
    printf("%d cells alive\n", alive);
    return check_end();
}
