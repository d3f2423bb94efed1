/*
 * The handshake's messages. What decodes must keep control.h's promises, and what is encoded again
 * must decode to the same.
 */
#include "proto/wire/control_codec.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void try_hello(const uint8_t *data, size_t size)
{
    struct weir_hello *hello, *again;
    struct weir_control_bytes bytes;
    if (weir_hello_decode(data, size, &hello) != WEIR_OK) {
        return;
    }
    require(hello->n_transports <= WEIR_CONTROL_MAX_TRANSPORTS);
    require(strnlen(hello->program, sizeof hello->program) < sizeof hello->program);
    require(weir_hello_encode(hello, &bytes) == WEIR_OK);
    require(weir_hello_decode(bytes.bytes, bytes.len, &again) == WEIR_OK);
    require(memcmp(hello, again, sizeof *hello) == 0);
    free(bytes.bytes);
    weir_hello_destroy(hello);
    weir_hello_destroy(again);
}

static void same_device(const struct weir_device *one, const struct weir_device *other)
{
    require(one->n_attributes == other->n_attributes && one->n_facts == other->n_facts);
    require(one->n_attributes <= WEIR_CONTROL_MAX_ATTRIBUTES);
    require(one->n_facts <= WEIR_CONTROL_MAX_FACTS);
    for (uint32_t i = 0; i < one->n_attributes; i++) {
        require(one->attributes[i].id == other->attributes[i].id &&
                one->attributes[i].value == other->attributes[i].value);
    }
    for (uint32_t i = 0; i < one->n_facts; i++) {
        require(strcmp(one->facts[i].key, other->facts[i].key) == 0);
    }
}

static void try_welcome(const uint8_t *data, size_t size)
{
    struct weir_welcome *welcome, *again;
    struct weir_control_bytes bytes;
    if (weir_welcome_decode(data, size, &welcome) != WEIR_OK) {
        return;
    }
    require(strnlen(welcome->tenant, sizeof welcome->tenant) < sizeof welcome->tenant);
    /* Only a message whose unknown fields or defaults took no room can grow beyond the limit. */
    enum weir_status status = weir_welcome_encode(welcome, &bytes);
    if (status == WEIR_OK) {
        require(weir_welcome_decode(bytes.bytes, bytes.len, &again) == WEIR_OK);
        require(again->status == welcome->status && again->result == welcome->result);
        require(strcmp(again->message, welcome->message) == 0);
        if (welcome->status == WEIR_OK) {
            require(again->window_base == welcome->window_base);
            require(again->n_devices == welcome->n_devices);
            for (uint32_t i = 0; i < welcome->n_devices; i++) {
                same_device(&welcome->devices[i], &again->devices[i]);
            }
        }
        free(bytes.bytes);
        weir_welcome_destroy(again);
    } else {
        require(status == WEIR_ERR_TOO_BIG);
    }
    weir_welcome_destroy(welcome);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_hello(data, size);
    try_welcome(data, size);
    return 0;
}
