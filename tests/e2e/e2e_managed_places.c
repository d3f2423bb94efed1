/*
 * Where managed memory lies, on the device or on the host: by the quota, by use and by advice
 * (docs/design/managed.md, "More than fits"). Each scenario compares with what the program knows
 * must be there.
 */
#include "e2e_managed.h"

static size_t free_bytes(void)
{
    size_t left, total;

    DRV(cu.MemGetInfo_v2(&left, &total));
    return left;
}

/* More than the tenant may have of the device; run with a quota of 64 MiB. */
static void scenario_quota(void)
{
    size_t before = free_bytes();
    uint32_t *at[6];
    int good = 1;

    for (int i = 0; i < 6; i++) {
        at[i] = managed(16 * MIB);
        good &= moves(at[i]);
    }
    check_true(good, "all of it moves");
    check_true(before - free_bytes() >= 48 * MIB, "what lies on the device counts");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            at[i][i] += 1;
            DRV(mix(address(at[i]), 4 * WORDS, 3, 1, NULL));
        }
        DRV(cu.CtxSynchronize());
    }
    for (int i = 0; i < 6; i++) {
        good &= at[i][i] == 16 && at[i][i + 1] == 4;
        DRV(cu.MemFree_v2(address(at[i])));
    }
    check_true(good, "all of it is right");
    check_int(free_bytes(), before, "and is given back");
}

/* With room for the memory once in pinned memory, not for its pieces as well. */
static void scenario_no_room(void)
{
    size_t before = free_bytes();
    uint32_t *at = managed(64 * MIB);

    check_true(!moves(at), "it is pinned memory");
    check_int(free_bytes(), before, "nothing of it stays on the device");
    at[7] = 5;
    DRV(mix(address(at), 64, 3, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_int(at[7], 16, "and kernels use it");
}

/* Words far apart, of one allocation that is larger than the quota. */
static void scenario_one_range(void)
{
    const uint32_t n = 30; /* 120 MiB; run with a quota of 80 MiB */
    uint32_t *at = managed(n * MIB * 4);
    CUdeviceptr other;
    int good = 1;

    check_true(moves(at), "it moves");
    for (uint32_t i = 0; i < n; i++) {
        at[i * WORDS] = i;
    }
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < n; i++) {
            DRV(mix(address(at + i * WORDS), 64, 3, 1, NULL));
        }
    }
    DRV(cu.CtxSynchronize());
    for (uint32_t i = 0; i < n; i++) {
        good &= at[i * WORDS] == 27 * i + 13 && at[i * WORDS + 63] == 13 && at[i * WORDS + 64] == 0;
    }
    check_true(good, "kernels and the program see all of it");
    DRV(cu.MemAlloc_v2(&other, 40 * MIB));
    DRV(cu.MemsetD32_v2(other, 5, 10 * WORDS));
    for (uint32_t i = 0; i < n; i++) {
        DRV(mix(address(at + i * WORDS), 64, 3, 1, NULL));
    }
    DRV(cu.CtxSynchronize());
    for (uint32_t i = 0; i < n; i++) {
        good &= at[i * WORDS] == 81 * i + 40 && at[i * WORDS + 63] == 40;
    }
    check_true(good, "what made room for device memory is right");
    DRV(cu.MemFree_v2(other));
    DRV(cu.MemFree_v2(address(at)));
}

static CUresult prefer(const void *at, size_t bytes, CUdevice location)
{
    return CU(MemAdvise)(address(at), bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location);
}

/* The test looks at the status. */
static void stop(const char *line)
{
    char answer[16];

    printf("%s\n", line);
    fflush(stdout);
    if (!fgets(answer, sizeof answer, stdin)) {
        check_die("no answer");
    }
}

static void launch_captured(CUstream stream)
{
    CUgraphExec exec;
    CUgraph graph;

    DRV(cu.StreamEndCapture(stream, &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

/*
 * Pieces that are used twice come to the device, in the place of others: a seeded program that
 * draws an array, uses it by kernels and by graphs, and compares it. Run with a quota of 80 MiB:
 * two arrays fit. Every 20th step leaves a kernel waiting meanwhile, so that nothing may move.
 */
static void scenario_pages(void)
{
    const char *text = getenv("SEED");
    uint32_t *flag = managed(4), *at[5], known[5] = {0};
    CUstream stream, busy;

    seed = 88172645463325252ull * (text ? strtoull(text, NULL, 10) : 1) + 1;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&busy, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 5; i++) {
        at[i] = managed(32 * MIB);
    }
    for (uint32_t step = 0; step < 60; step++) {
        uint32_t i = draw(5), spot = draw(7) * WORDS + draw(WORDS / 2), waits = step % 20 == 19;

        if (waits) {
            *flag = 0;
            await_flag(address(flag), address(flag + 1), step, busy);
            for (int many = 0; many < 300 && step == 19; many++) {
                DRV(mix(address(at[many % 5]), 1, 1, 0, stream));
                DRV(mix(address(at[many % 5]), 1, 1, 0, stream));
            }
        }
        if (draw(4) == 0) {
            DRV(draw(3) ? prefer(at[draw(5)], (draw(2) ? 32 : 9) * MIB, (CUdevice)draw(2) - 1)
                        : CU(MemAdvise)(address(at[draw(5)]), 32 * MIB,
                                        CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
        }
        if (draw(2)) {
            at[i][spot] = known[i] = step;
        } else {
            DRV(cu.MemsetD32_v2(address(at[i] + spot), known[i] = step, 1));
        }
        for (int twice = 0; twice < 1 + (int)draw(3); twice++) {
            bool by_graph = draw(3) == 0;

            if (by_graph) {
                DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            }
            DRV(mix(address(at[i]), 64, 1, 0, stream));
            DRV(mix(address(at[i] + spot), 1, 3, 1, stream));
            if (by_graph) {
                launch_captured(stream);
            }
            known[i] = known[i] * 3 + 1;
        }
        DRV(cu.StreamSynchronize(stream));
        if (at[i][spot] != known[i]) {
            check_die("step %u: array %u has %u, not %u", step, i, at[i][spot], known[i]);
        }
        if (waits) {
            *(volatile uint32_t *)flag = 1;
            DRV(cu.StreamSynchronize(busy));
            check_int(flag[1], step, "a kernel that waited meanwhile");
        }
    }
    check_true(true, "pages");
    if (getenv("STAYS")) {
        stop("ready");
    }
}

/*
 * What only graphs name: a kernel, a fill and a copy. With a quota of 80 MiB two of four arrays of
 * 32 MiB lie on the host, and the two that a graph uses come to the device. The one that it fills
 * and copies stays there for good, the others come and go in the place of the other.
 */
static void scenario_graphs(void)
{
    uint32_t *at[4], words = 64, factor = 3, more = 1;
    CUdeviceptr named;
    void *params[] = {&named, &words, &factor, &more};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = registered_mix,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 64,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    CUgraph graph, captured;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        at[i] = managed(32 * MIB);
        at[i][0] = i;
    }
    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(mix(address(at[2]), 64, 3, 1, stream));
    DRV(cu.MemsetD32Async(address(at[3] + WORDS), 5, 64, stream));
    DRV(cu.MemcpyDtoDAsync_v2(address(at[3] + 2 * WORDS), address(at[3] + WORDS), 256, stream));
    DRV(cu.StreamEndCapture(stream, &captured));
    DRV(cu.GraphInstantiateWithFlags(&exec, captured, 0));
    for (int i = 0; i < 3; i++) {
        DRV(cu.GraphLaunch(exec, stream));
    }
    DRV(cu.StreamSynchronize(stream));
    check_int(at[2][0], 67, "by a graph's kernel");
    check_int(at[3][WORDS], 5, "by its fill");
    check_int(at[3][2 * WORDS], 5, "by its copy");
    stop("captured");
    DRV(cu.GraphExecDestroy(exec));
    named = address(at[0]);
    DRV(cu.GraphCreate(&graph, 0));
    DRV(cu.GraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; i++) { /* at[0] is in at[2]'s place then: what was filled stays */
        DRV(cu.GraphLaunch(exec, stream));
    }
    for (int k = 1; k < 4; k++) {
        named = address(at[k]);
        DRV(cu.GraphExecKernelNodeSetParams_v2(exec, node, &kernel));
        for (int i = 0; i < 2; i++) {
            DRV(cu.GraphLaunch(exec, stream));
        }
    }
    DRV(cu.StreamSynchronize(stream));
    check_int(at[0][0], 13, "by a graph that was made");
    check_true(at[1][0] == 13 && at[2][0] == 607 && at[3][0] == 31, "and was changed");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.GraphDestroy(captured));
    DRV(cu.StreamDestroy_v2(stream));
}

/* The program and kernels in turn, on the first and the last word; each adds 1. */
static void in_turn(uint32_t *at, size_t bytes, uint32_t *known)
{
    for (int i = 0; i < 3; i++) {
        at[0]++;
        at[bytes / 4 - 1]++;
        for (int twice = 0; twice < 2; twice++) {
            DRV(mix(address(at), 1, 1, 1, NULL));
            DRV(mix(address(at + bytes / 4 - 1), 1, 1, 1, NULL));
        }
        DRV(cu.CtxSynchronize());
        *known += 3;
        check_int(at[0], *known, "the first word");
        check_int(at[bytes / 4 - 1], *known, "the last word");
    }
}

/* Advice on where memory is to lie, with room for all of it on the device. */
static void scenario_placed(void)
{
    const size_t bytes = 72 * MIB; /* in pieces of 32, 32 and 8 MiB */
    uint32_t *at = managed(bytes), *flag = managed(4), *other, known = 0;
    CUstream stream;

    in_turn(at, bytes, &known);
    stop("device");
    DRV(prefer(at, bytes, CU_DEVICE_CPU));
    in_turn(at, bytes, &known);
    stop("host");
    DRV(CU(MemAdvise)(address(at), bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    DRV(CU(MemAdvise)(address(at), bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    DRV(CU(MemAdvise)(address(at), 40 * MIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0));
    in_turn(at, bytes, &known);
    stop("a part");
    DRV(prefer(at, bytes, CU_DEVICE_CPU));
    DRV(prefer(at, bytes, 0));
    DRV(mix(address(at), 1, 1, 0, NULL));
    DRV(mix(address(at + bytes / 4 - 1), 1, 1, 0, NULL));
    DRV(cu.CtxSynchronize());
    stop("device again"); /* at its first use */
    in_turn(at, bytes, &known);

    /* Nothing leaves while a kernel runs, but what is to leave makes room first. */
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    other = managed(32 * MIB);
    *flag = 0;
    await_flag(address(flag), address(flag + 1), 7, stream);
    DRV(prefer(other, 32 * MIB, CU_DEVICE_CPU));
    stop("busy");
    *(volatile uint32_t *)flag = 1;
    DRV(cu.StreamSynchronize(stream));
    check_int(flag[1], 7, "a kernel that waited meanwhile");
    DRV(prefer(other, 32 * MIB, CU_DEVICE_CPU));
    stop("idle");
    DRV(cu.MemFree_v2(address(other)));
    other = managed(32 * MIB);
    known = 0;
    in_turn(other, 32 * MIB, &known);
    stop("new"); /* another allocation in the same place */
    DRV(cu.StreamDestroy_v2(stream));
}

/* With room for two of three arrays: one that is to lie on the device stays there. */
static void scenario_kept(void)
{
    uint32_t *at[3], known[3] = {0};

    for (int i = 0; i < 3; i++) {
        at[i] = managed(32 * MIB);
    }
    DRV(prefer(at[2], 32 * MIB, 0));
    for (int round = 0; round < 4; round++) {
        for (int i = 2; i >= 0; i--) {
            for (int twice = 0; twice < (i == 2 ? round == 0 : 2); twice++) {
                DRV(mix(address(at[i]), 64, 3, 1, NULL));
                known[i] = 3 * known[i] + 1;
            }
        }
    }
    DRV(cu.CtxSynchronize());
    check_true(at[0][0] == known[0] && at[1][0] == known[1] && at[2][0] == known[2], "kept");
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"quota", scenario_quota}, {"one_range", scenario_one_range}, {"no_room", scenario_no_room},
        {"pages", scenario_pages}, {"graphs", scenario_graphs},       {"placed", scenario_placed},
        {"kept", scenario_kept}};

    return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
