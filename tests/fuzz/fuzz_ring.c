/*
 * A ring against a hostile peer. The input is a script: each step takes an opcode and lets the liar
 * scribble over control words or record headers, or the honest end push or pop. Whatever the liar
 * does, every pop gives a record that is sound, or an error; the honest end's own writes are sound
 * too.
 */
#include "proto/transport/ring.h"
#include "tests/fuzz/script.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void pop(struct weir_ring *consumer, struct weir_ring_buffer *buffer)
{
    if (weir_ring_pop(consumer, buffer) != WEIR_OK) {
        return;
    }
    const struct weir_record *record = buffer->bytes;
    if (weir_record_check_length(record->len_bytes) != WEIR_OK ||
        record->len_bytes > buffer->capacity_bytes || record->len_bytes > RING_BYTES) {
        abort();
    }
    static uint8_t copy[RING_BYTES];
    memcpy(copy, buffer->bytes, record->len_bytes); /* reads all of it: sanitizers judge */
}

static void push(struct weir_ring *producer, uint32_t len)
{
    static union {
        struct weir_record record;
        uint8_t bytes[RING_BYTES + 64];
    } space;
    space.record.len_bytes = len % sizeof space;
    enum weir_status status = weir_ring_push(producer, &space.record);
    if (status == WEIR_OK && space.record.len_bytes > RING_BYTES) {
        abort();
    }
}

static void step(struct script *script, struct weir_ring *consumer, struct weir_ring *producer,
                 struct weir_ring_buffer *buffer)
{
    switch (take(script, 1) % 6) {
    case 0:
        pop(consumer, buffer);
        break;
    case 1:
        push(producer, take(script, 2));
        break;
    case 2:
        consumer->control->tail = take(script, 4);
        break;
    case 3:
        producer->control->head = take(script, 4);
        break;
    case 4: { /* a length where the consumer, or anybody, will look */
        uint32_t where = take(script, 2) & (RING_BYTES - 4);
        uint32_t value = take(script, 4);
        memcpy(consumer->data + where, &value, sizeof value);
        break;
    }
    default: /* an honest producer's step, from where the consumer is */
        consumer->control->tail = consumer->own + (take(script, 1) & 0xf8);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_ring_control *controls = calloc(2, sizeof *controls);
    uint8_t *memory_in = calloc(1, RING_BYTES); /* apart, so that a step beyond either is seen */
    uint8_t *memory_out = calloc(1, RING_BYTES);
    struct weir_ring_buffer buffer = {0};
    struct weir_ring consumer, producer;
    struct script script = {.at = data, .left = size};
    if (controls && memory_in && memory_out) {
        weir_ring_init(&consumer, &controls[0], memory_in, RING_BYTES);
        weir_ring_init(&producer, &controls[1], memory_out, RING_BYTES);
        while (script.left > 0) {
            step(&script, &consumer, &producer, &buffer);
        }
    }
    weir_ring_buffer_finish(&buffer);
    free(memory_in);
    free(memory_out);
    free(controls);
    return 0;
}
