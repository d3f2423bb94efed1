#include <cooperative_groups.h>
extern "C" __global__ void grid_sync(int *a, int *b)
{
    cooperative_groups::grid_group g = cooperative_groups::this_grid();
    unsigned i = (unsigned)g.thread_rank();
    a[i] = (int)i;
    g.sync();
    b[i] = a[g.size() - 1 - i];
    g.sync();
    a[i] = b[g.size() - 1 - i] + 1;
}
