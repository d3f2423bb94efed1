/*
 * Programs that follow one another, each with most of its tenant's quota.
 *
 * e2e_ended rows KIND BYTES N [END...]   N programs, each a child that takes so much memory of a
 *                          kind and ends in the next of these ways. As soon as it was waited for,
 *                          the next one must see all memory free, and get as much.
 * e2e_ended take KIND BYTES   print how much is free, take so much, print "held" and wait for a
 *                          line; then end without giving anything back.
 * e2e_ended endless BYTES     the same with a kernel that does not end.
 * e2e_ended freed BYTES N     N pieces of device memory are taken and freed; then the same.
 *
 * Kinds: device, pool, vmm, array, module (a variable of one); pinned, managed, registered.
 * Ways to end: return, exit, _exit, kill, segv, abort, exec (of a program without CUDA), again (of
 * one that takes as much once more), thread (the first thread has gone before), busy (with a kernel
 * under way), clean (all was freed).
 */
#include "tests/cuda/check_driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIT        (2u << 20)
#define ARRAY_WIDTH 4096u
#define BUSY_NS     300000000ull /* however busy the machine is that computes */
#define ENDLESS_NS  3600000000000ull

static const char stay_ptx[] = ".version 6.4\n"
                               ".target sm_75\n"
                               ".address_size 64\n"
                               ".visible .entry stay(.param .u64 ns)\n"
                               "{\n"
                               "    .reg .pred %q;\n"
                               "    .reg .b64 %d<4>;\n"
                               "    ld.param.u64 %d0, [ns];\n"
                               "    mov.u64 %d1, %globaltimer;\n"
                               "again:\n"
                               "    mov.u64 %d2, %globaltimer;\n"
                               "    sub.u64 %d3, %d2, %d1;\n"
                               "    setp.lt.u64 %q, %d3, %d0;\n"
                               "    @%q bra again;\n"
                               "    ret;\n"
                               "}\n";

/* ---------------------------------------------------------------- what is taken */

static void (*let_go)(void); /* NULL: nothing is known to free it */
static CUdeviceptr memory;
static void *host;

static void free_device(void)
{
    DRV(cu.MemFree_v2(memory));
}

static CUresult take_device(size_t bytes)
{
    let_go = free_device;
    return cu.MemAlloc_v2(&memory, bytes);
}

static CUresult take_pool(size_t bytes)
{
    CUresult result = cu.MemAllocAsync(&memory, bytes, NULL);
    let_go = free_device;
    return result != CUDA_SUCCESS ? result : cu.StreamSynchronize(NULL);
}

static CUresult take_vmm(size_t bytes)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = cu.MemCreate(&handle, bytes, &prop, 0);
    if (result == CUDA_SUCCESS) {
        DRV(cu.MemAddressReserve(&memory, bytes, 0, 0, 0));
        DRV(cu.MemMap(memory, bytes, 0, handle, 0));
        DRV(cu.MemSetAccess(memory, bytes, &access, 1));
        DRV(cu.MemRelease(handle)); /* the mapping keeps it */
    }
    return result;
}

static CUresult take_array(size_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        ARRAY_WIDTH, bytes / ARRAY_WIDTH / 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUarray array;
    return cu.Array3DCreate_v2(&array, &shape);
}

static CUresult take_module(size_t bytes)
{
    char ptx[256];
    CUmodule module;
    snprintf(ptx, sizeof(ptx),
             ".version 6.4\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b8 "
             "v[%zu];\n",
             bytes);
    return cu.ModuleLoadData(&module, ptx);
}

static CUresult take_pinned(size_t bytes)
{
    return cu.MemHostAlloc(&host, bytes, 0);
}

static CUresult take_managed(size_t bytes)
{
    return cu.MemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult take_registered(size_t bytes)
{
    host = aligned_alloc(UNIT, bytes);
    return cu.MemHostRegister_v2(host, bytes, 0);
}

static const struct kind {
    const char *name;
    CUresult (*take)(size_t bytes);
    bool on_device;
} kinds[] = {{"device", take_device, true},    {"pool", take_pool, true},
             {"vmm", take_vmm, true},          {"array", take_array, true},
             {"module", take_module, true},    {"pinned", take_pinned, false},
             {"managed", take_managed, false}, {"registered", take_registered, false}};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    check_die("no such kind: %s", name);
}

/* ---------------------------------------------------------------- how a program ends */

/* A kernel that takes so long. */
static void launch(uint64_t ns)
{
    CUmodule module;
    DRV(cu.ModuleLoadData(&module, stay_ptx));
    void *params[] = {&ns};
    driver_launch(driver_function(module, "stay"), 1, 1, NULL, params);
}

static void *last_thread(void *first)
{
    (void)pthread_join(*(pthread_t *)first, NULL);
    exit(0); /* threads of libraries would keep the process */
}

static void leave_by_thread(void)
{
    static pthread_t first;
    pthread_t thread;
    first = pthread_self();
    if (pthread_create(&thread, NULL, last_thread, &first) != 0) {
        check_die("no thread");
    }
    pthread_exit(NULL);
}

static void become(const char *mode, const char *kind, const char *bytes, const char *free_bytes)
{
    execl("/proc/self/exe", "e2e_ended", mode, kind, bytes, "return", free_bytes, (char *)NULL);
    check_die("exec failed");
}

/* Comes back for "return". */
static void end_as(const char *way, char **argv)
{
    if (strcmp(way, "exit") == 0) {
        exit(0);
    } else if (strcmp(way, "_exit") == 0) {
        _exit(0);
    } else if (strcmp(way, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(way, "segv") == 0) {
        raise(SIGSEGV);
    } else if (strcmp(way, "abort") == 0) {
        abort();
    } else if (strcmp(way, "exec") == 0) {
        become("nothing", argv[2], argv[3], argv[5]);
    } else if (strcmp(way, "again") == 0) {
        become("child", argv[2], argv[3], argv[5]);
    } else if (strcmp(way, "thread") == 0) {
        leave_by_thread();
    } else if (strcmp(way, "busy") == 0) {
        launch(BUSY_NS);
        _exit(0);
    } else if (strcmp(way, "clean") == 0 && let_go) {
        let_go();
    }
}

/* What waitpid() gives; what ends by itself ends with 0. */
static int status_of(const char *way)
{
    return strcmp(way, "kill") == 0    ? SIGKILL
           : strcmp(way, "segv") == 0  ? SIGSEGV
           : strcmp(way, "abort") == 0 ? SIGABRT
                                       : 0;
}

/* ---------------------------------------------------------------- the programs */

static size_t free_now(void)
{
    size_t free_bytes = 0, total = 0;
    DRV(cu.MemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
}

/* e2e_ended child KIND BYTES END FREE: at least so much must be free; 0: any. */
static int child(char **argv)
{
    const struct kind *kind = find_kind(argv[2]);
    size_t least = strtoull(argv[5], NULL, 0), seen;
    CUresult result;
    driver_begin("e2e_ended");
    seen = free_now();
    if (kind->on_device && seen < least) {
        check_die("%s %s: %zu bytes are free, not %zu", argv[2], argv[4], seen, least);
    }
    result = kind->take(strtoull(argv[3], NULL, 0));
    if (result != CUDA_SUCCESS) {
        check_die("%s %s: %s bytes were refused with %d", argv[2], argv[4], argv[3], (int)result);
    }
    DRV(cu.CtxSynchronize());
    end_as(argv[4], argv);
    return 0;
}

static int run_child(char **argv, const char *way, size_t least)
{
    char free_bytes[32];
    int status = 0;
    snprintf(free_bytes, sizeof(free_bytes), "%zu", least);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "e2e_ended", "child", argv[2], argv[3], way, free_bytes,
              (char *)NULL);
        _exit(9);
    }
    if (waitpid(pid, &status, 0) != pid) {
        check_die("no child");
    }
    return status;
}

/* The first program of all says how much is free. */
static size_t measure(void)
{
    size_t free_bytes = 0;
    int ends[2];
    if (pipe(ends) != 0) {
        check_die("no pipe");
    }
    pid_t pid = fork();
    if (pid == 0) {
        driver_begin("e2e_ended");
        free_bytes = free_now();
        _exit(write(ends[1], &free_bytes, sizeof(free_bytes)) != sizeof(free_bytes));
    }
    close(ends[1]);
    if (read(ends[0], &free_bytes, sizeof(free_bytes)) != sizeof(free_bytes)) {
        check_die("the first program failed");
    }
    (void)waitpid(pid, NULL, 0);
    return free_bytes;
}

static int rows(int argc, char **argv)
{
    long n = strtol(argv[4], NULL, 0), good = 0;
    check_begin("e2e_ended");
    size_t least = measure();
    for (long i = 0; i < n; i++) {
        const char *way = argv[5 + i % (argc - 5)];
        int status = run_child(argv, way, least);
        if (status == status_of(way)) {
            good++;
        } else {
            printf("%s, after %s: status 0x%x\n", way, i > 0 ? argv[5 + (i - 1) % (argc - 5)] : "-",
                   (unsigned)status);
        }
    }
    printf("%ld of %ld\n", good, n);
    check_int(good, n, "programs that found all memory free");
    return check_end();
}

static int take(char **argv, bool endless)
{
    const struct kind *kind = find_kind(endless ? "device" : argv[2]);
    driver_begin("e2e_ended");
    printf("free %zu\n", free_now());
    printf("result %d\n", (int)kind->take(strtoull(argv[endless ? 2 : 3], NULL, 0)));
    if (endless) {
        launch(ENDLESS_NS);
    }
    printf("held\n");
    (void)getchar();
    _exit(0);
}

static int freed(char **argv)
{
    enum { PIECES_MAX = 64 };
    static CUdeviceptr pieces[PIECES_MAX];
    size_t bytes = strtoull(argv[2], NULL, 0), before;
    int n = atoi(argv[3]);
    driver_begin("e2e_ended");
    before = free_now();
    for (int i = 0; i < n && i < PIECES_MAX; i++) {
        DRV(cu.MemAlloc_v2(&pieces[i], bytes));
    }
    for (int i = 0; i < n && i < PIECES_MAX; i++) {
        DRV(cu.MemFree_v2(pieces[i]));
    }
    printf("all %s free\n", free_now() >= before ? "is" : "is not");
    printf("held\n");
    (void)getchar();
    _exit(0);
}

int main(int argc, char **argv)
{
    if (argc >= 6 && strcmp(argv[1], "rows") == 0) {
        return rows(argc, argv);
    }
    if (argc == 6 && strcmp(argv[1], "child") == 0) {
        return child(argv);
    }
    if (argc == 6 && strcmp(argv[1], "nothing") == 0) {
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "take") == 0) {
        return take(argv, false);
    }
    if (argc == 4 && strcmp(argv[1], "freed") == 0) {
        return freed(argv);
    }
    if (argc == 3 && strcmp(argv[1], "endless") == 0) {
        return take(argv, true);
    }
    fprintf(stderr, "usage: see the top of e2e_ended.c\n");
    return 2;
}
