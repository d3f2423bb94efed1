#include "base/addresses.h"

#include <errno.h>
#include <sys/mman.h>

static void *map_nothing(uint64_t base, uint64_t bytes, int how)
{
    return mmap((void *)(uintptr_t)base, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);
}

bool weir_addresses_hold(uint64_t base, uint64_t bytes)
{
    void *got = map_nothing(base, bytes, MAP_FIXED_NOREPLACE);

    if (got != MAP_FAILED && got != (void *)(uintptr_t)base) {
        munmap(got, bytes); /* a kernel before 4.17 ignores the flag */
        errno = EEXIST;
        return false;
    }
    return got != MAP_FAILED;
}

bool weir_addresses_reclaim(uint64_t base, uint64_t bytes)
{
    return map_nothing(base, bytes, MAP_FIXED) != MAP_FAILED;
}
