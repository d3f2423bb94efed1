/* More streams than a GPU has queues, each with several launches of the same kernels under way, and
 * each waiting for its neighbour half-way. */
#include "check_driver.h"

CHECK_EMBED(basic_ptx, "basic.ptx");

enum { STREAMS = 72, N = 6000, THREADS = 64, STEPS = 6, ROUNDS = 3 };

static CUstream streams[STREAMS];
static CUevent events[STREAMS];
static CUdeviceptr data[STREAMS];
static unsigned host[N];

static void launch_all(CUfunction fill, CUfunction chain, unsigned round)
{
    unsigned n = N, blocks = (N + THREADS - 1) / THREADS;

    for (int step = 0; step <= STEPS; step++) {
        for (int i = 0; i < STREAMS; i++) {
            unsigned first = (unsigned)i * 7 + round;
            void *fill_params[] = {&data[i], &first, &n}, *chain_params[] = {&data[i], &n};

            if (step == 0) {
                driver_launch(fill, blocks, THREADS, streams[i], fill_params);
            } else {
                driver_launch(chain, blocks, THREADS, streams[i], chain_params);
            }
            if (step == STEPS / 2) {
                DRV(cu.EventRecord(events[i], streams[i]));
                DRV(cu.StreamWaitEvent(streams[i], events[(i + STREAMS - 1) % STREAMS], 0));
            }
        }
    }
}

static int correct(int i, unsigned round)
{
    DRV(cu.MemcpyDtoHAsync_v2(host, data[i], sizeof(host), streams[i]));
    DRV(cu.StreamSynchronize(streams[i]));
    for (unsigned k = 0; k < N; k++) {
        unsigned want = (unsigned)i * 7 + round + k;

        for (int step = 0; step < STEPS; step++) {
            want = want * 3 + 1;
        }
        if (host[k] != want) {
            return 0;
        }
    }
    return 1;
}

int main(void)
{
    CUmodule module;
    int good = 0;

    driver_begin("drv_streams_many");
    DRV(cu.ModuleLoadData(&module, basic_ptx));
    for (int i = 0; i < STREAMS; i++) {
        DRV(cu.StreamCreate(&streams[i], i % 3 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        DRV(cu.EventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
        DRV(cu.MemAlloc_v2(&data[i], sizeof(host)));
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        launch_all(driver_function(module, "fill"), driver_function(module, "chain"), round);
        for (int i = 0; i < STREAMS; i++) {
            good += correct(i, round);
        }
    }
    check_int(good, STREAMS * ROUNDS, "streams whose steps came in order");
    for (int i = 0; i < STREAMS; i++) {
        DRV(cu.StreamDestroy_v2(streams[i]));
        DRV(cu.EventDestroy_v2(events[i]));
        DRV(cu.MemFree_v2(data[i]));
    }
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
