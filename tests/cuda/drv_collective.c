/*
 * Ranks, one on each GPU, whose kernels wait for each other: the calls that NCCL makes for an
 * operation, made at once and captured as graphs. Ranks of one process, by one thread and by a
 * thread for each; then as many processes, which pass their memory as descriptors and see all GPUs
 * or only their own.
 *
 * For a captured operation NCCL asks which graph is being captured, lets streams of its own join,
 * gives the graph a destructor and a node that records an event outside, and goes on only when all
 * destructors have run.
 */
#include "vmm.h"

#include <pthread.h>
#include <signal.h>

CHECK_EMBED(collective_ptx, "collective.ptx");

enum {
    RANKS_MAX = 8,
    VALUES = 64,
    N = 4096,
    THREADS = 128,
    OPERATIONS = 3,
    LAUNCHES = 4,
    LIMIT_MS = 20000
};

/* A stream that joins captures, and an event that orders what is captured and what is not. */
struct side {
    CUstream live, captured;
    CUevent serial;
};

struct rank {
    int id, device;
    CUcontext context;
    CUfunction all_reduce, bump;
    CUstream stream;
    struct side work, host;
    CUevent scratch;
    CUdeviceptr block, blocks, round, out;
    CUmemGenericAllocationHandle handle;
    unsigned given;      /* values[i] is id + i + given */
    int ran;             /* atomic: calls of the host's function */
    int kept, destroyed; /* captured operations, and destructors that have run; atomic */
};

static int n_ranks;
static size_t block_bytes;
static struct rank ranks[RANKS_MAX];

static void host_step(void *user)
{
    __atomic_add_fetch(&((struct rank *)user)->ran, 1, __ATOMIC_SEQ_CST);
}

static void destroyed(void *user)
{
    __atomic_add_fetch(&((struct rank *)user)->destroyed, 1, __ATOMIC_SEQ_CST);
}

static void make_side(struct side *side)
{
    DRV(cu.StreamCreate(&side->live, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&side->captured, CU_STREAM_NON_BLOCKING));
    DRV(cu.EventCreate(&side->serial, CU_EVENT_DISABLE_TIMING));
}

static CUmemAllocationProp prop_of(int device)
{
    CUmemAllocationProp prop = vmm_prop(1);

    prop.location.id = device;
    return prop;
}

/* Map memory of some rank where this process's GPUs reach it. */
static CUdeviceptr map(CUmemGenericAllocationHandle handle, int first, int n)
{
    CUmemAccessDesc access[RANKS_MAX];
    CUdeviceptr at;

    memset(access, 0, sizeof(access));
    for (int i = 0; i < n; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = first + i;
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    DRV(cu.MemAddressReserve(&at, block_bytes, 0, 0, 0));
    DRV(cu.MemMap(at, block_bytes, 0, handle, 0));
    DRV(cu.MemSetAccess(at, block_bytes, access, (size_t)n));
    return at;
}

static void make_rank(struct rank *rank, int id, int device, int first, int n_devices)
{
    CUmemAllocationProp prop = prop_of(device);
    CUmodule module;
    unsigned values[N];

    rank->id = id;
    rank->device = device;
    DRV(cu.DevicePrimaryCtxRetain(&rank->context, device));
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.ModuleLoadData(&module, collective_ptx));
    rank->all_reduce = driver_function(module, "all_reduce");
    rank->bump = driver_function(module, "bump");
    DRV(cu.StreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
    make_side(&rank->work);
    make_side(&rank->host);
    DRV(cu.EventCreate(&rank->scratch, CU_EVENT_DISABLE_TIMING));
    DRV(cu.MemGetAllocationGranularity(&block_bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    DRV(cu.MemCreate(&rank->handle, block_bytes, &prop, 0));
    rank->block = map(rank->handle, first, n_devices);
    DRV(cu.MemAlloc_v2(&rank->blocks, sizeof(CUdeviceptr) * RANKS_MAX));
    DRV(cu.MemAlloc_v2(&rank->round, sizeof(unsigned)));
    DRV(cu.MemAlloc_v2(&rank->out, sizeof(values)));
    DRV(cu.MemsetD32_v2(rank->round, 0, 1));
    DRV(cu.MemsetD32_v2(rank->block, 0, VALUES));
    for (int i = 0; i < N; i++) {
        values[i] = (unsigned)(id + i);
    }
    DRV(cu.MemcpyHtoD_v2(rank->block + 4 * VALUES, values, sizeof(values)));
    DRV(cu.CtxSynchronize());
}

/* ---------------------------------------------------------------- an operation */

static void wait_for(CUstream waits, CUstream other, CUevent scratch)
{
    DRV(cu.EventRecord(scratch, other));
    DRV(cu.StreamWaitEvent(waits, scratch, 0));
}

/* The stream of this side that belongs to the capture of `origin`, or to none. */
static CUstream join(struct side *side, CUstream origin, CUgraph graph, CUevent scratch)
{
    if (!graph) {
        DRV(cu.StreamWaitEvent(side->live, side->serial, 0));
        return side->live;
    }
    CUstreamCaptureStatus status;
    DRV(cu.StreamIsCapturing(side->captured, &status));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) {
        wait_for(side->captured, origin, scratch);
        DRV(CU(StreamUpdateCaptureDependencies_v2)(side->captured, NULL, NULL, 0,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES));
        DRV(cu.StreamWaitEvent(side->captured, side->serial, CU_EVENT_WAIT_EXTERNAL));
    }
    return side->captured;
}

/* What comes after, captured or not, comes after what the side has been given so far. */
static void leave(struct side *side, CUgraph graph)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    CUgraphNode record;
    size_t n;

    if (!graph) {
        DRV(cu.EventRecord(side->serial, side->live));
        return;
    }
    DRV(cu.GraphAddEventRecordNode(&record, graph, NULL, 0, side->serial));
    DRV(CU(StreamGetCaptureInfo_v3)(side->captured, &status, NULL, NULL, &nodes, &edges, &n));
    for (size_t i = 0; i < n; i++) {
        DRV(CU(GraphAddDependencies_v2)(graph, &nodes[i], &record, edges ? &edges[i] : NULL, 1));
    }
    DRV(CU(StreamUpdateCaptureDependencies_v2)(side->captured, &record, NULL, 1,
                                               CU_STREAM_SET_CAPTURE_DEPENDENCIES));
}

static void give_destructor(struct rank *rank, CUgraph graph)
{
    CUuserObject object;

    DRV(CU(UserObjectCreate)(&object, rank, destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    DRV(CU(GraphRetainUserObject)(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    rank->kept++;
}

static void operation(struct rank *rank, CUstream stream)
{
    CUstreamCaptureStatus status;
    unsigned me = (unsigned)rank->id, all = (unsigned)n_ranks, n = N;
    void *params[] = {&rank->blocks, &me, &all, &rank->round, &rank->out, &n};
    CUgraph graph = NULL;
    cuuint64_t id;

    DRV(cu.CtxSetCurrent(rank->context));
    DRV(CU(StreamGetCaptureInfo_v3)(stream, &status, &id, &graph, NULL, NULL, NULL));
    graph = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : NULL;
    CUstream work = join(&rank->work, stream, graph, rank->scratch);
    wait_for(stream, work, rank->scratch);
    if (graph) {
        CUstream host = join(&rank->host, stream, graph, rank->scratch);
        DRV(cu.LaunchHostFunc(host, host_step, rank));
        wait_for(stream, host, rank->scratch);
        leave(&rank->host, graph);
        give_destructor(rank, graph);
    }
    driver_launch(rank->all_reduce, 1, THREADS, stream, params);
    DRV(cu.EventRecord(rank->scratch, stream));
    DRV(cu.StreamWaitEvent(work, rank->scratch, 0));
    leave(&rank->work, graph);
}

static void bump(struct rank *rank, CUstream stream)
{
    unsigned n = N;
    void *params[] = {&rank->block, &n};

    DRV(cu.CtxSetCurrent(rank->context));
    driver_launch(rank->bump, 1, THREADS, stream, params);
}

/* ---------------------------------------------------------------- what ranks do */

static void settle(struct rank *rank)
{
    DRV(cu.CtxSetCurrent(rank->context));
    for (int i = 0; cu.StreamQuery(rank->stream) == CUDA_ERROR_NOT_READY; i++) {
        if (i == LIMIT_MS) {
            check_die("rank %d: its stream does not end", rank->id);
        }
        usleep(1000);
    }
    DRV(cu.StreamSynchronize(rank->stream));
}

/* All ranks' values were raised equally often. */
static int is_right(struct rank *rank)
{
    unsigned out[N];

    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.MemcpyDtoH_v2(out, rank->out, sizeof(out)));
    for (int i = 0; i < N; i++) {
        unsigned want = (unsigned)(n_ranks * (n_ranks - 1) / 2) +
                        (unsigned)n_ranks * ((unsigned)i + rank->given);
        if (out[i] != want) {
            return 0;
        }
    }
    return 1;
}

struct graph {
    CUgraph graph;
    CUgraphExec exec;
};

static void begin(struct rank *rank)
{
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.StreamBeginCapture_v2(rank->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static void steps(struct rank *rank)
{
    for (int i = 0; i < OPERATIONS; i++) {
        bump(rank, rank->stream);
        operation(rank, rank->stream);
    }
}

static void end(struct rank *rank, struct graph *graph)
{
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.StreamEndCapture(rank->stream, &graph->graph));
}

static void instantiate(struct rank *rank, struct graph *graph)
{
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.GraphInstantiateWithFlags(&graph->exec, graph->graph, 0));
}

static void launch(struct rank *rank, struct graph *graph)
{
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.GraphLaunch(graph->exec, rank->stream));
    rank->given += OPERATIONS;
}

static void drop(struct graph *graph, int exec_first)
{
    if (exec_first) {
        DRV(cu.GraphExecDestroy(graph->exec));
    }
    DRV(cu.GraphDestroy(graph->graph));
    if (!exec_first) {
        DRV(cu.GraphExecDestroy(graph->exec));
    }
}

/* As ncclCommDestroy waits for its plans. */
static int is_free(const struct rank *rank)
{
    for (int i = 0; i < LIMIT_MS; i++) {
        if (__atomic_load_n(&rank->destroyed, __ATOMIC_SEQ_CST) == rank->kept) {
            return 1;
        }
        usleep(1000);
    }
    return 0;
}

/* These ranks do everything, call by call for all, as a thread in a group of NCCL does. */
static const char *run(struct rank *first, int n)
{
    struct graph graphs[RANKS_MAX];
    int captured = 0;

#define EACH(call)                                                                                 \
    for (struct rank *r = first; r < first + n; r++) {                                             \
        call;                                                                                      \
    }
    for (int turn = 0; turn < 2; turn++) {
        EACH(steps(r); r->given += OPERATIONS);
        EACH(settle(r));
        EACH(if (!is_right(r)) return "wrong sum");
        EACH(begin(r));
        EACH(steps(r));
        EACH(end(r, &graphs[r - first]));
        EACH(instantiate(r, &graphs[r - first]));
        captured += OPERATIONS;
        EACH(if (r->ran != LAUNCHES * OPERATIONS * turn) return "a captured function ran");
        for (int i = 0; i < LAUNCHES; i++) {
            EACH(launch(r, &graphs[r - first]));
        }
        EACH(steps(r); r->given += OPERATIONS);
        EACH(settle(r));
        EACH(if (!is_right(r)) return "wrong sum of graphs");
        EACH(if (r->ran !=
                 LAUNCHES * OPERATIONS * (turn + 1)) return "the function did not run each time");
        EACH(if (r->destroyed != captured - OPERATIONS) return "a destructor ran too early");
        EACH(drop(&graphs[r - first], turn));
        EACH(if (!is_free(r)) return "destructors of a graph do not run");
    }
#undef EACH
    return NULL;
}

static void *run_one(void *rank)
{
    return (void *)(uintptr_t)run(rank, 1);
}

static void check_run(const char *why, const char *label)
{
    check_detail(!why, label, why);
}

static void share_addresses(struct rank *rank, const CUdeviceptr *blocks)
{
    DRV(cu.CtxSetCurrent(rank->context));
    DRV(cu.MemcpyHtoD_v2(rank->blocks, blocks, sizeof(*blocks) * (size_t)n_ranks));
    DRV(cu.CtxSynchronize());
}

/* One side's stream has work that the capture's own stream does not wait for. */
static void fail_capture(struct rank *rank)
{
    CUgraph graph;

    begin(rank);
    operation(rank, rank->stream);
    bump(rank, rank->work.captured);
    check_code(cu.StreamEndCapture(rank->stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
               "a capture that is not joined");
    check_true(is_free(rank), "its destructors run");
}

static void in_one_process(void)
{
    CUdeviceptr blocks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];

    for (int i = 0; i < n_ranks; i++) {
        make_rank(&ranks[i], i, i, 0, n_ranks);
        blocks[i] = ranks[i].block;
    }
    for (int i = 0; i < n_ranks; i++) {
        share_addresses(&ranks[i], blocks);
    }
    check_run(run(ranks, n_ranks), "one thread for all ranks");
    fail_capture(&ranks[n_ranks - 1]);
    for (int i = 0; i < n_ranks; i++) {
        ranks[i].ran = ranks[i].kept = ranks[i].destroyed = 0;
        pthread_create(&threads[i], NULL, run_one, &ranks[i]);
    }
    const char *why = NULL;
    for (int i = 0; i < n_ranks; i++) {
        void *result;
        pthread_join(threads[i], &result);
        why = why ? why : result;
    }
    check_run(why, "a thread for each rank");
}

/* ---------------------------------------------------------------- a process for each rank */

struct message {
    int rank, ranks, alone; /* alone: it sees its own GPU only */
};

/* A rank's own process: its memory goes to all others through the first process. */
static int other_process(int socket_fd)
{
    struct message m;
    CUdeviceptr blocks[RANKS_MAX];
    struct rank *rank = &ranks[0];
    int fd = -1;

    if (read(socket_fd, &m, sizeof(m)) != sizeof(m)) {
        return 10;
    }
    if (m.alone) {
        char text[16];
        snprintf(text, sizeof(text), "%d", m.rank);
        setenv("CUDA_VISIBLE_DEVICES", text, 1);
    }
    driver_open("drv_collective, a rank");
    DRV(cu.Init(0));
    n_ranks = m.ranks;
    int device = m.alone ? 0 : m.rank;
    make_rank(rank, m.rank, device, device, 1);
    DRV(cu.MemExportToShareableHandle(&fd, rank->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    vmm_send_fd(socket_fd, fd, &m, sizeof(m));
    close(fd);
    for (int i = 0; i < n_ranks; i++) {
        CUmemGenericAllocationHandle handle = rank->handle;
        fd = vmm_receive_fd(socket_fd, &m, sizeof(m));
        if (fd < 0 || m.rank != i) {
            return 11;
        }
        if (i != rank->id) {
            DRV(cu.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        }
        blocks[i] = i == rank->id ? rank->block : map(handle, device, 1);
        close(fd);
    }
    share_addresses(rank, blocks);
    const char *why = run(rank, 1);
    if (why) {
        printf("rank %d: %s\n", rank->id, why);
        return 12;
    }
    char done = 'd'; /* nobody goes while another uses its memory */
    return write(socket_fd, &done, 1) == 1 && read(socket_fd, &done, 1) == 1 ? 0 : 13;
}

static void in_processes(const char *program, int alone, const char *label)
{
    pid_t children[RANKS_MAX];
    int sockets[RANKS_MAX], fds[RANKS_MAX], failed = 0;
    struct message m = {0, n_ranks, alone};
    char letter = 'g';

    for (m.rank = 0; m.rank < n_ranks; m.rank++) {
        children[m.rank] = vmm_start_other(program, &sockets[m.rank]);
        if (write(sockets[m.rank], &m, sizeof(m)) != sizeof(m)) {
            check_die("write");
        }
    }
    for (int i = 0; i < n_ranks; i++) {
        fds[i] = vmm_receive_fd(sockets[i], &m, sizeof(m));
        failed += fds[i] < 0;
    }
    for (int to = 0; to < n_ranks && !failed; to++) {
        for (m.rank = 0; m.rank < n_ranks; m.rank++) {
            vmm_send_fd(sockets[to], fds[m.rank], &m, sizeof(m));
        }
    }
    for (int i = 0; i < n_ranks && !failed; i++) {
        failed += read(sockets[i], &letter, 1) != 1;
    }
    for (int i = 0; i < n_ranks; i++) {
        letter = failed ? 'x' : 'g';
        failed += write(sockets[i], &letter, 1) != 1;
        close(sockets[i]);
        int status = vmm_status_of(children[i]);
        failed = failed ? failed : status;
        close(fds[i]);
    }
    check_int(failed, 0, label);
}

int main(int argc, char **argv)
{
    int n = 0;

    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        return other_process(atoi(argv[1]));
    }
    driver_open("drv_collective");
    DRV(cu.Init(0));
    DRV(cu.DeviceGetCount(&n));
    if (!vmm_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        check_skip("no descriptors for memory");
    }
    n_ranks = n < RANKS_MAX ? n : RANKS_MAX;
    for (int i = 1; i < n_ranks; i++) {
        int can = 0;
        DRV(CU(DeviceCanAccessPeer)(&can, 0, i));
        if (!can) {
            check_skip("GPUs without peer access");
        }
    }
    in_one_process();
    in_processes(argv[0], 0, "a process for each rank");
    in_processes(argv[0], 1, "a process for each rank, which sees its own GPU only");
    return check_end();
}
