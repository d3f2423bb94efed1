/*
 * Finds the exported symbol for a base name, a CUDA version and flags (cuGetProcAddress).
 *
 * A base name has up to four forms (name, name_v2, ...), each of them valid from one CUDA version
 * on, and some forms have a per-thread variant. The answer is the newest form that the requested
 * version has. The guest library and softgpu both use it; the table is generated from proto/api.
 */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/symbols.h"

/* One form of a base name. Sorted by base, variant, since. */
struct weir_procaddr_row {
    const char *base;
    unsigned char variant; /* which variant this form is, for instance the per-thread one */
    int since;             /* CUDA version, 11030 for 11.3 */
    enum weir_symbol symbol;
};
extern const struct weir_procaddr_row weir_procaddr_rows[];
extern const unsigned weir_procaddr_row_count;

/**
 * Find the symbol that cuGetProcAddress_v2 answers with.
 *
 * Per-thread variants are chosen by CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM; a function that
 * has none answers with its only form. Symbol names with a suffix are not base names: not found.
 *
 * @param name        base name; borrowed. NULL is refused.
 * @param version     the CUDA version that the caller was built for.
 * @param flags       CUdriverProcAddress_flags; anything above 3 is refused.
 * @param ret_symbol  WEIR_SYMBOL_NONE when there is none; untouched when refused.
 * @param ret_status  found, not found, or too low a version; untouched when refused. May be NULL.
 * @return CUDA_SUCCESS              also when there is no such symbol.
 * @return CUDA_ERROR_INVALID_VALUE  refused.
 * @thread any
 */
CUresult weir_procaddr_lookup(const char *name, int version, cuuint64_t flags,
                              enum weir_symbol *ret_symbol,
                              CUdriverProcAddressQueryResult *ret_status);

/**
 * The body of cuGetProcAddress_v2, over this library's weir_symbol_address.
 *
 * @param pfn     gets the address, or NULL when there is none. NULL is refused.
 * @param status  as ret_status above.
 * @return as weir_procaddr_lookup().
 * @thread any; also before cuInit
 */
CUresult weir_procaddr_get(const char *name, void **pfn, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult *status);

/**
 * The body of cuGetProcAddress, the first form: no status, and an error when there is no symbol.
 *
 * @return CUDA_ERROR_NOT_FOUND  no such symbol at that version; pfn is untouched.
 * @return otherwise as weir_procaddr_get().
 * @thread any; also before cuInit
 */
CUresult weir_procaddr_get_v1(const char *name, void **pfn, int version, cuuint64_t flags);
