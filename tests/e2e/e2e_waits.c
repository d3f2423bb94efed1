/*
 * Work that waits for other work of the same tenant, in every way in which a program may do so: a
 * scheduler that holds the one back until the other is done hangs it.
 *
 *     e2e_waits value        a stream waits for a value that another stream writes behind a kernel
 *     e2e_waits event        many streams, a ring of events between them
 *     e2e_waits host         a host function waits until the program has given the GPU more work
 *     e2e_waits spin         a kernel spins until a later copy in another stream arrives
 *     e2e_waits graph        a graph spins until a later kernel in another stream comes
 *     e2e_waits partners     two processes of the tenant whose kernels wait for each other, in turn
 *     e2e_waits fork         a host function forks and returns in the child, too, which ends
 *     e2e_waits held         does what standard input says, a word a line:
 *                                launch   a kernel, and wait for it; prints "launched"
 *                                hold     a stream, with kernels behind a host function; launch
 *                                         another kernel beside them; prints "held"
 *                                spin     a kernel that waits for a later copy; prints "held"
 *                                load     a module, and unload it; prints "loaded", or "load: " and
 *                                         the error. Natively that waits for the stream that is
 *                                         held (seen on an H100)
 *                                take     an array, registered memory, a module and pinned memory;
 *                                         prints "taken"
 *                                free     what it has taken, and has the GPU reach that memory
 *                                         again; prints "freed", and the error of the latter
 *                                open     the stream, and end
 *     e2e_waits resets       likewise, with a kernel of a library:
 *                                bump     launch it; prints "bumped", and what the library's
 * variable is then reset    give up the context, if there is one, and make it again; prints
 * "reset", and the error
 *
 * Each but the last two repeats it ROUNDS times; the last line is the verdict. Spinning kernels are
 * one block.
 */
#include "tests/cuda/check_driver.h"

#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STREAMS 6

static const char ptx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    /* Wait until *p is n, then write n to *q. */
    ".visible .entry await(.param .u64 p, .param .u32 n, .param .u64 q)\n{\n"
    "    .reg .pred %p;\n    .reg .b32 %r<4>;\n    .reg .b64 %d<5>;\n"
    "    ld.param.u64 %d0, [p];\n    ld.param.u32 %r0, [n];\n    ld.param.u64 %d1, [q];\n"
    "    cvta.to.global.u64 %d2, %d0;\n    cvta.to.global.u64 %d3, %d1;\n"
    "again:\n"
    "    ld.volatile.global.u32 %r1, [%d2];\n    setp.lt.u32 %p, %r1, %r0;\n"
    "    @%p bra again;\n"
    "    membar.sys;\n    st.volatile.global.u32 [%d3], %r0;\n    ret;\n}\n"
    ".visible .entry set(.param .u64 q, .param .u32 n)\n{\n"
    "    .reg .b32 %r<2>;\n    .reg .b64 %d<3>;\n"
    "    ld.param.u64 %d0, [q];\n    ld.param.u32 %r0, [n];\n    cvta.to.global.u64 %d1, %d0;\n"
    "    st.volatile.global.u32 [%d1], %r0;\n    ret;\n}\n"
    /* The same, for who wants a kernel that was not launched yet. */
    ".visible .entry put(.param .u64 q, .param .u32 n)\n{\n"
    "    .reg .b32 %r<2>;\n    .reg .b64 %d<3>;\n"
    "    ld.param.u64 %d0, [q];\n    ld.param.u32 %r0, [n];\n    cvta.to.global.u64 %d1, %d0;\n"
    "    st.volatile.global.u32 [%d1], %r0;\n    ret;\n}\n";

static CUfunction await, set, put;
static CUstream streams[STREAMS];
static CUdeviceptr words;
static unsigned rounds = 20;

static void launch_await(CUstream stream, CUdeviceptr p, uint32_t n, CUdeviceptr q)
{
    void *params[] = {&p, &n, &q};

    driver_launch(await, 1, 1, stream, params);
}

static void launch_set(CUstream stream, CUdeviceptr q, uint32_t n)
{
    void *params[] = {&q, &n};

    driver_launch(set, 1, 1, stream, params);
}

static void open_device(void)
{
    CUmodule module;

    driver_begin("e2e_waits");
    DRV(cu.ModuleLoadData(&module, ptx));
    await = driver_function(module, "await");
    set = driver_function(module, "set");
    put = driver_function(module, "put");
    for (int i = 0; i < STREAMS; i++) {
        DRV(cu.StreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    DRV(cu.MemAlloc_v2(&words, 4096));
    DRV(cu.MemsetD32_v2(words, 0, 1024));
    DRV(cu.CtxSynchronize());               /* the streams do not wait for it */
    launch_set(streams[0], words + 512, 1); /* their code is loaded */
    launch_await(streams[0], words + 512, 1, words + 516);
    DRV(cu.StreamSynchronize(streams[0]));
}

static uint32_t word_at(CUdeviceptr at)
{
    uint32_t word;

    DRV(cu.MemcpyDtoH_v2(&word, at, sizeof word));
    return word;
}

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    return found ? found : check_driver_symbol(dlopen("libcuda.so.1", RTLD_NOW), name);
}

/* ------------------------------------------------------------ within a process */

static void round_value(uint32_t n)
{
    static __typeof__(&cuStreamWaitValue32_v2) wait_value;
    static __typeof__(&cuStreamWriteValue32_v2) write_value;

    if (!wait_value) {
        *(void **)&wait_value = symbol("cuStreamWaitValue32_v2");
        *(void **)&write_value = symbol("cuStreamWriteValue32_v2");
    }
    DRV(wait_value(streams[0], words, n, CU_STREAM_WAIT_VALUE_GEQ));
    launch_set(streams[0], words + 8, n);
    launch_set(streams[0], words + 8, n);
    for (int i = 0; i < 40; i++) { /* far more than a session may have in flight */
        launch_set(streams[1], words + 4, n);
    }
    DRV(write_value(streams[1], words, n, 0));
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(words + 8), n, "behind the value");
}

static void round_event(uint32_t n)
{
    CUevent event;

    DRV(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 4 * STREAMS; i++) {
        launch_set(streams[i % STREAMS], words + 16, n + (uint32_t)i);
        DRV(cu.EventRecord(event, streams[i % STREAMS]));
        DRV(cu.StreamWaitEvent(streams[(i + 1) % STREAMS], event, 0));
    }
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(words + 16), n + 4 * STREAMS - 1, "the last of the ring");
    DRV(cu.EventDestroy_v2(event));
}

static int opened;

static void CUDA_CB wait_opened(void *data)
{
    (void)data;
    while (__atomic_load_n(&opened, __ATOMIC_ACQUIRE) == 0) {
        usleep(100);
    }
}

static int forked_child;

static void CUDA_CB fork_once(void *child)
{
    fflush(stdout); /* the child writes what is in its buffer, too */
    *(pid_t *)child = fork();
    if (*(pid_t *)child != 0) {
        usleep(20000); /* a child that took part in the session would have answered by now */
        __atomic_store_n(&forked_child, 1, __ATOMIC_RELEASE);
    }
}

/* The work behind the function waits for the function of this process. */
static void round_fork(uint32_t n)
{
    pid_t child = -1;
    int status = -1;

    __atomic_store_n(&forked_child, 0, __ATOMIC_RELEASE);
    DRV(cu.LaunchHostFunc(streams[0], fork_once, &child));
    launch_set(streams[0], words + 40, n);
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(__atomic_load_n(&forked_child, __ATOMIC_ACQUIRE), 1, "the function has returned");
    check_int(word_at(words + 40), n, "the work behind it");
    for (int i = 0; i < 1000 && waitpid(child, &status, WNOHANG) == 0; i++) {
        usleep(10000);
    }
    check_int((unsigned)status, 0, "the child has ended well");
}

static void round_host(uint32_t n)
{
    __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
    launch_set(streams[0], words + 20, n);
    DRV(cu.LaunchHostFunc(streams[0], wait_opened, NULL));
    for (int i = 0; i < 40; i++) {
        launch_set(streams[0], words + 24, n);
        launch_set(streams[1], words + 28, n);
    }
    DRV(cu.StreamSynchronize(streams[1]));
    __atomic_store_n(&opened, 1, __ATOMIC_RELEASE);
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(words + 24), n, "behind the host function");
}

static void round_spin(uint32_t n)
{
    static uint32_t *pinned;

    if (!pinned) {
        DRV(cu.MemHostAlloc((void **)&pinned, 4096, 0));
    }
    *pinned = n;
    launch_await(streams[0], words + 32, n, words + 36);
    launch_set(streams[1], words + 40, n);
    DRV(cu.MemcpyHtoDAsync_v2(words + 32, pinned, sizeof *pinned, streams[1]));
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(words + 36), n, "behind the kernel that spun");
}

static void round_graph(uint32_t n)
{
    CUgraphExec exec;
    CUgraph graph;

    DRV(cu.StreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_await(streams[0], words + 48, n, words + 52);
    DRV(cu.StreamEndCapture(streams[0], &graph));
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, streams[0]));
    launch_set(streams[1], words + 48, n);
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(words + 52), n, "behind the graph that spun");
    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
}

static int alone(void (*one)(uint32_t))
{
    open_device();
    printf("ready\n");
    for (uint32_t i = 1; i <= rounds; i++) {
        one(i * 100);
    }
    return driver_end();
}

static void hold(void)
{
    uint32_t n = 77;
    CUdeviceptr at = words + 64;
    void *params[] = {&at, &n};

    DRV(cu.LaunchHostFunc(streams[0], wait_opened, NULL));
    for (int i = 0; i < 40; i++) {
        launch_set(streams[0], words + 60, n);
    }
    for (int i = 0; i < 10; i++) { /* in each form in which it may be */
        driver_launch(put, 1, 1, streams[1], params);
    }
    DRV(cu.StreamSynchronize(streams[1]));
}

static void load(void)
{
    CUmodule module;
    CUresult result = cu.ModuleLoadData(&module, ptx);

    if (result != CUDA_SUCCESS) {
        printf("load: %d\n", (int)result);
        return;
    }
    DRV(cu.ModuleUnload(module));
    printf("loaded\n");
}

static struct {
    CUmodule module;
    CUarray array;
    void *registered, *pinned;
} taken;

static void take(void)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUdeviceptr reached;

    if (!taken.registered && posix_memalign(&taken.registered, 4096, 1 << 20) != 0) {
        check_die("no memory");
    }
    DRV(cu.ModuleLoadData(&taken.module, ptx));
    DRV(cu.Array3DCreate_v2(&taken.array, &shape));
    DRV(cu.MemHostRegister_v2(taken.registered, 1 << 20, 0));
    DRV(cu.MemHostGetDevicePointer_v2(&reached, taken.registered, 0));
    DRV(cu.MemHostAlloc(&taken.pinned, 1 << 20, 0));
    printf("taken\n");
}

static void give(void)
{
    CUdeviceptr reached;
    CUresult again;

    DRV(cu.ModuleUnload(taken.module));
    DRV(cu.ArrayDestroy(taken.array));
    DRV(cu.MemHostUnregister(taken.registered));
    DRV(cu.MemFreeHost(taken.pinned));
    memset(taken.registered, 7, 1 << 20); /* it is the program's own again */
    DRV(cu.MemHostRegister_v2(taken.registered, 1 << 20, 0));
    again = cu.MemHostGetDevicePointer_v2(&reached, taken.registered, 0);
    DRV(cu.MemHostUnregister(taken.registered));
    printf("freed %d\n", (int)again);
}

static void launch_one(void)
{
    launch_set(streams[2], words + 72, 1);
    DRV(cu.StreamSynchronize(streams[2]));
    printf("launched\n");
}

static int held(void)
{
    bool spins = false, holds = false;
    char line[16];

    open_device();
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "open\n") != 0) {
        if (strcmp(line, "hold\n") == 0) {
            hold();
            holds = true;
            printf("held\n");
        } else if (strcmp(line, "spin\n") == 0) {
            launch_await(streams[0], words + 80, 1, words + 84);
            spins = true;
            printf("held\n");
        } else if (strcmp(line, "load\n") == 0) {
            load();
        } else if (strcmp(line, "take\n") == 0) {
            take();
        } else if (strcmp(line, "free\n") == 0) {
            give();
        } else {
            launch_one();
        }
    }
    __atomic_store_n(&opened, 1, __ATOMIC_RELEASE);
    launch_set(streams[1], words + 80, 1);
    DRV(cu.StreamSynchronize(streams[0]));
    if (spins) {
        check_int(word_at(words + 84), 1, "behind the kernel that spun");
    }
    if (holds) {
        check_int(word_at(words + 60), 77, "behind the host function");
        check_int(word_at(words + 64), 77, "beside it");
    }
    return driver_end();
}

/* ------------------------------------------------------------ resets */

static const char bump_ptx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".global .u32 n = 0;\n"
    ".visible .entry bump(.param .u64 q)\n{\n"
    "    .reg .b32 %r<2>;\n    .reg .b64 %d<3>;\n"
    "    ld.param.u64 %d0, [q];\n    cvta.to.global.u64 %d1, %d0;\n"
    "    ld.global.u32 %r0, [n];\n    add.u32 %r0, %r0, 1;\n    st.global.u32 [n], %r0;\n"
    "    st.global.u32 [%d1], %r0;\n    ret;\n}\n";

static void bump(CUkernel kernel)
{
    CUdeviceptr word;
    void *params[] = {&word};

    DRV(cu.MemAlloc_v2(&word, 4));
    driver_launch((CUfunction)kernel, 1, 1, NULL, params);
    printf("bumped %u\n", word_at(word));
}

static CUresult reset(bool has_context)
{
    CUcontext context;
    CUresult result;

    if (has_context) {
        DRV(cu.CtxSetCurrent(NULL));
        DRV(cu.DevicePrimaryCtxRelease_v2(0));
    }
    result = cu.DevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS) {
        DRV(cu.CtxSetCurrent(context));
    }
    printf("reset %d\n", (int)result);
    return result;
}

static int resets(void)
{
    CUresult context = CUDA_SUCCESS;
    CUlibrary library;
    CUkernel kernel;
    char line[16];

    driver_begin("e2e_waits");
    DRV(cu.LibraryLoadData(&library, bump_ptx, NULL, NULL, 0, NULL, NULL, 0));
    DRV(cu.LibraryGetKernel(&kernel, library, "bump"));
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "bump\n") == 0) {
            bump(kernel);
        } else {
            context = reset(context == CUDA_SUCCESS);
        }
    }
    return driver_end();
}

/* ------------------------------------------------------------ two processes */

/* Kernel i of this one waits until kernel i of the other, or the one before it, has written. */
static void play(CUdeviceptr shared, uint32_t me)
{
    for (uint32_t i = 1; i <= rounds; i++) {
        launch_await(streams[0], shared + 4 * (1 - me), me == 0 ? i - 1 : i, words + 56);
        launch_set(streams[0], shared + 4 * me, i);
    }
    DRV(cu.StreamSynchronize(streams[0]));
    check_int(word_at(shared + 4 * me), rounds, "this one's last");
}

static int partners(void)
{
    __typeof__(&cuIpcGetMemHandle) get;
    __typeof__(&cuIpcOpenMemHandle_v2) open_handle;
    CUipcMemHandle handle;
    CUdeviceptr shared;
    int pipes[2], status = 0;
    pid_t child;

    if (pipe(pipes) != 0 || (child = fork()) < 0) {
        check_die("no second process");
    }
    open_device();
    if (child != 0) {
        *(void **)&get = symbol("cuIpcGetMemHandle");
        DRV(cu.MemAlloc_v2(&shared, 2u << 20));
        DRV(cu.MemsetD32_v2(shared, 0, 4));
        DRV(cu.CtxSynchronize());
        DRV(get(&handle, shared));
        if (write(pipes[1], &handle, sizeof handle) != (ssize_t)sizeof handle) {
            check_die("write");
        }
        printf("ready\n");
        play(shared, 0);
        if (waitpid(child, &status, 0) != child || status != 0) {
            check_die("the other process ended with %d", status);
        }
        return driver_end();
    }
    *(void **)&open_handle = symbol("cuIpcOpenMemHandle_v2");
    if (read(pipes[0], &handle, sizeof handle) != (ssize_t)sizeof handle) {
        check_die("read");
    }
    DRV(open_handle(&shared, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    play(shared, 1);
    fclose(stdout); /* one verdict */
    _exit(0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*one)(uint32_t);
    } modes[] = {{"value", round_value}, {"event", round_event}, {"host", round_host},
                 {"fork", round_fork},   {"spin", round_spin},   {"graph", round_graph},
                 {"partners", NULL}};

    if (argc == 2 && strcmp(argv[1], "held") == 0) {
        return held();
    }
    if (argc == 2 && strcmp(argv[1], "resets") == 0) {
        return resets();
    }
    if (argc > 2) {
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    }
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].one ? alone(modes[i].one) : partners();
        }
    }
    fprintf(stderr, "usage: e2e_waits MODE [ROUNDS]\n");
    return 2;
}
