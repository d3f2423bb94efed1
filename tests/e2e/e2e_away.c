/*
 * A program whose memory is put away and brought back (weir suspend).
 *
 * e2e_away BYTES   holds memory of every kind, half of BYTES by cuMemAlloc and half mapped by
 *                  cuMemMap. Prints "ready", and for each line of stdin does a round: kernels and a
 *                  captured graph change the memory, all of it is compared, and "round N" printed.
 *                  Of the graph's capture only the executable graph is left, not even its module.
 * e2e_away BYTES MS   rounds without stdin, MS milliseconds apart, 20 of them.
 * e2e_away BYTES 0 plain   without the graph. A variable of a module counts the rounds.
 */
#include "tests/cuda/vmm.h"
#include "tests/e2e/kernels.h"

#include <time.h>

#define PIECES 4u /* of the mapped half; the last one may only be read */

static const char count_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 rounds = 100;\n"
    ".visible .entry count(.param .u64 out) { .reg .b32 %r<3>; .reg .b64 %d<2>;\n"
    "ld.param.u64 %d1, [out]; ld.global.u32 %r1, [rounds]; add.u32 %r2, %r1, 1;\n"
    "st.global.u32 [rounds], %r2; st.u32 [%d1], %r2; ret; }\n";

static CUfunction count;
static uint32_t *back, *pinned;

static void compare(CUdeviceptr at, size_t bytes, uint32_t first, uint32_t step, const char *what)
{
    DRV(cu.MemcpyDtoH_v2(back, at, bytes));
    for (uint32_t i = 0; i < bytes / 4; i++) {
        if (back[i] != first + i * step) {
            check_die("%s: word %u is 0x%x, expected 0x%x", what, i, back[i], first + i * step);
        }
    }
}

static void fill(CUdeviceptr at, size_t bytes, uint32_t first, uint32_t step)
{
    for (uint32_t i = 0; i < bytes / 4; i++) {
        back[i] = first + i * step;
    }
    DRV(cu.MemcpyHtoD_v2(at, back, bytes));
}

/* Every word becomes three times itself. */
static void triple(CUfunction mix, CUdeviceptr at, size_t bytes, CUstream stream)
{
    uint32_t n = (uint32_t)(bytes / 4), a = 3, b = 0;
    void *params[] = {&at, &n, &a, &b};

    driver_launch(mix, (n + 127) / 128, 128, stream, params);
}

static void count_round(long round)
{
    void *params[] = {&pinned};

    driver_launch(count, 1, 1, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
    check_int(pinned[0], 101 + round, "a variable that kernels count in");
    pinned[0] = 4711;
}

static CUgraphExec capture(CUdeviceptr at, size_t bytes)
{
    CUgraph graph;
    CUgraphExec exec;
    CUmodule module;
    CUstream stream;

    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    triple(driver_function(module, "mix"), at, bytes, stream);
    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.ModuleUnload(module));
    return exec;
}

static int next_round(long round, long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    char line[64];

    if (ms == 0) {
        return fgets(line, sizeof(line), stdin) != NULL;
    }
    nanosleep(&pause, NULL);
    return round < 20;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) / 2 : 0;
    long ms = argc > 2 ? strtol(argv[2], NULL, 0) : 0;
    int no_graph = argc > 3;
    uint32_t factor = 1;
    CUdeviceptr plain, space, pieces[PIECES];
    CUmodule module;

    vmm_begin("e2e_away");
    size_t piece = (bytes / PIECES + vmm_unit - 1) / vmm_unit * vmm_unit;
    back = malloc(bytes > PIECES * piece ? bytes : PIECES * piece);
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    CUfunction mix = driver_function(module, "mix");
    DRV(cu.ModuleLoadData(&module, count_ptx));
    count = driver_function(module, "count");
    DRV(cu.MemAlloc_v2(&plain, bytes));
    DRV(cu.MemHostAlloc((void **)&pinned, 4096, 0));
    DRV(cu.MemAddressReserve(&space, PIECES * piece, 0, 0, 0));
    for (uint32_t i = 0; i < PIECES; i++) {
        CUmemGenericAllocationHandle handle = vmm_create(piece, 0);

        pieces[i] = space + i * piece;
        vmm_map(pieces[i], piece, handle);
        DRV(cu.MemRelease(handle));
        fill(pieces[i], piece, i, 7);
    }
    DRV(vmm_access(pieces[PIECES - 1], piece, CU_MEM_ACCESS_FLAGS_PROT_READ));
    fill(plain, bytes, 1, 5);
    pinned[0] = 4711;
    CUgraphExec exec = no_graph ? NULL : capture(pieces[0], piece);
    printf("ready\n");
    for (long round = 0; next_round(round, ms); round++) {
        triple(mix, plain, bytes, NULL);
        if (no_graph) {
            triple(mix, pieces[0], piece, NULL);
            count_round(round);
        } else {
            DRV(cu.GraphLaunch(exec, NULL));
        }
        factor *= 3;
        compare(plain, bytes, factor, 5 * factor, "cuMemAlloc");
        compare(pieces[0], piece, 0, 7 * factor, "mapped, changed by a graph");
        for (uint32_t i = 1; i < PIECES; i++) {
            compare(pieces[i], piece, i, 7, "mapped");
        }
        DRV(cu.MemcpyDtoH_v2(back, (CUdeviceptr)(uintptr_t)pinned, 4));
        check_int(back[0], 4711, "pinned memory");
        check_code(cu.MemcpyHtoD_v2(pieces[PIECES - 1], back, 4), CUDA_ERROR_INVALID_VALUE,
                   "what may only be read stays so");
        printf("round %ld\n", round);
    }
    if (!no_graph) {
        DRV(cu.GraphExecDestroy(exec));
    }
    DRV(cu.MemFree_v2(plain));
    return driver_end();
}
