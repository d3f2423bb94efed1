/*
 * Managed memory as programs use it: who touches it when (docs/design/managed.md). Each scenario
 * compares with what the program knows must be there.
 */
#include "e2e_managed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>

static void scenario_where(void)
{
    printf("moves %d %d\n", moves(managed(MIB)), moves(managed(4)));
}

/* ---------------------------------------------------------------- variables */

#define TABLE_WORDS 525000u /* 2 MiB and some */

/* The table begins and ends between pages, and its neighbours lie in its first and last page. */
static const char variables_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 before[3] = {1, 2, 3};\n"
    ".visible .global .attribute(.managed) .align 4 .u32 table[525000] = {7, 8, 9};\n"
    ".visible .global .attribute(.managed) .align 4 .u32 behind[3] = {4, 5, 6};\n"
    /* Kernels that name no address. */
    ".visible .entry next()\n{\n.reg .b32 %r<4>; .reg .b64 %d<3>;\n"
    "mov.u32 %r0, %ctaid.x; mul.lo.u32 %r0, %r0, 1000; mov.u64 %d0, table;\n"
    "mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; ld.global.u32 %r1, [%d2];\n"
    "add.u32 %r1, %r1, 1; st.global.u32 [%d2], %r1; ret;\n}\n";

static uint32_t *variable(CUmodule module, const char *name)
{
    CUdeviceptr at = 0;
    size_t bytes;

    DRV(cu.ModuleGetGlobal_v2(&at, &bytes, module, name));
    return (uint32_t *)(uintptr_t)at;
}

static void scenario_variables(void)
{
    for (int round = 0; round < 2; round++) {
        CUlibrary library;
        CUmodule module;
        CUdeviceptr got = 0;
        uint32_t *table, *behind, *before;
        CUstream stream;
        size_t bytes;

        DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        DRV(cu.LibraryLoadData(&library, variables_ptx, NULL, NULL, 0, NULL, NULL, 0));
        DRV(cu.LibraryGetManaged(&got, &bytes, library, "table"));
        table = (uint32_t *)(uintptr_t)got;
        DRV(cu.LibraryGetModule(&module, library));
        check_true(variable(module, "table") == table, "it has one address");
        before = variable(module, "before");
        behind = variable(module, "behind");
        printf("moves %d\n", moves(table + TABLE_WORDS / 2));
        check_true(table[0] == 7 && table[2] == 9 && table[3] == 0 && table[TABLE_WORDS - 1] == 0,
                   "what the module says");
        check_true(before[2] == 3 && behind[0] == 4, "and of its neighbours");
        for (uint32_t i = 0; i < TABLE_WORDS; i++) {
            table[i] = i;
        }
        driver_launch(driver_function(module, "next"), 525, 1, stream, NULL);
        DRV(cu.StreamSynchronize(stream));
        for (uint32_t i = 0; i < TABLE_WORDS; i++) {
            if (table[i] != i + (i % 1000 == 0)) {
                check_die("word %u is %u", i, table[i]);
            }
        }
        behind[2] = 60;
        DRV(mix(address(table), TABLE_WORDS, 2, 1, stream));
        DRV(mix(address(behind), 3, 1, 1, stream));
        DRV(cu.MemcpyDtoDAsync_v2(address(table + 1), address(table + 300000), 4, stream));
        DRV(cu.StreamSynchronize(stream));
        check_true(table[1] == 600003 && table[3] == 7 && table[TABLE_WORDS - 1] == 1049999 &&
                       behind[0] == 5 && behind[2] == 61,
                   "kernels, a copy, the program in turn");
        DRV(CU(MemPrefetchAsync)(got, bytes, CU_DEVICE_CPU, stream));
        DRV(CU(MemPrefetchAsync)(got, bytes, 0, stream));
        check_int(table[1], 600003, "after a prefetch there and back");
        if (moves(table + TABLE_WORDS / 2)) {
            table[300000] = 0;
            await_flag(address(table + 300000), address(table + 300001), 77, stream);
            table[300000] = 1;
            DRV(cu.StreamSynchronize(stream));
            check_int(table[300001], 77, "a kernel that waits for a word of it");
        }
        DRV(cu.LibraryUnload(library));
        DRV(cu.StreamDestroy_v2(stream));
    }
}

/* ---------------------------------------------------------------- in turn, at random */

#define ARRAYS   7
#define VARIABLE 6 /* this one is the table */

struct array {
    uint32_t *at, *known; /* known: what must be there */
    uint32_t words;
};

static void slice(const struct array *a, uint32_t *ret_first, uint32_t *ret_n)
{
    *ret_first = draw(a->words);
    *ret_n = 1 + draw(draw(4) == 0 ? a->words - *ret_first : 64);
    *ret_n = *ret_n < a->words - *ret_first ? *ret_n : a->words - *ret_first;
}

static void compare(const struct array *a, uint32_t first, uint32_t n, uint32_t round)
{
    for (uint32_t i = first; i < first + n; i++) {
        if (a->at[i] != a->known[i]) {
            check_die("round %u: word %u of %u is %#x, not %#x", round, i, a->words, a->at[i],
                      a->known[i]);
        }
    }
}

static void step(struct array *arrays, CUdeviceptr device, uint32_t round)
{
    struct array *a = &arrays[draw(ARRAYS)], *b = &arrays[draw(ARRAYS)];
    uint32_t first, n, mul = 1 + 2 * draw(100), add = draw(1000), m;
    static uint32_t host[WORDS];

    slice(a, &first, &n);
    switch (draw(9)) {
    case 0:
        for (uint32_t i = first; i < first + n; i++) {
            a->at[i] = a->known[i] = draw(UINT32_MAX);
        }
        break;
    case 1:
        compare(a, first, n, round);
        break;
    case 2:
    case 3:
        DRV(mix(address(a->at + first), n, mul, add, NULL));
        for (uint32_t i = first; i < first + n; i++) {
            a->known[i] = a->known[i] * mul + add;
        }
        break;
    case 4:
        DRV(cu.MemsetD32_v2(address(a->at + first), add, n));
        for (uint32_t i = first; i < first + n; i++) {
            a->known[i] = add;
        }
        break;
    case 5: /* to pageable memory, and back by way of the device */
        m = n < WORDS ? n : WORDS;
        DRV(cu.MemcpyDtoH_v2(host, address(a->at + first), m * 4));
        if (memcmp(host, a->known + first, m * 4) != 0) {
            check_die("round %u: a copy to the program", round);
        }
        DRV(cu.MemcpyHtoD_v2(device, host, m * 4));
        DRV(cu.MemcpyDtoD_v2(address(a->at + first), device, m * 4));
        break;
    case 6: /* between managed memory */
        m = n < b->words ? n : b->words;
        if (a != b) {
            DRV(cu.MemcpyDtoD_v2(address(b->at), address(a->at + first), m * 4));
            memcpy(b->known, a->known + first, m * 4);
        }
        break;
    case 7:
        DRV(CU(MemPrefetchAsync)(address(a->at + first), n * 4, draw(2) ? 0 : CU_DEVICE_CPU, NULL));
        break;
    default: /* another allocation in its place */
        if (a == &arrays[VARIABLE]) {
            break;
        }
        DRV(cu.MemFree_v2(address(a->at)));
        a->at = managed((size_t)a->words * 4);
        memcpy(a->at, a->known, (size_t)a->words * 4);
        break;
    }
    DRV(cu.CtxSynchronize());
}

static void scenario_turns(void)
{
    static const uint32_t sizes[ARRAYS] = {100, 64 * KIB / 4, 100 * KIB / 4, WORDS, 3 * WORDS,
                                           7,   TABLE_WORDS};
    struct array arrays[ARRAYS];
    const char *text = getenv("SEED");
    uint32_t rounds = 200;
    CUdeviceptr device;
    CUmodule module;

    seed = 88172645463325252ull * (text ? strtoull(text, NULL, 10) : 1) + 1;
    DRV(cu.MemAlloc_v2(&device, MIB));
    DRV(cu.ModuleLoadData(&module, variables_ptx));
    for (int i = 0; i < ARRAYS; i++) {
        arrays[i] = (struct array){i == VARIABLE ? variable(module, "table")
                                                 : managed((size_t)sizes[i] * 4),
                                   calloc(sizes[i], 4), sizes[i]};
        memset(arrays[i].at, 0, (size_t)sizes[i] * 4);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        step(arrays, device, round);
    }
    for (int i = 0; i < ARRAYS; i++) {
        compare(&arrays[i], 0, arrays[i].words, rounds);
        DRV(i == VARIABLE ? cu.ModuleUnload(module) : cu.MemFree_v2(address(arrays[i].at)));
        free(arrays[i].known);
    }
    check_true(true, "in turn");
}

/* ---------------------------------------------------------------- the kernel's own accesses */

static void scenario_calls(void)
{
    uint32_t *a = managed(MIB), *b = managed(MIB), *back = malloc(MIB);
    char name[] = "/tmp/weir-e2e-managedXXXXXX";
    int file = mkstemp(name), pipes[2], good = 1;

    unlink(name);
    if (file < 0 || pipe(pipes) != 0 || !back) {
        check_die("no file, no pipe");
    }
    DRV(cu.MemsetD32_v2(address(a), 5, WORDS));
    DRV(mix(address(a), WORDS, 3, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_int(pwrite(file, a, MIB, 0), MIB, "write() from memory that lies on the device");
    DRV(mix(address(b), WORDS, 0, 9, NULL));
    DRV(cu.CtxSynchronize());
    check_int(pread(file, b, MIB / 2, 0), MIB / 2, "read() into such memory");
    DRV(mix(address(b), WORDS, 2, 0, NULL));
    DRV(cu.CtxSynchronize());
    check_int(write(pipes[1], b + 7, 4096), 4096, "a pipe");
    check_int(read(pipes[0], b + WORDS / 2 + 1, 4096), 4096, "and back");
    DRV(mix(address(b), WORDS, 1, 1, NULL));
    DRV(cu.MemcpyDtoH_v2(back, address(b), MIB));
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t far = i - (WORDS / 2 + 1);

        good &= back[i] == (i < WORDS / 2 || far < 1024 ? 33u : 19u);
    }
    check_true(good, "what system calls read and wrote");
    close(file);
    close(pipes[0]);
    close(pipes[1]);
    free(back);
}

/* ---------------------------------------------------------------- at once */

/* A kernel waits for a word of memory that lies on the device when the kernel begins. */
static void scenario_flag(void)
{
    uint32_t *at = managed(MIB), *other = managed(MIB);
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemsetD32_v2(address(at), 0, WORDS));
    DRV(cu.MemsetD32_v2(address(other), 3, WORDS));
    DRV(cu.CtxSynchronize());
    await_flag(address(at + 100), address(at + 5000), 77, stream);
    check_int(other[9], 3, "memory that the kernel does not touch, while it runs");
    other[9] = 4;
    at[101] = 12;
    at[100] = 1;
    DRV(cu.StreamSynchronize(stream));
    check_int(at[5000], 77, "what the kernel wrote into the same block");
    check_int(at[101], 12, "what the program wrote");
    DRV(mix(address(other), WORDS, 10, 0, stream));
    DRV(mix(address(at), WORDS, 10, 0, stream));
    DRV(cu.StreamSynchronize(stream));
    check_int(other[9], 40, "what the program wrote meanwhile");
    check_int(other[10], 30, "and beside it");
    check_int(at[5000] + at[101], 890, "both, for the next kernel");
    DRV(cu.StreamDestroy_v2(stream));
}

/* One that the program launches while another kernel still runs. */
static void scenario_overlap(void)
{
    uint32_t *flag = managed(4), *a = managed(MIB), *b = managed(MIB);
    CUstream streams[2];

    for (int i = 0; i < 2; i++) {
        DRV(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    await_flag(address(flag), address(a), 5, streams[0]);
    for (int round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < WORDS; i += 500) {
            b[i] += 1;
        }
        DRV(mix(address(b), WORDS, 2, 0, streams[1]));
        DRV(cu.StreamSynchronize(streams[1]));
    }
    check_int(b[500], 2046, "in turn with one kernel, while another runs");
    check_int(b[501], 0, "and beside it");
    a[1] = 6;
    *flag = 1;
    DRV(cu.CtxSynchronize());
    check_int(a[0] + a[1], 11, "what both wrote");
}

static void CUDA_CB adds(void *user)
{
    uint32_t *at = user;

    for (uint32_t i = 0; i < WORDS; i += 1000) {
        at[i] += 1;
    }
}

/* A function in the stream, between two kernels. */
static void scenario_function(void)
{
    uint32_t *at = managed(MIB);
    CUstream stream;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 5; round++) {
        memset(at, 0, MIB);
        DRV(mix(address(at), WORDS, 1, 1, stream));
        DRV(CU(LaunchHostFunc)(stream, adds, at));
        DRV(mix(address(at), WORDS, 10, 0, stream));
        DRV(cu.StreamSynchronize(stream));
        check_int(at[1000], 20, "a function sees the kernel before, the next kernel sees it");
        check_int(at[1001], 10, "and beside it");
    }
    DRV(cu.StreamDestroy_v2(stream));
}

struct worker {
    pthread_t thread;
    CUcontext context;
    uint32_t *at;
    int good;
};

static void *works(void *user)
{
    struct worker *w = user;
    CUstream stream;

    DRV(cu.CtxSetCurrent(w->context));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (uint32_t round = 1; round <= 20; round++) {
        for (uint32_t i = 0; i < WORDS; i += 300) {
            w->at[i] = round;
        }
        DRV(mix(address(w->at), WORDS, 1, round, stream));
        DRV(cu.StreamSynchronize(stream));
        for (uint32_t i = 0; i < WORDS; i += 300) {
            if (w->at[i] != 2 * round) {
                printf("round %u: word %u is %u\n", round, i, w->at[i]);
                w->good = 0;
            }
        }
    }
    if (w->at[1] != 210) {
        printf("word 1 is %u\n", w->at[1]);
        w->good = 0;
    }
    DRV(cu.StreamDestroy_v2(stream));
    return NULL;
}

static void scenario_threads(void)
{
    struct worker workers[4];

    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){.at = managed(MIB), .good = 1};
        memset(workers[i].at, 0, MIB);
        DRV(cu.CtxGetCurrent(&workers[i].context));
        if (pthread_create(&workers[i].thread, NULL, works, &workers[i]) != 0) {
            check_die("no thread");
        }
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(workers[i].thread, NULL);
        check_true(workers[i].good, "a thread with memory of its own");
    }
}

static void *touches(void *user)
{
    struct worker *w = user;
    CUstream stream;

    DRV(cu.CtxSetCurrent(w->context));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (__atomic_load_n(&w->good, __ATOMIC_RELAXED)) {
        w->at[0]++;
        w->at[64 * KIB / 4]++; /* a fault in a row, which brings the neighbour's block, too */
        DRV(mix(address(w->at), 32 * KIB, 1, 0, stream));
        DRV(cu.StreamSynchronize(stream));
    }
    DRV(cu.StreamDestroy_v2(stream));
    return NULL;
}

/* Kernels of one thread, over memory beside that which another one touches. */
static void scenario_neighbours(void)
{
    struct worker w = {.at = managed(128 * KIB), .good = 1};
    uint32_t *beside = managed(128 * KIB);
    int good = 1, rounds = 600;
    CUstream stream;

    memset(beside, 0, 128 * KIB);
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.CtxGetCurrent(&w.context));
    if (pthread_create(&w.thread, NULL, touches, &w) != 0) {
        check_die("no thread");
    }
    for (int i = 0; i < rounds; i++) {
        if (i % 3 == 1) {
            DRV(cu.MemcpyDtoDAsync_v2(address(beside + 16 * KIB), address(beside), 64 * KIB,
                                      stream));
        } else {
            DRV(mix(address(beside), 16 * KIB, 1, 1, stream));
        }
        DRV(i % 10 == 0 ? cu.StreamSynchronize(stream) : CUDA_SUCCESS);
    }
    DRV(cu.StreamSynchronize(stream));
    __atomic_store_n(&w.good, 0, __ATOMIC_RELAXED);
    pthread_join(w.thread, NULL);
    for (uint32_t i = 0; i < 16 * KIB; i++) {
        good &= beside[i] == 400 && beside[i + 16 * KIB] == 399;
    }
    check_true(good, "nothing is lost beside memory that another thread touches");
}

/* ---------------------------------------------------------------- life */

static void touch(void *user)
{
    volatile uint32_t *at = user;

    *at = 1;
}

static void scenario_fork(void)
{
    uint32_t *at = managed(MIB);

    DRV(cu.MemsetD32_v2(address(at), 8, WORDS));
    DRV(cu.CtxSynchronize());
    check_int(WTERMSIG(in_child(touch, at)), SIGSEGV, "a child has no managed memory");
    check_int(at[3], 8, "the parent has");
}

/* After a prefetch the program's pages are mapped: reads fault no more. */
static void scenario_prefetched(void)
{
    const size_t bytes = 48 * MIB, page = 4096; /* so much that threads help */
    uint32_t *at = managed(bytes);
    uint64_t entry, present = 0;
    int good = 1, pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    DRV(cu.MemsetD32_v2(address(at), 6, bytes / 4));
    DRV(CU(MemPrefetchAsync)(address(at), bytes, CU_DEVICE_CPU, NULL));
    for (size_t i = 0; i < bytes / page; i++) {
        if (pread(pagemap, &entry, 8, (off_t)((address(at) / page + i) * 8)) != 8) {
            check_die("no pagemap");
        }
        present += entry >> 63;
    }
    printf("present %llu of %zu\n", (unsigned long long)present, bytes / page);
    for (size_t i = 0; i < bytes / 4; i += 1000) {
        good &= at[i] == 6;
        at[i] = 7;
    }
    DRV(mix(address(at), WORDS, 10, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_true(good && at[0] == 71 && at[1] == 61 && at[6000000] == 7, "what was prefetched");
    close(pagemap);
}

/* 48 MiB of the device and three times 32 MiB of managed memory; a round over parts of them for
 * each line. */
static void scenario_rests(void)
{
    static uint32_t host[12 * WORDS];
    uint32_t *at[3], known = 0, round = 0;
    char line[16];
    CUdeviceptr plain;

    DRV(cu.MemAlloc_v2(&plain, 48 * MIB));
    DRV(cu.MemsetD32_v2(plain, 0, 12 * WORDS));
    for (int i = 0; i < 3; i++) {
        at[i] = managed(32 * MIB);
        DRV(cu.MemsetD32_v2(address(at[i]), 0, 8 * WORDS));
    }
    DRV(cu.CtxSynchronize());
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        known = 3 * known + 1;
        DRV(mix(plain, 12 * WORDS, 3, 1, NULL));
        for (int i = 0; i < 3; i++) {
            DRV(mix(address(at[i]), 8 * WORDS, 3, 1, NULL));
        }
        DRV(cu.MemcpyDtoH_v2(host, plain, sizeof host));
        for (uint32_t i = 0; i < 12 * WORDS; i++) {
            if (host[i] != known || at[i % 3][i / 3] != known) {
                check_die("round %u: word %u is %u and %u", round, i, host[i], at[i % 3][i / 3]);
            }
        }
        printf("round %u\n", round++);
        fflush(stdout);
    }
    check_true(round != 0, "rests");
}

/* The program ends while its memory lies there, and a kernel waits. */
static void scenario_killed(void)
{
    uint32_t *at = managed(8 * MIB);

    DRV(cu.MemsetD32_v2(address(at), 1, WORDS));
    DRV(cu.CtxSynchronize());
    at[0] = 2;
    printf("ready\n");
    fflush(stdout);
    pause();
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {{"where", scenario_where},
                                                {"turns", scenario_turns},
                                                {"variables", scenario_variables},
                                                {"calls", scenario_calls},
                                                {"flag", scenario_flag},
                                                {"overlap", scenario_overlap},
                                                {"function", scenario_function},
                                                {"threads", scenario_threads},
                                                {"neighbours", scenario_neighbours},
                                                {"fork", scenario_fork},
                                                {"prefetched", scenario_prefetched},
                                                {"rests", scenario_rests},
                                                {"killed", scenario_killed}};

    return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
