/*
 * One direction of a shared-memory channel: a byte ring of whole records. Private to proto/.
 *
 * Source: docs/design/ring.md
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One end of a ring. Producer and consumer have one each;
 * a struct is used by one thread at a time. */
struct weir_ring {
    struct weir_ring_control *control; /* shared: the peer may write anything at any time */
    uint8_t *data;                     /* shared, size_bytes of it */
    uint32_t size_bytes;               /* a power of two */
    uint32_t own;                      /* our own index; never read back from shared memory */
    uint32_t seen;           /* the peer's index as last read; a waiter waits for it to change */
    volatile uint32_t *bell; /* register that wakes the peer; NULL: the peer is woken by futex */
    uint32_t bell_value;     /* value to store in the bell */
};

/* A private copy of the newest record. Zeroed is empty. */
struct weir_ring_buffer {
    void *bytes;
    size_t capacity_bytes;
};

/** Start at an end of a fresh ring (both indices 0). @thread owner */
void weir_ring_init(struct weir_ring *ring, struct weir_ring_control *control, uint8_t *data,
                    uint32_t size_bytes);

/** Free the buffer's memory. Accepts a zeroed one. @thread owner */
void weir_ring_buffer_finish(struct weir_ring_buffer *buffer);

/** Is this a valid length of a record? */
enum weir_status weir_record_check_length(uint32_t len_bytes);

/** Check a record before it is sent. @return WEIR_OK,
 * WEIR_ERR_INVALID, WEIR_ERR_TOO_BIG */
enum weir_status weir_record_check_send(const struct weir_record *record, const void *bulk,
                                        size_t bulk_bytes);

/**
 * Copy one record in and publish it; wakes a sleeping consumer. Never blocks.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_AGAIN    no room now: wait for control->head to leave ring->seen.
 * @return WEIR_ERR_TOO_BIG  it can never fit. WEIR_ERR_INVALID: not a record's length.
 * @return WEIR_ERR_PEER     the consumer's index is impossible.
 * @thread producer
 */
enum weir_status weir_ring_push(struct weir_ring *ring, const struct weir_record *record);

/**
 * Copy the oldest record out into the buffer and give its room back; wakes a sleeping producer.
 * Never blocks.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_AGAIN  empty: wait for control->tail to leave ring->seen.
 * @return WEIR_ERR_PEER   the producer's index or the record's length is impossible.
 * @return WEIR_ERR_NO_MEMORY
 * @thread consumer
 */
enum weir_status weir_ring_pop(struct weir_ring *ring, struct weir_ring_buffer *buffer);
