/* What belongs to a kernel besides its code: constants and variables that the host writes between
 * launches, in one stream and across two, and attributes that are set. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { ROUNDS = 40, N = 16, SUM_BLOCKS = 96, SUM_THREADS = 256, SUM_SHARED = 60000 };

static CUmodule module;
static CUstream a, b;
static CUevent behind_a, behind_b;
static int factors[ROUNDS], tables[ROUNDS][N], got[2][ROUNDS][N];

static CUdeviceptr global(const char *name, size_t want_bytes)
{
    CUdeviceptr address = 0;
    size_t bytes = 0;

    DRV(cu.ModuleGetGlobal_v2(&address, &bytes, module, name));
    check_int((long long)bytes, (long long)want_bytes, name);
    return address;
}

/* Stream b comes behind a's write, and a's next write behind b. */
static void launch_round(CUfunction f, CUdeviceptr factor, CUdeviceptr table, CUdeviceptr out,
                         int round)
{
    CUdeviceptr out_a = out + (size_t)round * sizeof(got[0][0]);
    CUdeviceptr out_b = out_a + sizeof(got[0]);
    void *params_a[] = {&out_a}, *params_b[] = {&out_b};

    if (round % 4 == 3) {
        DRV(cu.MemsetD32Async(factor, (unsigned)factors[round], 1, a));
    } else {
        DRV(cu.MemcpyHtoDAsync_v2(factor, &factors[round], sizeof(int), a));
    }
    if (round % 3 == 0) {
        DRV(cu.MemcpyHtoDAsync_v2(table, tables[round], sizeof(tables[round]), a));
    }
    driver_launch(f, 1, N, a, params_a);
    DRV(cu.EventRecord(behind_a, a));
    DRV(cu.StreamWaitEvent(b, behind_a, 0));
    driver_launch(f, 1, N, b, params_b);
    DRV(cu.EventRecord(behind_b, b));
    DRV(cu.StreamWaitEvent(a, behind_b, 0));
}

static void variables(void)
{
    CUdeviceptr factor = global("factor", sizeof(int)), table = global("table", sizeof(tables[0]));
    CUdeviceptr counter = global("counter", sizeof(unsigned)), out;
    CUfunction f = driver_function(module, "use_globals");
    int good = 1, last = 0;
    unsigned count = 0;

    DRV(cu.MemAlloc_v2(&out, sizeof(got)));
    for (int round = 0; round < ROUNDS; round++) {
        factors[round] = round * round - 7;
        for (int i = 0; i < N; i++) {
            tables[round][i] = round + i * 3;
        }
        launch_round(f, factor, table, out, round);
    }
    DRV(cu.StreamSynchronize(a));
    DRV(cu.StreamSynchronize(b));
    DRV(cu.MemcpyDtoH_v2(got, out, sizeof(got)));
    for (int round = 0; round < ROUNDS; round++) {
        last = round % 3 == 0 ? round : last;
        for (int i = 0; i < N; i++) {
            int want = tables[last][i] * factors[round];

            good = good && got[0][round][i] == want && got[1][round][i] == want;
        }
    }
    check_true(good, "each launch sees what was written before it");
    DRV(cu.MemcpyDtoH_v2(&count, counter, sizeof(count)));
    check_int(count, 2ll * ROUNDS * N, "all launches add to one variable");
    DRV(cu.MemFree_v2(out));
}

static void shared_memory(void)
{
    static int in[SUM_BLOCKS * SUM_THREADS], out[SUM_BLOCKS];
    CUfunction f = driver_function(module, "block_sum");
    CUdeviceptr device_in, device_out;
    int good = 1;

    for (int i = 0; i < SUM_BLOCKS * SUM_THREADS; i++) {
        in[i] = i % 1000 - 400;
    }
    DRV(cu.MemAlloc_v2(&device_in, sizeof(in)));
    DRV(cu.MemAlloc_v2(&device_out, sizeof(out)));
    DRV(cu.MemcpyHtoD_v2(device_in, in, sizeof(in)));
    void *params[] = {&device_in, &device_out};
    check_code(
        (int)cu.LaunchKernel(f, SUM_BLOCKS, 1, 1, SUM_THREADS, 1, 1, SUM_SHARED, a, params, NULL),
        CUDA_ERROR_INVALID_VALUE, "more dynamic shared memory than was asked for");
    DRV(cu.FuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SUM_SHARED));
    for (int i = 0; i < 4; i++) {
        DRV(cu.LaunchKernel(f, SUM_BLOCKS, 1, 1, SUM_THREADS, 1, 1, i == 0 ? 1024 : SUM_SHARED, a,
                            params, NULL));
    }
    DRV(cu.StreamSynchronize(a));
    DRV(cu.MemcpyDtoH_v2(out, device_out, sizeof(out)));
    for (int block = 0; block < SUM_BLOCKS; block++) {
        int want = 0;

        for (int i = 0; i < SUM_THREADS; i++) {
            want += in[block * SUM_THREADS + i];
        }
        good = good && out[block] == want;
    }
    check_true(good, "sums with much dynamic shared memory");
    DRV(cu.MemFree_v2(device_in));
    DRV(cu.MemFree_v2(device_out));
}

int main(void)
{
    driver_begin("drv_kernel_state");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    DRV(cu.StreamCreate(&a, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&b, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&behind_a, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventCreate(&behind_b, CU_EVENT_DISABLE_TIMING));
    variables();
    shared_memory();
    DRV(cu.ModuleUnload(module));
    DRV(cu.StreamDestroy_v2(a));
    DRV(cu.StreamDestroy_v2(b));
    return driver_end();
}
