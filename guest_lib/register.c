#include "guest_lib/register.h"
#include "base/log.h"
#include "base/memfd.h"
#include "proto/guest_calls.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096ull

/* One registration. */
struct registration {
    uint64_t first_page;
    uint64_t bytes;
    int protection;
    bool shared; /* the program's own shared mapping: its pages are used, not replaced */
    bool region; /* the pages are a part of the virtual machine's region */
};

/* A line of /proc/self/maps. */
struct mapping {
    unsigned long long from, to, offset, inode;
    unsigned int major, minor;
    int protection;
    bool shared;
    char path[400];
};

static struct weir_lock registering; /* replacing pages and sending their descriptor is one step */

static bool parse_mapping(const char *line, struct mapping *map)
{
    char flags[5];
    int path = -1;

    if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &map->from, &map->to, flags, &map->offset,
               &map->major, &map->minor, &map->inode, &path) != 7 ||
        path < 0) {
        return false;
    }
    map->protection = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) |
                      (flags[2] == 'x' ? PROT_EXEC : 0);
    map->shared = flags[3] == 's';
    map->path[0] = 0;
    size_t length = strcspn(line + path, "\n");
    if (length < sizeof map->path) {
        memcpy(map->path, line + path, length);
        map->path[length] = 0;
    }
    return true;
}

/*
 * What the kernel says about the pages. All of them must be mapped, and either private and alike in
 * protection, or one shared mapping: *ret_map is the last that was looked at.
 */
static CUresult examine(uint64_t first, uint64_t bytes, struct mapping *ret_map)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t at = first;
    int protection = -1;
    char line[512];
    CUresult rc = CUDA_SUCCESS;
    while (at < first + bytes && rc == CUDA_SUCCESS && fgets(line, sizeof line, maps)) {
        struct mapping map;
        if (!parse_mapping(line, &map) || map.to <= at) {
            continue;
        }
        if (map.from > at) {
            break;
        }
        if (!(map.protection & PROT_READ) || (protection >= 0 && protection != map.protection) ||
            (map.shared && (at != first || map.to < first + bytes))) {
            rc = CUDA_ERROR_NOT_SUPPORTED;
        }
        protection = map.protection;
        at = map.to;
        *ret_map = map;
    }
    fclose(maps);
    return rc != CUDA_SUCCESS ? rc : at >= first + bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The file of a shared mapping once more; -1: it is not to be had, or another has its name now. */
static int open_mapped(const struct mapping *map)
{
    char link[64];
    struct statx info;
    int fd = open(map->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        /* Without a name: needs CAP_CHECKPOINT_RESTORE, which root of a container may lack. */
        snprintf(link, sizeof link, "/proc/self/map_files/%llx-%llx", map->from, map->to);
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

/* Copy to a new mapping beside it, then move that one over: the pages change in one step. */
static bool replace_pages(uint64_t first, uint64_t bytes, int protection, int flags, int fd,
                          uint64_t offset)
{
    void *old = (void *)(uintptr_t)first;
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    if (made == MAP_FAILED) {
        return false;
    }
    weir_parallel_copy(made, old, bytes);
    if ((protection != (PROT_READ | PROT_WRITE) && mprotect(made, bytes, protection) != 0) ||
        mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old) == MAP_FAILED) {
        munmap(made, bytes);
        return false;
    }
    return true;
}

static bool make_private(const struct registration *reg)
{
    return replace_pages(reg->first_page, reg->bytes, reg->protection, MAP_PRIVATE | MAP_ANONYMOUS,
                         -1, 0);
}

static CUresult tell_host(struct weir_guest_ctx *ctx, const struct registration *reg,
                          unsigned int flags, int fd, uint64_t offset,
                          struct weir_op_host_register_out *ret_out)
{
    struct weir_op_host_register_in in = {.c = ctx->handle,
                                          .address = reg->first_page,
                                          .bytes = reg->bytes,
                                          .flags = flags,
                                          .offset = offset};
    struct weir_channel_extra extra = {.send_fd = fd >= 0, .fd = fd};
    *ret_out = (struct weir_op_host_register_out){0};
    return weir_channel_call_extra(weir_guest_channel(), WEIR_OP_host_register, &in, ret_out,
                                   &extra, false);
}

static CUresult forget_at_host(const struct registration *reg)
{
    return weir_call_host_unregister(
        weir_guest_channel(), &(struct weir_op_host_unregister_in){.address = reg->first_page},
        NULL);
}

/* In a virtual machine the host says which part of the region the pages are to become. */
static CUresult move_pages(struct weir_guest_ctx *ctx, struct registration *reg, unsigned int flags,
                           int region_fd, uint64_t *ret_device_page)
{
    struct weir_op_host_register_out out;
    CUresult rc = tell_host(ctx, reg, flags, -1, 0, &out);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    reg->region = true;
    if (!replace_pages(reg->first_page, reg->bytes, reg->protection, MAP_SHARED, region_fd,
                       out.offset)) {
        rc = forget_at_host(reg);
        return rc == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : rc;
    }
    *ret_device_page = out.device_address;
    return CUDA_SUCCESS;
}

static CUresult share_pages(struct weir_guest_ctx *ctx, const struct registration *reg,
                            unsigned int flags, uint64_t *ret_device_page)
{
    struct weir_op_host_register_out out;
    int fd = weir_memfd_sealed("weir-registered", reg->bytes);
    if (fd < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!replace_pages(reg->first_page, reg->bytes, reg->protection, MAP_SHARED, fd, 0)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult rc = tell_host(ctx, reg, flags, fd, 0, &out);
    *ret_device_page = out.device_address;
    close(fd);
    if (rc != CUDA_SUCCESS && !make_private(reg)) {
        weir_log_warn("guest: pages that were to be registered stay shared memory");
    }
    return rc;
}

/* What the program shares with others already is passed on: NCCL registers files of /dev/shm. */
static CUresult pass_pages(struct weir_guest_ctx *ctx, const struct registration *reg,
                           const struct mapping *map, unsigned int flags, uint64_t *ret_device_page)
{
    struct weir_op_host_register_out out;
    int fd = open_mapped(map);
    if (fd < 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult rc = tell_host(ctx, reg, flags, fd, map->offset + (reg->first_page - map->from), &out);
    *ret_device_page = out.device_address;
    close(fd);
    return rc;
}

static int region_of_session(void)
{
    struct weir_transport *transport = weir_guest.channel.transport;
    return transport->ops->region_fd ? transport->ops->region_fd(transport) : -1;
}

static CUresult register_local(struct weir_mem *mem)
{
    struct registration *reg = calloc(1, sizeof *reg);
    struct mapping map = {0};
    if (!reg) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reg->first_page = mem->base & ~(PAGE_BYTES - 1);
    reg->bytes = ((mem->base + mem->bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)) - reg->first_page;
    uint64_t device_page = 0;
    CUresult rc = examine(reg->first_page, reg->bytes, &map);
    if (rc == CUDA_SUCCESS) {
        reg->protection = map.protection;
        reg->shared = map.shared;
        int region_fd = region_of_session();
        if (region_fd >= 0) {
            rc = map.shared ? CUDA_ERROR_NOT_SUPPORTED
                            : move_pages(mem->ctx, reg, mem->flags, region_fd, &device_page);
        } else {
            rc = map.shared ? pass_pages(mem->ctx, reg, &map, mem->flags, &device_page)
                            : share_pages(mem->ctx, reg, mem->flags, &device_page);
        }
    }
    if (rc != CUDA_SUCCESS) {
        free(reg);
        return rc;
    }
    mem->owner = reg;
    mem->device_base = device_page + (mem->base - reg->first_page);
    return CUDA_SUCCESS;
}

CUresult weir_register_memory(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              unsigned int flags)
{
    WEIR_GUEST_KEEP_ERRNO;
    static char remote_owner; /* tells a registered WEIR_MEM_HOST from an allocated one */
    bool remote = weir_guest.channel.remote;
    struct weir_mem mem = {.base = base,
                           .bytes = bytes,
                           .kind = remote ? WEIR_MEM_HOST : WEIR_MEM_REGISTERED,
                           .flags = flags,
                           .device_base = base,
                           .ctx = ctx,
                           .device = ctx->device,
                           .buffer_id = weir_guest_objects_next_id(),
                           .owner = remote ? &remote_owner : NULL};
    struct weir_mem other;
    weir_lock_acquire(&registering);
    CUresult rc = CUDA_SUCCESS;
    if (weir_mem_find(base, &other) || weir_mem_find(base + bytes - 1, &other)) {
        rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else if (!remote) {
        rc = register_local(&mem);
    }
    if (rc == CUDA_SUCCESS && !weir_mem_insert(&mem)) {
        weir_mem_release(&mem);
        rc = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    weir_lock_release(&registering);
    return rc;
}

void weir_register_undo(const struct weir_mem *mem)
{
    WEIR_GUEST_KEEP_ERRNO;
    struct registration *reg = mem->owner;
    if (reg->region && !make_private(reg)) {
        weir_log_warn("guest: unregistered pages stay in the region until the end");
        free(reg);
        return; /* the host would clear them */
    }
    CUresult rc = forget_at_host(reg);
    if (rc != CUDA_SUCCESS || (!reg->shared && !reg->region && !make_private(reg))) {
        weir_log_warn("guest: unregistered pages stay shared memory, result=%d", (int)rc);
    }
    free(reg);
}
