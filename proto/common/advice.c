#include "proto/common/advice.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

/* Without padding: compared as bytes. A location of type 0 is none. */
struct said {
    uint32_t read_mostly;
    uint32_t accessed_by; /* bit 0: the CPU; 1 + n: device n */
    CUmemLocation preferred, prefetched;
};

struct weir_advice_part {
    uint64_t end; /* offset in the allocation; it begins where the part before ends */
    struct said is;
};

/* ---------------------------------------------------------------- locations */

CUmemLocation weir_advice_location(CUdevice device)
{
    CUmemLocation at;
    memset(&at, 0, sizeof at);
    at.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    at.id = device == CU_DEVICE_CPU ? 0 : device;
    return at;
}

bool weir_advice_is_node(int node)
{
    char path[64];
    int kept = errno;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
    bool is = node == 0 || (node > 0 && access(path, F_OK) == 0);
    errno = kept;
    return is;
}

static CUresult check_node(CUmemLocation *at)
{
    unsigned int cpu, node = 0;
    int kept = errno;
    if (at->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
        (void)syscall(SYS_getcpu, &cpu, &node, NULL);
        errno = kept;
        at->type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        at->id = (int)node;
    }
    return weir_advice_is_node(at->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_advice_check(CUmem_advise advice, CUmemLocation *at, bool exists)
{
    bool nodes = advice == WEIR_ADVICE_PREFETCH || advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    WEIR_FAIL_IF((unsigned int)advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY, CUDA_ERROR_INVALID_VALUE);
    if (advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY ||
        advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
        memset(at, 0, sizeof *at);
        return CUDA_SUCCESS;
    }
    switch ((int)at->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
        at->id = 0;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return nodes ? check_node(at) : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---------------------------------------------------------------- parts */

static void change(struct said *is, CUmem_advise advice, CUmemLocation at)
{
    uint32_t bit = at.type == CU_MEM_LOCATION_TYPE_DEVICE ? 2u << at.id : 1u;
    switch ((int)advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        is->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        is->preferred = at;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        is->accessed_by |= bit;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        is->accessed_by &= ~bit;
        break;
    default:
        is->prefetched = at;
        break;
    }
}

/* Add a part, or let the last one grow if it says the same. */
static void add(struct weir_advice *list, uint64_t end, const struct said *is)
{
    struct weir_advice_part *last = list->n ? &list->parts[list->n - 1] : NULL;
    if (last && memcmp(&last->is, is, sizeof *is) == 0) {
        last->end = end;
    } else if (!last || end > last->end) {
        list->parts[list->n++] = (struct weir_advice_part){end, *is};
    }
}

/* The span's offsets in the allocation, out to whole pages of the address space. */
static void pages_of(const struct weir_advice_span *span, uint64_t *ret_first, uint64_t *ret_end)
{
    uint64_t at = span->address & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t end = span->address + span->count + PAGE_BYTES - 1;
    *ret_first = at > span->base ? at - span->base : 0;
    *ret_end = (end & ~(uint64_t)(PAGE_BYTES - 1)) - span->base;
    *ret_end = *ret_end < span->bytes ? *ret_end : span->bytes;
}

bool weir_advice_say(struct weir_advice *list, const struct weir_advice_span *span,
                     CUmem_advise advice, CUmemLocation at)
{
    const struct weir_advice_part all = {.end = span->bytes};
    const struct weir_advice_part *old = list->n ? list->parts : &all;
    struct weir_advice now = {calloc(list->n + 3, sizeof *now.parts), 0};
    uint64_t first, end, begin = 0;
    WEIR_FAIL_IF(!now.parts, false);
    pages_of(span, &first, &end);
    for (size_t i = 0; i < (list->n ? list->n : 1); i++) {
        struct said is = old[i].is;
        uint64_t stop = old[i].end;
        if (begin < first) {
            add(&now, WEIR_MIN(stop, first), &is);
        }
        if (begin < end && stop > first) {
            change(&is, advice, at);
            add(&now, WEIR_MIN(stop, end), &is);
        }
        if (stop > end) {
            add(&now, stop, &old[i].is);
        }
        begin = stop;
    }
    free(list->parts);
    *list = now;
    return true;
}

void weir_advice_finish(struct weir_advice *list)
{
    free(list->parts);
    *list = (struct weir_advice){0};
}

/* ---------------------------------------------------------------- answers */

static void join(CUmemLocation *all, CUmemLocation one)
{
    if (memcmp(all, &one, sizeof one) != 0) {
        memset(all, 0, sizeof *all);
    }
}

static struct said ask(const struct weir_advice *list, const struct weir_advice_span *span)
{
    struct said all = {0};
    uint64_t first, end, begin = 0;
    bool any = false;
    pages_of(span, &first, &end);
    for (size_t i = 0; i < list->n; i++) {
        const struct said *is = &list->parts[i].is;
        if (begin < end && list->parts[i].end > first) {
            all = any ? all : *is;
            any = true;
            all.read_mostly &= is->read_mostly;
            all.accessed_by &= is->accessed_by;
            join(&all.preferred, is->preferred);
            join(&all.prefetched, is->prefetched);
        }
        begin = list->parts[i].end;
    }
    return all;
}

static CUresult accessed_by(uint32_t bits, void *data, size_t bytes)
{
    WEIR_FAIL_IF(bytes == 0 || bytes % 4 != 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t at = 0; at < bytes; at += 4) {
        int32_t device = bits ? __builtin_ctz(bits) - 1 : CU_DEVICE_INVALID;
        memcpy((char *)data + at, &device, sizeof device);
        bits &= bits - 1;
    }
    return CUDA_SUCCESS;
}

CUresult weir_advice_attribute(const struct weir_advice *list, const struct weir_advice_span *span,
                               CUmem_range_attribute attribute, void *data, size_t bytes)
{
    const struct said is = ask(list, span);
    bool last = attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION ||
                attribute >= CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE;
    const CUmemLocation at = last ? is.prefetched : is.preferred;
    int32_t value;
    if (!data || (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && bytes != sizeof value)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        return accessed_by(is.accessed_by, data, bytes);
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        value = (int32_t)is.read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        value = (int32_t)at.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        value = at.type == CU_MEM_LOCATION_TYPE_DEVICE ? at.id
                : (int)at.type == 0                    ? CU_DEVICE_INVALID
                                                       : CU_DEVICE_CPU;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        value = (int)at.type == 0 ? CU_DEVICE_INVALID : at.id;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}
