/*
 * Registered memory as a program uses it: each scenario is a row, or some, of the table in
 * docs/design/registered.md. e2e_registered_around.c and e2e_registered_copies.c have the others.
 */
#include "e2e_registered.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------- how kernels come by addresses */

static CUdeviceptr device_of(void *host)
{
    CUdeviceptr device = 0;

    DRV(cu.MemHostGetDevicePointer_v2(&device, host, 0));
    return device;
}

static void launched_by_word(unsigned *word)
{
    struct {
        uint64_t a, b;
        void *p;
    } s = {1, 2, word};
    void *params[] = {&s};
    CUdeviceptr attribute = 0;

    DRV(mix((uintptr_t)word, 1, 1, 1, NULL));
    driver_launch(kernel("member"), 1, 1, NULL, params);
    DRV(cu.CtxSynchronize());
    DRV(cu.PointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (uintptr_t)word));
    check_true(attribute == (uintptr_t)word, "one address for both");
}

static void found_in_memory(unsigned *word, unsigned flags, bool copied_before)
{
    CUdeviceptr table;
    void *params[] = {&table};

    DRV(cu.MemAlloc_v2(&table, 4096));
    if (copied_before) {
        DRV(cu.MemcpyHtoD_v2(table, &word, sizeof(word)));
    }
    DRV(cu.MemHostRegister_v2(word, 4, flags));
    if (!copied_before) {
        DRV(cu.MemcpyHtoD_v2(table, &word, sizeof(word)));
    }
    driver_launch(kernel("follow"), 1, 1, NULL, params);
    DRV(cu.CtxSynchronize());
    DRV(cu.MemHostUnregister(word));
    DRV(cu.MemFree_v2(table));
}

static void graph_of(unsigned *word, bool captured, bool registered_before)
{
    unsigned n = 1, a = 1, b = 1;
    CUdeviceptr p = (uintptr_t)word;
    void *params[] = {&p, &n, &a, &b};
    CUDA_KERNEL_NODE_PARAMS node_params = {.func = kernel("mix"),
                                           .gridDimX = 1,
                                           .gridDimY = 1,
                                           .gridDimZ = 1,
                                           .blockDimX = 32,
                                           .blockDimY = 1,
                                           .blockDimZ = 1,
                                           .kernelParams = params};
    CUgraphExec exec;
    CUgraphNode node;
    CUstream stream;
    CUgraph graph;

    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (registered_before) {
        DRV(cu.MemHostRegister_v2(word, 4, 0));
    }
    if (captured) {
        DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        DRV(mix(p, 1, 1, 1, stream));
        DRV(cu.StreamEndCapture(stream, &graph));
    } else {
        DRV(cu.GraphCreate(&graph, 0));
        DRV(cu.GraphAddKernelNode_v2(&node, graph, NULL, 0, &node_params));
    }
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    if (!registered_before) {
        DRV(cu.MemHostRegister_v2(word, 4, 0));
    }
    DRV(cu.GraphLaunch(exec, stream));
    DRV(cu.StreamSynchronize(stream));
    DRV(cu.MemHostUnregister(word));
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
}

static void scenario_kernels(void)
{
    unsigned *word = (unsigned *)(void *)(pages(1) + 100);

    DRV(cu.MemHostRegister_v2(word, 4, 0));
    launched_by_word(word);
    check_int(*word, 2, "an argument, and a member of a structure");
    DRV(cu.MemsetD32_v2((uintptr_t)word, 40, 1));
    check_int(*word, 40, "a fill");
    DRV(cu.StreamWriteValue32_v2(NULL, (uintptr_t)word, 41, 0));
    DRV(cu.CtxSynchronize());
    check_int(*word, 41, "a stream's write");
    DRV(cu.MemHostUnregister(word));
    *word = 0;
    found_in_memory(word, 0, false);
    check_int(*word, 1, "an address that was copied to the device");
    found_in_memory(word, MAPPED, true);
    check_int(*word, 2, "one that was there before");
    for (int i = 0; i < 4; i++) {
        graph_of(word, i & 1, i & 2);
    }
    check_int(*word, 6, "kernels of graphs");
    check_private((char *)word - 100, PAGE, "the page");
}

/* ---------------------------------------------------------------- many, and several in a page */

#define MANY 10000

static void scenario_many(void)
{
    char *at = pages(MANY);
    unsigned good = 1;

    for (int i = 0; i < MANY; i++) {
        DRV(cu.MemHostRegister_v2(at + (size_t)i * PAGE, PAGE, 0));
    }
    check_true(!is_replaced(at), "registering alone replaces nothing");
    for (int i = 0; i < MANY; i++) {
        DRV(cu.MemHostUnregister(at + (size_t)i * PAGE));
    }
    for (int i = 0; i < MANY; i++) { /* four in a page; kernels may look for them */
        DRV(cu.MemHostRegister_v2(at + (size_t)i * PAGE / 4 + 64, 64, MAPPED));
    }
    DRV(mix((uintptr_t)(at + 64), 1, 1, 1, NULL));
    for (int i = 1; i < MANY; i += 97) {
        DRV(mix((uintptr_t)(at + (size_t)i * PAGE / 4 + 64), 1, 1, 1, NULL));
    }
    DRV(cu.CtxSynchronize());
    for (int i = 1; i < MANY; i += 97) {
        good &= at[(size_t)i * PAGE / 4 + 64] == 1;
    }
    check_true(good && at[64] == 1, "kernels reach all of them");
    for (int i = 0; i < MANY; i++) {
        DRV(cu.MemHostUnregister(at + (size_t)i * PAGE / 4 + 64));
    }
    check_private(at, (size_t)MANY * PAGE, "many");
    free(at);
}

/* Registered when the page, and one in the middle, are shared already. */
static void register_late(char *at)
{
    DRV(cu.MemHostRegister_v2(at + PAGE + 8, 8, 0));
    DRV(mix(device_of(at + PAGE + 8), 1, 1, 1, NULL));
    DRV(cu.MemHostRegister_v2(at + PAGE + 64, 8, MAPPED));
    DRV(cu.MemHostRegister_v2(at, PAGE, 0)); /* around it */
    DRV(cu.MemHostRegister_v2(at + PAGE + 128, 2 * PAGE, 0));
    DRV(cu.MemHostUnregister(at + PAGE + 8));
    DRV(mix((uintptr_t)(at + PAGE + 64), 2, 1, 2, NULL));
    DRV(mix(device_of(at), PAGE / 4, 1, 3, NULL));
    DRV(mix(device_of(at + PAGE + 128), PAGE / 2, 1, 4, NULL));
    DRV(cu.CtxSynchronize());
    check_true(at[PAGE + 8] == 1 && at[PAGE + 64] == 2 && at[PAGE + 68] == 2 && at[0] == 3 &&
                   at[PAGE - 4] == 3 && at[PAGE + 128] == 4 && at[3 * PAGE + 124] == 4,
               "ranges in pages that are shared already, and around them");
    check_true(device_of(at + PAGE + 128) == (uintptr_t)(at + PAGE + 128), "at one address");
    DRV(cu.MemHostUnregister(at));
    DRV(cu.MemHostUnregister(at + PAGE + 64));
    DRV(cu.MemHostUnregister(at + PAGE + 128));
    check_private(at, 4 * PAGE, "late");
}

/* The last of several users of a page ends its sharing. */
static void scenario_page(void)
{
    char *at = pages(4);

    register_late(at);
    DRV(cu.MemHostRegister_v2(at + 100, 80, 0));
    DRV(cu.MemHostRegister_v2(at + 400, PAGE, 0)); /* into the second page */
    check_code(cu.MemHostRegister_v2(at + 150, 20, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
               "a byte twice");
    DRV(mix(device_of(at + 100), 1, 1, 5, NULL));
    DRV(mix(device_of(at + 400), PAGE / 4, 1, 6, NULL));
    DRV(cu.CtxSynchronize());
    check_true(at[100] == 5 && at[400] == 6 && at[PAGE + 396] == 6, "kernels reach both");
    check_true(!is_replaced(at + 2 * PAGE), "no more pages than that are shared");
    DRV(cu.MemHostUnregister(at + 100));
    at[400] = 7;
    DRV(mix(device_of(at + 400), 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_int(at[400], 8, "the second is still reached");
    DRV(cu.MemHostUnregister(at + 400));
    check_private(at, 2 * PAGE, "the last one");
    free(at);
}

/* ---------------------------------------------------------------- other kinds of memory */

static char *file_of(size_t bytes, int protection, int flags, const char *name)
{
    char path[64];
    char byte = 3;
    void *at;
    int fd;

    snprintf(path, sizeof path, "%s-%d", name, (int)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || pwrite(fd, &byte, 1, 0) != 1) {
        check_die("no file %s", path);
    }
    unlink(path);
    at = mmap(NULL, 2 * bytes, protection, flags, fd, 0); /* half of it is beyond the end */
    close(fd);
    if (at == MAP_FAILED) {
        check_die("mmap");
    }
    return at;
}

static char copied_from(void *at)
{
    CUdeviceptr device;
    char byte = 0;

    DRV(cu.MemAlloc_v2(&device, PAGE));
    DRV(cu.MemcpyHtoDAsync_v2(device, at, PAGE, NULL));
    DRV(cu.MemcpyDtoH_v2(&byte, device, 1));
    DRV(cu.MemFree_v2(device));
    return byte;
}

static void check_read_only(int flags, const char *label)
{
    char *at = file_of(2 * PAGE, PROT_READ, flags, "/tmp/weir-e2e-registered");
    char line[96];

    snprintf(line, sizeof line, "%s, without the flag", label);
    check_code(cu.MemHostRegister_v2(at, PAGE, 0), CUDA_ERROR_INVALID_VALUE, line);
    DRV(cu.MemHostRegister_v2(at, PAGE, CU_MEMHOSTREGISTER_READ_ONLY));
    snprintf(line, sizeof line, "%s is copied", label);
    check_int(copied_from(at), 3, line);
    snprintf(line, sizeof line, "a copy into %s", label);
    check_code(cu.MemcpyDtoH_v2(at, (uintptr_t)at, 4), CUDA_ERROR_INVALID_VALUE, line);
    DRV(cu.MemHostUnregister(at));
    check_int(at[0], 3, "and stays as it is");
    check_code(cu.MemHostRegister_v2(at, 3 * PAGE, CU_MEMHOSTREGISTER_READ_ONLY),
               CUDA_ERROR_INVALID_VALUE, "beyond the file's end");
}

static int initialized[2 * PAGE] = {1, 2, 3}; /* a private mapping of the program's file */

static void scenario_kinds(void)
{
    char *file = file_of(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, "/tmp/weir-e2e-registered");
    void *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device;
    void *pinned;

    check_read_only(MAP_SHARED, "a file mapped for reading");
    check_read_only(MAP_PRIVATE, "a private mapping for reading");
    DRV(cu.MemHostRegister_v2(file, PAGE, 0));
    DRV(mix(device_of(file), 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_int(file[0], 4, "a private mapping of a file");
    DRV(cu.MemHostUnregister(file));
    check_int(file[0], 4, "and afterwards");
    DRV(cu.MemHostRegister_v2(initialized, sizeof initialized, 0));
    DRV(mix(device_of(initialized), 3, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_true(initialized[0] == 2 && initialized[2] == 4, "variables of the program");
    DRV(cu.MemHostUnregister(initialized));
    check_true(initialized[0] == 2 && initialized[2] == 4, "and afterwards");
    check_code(cu.MemHostRegister_v2(none, PAGE, 0), CUDA_ERROR_INVALID_VALUE, "no access");
    check_code(cu.MemHostRegister_v2((void *)0x10000, PAGE, 0), CUDA_ERROR_INVALID_VALUE,
               "nothing is mapped");
    shared[0] = 9;
    DRV(cu.MemHostRegister_v2(shared, PAGE, 0));
    check_int(copied_from(shared), 9, "anonymous memory that is shared is copied");
    DRV(cu.MemHostUnregister(shared));
    DRV(cu.MemAlloc_v2(&device, PAGE));
    check_code(cu.MemHostRegister_v2((void *)(uintptr_t)device, PAGE, 0), CUDA_ERROR_INVALID_VALUE,
               "device memory");
    DRV(cu.MemFree_v2(device));
    DRV(cu.MemHostAlloc(&pinned, PAGE, 0));
    check_code(cu.MemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE,
               "pinned memory is not registered");
    DRV(cu.MemFreeHost(pinned));
}

/* Memory that goes before it is unregistered, as allocators have it. */
static void scenario_remapped(void)
{
    size_t bytes = 16 * PAGE;

    for (int reached = 0; reached < 2; reached++) {
        char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        DRV(cu.MemHostRegister_v2(at, bytes, 0));
        if (reached) {
            DRV(mix(device_of(at), 8, 1, 1, NULL));
            DRV(cu.CtxSynchronize());
        }
        munmap(at, bytes);
        /* Another's memory, of which the last pages stay free. */
        if (mmap(at, bytes / 2, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at) {
            check_die("mmap");
        }
        memset(at, 5, bytes / 2);
        DRV(cu.MemHostUnregister(at));
        check_true(at[0] == 5 && at[bytes / 2 - 1] == 5, "the new mapping keeps its content");
        check_true(msync(at + bytes / 2, bytes / 2, MS_ASYNC) != 0 && errno == ENOMEM,
                   "nothing is mapped where nothing was");
        DRV(cu.MemHostRegister_v2(at, bytes / 2, 0));
        check_int(copied_from(at), 5, "it is registered anew");
        DRV(cu.MemHostUnregister(at));
        munmap(at, bytes / 2);
    }
}

/* A program that protects a part of its memory finds it protected. */
static void scenario_protected(void)
{
    char *at = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

    DRV(cu.MemHostRegister_v2(at, 3 * PAGE, 0));
    mprotect(at + PAGE, PAGE, PROT_READ);
    DRV(mix(device_of(at), 4, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    check_true(read(zero, at + PAGE, 1) < 0 && errno == EFAULT, "protected while it is shared");
    mprotect(at + 2 * PAGE, PAGE, PROT_NONE);
    DRV(cu.MemHostUnregister(at));
    check_true(read(zero, at + PAGE, 1) < 0 && read(zero, at + 2 * PAGE, 1) < 0, "and afterwards");
    check_true(read(zero, at, 1) == 1, "the rest is not");
    close(zero);
}

/* ---------------------------------------------------------------- narrow surroundings */

static void refuse(int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {4, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        check_skip("no seccomp here");
    }
}

static void *sleep_for_ever(void *user)
{
    pause();
    return user;
}

static void start_sleeper(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0) {
        check_die("no thread");
    }
}

/* Registers, copies, and says whether kernels reach it, in a program of two threads. */
static void scenario_limited(void)
{
    unsigned *word = (unsigned *)(void *)(pages(2) + 8);
    CUdeviceptr device = 0, memory;
    CUresult reached;

    start_sleeper();
    *word = 3;
    DRV(cu.MemAlloc_v2(&memory, PAGE));
    DRV(cu.MemHostRegister_v2(word, PAGE, 0));
    DRV(cu.MemcpyHtoDAsync_v2(memory, word, PAGE, NULL));
    DRV(mix(memory, 1, 1, 1, NULL));
    DRV(cu.MemcpyDtoHAsync_v2(word, memory, PAGE, NULL));
    DRV(cu.StreamSynchronize(NULL));
    check_int(*word, 4, "copies");
    reached = cu.MemHostGetDevicePointer_v2(&device, word, 0);
    if (reached == CUDA_SUCCESS) {
        DRV(mix(device, 1, 1, 1, NULL));
        DRV(cu.CtxSynchronize());
        check_int(*word, 5, "a kernel");
    }
    DRV(cu.MemHostUnregister(word));
    printf("reached %d\n", (int)reached);
}

static void scenario_no_ptrace(void)
{
    refuse(SYS_ptrace);
    scenario_limited();
}

/* Where there is no other thread nobody need be stopped. */
static void scenario_alone(void)
{
    char *at = pages(1);

    refuse(SYS_ptrace);
    DRV(cu.MemHostRegister_v2(at, PAGE, 0));
    DRV(mix(device_of(at), 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    DRV(cu.MemHostUnregister(at));
    check_int(at[0], 1, "a kernel");
    check_private(at, PAGE, "alone");
}

static void scenario_no_memfd(void)
{
    refuse(SYS_memfd_create);
    scenario_limited();
}

static void scenario_no_madvise(void)
{
    refuse(SYS_madvise);
    scenario_limited();
    check_code(cu.MemHostRegister_v2((void *)0x10000, PAGE, 0), CUDA_ERROR_INVALID_VALUE,
               "nothing is mapped");
    check_code(cu.MemHostRegister_v2((void *)(uintptr_t)registered_ptx, 16, 0),
               CUDA_ERROR_INVALID_VALUE, "memory for reading only");
    check_code(
        cu.MemHostRegister_v2((void *)(uintptr_t)registered_ptx, 16, CU_MEMHOSTREGISTER_READ_ONLY),
        CUDA_SUCCESS, "with the flag");
}

/* A program that gives its privileges up, and /proc, once it is started. */
static void scenario_dropped(void)
{
    char folder[] = "/tmp/weir-e2e-rootXXXXXX";
    char *at = pages(1);

    DRV(cu.MemHostRegister_v2(at, PAGE, 0));
    DRV(mix(device_of(at), 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    if (!mkdtemp(folder) || chroot(folder) != 0) {
        check_skip("not root");
    }
    DRV(cu.MemHostUnregister(at));
    check_int(at[0], 1, "unregistered without /proc, it keeps its content");
    at[0] = 2;
    check_int(at[0], 2, "and is the program's");
    scenario_limited();
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {{"kernels", scenario_kernels},
                                                {"many", scenario_many},
                                                {"page", scenario_page},
                                                {"kinds", scenario_kinds},
                                                {"remapped", scenario_remapped},
                                                {"protected", scenario_protected},
                                                {"limited", scenario_limited},
                                                {"no_ptrace", scenario_no_ptrace},
                                                {"alone", scenario_alone},
                                                {"no_memfd", scenario_no_memfd},
                                                {"no_madvise", scenario_no_madvise},
                                                {"dropped", scenario_dropped}};

    return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
