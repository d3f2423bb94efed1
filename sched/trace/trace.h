/*
 * Traces of a scheduler: its inputs and its decisions, in a file.
 *
 * A file is a header and records of one size, in order of time. It has every input of the core with
 * its time, so a replay can repeat them (sched/sim/replay.h) and the core must decide the same. It
 * has every arrival, so a simulation can try other policies (sched/sim/sim.h).
 *
 * Writing costs the scheduler a copy of 80 bytes. The thread that holds its lock puts records into
 * a ring; another thread flushes them to a descriptor at any time. If that is too slow, records are
 * dropped and the file says how many; the scheduler never waits.
 *
 * Numbers in files are little-endian. Source: docs/design/simulation.md
 */
#pragma once

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
#define WEIR_SCHED_TRACE_TEXT_BYTES   60u /* text in a record; not ended by NUL when full */
#define WEIR_SCHED_TRACE_NAME_BYTES   64u /* a tenant's, with its NUL */
#define WEIR_SCHED_TRACE_GPUS_MAX     16u

enum weir_sched_trace_kind {
#define WEIR_SCHED_TRACE_KIND(name, number, word) WEIR_SCHED_TRACE_##name = number,
#include "sched/trace/kinds.def"
#undef WEIR_SCHED_TRACE_KIND
};

enum weir_sched_trace_flags {
    WEIR_SCHED_TRACE_MIDDLE = 1,    /* recording began while work was under way */
    WEIR_SCHED_TRACE_GENERATED = 2, /* generated: each tenant's times are as if it were alone */
    WEIR_SCHED_TRACE_FILL_ALL = 8,  /* config.fill is WEIR_SCHED_FILL_ALL */
    WEIR_SCHED_TRACE_ABOVE = 16,    /* config.above is set */
    WEIR_SCHED_TRACE_CAUSES = 32,   /* the trace has the causes of waits */
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
    uint64_t wall_ns; /* beginning of the trace, since 1970; 0: not known */
    uint64_t alone_ns, inflight_ns, guess_ns, quiet_ns, starve_ns, lease_ns, stop_ns, launch_ns;
    uint32_t unused[3]; /* 0; may be anything in old files */
    uint32_t small_sms; /* config.small_sms */
    uint32_t room_sms;  /* config.room_sms */
    uint32_t part_step; /* config.part_step; 0 in older files */
};
_Static_assert(sizeof(struct weir_sched_trace_header) == WEIR_SCHED_TRACE_HEADER_BYTES,
               "part of the format");
_Static_assert(sizeof(struct weir_sched_record) == WEIR_SCHED_TRACE_RECORD_BYTES,
               "part of the format");
_Static_assert(offsetof(struct weir_sched_record, kind) == 76, "part of the format");

/* The field `key` of an arrival is the key of a kernel or graph, or the rest_bytes of a copy. */
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
 * If place.block_limit of an arrival in a file is 1, the item comes at its time, whether those
 * before it in its queue have ended or not. Otherwise a simulation lets it wait for them as in the
 * trace.
 */
static inline bool weir_sched_trace_is_open(const struct weir_sched_record *arrive)
{
    return arrive->place.block_limit == 1;
}

/*
 * In generated files `bytes` of a TENANT_ADD is the GPU context in which the tenant works.
 * Recordings of a host have 0, since all tenants share its worker.
 */
static inline uint32_t weir_sched_trace_context(const struct weir_sched_record *tenant_add)
{
    return (uint32_t)tenant_add->bytes;
}

/*
 * In generated files `bytes` of a QUEUE_ADD is the GPU whose queue it is, and `blocks` its rank in
 * a job: ranks of a job are consecutive queues of a tenant with ranks 0, 1, .., and kernel n of one
 * waits for kernel n of each other. Recordings of a host, each of one GPU, have 0.
 */
static inline uint32_t weir_sched_trace_gpu(const struct weir_sched_record *queue_add)
{
    return (uint32_t)queue_add->bytes;
}
static inline uint32_t weir_sched_trace_rank(const struct weir_sched_record *queue_add)
{
    return queue_add->blocks;
}

/* The nature of a key's kernels, in millionths; need_ppm 0 means all. See struct weir_sim_work. */
struct weir_sched_trace_nature {
    uint32_t need_ppm;
    uint32_t memory_ppm;
};

/* Is this a record of the core's, which a replay repeats or compares? */
static inline bool weir_sched_trace_is_core(uint8_t kind)
{
    return kind < WEIR_SCHED_REC_KIND_COUNT;
}

/* ------------------------------------------------------------------ writing */

/*
 * Producer/consumer pair: put(), tenant_name(), policy() and kernel() by the thread that holds the
 * scheduler's lock; flush() and destroy() by one other thread, or the same.
 */
struct weir_sched_trace;

/**
 * Begin a trace: the header is written at once.
 *
 * @param config        the scheduler's; read only.
 * @param flags         enum weir_sched_trace_flags.
 * @param wall_ns       the time since 1970; 0: do not record it.
 * @param ring_records  most records that wait for a flush: rounded up to a power of two, 16 ..
 * 2^24.
 * @param fd            the output, blocking; it is taken over, also on failure.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_INVALID (ring_records, no SMs), WEIR_ERR_NO_SPACE,
 *         WEIR_ERR_IO
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
 * Record a tenant's name, cut at 63 bytes. This function and the next two use at_ns only if theirs
 * is the first record of the trace. Any other gets the time of the record before it: the caller's
 * clock may be ahead of the scheduler's, and the times of a trace never go back.
 * @thread producer
 */
void weir_sched_trace_tenant_name(struct weir_sched_trace *trace, uint64_t at_ns,
                                  weir_sched_id tenant, const char *name);

/** Record the policy of a kind (enum weir_policy_kind) in force; NULL: none. @thread producer */
void weir_sched_trace_policy(struct weir_sched_trace *trace, uint64_t at_ns, uint8_t kind,
                             const char *name);

/** Record the nature of a key's kernels. @thread producer */
void weir_sched_trace_kernel(struct weir_sched_trace *trace, uint64_t at_ns, uint64_t key,
                             const struct weir_sched_trace_nature *nature);

/**
 * Write the records that have been put.
 *
 * @return WEIR_OK      all records are written.
 * @return WEIR_ERR_NO_SPACE, WEIR_ERR_IO  writing failed; from then on records are dropped, and
 * this is returned.
 * @thread consumer
 */
enum weir_status weir_sched_trace_flush(struct weir_sched_trace *trace);

/** The number of records dropped so far. @thread any */
uint64_t weir_sched_trace_lost(const struct weir_sched_trace *trace);

/**
 * Write the records that are left and the END record, close the file, and free the trace. The
 * producer must have stopped. Accepts NULL.
 * @return as weir_sched_trace_flush()
 * @thread consumer
 */
enum weir_status weir_sched_trace_destroy(struct weir_sched_trace *trace);

/* ------------------------------------------------------------------ reading */

/* An error in a file, and its place. */
struct weir_sched_trace_error {
    uint64_t offset; /* offset of the record, or of the field of the header */
    char text[160];
};

/* A reader of a file in memory. Owner thread only; the fields are for reading. */
struct weir_sched_trace_reader {
    struct weir_sched_trace_header header;
    const uint8_t *data; /* borrowed */
    uint64_t bytes;
    uint64_t offset; /* offset of the next record */
    uint64_t at_ns;  /* time of the last record */
    bool has_ended;  /* the END record has been read */
    bool is_cut;     /* the last record is not whole: the writer was killed */
};

/**
 * Check the header, and prepare to read records.
 *
 * @param data       a file's bytes; borrowed as long as the reader is used.
 * @param ret_error  filled in unless WEIR_OK.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX   the file is no trace, or damaged.
 * @return WEIR_ERR_VERSION  the trace has another version.
 * @thread any
 */
enum weir_status weir_sched_trace_open(const void *data, uint64_t bytes,
                                       struct weir_sched_trace_reader *ret_reader,
                                       struct weir_sched_trace_error *ret_error) WEIR_MUST_CHECK;

/**
 * Read the next record and check its kind, its time (not before the last one's) and its values. The
 * caller must check whether its ids exist.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  the file has no more records.
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

/** Set a configuration from a header; config->predict does not change. @thread any */
void weir_sched_trace_config(const struct weir_sched_trace_header *header,
                             struct weir_sched_config *config);
