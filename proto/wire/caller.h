/*
 * The function of the Driver API that sends a request: a number in the request's header, with which
 * the host can name the function when it refuses something. Numbers of symbols are only valid
 * within one build, so the header also has the number of symbols, and the host ignores numbers of
 * another build.
 */
#pragma once

#include "proto/symbols.h"
#include <stddef.h>
#include <stdint.h>

#define WEIR_CALLER_NAME_BYTES 64

/** The status of a request (struct weir_record) that this symbol sends. 0: no function of the
 * Driver API sends it. @thread any */
static inline int32_t weir_caller_of(enum weir_symbol symbol)
{
    _Static_assert(WEIR_SYMBOL_COUNT < 1 << 15, "two numbers fit");
    return (int32_t)(WEIR_SYMBOL_COUNT << 16 | ((int32_t)symbol + 1));
}

/**
 * The function's name as in CUDA's documentation, without the suffix of a form (_v2, _ptsz).
 *
 * @param caller    from the other end.
 * @param fallback  the name if the other end names no function of this build; borrowed.
 * @param name      WEIR_CALLER_NAME_BYTES of room.
 * @return name
 * @thread any
 */
const char *weir_caller_name(int32_t caller, const char *fallback, char *name);
