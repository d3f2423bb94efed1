/* The inside of managed memory: managed.c, managed_faults.c and managed_paging.c. */
#pragma once

#include "base/account.h"
#include "base/thread.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/managed_blocks.h"
#include "host_backend/worker/memory/pieces.h"

/* How long a prefetch, and advice, waits for work that was just given. An H200 shows an event after
 * 5 us. */
#define WEIR_MANAGED_SETTLE_NS (200 * WEIR_NS_PER_US)

#define WEIR_MANAGED_FAULTS 256 /* faults that wait here; the kernel keeps the others */

struct weir_managed_range {
    struct weir_managed_range *next;
    const struct weir_host_chunk *chunk;
    const void *owner;               /* of a variable: its module; NULL: the range is a chunk */
    struct weir_host_chunk variable; /* of a variable: `chunk` points here; it has no pieces */
    uint8_t *pages;                  /* the file, mapped here and registered with the driver */
    struct weir_blocks blocks;
    uint8_t *before; /* MERGED blocks as both sides were when last compared; NULL: not yet */
    struct weir_amounts charged;
    bool watched;
};

struct weir_managed_fault {
    uint64_t address;
    bool write;
    uint64_t since_ns;
};

/* Which thread may use the session's streams. */
enum weir_managed_streams {
    WEIR_MANAGED_OF_SESSION,
    WEIR_MANAGED_OF_NOBODY, /* the session's thread waits for a record */
    WEIR_MANAGED_OF_FAULTS,
};

/* At most two pieces move at a time, one each way. */
enum weir_managed_way { WEIR_MANAGED_TO_DEVICE, WEIR_MANAGED_TO_HOST, WEIR_MANAGED_WAYS };

/* Backings that are kept for the next moves: one leaves while the last one that left comes back. */
#define WEIR_MANAGED_SPARES 4

struct weir_managed {
    struct weir_session *session;
    uint32_t device; /* index of the device on which copies are made */
    int fd;          /* the userfaultfd */
    int kick;        /* an eventfd that wakes the thread of the faults */
    bool protects;   /* the kernel can map pages for reading only */
    bool threaded;
    pthread_t thread;
    atomic_bool ends;
    struct weir_managed_fault faults[WEIR_MANAGED_FAULTS]; /* the thread's own */
    uint32_t n_faults;
    bool hurried; /* a page fault has waited in vain for the work under way: the next do not wait */
    CUstream copies; /* all copies between the two sides */

    /* The state of the work that faults wait for, as numbers of records (calls_total). */
    CUstream joined; /* waits for the work of all streams */
    CUevent join[WEIR_DEVICES_MAX], ordered;
    uint64_t ordered_at; /* `ordered` stands behind the work of all records up to this one */
    uint64_t done_at;    /* the work of all records up to this one is done */
    uint32_t n_orders;   /* how often `ordered` was recorded since then */
    atomic_int streams;  /* which thread may use the session's streams: enum weir_managed_streams */

    struct {
        CUdeviceptr scratch; /* addresses for copying a piece each way; 0: none yet */
        CUstream ways[WEIR_MANAGED_WAYS];
        struct weir_backing spares[WEIR_MANAGED_SPARES]; /* of WEIR_PIECE_BYTES, mapped nowhere */
        uint32_t n_spares;
        uint64_t launches;        /* counted while a piece lies on the host */
        uint64_t retry_at;        /* the launch at which the device is asked for memory again */
        uint64_t waits_at, pause; /* the launch that may wait again; how many do not until then */
        uint64_t bytes;           /* moved so far */
    } paging;                     /* used by the session's thread, with the lock held */

    pthread_mutex_t lock; /* guards what follows, done_at, the two streams and `ordered` */
    pthread_cond_t merged;
    struct weir_managed_range *ranges;
    uint32_t n_cpu;         /* blocks that the CPU has, of all ranges; shown to the guest */
    bool merging;           /* bytes are being fetched that kernels may be changing */
    uint64_t merge_ns;      /* when MERGED blocks are compared next */
    uint64_t merges, asked; /* comparisons of all MERGED blocks: ended; asked for */
    uint64_t merged_total;  /* how many blocks were MERGED so far */
};

struct weir_managed_range *weir_managed_find_locked(struct weir_managed *m, uint64_t address);
/** Tell the guest how many blocks the CPU has. */
void weir_managed_show_locked(struct weir_managed *m);
/** Record `ordered` behind all work that streams have been given.
 * @thread the session's; or that of faults, while it may use the streams */
void weir_managed_order_locked(struct weir_managed *m);
/** Has all work been done that the session has been given? */
bool weir_managed_is_idle_locked(struct weir_managed *m);
/** Copy blocks between the sides, and wait. @return the driver's */
CUresult weir_managed_copy_locked(struct weir_managed *m, const struct weir_managed_range *r,
                                  uint32_t first, uint32_t n, bool to_device);
/** Bytes that kernels may be changing are about to be fetched, or have been. A program that finds
 * out in between that a kernel is done must wait for managed_merge before it reads them. */
void weir_managed_merging_locked(struct weir_managed *m, bool begins);
/** From now on both sides may change these blocks, which are alike. @return false: no memory */
bool weir_managed_merge_locked(struct weir_managed *m, struct weir_managed_range *r, uint32_t first,
                               uint32_t n);
/** Copy what one side has changed of a merged block to the other. */
CUresult weir_managed_carry_locked(struct weir_managed *m, struct weir_managed_range *r,
                                   uint32_t block);
/** The same for all MERGED blocks. @param idle  no kernel changes them: none stays MERGED */
CUresult weir_managed_carry_all_locked(struct weir_managed *m, bool idle);
bool weir_managed_any_merged_locked(const struct weir_managed *m);
/**
 * Map blocks [first, end) for reading where nothing else must change, in threads of its own: a
 * block once weir_managed_map_up_to() says that it has its bytes. The lock is held until
 * weir_managed_map_end().
 * @return NULL: nothing is mapped; the other two accept that
 */
struct weir_managed_mapper *weir_managed_map_begin(struct weir_managed *m,
                                                   struct weir_managed_range *r, uint32_t first,
                                                   uint32_t end);
/** Blocks below this one have their bytes. */
void weir_managed_map_up_to(struct weir_managed_mapper *mapper, uint32_t block);
/** Map the rest, and wait for all. */
void weir_managed_map_end(struct weir_managed *m, struct weir_managed_range *r,
                          struct weir_managed_mapper *mapper);
/** Free what paging has, at the end. Ranges have been removed. */
void weir_managed_paging_end(struct weir_managed *m);
/** The function of the thread that serves faults. */
void *weir_managed_serve(void *managed);
