/*
 * Keeps the ranges that the program has registered, and decides when their pages are shared with
 * the worker.
 *
 * A range is in the index as WEIR_MEM_REGISTERED; its device address there is 0 until all its pages
 * are shared. Ranges that kernels may find by themselves (DEVICEMAP) are in a list until the next
 * launch. One lock guards all of that, also while pages are replaced: launches wait for it.
 */
#include "guest_lib/register.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/thread.h"
#include "guest_lib/maps.h"
#include "guest_lib/shared_pages.h"
#include "proto/guest_calls.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define POPULATE_READ  22 /* madvise(), Linux 5.14 */
#define POPULATE_WRITE 23

/* The pages of a range are shared once as many bytes have been copied as the range has. Registering
 * 1 MiB takes an H200 0.3 ms. Copies through the staging arena reach a quarter to a half of the
 * bus's rate. A range below 1 MiB counts as 1 MiB. */
#define PAYS_BYTES (1ull << 20)
/* Least cost of an asynchronous copy, which needs a host function, as bytes of a staged copy. */
#define ASYNC_BYTES (64ull << 10)

struct registration {
    uint64_t base;         /* key of the index */
    uint64_t first, bytes; /* the range's pages */
    uint64_t copied;       /* bytes that were copied from or to the range while it was not shared */
    uint64_t passed_device; /* device address of the first page if the program itself shares it;
                               else 0 */
    struct weir_guest_ctx *ctx;
    struct registration *next, **back; /* links in the list `due` */
    bool shared;                       /* the range uses pieces (shared_pages.h) */
    bool hopeless; /* sharing has failed, so it is not tried again for speed alone */
};

/* The lock guards these members. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *due; /* registrations to be shared at the next launch */

uint32_t weir_register_private_count;
static uint32_t graphs_have_kernels; /* atomic: a graph has a kernel */

/* Bounds of all addresses that were registered; atomic, they only grow. */
static uint64_t lowest = UINT64_MAX, highest;

static void leave_due(struct registration *reg)
{
    if (reg->back) {
        *reg->back = reg->next;
        if (reg->next) {
            reg->next->back = reg->back;
        }
        reg->back = NULL;
    }
}

static void join_due(struct registration *reg)
{
    reg->next = due;
    reg->back = &due;
    if (due) {
        due->back = &reg->next;
    }
    due = reg;
}

/* ---------------------------------------------------------------- sharing */

struct runs {
    struct weir_page_run *all;
    size_t n, room;
};

/* Add a run. Runs are added in order; adjacent ones become one. */
static bool add_run(const struct weir_page_run *run, void *user)
{
    struct runs *runs = user;
    struct weir_page_run *last = runs->n ? &runs->all[runs->n - 1] : NULL;
    uint64_t end = run->first + run->bytes, done = last ? last->first + last->bytes : 0;
    if (last && run->first <= done) {
        last->bytes += end > done ? end - done : 0;
        return true;
    }
    WEIR_FAIL_IF(!WEIR_GROW(runs->all, runs->n, runs->room), false);
    assert(runs->all);
    runs->all[runs->n++] = *run;
    return true;
}

static int by_address(const void *a, const void *b)
{
    const struct registration *const *first = a, *const *second = b;
    return (*first)->first < (*second)->first ? -1 : (*first)->first > (*second)->first;
}

static bool use_pieces(struct registration *reg)
{
    uint64_t device;
    WEIR_FAIL_IF(!weir_pages_use(reg->first, reg->bytes, &device), false);
    leave_due(reg);
    reg->shared = true;
    weir_mem_set_device(reg->base, device + (reg->base - reg->first));
    __atomic_sub_fetch(&weir_register_private_count, 1, __ATOMIC_RELAXED);
    return true;
}

/* Share the ranges that are not shared yet. @return CUDA_SUCCESS: all of them are shared now */
static CUresult share_locked(struct registration **regs, size_t n, bool must)
{
    struct runs runs = {0};
    const char *why = NULL;
    CUresult result = CUDA_SUCCESS;
    bool good = true;
    qsort(regs, n, sizeof(struct registration *), by_address);
    for (size_t i = 0; i < n && good; i++) {
        good = weir_pages_visit_gaps(regs[i]->first, regs[i]->bytes, add_run, &runs);
    }
    result = !good    ? CUDA_ERROR_OUT_OF_MEMORY
             : runs.n ? weir_pages_share(regs[0]->ctx, runs.all, runs.n, must, &why)
                      : CUDA_SUCCESS;
    free(runs.all);
    for (size_t i = 0; i < n; i++) {
        if (!use_pieces(regs[i])) {
            weir_pages_sweep(regs[i]->first, regs[i]->bytes);
            regs[i]->hopeless = true;
            result = result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
        }
    }
    if (result != CUDA_SUCCESS && must) {
        weir_log_warn("guest: kernels do not reach registered memory; copies from and to it go on, "
                      "result=%d address=0x%llx ranges=%zu why=\"%s\"",
                      (int)result, (unsigned long long)regs[0]->base, n,
                      why ? why : "the host has no memory, or no such addresses, for it");
    }
    return result;
}

/* Find the private range that contains an address. */
static struct registration *find_locked(uint64_t address)
{
    struct weir_mem mem;
    return weir_mem_find(address, &mem) && mem.kind == WEIR_MEM_REGISTERED && !mem.device_base
               ? mem.owner
               : NULL;
}

/* Share the range of an address. behind: the address may also be the end of a range, from which a
 * kernel counts downwards. */
static CUresult reach(uint64_t address, bool behind)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_mem mem;
    CUresult result = CUDA_SUCCESS;
    WEIR_LOCKED(&lock);
    bool known = weir_mem_find(address, &mem);
    struct registration *reg = known || !behind ? find_locked(address) : find_locked(address - 1);
    if (reg) {
        result = weir_guest.channel.remote ? CUDA_ERROR_NOT_SUPPORTED : share_locked(&reg, 1, true);
    }
    return result;
}

CUresult weir_register_reach(uint64_t address)
{
    return weir_register_any_private() ? reach(address, false) : CUDA_SUCCESS;
}

CUresult weir_register_reach_words(const void *data, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    if (!weir_register_any_private() || weir_guest.channel.remote) {
        return result;
    }
    uint64_t low = __atomic_load_n(&lowest, __ATOMIC_RELAXED);
    uint64_t high = __atomic_load_n(&highest, __ATOMIC_RELAXED);
    for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes && result == CUDA_SUCCESS;
         at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)data + at, sizeof(word));
        result = word - low <= high - low ? reach(word, true) : result;
    }
    return result;
}

/* Share ranges before a launch. A failure is ignored: most kernels do not read the range. */
static void share_due(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const struct registration *reg = due; reg; reg = reg->next) {
        n++;
    }
    struct registration **regs = n ? malloc(n * sizeof(struct registration *)) : NULL;
    for (n = 0; regs && due; n++) {
        regs[n] = due;
        leave_due(due);
    }
    if (n) {
        (void)share_locked(regs, n, true);
    }
    pthread_mutex_unlock(&lock);
    free(regs);
}

void weir_register_before_launch(void)
{
    if (weir_register_any_private() && !weir_guest.channel.remote) {
        share_due();
    }
}

void weir_register_note_graph(void)
{
    __atomic_store_n(&graphs_have_kernels, 1, __ATOMIC_RELAXED);
}

/* ---------------------------------------------------------------- copies */

static CUresult note_copy(uint64_t address, uint64_t bytes, bool writes, bool async)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct weir_mem mem;
    if (!weir_mem_find(address, &mem) || mem.kind != WEIR_MEM_REGISTERED || mem.device_base) {
        return CUDA_SUCCESS;
    }
    WEIR_FAIL_IF(writes && mem.flags & CU_MEMHOSTREGISTER_READ_ONLY, CUDA_ERROR_INVALID_VALUE);
    if (weir_guest.channel.remote) {
        return CUDA_SUCCESS;
    }
    WEIR_LOCKED(&lock);
    struct registration *reg = find_locked(address);
    if (reg && !reg->hopeless && reg->copied >= PAYS_BYTES && reg->copied >= mem.bytes) {
        (void)share_locked(&reg, 1, false);
    } else if (reg) {
        reg->copied += async && bytes < ASYNC_BYTES ? ASYNC_BYTES : bytes;
    }
    return CUDA_SUCCESS;
}

CUresult weir_register_note_copy(uint64_t address, uint64_t bytes, bool writes, bool async)
{
    return weir_register_any_private() ? note_copy(address, bytes, writes, async) : CUDA_SUCCESS;
}

uint64_t weir_register_alike(uint64_t address, uint64_t bytes)
{
    uint64_t device, next;
    if (!__atomic_load_n(&highest, __ATOMIC_RELAXED)) {
        return bytes; /* nothing was ever registered */
    }
    pthread_mutex_lock(&lock);
    uint64_t alike = weir_pages_at(address, &device, &next);
    pthread_mutex_unlock(&lock);
    alike = alike ? alike : next;
    return WEIR_MIN(alike, bytes);
}

bool weir_register_shared(const struct weir_mem *mem, uint64_t address, uint64_t bytes,
                          uint64_t *ret_device)
{
    uint64_t next;
    WEIR_FAIL_IF(!mem->device_base, false);
    pthread_mutex_lock(&lock);
    uint64_t alike = weir_pages_at(address, ret_device, &next);
    pthread_mutex_unlock(&lock);
    if (!alike) { /* the program shares the range itself, as one piece */
        *ret_device = mem->device_base + (address - mem->base);
        alike = mem->base + mem->bytes - address;
    }
    return alike >= bytes;
}

/* ---------------------------------------------------------------- memory that the program itself
 * shares */

struct passing {
    struct registration *reg;
    struct weir_mapping map;
};

static bool find_mapping(const struct weir_mapping *map, void *user)
{
    struct passing *passing = user;
    if (map->to <= passing->reg->first) {
        return true;
    }
    passing->map = *map;
    return false;
}

/* Open the file of a shared mapping again; -1: it cannot be opened, or another file has its name
 * now. */
static int open_mapped(const struct weir_mapping *map)
{
    char link[64];
    struct statx info;
    int fd = open(map->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        /* Open the file without its name. This needs CAP_CHECKPOINT_RESTORE, which root of a
         * container may lack. */
        snprintf(link, sizeof link, "/proc/self/map_files/%llx-%llx", (unsigned long long)map->from,
                 (unsigned long long)map->to);
        fd = open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd >= 0 &&
        (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0 || info.stx_ino != map->inode ||
         info.stx_dev_major != map->major || info.stx_dev_minor != map->minor)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A shared mapping can be duplicated by its address; a private one cannot (Linux 4.14). */
static bool is_programs_shared(uint64_t page)
{
    uint64_t device, next;
    if (weir_pages_at(page, &device, &next)) {
        return false; /* the memory is shared with the worker */
    }
    void *again = mremap((void *)(uintptr_t)page, 0, WEIR_PAGE_BYTES, MREMAP_MAYMOVE);
    if (again == MAP_FAILED) {
        return false;
    }
    munmap(again, WEIR_PAGE_BYTES);
    return true;
}

/*
 * Kernels find addresses of such memory in device memory (NCCL), so its file is passed to the
 * worker at once. If that fails, only copies work.
 */
static void pass_locked(struct registration *reg, unsigned int flags)
{
    struct passing passing = {.reg = reg};
    struct weir_mapping *map = &passing.map;
    if (!weir_guest.channel.passes_fds || !weir_maps_visit(find_mapping, &passing) ||
        !map->shared || map->from > reg->first || map->to < reg->first + reg->bytes) {
        return;
    }
    int fd = open_mapped(map);
    if (fd < 0) {
        return;
    }
    struct weir_op_host_register_in in = {.c = reg->ctx->handle,
                                          .address = reg->first,
                                          .bytes = reg->bytes,
                                          .flags = flags,
                                          .offset = map->offset + (reg->first - map->from)};
    struct weir_op_host_register_out out = {0};
    struct weir_channel_extra extra = {.send_fd = true, .fd = fd};
    if (weir_channel_call_extra(weir_guest_channel(), WEIR_OP_host_register, &in, &out, &extra,
                                false) == CUDA_SUCCESS) {
        reg->passed_device = out.device_address;
    }
    close(fd);
}

/* ---------------------------------------------------------------- registering */

/* Test one page where madvise() cannot: a system call reads a word of it, or adds 0 to it. */
static bool is_usable(uint64_t page, bool write)
{
    static const struct timespec at_once;
    static uint32_t unused;
    if (write) {
        return syscall(SYS_futex, &unused, FUTEX_WAKE_OP_PRIVATE, 0, 0L, page,
                       FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) >= 0;
    }
    long waited = syscall(SYS_futex, page, FUTEX_WAIT_PRIVATE, 0, &at_once, NULL, 0);
    return waited == 0 || errno == EAGAIN || errno == ETIMEDOUT;
}

/* Could the driver pin the range? Makes the pages present, as pinning would. */
static CUresult check_pages(uint64_t first, uint64_t bytes, bool write)
{
    struct sysinfo machine;
    bool good =
        madvise((void *)(uintptr_t)first, bytes, write ? POPULATE_WRITE : POPULATE_READ) == 0;
    WEIR_FAIL_IF(!good && sysinfo(&machine) == 0 && bytes / machine.mem_unit > machine.totalram,
                 CUDA_ERROR_OUT_OF_MEMORY);
    for (uint64_t at = 0; at < bytes && !good; at += WEIR_PAGE_BYTES) {
        WEIR_FAIL_IF(!is_usable(first + at, write), CUDA_ERROR_INVALID_VALUE);
    }
    return CUDA_SUCCESS;
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    weir_pages_before_fork();
}

static void in_parent(void)
{
    weir_pages_after_fork(false);
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    weir_pages_after_fork(true);
    pthread_mutex_init(&lock, NULL);
}

static void prepare_once(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

static void widen(uint64_t low, uint64_t high)
{
    if (low < __atomic_load_n(&lowest, __ATOMIC_RELAXED)) {
        __atomic_store_n(&lowest, low, __ATOMIC_RELAXED);
    }
    if (high > __atomic_load_n(&highest, __ATOMIC_RELAXED)) {
        __atomic_store_n(&highest, high, __ATOMIC_RELAXED);
    }
}

/* Add the range to the index: from then on other threads may find it. */
static CUresult enter_locked(struct weir_mem *mem, struct registration *reg)
{
    bool remote = weir_guest.channel.remote;
    if (!remote && is_programs_shared(reg->first)) {
        pass_locked(reg, mem->flags);
    }
    mem->owner = reg;
    mem->device_base = reg->passed_device ? reg->passed_device + (reg->base - reg->first) : 0;
    widen(mem->base, mem->base + mem->bytes);
    WEIR_FAIL_IF(!weir_mem_insert(mem), CUDA_ERROR_OUT_OF_MEMORY);
    if (!mem->device_base) {
        __atomic_add_fetch(&weir_register_private_count, 1, __ATOMIC_RELAXED);
    }
    if (!mem->device_base && !remote &&
        (mem->flags & CU_MEMHOSTREGISTER_DEVICEMAP ||
         __atomic_load_n(&graphs_have_kernels, __ATOMIC_RELAXED))) {
        join_due(reg);
    }
    return CUDA_SUCCESS;
}

CUresult weir_register_memory(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              unsigned int flags)
{
    WEIR_GUEST_KEEP_ERRNO;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct weir_mem mem = {.base = base,
                           .bytes = bytes,
                           .kind = WEIR_MEM_REGISTERED,
                           .flags = flags,
                           .ctx = ctx,
                           .device = ctx->device,
                           .buffer_id = weir_guest_objects_next_id()};
    struct weir_mem other;
    struct registration *reg = calloc(1, sizeof(*reg));
    WEIR_FAIL_IF(!reg, CUDA_ERROR_OUT_OF_MEMORY);
    reg->base = base;
    reg->ctx = ctx;
    reg->first = base & ~(WEIR_PAGE_BYTES - 1);
    reg->bytes = ((base + bytes + WEIR_PAGE_BYTES - 1) & ~(WEIR_PAGE_BYTES - 1)) - reg->first;
    pthread_once(&once, prepare_once);
    pthread_mutex_lock(&lock);
    CUresult result;
    if (weir_mem_overlapping(base, bytes, &other)) {
        result = other.kind == WEIR_MEM_REGISTERED ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                   : CUDA_ERROR_INVALID_VALUE;
    } else {
        result = check_pages(reg->first, reg->bytes, !(flags & CU_MEMHOSTREGISTER_READ_ONLY));
    }
    result = result == CUDA_SUCCESS ? enter_locked(&mem, reg) : result;
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) {
        free(reg);
    }
    return result;
}

void weir_register_undo(const struct weir_mem *mem)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct registration *reg = mem->owner;
    pthread_mutex_lock(&lock);
    leave_due(reg);
    if (reg->passed_device) {
        const struct weir_op_host_unregister_in in = {.device_address = reg->passed_device};
        (void)weir_call_host_unregister(weir_guest_channel(), &in, NULL);
    } else if (reg->shared) {
        weir_pages_leave(reg->first, reg->bytes);
    } else {
        __atomic_sub_fetch(&weir_register_private_count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
    free(reg);
}
