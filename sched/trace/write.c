/*
 * The writing side of a trace: a ring between the scheduler's thread and the writer's.
 *
 * Indices wrap around and are masked on use. When the ring is full, records are counted instead;
 * the count goes into the file as a LOST record as soon as there is room, before the next one, so
 * that a reader knows where something is missing.
 */
#include "base/fd.h"
#include "sched/trace/trace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_MIN 16u
#define RING_MAX (1u << 24)

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "traces are written as memory has them: little-endian"
#endif

struct weir_sched_trace {
    struct weir_sched_record *ring;
    uint32_t mask;
    int fd;
    enum weir_status status;  /* consumer's: how writing has failed */
    uint64_t lost_told;       /* producer's: lost records that LOST records report */
    uint64_t at_ns;           /* producer's: time of the last record that was put */
    _Atomic uint64_t put;     /* records put; T1 publishes, T2 acquires */
    _Atomic uint64_t flushed; /* records written; T3 publishes, T4 acquires */
    _Atomic uint64_t lost;    /* written by the producer, read by anyone */
    uint64_t flushed_seen;    /* producer's copy of flushed */
};

static enum weir_status write_all(int fd, const void *data, size_t bytes)
{
    return weir_fd_write(fd, data, bytes) == bytes ? WEIR_OK
           : errno == ENOSPC || errno == EDQUOT    ? WEIR_ERR_NO_SPACE
                                                   : WEIR_ERR_IO;
}

static enum weir_status write_header(int fd, const struct weir_sched_config *config, uint32_t flags,
                                     uint64_t wall_ns)
{
    struct weir_sched_trace_header header = {
        .version = WEIR_SCHED_TRACE_VERSION,
        .header_bytes = WEIR_SCHED_TRACE_HEADER_BYTES,
        .record_bytes = WEIR_SCHED_TRACE_RECORD_BYTES,
        .sms = config->sms,
        .flags = flags | (config->fill == WEIR_SCHED_FILL_ALL ? WEIR_SCHED_TRACE_FILL_ALL : 0) |
                 (config->above != 0 ? WEIR_SCHED_TRACE_ABOVE : 0) |
                 (flags & WEIR_SCHED_TRACE_GENERATED ? 0 : WEIR_SCHED_TRACE_CAUSES),
        .overhead_ppm = config->overhead_ppm,
        .wall_ns = wall_ns,
        .alone_ns = config->alone_ns,
        .inflight_ns = config->inflight_ns,
        .guess_ns = config->guess_ns,
        .quiet_ns = config->quiet_ns,
        .starve_ns = config->starve_ns,
        .lease_ns = config->lease_ns,
        .stop_ns = config->stop_ns,
        .launch_ns = config->launch_ns,
        .small_sms = config->small_sms,
        .room_sms = config->room_sms,
        .part_step = config->part_step,
    };
    memcpy(header.magic, WEIR_SCHED_TRACE_MAGIC, sizeof header.magic);
    return write_all(fd, &header, sizeof header);
}

enum weir_status weir_sched_trace_create(const struct weir_sched_config *config, uint32_t flags,
                                         uint64_t wall_ns, uint32_t ring_records, int fd,
                                         struct weir_sched_trace **ret_trace)
{
    enum weir_status status = WEIR_ERR_INVALID;
    struct weir_sched_trace *trace = NULL;
    uint32_t slots = RING_MIN;
    if (!config->sms || ring_records < RING_MIN || ring_records > RING_MAX) {
        goto out;
    }
    while (slots < ring_records) {
        slots *= 2;
    }
    status = WEIR_ERR_NO_MEMORY;
    trace = calloc(1, sizeof *trace);
    if (!trace) {
        goto out;
    }
    trace->ring = calloc(slots, sizeof *trace->ring);
    if (!trace->ring) {
        goto out;
    }
    trace->mask = slots - 1;
    trace->fd = fd;
    status = write_header(fd, config, flags, wall_ns);
out:
    if (status == WEIR_OK) {
        *ret_trace = trace;
    } else {
        if (trace) {
            free(trace->ring);
        }
        free(trace);
        close(fd);
    }
    return status;
}

static bool has_room(struct weir_sched_trace *trace, uint64_t put, uint32_t records)
{
    if (put + records - trace->flushed_seen <= trace->mask + 1ull) {
        return true;
    }
    /* T4: meets T3 in weir_sched_trace_flush: the slots written below are free. */
    trace->flushed_seen = atomic_load_explicit(&trace->flushed, memory_order_acquire);
    return put + records - trace->flushed_seen <= trace->mask + 1ull;
}

bool weir_sched_trace_put(struct weir_sched_trace *trace, const struct weir_sched_record *record)
{
    uint64_t put = atomic_load_explicit(&trace->put, memory_order_relaxed);
    uint64_t lost = atomic_load_explicit(&trace->lost, memory_order_relaxed);
    bool must_tell = lost != trace->lost_told;
    if (!has_room(trace, put, must_tell ? 2 : 1)) {
        atomic_store_explicit(&trace->lost, lost + 1, memory_order_relaxed);
        return false;
    }
    if (must_tell) {
        trace->ring[put++ & trace->mask] =
            (struct weir_sched_record){.at_ns = record->at_ns,
                                       .kind = WEIR_SCHED_TRACE_LOST,
                                       .value = lost - trace->lost_told};
        trace->lost_told = lost;
    }
    trace->ring[put & trace->mask] = *record;
    trace->at_ns = record->at_ns;
    /* T1: publishes the slots; meets T2 in weir_sched_trace_flush. */
    atomic_store_explicit(&trace->put, put + 1, memory_order_release);
    return true;
}

/* Put a text record: its text lies over the fields between tenant and kind. */
static void set_text(struct weir_sched_record *record, const char *text, size_t bytes)
{
    memcpy((char *)record + offsetof(struct weir_sched_record, queue), text, bytes);
}

/* Put a record of our own with the last record's time, as the scheduler's clock may stand. */
static void put_own(struct weir_sched_trace *trace, struct weir_sched_record record)
{
    record.at_ns = trace->at_ns ? trace->at_ns : record.at_ns;
    (void)weir_sched_trace_put(trace, &record);
}

void weir_sched_trace_tenant_name(struct weir_sched_trace *trace, uint64_t at_ns,
                                  weir_sched_id tenant, const char *name)
{
    size_t bytes = strnlen(name, WEIR_SCHED_TRACE_NAME_BYTES - 1);
    for (uint16_t part = 0; part == 0 || bytes; part++) {
        size_t now = WEIR_MIN(bytes, WEIR_SCHED_TRACE_TEXT_BYTES);
        struct weir_sched_record record = {
            .at_ns = at_ns, .tenant = tenant, .kind = WEIR_SCHED_TRACE_NAME, .flags = part};
        set_text(&record, name, now);
        put_own(trace, record);
        name += now;
        bytes -= now;
    }
}

void weir_sched_trace_policy(struct weir_sched_trace *trace, uint64_t at_ns, uint8_t kind,
                             const char *name)
{
    struct weir_sched_record record = {
        .at_ns = at_ns, .kind = WEIR_SCHED_TRACE_POLICY, .class = kind, .flags = !name};
    if (name) {
        set_text(&record, name, strnlen(name, WEIR_SCHED_TRACE_TEXT_BYTES));
    }
    put_own(trace, record);
}

void weir_sched_trace_kernel(struct weir_sched_trace *trace, uint64_t at_ns, uint64_t key,
                             const struct weir_sched_trace_nature *nature)
{
    const struct weir_sched_record record = {.at_ns = at_ns,
                                             .kind = WEIR_SCHED_TRACE_KERNEL,
                                             .key = key,
                                             .value = nature->need_ppm |
                                                      (uint64_t)nature->memory_ppm << 20};
    put_own(trace, record);
}

enum weir_status weir_sched_trace_flush(struct weir_sched_trace *trace)
{
    /* T2: meets T1 in weir_sched_trace_put: the records read below are complete. */
    uint64_t put = atomic_load_explicit(&trace->put, memory_order_acquire);
    uint64_t from = atomic_load_explicit(&trace->flushed, memory_order_relaxed);
    while (from != put) {
        uint64_t slot = from & trace->mask;
        uint64_t n = put - from;
        n = n < trace->mask + 1 - slot ? n : trace->mask + 1 - slot;
        if (trace->status == WEIR_OK) {
            trace->status =
                write_all(trace->fd, trace->ring + slot, (size_t)n * sizeof *trace->ring);
        }
        from += n;
        /* T3: publishes that the slots may be written again; meets T4 in has_room. */
        atomic_store_explicit(&trace->flushed, from, memory_order_release);
    }
    return trace->status;
}

uint64_t weir_sched_trace_lost(const struct weir_sched_trace *trace)
{
    return atomic_load_explicit(&trace->lost, memory_order_relaxed);
}

enum weir_status weir_sched_trace_destroy(struct weir_sched_trace *trace)
{
    if (!trace) {
        return WEIR_OK;
    }
    (void)weir_sched_trace_flush(trace);
    uint64_t put = atomic_load_explicit(&trace->put, memory_order_relaxed);
    struct weir_sched_record end = {.kind = WEIR_SCHED_TRACE_END};
    end.at_ns = put ? trace->ring[(put - 1) & trace->mask].at_ns : 0;
    (void)weir_sched_trace_put(trace, &end);
    enum weir_status status = weir_sched_trace_flush(trace);
    if (close(trace->fd) != 0) {
        status = WEIR_ERR_IO;
    }
    free(trace->ring);
    free(trace);
    return status;
}
