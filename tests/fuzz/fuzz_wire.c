/*
 * Every decoder of every operation. The first two bytes choose the half, the rest is the body.
 *
 * A body that is accepted must stay inside itself, and must survive encoding and decoding again.
 */
#include "tests/lib/wire_sample.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct wire_half *half, const void *message)
{
    union {
        union weir_op_any_in in;
        union weir_op_any_out out;
    } again;
    size_t bytes = half->bytes(message);
    if (bytes == WEIR_OP_BYTES_INVALID) {
        abort();
    }
    void *body = NULL;
    if (posix_memalign(&body, 8, bytes ? bytes : 8)) {
        return;
    }
    half->encode(message, body);
    if (!half->decode(body, bytes, &again) || wire_sample_difference(half, message, &again)) {
        abort();
    }
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    struct wire_half half = wire_half_get((data[0] | (unsigned)data[1] << 8) % WIRE_HALVES);
    size_t bytes = size - 2;
    void *body = NULL;
    if (posix_memalign(&body, 8, bytes ? bytes : 8)) {
        return 0;
    }
    memcpy(body, data + 2, bytes);
    union {
        union weir_op_any_in in;
        union weir_op_any_out out;
    } message;
    if (half.decode(body, bytes, &message)) {
        if (!wire_sample_inside(&half, &message, body, bytes)) {
            abort();
        }
        check_again(&half, &message);
    }
    free(body);
    return 0;
}
