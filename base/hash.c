#define XXH_INLINE_ALL
#include "base/hash.h"
#include <string.h>
#include <xxhash.h>

struct weir_hash weir_hash_of(const void *data, size_t len)
{
    XXH128_canonical_t canonical;
    struct weir_hash hash;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(len ? data : "", len));
    memcpy(hash.bytes, canonical.digest, sizeof hash.bytes);
    return hash;
}

uint64_t weir_hash64_of(const void *data, size_t len)
{
    return XXH3_64bits(len ? data : "", len);
}
