/*
 * Advice on parts of managed memory, and prefetches: what queries say of ranges, and which calls
 * fail.
 */
#include "check_driver.h"

#define PART   ((size_t)256 << 10)
#define PAGE   ((size_t)4096)
#define NONE   CU_DEVICE_INVALID
#define DEVICE CU_MEM_LOCATION_TYPE_DEVICE
#define HOST   CU_MEM_LOCATION_TYPE_HOST
#define NODE   CU_MEM_LOCATION_TYPE_HOST_NUMA

static CUdeviceptr at; /* four parts */

static CUresult advise(size_t first, size_t bytes, CUmem_advise advice, CUmemLocationType type,
                       int id)
{
    CUmemLocation location;

    memset(&location, 0, sizeof location);
    location.type = type;
    location.id = id;
    return CU(MemAdvise_v2)(at + first, bytes, advice, location);
}

static CUresult prefetch(size_t first, size_t bytes, CUmemLocationType type, int id)
{
    CUmemLocation location;

    memset(&location, 0, sizeof location);
    location.type = type;
    location.id = id;
    return CU(MemPrefetchAsync_v2)(at + first, bytes, location, 0, NULL);
}

static int of(CUmem_range_attribute attribute, size_t first, size_t bytes)
{
    int value = 99;

    DRV(CU(MemRangeGetAttribute)(&value, sizeof value, attribute, at + first, bytes));
    return value;
}

static void check_ask(CUmem_range_attribute attribute, size_t first, size_t bytes, int want,
                      const char *label)
{
    check_int(of(attribute, first, bytes), want, label);
}

static void of_parts(void)
{
    const CUmem_range_attribute mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    const CUmem_range_attribute place = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
    const CUmem_range_attribute last = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;

    check_ask(place, 0, 4 * PART, NONE, "nothing was said");
    DRV(advise(PART, PART, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST, 0));
    check_ask(mostly, PART, PART, 1, "read mostly");
    check_ask(mostly, PART + 100, 8, 1, "a part of that");
    check_ask(mostly, 0, 4 * PART, 0, "not all of it");
    check_ask(mostly, PART - 1, 2, 0, "and not what crosses its begin");
    check_ask(mostly, 2 * PART, 1, 0, "nor what is behind it");
    DRV(advise(0, PART, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST, 0));
    check_ask(mostly, 0, 2 * PART, 1, "two parts in a row");
    DRV(advise(PART, PART / 2, CU_MEM_ADVISE_UNSET_READ_MOSTLY, HOST, 0));
    check_ask(mostly, PART, 1, 0, "taken back in the middle");
    check_ask(mostly, PART + PART / 2, PART / 2, 1, "but not behind it");

    DRV(advise(0, 2 * PART, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, DEVICE, 0));
    DRV(advise(2 * PART, 2 * PART, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, HOST, 7));
    check_ask(place, 0, 2 * PART, 0, "the device is preferred");
    check_ask(place, 2 * PART, 2 * PART, CU_DEVICE_CPU, "the processor");
    check_ask(place, 0, 4 * PART, NONE, "no place for both");
    check_ask(mostly, 0, PART, 1, "other advice stays");
    DRV(advise(PART + 10, 1, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, HOST, 0));
    check_ask(place, PART, PAGE, NONE, "a whole page is meant");
    check_ask(place, PART + PAGE, PART - PAGE, 0, "and no more");

    DRV(prefetch(0, 3 * PART, DEVICE, 0));
    check_ask(last, 0, 4 * PART, NONE, "not all of it was prefetched");
    check_ask(last, 0, 3 * PART, 0, "to the device");
    DRV(prefetch(0, PART, HOST, 0));
    check_ask(last, 0, PART, CU_DEVICE_CPU, "to the processor");
    check_ask(last, 0, 2 * PART, NONE, "to different places");
}

/* What is discarded is not prefetched. */
static void of_discarded(void)
{
    CUresult (*discard)(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream) =
        (__typeof__(discard))dlsym(RTLD_DEFAULT, "cuMemDiscardBatchAsync");
    size_t bytes = PART, none = 0;

    if (!discard) {
        return; /* before CUDA 13 */
    }
    DRV(prefetch(0, PART, DEVICE, 0));
    DRV(discard(&at, &bytes, 1, 0, CU_STREAM_PER_THREAD));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, PART, 0, "discarded");
    check_code(discard(&at, &none, 1, 0, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_VALUE,
               "nothing is discarded");
    check_code(discard(&at, &bytes, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE, "the legacy stream");
}

static void of_locations(void)
{
    int by[3] = {9, 9, 9}, good;

    DRV(advise(0, 4 * PART, CU_MEM_ADVISE_SET_ACCESSED_BY, DEVICE, 0));
    DRV(advise(0, PART, CU_MEM_ADVISE_SET_ACCESSED_BY, HOST, 0));
    DRV(CU(MemRangeGetAttribute)(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, 4 * PART));
    check_true(by[0] == 0 && by[1] == NONE && by[2] == NONE, "who accesses all of it");
    DRV(CU(MemRangeGetAttribute)(by, sizeof by, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, PART));
    good = (by[0] == 0 && by[1] == CU_DEVICE_CPU) || (by[1] == 0 && by[0] == CU_DEVICE_CPU);
    check_true(good && by[2] == NONE, "and who the first part");
    DRV(advise(0, PART, CU_MEM_ADVISE_UNSET_ACCESSED_BY, HOST, 0));
    DRV(CU(MemRangeGetAttribute)(by, 4, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, PART));
    check_int(by[0], 0, "one is left");

    DRV(advise(0, PART, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, DEVICE, 0));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 0, PART, DEVICE, "a device's type");
    check_ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, 0, PART, 0, "its number");
    check_ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 0, 4 * PART,
              CU_MEM_LOCATION_TYPE_INVALID, "no type for different places");
    DRV(advise(0, PART, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, NODE, 0));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 0, PART, NODE, "a node's type");
    check_ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, 0, PART, 0, "its number");
    DRV(prefetch(0, PART, NODE, 0));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, 0, PART, NODE,
              "a prefetch to a node");
    DRV(prefetch(0, PART, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0));
    DRV(prefetch(0, PART, HOST, 0));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, 0, PART, HOST,
              "a prefetch to the processor");
}

static void of_errors(void)
{
    int two[2] = {0};

    check_code(advise(0, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST, 0), CUDA_ERROR_INVALID_VALUE,
               "advice on nothing");
    check_code(advise(0, PART, (CUmem_advise)0, HOST, 0), CUDA_ERROR_INVALID_VALUE,
               "no such advice");
    check_code(advise(0, PART, (CUmem_advise)99, HOST, 0), CUDA_ERROR_INVALID_VALUE,
               "no such advice either");
    check_code(advise(0, PART, CU_MEM_ADVISE_SET_ACCESSED_BY, DEVICE, 77),
               CUDA_ERROR_INVALID_DEVICE, "no such device");
    check_code(advise(0, PART, CU_MEM_ADVISE_SET_ACCESSED_BY, NODE, 0), CUDA_ERROR_INVALID_VALUE,
               "a node accesses nothing");
    check_code(prefetch(0, PART, DEVICE, 77), CUDA_ERROR_INVALID_DEVICE, "a prefetch to no device");
    check_code(prefetch(0, PART, (CUmemLocationType)42, 0), CUDA_ERROR_INVALID_VALUE,
               "a prefetch to no kind of place");
    check_code(prefetch(0, 0, DEVICE, 0), CUDA_ERROR_INVALID_VALUE, "a prefetch of nothing");
    check_code(CU(MemRangeGetAttribute)(two, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, PART),
               CUDA_ERROR_INVALID_VALUE, "a place of the wrong size");
    check_code(CU(MemRangeGetAttribute)(two, 6, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, PART),
               CUDA_ERROR_INVALID_VALUE, "half a word");
    check_code(CU(MemRangeGetAttribute)(two, 4, (CUmem_range_attribute)99, at, PART),
               CUDA_ERROR_INVALID_VALUE, "no such attribute");
    check_code(CU(MemRangeGetAttribute)(two, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 0),
               CUDA_ERROR_INVALID_VALUE, "of nothing");
}

/* What was said of memory does not outlive it. */
static void of_other_memory(void)
{
    CUdeviceptr device;

    DRV(advise(0, 4 * PART, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST, 0));
    DRV(cu.MemFree_v2(at));
    DRV(CU(MemAllocManaged)(&at, 4 * PART, CU_MEM_ATTACH_GLOBAL));
    check_ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 4 * PART, 0, "of other memory");
    DRV(cu.MemFree_v2(at));
    DRV(cu.MemAlloc_v2(&device, PART));
    at = device;
    check_code(advise(0, PART, CU_MEM_ADVISE_SET_READ_MOSTLY, HOST, 0), CUDA_ERROR_INVALID_VALUE,
               "memory that is not managed");
    check_code(prefetch(0, PART, DEVICE, 0), CUDA_ERROR_INVALID_VALUE, "nor prefetched");
    DRV(cu.MemFree_v2(device));
}

int main(void)
{
    CUresult result;

    driver_begin("drv_managed_advice");
    result = CU(MemAllocManaged)(&at, 4 * PART, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        check_skip("no managed memory"); /* over a network */
    }
    DRV(result);
    of_parts();
    of_discarded();
    of_locations();
    of_errors();
    of_other_memory();
    return driver_end();
}
