/*
 * Traces of a scheduler: what came, what was decided, what became of it, in a file.
 *
 * A file is a header and records of one size, in the order in which they happened. Everything that
 * the core was told is in it with its time, so the core can be told the same again
 * (sched/sim/replay.h) and must decide the same; and everything that arrived, so a simulation can
 * try other policies on it (sched/sim/sim.h).
 *
 * Writing costs the scheduler a copy of 80 bytes. Whoever holds its lock puts records into a ring;
 * another thread flushes them to a descriptor, when it likes. If it is too slow, records are
 * dropped and the file says how many; the scheduler never waits.
 *
 * Numbers in files are little-endian. Source: docs/design/simulation.md
 */
#ifndef WEIR_SCHED_TRACE_TRACE_H
#define WEIR_SCHED_TRACE_TRACE_H

#include "base/status.h"
#include "sched/sched.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WEIR_SCHED_TRACE_MAGIC        "WEIRSCHD"
#define WEIR_SCHED_TRACE_VERSION      1u
#define WEIR_SCHED_TRACE_HEADER_BYTES 128u
#define WEIR_SCHED_TRACE_RECORD_BYTES 80u
#define WEIR_SCHED_TRACE_TEXT_BYTES                                                                \
    60u /* of a record that carries text; not ended by NUL when full */
#define WEIR_SCHED_TRACE_NAME_BYTES 64u /* a tenant's, with its NUL */

enum weir_sched_trace_kind {
#define WEIR_SCHED_TRACE_KIND(name, number, word) WEIR_SCHED_TRACE_##name = number,
#include "sched/trace/kinds.def"
#undef WEIR_SCHED_TRACE_KIND
};

enum weir_sched_trace_flags {
    WEIR_SCHED_TRACE_MIDDLE = 1,    /* recording began while work was under way */
    WEIR_SCHED_TRACE_GENERATED = 2, /* made by a program: times are those of each tenant alone */
    WEIR_SCHED_TRACE_FILL = 4,      /* struct weir_sched_config's fill: lower classes */
    WEIR_SCHED_TRACE_FILL_ALL = 8,  /* the same: all */
    WEIR_SCHED_TRACE_ABOVE = 16,    /* its above */
    WEIR_SCHED_TRACE_CAUSES = 32,   /* a scheduler says in it why items wait */
};

/* The first bytes of a file. */
struct weir_sched_trace_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t sms;
    uint32_t flags; /* enum weir_sched_trace_flags */
    uint32_t overhead_ppm;
    uint64_t wall_ns; /* when it began, since 1970; 0: not known */
    uint64_t alone_ns, inflight_ns, guess_ns, quiet_ns, starve_ns, lease_ns, stop_ns, launch_ns;
    uint64_t memory_limit_bytes;
    uint32_t order_window; /* 0: the default */
    uint32_t small_sms;    /* struct weir_sched_config's */
    uint32_t room_sms;     /* the same */
    uint32_t reserved2;    /* 0 */
};
_Static_assert(sizeof(struct weir_sched_trace_header) == WEIR_SCHED_TRACE_HEADER_BYTES,
               "part of the format");
_Static_assert(sizeof(struct weir_sched_record) == WEIR_SCHED_TRACE_RECORD_BYTES,
               "part of the format");
_Static_assert(offsetof(struct weir_sched_record, kind) == 76, "part of the format");

/*
 * ARRIVE has one fact more in files than in the core's record: memory_bytes in place.sm_first (low
 * half) and place.sm_count (high half). The core leaves the place of an arrival zero.
 */
static inline uint64_t weir_sched_trace_memory_bytes(const struct weir_sched_record *arrive)
{
    return arrive->place.sm_first | (uint64_t)arrive->place.sm_count << 32;
}

/* The key of an arrival is a kernel's or graph's, or the rest_bytes of a copy. */
static inline bool weir_sched_trace_is_copy(const struct weir_sched_record *arrive)
{
    return arrive->class == WEIR_SCHED_H2D || arrive->class == WEIR_SCHED_D2H;
}
static inline uint64_t weir_sched_trace_key(const struct weir_sched_record *arrive)
{
    return weir_sched_trace_is_copy(arrive) ? 0 : arrive->key;
}
static inline uint64_t weir_sched_trace_rest_bytes(const struct weir_sched_record *arrive)
{
    return weir_sched_trace_is_copy(arrive) ? arrive->key : 0;
}

/*
 * In files an arrival may say that it comes at its time, whatever became of those before it in its
 * queue: place.block_limit is 1. Without that, a simulation has it wait for what it waited for.
 */
static inline bool weir_sched_trace_is_open(const struct weir_sched_record *arrive)
{
    return arrive->place.block_limit == 1;
}

/*
 * In generated files a TENANT_ADD says in `bytes` in which GPU context the tenant works. Recordings
 * of a host have 0: it records the worker that all share.
 */
static inline uint32_t weir_sched_trace_context(const struct weir_sched_record *tenant_add)
{
    return (uint32_t)tenant_add->bytes;
}

/* What kernels of a key are like, in millionths; 0 need: 1. See struct weir_sim_work. */
struct weir_sched_trace_nature {
    uint32_t need_ppm;
    uint32_t memory_ppm;
    uint32_t tensor_ppm;
};

/* Is this a record of the core's, which a replay tells it or compares? */
static inline bool weir_sched_trace_is_core(uint8_t kind)
{
    return kind < WEIR_SCHED_REC_KIND_COUNT;
}

/* ------------------------------------------------------------------ writing */

/*
 * Producer/consumer pair: put(), tenant_name(), policy() and kernel() by whoever holds the
 * scheduler's lock; flush() and destroy() by one other thread, or the same.
 */
struct weir_sched_trace;

/**
 * Begin a trace: the header is written at once.
 *
 * @param config        of the scheduler; read only.
 * @param flags         enum weir_sched_trace_flags.
 * @param wall_ns       when, since 1970; 0: not to be told.
 * @param ring_records  how many may wait for a flush: rounded up to a power of two, 16 .. 2^24.
 * @param fd            takes it, also on failure; blocking.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_INVALID (ring_records, no SMs), WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_sched_trace_create(const struct weir_sched_config *config, uint32_t flags,
                                         uint64_t wall_ns, uint32_t ring_records, int fd,
                                         struct weir_sched_trace **ret_trace) WEIR_MUST_CHECK;

/**
 * Add a record, or count it as lost. Never blocks, makes no system call.
 * @return false: the ring is full.
 * @thread producer
 */
bool weir_sched_trace_put(struct weir_sched_trace *trace, const struct weir_sched_record *record);

/**
 * Say what a tenant is called. name: cut at 63 bytes. Here and below, at_ns counts in the first
 * record only: later ones have the time of the record before them, as the scheduler's clock may
 * stand.
 * @thread producer
 */
void weir_sched_trace_tenant_name(struct weir_sched_trace *trace, uint64_t at_ns,
                                  weir_sched_id tenant, const char *name);

/** Say which policy of a kind (enum weir_policy_kind) is in charge; NULL: none. @thread producer */
void weir_sched_trace_policy(struct weir_sched_trace *trace, uint64_t at_ns, uint8_t kind,
                             const char *name);

/** Say what kernels of a key are like. @thread producer */
void weir_sched_trace_kernel(struct weir_sched_trace *trace, uint64_t at_ns, uint64_t key,
                             const struct weir_sched_trace_nature *nature);

/**
 * Write what has been put.
 *
 * @return WEIR_OK      all of it is written.
 * @return WEIR_ERR_IO  it could not be; from then on records are dropped, and this is the answer.
 * @thread consumer
 */
enum weir_status weir_sched_trace_flush(struct weir_sched_trace *trace);

/** Records that were dropped, so far. @thread any */
uint64_t weir_sched_trace_lost(const struct weir_sched_trace *trace);

/**
 * Flush, write the END record, close. Nobody may put any more. Accepts NULL.
 * @return as weir_sched_trace_flush()
 * @thread consumer
 */
enum weir_status weir_sched_trace_destroy(struct weir_sched_trace *trace);

/* ------------------------------------------------------------------ reading */

/* What is wrong with a file, and where. */
struct weir_sched_trace_error {
    uint64_t offset; /* of the record, or the field of the header */
    char text[160];
};

/* Goes through a file in memory. Owner thread only; the fields are for reading. */
struct weir_sched_trace_reader {
    struct weir_sched_trace_header header;
    const uint8_t *data; /* borrowed */
    uint64_t bytes;
    uint64_t offset; /* of the next record */
    uint64_t at_ns;  /* of the last one */
    bool has_ended;  /* the END record has been read */
    bool is_cut;     /* the last record is not whole: the writer was killed */
};

/**
 * Look at the header.
 *
 * @param data       a file's bytes, as long as the reader lives.
 * @param ret_error  filled in unless WEIR_OK.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX   this is no trace, or a damaged one.
 * @return WEIR_ERR_VERSION  of another version.
 * @thread any
 */
enum weir_status weir_sched_trace_open(const void *data, uint64_t bytes,
                                       struct weir_sched_trace_reader *ret_reader,
                                       struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/**
 * The next record, checked by itself: its kind, its time (not before the last one's), its values.
 * Whether its ids exist is for whoever follows them.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  there is none: the file is over.
 * @return WEIR_ERR_SYNTAX     ret_error says why. Reading cannot go on.
 * @thread owner
 */
enum weir_status weir_sched_trace_next(struct weir_sched_trace_reader *reader,
                                       struct weir_sched_record *ret_record,
                                       struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/** The text of a NAME or POLICY record. @param ret_text WEIR_SCHED_TRACE_TEXT_BYTES + 1. @thread
 * any */
void weir_sched_trace_text(const struct weir_sched_record *record, char *ret_text);

/** The nature in a KERNEL record. @thread any */
struct weir_sched_trace_nature weir_sched_trace_nature_of(const struct weir_sched_record *record);

/** "arrive", "start", ...; NULL: no such kind. @thread any */
const char *weir_sched_trace_kind_word(uint8_t kind);

/** "kernel", "graph", "h2d", ...; NULL: no such class. @thread any */
const char *weir_sched_trace_class_word(uint8_t class_);

/** Print a record as one line. @thread any */
void weir_sched_trace_print(FILE *out, const struct weir_sched_record *record);

/** Fill in what the header says of the scheduler; predict stays as it is. @thread any */
void weir_sched_trace_config(const struct weir_sched_trace_header *header,
                             struct weir_sched_config *config);

#endif
