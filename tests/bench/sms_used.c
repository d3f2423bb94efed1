/*
 * On how many SMs a program's kernels run, launched alone and in a graph: to see that a host's
 * scheduler divides the GPU, run two at a time, a tenant each.
 *
 *     sms_used [SECONDS]     5 by default
 *
 * Each second a line for each way: launches, the number of SMs that they ran on all together, and
 * the least and the most of a single launch. The kernel has far more blocks than fit on the device
 * at once, and each takes some microseconds, so without a limit a launch uses all SMs. Each block
 * also adds one to a counter, so nothing may be lost or done twice: else the program fails.
 *
 * Natively %smid names the SM. In a green context under MPS it does not, but SMs still differ.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#define PROGRAM "sms_used"
#define FUNCTIONS(F)                                                                               \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuCtxSetCurrent)                                                                             \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleGetFunction)                                                                         \
    F(cuMemAlloc_v2)                                                                               \
    F(cuMemsetD32Async)                                                                            \
    F(cuMemcpyDtoH_v2)                                                                             \
    F(cuStreamCreate)                                                                              \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamBeginCapture_v2)                                                                     \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphLaunch)                                                                               \
    F(cuLaunchKernel)
#include "cu.h"

#define SMS_MAX 1024u
#define THREADS 1024u
#define WAVES   8u
#define SPIN    4000u /* clocks of a block: some 2 us */

/* where: each block leaves a mark for its SM, counts itself in the last word, and spins. */
static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
                          ".visible .entry where(.param .u64 marks, .param .u32 clocks)\n{\n"
                          "    .reg .b32 %r<8>;\n    .reg .b64 %d<4>;\n    .reg .pred %p<3>;\n"
                          "    mov.u32 %r0, %tid.x;\n    setp.ne.u32 %p0, %r0, 0;\n"
                          "    @%p0 bra rest;\n"
                          "    ld.param.u64 %d0, [marks];\n    mov.u32 %r1, %smid;\n"
                          "    and.b32 %r1, %r1, 1023;\n    mov.u32 %r2, 1;\n"
                          "    mul.wide.u32 %d1, %r1, 4;\n    add.s64 %d2, %d0, %d1;\n"
                          "    st.global.u32 [%d2], %r2;\n"
                          "    red.global.add.u32 [%d0+4096], 1;\n"
                          "rest:\n"
                          "    ld.param.u32 %r3, [clocks];\n    mov.u32 %r4, %clock;\n"
                          "spin:\n    mov.u32 %r5, %clock;\n    sub.u32 %r6, %r5, %r4;\n"
                          "    setp.lt.u32 %p1, %r6, %r3;\n    @%p1 bra spin;\n    ret;\n}\n";

static CUfunction where;
static CUdeviceptr marks;
static CUstream stream;
static CUgraphExec exec;
static unsigned blocks;

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void give(void)
{
    unsigned clocks = SPIN;
    void *params[] = {&marks, &clocks};

    CHECK(cu.cuMemsetD32Async(marks, 0, SMS_MAX + 1, stream));
    CHECK(cu.cuLaunchKernel(where, blocks, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
}

/* A launch, and what it says. @return how many SMs it used; adds them to all */
static unsigned launch(bool graph, bool all[SMS_MAX])
{
    static uint32_t words[SMS_MAX + 1];
    unsigned used = 0;

    if (graph) {
        CHECK(cu.cuGraphLaunch(exec, stream));
    } else {
        give();
    }
    CHECK(cu.cuStreamSynchronize(stream));
    CHECK(cu.cuMemcpyDtoH_v2(words, marks, sizeof words));
    if (words[SMS_MAX] != blocks) {
        fprintf(stderr, PROGRAM ": %u blocks of %u ran\n", words[SMS_MAX], blocks);
        exit(1);
    }
    for (unsigned i = 0; i < SMS_MAX; i++) {
        used += words[i] != 0;
        all[i] |= words[i] != 0;
    }
    return used;
}

static void report(bool graph, double seconds)
{
    unsigned launches = 0, least = SMS_MAX, most = 0, together = 0;
    double end = now_s() + seconds;
    bool all[SMS_MAX] = {false};

    for (; now_s() < end; launches++) {
        unsigned used = launch(graph, all);

        least = used < least ? used : least;
        most = used > most ? used : most;
    }
    for (unsigned i = 0; i < SMS_MAX; i++) {
        together += all[i];
    }
    printf("%s launches=%u sms=%u least=%u most=%u\n", graph ? "graph " : "kernel", launches,
           together, least, most);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    double end = argc > 1 ? strtod(argv[1], NULL) : 5;
    CUcontext context;
    CUmodule module;
    CUgraph graph;
    CUdevice device;
    int sms = 0;

    load_driver();
    CHECK(cu.cuInit(0));
    CHECK(cu.cuDeviceGet(&device, 0));
    CHECK(cu.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cu.cuCtxSetCurrent(context));
    CHECK(cu.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    blocks = (unsigned)sms * 2 * WAVES;
    CHECK(cu.cuModuleLoadData(&module, ptx));
    CHECK(cu.cuModuleGetFunction(&where, module, "where"));
    CHECK(cu.cuMemAlloc_v2(&marks, (SMS_MAX + 1) * sizeof(uint32_t)));
    CHECK(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    give();
    CHECK(cu.cuStreamEndCapture(stream, &graph));
    CHECK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    printf("device sms=%d blocks=%u\n", sms, blocks);
    for (end += now_s(); now_s() < end;) {
        report(false, 0.5);
        report(true, 0.5);
    }
    return 0;
}
