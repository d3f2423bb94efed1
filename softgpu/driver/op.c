/* Runs and frees operations: the copies, launches and waits of streams and graph nodes. */
#include "base/clock.h"
#include "base/log.h"
#include "softgpu/driver/driver.h"
#include "softgpu/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CLEAR_BYTES (1u << 20) /* from this size on, freeing the pages is worth a system call */

struct weir_soft_op *weir_soft_op_new(enum weir_soft_op_kind kind, struct weir_soft_ctx *ctx)
{
    struct weir_soft_op *op = calloc(1, sizeof(*op));
    if (op) {
        op->kind = kind;
        op->refs = 1;
        op->ctx = weir_soft_object_ref(ctx);
    }
    return op;
}

static void op_finish(struct weir_soft_op *op)
{
    switch (op->kind) {
    case WEIR_SOFT_OP_KERNEL:
        weir_soft_object_put(op->kernel.function);
        free(op->kernel.params);
        free(op->kernel.pointers);
        break;
    case WEIR_SOFT_OP_COPY:
        weir_soft_object_put(op->copy.arrays[0]);
        weir_soft_object_put(op->copy.arrays[1]);
        free(op->copy.staged);
        break;
    case WEIR_SOFT_OP_RECORD:
    case WEIR_SOFT_OP_WAIT:
        weir_soft_object_put(op->event);
        break;
    case WEIR_SOFT_OP_IPC_SIGNAL:
    case WEIR_SOFT_OP_IPC_WAIT:
        weir_soft_object_put(op->ipc.event);
        break;
    case WEIR_SOFT_OP_MEMOPS:
        free(op->memops.items);
        break;
    case WEIR_SOFT_OP_ALLOC:
        weir_soft_graph_memory_put(op->alloc.memory);
        break;
    case WEIR_SOFT_OP_EMPTY:
    case WEIR_SOFT_OP_SET:
    case WEIR_SOFT_OP_HOST:
    case WEIR_SOFT_OP_CALLBACK:
    case WEIR_SOFT_OP_FREE:
        break;
    }
    weir_soft_object_put(op->ctx);
    free(op);
}

static bool of_host(uint64_t address)
{
    const struct weir_soft_alloc *alloc = weir_soft_space_find(address);

    return alloc && alloc->chunk && !alloc->chunk->device;
}

CUresult weir_soft_node_allows(const struct weir_soft_op *op)
{
    bool refused = op->kind == WEIR_SOFT_OP_COPY
                       ? of_host(op->copy.box.src) || of_host(op->copy.box.dst)
                       : op->kind == WEIR_SOFT_OP_SET && of_host(op->set.dst);

    return refused ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

void weir_soft_op_put(struct weir_soft_op *op)
{
    if (op && --op->refs == 0) {
        op_finish(op);
    }
}

/* ------------------------------------------------------------------ copies and sets */

/* Up to this size a copy moves whole aligned words in order, as a GPU's copy engine does: a kernel
 * may wait for a word that a copy writes, or write words that a copy reads. No program expects that
 * of larger copies. */
#define WORDWISE_BYTES 256u

/* A kernel may write memory that a large copy reads; that race is the program's. TSan is told here,
 * because a suppression does not work once TSan has lost the copy's stack. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
static void move_unseen(char *dst, const char *src, uint64_t bytes)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    memmove(dst, src, bytes);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static void move_unseen(char *dst, const char *src, uint64_t bytes)
{
    memmove(dst, src, bytes);
}
#endif

static void copy_row(char *dst, const char *src, uint64_t bytes)
{
    uintptr_t place = (uintptr_t)dst | (uintptr_t)src;
    if (bytes == 8 && place % 8 == 0) {
        uint64_t value = __atomic_load_n((const uint64_t *)(const void *)src, __ATOMIC_ACQUIRE);
        __atomic_store_n((uint64_t *)(void *)dst, value, __ATOMIC_RELEASE);
    } else if (bytes <= WORDWISE_BYTES && bytes % 4 == 0 && place % 4 == 0 &&
               (dst + bytes <= src || src + bytes <= dst)) {
        for (uint64_t at = 0; at < bytes; at += 4) {
            uint32_t value =
                __atomic_load_n((const uint32_t *)(const void *)(src + at), __ATOMIC_ACQUIRE);
            __atomic_store_n((uint32_t *)(void *)(dst + at), value, __ATOMIC_RELEASE);
        }
    } else {
        move_unseen(dst, src, bytes);
    }
}

void weir_soft_box_copy(const struct weir_soft_copy *box)
{
    for (uint64_t z = 0; z < box->depth; z++) {
        const char *src = (const char *)(uintptr_t)(box->src + z * box->src_slice_bytes);
        char *dst = (char *)(uintptr_t)(box->dst + z * box->dst_slice_bytes);
        if (box->src_row_bytes == box->width_bytes && box->dst_row_bytes == box->width_bytes) {
            copy_row(dst, src, box->width_bytes * box->height);
            continue;
        }
        for (uint64_t y = 0; y < box->height; y++) {
            copy_row(dst + y * box->dst_row_bytes, src + y * box->src_row_bytes, box->width_bytes);
        }
    }
}

/* Write zeros. Large ranges are freed in their memfd instead, because new pages read as zeros. */
static void clear(char *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t head = (page - (uintptr_t)at % page) % page, whole = (bytes - head) / page * page;

    if (madvise(at + head, whole, MADV_REMOVE) != 0) { /* it may be other memory */
        memset(at, 0, bytes);
        return;
    }
    memset(at, 0, head);
    memset(at + head + whole, 0, bytes - head - whole);
}

static void fill_memory(const CUDA_MEMSET_NODE_PARAMS *set)
{
    for (size_t y = 0; y < set->height; y++) {
        char *row = (char *)(uintptr_t)(set->dst + y * set->pitch);
        switch (set->elementSize) {
        case 1:
            if ((set->value & 0xff) == 0 && set->width >= CLEAR_BYTES) {
                clear(row, set->width);
                break;
            }
            memset(row, (int)(set->value & 0xff), set->width);
            break;
        case 2: {
            uint16_t value = (uint16_t)set->value;
            for (size_t x = 0; x < set->width; x++) {
                memcpy(row + 2 * x, &value, 2);
            }
            break;
        }
        default: /* kernels may also wait for such a word */
            for (size_t x = 0; x < set->width; x++) {
                uint32_t *word = (uint32_t *)(void *)(row + 4 * x);
                if ((uintptr_t)word % sizeof(*word) == 0) {
                    __atomic_store_n(word, set->value, __ATOMIC_RELEASE);
                } else {
                    memcpy(word, &set->value, sizeof(*word));
                }
            }
            break;
        }
    }
}

/* Is one end of a copy still valid? Device memory may have been freed since the call; host memory
 * is not checked. */
static bool end_is_good(uint64_t base, bool mapped, uint64_t span, uint32_t access)
{
    return (!mapped && !weir_soft_space_in_arena(base)) ||
           weir_soft_memory_covers(base, span, access);
}

static uint64_t span_of(uint64_t row, uint64_t slice, const struct weir_soft_copy *box)
{
    return (box->depth - 1) * slice + (box->height - 1) * row + box->width_bytes;
}

static CUresult run_copy(const struct weir_soft_op *op)
{
    struct weir_soft_copy box = op->copy.box;
    if (box.width_bytes == 0 || box.height == 0 || box.depth == 0) {
        return CUDA_SUCCESS;
    }
    if (op->copy.staged) {
        box.src = (uint64_t)(uintptr_t)op->copy.staged;
    }
    bool src_good =
        op->copy.staged || op->copy.arrays[0] ||
        end_is_good(box.src, op->copy.mapped[0],
                    span_of(box.src_row_bytes, box.src_slice_bytes, &box), WEIR_SOFT_READ);
    bool dst_good =
        op->copy.arrays[1] ||
        end_is_good(box.dst, op->copy.mapped[1],
                    span_of(box.dst_row_bytes, box.dst_slice_bytes, &box), WEIR_SOFT_WRITE);
    WEIR_FAIL_IF(!src_good || !dst_good, CUDA_ERROR_ILLEGAL_ADDRESS);
    weir_soft_box_copy(&box);
    return CUDA_SUCCESS;
}

static CUresult run_set(const CUDA_MEMSET_NODE_PARAMS *set)
{
    if (set->width == 0 || set->height == 0) {
        return CUDA_SUCCESS;
    }
    uint64_t span = (set->height - 1) * set->pitch + set->width * set->elementSize;
    WEIR_FAIL_IF(!weir_soft_memory_covers(set->dst, span, WEIR_SOFT_WRITE),
                 CUDA_ERROR_ILLEGAL_ADDRESS);
    fill_memory(set);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ kernels */

static CUresult run_kernel(const struct weir_soft_op *op)
{
    const struct weir_soft_op_kernel *k = &op->kernel;
    struct weir_exec_fault fault = {0};
    struct weir_exec_launch launch = {
        .kernel = k->function->kernel,
        .grid = {k->grid[0], k->grid[1], k->grid[2]},
        .block = {k->block[0], k->block[1], k->block[2]},
        .dynamic_shared_bytes = k->shared_bytes,
        .params = k->params,
        .params_bytes = k->params_bytes,
        .cooperative = k->cooperative,
        .print = weir_soft_print,
        .heap_bytes = op->ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE],
        .sms = k->in_part ? &k->sms : &op->ctx->device->sms,
        .cancel = &op->ctx->cancel,
    };
    if ((k->attributes_set & 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) != 0) {
        const CUlaunchAttributeValue *v = &k->attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION];
        launch.cluster[0] = v->clusterDim.x;
        launch.cluster[1] = v->clusterDim.y;
        launch.cluster[2] = v->clusterDim.z;
    }
    struct weir_exec_device *engine = op->ctx->device->engine;
    const struct weir_soft_module *module = k->function->module;
    enum weir_status status =
        weir_soft_forms ? weir_soft_forms->run(engine, module->exec, module->twins, &launch, &fault)
                        : weir_exec_run(engine, &launch, &fault);
    if (status == WEIR_OK) {
        return CUDA_SUCCESS;
    }
    const char *name = k->function->info->name;
    if (status == WEIR_ERR_DRIVER) {
        weir_log_warn("softgpu: kernel %s stopped: %s code=%u block=%u,%u,%u thread=%u,%u,%u "
                      "address=0x%llx line=%u",
                      name, fault.message, fault.code, fault.block[0], fault.block[1],
                      fault.block[2], fault.thread[0], fault.thread[1], fault.thread[2],
                      (unsigned long long)fault.address, fault.line);
        return fault.code != 0 ? (CUresult)fault.code : CUDA_ERROR_LAUNCH_FAILED;
    }
    weir_log_warn("softgpu: kernel %s did not run: %s", name, weir_status_text(status));
    return status == WEIR_ERR_CLOSED ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_LAUNCH_FAILED;
}

/* ------------------------------------------------------------------ values in memory */

static void write_value(const CUstreamBatchMemOpParams *item)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint32_t *word = (uint32_t *)(uintptr_t)item->writeValue.address;
    if (item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
        __atomic_store_n(word, item->writeValue.value, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n((uint64_t *)(void *)word, item->writeValue.value64, __ATOMIC_RELEASE);
    }
    weir_futex_wake(word, INT32_MAX); /* another process may sleep on it */
}

static bool value_reached(const CUstreamBatchMemOpParams *item, uint32_t *ret_low)
{
    const void *at = (const void *)(uintptr_t)item->waitValue.address;
    bool wide = item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    uint64_t now = wide ? __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE)
                        : __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
    uint64_t want = wide ? item->waitValue.value64 : item->waitValue.value;
    *ret_low = (uint32_t)now;
    switch (item->waitValue.flags & 0x3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return wide ? (int64_t)(now - want) >= 0 : (int32_t)((uint32_t)now - (uint32_t)want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & want) != 0;
    default: /* NOR */
        return wide ? ~(now | want) != 0 : (uint32_t) ~(now | want) != 0;
    }
}

/* Nobody wakes a waiter when a word changes: it spins, then sleeps briefly between looks. */
#define WAIT_SPINS        2000
#define WAIT_SLEEP_NS     (20 * WEIR_NS_PER_US)
#define WAIT_SLEEP_MAX_NS WEIR_NS_PER_MS

static CUresult wait_value(const CUstreamBatchMemOpParams *item, const struct weir_soft_ctx *ctx)
{
    uint32_t low;
    uint64_t sleep_ns = WAIT_SLEEP_NS;
    for (int spin = 0; !value_reached(item, &low); spin++) {
        WEIR_FAIL_IF(__atomic_load_n(&ctx->closing, __ATOMIC_ACQUIRE) != 0,
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
        if (spin < WAIT_SPINS) {
            weir_cpu_pause();
            continue;
        }
        (void)weir_futex_wait((const uint32_t *)(uintptr_t)item->waitValue.address, low, sleep_ns);
        sleep_ns = sleep_ns * 2 > WAIT_SLEEP_MAX_NS ? WAIT_SLEEP_MAX_NS : sleep_ns * 2;
    }
    return CUDA_SUCCESS;
}

static CUresult run_memops(const struct weir_soft_op *op)
{
    for (uint32_t i = 0; i < op->memops.n_items; i++) {
        const CUstreamBatchMemOpParams *item = &op->memops.items[i];
        bool wide = item->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
                    item->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
        switch (item->operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            if (!weir_soft_memory_covers(item->writeValue.address, wide ? 8 : 4, WEIR_SOFT_WRITE)) {
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            }
            write_value(item);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            if (!weir_soft_memory_covers(item->waitValue.address, wide ? 8 : 4, WEIR_SOFT_READ)) {
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            }
            WEIR_TRY(wait_value(item, op->ctx));
            break;
        case CU_STREAM_MEM_OP_BARRIER:
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ the rest */

static CUresult run_free(const struct weir_soft_op *op)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_alloc *alloc = weir_soft_space_at(op->free.address);
    if (!alloc || alloc->id != op->free.id) {
        return CUDA_SUCCESS; /* the end of its context freed it */
    }
    if (alloc->kind == WEIR_SOFT_ALLOC_GRAPH) {
        return weir_soft_space_set_accessible(alloc, false);
    }
    weir_soft_space_free(alloc);
    return CUDA_SUCCESS;
}

static CUresult run_alloc(const struct weir_soft_op *op)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_alloc *alloc = weir_soft_space_at(op->alloc.memory->base);
    return !alloc || alloc->id != op->alloc.memory->id
               ? CUDA_ERROR_ILLEGAL_ADDRESS
               : weir_soft_space_set_accessible(alloc, true);
}

static CUresult run_ipc(const struct weir_soft_op *op)
{
    struct weir_soft_shared_event *shared = op->ipc.event->shared;
    if (op->kind == WEIR_SOFT_OP_IPC_SIGNAL) {
        uint64_t seen = __atomic_load_n(&shared->happened, __ATOMIC_RELAXED);
        while (seen < op->ipc.value &&
               !__atomic_compare_exchange_n(&shared->happened, &seen, op->ipc.value, false,
                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        }
        __atomic_add_fetch(&shared->bell, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&shared->bell, INT32_MAX);
        return CUDA_SUCCESS;
    }
    for (;;) {
        uint32_t bell = __atomic_load_n(&shared->bell, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&shared->happened, __ATOMIC_ACQUIRE) >= op->ipc.value) {
            return CUDA_SUCCESS;
        }
        WEIR_FAIL_IF(__atomic_load_n(&op->ctx->closing, __ATOMIC_ACQUIRE) != 0,
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
        (void)weir_futex_wait(&shared->bell, bell, 10 * WEIR_NS_PER_MS);
    }
}

CUresult weir_soft_op_run(const struct weir_soft_op *op)
{
    switch (op->kind) {
    case WEIR_SOFT_OP_KERNEL:
        return run_kernel(op);
    case WEIR_SOFT_OP_COPY:
        return run_copy(op);
    case WEIR_SOFT_OP_SET:
        return run_set(&op->set);
    case WEIR_SOFT_OP_HOST:
        op->host.fn(op->host.user);
        return CUDA_SUCCESS;
    case WEIR_SOFT_OP_CALLBACK:
        op->callback.fn(op->callback.stream, op->ctx->sticky, op->callback.user);
        return CUDA_SUCCESS;
    case WEIR_SOFT_OP_MEMOPS:
        return run_memops(op);
    case WEIR_SOFT_OP_ALLOC:
        return run_alloc(op);
    case WEIR_SOFT_OP_FREE:
        return run_free(op);
    case WEIR_SOFT_OP_IPC_SIGNAL:
    case WEIR_SOFT_OP_IPC_WAIT:
        return run_ipc(op);
    case WEIR_SOFT_OP_EMPTY:
    case WEIR_SOFT_OP_RECORD:
    case WEIR_SOFT_OP_WAIT:
        break;
    }
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ device printf */

static pthread_mutex_t print_lock = PTHREAD_MUTEX_INITIALIZER;
static char *print_text;
static size_t print_bytes, print_room;

#define PRINT_FLUSH_BYTES (1u << 20)

static void flush_locked(void)
{
    if (print_bytes > 0) {
        fwrite(print_text, 1, print_bytes, stdout);
        fflush(stdout);
        print_bytes = 0;
    }
}

void weir_soft_print(void *user, const char *text, size_t bytes)
{
    (void)user;
    WEIR_LOCKED(&print_lock);
    if (print_bytes + bytes > print_room) {
        size_t room = (print_bytes + bytes) * 2 + 4096;
        char *grown = realloc(print_text, room);
        if (!grown) {
            return;
        }
        print_text = grown;
        print_room = room;
    }
    memcpy(print_text + print_bytes, text, bytes);
    __atomic_store_n(&print_bytes, print_bytes + bytes, __ATOMIC_RELEASE);
    if (print_bytes >= PRINT_FLUSH_BYTES) {
        flush_locked();
    }
}

void weir_soft_print_flush(void)
{
    if (__atomic_load_n(&print_bytes, __ATOMIC_ACQUIRE) == 0) {
        return;
    }
    WEIR_LOCKED(&print_lock);
    flush_locked();
}
