/* Encodes and decodes control messages. Private to proto/wire; tests and fuzzers use it, too. */
#pragma once

#include "base/status.h"
#include "proto/wire/control.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An encoded message. Zeroed is empty; free bytes with free(). */
struct weir_control_bytes {
    uint8_t *bytes;
    size_t len;
};

/**
 * Encode. The struct's texts are NUL-terminated.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_TOO_BIG (over WEIR_CONTROL_MAX_BYTES)
 * @thread any
 */
enum weir_status weir_hello_encode(const struct weir_hello *hello,
                                   struct weir_control_bytes *ret_bytes) WEIR_MUST_CHECK;
enum weir_status weir_welcome_encode(const struct weir_welcome *welcome,
                                     struct weir_control_bytes *ret_bytes) WEIR_MUST_CHECK;

/**
 * Decode, and check everything that control.h guarantees.
 * @return WEIR_OK, WEIR_ERR_PEER (not such a message, or over a limit), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_hello_decode(const uint8_t *bytes, size_t len,
                                   struct weir_hello **ret_hello) WEIR_MUST_CHECK;
enum weir_status weir_welcome_decode(const uint8_t *bytes, size_t len,
                                     struct weir_welcome **ret_welcome) WEIR_MUST_CHECK;

struct weir_welcome_params;

/**
 * Make the welcome that params describe, without transport, segment and endpoint. Its device's
 * arrays are borrowed from params: do not call weir_welcome_destroy().
 * @thread any
 */
void weir_welcome_prepare(const struct weir_welcome_params *params,
                          struct weir_welcome *ret_welcome);

/** Encode a refusal with this message. @thread any */
enum weir_status weir_refusal_encode(enum weir_status reason, int32_t result, const char *message,
                                     struct weir_control_bytes *ret_bytes) WEIR_MUST_CHECK;

/** Does the hello's version fit ours? If not, why, for people. @thread any */
bool weir_hello_fits(const struct weir_hello *hello, char *ret_why, size_t why_bytes);

/** CUresult for a guest whose version does not fit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH. */
#define WEIR_RESULT_VERSION 803

/** Copy text into a field, cut to fit; NULL is "". @thread any */
void weir_text_set(char *field, size_t field_bytes, const char *text);
