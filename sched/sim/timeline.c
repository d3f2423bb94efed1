/*
 * Writes trace events. Google's "Trace Event Format" documents them. Times are microseconds with
 * three decimals, exact to the nanosecond.
 *
 * Holds are reported when they end, so a counter event for each would lie in the past of others;
 * the viewers sort. A tenant's counter is the sum of what begins minus what ends, so each hold is
 * written as two steps of its own counter track: SMs at its beginning, and what is left at its end
 * is the next hold's. To keep files small, holds that follow each other without a gap are one step.
 */
#include "sched/sim/timeline.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdlib.h>

#define PID_TENANTS 1u
#define PID_ENGINES 2u

/* The SMs that a tenant holds since a time; changes at one time are summed up. */
struct held {
    uint64_t from_ns;
    uint64_t to_ns;
    double sms;
};

struct weir_sim_timeline {
    FILE *out;
    const struct weir_sim_load *load;
    struct held *held;
    bool has_events;
};

static void begin_event(struct weir_sim_timeline *t)
{
    fputs(t->has_events ? ",\n" : "\n", t->out);
    t->has_events = true;
}

static void put_time(FILE *out, const char *name, uint64_t ns)
{
    fprintf(out, "\"%s\":%" PRIu64 ".%03" PRIu64, name, ns / 1000, ns % 1000);
}

static void put_name(const struct weir_sim_timeline *t, uint32_t tenant)
{
    if (t->load->tenants[tenant].name[0]) {
        weir_json_put_part(t->out, t->load->tenants[tenant].name);
    } else {
        fprintf(t->out, "tenant %u", tenant + 1);
    }
}

static void name_tracks(struct weir_sim_timeline *t)
{
    static const char *const engines[] = {"to the device", "from the device"};
    static const char *const processes[] = {"tenants", "copy engines"};
    for (unsigned i = 0; i < 2; i++) {
        begin_event(t);
        fprintf(t->out,
                "{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}",
                i + PID_TENANTS, processes[i]);
        begin_event(t);
        fprintf(t->out,
                "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":"
                "{\"name\":\"%s\"}}",
                PID_ENGINES, i + 1, engines[i]);
    }
    for (uint32_t q = 0; q < t->load->n_queues; q++) {
        begin_event(t);
        fprintf(
            t->out,
            "{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"",
            PID_TENANTS, q + 1);
        put_name(t, t->load->queues[q].tenant);
        fprintf(t->out, ", queue %u\"}}", q + 1);
    }
}

enum weir_status weir_sim_timeline_open(FILE *out, const struct weir_sim_load *load,
                                        struct weir_sim_timeline **ret_timeline)
{
    struct weir_sim_timeline *t = calloc(1, sizeof *t);
    WEIR_FAIL_IF(!t, WEIR_ERR_NO_MEMORY);
    t->held = calloc(load->n_tenants + 1u, sizeof *t->held);
    if (!t->held) {
        free(t);
        return WEIR_ERR_NO_MEMORY;
    }
    t->out = out;
    t->load = load;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
    name_tracks(t);
    *ret_timeline = t;
    return WEIR_OK;
}

static void put_span(struct weir_sim_timeline *t, const struct weir_sim_span *span, uint32_t pid,
                     uint32_t tid)
{
    const struct weir_sim_item *item = &t->load->items[span->item];
    begin_event(t);
    fprintf(t->out, "{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"name\":\"%s", pid, tid,
            weir_sched_trace_class_word((uint8_t)span->class));
    if (pid == PID_ENGINES) {
        fputs(" of ", t->out);
        put_name(t, span->tenant);
    } else if (item->params.key) {
        fprintf(t->out, " %" PRIx64, item->params.key);
    }
    fputs("\",", t->out);
    put_time(t->out, "ts", span->from_ns);
    fputc(',', t->out);
    put_time(t->out, "dur", span->to_ns - span->from_ns);
    fprintf(t->out, ",\"args\":{\"item\":%u,\"bytes\":%" PRIu64 ",\"blocks\":%u,", span->item,
            item->params.bytes, item->params.blocks);
    put_time(t->out, "waited_us", span->waited_ns);
    fprintf(t->out, ",\"stopped\":%s}}", span->has_finished ? "false" : "true");
}

void weir_sim_timeline_span(struct weir_sim_timeline *t, const struct weir_sim_span *span)
{
    put_span(t, span, PID_TENANTS, span->queue + 1);
    if (span->class == WEIR_SCHED_H2D || span->class == WEIR_SCHED_D2H) {
        put_span(t, span, PID_ENGINES, span->class == WEIR_SCHED_H2D ? 1 : 2);
    }
}

static void put_counter(struct weir_sim_timeline *t, uint32_t tenant, uint64_t at_ns, double sms)
{
    begin_event(t);
    fprintf(t->out, "{\"ph\":\"C\",\"pid\":%u,\"name\":\"SMs of ", PID_TENANTS);
    put_name(t, tenant);
    fputs("\",", t->out);
    put_time(t->out, "ts", at_ns);
    fprintf(t->out, ",\"args\":{\"SMs\":%.3f}}", sms);
}

/* Write a step of a tenant's counter. It is complete only when a later one begins. */
static void put_held(struct weir_sim_timeline *t, uint32_t tenant, uint64_t next_ns)
{
    const struct held *held = &t->held[tenant];
    if (held->to_ns > held->from_ns) {
        put_counter(t, tenant, held->from_ns, held->sms);
        if (next_ns > held->to_ns) {
            put_counter(t, tenant, held->to_ns, 0);
        }
    }
}

void weir_sim_timeline_hold(struct weir_sim_timeline *t, const struct weir_sim_hold *hold)
{
    struct held *held = &t->held[hold->owner];
    double sms = hold->sm_count * (double)hold->share;
    if (held->from_ns == hold->from_ns && held->to_ns == hold->to_ns) {
        held->sms += sms;
        return;
    }
    put_held(t, (uint32_t)hold->owner, hold->from_ns);
    *held = (struct held){hold->from_ns, hold->to_ns, sms};
}

enum weir_status weir_sim_timeline_close(struct weir_sim_timeline *t)
{
    if (!t) {
        return WEIR_OK;
    }
    for (uint32_t i = 0; i < t->load->n_tenants; i++) {
        put_held(t, i, UINT64_MAX);
    }
    fputs("\n]}\n", t->out);
    enum weir_status status = fflush(t->out) != 0 || ferror(t->out) ? WEIR_ERR_IO : WEIR_OK;
    free(t->held);
    free(t);
    return status;
}
