#include "proto/common/procaddr.h"

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define FLAGS_MAX 3u

/* Find the first row of a base name, or return the row count. */
static unsigned find_base(const char *name)
{
    unsigned low = 0, high = weir_procaddr_row_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (strcmp(weir_procaddr_rows[middle].base, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

CUresult weir_procaddr_lookup(const char *name, int version, cuuint64_t flags,
                              enum weir_symbol *ret_symbol,
                              CUdriverProcAddressQueryResult *ret_status)
{
    WEIR_FAIL_IF(!name || flags > FLAGS_MAX, CUDA_ERROR_INVALID_VALUE);
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    unsigned first = find_base(name), end = first;
    bool has_variant = false;
    while (end < weir_procaddr_row_count && !strcmp(weir_procaddr_rows[end].base, name)) {
        has_variant |= weir_procaddr_rows[end++].variant;
    }
    enum weir_symbol symbol = WEIR_SYMBOL_NONE;
    for (unsigned i = first; i < end; i++) {
        const struct weir_procaddr_row *row = &weir_procaddr_rows[i];
        if (row->variant == (per_thread && has_variant) && row->since <= version) {
            symbol = row->symbol; /* rows of one variant ascend by version */
        }
    }
    *ret_symbol = symbol;
    WEIR_GIVE(ret_status, symbol != WEIR_SYMBOL_NONE ? CU_GET_PROC_ADDRESS_SUCCESS
                          : first == end             ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                                                     : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    return CUDA_SUCCESS;
}

CUresult weir_procaddr_get(const char *name, void **pfn, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status)
{
    WEIR_FAIL_IF(!pfn, CUDA_ERROR_INVALID_VALUE);
    enum weir_symbol symbol;
    WEIR_TRY(weir_procaddr_lookup(name, version, flags, &symbol, status));
    *pfn = symbol == WEIR_SYMBOL_NONE ? NULL : weir_symbol_address[symbol];
    return CUDA_SUCCESS;
}

CUresult weir_procaddr_get_v1(const char *name, void **pfn, int version, cuuint64_t flags)
{
    WEIR_FAIL_IF(!pfn, CUDA_ERROR_INVALID_VALUE);
    enum weir_symbol symbol;
    WEIR_TRY(weir_procaddr_lookup(name, version, flags, &symbol, NULL));
    WEIR_FAIL_IF(symbol == WEIR_SYMBOL_NONE, CUDA_ERROR_NOT_FOUND);
    *pfn = weir_symbol_address[symbol];
    return CUDA_SUCCESS;
}
