/*
 * A program that does to its own process what daemons and careless programs do, and goes on.
 *
 * e2e_manners WAY. What each call returned is on stdout; status 0 if the program found its own
 * files and sockets as it had left them, and its children worked as they should.
 *
 *     closes      closes all descriptors above 2 after cuInit and a first kernel
 *     reuses      the same, and opens files and sockets of its own, which get the numbers
 *     reuses-fork the same, and forks: the child uses what it inherited
 *     races       a thread closes all above 2 again and again, while others work and fork
 *     keeps       finds none open that it has not opened itself, closes all, and loses nothing
 *     forks       a child uses CUDA, while the parent works; then the parent goes on
 */
#include "tests/cuda/check_driver.h"
#include "tests/e2e/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MINE  24 /* descriptors that it opens */
#define BYTES (1u << 20)
#define SLEEP 700 /* ms, in which the library's threads run while nobody calls */

static int mine[MINE];
static struct stat was[MINE];

static void open_mine(void)
{
    for (int i = 0; i < MINE; i += 2) {
        if (i % 4 == 0) {
            check_true(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, mine + i) == 0, "socketpair");
        } else {
            char name[] = "/tmp/e2e-manners-XXXXXX";

            mine[i] = mkstemp(name);
            mine[i + 1] = open(name, O_RDWR);
            unlink(name);
            check_true(mine[i] >= 0 && mine[i + 1] >= 0, "files");
        }
    }
    for (int i = 0; i < MINE; i++) {
        fstat(mine[i], &was[i]);
    }
}

/* Are they still what was opened, with nothing in them? Gives how many are not. */
static int count_harmed(void)
{
    int harmed = 0;

    for (int i = 0; i < MINE; i++) {
        struct stat now;
        char byte[64];
        bool same = fstat(mine[i], &now) == 0 && now.st_dev == was[i].st_dev &&
                    now.st_ino == was[i].st_ino && now.st_size == was[i].st_size;
        bool silent = !S_ISSOCK(was[i].st_mode) ||
                      (recv(mine[i], byte, sizeof byte, MSG_DONTWAIT) < 0 && errno == EAGAIN);

        if (!same || !silent) {
            printf("harmed fd=%d same=%d silent=%d\n", mine[i], same, silent);
            harmed++;
        }
    }
    return harmed;
}

static CUresult use_everything(CUfunction mix, const char *who)
{
    static char bytes[BYTES];
    CUdeviceptr memory = 0, mapped;
    void *pinned = NULL;
    uint32_t n = 1, a = 7, b = 3;
    void *params[] = {&memory, &n, &a, &b};
    CUresult alloc = cu.MemAlloc_v2(&memory, BYTES), copy, launch, sync, host, registered, freed;

    copy = cu.MemcpyHtoD_v2(memory, bytes, BYTES);
    launch = cu.LaunchKernel(mix, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    sync = cu.CtxSynchronize();
    host = cu.MemHostAlloc(&pinned, BYTES, 0);
    registered = cu.MemHostRegister_v2(bytes, BYTES, 0);
    if (registered == CUDA_SUCCESS) {
        registered = cu.MemHostGetDevicePointer_v2(&mapped, bytes, 0);
        cu.MemHostUnregister(bytes);
    }
    freed = cu.MemFree_v2(memory);
    printf("%s alloc=%d copy=%d launch=%d sync=%d host=%d registered=%d freed=%d\n", who,
           (int)alloc, (int)copy, (int)launch, (int)sync, (int)host, (int)registered, (int)freed);
    fflush(stdout);
    return launch;
}

static CUfunction begin(void)
{
    CUmodule module;
    CUfunction mix;

    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    check_int((int)use_everything(mix, "begin"), 0, "all is well at first");
    return mix;
}

static void go_on_in_child(void)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        _exit(count_harmed() == 0 ? 0 : 1);
    }
    check_true(waitpid(child, &status, 0) == child && status == 0,
               "the child has what it inherited");
}

static int count_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static bool closer_ends;

static void *close_again(void *user)
{
    while (!__atomic_load_n(&closer_ends, __ATOMIC_ACQUIRE)) {
        (void)close_range(3, ~0u, 0);
        (void)sched_yield();
    }
    return user;
}

static void use_beside_closer(CUfunction mix)
{
    pthread_t closer;
    int status = 0;

    check_true(pthread_create(&closer, NULL, close_again, NULL) == 0, "a thread");
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        if (child == 0) {
            exit(cu.Init(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
        }
        use_everything(mix, "without");
        check_true(waitpid(child, &status, 0) == child && status == 0, "the child is told");
        fflush(stdout);
    }
    (void)poll(NULL, 0, SLEEP);
    __atomic_store_n(&closer_ends, true, __ATOMIC_RELEASE);
    (void)pthread_join(closer, NULL);
}

static void fork_and_use(CUfunction mix)
{
    for (int i = 0; i < 4; i++) {
        int status = 0;
        pid_t child;

        fflush(stdout);
        child = fork();
        if (child == 0) {
            CUresult result = use_everything(mix, "child");
            bool denied =
                result == CUDA_ERROR_NOT_INITIALIZED && cu.Init(0) == CUDA_ERROR_NOT_INITIALIZED;

            if (i % 2 == 0) {
                _exit(denied ? 0 : 1);
            }
            exit(denied ? 0 : 1); /* with the library's destructor */
        }
        check_int((int)use_everything(mix, "parent"), 0, "the parent works meanwhile");
        check_true(waitpid(child, &status, 0) == child && status == 0, "the child is told");
        check_int((int)use_everything(mix, "parent"), 0, "and goes on");
    }
}

int main(int argc, char **argv)
{
    const char *way = argc == 2 ? argv[1] : "";
    CUfunction mix;
    int open_before;

    open_before = count_open();
    driver_begin("e2e_manners");
    mix = begin();
    if (strcmp(way, "keeps") == 0) {
        check_int(count_open(), open_before, "descriptors in its table");
        (void)close_range(3, ~0u, 0);
        check_int((int)use_everything(mix, "without"), 0, "its session goes on");
        return check_end();
    }
    if (strcmp(way, "races") == 0) {
        use_beside_closer(mix);
        return check_end();
    }
    if (strcmp(way, "forks") == 0) {
        fork_and_use(mix);
        return check_end();
    }
    (void)close_range(3, ~0u, 0);
    if (strncmp(way, "reuses", 6) == 0) {
        open_mine();
    }
    if (strcmp(way, "reuses-fork") == 0) {
        go_on_in_child();
    }
    use_everything(mix, "without");
    (void)poll(NULL, 0, SLEEP);
    use_everything(mix, "without");
    if (strncmp(way, "reuses", 6) == 0) {
        check_int(count_harmed(), 0, "its own files and sockets");
    }
    return check_end();
}
