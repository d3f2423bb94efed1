/* The steps that generated codecs are made of. All checks of lengths are here. */
#pragma once

#include "proto/wire/op_info.h"

#include <string.h>

/* The rest of a record. Once set, `bad` stays set, so decoders check it once, at the end. */
struct weir_codec_reader {
    const uint8_t *at; /* 8-byte aligned */
    size_t left;
    bool bad;
};

static inline size_t weir_codec_pad(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* The size of a message with one more array; INVALID stays INVALID. */
static inline size_t weir_codec_add(size_t bytes, const void *array, uint32_t n, uint32_t max,
                                    size_t elem_bytes)
{
    if (bytes == WEIR_OP_BYTES_INVALID || n > max || (n && !array)) {
        return WEIR_OP_BYTES_INVALID;
    }
    return bytes + weir_codec_pad(n * elem_bytes);
}

/* Bytes of a string with its NUL. Only for strings that weir_codec_add_string() has accepted. */
static inline uint32_t weir_codec_string_bytes(const char *string)
{
    return string ? (uint32_t)strlen(string) + 1 : 1;
}

static inline size_t weir_codec_add_string(size_t bytes, const char *string, uint32_t max)
{
    if (bytes == WEIR_OP_BYTES_INVALID || (string && strnlen(string, max) == max)) {
        return WEIR_OP_BYTES_INVALID;
    }
    return bytes + weir_codec_pad(weir_codec_string_bytes(string));
}

/* Copy an array and zero its padding. Returns the place behind the padding. */
static inline uint8_t *weir_codec_put(uint8_t *at, const void *array, size_t bytes)
{
    size_t padded = weir_codec_pad(bytes);
    if (padded) {
        memset(at + padded - 8, 0, 8);
        memcpy(at, array, bytes);
    }
    return at + padded;
}

/* Take the next array of n elements; NULL: it is empty or does not fit. */
static inline const void *weir_codec_take(struct weir_codec_reader *r, uint32_t n, uint32_t max,
                                          size_t elem_bytes)
{
    size_t bytes;
    if (r->bad || n > max || __builtin_mul_overflow((size_t)n, elem_bytes, &bytes) ||
        bytes > r->left || weir_codec_pad(bytes) > r->left) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *array = r->at;
    r->at += weir_codec_pad(bytes);
    r->left -= weir_codec_pad(bytes);
    return n ? array : NULL;
}

/* Take the next string: n bytes of which only the last one is NUL. */
static inline const char *weir_codec_take_string(struct weir_codec_reader *r, uint32_t n,
                                                 uint32_t max)
{
    const char *string = weir_codec_take(r, n, max, 1);
    if (!string || memchr(string, 0, n) != string + n - 1) {
        r->bad = true;
        return NULL;
    }
    return string;
}
