/*
 * Warming up: see warm.h.
 *
 * The calls are those that a session makes for tests/e2e/e2e_minimal.c. tests/e2e/test_programs.py
 * fails if that program needs a kind of driver call that is missing here. All objects are given
 * back, except those whose work the GPU has not done in time: they stay with the context.
 */
#include "host_backend/worker/memory/warm.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GPU_WAIT_NS  (50 * WEIR_NS_PER_MS)
#define LOOK_NS      (100 * WEIR_NS_PER_US)
#define STAGED_BYTES (256u << 10) /* size of the first part of a session's arena (segment.c) */
#define WORD_BYTES   sizeof(uint32_t)

static const char text[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                           ".visible .entry weir_warm(.param .u64 to)\n{\n"
                           "    .reg .b32 %r;\n    .reg .b64 %d<2>;\n"
                           "    ld.param.u64 %d0, [to];\n    cvta.to.global.u64 %d1, %d0;\n"
                           "    mov.u32 %r, 1;\n    st.global.u32 [%d1], %r;\n    ret;\n}\n";

/* The objects, made in this order and given back in reverse. */
struct warm {
    const struct weir_driver *driver;
    uint8_t *staged; /* memory registered like a session's segment */
    CUdeviceptr staged_at;
    CUstream stream, other; /* streams like a session's own and like a program's */
    CUmodule module;
};

static CUresult make_staged(struct warm *w)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    void *at = mmap(NULL, STAGED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = w->driver->cuMemHostRegister_v2(at, STAGED_BYTES, flags);
    if (result != CUDA_SUCCESS) {
        munmap(at, STAGED_BYTES);
        return result;
    }
    w->staged = at;
    return w->driver->cuMemHostGetDevicePointer_v2(&w->staged_at, at, 0);
}

static CUresult load_kernel(struct warm *w, CUfunction *ret_kernel)
{
    const struct weir_driver *d = w->driver;
    size_t offset, bytes;
    int value;

    WEIR_TRY(d->cuModuleLoadDataEx(&w->module, text, 0, NULL, NULL));
    WEIR_TRY(d->cuModuleGetFunction(ret_kernel, w->module, "weir_warm"));
    if (d->cuFuncGetParamInfo) {
        (void)d->cuFuncGetParamInfo(*ret_kernel, 0, &offset, &bytes);
    }
    if (d->cuFuncLoad) {
        (void)d->cuFuncLoad(*ret_kernel);
    }
    (void)d->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, *ret_kernel);
    (void)d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, *ret_kernel, 32, 0);
    return CUDA_SUCCESS;
}

/* Give the supervisor a descriptor of memory, as for each chunk. */
static void export(const struct weir_platform *platform, const struct weir_ready_chunk *chunk)
{
    int fd;

    if (platform->posix_fds &&
        platform->driver.cuMemExportToShareableHandle(
            &fd, chunk->memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS) {
        close(fd);
    }
}

/* Copy to and from device memory, if a chunk is ready, and launch a kernel. */
static CUresult give_work(const struct weir_platform *platform, struct warm *w)
{
    const struct weir_ready_chunk *chunk = &platform->ready.chunk;
    const struct weir_driver *d = w->driver;
    CUdeviceptr to = w->staged_at;
    void *params[] = {&to};
    CUfunction kernel;

    WEIR_TRY(load_kernel(w, &kernel));
    WEIR_TRY(d->cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, w->stream, params, NULL));
    if (chunk->there) {
        WEIR_TRY(d->cuMemcpyAsync(chunk->base, w->staged_at, WORD_BYTES, w->stream));
        WEIR_TRY(d->cuMemcpyAsync(w->staged_at, chunk->base, WORD_BYTES, w->stream));
        WEIR_TRY(d->cuMemsetD8Async(chunk->base, 0, WORD_BYTES, w->stream));
        export(platform, chunk);
    }
    return CUDA_SUCCESS;
}

/* Has the GPU done all the work? */
static bool wait_for(const struct warm *w)
{
    const struct timespec pause = {0, LOOK_NS};
    uint64_t end_ns = weir_clock_now_ns() + GPU_WAIT_NS;

    while (w->driver->cuStreamQuery(w->stream) != CUDA_SUCCESS) {
        if (weir_clock_now_ns() >= end_ns) {
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return w->driver->cuStreamSynchronize(w->stream) == CUDA_SUCCESS;
}

static void give_back(struct warm *w)
{
    const struct weir_driver *d = w->driver;

    if (w->module) {
        (void)d->cuModuleUnload(w->module);
    }
    if (w->other) {
        (void)d->cuStreamDestroy_v2(w->other);
    }
    if (w->stream) {
        (void)d->cuStreamDestroy_v2(w->stream);
    }
    if (w->staged) {
        (void)d->cuMemHostUnregister(w->staged);
        munmap(w->staged, STAGED_BYTES);
    }
}

/* Make all calls. A worker of one tenant also prepares a window and a chunk. */
static CUresult run_through(struct weir_worker *worker, struct warm *w)
{
    const struct weir_platform *platform = weir_worker_platform(worker);

    WEIR_TRY(make_staged(w));
    WEIR_TRY(w->driver->cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
    WEIR_TRY(w->driver->cuStreamCreateWithPriority(&w->other, CU_STREAM_NON_BLOCKING, 0));
    if (platform->alone) {
        WEIR_TRY(weir_worker_window_prepare(worker));
        WEIR_TRY(weir_chunk_ready_make(worker, w->stream));
    }
    return give_work(platform, w);
}

void weir_worker_warm_up(struct weir_worker *worker)
{
    struct warm w = {.driver = &weir_worker_platform(worker)->driver};
    uint64_t start_ns = weir_clock_now_ns();
    CUresult result = run_through(worker, &w);
    bool done = !w.stream || wait_for(&w);

    if (done) {
        weir_chunk_ready_cleared(worker);
        give_back(&w);
    }
    weir_log_debug("worker: warmed up us=%llu result=%d gpu=\"%s\"",
                   (unsigned long long)((weir_clock_now_ns() - start_ns) / WEIR_NS_PER_US),
                   (int)result, done ? "idle" : "busy");
}
