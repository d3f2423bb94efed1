/* Kernels that assert, one that calls what only another module can have given it, one that does
 * neither. None prints. */
#include <assert.h>
extern "C" {
__global__ void inlined(int *x) { assert(x[threadIdx.x] != 3); x[threadIdx.x]++; }
__global__ void by_argument(int *x, int (*f)(int)) { x[threadIdx.x] = f(x[threadIdx.x]); }
__global__ void sets(int *x) { x[threadIdx.x] = 1; }
__global__ void plain(int *x) { assert(x[threadIdx.x] != 3); x[threadIdx.x]++; }
}
