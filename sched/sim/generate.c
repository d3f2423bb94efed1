/*
 * Generate a trace from groups of tenants.
 *
 * Each stream of each tenant is a small state machine that makes one item after the other. A task
 * is a copy to the device, kernels, and a copy back, as far as the group has them. The machine
 * knows when its item arrives, starts and ends while its tenant is alone; a heap of all machines
 * orders these events by time. Every stream draws from its own random sequence, so adding a tenant
 * does not change the work of others.
 */
#include "sched/sim/generate.h"

#include "base/grow.h"
#include "sched/sim/spec.h"
#include "sched/trace/trace.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Default number of waves of blocks of a kernel. */
#define WAVES 8u

#define OWN_CONTEXTS 100000u /* first number of a tenant's own context, above those of the text */

#define RING_RECORDS  4096u
#define FLUSH_RECORDS 2048u
#define PPM           1e6

enum event_kind { FINISH, ARRIVE }; /* at equal times ends go first */

struct item {
    uint64_t id;
    uint64_t arrive_ns;
    uint64_t finish_ns;
    struct weir_sched_record arrival;
};

struct stream {
    const struct weir_sim_group *group;
    uint32_t tenant; /* from 0 */
    uint64_t random;
    uint64_t made;      /* number of items made */
    uint64_t task;      /* number of the task that the next item is of */
    uint32_t part;      /* position in the task; 0: its first item */
    uint64_t due_ns;    /* when the next task comes, if streams do not wait */
    uint64_t finish_ns; /* end of the last item */
    uint64_t last_arrive_ns;
    uint64_t last_start_ns;
    uint64_t rest_bytes; /* bytes of the next pieces of a copy */
    struct item next;
};

struct event {
    uint64_t at_ns;
    uint64_t item;
    enum event_kind kind;
    uint32_t stream;
};

struct generator {
    const struct weir_sim_generate_params *params;
    struct weir_sim_group *groups;
    uint32_t n_groups;
    struct weir_sched_trace *trace;
    struct stream *streams;
    uint32_t n_streams, n_tenants;
    struct event *heap;
    uint32_t n_heap, cap_heap;
    uint64_t n_items;
    uint32_t n_put;  /* records put since the last flush */
    bool has_failed; /* the file could not be written */
};

/* ------------------------------------------------------------------ chance */

/* splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* [0, 1) */
static double next_part(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static double draw(uint64_t *state, const struct weir_sim_range *range)
{
    if (range->is_exponential) {
        return -log1p(-next_part(state)) * range->low;
    }
    if (range->low >= range->high) {
        return range->low;
    }
    double low = range->low > 0 ? range->low : 1;
    return fmin(low * pow(range->high / low, next_part(state)), range->high);
}

/* A random sequence for an object named by numbers. */
static uint64_t sequence(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t state = seed;
    state = next_random(&state) ^ a;
    state = next_random(&state) ^ b;
    state = next_random(&state) ^ c;
    return next_random(&state);
}

/* ------------------------------------------------------------------ the heap of events */

static bool comes_before(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns     ? a->at_ns < b->at_ns
           : a->kind != b->kind     ? a->kind < b->kind
           : a->stream != b->stream ? a->stream < b->stream
                                    : a->item < b->item;
}

static enum weir_status push(struct generator *g, struct event event)
{
    WEIR_FAIL_IF(!WEIR_GROW(g->heap, g->n_heap, g->cap_heap), WEIR_ERR_NO_MEMORY);
    uint32_t at = g->n_heap++;
    for (; at && comes_before(&event, &g->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        g->heap[at] = g->heap[(at - 1) / 2];
    }
    g->heap[at] = event;
    return WEIR_OK;
}

static struct event pop(struct generator *g)
{
    struct event top = g->heap[0];
    struct event last = g->heap[--g->n_heap];
    uint32_t at = 0;
    for (uint32_t child = 1; child < g->n_heap; child = 2 * at + 1) {
        if (child + 1 < g->n_heap && comes_before(&g->heap[child + 1], &g->heap[child])) {
            child++;
        }
        if (!comes_before(&g->heap[child], &last)) {
            break;
        }
        g->heap[at] = g->heap[child];
        at = child;
    }
    g->heap[at] = last;
    return top;
}

/* ------------------------------------------------------------------ kernels */

struct kernel {
    uint64_t key;
    double ns;
    uint32_t blocks;
};

static uint32_t group_index(const struct generator *g, const struct weir_sim_group *group)
{
    return (uint32_t)(group - g->groups);
}

static struct kernel kernel_of(const struct generator *g, const struct weir_sim_group *group,
                               uint32_t index)
{
    uint64_t state = sequence(g->params->seed, 1, group_index(g, group), index);
    struct kernel kernel = {.key = (uint64_t)(group_index(g, group) + 1) << 16 | (index + 1),
                            .ns = draw(&state, &group->kernel_ns)};
    double blocks = group->blocks.high > 0
                        ? draw(&state, &group->blocks)
                        : (double)WAVES * group->blocks_per_sm * g->params->gpu.sms;
    kernel.blocks = (uint32_t)fmax(1, fmin(blocks, INT32_MAX));
    return kernel;
}

/* ------------------------------------------------------------------ streams */

static uint32_t parts_of(const struct weir_sim_group *group)
{
    return group->kernels + (group->copies.h2d.high > 0) + (group->copies.d2h.high > 0);
}

/* The time of the next task of a stream that does not wait, bursts included. */
static void plan_task(struct stream *s)
{
    const struct weir_sim_group *group = s->group;
    const struct weir_sim_range gap = {1e9 / fmax(group->rate, 1e-3), 0, true};
    if (group->arrivals == WEIR_SIM_POISSON) {
        s->due_ns += (uint64_t)draw(&s->random, &gap);
    } else if (group->arrivals == WEIR_SIM_BURST) {
        s->due_ns = group->start_ns + s->task / group->burst * group->period_ns;
    }
}

static uint64_t arrival_of(struct stream *s)
{
    const struct weir_sim_group *group = s->group;
    if (!s->made) {
        plan_task(s);
        return group->arrivals == WEIR_SIM_LOOP ? group->start_ns : s->due_ns;
    }
    if (s->rest_bytes != 0) {
        return s->last_start_ns + (uint64_t)draw(&s->random, &group->copies.stage_ns);
    }
    if (s->part) {
        return s->last_arrive_ns; /* the items of a task are sent at once */
    }
    if (group->arrivals != WEIR_SIM_LOOP) {
        plan_task(s);
        return WEIR_MAX(s->due_ns, s->last_arrive_ns);
    }
    if (s->task % group->depth) {
        return s->last_arrive_ns;
    }
    return s->finish_ns + (uint64_t)draw(&s->random, &group->think_ns);
}

static double copy_ns(const struct generator *g, enum weir_sched_class class, uint64_t bytes)
{
    uint64_t mb_s = class == WEIR_SCHED_H2D ? g->params->gpu.h2d_mb_s : g->params->gpu.d2h_mb_s;
    return (double)bytes * 1000.0 / (double)mb_s;
}

static double fill_copy(const struct generator *g, struct stream *s, bool is_first)
{
    struct weir_sched_record *r = &s->next.arrival;
    const struct weir_sim_group *group = s->group;
    r->class = is_first ? WEIR_SCHED_H2D : WEIR_SCHED_D2H;
    uint64_t bytes = s->rest_bytes;
    if (bytes == 0) {
        bytes = (uint64_t)draw(&s->random, is_first ? &group->copies.h2d : &group->copies.d2h);
    }
    r->bytes = group->copies.cut_bytes != 0 && bytes > group->copies.cut_bytes
                   ? group->copies.cut_bytes
                   : bytes;
    r->key = s->rest_bytes = bytes - r->bytes;
    return copy_ns(g, r->class, r->bytes);
}

static double fill_kernel(const struct generator *g, struct stream *s)
{
    struct weir_sched_record *r = &s->next.arrival;
    const struct weir_sim_group *group = s->group;
    uint32_t index = (uint32_t)(next_random(&s->random) % group->keys);
    const struct kernel kernel = kernel_of(g, group, index);
    r->class = group->graph_sms.high > 0 ? WEIR_SCHED_GRAPH : WEIR_SCHED_KERNEL;
    r->flags = (uint16_t)group->flags;
    r->key = kernel.key;
    r->blocks = kernel.blocks;
    r->blocks_per_sm = group->blocks_per_sm;
    return kernel.ns * (1 + group->jitter * (2 * next_part(&s->random) - 1));
}

/* Make the stream's next item in s->next; false: the stream has ended. */
static bool make_item(struct generator *g, uint32_t index)
{
    struct stream *s = &g->streams[index];
    const struct weir_sim_group *group = s->group;
    assert(group);
    bool has_h2d = group->copies.h2d.high > 0;
    bool is_first = s->part == 0;
    bool is_last = s->part + 1 == parts_of(group);
    uint64_t arrive_ns = arrival_of(s);
    if ((group->items && s->made >= group->items) || arrive_ns >= g->params->duration_ns) {
        return false;
    }
    s->next = (struct item){.id = ++g->n_items, .arrive_ns = arrive_ns};
    struct weir_sched_record *r = &s->next.arrival;
    *r = (struct weir_sched_record){.at_ns = arrive_ns,
                                    .tenant = s->tenant + 1,
                                    .queue = index + 1,
                                    .item = s->next.id,
                                    .kind = WEIR_SCHED_REC_ARRIVE};
    double ns = (is_first && has_h2d) || (is_last && group->copies.d2h.high > 0)
                    ? fill_copy(g, s, is_first && has_h2d)
                    : fill_kernel(g, s);
    r->flags |= group->streams.ranks > 1 ? WEIR_SCHED_PEERS : 0;
    uint64_t took_ns = (uint64_t)fmax(1, ns);
    r->value = group->is_predicted ? took_ns : 0;
    r->place.block_limit = group->arrivals != WEIR_SIM_LOOP; /* see weir_sched_trace_is_open() */
    s->next.finish_ns = WEIR_MAX(s->finish_ns, arrive_ns) + took_ns;
    s->last_start_ns = s->next.finish_ns - took_ns;
    s->finish_ns = s->next.finish_ns;
    s->last_arrive_ns = arrive_ns;
    s->made++;
    if (s->rest_bytes == 0) {
        s->part = is_last ? 0 : s->part + 1;
        s->task += is_last;
    }
    return true;
}

/* ------------------------------------------------------------------ writing */

static void flush(struct generator *g)
{
    g->has_failed |= weir_sched_trace_flush(g->trace) != WEIR_OK;
    g->n_put = 0;
}

/* Put a record, and flush before the ring is full: nothing may be lost here. */
static void put(struct generator *g, const struct weir_sched_record *record)
{
    (void)weir_sched_trace_put(g->trace, record);
    if (++g->n_put >= FLUSH_RECORDS) {
        flush(g);
    }
}

static void introduce_kernels(struct generator *g, const struct weir_sim_group *group)
{
    const struct weir_sched_trace_nature nature = {
        .need_ppm = (uint32_t)lround(group->need * PPM),
        .memory_ppm = (uint32_t)lround(group->memory * PPM),
    };
    for (uint32_t i = 0; group->kernels && i < group->keys; i++) {
        weir_sched_trace_kernel(g->trace, 0, kernel_of(g, group, i).key, &nature);
        if (i % 1024 == 1023) {
            flush(g);
        }
    }
    flush(g);
}

static uint32_t streams_of(const struct weir_sim_group *group)
{
    return group->streams.n * group->streams.ranks * group->streams.gpus;
}

static void introduce_tenant(struct generator *g, const struct weir_sim_group *group, uint32_t nth,
                             uint32_t first_stream)
{
    char name[64];
    uint64_t id = g->n_tenants + UINT64_C(1);
    uint64_t state = sequence(g->params->seed, 2, group_index(g, group), nth);
    uint64_t weight = (uint64_t)llround(draw(&state, &group->weight));
    weight = weight < 1 ? 1 : WEIR_MIN(weight, WEIR_SCHED_WEIGHT_MAX);
    (void)snprintf(name, sizeof name, group->tenants > 1 ? "%s-%u" : "%s", group->name, nth + 1);
    const struct weir_sched_tenant_params params = {.weight = (uint32_t)weight,
                                                    .priority = group->priority,
                                                    .sm_limit = group->sm_limit,
                                                    .min_share = group->min_share};
    put(g, &(struct weir_sched_record){
               .tenant = id,
               .kind = WEIR_SCHED_REC_TENANT_ADD,
               .bytes = group->context == WEIR_SIM_OWN_CONTEXT ? OWN_CONTEXTS + id : group->context,
               .value = weir_sched_tenant_packed(&params)});
    weir_sched_trace_tenant_name(g->trace, 0, id, name);
    for (uint32_t i = 0; i < streams_of(group); i++) {
        uint32_t on = i % (group->streams.ranks * group->streams.gpus);
        uint32_t rank = i % group->streams.ranks; /* all ranks draw alike: they do the same work */
        put(g, &(struct weir_sched_record){.tenant = id,
                                           .queue = first_stream + i + UINT64_C(1),
                                           .bytes = group->streams.gpu + on,
                                           .blocks = rank,
                                           .kind = WEIR_SCHED_REC_QUEUE_ADD});
        g->streams[first_stream + i] = (struct stream){
            .group = group,
            .tenant = g->n_tenants,
            .random =
                sequence(g->params->seed, 3 + i / group->streams.ranks, group_index(g, group), nth),
            .due_ns = group->start_ns,
        };
    }
    flush(g);
    g->n_tenants++;
}

static enum weir_status introduce(struct generator *g)
{
    uint64_t tenants = 0;
    uint64_t streams = 0;
    for (uint32_t i = 0; i < g->n_groups; i++) {
        tenants += g->groups[i].tenants;
        streams += (uint64_t)g->groups[i].tenants * streams_of(&g->groups[i]);
    }
    WEIR_FAIL_IF(tenants > WEIR_SIM_GENERATE_TENANTS_MAX || streams > WEIR_SIM_GENERATE_STREAMS_MAX,
                 WEIR_ERR_TOO_BIG);
    assert(streams > 0); /* each group has at least one */
    g->streams = calloc(streams, sizeof *g->streams);
    WEIR_FAIL_IF(!g->streams, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < g->n_groups; i++) {
        introduce_kernels(g, &g->groups[i]);
        for (uint32_t k = 0; k < g->groups[i].tenants; k++) {
            introduce_tenant(g, &g->groups[i], k, g->n_streams);
            g->n_streams += streams_of(&g->groups[i]);
        }
    }
    return WEIR_OK;
}

static enum weir_status prepare(struct generator *g, uint32_t stream)
{
    if (!make_item(g, stream)) {
        return WEIR_OK;
    }
    WEIR_FAIL_IF(g->n_items > WEIR_SIM_GENERATE_ITEMS_MAX, WEIR_ERR_TOO_BIG);
    return push(g, (struct event){g->streams[stream].next.arrive_ns, g->streams[stream].next.id,
                                  ARRIVE, stream});
}

static enum weir_status take(struct generator *g, const struct event *event)
{
    const struct stream *s = &g->streams[event->stream];
    struct weir_sched_record r = {.at_ns = event->at_ns,
                                  .tenant = s->tenant + 1,
                                  .queue = event->stream + UINT64_C(1),
                                  .item = event->item,
                                  .kind = WEIR_SCHED_REC_FINISH};
    if (event->kind == FINISH) {
        put(g, &r);
        return WEIR_OK;
    }
    uint64_t finish_ns = s->next.finish_ns;
    put(g, &s->next.arrival);
    r.kind = WEIR_SCHED_REC_START;
    r.class = s->next.arrival.class;
    put(g, &r);
    WEIR_TRY(push(g, (struct event){finish_ns, event->item, FINISH, event->stream}));
    return prepare(g, event->stream);
}

static enum weir_status generate(struct generator *g)
{
    enum weir_status status = introduce(g);
    for (uint32_t i = 0; status == WEIR_OK && i < g->n_streams; i++) {
        status = prepare(g, i);
    }
    while (status == WEIR_OK && g->n_heap && !g->has_failed) {
        struct event event = pop(g);
        status = take(g, &event);
    }
    return status;
}

enum weir_status weir_sim_generate(const char *spec, const struct weir_sim_generate_params *params,
                                   int fd, struct weir_diag *ret_diag)
{
    struct generator g = {.params = params};
    struct weir_sched_config config;
    enum weir_status status = weir_sim_spec_parse(spec, &g.groups, &g.n_groups, ret_diag);
    if (status != WEIR_OK) {
        close(fd);
        return status;
    }
    weir_sched_config_init(&config, params->gpu.sms);
    status =
        weir_sched_trace_create(&config, WEIR_SCHED_TRACE_GENERATED, 0, RING_RECORDS, fd, &g.trace);
    if (status == WEIR_OK) {
        status = generate(&g);
        enum weir_status written = weir_sched_trace_destroy(g.trace);
        status = status == WEIR_OK ? written : status;
    }
    if (status == WEIR_ERR_TOO_BIG) {
        weir_diag_set(ret_diag, 0, 0, "more than %u tenants, %u streams or %u items",
                      WEIR_SIM_GENERATE_TENANTS_MAX, WEIR_SIM_GENERATE_STREAMS_MAX,
                      WEIR_SIM_GENERATE_ITEMS_MAX);
    } else if (status != WEIR_OK) {
        weir_diag_set(ret_diag, 0, 0, "%s", weir_status_text(status));
    }
    free(g.groups);
    free(g.streams);
    free(g.heap);
    return status;
}
