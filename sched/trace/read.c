/*
 * The reading side of a trace. No byte of it is trusted.
 *
 * Each record is checked by itself. The users of a trace follow its ids: a file that began in the
 * middle, or lost records, has ids without the records that introduce them.
 */
#include "sched/trace/trace.h"

#include <stdarg.h>
#include <string.h>

/* 292 years: beyond it, sums of times could overflow. */
#define AT_MAX_NS ((uint64_t)INT64_MAX)

#define PPM 1000000u

static enum weir_status fail(struct weir_sched_trace_error *error, uint64_t offset,
                             enum weir_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static enum weir_status fail(struct weir_sched_trace_error *error, uint64_t offset,
                             enum weir_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->offset = offset;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

static enum weir_status check_header(const struct weir_sched_trace_header *h,
                                     struct weir_sched_trace_error *error)
{
    const uint64_t times[] = {h->alone_ns,  h->inflight_ns, h->guess_ns, h->quiet_ns,
                              h->starve_ns, h->lease_ns,    h->stop_ns,  h->launch_ns};
    WEIR_FAIL_IF(memcmp(h->magic, WEIR_SCHED_TRACE_MAGIC, sizeof h->magic) != 0,
                 fail(error, 0, WEIR_ERR_SYNTAX, "this is no trace of a scheduler"));
    WEIR_FAIL_IF(h->version != WEIR_SCHED_TRACE_VERSION,
                 fail(error, offsetof(struct weir_sched_trace_header, version), WEIR_ERR_VERSION,
                      "a trace of version %u; this program reads version %u", h->version,
                      WEIR_SCHED_TRACE_VERSION));
    if (h->header_bytes != WEIR_SCHED_TRACE_HEADER_BYTES ||
        h->record_bytes != WEIR_SCHED_TRACE_RECORD_BYTES) {
        return fail(error, offsetof(struct weir_sched_trace_header, header_bytes), WEIR_ERR_SYNTAX,
                    "headers of %u and records of %u bytes: version 1 has %u and %u",
                    h->header_bytes, h->record_bytes, WEIR_SCHED_TRACE_HEADER_BYTES,
                    WEIR_SCHED_TRACE_RECORD_BYTES);
    }
    WEIR_FAIL_IF(!h->sms || h->sms > UINT16_MAX,
                 fail(error, offsetof(struct weir_sched_trace_header, sms), WEIR_ERR_SYNTAX,
                      "a device of %u SMs", h->sms));
    if (h->flags &
        ~(uint32_t)(WEIR_SCHED_TRACE_MIDDLE | WEIR_SCHED_TRACE_GENERATED |
                    WEIR_SCHED_TRACE_FILL_ALL | WEIR_SCHED_TRACE_ABOVE | WEIR_SCHED_TRACE_CAUSES)) {
        return fail(error, offsetof(struct weir_sched_trace_header, flags), WEIR_ERR_SYNTAX,
                    "unknown flags 0x%x", h->flags);
    }
    for (size_t i = 0; i < WEIR_COUNT(times); i++) {
        WEIR_FAIL_IF(times[i] > AT_MAX_NS,
                     fail(error, offsetof(struct weir_sched_trace_header, alone_ns) + 8 * i,
                          WEIR_ERR_SYNTAX, "a time of more than 292 years"));
    }
    return WEIR_OK;
}

enum weir_status weir_sched_trace_open(const void *data, uint64_t bytes,
                                       struct weir_sched_trace_reader *ret_reader,
                                       struct weir_sched_trace_error *ret_error)
{
    struct weir_sched_trace_header header;
    WEIR_FAIL_IF(bytes < sizeof header,
                 fail(ret_error, bytes, WEIR_ERR_SYNTAX, "this is no trace of a scheduler: %s",
                      bytes ? "it ends within its header" : "it is empty"));
    memcpy(&header, data, sizeof header);
    WEIR_TRY(check_header(&header, ret_error));
    *ret_reader = (struct weir_sched_trace_reader){
        .header = header, .data = data, .bytes = bytes, .offset = header.header_bytes};
    return WEIR_OK;
}

static const char *check_tenant(const struct weir_sched_record *r)
{
    const struct weir_sched_tenant_params p = weir_sched_tenant_unpacked(r->value);
    return !r->tenant                                      ? "a tenant without an id"
           : !p.weight || p.weight > WEIR_SCHED_WEIGHT_MAX ? "a weight that is not 1 .. 10000"
           : p.priority >= WEIR_PRIORITY_COUNT             ? "an unknown priority"
           : !p.sm_limit || p.sm_limit > 100               ? "an SM limit that is not 1 .. 100"
           : p.min_share > 100                             ? "a min_share of more than 100"
                                                           : NULL;
}

static const char *check_arrival(const struct weir_sched_record *r)
{
    return !r->tenant || !r->queue || !r->item        ? "an arrival without tenant, queue or item"
           : r->class >= WEIR_SCHED_CLASS_COUNT       ? "an unknown class of work"
           : (r->flags & ~WEIR_SCHED_ITEM_FLAGS) != 0 ? "unknown flags of an item"
           : r->value > AT_MAX_NS                     ? "a prediction of more than 292 years"
                                                      : NULL;
}

static const char *check_place(const struct weir_sched_record *r, uint32_t sms)
{
    return !r->item ? "a decision about no item"
           : r->place.sm_count > sms || r->place.sm_first > sms - r->place.sm_count
               ? "a place beyond the device's SMs"
               : NULL;
}

static const char *check_core(const struct weir_sched_record *r, uint32_t sms)
{
    bool is_unknown;

    switch ((enum weir_sched_record_kind)r->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
    case WEIR_SCHED_REC_TENANT_SET:
        return check_tenant(r);
    case WEIR_SCHED_REC_TENANT_REMOVE:
        return r->tenant ? NULL : "a tenant without an id";
    case WEIR_SCHED_REC_QUEUE_ADD:
        return !r->tenant || !r->queue ? "a queue without tenant or id"
               : weir_sched_queue_sm_limit(r->value) > 100 || r->value >> 40 != 0
                   ? "an SM limit that is not 1 .. 100, or no domain"
               : r->bytes >= WEIR_SCHED_TRACE_GPUS_MAX || r->blocks >= WEIR_SCHED_TRACE_GPUS_MAX
                   ? "a GPU or rank above 15"
                   : NULL;
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        return r->queue ? NULL : "a queue without an id";
    case WEIR_SCHED_REC_ARRIVE:
        return check_arrival(r);
    case WEIR_SCHED_REC_START:
    case WEIR_SCHED_REC_RESUME:
    case WEIR_SCHED_REC_RESIZE:
        return check_place(r, sms);
    case WEIR_SCHED_REC_RUNNING:
        return !r->item ? "news of no item" : r->value > 1 ? "neither 0 nor 1" : NULL;
    case WEIR_SCHED_REC_STOP:
    case WEIR_SCHED_REC_STOPPED:
    case WEIR_SCHED_REC_FINISH:
    case WEIR_SCHED_REC_WITHDRAW:
        is_unknown = r->kind == WEIR_SCHED_REC_FINISH && r->value == WEIR_SCHED_UNKNOWN;
        return !r->item                              ? "news of no item"
               : r->value > AT_MAX_NS && !is_unknown ? "a time of more than 292 years"
                                                     : NULL;
    case WEIR_SCHED_REC_WAIT:
        return !r->item                             ? "a cause of no item's wait"
               : r->value >= WEIR_SCHED_CAUSE_COUNT ? "an unknown cause of a wait"
                                                    : NULL;
    case WEIR_SCHED_REC_CHOOSE:
    case WEIR_SCHED_REC_TICK:
    case WEIR_SCHED_REC_KIND_COUNT:
        break;
    }
    return NULL;
}

/* Visible ASCII up to the first NUL, and NULs behind it. */
static bool is_text(const struct weir_sched_record *r)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    weir_sched_trace_text(r, text);
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x21 || text[i] > 0x7e) {
            return false;
        }
    }
    const char *raw = (const char *)r + offsetof(struct weir_sched_record, queue);
    for (size_t i = length; i < WEIR_SCHED_TRACE_TEXT_BYTES; i++) {
        if (raw[i]) {
            return false;
        }
    }
    return true;
}

static const char *check_own(const struct weir_sched_record *r)
{
    struct weir_sched_trace_nature nature;
    switch ((enum weir_sched_trace_kind)r->kind) {
    case WEIR_SCHED_TRACE_NAME:
        return !r->tenant     ? "a name of no tenant"
               : r->flags > 1 ? "an unknown part of a name"
               : !is_text(r)  ? "a name that is no visible text"
                              : NULL;
    case WEIR_SCHED_TRACE_POLICY:
        return r->flags > 1 ? "unknown flags of a policy" : !is_text(r) ? "no policy's name" : NULL;
    case WEIR_SCHED_TRACE_KERNEL:
        nature = weir_sched_trace_nature_of(r);
        return nature.need_ppm > PPM || nature.memory_ppm > PPM || r->value >> 40
                   ? "a part of the device above all of it"
                   : NULL;
    case WEIR_SCHED_TRACE_LOST:
    case WEIR_SCHED_TRACE_END:
        return NULL;
    }
    return "an unknown kind of record";
}

enum weir_status weir_sched_trace_next(struct weir_sched_trace_reader *reader,
                                       struct weir_sched_record *ret_record,
                                       struct weir_sched_trace_error *ret_error)
{
    struct weir_sched_record record;
    uint64_t left = reader->bytes - reader->offset;
    if (left < sizeof record) {
        reader->is_cut = left != 0;
        return WEIR_ERR_NOT_FOUND;
    }
    WEIR_FAIL_IF(reader->has_ended,
                 fail(ret_error, reader->offset, WEIR_ERR_SYNTAX, "something follows the end"));
    memcpy(&record, reader->data + reader->offset, sizeof record);
    const char *wrong = record.at_ns < reader->at_ns ? "it is before the record before it"
                        : record.at_ns > AT_MAX_NS   ? "a time of more than 292 years"
                        : weir_sched_trace_is_core(record.kind)
                            ? check_core(&record, reader->header.sms)
                            : check_own(&record);
    if (wrong) {
        const char *word = weir_sched_trace_kind_word(record.kind);
        return fail(ret_error, reader->offset, WEIR_ERR_SYNTAX, "record %s (kind %u): %s",
                    word ? word : "?", record.kind, wrong);
    }
    reader->offset += sizeof record;
    reader->at_ns = record.at_ns;
    reader->has_ended = record.kind == WEIR_SCHED_TRACE_END;
    *ret_record = record;
    return WEIR_OK;
}

void weir_sched_trace_text(const struct weir_sched_record *record, char *ret_text)
{
    memcpy(ret_text, (const char *)record + offsetof(struct weir_sched_record, queue),
           WEIR_SCHED_TRACE_TEXT_BYTES);
    ret_text[WEIR_SCHED_TRACE_TEXT_BYTES] = '\0';
}

struct weir_sched_trace_nature weir_sched_trace_nature_of(const struct weir_sched_record *record)
{
    const uint64_t mask = (1u << 20) - 1;
    return (struct weir_sched_trace_nature){.need_ppm = (uint32_t)(record->value & mask),
                                            .memory_ppm = (uint32_t)(record->value >> 20 & mask)};
}

void weir_sched_trace_config(const struct weir_sched_trace_header *header,
                             struct weir_sched_config *config)
{
    config->sms = header->sms;
    config->alone_ns = header->alone_ns;
    config->inflight_ns = header->inflight_ns;
    config->guess_ns = header->guess_ns;
    config->quiet_ns = header->quiet_ns;
    config->starve_ns = header->starve_ns;
    config->lease_ns = header->lease_ns;
    config->stop_ns = header->stop_ns;
    config->launch_ns = header->launch_ns;
    config->overhead_ppm = header->overhead_ppm;
    config->fill = (header->flags & WEIR_SCHED_TRACE_FILL_ALL) != 0 ? WEIR_SCHED_FILL_ALL
                                                                    : WEIR_SCHED_FILL_NONE;
    config->small_sms = header->small_sms;
    config->room_sms = header->room_sms;
    config->part_step = header->part_step;
    config->above = (header->flags & WEIR_SCHED_TRACE_ABOVE) != 0;
}
