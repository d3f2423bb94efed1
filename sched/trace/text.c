/* Traces as text: each record is a line of SECONDS KIND and its fields, as in weir-trace(1). */
#include "sched/trace/trace.h"

#include <inttypes.h>

static const char *const core_words[] = {
    [WEIR_SCHED_REC_TENANT_ADD] = "tenant",
    [WEIR_SCHED_REC_TENANT_SET] = "tenant-set",
    [WEIR_SCHED_REC_TENANT_REMOVE] = "tenant-gone",
    [WEIR_SCHED_REC_QUEUE_ADD] = "queue",
    [WEIR_SCHED_REC_QUEUE_REMOVE] = "queue-gone",
    [WEIR_SCHED_REC_ARRIVE] = "arrive",
    [WEIR_SCHED_REC_START] = "start",
    [WEIR_SCHED_REC_STOP] = "stop",
    [WEIR_SCHED_REC_STOPPED] = "stopped",
    [WEIR_SCHED_REC_RESUME] = "resume",
    [WEIR_SCHED_REC_RESIZE] = "resize",
    [WEIR_SCHED_REC_RUNNING] = "running",
    [WEIR_SCHED_REC_FINISH] = "finish",
    [WEIR_SCHED_REC_WITHDRAW] = "withdraw",
    [WEIR_SCHED_REC_CHOOSE] = "choose",
    [WEIR_SCHED_REC_TICK] = "tick",
    [WEIR_SCHED_REC_WAIT] = "wait",
};
_Static_assert(WEIR_COUNT(core_words) == WEIR_SCHED_REC_KIND_COUNT, "every kind has a word");

static const char *const class_words[] = {
    [WEIR_SCHED_KERNEL] = "kernel", [WEIR_SCHED_GRAPH] = "graph", [WEIR_SCHED_H2D] = "h2d",
    [WEIR_SCHED_D2H] = "d2h",       [WEIR_SCHED_D2D] = "d2d",     [WEIR_SCHED_MEMSET] = "memset",
};
_Static_assert(WEIR_COUNT(class_words) == WEIR_SCHED_CLASS_COUNT, "every class has a word");

const char *weir_sched_trace_kind_word(uint8_t kind)
{
    if (weir_sched_trace_is_core(kind)) {
        return core_words[kind];
    }
    switch ((enum weir_sched_trace_kind)kind) {
#define WEIR_SCHED_TRACE_KIND(name, number, word)                                                  \
    case WEIR_SCHED_TRACE_##name:                                                                  \
        return word;
#include "sched/trace/kinds.def"
#undef WEIR_SCHED_TRACE_KIND
    }
    return NULL;
}

const char *weir_sched_trace_class_word(uint8_t class_)
{
    return class_ < WEIR_SCHED_CLASS_COUNT ? class_words[class_] : NULL;
}

static void print_arrival(FILE *out, const struct weir_sched_record *r)
{
    fprintf(out, " queue=%" PRIx64 " class=%s", r->queue, class_words[r->class]);
    if (weir_sched_trace_key(r)) {
        fprintf(out, " key=%" PRIx64, r->key);
    }
    if (r->blocks) {
        fprintf(out, " blocks=%u per_sm=%u", r->blocks, r->blocks_per_sm);
    }
    if (r->bytes) {
        fprintf(out, " bytes=%" PRIu64, r->bytes);
    }
    if (weir_sched_trace_rest_bytes(r)) {
        fprintf(out, " rest=%" PRIu64, weir_sched_trace_rest_bytes(r));
    }
    fprintf(out, " predicted_ns=%" PRIu64 "%s%s%s%s%s%s%s%s", r->value,
            r->flags & WEIR_SCHED_STOPPABLE ? " stoppable" : "",
            r->flags & WEIR_SCHED_MOVABLE ? " movable" : "",
            r->flags & WEIR_SCHED_STARTED ? " started" : "",
            r->flags & WEIR_SCHED_UNSURE ? " unsure" : "",
            r->flags & WEIR_SCHED_OWN_LEVELS ? " own-levels" : "",
            r->flags & WEIR_SCHED_PARTABLE ? " partable" : "",
            r->flags & WEIR_SCHED_DIVISIBLE ? " divisible" : "",
            r->flags & WEIR_SCHED_PEERS ? " peers" : "");
}

static void print_place(FILE *out, const struct weir_sched_place *place)
{
    if (place->sm_count) {
        fprintf(out, " sms=%u..%u", place->sm_first, place->sm_first + place->sm_count - 1);
    } else {
        fprintf(out, " sms=all");
    }
    if (place->block_limit) {
        fprintf(out, " block_limit=%u", place->block_limit);
    }
}

static void print_core(FILE *out, const struct weir_sched_record *r)
{
    static const char *const spans[] = {"", " has_turn", " turn_ends", " waits_for_turn"};
    struct weir_sched_tenant_params tenant;

    switch ((enum weir_sched_record_kind)r->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
    case WEIR_SCHED_REC_TENANT_SET:
        tenant = weir_sched_tenant_unpacked(r->value);
        fprintf(out, " weight=%u priority=%s sm_limit=%u%s%s", tenant.weight,
                weir_priority_names[tenant.priority], tenant.sm_limit,
                tenant.exclusive ? " exclusive" : "", spans[tenant.span]);
        if (tenant.min_share != 0) {
            fprintf(out, " min_share=%u", tenant.min_share);
        }
        if (weir_sched_trace_context(r) != 0) {
            fprintf(out, " context=%u", weir_sched_trace_context(r));
        }
        break;
    case WEIR_SCHED_REC_QUEUE_ADD:
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        fprintf(out, " queue=%" PRIx64, r->queue);
        if (weir_sched_queue_sm_limit(r->value) < 100) {
            fprintf(out, " sm_limit=%u", weir_sched_queue_sm_limit(r->value));
        }
        if (weir_sched_queue_domain(r->value) != 0) {
            fprintf(out, " domain=%u", weir_sched_queue_domain(r->value));
        }
        if (weir_sched_trace_gpu(r) != 0 || weir_sched_trace_rank(r) != 0) {
            fprintf(out, " gpu=%u rank=%u", weir_sched_trace_gpu(r), weir_sched_trace_rank(r));
        }
        break;
    case WEIR_SCHED_REC_ARRIVE:
        print_arrival(out, r);
        break;
    case WEIR_SCHED_REC_START:
    case WEIR_SCHED_REC_RESUME:
    case WEIR_SCHED_REC_RESIZE:
        print_place(out, &r->place);
        if (r->kind == WEIR_SCHED_REC_START && r->value) {
            fputs(r->value == 1 ? " filler" : " above", out);
        }
        break;
    case WEIR_SCHED_REC_STOP:
        fprintf(out, " lease_ns=%" PRIu64, r->value);
        break;
    case WEIR_SCHED_REC_STOPPED:
        fprintf(out, " done=%u", r->blocks);
        break;
    case WEIR_SCHED_REC_RUNNING:
        fprintf(out, " may_stop=%u", (uint32_t)r->value);
        break;
    case WEIR_SCHED_REC_FINISH:
        if (r->value == WEIR_SCHED_UNKNOWN) {
            fputs(" took_ns=unknown", out);
        } else {
            fprintf(out, " took_ns=%" PRIu64, r->value);
        }
        break;
    case WEIR_SCHED_REC_CHOOSE:
        fprintf(out, " slice_ns=%" PRIu64, r->value);
        break;
    case WEIR_SCHED_REC_WAIT:
        fprintf(out, " cause=%s", weir_sched_causes[r->value].word);
        if (r->key) {
            fprintf(out, " for=%" PRIx64, r->key);
        }
        break;
    case WEIR_SCHED_REC_TENANT_REMOVE:
    case WEIR_SCHED_REC_WITHDRAW:
    case WEIR_SCHED_REC_TICK:
    case WEIR_SCHED_REC_KIND_COUNT:
        break;
    }
}

static void print_own(FILE *out, const struct weir_sched_record *r)
{
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    struct weir_sched_trace_nature nature;
    switch ((enum weir_sched_trace_kind)r->kind) {
    case WEIR_SCHED_TRACE_NAME:
        weir_sched_trace_text(r, text);
        fprintf(out, " %s%s", r->flags ? "..." : "", text);
        break;
    case WEIR_SCHED_TRACE_POLICY:
        weir_sched_trace_text(r, text);
        fprintf(out, " kind=%u %s", r->class, r->flags ? "none" : text);
        break;
    case WEIR_SCHED_TRACE_LOST:
        fprintf(out, " records=%" PRIu64, r->value);
        break;
    case WEIR_SCHED_TRACE_KERNEL:
        nature = weir_sched_trace_nature_of(r);
        fprintf(out, " key=%" PRIx64 " need=%.6f memory=%.6f", r->key, nature.need_ppm / 1e6,
                nature.memory_ppm / 1e6);
        break;
    case WEIR_SCHED_TRACE_END:
        break;
    }
}

void weir_sched_trace_print(FILE *out, const struct weir_sched_record *record)
{
    const char *word = weir_sched_trace_kind_word(record->kind);
    bool is_own = !weir_sched_trace_is_core(record->kind);
    fprintf(out, "%" PRIu64 ".%09" PRIu64 " %s", record->at_ns / 1000000000u,
            record->at_ns % 1000000000u, word ? word : "?");
    if (record->tenant) {
        fprintf(out, " tenant=%" PRIx64, record->tenant);
    }
    if (!is_own && record->item) {
        fprintf(out, " item=%" PRIx64, record->item);
    }
    if (is_own) {
        print_own(out, record);
    } else {
        print_core(out, record);
    }
    fputc('\n', out);
}
