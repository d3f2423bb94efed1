/* Every integer atomic, 32 and 64 bits wide, and the values they return. */
#include "check.h"

enum { THREADS = 1024 };

struct cells {
    int add, sub, min, max;
    unsigned inc, dec, both, either, differ, tickets, swapped;
    unsigned long long add64, min64, max64, or64;
    unsigned ticket_sum;
};

__global__ static void hammer(struct cells *c)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

    atomicAdd(&c->add, (int)i);
    atomicSub(&c->sub, 3);
    atomicMin(&c->min, 500 - (int)i);
    atomicMax(&c->max, (int)i - 500);
    atomicInc(&c->inc, 9);
    atomicDec(&c->dec, 9);
    atomicAnd(&c->both, ~(1u << (i % 8)));
    atomicOr(&c->either, 1u << (i % 20));
    atomicXor(&c->differ, i);
    atomicAdd(&c->ticket_sum, atomicAdd(&c->tickets, 1u));
    atomicExch(&c->swapped, 4242u);
    atomicAdd(&c->add64, 0x100000001ull);
    atomicMin(&c->min64, 0x500000000ull - i);
    atomicMax(&c->max64, 0x500000000ull + i);
    atomicOr(&c->or64, 1ull << (i % 64));
}

int main(void)
{
    struct cells cell;
    struct cells *device;

    check_begin("atomics_int");
    memset(&cell, 0, sizeof(cell));
    cell.both = 0xffffffffu;
    cell.min64 = ~0ull;
    device = to_device(&cell, 1);
    hammer<<<8, THREADS / 8>>>(device);
    check_launch();
    to_host(&cell, device, 1);
    check_int(cell.add, THREADS * (THREADS - 1) / 2, "add");
    check_int(cell.sub, -3 * THREADS, "sub");
    check_int(cell.min, 500 - (THREADS - 1), "min");
    check_int(cell.max, THREADS - 1 - 500, "max");
    check_int(cell.inc, THREADS % 10, "inc wraps after 9");
    check_int(cell.dec, (10 - THREADS % 10) % 10, "dec wraps to 9");
    check_int(cell.both, 0xffffff00ll, "and");
    check_int(cell.either, 0xfffff, "or");
    check_int(cell.differ, 0, "xor");
    check_int(cell.tickets, THREADS, "tickets handed out");
    check_int(cell.ticket_sum, THREADS * (THREADS - 1) / 2, "each ticket once");
    check_int(cell.swapped, 4242, "exchange");
    check_int((long long)cell.add64, 0x100000001ll * THREADS, "64-bit add");
    check_int((long long)cell.min64, 0x500000000ll - (THREADS - 1), "64-bit min");
    check_int((long long)cell.max64, 0x500000000ll + THREADS - 1, "64-bit max");
    check_int((long long)cell.or64, -1, "64-bit or");
    return check_end();
}
