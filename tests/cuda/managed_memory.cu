/* Managed memory and __managed__ variables: host and device in turn, with synchronisation. */
#include "check.h"

enum { N = 20000 };

__managed__ int total = 5;
__managed__ int table[64];

struct node {
    struct node *next;
    int value;
};

__global__ static void add(int *data, int amount)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        data[i] += amount;
    }
    if (i < 64) {
        table[i] += i;
        atomicAdd(&total, 1);
    }
}

__global__ static void walk(struct node *list, int *sum)
{
    *sum = 0;
    for (struct node *n = list; n != NULL; n = n->next) {
        *sum += n->value;
        n->value = -n->value;
    }
}

int main(void)
{
    int *data = NULL, *sum = NULL, good = 1;
    struct node *nodes = NULL;

    check_begin("managed_memory");
    if (!device_attribute(cudaDevAttrManagedMemory)) {
        check_skip("no managed memory");
    }
    RT(cudaMallocManaged((void **)&data, N * sizeof(int), cudaMemAttachGlobal));
    RT(cudaMallocManaged((void **)&sum, sizeof(int), cudaMemAttachGlobal));
    RT(cudaMallocManaged((void **)&nodes, 10 * sizeof(struct node), cudaMemAttachGlobal));
    for (int i = 0; i < N; i++) {
        data[i] = i;
    }
    for (int round = 1; round <= 4; round++) {
        add<<<(N + 255) / 256, 256>>>(data, round);
        check_launch();
        good = 1;
        for (int i = 0; i < N; i++) {
            good &= data[i] == i + (round == 1 ? 1 : round == 2 ? 13 : round == 3 ? 26 : 40);
            data[i] += 10;
        }
        check_true(good, "host and device in turn");
    }
    check_int(total, 5 + 4 * 64, "managed variable with an initial value");
    good = 1;
    for (int i = 0; i < 64; i++) {
        good &= table[i] == 4 * i;
    }
    check_true(good, "managed table");
    total = 100;
    for (int i = 0; i < 10; i++) {
        nodes[i].next = i < 9 ? &nodes[i + 1] : NULL;
        nodes[i].value = i + 1;
    }
    walk<<<1, 1>>>(nodes, sum);
    check_launch();
    check_int(*sum, 55, "a linked list built by the host");
    check_int(nodes[9].value, -10, "and changed by the device");
    check_int(total, 100, "host's write to the managed variable");
    RT(cudaMemset(data, 0, N * sizeof(int)));
    RT(cudaDeviceSynchronize());
    check_int(data[N - 1], 0, "memset of managed memory");
    RT(cudaFree(data));
    RT(cudaFree(sum));
    RT(cudaFree(nodes));
    return check_end();
}
