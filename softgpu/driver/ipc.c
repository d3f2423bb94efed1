/*
 * Opens another process's memory and events by handle.
 *
 * A handle names the owner's descriptor and, for memory, the offset in the arena. The descriptor is
 * opened through /proc/<pid>/fd, which the kernel allows to the same user, and must be one of
 * softgpu's memfds.
 */
#include "softgpu/driver/driver.h"
#include "softgpu/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES   4096u
#define MEMORY_MAGIC 0x504D5757u
#define EVENT_MAGIC  0x50455757u

struct handle {
    uint32_t magic;
    int32_t pid;
    int32_t fd;
    uint32_t reserved;
    uint64_t offset;
    uint64_t bytes;
    uint64_t id; /* id of the allocation or event, which makes each handle unique */
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "fits CUDA's opaque handle");
_Static_assert(sizeof(struct handle) <= sizeof(CUipcEventHandle), "fits CUDA's opaque handle");

/* Memory of another process. It is mapped once, however often it is opened. Guarded by the lock. */
static struct opened {
    struct handle handle;
    /* Id of the allocation in this process; the allocation may have been freed with its context. */
    uint64_t base, id;
    uint32_t count;
    struct opened *next;
} * opened;

static struct opened *find_opened(const struct handle *handle, uint64_t base)
{
    for (struct opened **at = &opened; *at;) {
        struct opened *o = *at;
        const struct weir_soft_alloc *alloc = weir_soft_space_at(o->base);
        if (!alloc || alloc->id != o->id) {
            *at = o->next;
            free(o);
        } else if (handle ? memcmp(&o->handle, handle, sizeof(*handle)) == 0 : o->base == base) {
            return o;
        } else {
            at = &o->next;
        }
    }
    return NULL;
}

static int handle_open(const struct handle *handle, const char *name)
{
    char path[64], target[128];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n <= 0) {
        return -1;
    }
    target[n] = '\0';
    if (strncmp(target, name, strlen(name)) != 0) {
        return -1;
    }
    return open(path, O_RDWR | O_CLOEXEC);
}

CUresult weir_soft_cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    uint64_t arena;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);
    int fd = weir_soft_space_arena(&arena);
    WEIR_FAIL_IF(!ret || !alloc || alloc->kind != WEIR_SOFT_ALLOC_DEVICE, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_NOT_SUPPORTED);
    struct handle handle = {.magic = MEMORY_MAGIC,
                            .pid = getpid(),
                            .fd = fd,
                            .offset = alloc->base - arena,
                            .bytes = alloc->bytes,
                            .id = alloc->id};
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle opaque,
                                         unsigned int flags)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct handle handle;
    struct stat info;
    memcpy(&handle, &opaque, sizeof(handle));
    if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != MEMORY_MAGIC ||
        handle.bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    if (handle.pid == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT; /* a GPU also refuses a handle in the process that
                                              made it */
    }
    struct opened *before = find_opened(&handle, 0);
    if (before) {
        before->count++;
        *ret = before->base;
        return CUDA_SUCCESS;
    }
    int fd = handle_open(&handle, "/memfd:weir-softgpu");
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_MAP_FAILED);
    uint64_t end, first = handle.offset & ~(uint64_t)(PAGE_BYTES - 1);
    void *at = MAP_FAILED;
    uint64_t span = 0;
    if (!__builtin_add_overflow(handle.offset, handle.bytes, &end) && fstat(fd, &info) == 0 &&
        end <= (uint64_t)info.st_size) {
        span = (end - first + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
        at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
    }
    close(fd);
    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    struct weir_soft_alloc like = {.base = (uint64_t)(uintptr_t)at + (handle.offset - first),
                                   .bytes = handle.bytes,
                                   .kind = WEIR_SOFT_ALLOC_IPC,
                                   .ctx = ctx,
                                   .device = ctx->device,
                                   .span_bytes = span,
                                   .map_base = (uint64_t)(uintptr_t)at};
    struct weir_soft_alloc *alloc;
    struct opened *o = malloc(sizeof(*o));
    CUresult result = !o ? CUDA_ERROR_OUT_OF_MEMORY
                         : weir_soft_space_adopt(&like, WEIR_SOFT_READ | WEIR_SOFT_WRITE, &alloc);
    if (result != CUDA_SUCCESS) {
        free(o);
        munmap(at, span);
        return result;
    }
    *o = (struct opened){handle, alloc->base, alloc->id, 1, opened};
    opened = o;
    *ret = alloc->base;
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuIpcCloseMemHandle(CUdeviceptr address)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_alloc *alloc = weir_soft_space_at(address);
    WEIR_FAIL_IF(!alloc || alloc->kind != WEIR_SOFT_ALLOC_IPC || alloc->freeing,
                 CUDA_ERROR_INVALID_VALUE);
    struct opened *o = find_opened(NULL, address);
    if (o && --o->count != 0) {
        return CUDA_SUCCESS;
    }
    uint64_t id = alloc->id;
    alloc->freeing = true;
    struct weir_soft_task *barrier = weir_soft_task_barrier(alloc->ctx);
    weir_soft_task_wait_unlocked(barrier);
    weir_soft_task_put(barrier);
    alloc = weir_soft_space_at(address);
    if (alloc && alloc->id == id) {
        weir_soft_space_free(alloc);
    }
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuIpcGetEventHandle(CUipcEventHandle *ret, CUevent event_handle)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_event *event;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_event_find(event_handle, &event));
    WEIR_FAIL_IF(!event->shared, CUDA_ERROR_INVALID_HANDLE);
    struct handle handle = {.magic = EVENT_MAGIC, .pid = getpid(), .fd = event->shared_fd};
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, &handle, sizeof(handle));
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuIpcOpenEventHandle(CUevent *ret, CUipcEventHandle opaque)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_event *event;
    struct handle handle;
    memcpy(&handle, &opaque, sizeof(handle));
    WEIR_FAIL_IF(!ret || handle.magic != EVENT_MAGIC, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    int fd = handle_open(&handle, "/memfd:weir-softgpu-event");
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_MAP_FAILED);
    WEIR_TRY(
        weir_soft_event_make(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, fd, &event));
    *ret = (CUevent)event;
    return CUDA_SUCCESS;
}
