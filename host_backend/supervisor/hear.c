/*
 * Passes each message and event of workers to the part of the supervisor that handles it.
 *
 * A guest may have taken over a worker. link.def says for each message when a worker may send it
 * and which tenant it may be about. Other messages are ignored here, before a handler sees them.
 */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_for.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <stddef.h>
#include <string.h>

#define ROWS_MAX 8192u /* rows that a worker's answer may have */

struct rule {
    void (*handle)(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard);
    enum { ANY, ONCE, ASKED } when;
    enum { ABOUT_NOBODY, ABOUT_SLOT, ABOUT_NAME } about;
    size_t offset; /* offset of the slot or the name in the message */
};

/* Define a handler that only passes on the message's contents. */
#define PASS(name, call)                                                                           \
    static void on_##name(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)  \
    {                                                                                              \
        (void)heard;                                                                               \
        call;                                                                                      \
    }
PASS(devices, weir_sup_claim(sup, worker, &heard->message.gpus))
PASS(reads, weir_sup_worker_reads(sup, worker, &heard->message.reads))
PASS(sms, weir_mps_sms_told(sup, &sup->workers[worker], &heard->message.sms))
PASS(ready, weir_sup_worker_ready(sup, worker, &heard->message.worker))
PASS(drop, weir_sup_drop(sup, worker, heard->message.chunk.id))
PASS(publish, weir_sup_publish(sup, worker, &heard->message.entry, weir_link_take_fd(heard)))
PASS(find, weir_sup_find(sup, worker, &heard->message.entry))
PASS(withdraw, weir_sup_withdraw(sup, worker, &heard->message.entry))
PASS(idle, weir_sup_program_ended(sup, worker, &heard->message.idle))
PASS(left_behind, weir_sup_program_left_behind(sup, worker))
PASS(no_memory, weir_sup_program_lacks_memory(sup, worker))
PASS(sync, weir_sup_program_syncs(sup, worker))
PASS(more, weir_sup_grant(sup, worker, &heard->message.more))
PASS(connections, weir_sup_worker_renew(sup, worker, heard->message.connections))
PASS(gate_deaf, weir_sup_gate_deaf(sup, worker))
PASS(stays, sup->workers[worker].ready = sup->workers[worker].stop_by_ns == 0)
PASS(fault, weir_sup_fault(sup, worker, &heard->message.fault))
PASS(move, weir_sup_move_heard(sup, worker, &heard->message.move))
PASS(event, weir_sup_worker_event(sup, worker, &heard->message.event))
PASS(row, weir_sup_admin_row(sup, worker, &heard->message, heard->fd))
#undef PASS

static void on_keep(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    if (heard->fd >= 0) {
        weir_sup_keep(sup, worker, &heard->message.chunk, weir_link_take_fd(heard));
    }
}

static void on_moved(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    if (heard->fd >= 0) {
        weir_sup_program_moved(sup, worker, &heard->message.moved, weir_link_take_fd(heard));
    }
}

static void on_resumed(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    weir_sup_worker_resumed(sup, worker, &heard->message.resumed);
    if (sup->life.listening) { /* a late answer: the others were told at the start */
        weir_sup_vms_tell(sup, worker);
    }
}

static void on_why(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    (void)worker;
    if (heard->fd >= 0) {
        weir_sup_asks_why(sup, heard->message.guest.tenant_index, weir_link_take_fd(heard));
    }
}

static void on_tenant_free(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    const struct weir_link_tenant *tenant = &heard->message.tenant;

    if (sup->tenants[tenant->index].worker == worker) {
        weir_sup_tenant_freed(sup, tenant->index, tenant->generation);
    }
}

static const struct rule rules[WEIR_LINK_COUNT] = {
#define NO            NULL
#define NOBODY        ABOUT_NOBODY, 0
#define OF(member)    ABOUT_SLOT, offsetof(struct weir_link_message, member)
#define NAMED(member) ABOUT_NAME, offsetof(struct weir_link_message, member)
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about)                          \
    [WEIR_LINK_##message] = {of_worker, when, about},
#include "host_backend/config/link.def"
#undef WEIR_LINK
#undef NAMED
#undef OF
#undef NOBODY
#undef NO
};

#define NAME_BYTES(member) sizeof(((struct weir_link_message *)0)->member)
_Static_assert(NAME_BYTES(tenant_row.name) == WEIR_TENANT_NAME_BYTES &&
                   NAME_BYTES(session_row.tenant) == WEIR_TENANT_NAME_BYTES,
               "names that NAMED() ends");

static bool is_time(struct weir_sup_worker *w, const struct rule *rule, uint32_t type)
{
    switch (rule->when) {
    case ONCE:
        return !w->told;
    case ASKED:
        return w->answering && (type == WEIR_LINK_STATUS_END || w->n_rows++ < ROWS_MAX);
    case ANY:
        break;
    }
    return true;
}

/* The tenant that the message is about; NULL: no tenant has this slot or name. */
static const struct weir_sup_tenant *subject(struct weir_supervisor *sup, const struct rule *rule,
                                             struct weir_link_message *message)
{
    char *at = (char *)message + rule->offset;
    uint32_t slot;

    if (rule->about == ABOUT_NAME) {
        at[WEIR_TENANT_NAME_BYTES - 1] = 0; /* the worker may have left the NUL out */
        return weir_sup_tenant_find(sup, at);
    }
    memcpy(&slot, at, sizeof slot);
    return slot < WEIR_CONFIG_TENANTS_MAX ? &sup->tenants[slot] : NULL;
}

/* May the worker send this message now? If not, it is ignored silently: the tenant may just have
 * been removed. */
static bool may_say(struct weir_supervisor *sup, int worker, const struct rule *rule,
                    struct weir_link_message *message)
{
    if (!is_time(&sup->workers[worker], rule, message->type)) {
        return false;
    }
    if (rule->about == ABOUT_NOBODY) {
        return true;
    }
    const struct weir_sup_tenant *tenant = subject(sup, rule, message);
    if (tenant && weir_sup_serves(sup, worker, tenant)) {
        return true;
    }
    weir_log_debug("supervisor: not about a tenant of the worker worker=%d type=%u", worker,
                   message->type);
    return false;
}

void weir_sup_hear(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard)
{
    uint32_t type = heard->message.type;

    if (type >= WEIR_LINK_COUNT || !rules[type].handle) {
        weir_log_warn("supervisor: unknown message worker=%d type=%u", worker, type);
    } else if (may_say(sup, worker, &rules[type], &heard->message)) {
        rules[type].handle(sup, worker, heard);
    }
    weir_link_finish(heard);
}

/* ---------------------------------------------------------------- events of workers */

static void tell_ready(struct weir_supervisor *sup, int worker)
{
    if (weir_sup_gpus_wanted(sup, worker)) {
        weir_sup_admin_look(sup);
    }
    weir_sup_remark_memory(sup);
    weir_sup_announce(sup);
}

static void tell_gone(struct weir_supervisor *sup, int worker)
{
    weir_sup_directory_worker_gone(sup, worker);
    weir_sup_tenants_settle(sup, worker);
    weir_sup_vms_orphan(sup, worker);
}

static void tell_gate_row(struct weir_supervisor *sup, struct weir_link_message *message, int fd)
{
    weir_sup_admin_row(sup, -1, message, fd);
}

const struct weir_worker_events weir_worker_events = {
    .hears = weir_sup_hear,
    .reads = weir_sup_tenants_tell,
    .ready = tell_ready,
    .gone = tell_gone,
    .left = weir_sup_tenants_died,
    .retires = weir_sup_quarantine_end,
    .failed = weir_sup_quarantine_begin,
    .program_died = weir_sup_program_died,
    .program_left = weir_sup_tenant_worker_gone,
    .domain_died = weir_sup_fault_of_dead,
    .asks_why = weir_sup_asks_why,
    .gate_answers = weir_sup_admin_answer,
    .gate_uses = weir_sup_admin_use,
    .gate_row = tell_gate_row,
};
