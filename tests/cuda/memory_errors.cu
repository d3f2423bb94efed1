/* Wrong frees and wrong copies: refused with the right code, and nothing is damaged. */
#include "check.h"

int main(void)
{
    unsigned char *p = NULL, *other = NULL, *null = NULL;
    unsigned char host[4096];
    const size_t huge = 64u << 20;
    unsigned char *big = host_new<unsigned char>(huge);
    int same = 1;

    check_begin("memory_errors");
    RT(cudaMalloc((void **)&p, 4096));
    RT(cudaMalloc((void **)&other, 4096));
    RT(cudaMemset(other, 0x5a, 4096));
    check_code(cudaFree(p + 64), cudaErrorInvalidValue, "free inside a block");
    RT(cudaMemset(p, 1, 4096));
    RT(cudaFree(p));
    check_code(cudaFree(p), cudaErrorInvalidValue, "free twice");
    check_code(cudaFree((void *)0x1230), cudaErrorInvalidValue, "free of no pointer");
    check_code(cudaMemcpy(host, other, 16, (cudaMemcpyKind)77), cudaErrorInvalidMemcpyDirection,
               "copy of an unknown kind");
    check_code(cudaMemcpy(null, other, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidValue,
               "copy to null");
    check_code(cudaMemcpy(other, null, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
               "copy from null");
    check_code(cudaMemcpy(other, big, huge, cudaMemcpyHostToDevice), cudaErrorInvalidValue,
               "copy far over the end");
    check_code(cudaMemset(null, 0, 16), cudaErrorInvalidValue, "memset of null");
    check_code(cudaMemcpy2D(host, 8, other, 16, 16, 4, cudaMemcpyDeviceToHost),
               cudaErrorInvalidPitchValue, "pitch smaller than the row");
    check_code(cudaMalloc(NULL, 16), cudaErrorInvalidValue, "malloc without a result");
    check_code(cudaMemcpy(host, other, 0, cudaMemcpyDeviceToHost), cudaSuccess, "copy of nothing");
    (void)cudaGetLastError();
    RT(cudaMemcpy(host, other, 4096, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4096; i++) {
        same &= host[i] == 0x5a;
    }
    check_true(same, "the other block kept its contents");
    check_code(cudaFree(other), cudaSuccess, "free of the other block");
    return check_end();
}
