/* CRC-32 of many messages: table in constant memory, and bit by bit; the standard test value. */
#include "check.h"

enum { MESSAGES = 128, LENGTH = 200 };

__constant__ unsigned table[256];

__global__ static void by_table(const unsigned char *data, unsigned *crc)
{
    const unsigned char *message = data + threadIdx.x * LENGTH;
    unsigned c = ~0u;

    for (unsigned i = 0; i < threadIdx.x + 9; i++) {
        c = table[(c ^ message[i]) & 255] ^ c >> 8;
    }
    crc[threadIdx.x] = ~c;
}

__global__ static void by_bits(const unsigned char *data, unsigned *crc)
{
    const unsigned char *message = data + threadIdx.x * LENGTH;
    unsigned c = ~0u;

    for (unsigned i = 0; i < threadIdx.x + 9; i++) {
        c ^= message[i];
        for (int k = 0; k < 8; k++) {
            c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        }
    }
    crc[threadIdx.x] = ~c;
}

int main(void)
{
    static unsigned char data[MESSAGES * LENGTH];
    unsigned host_table[256], want[MESSAGES];
    uint32_t seed = 6;

    check_begin("crc32");
    for (unsigned i = 0; i < 256; i++) {
        unsigned c = i;
        for (int k = 0; k < 8; k++) {
            c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        }
        host_table[i] = c;
    }
    for (int i = 0; i < MESSAGES * LENGTH; i++) {
        data[i] = (unsigned char)check_random(&seed);
    }
    memcpy(data, "123456789", 9);
    for (int m = 0; m < MESSAGES; m++) {
        unsigned c = ~0u;
        for (int i = 0; i < m + 9; i++) {
            c = host_table[(c ^ data[m * LENGTH + i]) & 255] ^ c >> 8;
        }
        want[m] = ~c;
    }
    check_true(want[0] == 0xcbf43926u, "the standard test value");
    RT(cudaMemcpyToSymbol(table, host_table, sizeof(host_table)));
    unsigned char *device = to_device(data, sizeof(data));
    unsigned *crc = device_new<unsigned>(MESSAGES);
    by_table<<<1, MESSAGES>>>(device, crc);
    check_launch();
    check_device(crc, want, MESSAGES, "by table");
    RT(cudaMemset(crc, 0, sizeof(want)));
    by_bits<<<1, MESSAGES>>>(device, crc);
    check_launch();
    check_device(crc, want, MESSAGES, "bit by bit");
    return check_end();
}
