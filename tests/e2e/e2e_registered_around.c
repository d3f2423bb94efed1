/* What others do with registered pages, and with their neighbours, while pages are replaced. */
#include "e2e_registered.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Register, have a kernel reach it, unregister: pages are replaced twice. */
static void reach(void *at, unsigned flags)
{
    CUdeviceptr device;

    DRV(cu.MemHostRegister_v2(at, 4, flags));
    DRV(cu.MemHostGetDevicePointer_v2(&device, at, 0));
    DRV(mix(device, 1, 1, 1, NULL));
    DRV(cu.CtxSynchronize());
    DRV(cu.MemHostUnregister(at));
}

/* ---------------------------------------------------------------- threads */

#define COUNTERS 3
#define ROUNDS   40

static int stop;

struct counter {
    uint64_t *at, counted;
    pthread_t thread;
};

static void *count(void *user)
{
    struct counter *c = user;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        ++*(volatile uint64_t *)c->at;
        c->counted++;
    }
    return NULL;
}

static void scenario_neighbours(void)
{
    struct counter counters[COUNTERS];
    char *at = pages(1);
    unsigned *word = (unsigned *)(void *)at;
    int good = 1;

    for (int i = 0; i < COUNTERS; i++) {
        counters[i] = (struct counter){.at = (uint64_t *)(void *)(at + 1024 * (i + 1))};
        if (pthread_create(&counters[i].thread, NULL, count, &counters[i]) != 0) {
            check_die("no thread");
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        reach(word, i & 1 ? MAPPED : 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < COUNTERS; i++) {
        pthread_join(counters[i].thread, NULL);
        good &= *counters[i].at == counters[i].counted;
    }
    check_true(good, "no count of the page's other owners is lost");
    check_int(*word, ROUNDS, "kernels count, too");
    check_private(at, PAGE, "the page");
}

/* ---------------------------------------------------------------- stacks */

static __attribute__((noinline)) int go_deep(int n)
{
    volatile int a[64];
    int bad = 0;

    for (int i = 0; i < 64; i++) {
        a[i] = n + i;
    }
    bad += n > 0 ? go_deep(n - 1) : 0;
    for (int i = 0; i < 64; i++) {
        bad += a[i] != n + i;
    }
    return bad;
}

static void *use_stack(void *user)
{
    volatile unsigned *first = user, word = 5;
    CUcontext context;

    DRV(cu.DevicePrimaryCtxRetain(&context, 0));
    DRV(cu.CtxSetCurrent(context));
    for (int i = 0; i < 10; i++) {
        reach((void *)(uintptr_t)&word, MAPPED);
        reach((void *)(uintptr_t)first, MAPPED); /* of another thread, which sleeps */
    }
    check_int(word, 15, "a variable on a thread's stack");
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
    return go_deep(200) ? NULL : user;
}

static void scenario_stack(void)
{
    volatile unsigned word = 5;
    pthread_t thread;
    void *whole;

    for (int i = 0; i < 10; i++) {
        reach((void *)(uintptr_t)&word, MAPPED);
    }
    check_int(word, 15, "a variable on the main thread's stack");
    check_int(go_deep(2000), 0, "the stack grows on");
    /* The page of its descriptor, which whoever joins it waits for. */
    if (pthread_create(&thread, NULL, use_stack, (void *)(uintptr_t)&word) != 0) {
        check_die("no thread");
    }
    pthread_join(thread, &whole);
    check_true(whole != NULL, "a thread's stack is whole");
    check_int(word, 25, "a variable of a thread that waits");
}

/* ---------------------------------------------------------------- fork */

static void scribble(void *user)
{
    char *at = user;

    if (at[0] != 1 || at[2048] != 2 || at[3 * PAGE] != 3) {
        _exit(1);
    }
    at[0] = at[2048] = at[3 * PAGE] = 9;
    if (madvise(at, PAGE, MADV_DONTNEED) != 0 || at[0] != 0 || at[2048] != 0) {
        _exit(2);
    }
}

/* A grandchild finds what the child has written. */
static void scribble_twice(void *user)
{
    char *at = user;
    int status;
    pid_t pid;

    at[5] = 7;
    pid = fork();
    if (pid == 0) {
        _exit(at[5] == 7 && at[0] == 1 ? 0 : 1);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        _exit(3);
    }
    scribble(user);
}

static void check_children(char *at, const char *label)
{
    char line[96];
    int status = in_child(scribble, at);

    status |= in_child(scribble_twice, at);
    snprintf(line, sizeof line, "%s: children have copies of their own", label);
    check_int(status, 0, line);
    snprintf(line, sizeof line, "%s: and the parent its own", label);
    check_true(at[0] == 1 && at[2048] == 2 && at[3 * PAGE] == 3 && at[5] == 0, line);
}

static void *fork_in_thread(void *user)
{
    check_children(user, "from another thread");
    return NULL;
}

static void spawn(char *at)
{
    char name[] = "true", *argv[] = {name, NULL};
    pid_t pid;
    int status;

    check_int(posix_spawnp(&pid, "true", NULL, NULL, argv, environ), 0, "posix_spawn");
    check_true(waitpid(pid, &status, 0) == pid && status == 0, "the program ran");
    pid = vfork();
    if (pid == 0) {
        at[6] = 1; /* one memory */
        _exit(0);
    }
    check_true(waitpid(pid, &status, 0) == pid && at[6] == 1, "a child of vfork shares memory");
    at[6] = 0;
}

static void scenario_fork(void)
{
    char *at = pages(4);
    unsigned *flag = (unsigned *)(void *)(at + PAGE), *out = flag + 1;
    CUdeviceptr device;
    pthread_t thread;
    CUstream stream;

    at[0] = 1;
    at[2048] = 2;
    at[3 * PAGE] = 3;
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemHostRegister_v2(at, 80, 0));
    DRV(cu.MemHostRegister_v2(at + 100, 3 * PAGE, 0));
    check_children(at, "registered");
    DRV(cu.MemHostGetDevicePointer_v2(&device, at, 0));
    DRV(cu.MemHostGetDevicePointer_v2(&device, flag, 0));
    check_children(at, "reached");
    await_flag(device, device + 4, 77, stream);
    check_children(at, "while a kernel uses it");
    if (pthread_create(&thread, NULL, fork_in_thread, at) != 0) {
        check_die("no thread");
    }
    pthread_join(thread, NULL);
    spawn(at);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    DRV(cu.StreamSynchronize(stream));
    check_int((int)*out, 77, "the kernel saw what the parent wrote");
    *flag = *out = 0;
    DRV(cu.MemHostUnregister(at));
    DRV(cu.MemHostUnregister(at + 100));
    check_children(at, "unregistered");
    DRV(cu.StreamDestroy_v2(stream));
    check_private(at, 4 * PAGE, "fork");
}

/* ---------------------------------------------------------------- the kernel's own reads */

struct reader {
    pthread_t thread;
    int fd;
    uint64_t *at, got, bad;
};

/* Reads numbers, which must come one after the other; each is checked where it was read to. */
static void *read_numbers(void *user)
{
    struct reader *r = user;

    while (read(r->fd, r->at, sizeof(*r->at)) == (ssize_t)sizeof(*r->at)) {
        r->bad += *(volatile uint64_t *)r->at != r->got++;
    }
    return NULL;
}

static void *write_numbers(void *user)
{
    const int *fd = user;

    for (uint64_t n = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
        if (write(*fd, &n, sizeof n) != (ssize_t)sizeof n) {
            break;
        }
    }
    close(*fd);
    return NULL;
}

static void scenario_kernel_io(void)
{
    char *at = pages(1);
    struct reader reader = {.at = (uint64_t *)(void *)(at + 2048)};
    pthread_t writer;
    int pipes[2];

    if (pipe(pipes) != 0) {
        check_die("no pipe");
    }
    reader.fd = pipes[0];
    if (pthread_create(&reader.thread, NULL, read_numbers, &reader) != 0 ||
        pthread_create(&writer, NULL, write_numbers, &pipes[1]) != 0) {
        check_die("no thread");
    }
    for (int i = 0; i < ROUNDS; i++) {
        reach(at, 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    pthread_join(reader.thread, NULL);
    check_true(reader.got > 0, "a thread reads into the page meanwhile");
    check_int((long long)reader.bad, 0, "and finds what it has read");
}

#define FILE_BLOCKS 64

/* Reads from a disk, without the page cache, into the rest of a page and the next one. */
static void *read_disk(void *user)
{
    struct reader *r = user;

    for (uint64_t n = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n = (n + 1) % FILE_BLOCKS) {
        if (pread(r->fd, r->at, PAGE, (off_t)(n * PAGE)) != PAGE) {
            r->bad++;
            break;
        }
        r->bad += r->at[0] != n || r->at[PAGE / sizeof(uint64_t) - 1] != n;
        r->got++;
    }
    return NULL;
}

static void scenario_direct_io(void)
{
    char *at = pages(2), path[] = "/var/tmp/weir-e2e-registeredXXXXXX";
    struct reader reader = {.at = (uint64_t *)(void *)(at + 512)};
    uint64_t block[PAGE / sizeof(uint64_t)];
    int fd = mkstemp(path);

    reader.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(path);
    for (uint64_t n = 0; n < FILE_BLOCKS; n++) {
        block[0] = block[PAGE / sizeof(uint64_t) - 1] = n;
        if (fd < 0 || write(fd, block, PAGE) != PAGE) {
            check_die("no file");
        }
    }
    if (reader.fd < 0 || pread(reader.fd, reader.at, PAGE, 0) != PAGE) {
        check_skip("no O_DIRECT into parts of a page here");
    }
    if (pthread_create(&reader.thread, NULL, read_disk, &reader) != 0) {
        check_die("no thread");
    }
    for (int i = 0; i < ROUNDS; i++) {
        reach(at, 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(reader.thread, NULL);
    check_true(reader.got > 0, "a thread reads from a disk into the page meanwhile");
    check_int((long long)reader.bad, 0, "and finds what it has read");
    close(fd);
    close(reader.fd);
}

/* ---------------------------------------------------------------- all at once */

static void *end_at_once(void *user)
{
    return user;
}

/* Threads come and go. */
static void *make_threads(void *user)
{
    pthread_t thread;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        if (pthread_create(&thread, NULL, end_at_once, NULL) == 0) {
            pthread_join(thread, NULL);
        }
    }
    return user;
}

/* Children take memory from the heap, of which pages are shared. */
static void use_heap(void *user)
{
    void *blocks[200];

    (void)user;
    for (int i = 0; i < 200; i++) {
        blocks[i] = malloc(24 + (size_t)i);
        memset(blocks[i], 1, 24);
    }
    for (int i = 0; i < 200; i++) {
        free(blocks[i]);
    }
}

static void *make_children(void *user)
{
    uint64_t *bad = user;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        *bad += in_child(use_heap, NULL) != 0;
    }
    return NULL;
}

static void *use_heap_on(void *user)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        use_heap(NULL);
    }
    return user;
}

/* Small blocks of the heap, as libraries register them; what copies and kernels do to them is
 * checked. */
static void *use_registered(void *user)
{
    uint64_t *bad = user;
    CUdeviceptr device, reached;
    CUcontext context;
    CUstream stream;

    DRV(cu.DevicePrimaryCtxRetain(&context, 0));
    DRV(cu.CtxSetCurrent(context));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&device, PAGE));
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned *word = malloc(40);

        word[0] = i;
        DRV(cu.MemHostRegister_v2(word, 40, i % 3 ? 0 : MAPPED));
        DRV(cu.MemcpyHtoDAsync_v2(device, word, 40, stream));
        DRV(mix(device, 10, 1, 1, stream));
        DRV(cu.MemcpyDtoHAsync_v2(word, device, 40, stream));
        DRV(cu.StreamSynchronize(stream));
        DRV(cu.MemHostGetDevicePointer_v2(&reached, word, 0));
        DRV(mix(reached, 10, 1, 1, stream));
        DRV(cu.StreamSynchronize(stream));
        *bad += word[0] != i + 2;
        DRV(cu.MemHostUnregister(word));
        *bad += word[0] != i + 2;
        free(word);
    }
    DRV(cu.MemFree_v2(device));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.DevicePrimaryCtxRelease_v2(0));
    return NULL;
}

static void scenario_all(void)
{
    pthread_t users[3], others[3];
    uint64_t bad[4] = {0};

    if (pthread_create(&others[0], NULL, make_threads, NULL) != 0 ||
        pthread_create(&others[1], NULL, make_children, &bad[3]) != 0 ||
        pthread_create(&others[2], NULL, use_heap_on, NULL) != 0) {
        check_die("no thread");
    }
    for (int i = 0; i < 3; i++) {
        if (pthread_create(&users[i], NULL, use_registered, &bad[i]) != 0) {
            check_die("no thread");
        }
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(users[i], NULL);
        check_int((long long)bad[i], 0, "blocks of the heap, beside threads and children");
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        pthread_join(others[i], NULL);
    }
    check_int((long long)bad[3], 0, "children use their heaps");
}

/* ---------------------------------------------------------------- pages that are pinned */

static CUresult reached(void *at, size_t bytes)
{
    CUdeviceptr device = 0;
    CUresult result;

    DRV(cu.MemHostRegister_v2(at, bytes, 0));
    result = cu.MemHostGetDevicePointer_v2(&device, at, 0);
    if (result == CUDA_SUCCESS) {
        DRV(mix(device, 1, 1, 1, NULL));
        DRV(cu.CtxSynchronize());
    }
    DRV(cu.MemHostUnregister(at));
    return result;
}

static void check_copies(char *at)
{
    CUdeviceptr device;

    DRV(cu.MemAlloc_v2(&device, PAGE));
    DRV(cu.MemHostRegister_v2(at, PAGE, 0));
    at[1] = 5;
    DRV(cu.MemcpyHtoDAsync_v2(device, at, PAGE, NULL));
    DRV(cu.CtxSynchronize());
    at[1] = 0;
    DRV(cu.MemcpyDtoHAsync_v2(at, device, PAGE, NULL));
    DRV(cu.CtxSynchronize());
    check_int(at[1], 5, "copies go on");
    DRV(cu.MemHostUnregister(at));
    DRV(cu.MemFree_v2(device));
}

static unsigned pinned_kib(void)
{
    char line[256];
    unsigned kib = 0;
    FILE *file = fopen("/proc/self/status", "re");

    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmPin: %u", &kib) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

/* A ring of io_uring has the second page as a buffer. */
static void check_ring(int ring, char *at)
{
    struct iovec buffer = {at + PAGE, PAGE};

    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) != 0) {
        check_skip("no buffers of io_uring here");
    }
    check_true(pinned_kib() != 0, "the kernel says that pages are pinned");
    at[0] = 1;
    at[PAGE] = 2;
    at[2 * PAGE] = 3;
    check_code(reached(at, 3 * PAGE), CUDA_ERROR_NOT_SUPPORTED, "pages of which io_uring has one");
    check_true(at[0] == 1 && at[PAGE] == 2 && at[2 * PAGE] == 3, "they keep what they hold");
    printf("reached beside %d\n", (int)reached(at, 64));
    check_copies(at + PAGE);
    check_true(!is_replaced(at + PAGE), "the page that io_uring has is not replaced");
}

static void scenario_pinned(void)
{
    struct io_uring_params params = {0};
    char *at = pages(3);
    int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    aio_context_t queue = 0;

    if (ring < 0) {
        check_skip("no io_uring here");
    }
    check_ring(ring, at);
    close(ring);
    while (pinned_kib() != 0) { /* the kernel lets go of the pages a moment later */
    }
    check_code(reached(at, 3 * PAGE), CUDA_SUCCESS, "when the ring is gone");
    if (syscall(SYS_io_setup, 4, &queue) == 0) {
        printf("reached with aio %d\n", (int)reached(at, 64));
        syscall(SYS_io_destroy, queue);
    }
    check_code(reached(at, 64), CUDA_SUCCESS, "when the queue is gone");
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {{"neighbours", scenario_neighbours},
                                                {"stack", scenario_stack},
                                                {"fork", scenario_fork},
                                                {"kernel_io", scenario_kernel_io},
                                                {"direct_io", scenario_direct_io},
                                                {"pinned", scenario_pinned},
                                                {"all", scenario_all}};

    return run_scenario(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
