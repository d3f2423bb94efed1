#include "guest_lib/register.h"
#include "base/log.h"
#include "proto/guest_calls.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096ull

/* One registration: the pages that were replaced. */
struct registration {
    uint64_t first_page;
    uint64_t bytes;
    int protection;
};

static struct weir_lock registering; /* replacing pages and sending their descriptor is one step */

/*
 * What the kernel says about the pages. All of them must be mapped, private and alike in
 * protection: replacing a shared mapping would cut it off from whoever shares it.
 */
static CUresult examine(uint64_t first, uint64_t bytes, int *ret_protection)
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
        unsigned long long from, to;
        char flags[5];
        if (sscanf(line, "%llx-%llx %4s", &from, &to, flags) != 3 || to <= at) {
            continue;
        }
        if (from > at) {
            break;
        }
        int here = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) |
                   (flags[2] == 'x' ? PROT_EXEC : 0);
        if (flags[3] != 'p' || !(here & PROT_READ) || (protection >= 0 && protection != here)) {
            rc = CUDA_ERROR_NOT_SUPPORTED;
        }
        protection = here;
        at = to;
    }
    fclose(maps);
    *ret_protection = protection;
    return rc != CUDA_SUCCESS ? rc : at >= first + bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int make_memfd(uint64_t bytes)
{
    int fd = memfd_create("weir-registered", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Copy to a new mapping beside it, then move that one over: the pages change in one step. */
static bool replace_pages(uint64_t first, uint64_t bytes, int protection, int flags, int fd)
{
    void *old = (void *)(uintptr_t)first;
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
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
                         -1);
}

static CUresult share_pages(struct weir_ctx *ctx, const struct registration *reg,
                            unsigned int flags, uint64_t *ret_device_page)
{
    int fd = make_memfd(reg->bytes);
    if (fd < 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!replace_pages(reg->first_page, reg->bytes, reg->protection, MAP_SHARED, fd)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct weir_op_host_register_in in = {
        .c = ctx->handle, .address = reg->first_page, .bytes = reg->bytes, .flags = flags};
    struct weir_op_host_register_out out = {0};
    struct weir_channel_extra extra = {.send_fd = true, .fd = fd};
    CUresult rc = weir_channel_call_extra(weir_guest_channel(), WEIR_OP_host_register, &in, &out,
                                          &extra, false);
    close(fd);
    if (rc != CUDA_SUCCESS && !make_private(reg)) {
        weir_log_warn("guest: pages that were to be registered stay shared memory");
    }
    *ret_device_page = out.device_address;
    return rc;
}

static CUresult register_local(struct weir_mem *mem)
{
    struct registration *reg = calloc(1, sizeof *reg);
    if (!reg) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reg->first_page = mem->base & ~(PAGE_BYTES - 1);
    reg->bytes = ((mem->base + mem->bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)) - reg->first_page;
    uint64_t device_page = 0;
    CUresult rc = examine(reg->first_page, reg->bytes, &reg->protection);
    rc = rc == CUDA_SUCCESS ? share_pages(mem->ctx, reg, mem->flags, &device_page) : rc;
    if (rc != CUDA_SUCCESS) {
        free(reg);
        return rc;
    }
    mem->owner = reg;
    mem->device_base = device_page + (mem->base - reg->first_page);
    return CUDA_SUCCESS;
}

CUresult weir_register_memory(struct weir_ctx *ctx, uint64_t base, uint64_t bytes,
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
                           .buffer_id = weir_objects_next_id(),
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
    CUresult rc = weir_call_host_unregister(
        weir_guest_channel(), &(struct weir_op_host_unregister_in){.address = reg->first_page},
        NULL);
    if (rc != CUDA_SUCCESS || !make_private(reg)) {
        weir_log_warn("guest: unregistered pages stay shared memory, result=%d", (int)rc);
    }
    free(reg);
}
