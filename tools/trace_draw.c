/*
 * A recording says when an item was granted and when it had ended. Items of a queue run one after
 * the other, so an item began when it was granted or when the one before it had ended, whichever
 * was later.
 */
#include "tools/trace_draw.h"

#include "sched/sim/svg.h"
#include "sched/trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tenant, queue or item, by its id. */
struct known {
    weir_sched_id id;
    uint32_t tenant;   /* index, as the load counts them */
    uint64_t since_ns; /* of an item: it runs since then, UINT64_MAX: it does not; of a queue: its
                          last item's end */
    weir_sched_id queue;
    struct weir_sched_place place;
    uint8_t class;
};

struct list {
    struct known *rows;
    size_t n, room;
};

struct drawing {
    struct weir_sim_svg *svg;
    uint32_t sms, n_tenants;
    uint64_t begin_ns;
    struct list tenants, queues, items;
    bool is_short; /* of memory */
};

static struct known *find(struct list *list, weir_sched_id id)
{
    for (size_t i = list->n; i-- > 0;) {
        if (list->rows[i].id == id) {
            return &list->rows[i];
        }
    }
    return NULL;
}

static struct known *add(struct drawing *d, struct list *list, const struct known *row)
{
    if (list->n == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        struct known *rows = realloc(list->rows, room * sizeof *rows);
        if (!rows) {
            d->is_short = true;
            return NULL;
        }
        list->rows = rows;
        list->room = room;
    }
    list->rows[list->n] = *row;
    return &list->rows[list->n++];
}

static void drop(struct list *list, const struct known *row)
{
    if (row) {
        list->rows[row - list->rows] = list->rows[--list->n];
    }
}

/* The item has held its place until now. */
static void draw(struct drawing *d, const struct known *item, uint64_t now_ns)
{
    const struct known *queue = find(&d->queues, item->queue);
    uint64_t from_ns = item->since_ns;
    bool is_copy = item->class == WEIR_SCHED_H2D || item->class == WEIR_SCHED_D2H;
    if (queue && from_ns != UINT64_MAX && queue->since_ns > from_ns) {
        from_ns = queue->since_ns;
    }
    if (from_ns == UINT64_MAX || from_ns >= now_ns) {
        return;
    }
    if (is_copy) {
        weir_sim_svg_span(d->svg, &(struct weir_sim_span){.tenant = item->tenant,
                                                          .class = item->class,
                                                          .from_ns = from_ns - d->begin_ns,
                                                          .to_ns = now_ns - d->begin_ns});
    } else {
        bool all = item->place.sm_count == 0 || item->place.sm_first >= d->sms ||
                   item->place.sm_count > d->sms - item->place.sm_first;
        weir_sim_svg_hold(d->svg,
                          &(struct weir_sim_hold){.owner = item->tenant,
                                                  .from_ns = from_ns - d->begin_ns,
                                                  .to_ns = now_ns - d->begin_ns,
                                                  .sm_first = all ? 0 : item->place.sm_first,
                                                  .sm_count = all ? d->sms : item->place.sm_count,
                                                  .share = 1});
    }
}

/* The item has ended, or is gone. */
static void end(struct drawing *d, struct known *item, uint64_t now_ns)
{
    struct known *queue = find(&d->queues, item->queue);
    draw(d, item, now_ns);
    if (queue && item->since_ns != UINT64_MAX) {
        queue->since_ns = now_ns;
    }
    drop(&d->items, item);
}

static void arrive(struct drawing *d, const struct weir_sched_record *r)
{
    const struct known *queue = find(&d->queues, r->queue);
    bool runs = (r->flags & WEIR_SCHED_STARTED) != 0;
    if (queue) {
        (void)add(d, &d->items,
                  &(struct known){.id = r->item,
                                  .tenant = queue->tenant,
                                  .queue = r->queue,
                                  .class = r->class,
                                  .since_ns = runs ? r->at_ns : UINT64_MAX});
    }
}

/* What is about an item that is known. */
static void follow(struct drawing *d, const struct weir_sched_record *r, struct known *item)
{
    switch (r->kind) {
    case WEIR_SCHED_REC_START:
    case WEIR_SCHED_REC_RESUME:
        item->place = r->place;
        item->since_ns = r->at_ns;
        break;
    case WEIR_SCHED_REC_RESIZE:
        draw(d, item, r->at_ns);
        item->place = r->place;
        item->since_ns = r->at_ns;
        break;
    case WEIR_SCHED_REC_STOPPED:
        draw(d, item, r->at_ns);
        item->since_ns = UINT64_MAX;
        break;
    case WEIR_SCHED_REC_FINISH:
    case WEIR_SCHED_REC_WITHDRAW:
        end(d, item, r->at_ns);
        break;
    default:
        break;
    }
}

static void take(struct drawing *d, const struct weir_sched_record *r)
{
    const struct known *tenant = find(&d->tenants, r->tenant);
    struct known *item = find(&d->items, r->item);
    switch (r->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
        (void)add(d, &d->tenants, &(struct known){.id = r->tenant, .tenant = d->n_tenants++});
        break;
    case WEIR_SCHED_REC_QUEUE_ADD:
        if (tenant) {
            (void)add(d, &d->queues, &(struct known){.id = r->queue, .tenant = tenant->tenant});
        }
        break;
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        drop(&d->queues, find(&d->queues, r->queue));
        break;
    case WEIR_SCHED_REC_ARRIVE:
        arrive(d, r);
        break;
    default:
        if (item && weir_sched_trace_is_core(r->kind)) {
            follow(d, r, item);
        }
        break;
    }
}

/* All records. @return WEIR_ERR_NOT_FOUND when the file was read to its end */
static enum weir_status read_all(struct drawing *d, const void *data, uint64_t bytes,
                                 uint64_t *ret_end_ns, struct weir_sched_trace_error *error)
{
    struct weir_sched_trace_reader reader;
    struct weir_sched_record record;
    bool first = true;
    enum weir_status status = weir_sched_trace_open(data, bytes, &reader, error);
    while (status == WEIR_OK &&
           (status = weir_sched_trace_next(&reader, &record, error)) == WEIR_OK) {
        if (first) {
            d->begin_ns = record.at_ns;
            first = false;
        }
        take(d, &record);
        *ret_end_ns = record.at_ns - d->begin_ns;
    }
    for (size_t i = 0; i < d->items.n; i++) { /* that had not ended */
        draw(d, &d->items.rows[i], d->begin_ns + *ret_end_ns);
    }
    return status;
}

static bool draw_load(const char *path, const struct weir_sim_load *load, struct drawing *d,
                      const void *data, uint64_t bytes, uint64_t from_ns, uint64_t to_ns, FILE *out)
{
    struct weir_sched_trace_error error;
    char title[256];
    uint64_t end_ns = 0;
    enum weir_status status = read_all(d, data, bytes, &end_ns, &error);
    if (status != WEIR_ERR_NOT_FOUND) {
        fprintf(stderr, "weir trace: %s: offset %" PRIu64 ": %s\n", path, error.offset, error.text);
        return false;
    }
    to_ns = to_ns && to_ns < end_ns ? to_ns : end_ns;
    if (to_ns <= from_ns || d->n_tenants != load->n_tenants || d->is_short) {
        fprintf(stderr, "weir trace: %s: %s\n", path,
                to_ns <= from_ns ? "nothing was recorded between --from and --to"
                : d->is_short    ? "out of memory"
                                 : "a tenant is not introduced");
        return false;
    }
    const char *name = strrchr(path, '/');
    snprintf(title, sizeof title, "Who had which SMs, as recorded: %s", name ? name + 1 : path);
    status = weir_sim_svg_draw(d->svg, out, title, from_ns, to_ns);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir trace: %s: %s\n", path, weir_status_text(status));
    }
    return status == WEIR_OK;
}

bool weir_trace_draw(const char *path, const void *data, uint64_t bytes, uint64_t from_ns,
                     uint64_t to_ns, FILE *out)
{
    struct weir_sched_trace_error error;
    struct weir_sim_load load;
    struct drawing d = {0};
    bool is_good = false;
    if (weir_sim_load_read(data, bytes, true, &load, &error) != WEIR_OK) {
        fprintf(stderr, "weir trace: %s: offset %" PRIu64 ": %s\n", path, error.offset, error.text);
        return false;
    }
    d.sms = load.header.sms;
    if (weir_sim_svg_create(&load, d.sms, &d.svg) == WEIR_OK) {
        is_good = draw_load(path, &load, &d, data, bytes, from_ns, to_ns, out);
    }
    weir_sim_svg_destroy(d.svg);
    weir_sim_load_finish(&load);
    free(d.tenants.rows);
    free(d.queues.rows);
    free(d.items.rows);
    return is_good;
}
