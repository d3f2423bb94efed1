/*
 * The shared segment of a co-located session: header, completion words, two rings, staging arena,
 * statistics.
 *
 *     0         header, one page: geometry (constant), state and deferred errors (host writes)
 *     words     n_words x u32, one per stream and event: GPU or worker write, the guest reads
 *     to_host   ring of records from the guest
 *     to_guest  ring of records from the host
 *     arena     staging for pageable copies, images and whatever else is bulk
 *
 * The memory is a memfd sealed against shrinking and growing, made by the worker, mapped by both.
 * Words and arena are registered with the driver by the worker, so the GPU reads and writes them
 * directly. Rules of shared segments: fixed-width types, offsets and never pointers; every value
 * read by the host that the guest could have written is copied once and then checked.
 *
 * Source: docs/design/wire.md
 */
#pragma once

#include "base/status.h"
#include "proto/transport/stats_page.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_SEGMENT_MAGIC   0x52494557u /* "WEIR" */
#define WEIR_SEGMENT_VERSION 1u

/* Limits of the geometry, for both ends' checks. */
#define WEIR_SEGMENT_PAGE_BYTES 4096u
#define WEIR_SEGMENT_MAX_WORDS  (1u << 20)
#define WEIR_SEGMENT_MAX_ARENA  (16ull << 30)
#define WEIR_RING_MIN_BYTES     4096u
#define WEIR_RING_MAX_BYTES     (256u << 20)

/* Reserved for both sides: word 0 is never written, so that 0 can mean "no word". */
#define WEIR_WORD_NONE 0u

/*
 * The last words belong to host functions: the worker names one in host_func_call, the guest writes
 * the ticket's number there when the function has run. Their completion must not wait in the ring
 * behind a call that itself waits for the GPU.
 */
#define WEIR_WORDS_TICKETS 64u

/*
 * The worker registers the words at once, and each part of the arena before the GPU first accesses
 * it (registering takes about 0.3 ms per MiB). Parts begin at 0, 256 KiB, 1, 4, 8 and 16 MiB, and
 * from there every 16 MiB. Memory that the GPU copies must lie in one part: the driver knows no
 * range across two.
 */
#define WEIR_SEGMENT_PART_MAX_BYTES (16ull << 20)

/** Which part of the arena does an offset lie in? */
static inline uint32_t weir_segment_part(uint64_t offset)
{
    if (offset >= WEIR_SEGMENT_PART_MAX_BYTES) {
        return 4 + (uint32_t)(offset / WEIR_SEGMENT_PART_MAX_BYTES);
    }
    return (uint32_t)(offset >= 256u << 10) + (offset >= 1u << 20) + (offset >= 4u << 20) +
           (offset >= 8u << 20);
}

/** Where a part begins. It ends where the next one begins, or at the arena's end. */
static inline uint64_t weir_segment_part_start(uint32_t part)
{
    static const uint32_t small[] = {0, 256u << 10, 1u << 20, 4u << 20, 8u << 20};
    return part < 5 ? small[part] : (part - 4) * WEIR_SEGMENT_PART_MAX_BYTES;
}

/** Where a part of an arena ends. */
static inline uint64_t weir_segment_part_end(uint32_t part, uint64_t arena_bytes)
{
    uint64_t end = weir_segment_part_start(part + 1);
    return WEIR_MIN(end, arena_bytes);
}

struct weir_ring_control {
    /* Producer's cache line. */
    uint32_t tail;           /* free-running byte count, written by the producer only */
    uint32_t producer_waits; /* the producer sleeps on head until there is room */
    uint8_t pad0[56];
    /* Consumer's cache line. */
    uint32_t head;           /* free-running byte count, written by the consumer only */
    uint32_t consumer_waits; /* the consumer sleeps on tail until there is a record */
    uint8_t pad1[56];
};

/* How the host lets the guest wait; it may change this at any time. */
enum weir_segment_spin {
    WEIR_SEGMENT_SPIN_AS_YOU_LIKE, /* the guest has its own cores, or the host does not know */
    WEIR_SEGMENT_SPIN_NO,          /* cores are short: spin for 20 us, then sleep */
    WEIR_SEGMENT_SPIN_YES,
};

/* Flag in `managed`: kernels may have changed some blocks, too; managed_merge shows which. */
#define WEIR_SEGMENT_MANAGED_MERGED (1u << 31)

struct weir_segment_header {
    uint32_t magic;
    uint32_t version;
    uint64_t segment_bytes;
    uint64_t words_offset;
    uint32_t n_words;
    uint32_t ring_bytes; /* size of each ring, a power of two */
    uint64_t to_host_offset;
    uint64_t to_guest_offset;
    uint64_t arena_offset;
    uint64_t arena_bytes;
    uint64_t stats_offset; /* offset of a struct weir_stats_page; 0: there is none */
    uint8_t pad0[56];
    /* State line, written by the host only. */
    uint32_t closed;         /* not 0: the host has ended the session; value is a CUresult */
    uint32_t deferred_seq;   /* counts deferred errors */
    uint32_t deferred_error; /* CUresult of the newest deferred error */
    uint32_t sticky_error;   /* CUresult of an error that never goes away, or 0 */
    uint32_t spin;           /* enum weir_segment_spin: may the guest wait by spinning? */
    uint32_t unchecked;      /* not 0: a kernel may have failed an assert; printf_flush tells */
    uint32_t managed; /* number of managed-memory blocks that the program may have changed and
                         that go to the device before work (managed_take); |
                         WEIR_SEGMENT_MANAGED_MERGED */
    uint8_t pad1[36];
    struct weir_ring_control to_host;
    struct weir_ring_control to_guest;
};

_Static_assert(sizeof(struct weir_ring_control) == 128, "layout shared between processes");
_Static_assert(sizeof(struct weir_segment_header) == 448, "layout shared between processes");

/* A worker's choices. Zero means the default in brackets. */
struct weir_segment_params {
    uint32_t n_words;     /* completion words [65536] */
    uint32_t ring_bytes;  /* size of each ring, a power of two [4 MiB: any record fits] */
    uint64_t arena_bytes; /* size of the staging arena [64 MiB], rounded up to pages */
};

/* One end's private, checked copy of the geometry, with pointers into its own mapping. */
struct weir_segment_view {
    void *base; /* NULL at the guest's end of a remote session, where all pointers are NULL */
    uint64_t bytes;
    struct weir_segment_header *header;
    uint32_t *words; /* n_words words; written by worker and GPU, read by the guest */
    uint32_t n_words;
    uint32_t ring_bytes; /* 0: the session is remote */
    uint8_t *to_host;
    uint8_t *to_guest;
    uint8_t *arena;
    uint64_t arena_bytes;
    struct weir_stats_page *stats; /* NULL: there is no statistics page */
    bool polled; /* the peer cannot wake this end by futex, so this end polls words and rings */
};
