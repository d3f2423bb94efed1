/*
 * Reserved addresses. They are in a sorted array. Reservations up to SMALL_BYTES are blocks of
 * slabs; a slab is a larger reservation at the host, which is kept. Every slab and large
 * reservation is also mapped here, without access, so that no other mapping of this process uses a
 * device address.
 */
#include "base/addresses.h"
#include "base/grow.h"
#include "base/log.h"
#include "guest_lib/range.h"
#include "guest_lib/vmm.h"
#include "proto/guest_calls.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_BYTES  (16ull << 30)
#define SMALL_BYTES (1ull << 30)
/* Driver 580 ignores the requested address of a smaller reservation (seen with 4 MiB), and rounds
 * that of larger ones to this (H200, 2026-11-29), so no address is requested for smaller ones. */
#define WISH_BYTES (32ull << 20)

struct space {
    uint64_t base, bytes;
    struct weir_range_block *block; /* the block of a slab; NULL: a reservation of the host */
};

struct slab {
    struct weir_range_region region;
    struct slab *next;
};

/* Guarded by lock, except low and high: low only decreases, high only increases. */
static struct {
    struct weir_lock lock;
    struct space *all; /* sorted by base */
    size_t n, room;
    struct weir_range_heap small;
    struct slab *slabs;
    uint64_t low, high; /* atomic; all reservations lie between them */
    bool expects_host;  /* atomic; the program has named host memory .. */
    bool names_host;    /* atomic; .. and not memory of a device since */
} spaces;

/* The kind of memory that this thread has named last. */
static __thread enum { NAMES_NOTHING, NAMES_DEVICE, NAMES_HOST } names;

void weir_guest_vmm_name(bool host)
{
    names = host ? NAMES_HOST : NAMES_DEVICE;
    __atomic_store_n(&spaces.names_host, host, __ATOMIC_RELAXED);
    if (host) {
        __atomic_store_n(&spaces.expects_host, true, __ATOMIC_RELAXED);
    }
}

/* Are the next addresses for host memory? Large ones are not in a slab. So the driver can give them
 * to the worker, but it may not take them back. */
static bool is_for_host(uint64_t bytes)
{
    bool last = __atomic_load_n(&spaces.names_host, __ATOMIC_RELAXED);
    return bytes <= SMALL_BYTES && (names == NAMES_NOTHING ? last : names == NAMES_HOST);
}

bool weir_guest_vmm_expects_host(void)
{
    return __atomic_load_n(&spaces.expects_host, __ATOMIC_RELAXED);
}

uint64_t weir_guest_vmm_unit(void)
{
    return weir_guest.granularity_bytes;
}

static size_t upper_locked(uint64_t address)
{
    size_t low = 0, high = spaces.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spaces.all[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool weir_guest_vmm_is_reserved(uint64_t address)
{
    if (address < __atomic_load_n(&spaces.low, __ATOMIC_RELAXED) ||
        address >= __atomic_load_n(&spaces.high, __ATOMIC_RELAXED)) {
        return false;
    }
    WEIR_GUEST_LOCKED(&spaces.lock);
    size_t at = upper_locked(address);
    return at > 0 && address - spaces.all[at - 1].base < spaces.all[at - 1].bytes;
}

static bool add_locked(uint64_t base, uint64_t bytes, struct weir_range_block *block)
{
    WEIR_FAIL_IF(!WEIR_GROW(spaces.all, spaces.n, spaces.room), false);
    size_t at = upper_locked(base);
    memmove(spaces.all + at + 1, spaces.all + at, (spaces.n - at) * sizeof *spaces.all);
    spaces.all[at] = (struct space){base, bytes, block};
    spaces.n++;
    if (!spaces.low || base < spaces.low) {
        __atomic_store_n(&spaces.low, base, __ATOMIC_RELAXED);
    }
    if (base + bytes > spaces.high) {
        __atomic_store_n(&spaces.high, base + bytes, __ATOMIC_RELAXED);
    }
    return true;
}

/* ---------------------------------------------------------------- the host's reservations */

static bool hold_here(uint64_t base, uint64_t bytes)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (weir_guest.same_process || weir_addresses_hold(base, bytes)) {
        return true;
    }
    weir_log_warn("guest: reserved addresses are in use here, base=0x%llx bytes=%llu",
                  (unsigned long long)base, (unsigned long long)bytes);
    return false;
}

static void give_back(uint64_t base, uint64_t bytes, bool held)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (held && !weir_guest.same_process) {
        munmap((void *)(uintptr_t)base, bytes);
    }
    struct weir_op_vmm_unreserve_in in = {.base = base};
    if (weir_post_vmm_unreserve(weir_guest_channel(), &in) != CUDA_SUCCESS) {
        weir_log_warn("guest: addresses were not taken back");
    }
}

static CUresult call_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint,
                             struct weir_op_vmm_reserve_out *out)
{
    if (is_for_host(bytes)) {
        struct weir_op_vmm_reserve_any_in any = {
            .bytes = bytes, .alignment = alignment, .hint = hint};
        struct weir_op_vmm_reserve_any_out got = {0};
        CUresult result = weir_call_vmm_reserve_any(weir_guest_channel(), &any, &got);
        out->base = got.base;
        return result;
    }
    struct weir_op_vmm_reserve_in in = {.bytes = bytes, .alignment = alignment, .hint = hint};
    return weir_call_vmm_reserve(weir_guest_channel(), &in, out);
}

static CUresult ask_host(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *ret_base)
{
    struct weir_op_vmm_reserve_out out = {0};
    WEIR_TRY(call_reserve(bytes, alignment, hint, &out));
    if (out.base % weir_guest_vmm_unit() || out.base + bytes < out.base || !out.base) {
        weir_log_error("guest: the host reserved impossible addresses");
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (!hold_here(out.base, bytes)) {
        give_back(out.base, bytes, false);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_base = out.base;
    return CUDA_SUCCESS;
}

static CUresult add_slab_locked(void)
{
    uint64_t base;
    struct slab *slab = calloc(1, sizeof *slab);
    CUresult result = slab ? ask_host(SLAB_BYTES, 0, 0, &base) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS &&
        !weir_guest_range_add(&spaces.small, &slab->region, base, SLAB_BYTES)) {
        give_back(base, SLAB_BYTES, true);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        free(slab);
        return result;
    }
    WEIR_PUSH(spaces.slabs, slab);
    return CUDA_SUCCESS;
}

/* The block may begin before the reservation, to align it. */
static CUresult reserve_small_locked(uint64_t bytes, uint64_t alignment, uint64_t *ret_base)
{
    uint64_t unit = weir_guest_vmm_unit();
    uint64_t room = bytes + (alignment > unit ? alignment - unit : 0);
    spaces.small.grain_bytes = unit;
    struct weir_range_block *block = weir_guest_range_take(&spaces.small, room);
    if (!block) {
        CUresult result = add_slab_locked();
        block = result == CUDA_SUCCESS ? weir_guest_range_take(&spaces.small, room) : NULL;
        if (!block) {
            return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    uint64_t base =
        alignment > unit ? (block->base + alignment - 1) & ~(alignment - 1) : block->base;
    if (!add_locked(base, bytes, block)) {
        weir_guest_range_give(&spaces.small, block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_base = base;
    return CUDA_SUCCESS;
}

static CUresult reserve_large_locked(uint64_t bytes, uint64_t alignment, uint64_t hint,
                                     uint64_t *ret_base)
{
    uint64_t base;
    WEIR_TRY(ask_host(bytes, alignment, hint, &base));
    if (!add_locked(base, bytes, NULL)) {
        give_back(base, bytes, true);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_base = base;
    return CUDA_SUCCESS;
}

CUresult weir_guest_vmm_reserve(uint64_t bytes, uint64_t alignment, uint64_t hint,
                                uint64_t *ret_base)
{
    bool small = bytes <= SMALL_BYTES && alignment <= SMALL_BYTES && !is_for_host(bytes);
    hint = bytes < WISH_BYTES ? 0 : hint;
    WEIR_GUEST_LOCKED(&spaces.lock);
    CUresult result = small && !hint ? reserve_small_locked(bytes, alignment, ret_base)
                                     : CUDA_ERROR_OUT_OF_MEMORY;
    /* Without room for a slab, try this reservation alone. */
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = reserve_large_locked(bytes, alignment, hint, ret_base);
    }
    return result;
}

CUresult weir_guest_vmm_unreserve(uint64_t base, uint64_t bytes)
{
    WEIR_GUEST_LOCKED(&spaces.lock);
    struct weir_mem mapped;
    size_t at = upper_locked(base);
    struct space *space = at > 0 ? &spaces.all[at - 1] : NULL;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (space && space->base == base && space->bytes == bytes &&
        !weir_mem_overlapping(base, bytes, &mapped)) {
        if (space->block) {
            weir_guest_range_give(&spaces.small, space->block);
        } else {
            give_back(base, bytes, true);
        }
        spaces.n--;
        memmove(space, space + 1, (spaces.n - (at - 1)) * sizeof *space);
        result = CUDA_SUCCESS;
    }
    return result;
}

bool weir_guest_vmm_in_one_space(uint64_t base, uint64_t bytes)
{
    WEIR_GUEST_LOCKED(&spaces.lock);
    size_t at = upper_locked(base);
    const struct space *space = at > 0 ? &spaces.all[at - 1] : NULL;
    return space && base - space->base < space->bytes &&
           bytes <= space->bytes - (base - space->base);
}

void weir_guest_vmm_spaces_finish(void)
{
    for (size_t i = 0; i < spaces.n; i++) {
        if (!spaces.all[i].block && !weir_guest.same_process) {
            munmap((void *)(uintptr_t)spaces.all[i].base, spaces.all[i].bytes);
        }
    }
    for (struct slab *slab; (slab = WEIR_POP(spaces.slabs));) {
        if (!weir_guest.same_process) {
            munmap((void *)(uintptr_t)slab->region.base, slab->region.bytes);
        }
        weir_guest_range_remove(&spaces.small, &slab->region);
        free(slab);
    }
    weir_guest_range_finish(&spaces.small);
    free(spaces.all);
    memset(&spaces, 0, sizeof spaces);
}
