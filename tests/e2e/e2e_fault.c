/*
 * A program whose kernel faults, and which goes on asking: the error comes at the first
 * synchronising call and at every later one. It prints "ready" and waits for the end of stdin,
 * until its worker is gone, and asks once more.
 *
 *     e2e_fault address | misaligned | assert | trap | polled (an assert, and its stream is asked)
 *
 * Or the program beside it, which also prints "ready" and waits for the end of stdin:
 *
 *     e2e_fault beside ERROR    its kernel has ended; then every call returns ERROR
 *     e2e_fault endless         its kernel never ends
 *     e2e_fault long ROUNDS [BLOCKS]   each of its kernel's blocks counts to ROUNDS
 *     e2e_fault late ROUNDS     the same, with a kernel behind it that faults
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

/* fail_assert(), fail_trap(), and turn(p): until another value than 0 is at p. */
static const char fault_ptx[] = ".version 6.4\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".extern .func __assertfail(.param .b64 a, .param .b64 b,\n"
                                "    .param .b32 c, .param .b64 d, .param .b64 e);\n"
                                ".global .align 1 .b8 text[5] = {102, 97, 108, 115, 0};\n"
                                ".visible .entry fail_assert()\n"
                                "{\n"
                                "    .reg .b64 %d<2>;\n"
                                "    .param .b64 a;\n"
                                "    .param .b64 b;\n"
                                "    .param .b32 c;\n"
                                "    .param .b64 d;\n"
                                "    .param .b64 e;\n"
                                "    mov.u64 %d0, text;\n"
                                "    cvta.global.u64 %d1, %d0;\n"
                                "    st.param.b64 [a], %d1;\n"
                                "    st.param.b64 [b], %d1;\n"
                                "    st.param.b32 [c], 1;\n"
                                "    st.param.b64 [d], %d1;\n"
                                "    st.param.b64 [e], 1;\n"
                                "    call.uni __assertfail, (a, b, c, d, e);\n"
                                "    ret;\n"
                                "}\n"
                                ".visible .entry fail_trap()\n"
                                "{\n"
                                "    trap;\n"
                                "    ret;\n"
                                "}\n"
                                ".visible .entry turn(.param .u64 p)\n"
                                "{\n"
                                "    .reg .pred %q;\n"
                                "    .reg .b32 %r0;\n"
                                "    .reg .b64 %d<2>;\n"
                                "    ld.param.u64 %d0, [p];\n"
                                "    cvta.to.global.u64 %d1, %d0;\n"
                                "again:\n"
                                "    ld.volatile.global.u32 %r0, [%d1];\n"
                                "    setp.eq.u32 %q, %r0, 0;\n"
                                "    @%q bra again;\n"
                                "    ret;\n"
                                "}\n";

static CUmodule module, fault_module;
static CUdeviceptr block;

/* Once the host answers it has been given all work so far: only then may somebody kill us. */
static void wait_for_host(void)
{
    size_t room, all;

    DRV(cu.MemGetInfo_v2(&room, &all));
}

static void wait_for_stdin(void)
{
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
}

static void every_call(CUresult want, const char *when)
{
    uint32_t word = 0;
    CUdeviceptr other = 0;
    char line[64];

    snprintf(line, sizeof line, "synchronise %s", when);
    check_code(cu.CtxSynchronize(), want, line);
    snprintf(line, sizeof line, "allocate %s", when);
    check_code(cu.MemAlloc_v2(&other, 4096), want, line);
    snprintf(line, sizeof line, "copy %s", when);
    check_code(cu.MemcpyDtoH_v2(&word, block, sizeof word), want, line);
}

static void launch_mix(CUdeviceptr at)
{
    uint32_t n = 1, a = 1, b = 1;
    void *params[] = {&at, &n, &a, &b};

    driver_launch(driver_function(module, "mix"), 1, 1, NULL, params);
}

/* Launch a kernel that faults. @return the error that it causes */
static CUresult launch_fault(const char *kind)
{
    if (strcmp(kind, "assert") == 0 || strcmp(kind, "polled") == 0) {
        driver_launch(driver_function(fault_module, "fail_assert"), 1, 1, NULL, NULL);
        return CUDA_ERROR_ASSERT;
    }
    if (strcmp(kind, "trap") == 0) {
        driver_launch(driver_function(fault_module, "fail_trap"), 1, 1, NULL, NULL);
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    if (strcmp(kind, "misaligned") == 0) {
        launch_mix(block + 2);
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    }
    launch_mix(16);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Ask about the kernel's stream, and an event behind it, until they say that it has ended. */
static void ask_until_done(CUresult want)
{
    CUevent event;
    CUresult result;

    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    DRV(cu.EventRecord(event, NULL));
    do {
        result = cu.EventQuery(event);
    } while (result == CUDA_ERROR_NOT_READY);
    check_code(result, want, "event after the fault");
    check_code(cu.StreamQuery(NULL), want, "stream after the fault");
}

static int fault(const char *kind)
{
    CUresult want = launch_fault(kind);

    if (strcmp(kind, "polled") == 0) {
        ask_until_done(want);
    }
    every_call(want, "after the fault");
    every_call(want, "again");
    wait_for_stdin();
    every_call(want, "when the worker is gone");
    (void)cu.ModuleUnload(module); /* goes to the worker, so the guest notices that it is gone */
    return check_end();
}

static int beside(CUresult want)
{
    launch_mix(block);
    DRV(cu.CtxSynchronize());
    wait_for_stdin();
    every_call(want, "after another's fault");
    return check_end();
}

static int endless(void)
{
    void *params[] = {&block};

    DRV(cu.MemsetD32_v2(block, 0, 1));
    driver_launch(driver_function(fault_module, "turn"), 1, 1, NULL, params);
    wait_for_host();
    wait_for_stdin();
    return check_end();
}

static int count_to(uint32_t rounds, unsigned blocks)
{
    void *params[] = {&block, &rounds};

    driver_launch(driver_function(module, "spin"), blocks, 1, NULL, params);
    wait_for_host();
    wait_for_stdin();
    return check_end();
}

/* Whoever ends it at "ready" does so before the fault. */
static int late(uint32_t rounds)
{
    void *params[] = {&block, &rounds};

    driver_launch(driver_function(module, "spin"), 1, 1, NULL, params);
    launch_mix(16);
    wait_for_host();
    wait_for_stdin();
    return check_end();
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    uint32_t number = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;

    unsigned blocks = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;

    if (argc < 2) {
        fprintf(stderr,
                "usage: e2e_fault address | misaligned | assert | trap\n"
                "       e2e_fault beside ERROR | endless | long ROUNDS [BLOCKS] | late ROUNDS\n");
        return 2;
    }
    driver_begin("e2e_fault");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    DRV(cu.ModuleLoadData(&fault_module, fault_ptx));
    DRV(cu.MemAlloc_v2(&block, 4096));
    return strcmp(kind, "beside") == 0    ? beside((CUresult)number)
           : strcmp(kind, "endless") == 0 ? endless()
           : strcmp(kind, "long") == 0    ? count_to(number, blocks)
           : strcmp(kind, "late") == 0    ? late(number)
                                          : fault(kind);
}
