/*
 * The ring: free-running 32-bit byte indices, masked on use, records copied in and out.
 *
 * A record that meets the end of the memory is copied in two parts, so there is no wrap marker that
 * a hostile producer could falsify. Each end keeps its own index in private memory and reads only
 * the other's, once per attempt, and checks it: the distance tail - head must lie in 0 .. size. The
 * record's header is copied out first and its length checked; the rest is copied behind that copy,
 * so the bytes that are used are those that were checked.
 *
 * Ordering:
 *     R1  producer: bytes, then store tail   meets A1  consumer: load tail, then read bytes
 *     R2  consumer: read bytes, then store head   meets A2  producer: load head, then overwrite
 * Both stores are sequentially consistent, as are the loads of the other's "waits" flag after them:
 * a peer that sets its flag and then finds the index unchanged is always seen (Dekker's argument).
 */
#include "proto/transport/ring.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

#define BUFFER_MIN_BYTES 4096u

void weir_ring_init(struct weir_ring *ring, struct weir_ring_control *control, uint8_t *data,
                    uint32_t size_bytes)
{
    *ring = (struct weir_ring){.control = control, .data = data, .size_bytes = size_bytes};
}

void weir_ring_buffer_finish(struct weir_ring_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct weir_ring_buffer){0};
}

enum weir_status weir_record_check_length(uint32_t len_bytes)
{
    WEIR_FAIL_IF(len_bytes < sizeof(struct weir_record) || len_bytes % 8 != 0, WEIR_ERR_INVALID);
    return len_bytes <= WEIR_RECORD_MAX_BYTES ? WEIR_OK : WEIR_ERR_TOO_BIG;
}

enum weir_status weir_record_check_send(const struct weir_record *record, const void *bulk,
                                        size_t bulk_bytes)
{
    WEIR_FAIL_IF(bulk_bytes > WEIR_BULK_MAX_BYTES, WEIR_ERR_TOO_BIG);
    WEIR_FAIL_IF(bulk_bytes > 0 && !bulk, WEIR_ERR_INVALID);
    return weir_record_check_length(record->len_bytes);
}

static void copy_in(struct weir_ring *ring, uint32_t index, const void *bytes, uint32_t len)
{
    uint32_t at = index & (ring->size_bytes - 1);
    uint32_t first = ring->size_bytes - at < len ? ring->size_bytes - at : len;
    memcpy(ring->data + at, bytes, first);
    memcpy(ring->data, (const uint8_t *)bytes + first, len - first);
}

static void copy_out(const struct weir_ring *ring, uint32_t index, void *bytes, uint32_t len)
{
    uint32_t at = index & (ring->size_bytes - 1);
    uint32_t first = ring->size_bytes - at < len ? ring->size_bytes - at : len;
    memcpy(bytes, ring->data + at, first);
    memcpy((uint8_t *)bytes + first, ring->data, len - first);
}

/* Wake the peer if its flag says that it sleeps. Clearing the flag saves later system calls. */
static void wake(const struct weir_ring *ring, uint32_t *waits, uint32_t *word)
{
    if (__builtin_expect(__atomic_load_n(waits, __ATOMIC_SEQ_CST) != 0, 0)) {
        __atomic_store_n(waits, 0, __ATOMIC_SEQ_CST);
        if (ring->bell) {
            *ring->bell = ring->bell_value;
        } else {
            weir_futex_wake(word, 1);
        }
    }
}

enum weir_status weir_ring_push(struct weir_ring *ring, const struct weir_record *record)
{
    uint32_t len = record->len_bytes;
    WEIR_TRY(weir_record_check_length(len));
    WEIR_FAIL_IF(len > ring->size_bytes, WEIR_ERR_TOO_BIG);
    uint32_t used = ring->own - ring->seen;
    if (ring->size_bytes - used < len) {
        ring->seen = __atomic_load_n(&ring->control->head, __ATOMIC_ACQUIRE); /* A2 */
        used = ring->own - ring->seen;
        if (used > ring->size_bytes) {
            /* From now on the ring counts as full in every test. */
            ring->seen = ring->own - ring->size_bytes;
            return WEIR_ERR_PEER;
        }
        WEIR_FAIL_IF(ring->size_bytes - used < len, WEIR_ERR_AGAIN);
    }
    copy_in(ring, ring->own, record, len);
    ring->own += len;
    __atomic_store_n(&ring->control->tail, ring->own, __ATOMIC_SEQ_CST); /* R1 */
    wake(ring, &ring->control->consumer_waits, &ring->control->tail);
    return WEIR_OK;
}

/* Make room for len bytes, and keep the record header that is there already. */
static bool reserve(struct weir_ring_buffer *buffer, size_t len)
{
    if (buffer->capacity_bytes >= len) {
        return true;
    }
    size_t capacity = buffer->capacity_bytes ? buffer->capacity_bytes : BUFFER_MIN_BYTES;
    while (capacity < len) {
        capacity *= 2;
    }
    void *bytes = realloc(buffer->bytes, capacity);
    WEIR_FAIL_IF(!bytes, false);
    *buffer = (struct weir_ring_buffer){.bytes = bytes, .capacity_bytes = capacity};
    return true;
}

enum weir_status weir_ring_pop(struct weir_ring *ring, struct weir_ring_buffer *buffer)
{
    uint32_t available = ring->seen - ring->own;
    if (available == 0) {
        ring->seen = __atomic_load_n(&ring->control->tail, __ATOMIC_ACQUIRE); /* A1 */
        available = ring->seen - ring->own;
        WEIR_FAIL_IF(available == 0, WEIR_ERR_AGAIN);
    }
    WEIR_FAIL_IF(available < sizeof(struct weir_record) || available > ring->size_bytes,
                 WEIR_ERR_PEER);
    struct weir_record header;
    copy_out(ring, ring->own, &header, sizeof header);
    uint32_t len = header.len_bytes;
    WEIR_FAIL_IF(weir_record_check_length(len) != WEIR_OK || len > available, WEIR_ERR_PEER);
    WEIR_FAIL_IF(!reserve(buffer, len), WEIR_ERR_NO_MEMORY);
    memcpy(buffer->bytes, &header, sizeof header);
    copy_out(ring, ring->own + (uint32_t)sizeof header, (uint8_t *)buffer->bytes + sizeof header,
             len - (uint32_t)sizeof header);
    ring->own += len;
    __atomic_store_n(&ring->control->head, ring->own, __ATOMIC_SEQ_CST); /* R2 */
    wake(ring, &ring->control->producer_waits, &ring->control->head);
    return WEIR_OK;
}
