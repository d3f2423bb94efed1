/* Integer intrinsics and a few instructions by inline PTX, against plain C on the host. */
#include "check.h"

enum { N = 256, COLUMNS = 30 };

__global__ static void intrinsics(const unsigned *in, unsigned long long *out)
{
    int i = threadIdx.x;
    unsigned a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    unsigned long long wide = (unsigned long long)a << 32 | b, *row = out + i * COLUMNS;
    unsigned low, high, field, mixed;

    row[0] = __popc(a);
    row[1] = __popcll(wide);
    row[2] = __clz(a >> (b % 32));
    row[3] = __clzll(wide >> (c % 64));
    row[4] = __ffs(a << (b % 32));
    row[5] = __brev(a);
    row[6] = __brevll(wide);
    row[7] = __umulhi(a, b);
    row[8] = (unsigned)__mulhi((int)a, (int)b);
    row[9] = __umul64hi(wide, wide ^ c);
    row[10] = __byte_perm(a, b, c & 0x7777);
    row[11] = __funnelshift_l(a, b, c);
    row[12] = __funnelshift_r(a, b, c);
    row[13] = __funnelshift_rc(a, b, c % 64);
    row[14] = (unsigned)__dp4a((int)a, (int)b, (int)c);
    row[15] = __dp4a(a, b, c);
    row[16] = __usad(a, b, c);
    row[17] = __sad((int)a, (int)b, c);
    row[18] = (unsigned)__hadd((int)a, (int)b);
    row[19] = __urhadd(a, b);
    row[20] = __umul24(a, b);
    row[21] = (unsigned)__dp2a_lo((int)a, (int)b, (int)c);
    row[22] = __vaddus4(a, b);
    row[23] = __vabsdiffu4(a, b);
    row[24] = (unsigned)min((int)a, (int)b);
    row[25] = (unsigned)((int)a / (int)(b | 1)) + (unsigned)((int)a % (int)(c | 1));
    row[26] = wide / (c | 1) + wide % (b | 1);
    asm("add.cc.u32 %0, %2, %3;\n\taddc.u32 %1, %4, 0;"
        : "=r"(low), "=r"(high)
        : "r"(a), "r"(b), "r"(c));
    row[27] = (unsigned long long)high << 32 | low;
    asm("bfe.u32 %0, %1, 5, 11;" : "=r"(field) : "r"(a));
    asm("bfi.b32 %0, %1, %2, 7, 9;" : "=r"(mixed) : "r"(a), "r"(b));
    row[28] = (unsigned long long)field << 32 | mixed;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(low) : "r"(a), "r"(b), "r"(c));
    asm("bfe.s32 %0, %1, 4, 6;" : "=r"(high) : "r"(a));
    row[29] = (unsigned long long)high << 32 | low;
}

static unsigned leading_zeros(unsigned long long v, unsigned bits)
{
    unsigned n = 0;

    while (n < bits && (v >> (bits - 1 - n) & 1) == 0) {
        n++;
    }
    return n;
}

static unsigned long long reversed(unsigned long long v, int bits)
{
    unsigned long long r = 0;

    for (int i = 0; i < bits; i++) {
        r |= (v >> i & 1) << (bits - 1 - i);
    }
    return r;
}

/* One byte-wise operation on all four bytes: 0 signed dot, 1 unsigned dot, 2 add sat., 3 |diff| */
static unsigned bytes(int operation, unsigned a, unsigned b, unsigned c)
{
    unsigned result = operation < 2 ? c : 0;

    for (int k = 0; k < 32; k += 8) {
        int x = (int)(a >> k & 255), y = (int)(b >> k & 255);
        if (operation == 0) {
            result += (unsigned)((signed char)x * (signed char)y);
        } else if (operation == 1) {
            result += (unsigned)(x * y);
        } else if (operation == 2) {
            result |= (unsigned)(x + y > 255 ? 255 : x + y) << k;
        } else {
            result |= (unsigned)abs(x - y) << k;
        }
    }
    return result;
}

static unsigned permuted(unsigned a, unsigned b, unsigned selector)
{
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned result = 0;

    for (int k = 0; k < 4; k++) {
        result |= (unsigned)(both >> (8 * (selector >> (4 * k) & 7)) & 255) << (8 * k);
    }
    return result;
}

static void expect(const unsigned *in, unsigned long long *row)
{
    unsigned a = in[0], b = in[1], c = in[2], shift = c % 32, clamped = c % 64;
    unsigned long long wide = (unsigned long long)a << 32 | b,
                       high_low = (unsigned long long)b << 32 | a;
    long long sa = (int)a, sb = (int)b;
    unsigned first = a << (b % 32);

    row[0] = (unsigned)__builtin_popcount(a);
    row[1] = (unsigned)__builtin_popcountll(wide);
    row[2] = leading_zeros(a >> (b % 32), 32);
    row[3] = leading_zeros(wide >> (c % 64), 64);
    row[4] = (unsigned)__builtin_ffs((int)first);
    row[5] = reversed(a, 32);
    row[6] = reversed(wide, 64);
    row[7] = (unsigned long long)a * b >> 32;
    row[8] = (unsigned)((unsigned long long)(sa * sb) >> 32);
    row[9] = (unsigned long long)((unsigned __int128)wide * (wide ^ c) >> 64);
    row[10] = permuted(a, b, c);
    row[11] = (unsigned)((high_low << shift) >> 32);
    row[12] = (unsigned)(high_low >> shift);
    row[13] = (unsigned)(high_low >> (clamped > 32 ? 32 : clamped));
    row[14] = bytes(0, a, b, c);
    row[15] = bytes(1, a, b, c);
    row[16] = (a > b ? a - b : b - a) + c;
    row[17] = (unsigned)(sa > sb ? sa - sb : sb - sa) + c;
    row[18] = (unsigned)((sa + sb) >> 1);
    row[19] = ((unsigned long long)a + b + 1) >> 1;
    row[20] = (unsigned)((unsigned long long)(a & 0xffffff) * (b & 0xffffff));
    row[21] = c + (unsigned)((short)a * (signed char)b) +
              (unsigned)((short)(a >> 16) * (signed char)(b >> 8));
    row[22] = bytes(2, a, b, 0);
    row[23] = bytes(3, a, b, 0);
    row[24] = (unsigned)(sa < sb ? sa : sb);
    row[25] = (unsigned)(sa / (int)(b | 1)) + (unsigned)(sa % (int)(c | 1));
    row[26] = wide / (c | 1) + wide % (b | 1);
    row[27] = (unsigned long long)(unsigned)(c + (unsigned)(((unsigned long long)a + b) >> 32))
                  << 32 |
              (unsigned)(a + b);
    row[28] =
        (unsigned long long)(a >> 5 & 0x7ff) << 32 | ((b & ~(0x1ffu << 7)) | (a & 0x1ff) << 7);
    row[29] = (unsigned long long)(unsigned)((int)(a << 22) >> 26) << 32 | (a ^ b ^ c);
}

int main(void)
{
    unsigned in[3 * N];
    unsigned long long *want = host_new<unsigned long long>(N * COLUMNS);
    unsigned long long *got = host_new<unsigned long long>(N * COLUMNS);
    uint32_t seed = 41;
    char label[48];

    check_begin("int_intrinsics");
    for (int i = 0; i < 3 * N; i++) {
        in[i] = check_random(&seed) << 16 ^ check_random(&seed);
    }
    for (int i = 0; i < N; i++) {
        expect(in + 3 * i, want + i * COLUMNS);
    }
    unsigned *device_in = to_device(in, 3 * N);
    unsigned long long *device_out = device_new<unsigned long long>(N * COLUMNS);
    intrinsics<<<1, N>>>(device_in, device_out);
    check_launch();
    to_host(got, device_out, N * COLUMNS);
    for (int c = 0; c < COLUMNS; c++) {
        int same = 1;
        for (int i = 0; i < N; i++) {
            same &= got[i * COLUMNS + c] == want[i * COLUMNS + c];
        }
        snprintf(label, sizeof(label), "column %d", c);
        check_true(same, label);
    }
    return check_end();
}
