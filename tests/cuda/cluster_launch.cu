/* Thread-block clusters: ranks, cluster barrier, and reading a neighbour's shared memory. */
#include <cooperative_groups.h>

#include "check.h"

__global__ static void exchange(int *out)
{
#if __CUDA_ARCH__ >= 900
    __shared__ int mine[32];
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned rank = cluster.block_rank(), other = (rank + 1) % cluster.num_blocks();

    mine[threadIdx.x] = (int)(blockIdx.x * 1000 + threadIdx.x);
    cluster.sync();
    int *theirs = cluster.map_shared_rank(mine, other);
    out[blockIdx.x * 32 + threadIdx.x] = theirs[31 - threadIdx.x];
    cluster.sync();
#else
    out[0] = -1;
#endif
}

int main(void)
{
    enum { BLOCKS = 4, CLUSTER = 2 };
    int want[BLOCKS * 32];
    cudaFuncAttributes function;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;

    check_begin("cluster_launch");
    RT(cudaFuncGetAttributes(&function, exchange));
    if (!device_attribute(cudaDevAttrClusterLaunch) || function.binaryVersion < 90 ||
        function.ptxVersion < 90) {
        check_skip("no thread-block clusters");
    }
    for (int i = 0; i < BLOCKS * 32; i++) {
        int block = i / 32, other = block / CLUSTER * CLUSTER + (block + 1) % CLUSTER;
        want[i] = other * 1000 + 31 - i % 32;
    }
    int *device = device_new<int>(BLOCKS * 32);
    memset(&attribute, 0, sizeof(attribute));
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = CLUSTER;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(32);
    config.attrs = &attribute;
    config.numAttrs = 1;
    RT(cudaLaunchKernelEx(&config, exchange, device));
    check_launch();
    check_device(device, want, BLOCKS * 32, "shared memory of the neighbouring block");
    return check_end();
}
