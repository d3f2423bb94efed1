#include <cassert>
extern "C" __global__ void check(int *p)
{
    assert(p[threadIdx.x] == 0);
}
