/*
 * The replaying scheduler traces itself as the recorded one did. So both sides are sequences of
 * records, which must be equal one by one:
 *
 *     file     ARRIVE  START  ARRIVE  CHOOSE  STOP ...
 *                 │ told            │ told
 *     replay   ARRIVE  START  ARRIVE  CHOOSE  STOP ...
 *
 * A record of the file that the replay has not made yet is an input: the scheduler gets it, and
 * traces first the input and then its decisions. If it is a decision, the replay differs.
 */
#include "sched/sim/replay.h"

#include "base/grow.h"
#include "sched/sim/idmap.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES WEIR_SIM_REPLAY_TEXT_BYTES

/* Tenants, queues and items have ids of their own. */
enum space { TENANT, QUEUE, ITEM, SPACES };

struct replay {
    struct weir_sim_replay *result;
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error *error;
    struct weir_sched *sched;
    struct weir_sim_idmap ids[SPACES]; /* from the trace's ids to this scheduler's */
    struct weir_sched_record *made;    /* records of this scheduler that are not compared yet */
    size_t first_made, n_made, cap_made;
    bool is_short; /* memory was short in a callback */
    bool has_policies;
};

static void on_order(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place)
{
    (void)user, (void)item, (void)item_user, (void)place;
}

static void on_start(void *user, weir_sched_id item, void *item_user,
                     const struct weir_sched_place *place, enum weir_sched_level level)
{
    (void)level;
    on_order(user, item, item_user, place);
}

static void on_stop(void *user, weir_sched_id item, void *item_user, uint64_t lease_ns)
{
    (void)user, (void)item, (void)item_user, (void)lease_ns;
}

static void on_timer(void *user, uint64_t at_ns)
{
    (void)user, (void)at_ns;
}

static void on_record(void *user, const struct weir_sched_record *record)
{
    struct replay *r = user;
    if (record->kind == WEIR_SCHED_REC_WAIT) {
        return; /* WAIT only explains decisions; files of earlier versions have none */
    }
    if (!WEIR_GROW(r->made, r->n_made, r->cap_made)) {
        r->is_short = true;
        return;
    }
    r->made[r->n_made++] = *record;
}

static enum weir_status complain(struct replay *r, enum weir_status status, const char *what)
{
    r->error->offset = r->reader.offset - WEIR_SCHED_TRACE_RECORD_BYTES;
    (void)snprintf(r->error->text, sizeof r->error->text, "%s", what);
    return status;
}

/* ------------------------------------------------------------------ telling */

/* This scheduler's id for an id of the trace; 0 for 0. */
static uint64_t mapped(const struct replay *r, uint64_t id, enum space space)
{
    uint64_t mine = 0;
    return id && weir_sim_idmap_get(&r->ids[space], id, &mine) ? mine : 0;
}

static bool map(struct replay *r, uint64_t id, enum space space, uint64_t mine)
{
    return weir_sim_idmap_set(&r->ids[space], id, mine);
}

static enum weir_status tell_tenant(struct replay *r, const struct weir_sched_record *rec)
{
    const struct weir_sched_tenant_params params = weir_sched_tenant_unpacked(rec->value);
    weir_sched_id id = mapped(r, rec->tenant, TENANT);
    if (rec->kind == WEIR_SCHED_REC_TENANT_SET) {
        return weir_sched_tenant_set(r->sched, rec->at_ns, id, &params);
    }
    if (rec->kind == WEIR_SCHED_REC_TENANT_REMOVE) {
        return weir_sched_tenant_remove(r->sched, rec->at_ns, id);
    }
    enum weir_status status = weir_sched_tenant_add(r->sched, rec->at_ns, &params, &id);
    return status == WEIR_OK && !map(r, rec->tenant, TENANT, id) ? WEIR_ERR_NO_MEMORY : status;
}

static enum weir_status tell_arrival(struct replay *r, const struct weir_sched_record *rec)
{
    const struct weir_sched_item_params params = {
        .class = (enum weir_sched_class)rec->class,
        .flags = rec->flags,
        .key = weir_sched_trace_key(rec),
        .bytes = rec->bytes,
        .rest_bytes = weir_sched_trace_rest_bytes(rec),
        .blocks = rec->blocks,
        .blocks_per_sm = rec->blocks_per_sm,
        .predicted_ns = rec->value,
    };
    weir_sched_id id;
    enum weir_status status =
        weir_sched_arrive(r->sched, rec->at_ns, mapped(r, rec->queue, QUEUE), &params, &id);
    return status == WEIR_OK && !map(r, rec->item, ITEM, id) ? WEIR_ERR_NO_MEMORY : status;
}

/* Give the scheduler an input; WEIR_ERR_UNSUPPORTED: the record is not an input. */
static enum weir_status tell(struct replay *r, const struct weir_sched_record *rec)
{
    weir_sched_id item = mapped(r, rec->item, ITEM);
    weir_sched_id id;
    enum weir_status status;
    switch (rec->kind) {
    case WEIR_SCHED_REC_TENANT_ADD:
    case WEIR_SCHED_REC_TENANT_SET:
    case WEIR_SCHED_REC_TENANT_REMOVE:
        return tell_tenant(r, rec);
    case WEIR_SCHED_REC_QUEUE_ADD:
        status = weir_sched_queue_add(r->sched, mapped(r, rec->tenant, TENANT),
                                      weir_sched_queue_sm_limit(rec->value),
                                      weir_sched_queue_domain(rec->value), &id);
        return status == WEIR_OK && !map(r, rec->queue, QUEUE, id) ? WEIR_ERR_NO_MEMORY : status;
    case WEIR_SCHED_REC_QUEUE_REMOVE:
        return weir_sched_queue_remove(r->sched, rec->at_ns, mapped(r, rec->queue, QUEUE));
    case WEIR_SCHED_REC_ARRIVE:
        return tell_arrival(r, rec);
    case WEIR_SCHED_REC_STOPPED:
        return weir_sched_stopped(r->sched, rec->at_ns, item, rec->blocks);
    case WEIR_SCHED_REC_RUNNING:
        return weir_sched_running(r->sched, rec->at_ns, item, rec->value != 0);
    case WEIR_SCHED_REC_FINISH:
        return weir_sched_finished(r->sched, rec->at_ns, item, rec->value);
    case WEIR_SCHED_REC_WITHDRAW:
        return weir_sched_withdraw(r->sched, rec->at_ns, item);
    case WEIR_SCHED_REC_TICK:
        weir_sched_tick(r->sched, rec->at_ns);
        return WEIR_OK;
    default:
        return WEIR_ERR_UNSUPPORTED;
    }
}

static enum weir_status set_policy(struct replay *r, const struct weir_sched_record *rec)
{
    char name[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    weir_sched_trace_text(rec, name);
    if (r->has_policies) {
        return WEIR_OK;
    }
    if (rec->flags) {
        return weir_sched_policy_clear(r->sched, rec->at_ns, rec->class);
    }
    const struct weir_policy_ops *ops = weir_policy_find(name);
    return ops ? weir_sched_policy_set(r->sched, rec->at_ns, ops)
               : complain(r, WEIR_ERR_NOT_FOUND, "a policy that does not exist here");
}

/* ------------------------------------------------------------------ comparing */

static bool is_decision(uint8_t kind)
{
    return kind == WEIR_SCHED_REC_START || kind == WEIR_SCHED_REC_STOP ||
           kind == WEIR_SCHED_REC_RESUME || kind == WEIR_SCHED_REC_RESIZE ||
           kind == WEIR_SCHED_REC_CHOOSE;
}

/* Compare places, except of arrivals, which use the field for facts that only files have. */
static bool is_same_place(const struct weir_sched_record *a, const struct weir_sched_record *b)
{
    return a->kind == WEIR_SCHED_REC_ARRIVE ||
           (a->place.sm_first == b->place.sm_first && a->place.sm_count == b->place.sm_count &&
            a->place.block_limit == b->place.block_limit);
}

static bool is_same(const struct replay *r, const struct weir_sched_record *traced,
                    const struct weir_sched_record *made)
{
    return traced->kind == made->kind && traced->at_ns == made->at_ns &&
           mapped(r, traced->tenant, TENANT) == made->tenant &&
           mapped(r, traced->queue, QUEUE) == made->queue &&
           mapped(r, traced->item, ITEM) == made->item && traced->value == made->value &&
           traced->blocks == made->blocks && is_same_place(traced, made);
}

static void to_text(const struct weir_sched_record *record, char *ret_text)
{
    ret_text[0] = '\0';
    FILE *out = fmemopen(ret_text, TEXT_BYTES, "w");
    if (out) {
        weir_sched_trace_print(out, record);
        (void)fclose(out);
    }
    ret_text[TEXT_BYTES - 1] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
}

static void differ(struct replay *r, const struct weir_sched_record *traced,
                   const struct weir_sched_record *made)
{
    struct weir_sim_replay *result = r->result;
    result->differs = true;
    result->offset = r->reader.offset - (traced ? WEIR_SCHED_TRACE_RECORD_BYTES : 0);
    (void)snprintf(result->traced, TEXT_BYTES, "nothing");
    (void)snprintf(result->decided, TEXT_BYTES, "nothing");
    if (traced) {
        to_text(traced, result->traced);
    }
    if (made) {
        to_text(made, result->decided);
    }
}

/* Compare the next record of the core in the trace with the replay's. */
static enum weir_status compare(struct replay *r, const struct weir_sched_record *traced)
{
    if (r->first_made == r->n_made) {
        r->first_made = r->n_made = 0;
        enum weir_status status = tell(r, traced);
        WEIR_FAIL_IF(status == WEIR_ERR_STALE || status == WEIR_ERR_INVALID,
                     complain(r, WEIR_ERR_SYNTAX, "no scheduler takes this from its environment"));
        if (status != WEIR_OK && status != WEIR_ERR_UNSUPPORTED) {
            return status;
        }
        WEIR_FAIL_IF(r->is_short, WEIR_ERR_NO_MEMORY);
    }
    const struct weir_sched_record *made =
        r->first_made < r->n_made ? &r->made[r->first_made++] : NULL;
    if (!made || !is_same(r, traced, made)) {
        differ(r, traced, made);
        return WEIR_OK;
    }
    r->result->records++;
    r->result->decisions += is_decision(traced->kind);
    return WEIR_OK;
}

static enum weir_status take(struct replay *r, const struct weir_sched_record *record)
{
    if (record->kind == WEIR_SCHED_REC_WAIT) {
        return WEIR_OK;
    }
    if (weir_sched_trace_is_core(record->kind)) {
        return compare(r, record);
    }
    WEIR_FAIL_IF(record->kind == WEIR_SCHED_TRACE_LOST,
                 complain(r, WEIR_ERR_UNSUPPORTED, "records are missing here"));
    return record->kind == WEIR_SCHED_TRACE_POLICY ? set_policy(r, record) : WEIR_OK;
}

static enum weir_status go_through(struct replay *r)
{
    struct weir_sched_record record;
    enum weir_status status = WEIR_OK;
    while (status == WEIR_OK && !r->result->differs) {
        status = weir_sched_trace_next(&r->reader, &record, r->error);
        if (status == WEIR_ERR_NOT_FOUND) {
            /* Only a file that was cut may end between an input and its decisions. */
            if (r->first_made < r->n_made && r->reader.has_ended) {
                differ(r, NULL, &r->made[r->first_made]);
            }
            return WEIR_OK;
        }
        WEIR_THEN(status, take(r, &record));
    }
    return status;
}

static enum weir_status make_scheduler(struct replay *r, const struct weir_policy_set *policies)
{
    const struct weir_sched_env env = {.user = r,
                                       .start = on_start,
                                       .stop = on_stop,
                                       .resume = on_order,
                                       .resize = on_order,
                                       .timer = on_timer,
                                       .trace = on_record};
    struct weir_sched_config config;
    weir_sched_config_init(&config, r->reader.header.sms);
    weir_sched_trace_config(&r->reader.header, &config);
    enum weir_status status = weir_sched_create(&config, &env, &r->sched);
    for (int kind = 0; policies && status == WEIR_OK && kind < WEIR_POLICY_KIND_COUNT; kind++) {
        if (policies->policy[kind]) {
            status = weir_sched_policy_set(r->sched, 0, policies->policy[kind]);
        }
    }
    return status == WEIR_ERR_INVALID
               ? complain(r, WEIR_ERR_SYNTAX, "no scheduler has the settings of the header")
               : status;
}

enum weir_status weir_sim_replay(const void *data, uint64_t bytes,
                                 const struct weir_policy_set *policies,
                                 struct weir_sim_replay *ret,
                                 struct weir_sched_trace_error *ret_error)
{
    struct weir_sim_replay result = {0};
    struct replay r = {.result = &result, .error = ret_error, .has_policies = policies != NULL};
    *ret_error = (struct weir_sched_trace_error){0};
    enum weir_status status = weir_sched_trace_open(data, bytes, &r.reader, ret_error);
    if (status == WEIR_OK &&
        (r.reader.header.flags & (WEIR_SCHED_TRACE_MIDDLE | WEIR_SCHED_TRACE_GENERATED))) {
        ret_error->offset = offsetof(struct weir_sched_trace_header, flags);
        (void)snprintf(ret_error->text, sizeof ret_error->text, "%s",
                       r.reader.header.flags & WEIR_SCHED_TRACE_GENERATED
                           ? "this trace was made up: nobody decided anything in it"
                           : "recording began while work was under way");
        status = WEIR_ERR_UNSUPPORTED;
    }
    WEIR_THEN(status, make_scheduler(&r, policies));
    WEIR_THEN(status, go_through(&r));
    if (status == WEIR_OK) {
        *ret = result;
    } else if (!ret_error->text[0]) {
        (void)snprintf(ret_error->text, sizeof ret_error->text, "%s", weir_status_text(status));
    }
    weir_sched_destroy(r.sched);
    for (int space = 0; space < SPACES; space++) {
        weir_sim_idmap_finish(&r.ids[space]);
    }
    free(r.made);
    return status;
}
