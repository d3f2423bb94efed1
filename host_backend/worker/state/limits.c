/* Charges for a session's memory and other resources: see limits.h. */
#include "host_backend/worker/state/limits.h"

#include "base/file_text.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/tenant.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/worker.h"
#include "proto/ops.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAUSE_NS    (100 * WEIR_NS_PER_MS) /* time between two reports of refusals */
#define ASK_WAIT_NS (2 * WEIR_NS_PER_S)    /* the supervisor answers in its next turn */

void weir_tenant_refused(struct weir_tenant *tenant, enum weir_account_item item)
{
    weir_log_warn("tenant: it may have no more %s tenant=%s used=%llu",
                  weir_account_item_text(item), tenant->name,
                  (unsigned long long)weir_account_used(&tenant->account, item));
}

CUresult weir_tenant_charge(struct weir_tenant *tenant, const struct weir_amounts *amounts)
{
    enum weir_account_item refused;

    if (weir_account_charge_all(&tenant->account, amounts, &refused)) {
        return CUDA_SUCCESS;
    }
    if (!weir_account_is_device_memory(refused) && refused != WEIR_ACCOUNT_PINNED_MEMORY) {
        weir_tenant_refused(tenant, refused);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* How much more the limit that the guest asked for allows. */
static uint64_t wish_left(const struct weir_session *session, uint32_t device)
{
    uint64_t limit = session->about->wish.memory_bytes[device];
    uint64_t held = atomic_load(&session->about->device_bytes[device]);

    return limit == 0 ? UINT64_MAX : held < limit ? limit - held : 0;
}

uint64_t weir_session_device_left(const struct weir_session *session, uint32_t device)
{
    const struct weir_account *account = &session->tenant->account;
    uint64_t all = weir_account_left(account, WEIR_ACCOUNT_DEVICE_MEMORY);
    uint64_t one = weir_account_left(account, WEIR_ACCOUNT_OF_DEVICE + device);
    uint64_t wish = wish_left(session, device);

    all = WEIR_MIN(all, one);
    return WEIR_MIN(all, wish);
}

/* Half is reserved for connections, the driver and this process itself. */
static uint64_t descriptors_of_tenants(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : 0;
}

/* Half is reserved for sessions' segments and threads, the driver and this process. */
static uint64_t mappings_of_tenants(void)
{
    char text[32];

    return weir_file_text("/proc/sys/vm/max_map_count", text, sizeof text)
               ? strtoull(text, NULL, 10) / 2
               : 65530 / 2; /* the kernel's default */
}

struct weir_account_pool *weir_worker_pool_create(void)
{
    struct weir_account_pool *pool = malloc(sizeof *pool);

    if (pool) {
        weir_account_pool_init(pool);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_DESCRIPTORS, descriptors_of_tenants(),
                                 WEIR_WINDOWS_MAX);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_MAPPINGS, mappings_of_tenants(),
                                 WEIR_WINDOWS_MAX);
        weir_account_pool_divide(pool, WEIR_ACCOUNT_BUS_GUARDS,
                                 WEIR_BUS_GUARDS_MAX / 2, /* half is for virtual machines */
                                 WEIR_WINDOWS_MAX);
    }
    return pool;
}

/* ---------------------------------------------------------------- the process's resources */

static struct weir_tenant *tenant_of(struct weir_account *account)
{
    return (struct weir_tenant *)(void *)((char *)account - offsetof(struct weir_tenant, account));
}

/* Wait for the supervisor's answer. Its turns are shorter than this limit, but it may have died. */
static void wait_for_answer(atomic_uint *answered, unsigned before)
{
    while (atomic_load(answered) == before &&
           weir_futex_wait((const uint32_t *)(const void *)answered, before, ASK_WAIT_NS)) {
    }
}

void weir_tenant_ask(struct weir_account *account, enum weir_account_item item, uint64_t amount)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const struct weir_tenant *tenant = tenant_of(account);
    struct weir_link_message message = {
        .type = WEIR_LINK_MORE,
        .more = {.tenant_index = tenant->index, .item = item, .amount = amount}};

    WEIR_LOCKED(&one_at_a_time);
    atomic_uint *answered = &account->page->answered[account->place];
    unsigned before = atomic_load(answered);
    message.more.question = before + 1;
    if (weir_link_send(tenant->worker->link, &message, -1) == WEIR_OK) {
        wait_for_answer(answered, before);
    }
}

/* ---------------------------------------------------------------- refusals */

static atomic_uint_fast64_t *pending_of(struct weir_tenant *tenant, enum weir_account_item item)
{
    return &tenant->refusals.pending[item == WEIR_ACCOUNT_PINNED_MEMORY];
}

uint64_t weir_refusals_take(struct weir_tenant *tenant, enum weir_account_item item)
{
    return atomic_exchange(pending_of(tenant, item), 0);
}

void weir_event_tell(struct weir_worker *worker, const struct weir_tenant *tenant,
                     struct weir_link_event event)
{
    struct weir_link_message message = {.type = WEIR_LINK_EVENT, .event = event};

    message.event.tenant_index = tenant->index;
    message.event.generation = __atomic_load_n(&tenant->generation, __ATOMIC_RELAXED);
    message.event.n = event.n != 0 ? event.n : 1;
    weir_worker_tell(worker, &message);
}

static struct weir_link_event describe(const struct weir_session *s, enum weir_event_kind kind,
                                       const char *why)
{
    struct weir_link_event event = {.kind = kind, .pid = s->about->pid, .session = s->id};

    snprintf(event.program, sizeof event.program, "%s", s->about->program);
    snprintf(event.why, sizeof event.why, "%s", why);
    return event;
}

void weir_session_event(const struct weir_session *session, enum weir_event_kind kind,
                        const char *why)
{
    if (!session->about->monitor) {
        weir_event_tell(session->worker, session->tenant, describe(session, kind, why));
    }
}

/* Is it time to report another refusal? */
static bool is_due(struct weir_refusals *refusals)
{
    uint_fast64_t last_ns = atomic_load(&refusals->told_ns);
    uint64_t now_ns = weir_clock_now_ns();

    return (last_ns == 0 || now_ns - last_ns >= PAUSE_NS) &&
           atomic_compare_exchange_strong(&refusals->told_ns, &last_ns, now_ns);
}

/* How much the tenant has of an item, including its other workers, since its limit is for all of
 * them. */
static uint64_t tenant_has(const struct weir_account *account, enum weir_account_item item)
{
    uint64_t limit = weir_account_limit(account, item);

    return limit != UINT64_MAX ? limit - weir_account_left(account, item)
                               : weir_account_used(account, item);
}

/* Report up to ten refusals a second; others count in the next report or the tenant's row. */
static void tell_of_refusal(struct weir_session *session, enum weir_account_item item,
                            uint64_t bytes, const char *why)
{
    struct weir_tenant *tenant = session->tenant;

    atomic_fetch_add(pending_of(tenant, item), 1);
    if (!is_due(&tenant->refusals)) {
        return;
    }
    struct weir_link_event event = describe(session, WEIR_EVENT_ALLOCATION_REFUSED, why);
    event.n = weir_refusals_take(tenant, item);
    event.bytes = bytes;
    event.pinned = item == WEIR_ACCOUNT_PINNED_MEMORY;
    (void)weir_session_caller(session, event.call);
    if (event.n == 0) {
        return; /* the tenant's row has counted the refusals */
    }
    weir_log_info("session: allocation refused session=%llu tenant=%s program=\"%s\" call=%s "
                  "bytes=%llu times=%llu why=\"%s\" used=%llu limit=%llu",
                  (unsigned long long)session->id, tenant->name, event.program, event.call,
                  (unsigned long long)bytes, (unsigned long long)event.n, why,
                  (unsigned long long)tenant_has(&tenant->account, item),
                  (unsigned long long)weir_account_limit(&tenant->account, item));
    weir_event_tell(session->worker, tenant, event);
}

const char *weir_session_caller(const struct weir_session *session, char *name)
{
    return weir_caller_name(session->op.caller, weir_ops[session->op.code].name, name);
}

/* Format an amount of an item for people: bytes with a unit, or a number. */
static const char *amount_text(enum weir_account_item item, uint64_t amount, char text[24])
{
    if (weir_account_is_device_memory(item) || item == WEIR_ACCOUNT_PINNED_MEMORY ||
        item == WEIR_ACCOUNT_HOST_MEMORY) {
        return weir_human_bytes(amount, text);
    }
    snprintf(text, 24, "%llu", (unsigned long long)amount);
    return text;
}

void weir_session_note_refusal(struct weir_session *session, enum weir_account_item item,
                               uint64_t asked, const char *why)
{
    const struct weir_account *account = &session->tenant->account;
    uint64_t limit = weir_account_limit(account, item);
    char texts[3][24], caller[WEIR_CALLER_NAME_BYTES];

    snprintf(session->about->refused, sizeof session->about->refused,
             "%s of tenant %s: %s%s%s in use, asked %s by %s (%s)",
             weir_account_is_device_memory(item) ? "quota" : weir_account_item_text(item),
             session->tenant->name, amount_text(item, tenant_has(account, item), texts[0]),
             limit != UINT64_MAX ? " of " : "",
             limit != UINT64_MAX ? amount_text(item, limit, texts[1]) : "",
             asked != 0 ? amount_text(item, asked, texts[2]) : "for more",
             weir_session_caller(session, caller), why);
}

const char *weir_session_last_refusal(const struct weir_session *session)
{
    return session->about->refused;
}

static const char over_quota[] = "over the tenant's quota";
static const char over_device_quota[] = "over the tenant's quota of this GPU";
static const char over_own_limit[] = "over the limit that its environment sets";

static CUresult refuse(struct weir_session *session, enum weir_account_item item, uint64_t bytes,
                       const char *why)
{
    session->op.lack = WEIR_LACK_REFUSED;
    weir_session_note_refusal(session, item, bytes, why);
    if (weir_account_is_device_memory(item) || item == WEIR_ACCOUNT_PINNED_MEMORY) {
        tell_of_refusal(session, item, bytes, why);
    } else {
        weir_tenant_refused(session->tenant, item);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult weir_session_over_quota(struct weir_session *session, enum weir_account_item item,
                                 uint64_t bytes)
{
    char why[WEIR_LINK_WHY_BYTES];

    WEIR_FAIL_IF(weir_session_lacks_quota(session), CUDA_ERROR_OUT_OF_MEMORY);
    weir_session_lack_text(session, item < WEIR_ACCOUNT_OF_DEVICE ? over_quota : over_device_quota,
                           why, sizeof why);
    return refuse(session, item, bytes, why);
}

CUresult weir_session_charge_all(struct weir_session *session, uint32_t device,
                                 const struct weir_amounts *amounts)
{
    uint64_t bytes = amounts->of[WEIR_ACCOUNT_DEVICE_MEMORY];
    enum weir_account_item refused;

    session->op.asked_bytes = bytes;
    WEIR_FAIL_IF(bytes > wish_left(session, device),
                 refuse(session, WEIR_ACCOUNT_DEVICE_MEMORY, bytes, over_own_limit));
    if (weir_account_charge_all(&session->tenant->account, amounts, &refused)) {
        return CUDA_SUCCESS;
    }
    return weir_session_over_quota(session, refused, amounts->of[refused]);
}

CUresult weir_session_charge(struct weir_session *session, uint32_t device,
                             enum weir_account_item item, uint64_t bytes)
{
    if (item == WEIR_ACCOUNT_DEVICE_MEMORY) {
        const struct weir_amounts amounts = weir_account_device_bytes(device, bytes);

        return weir_session_charge_all(session, device, &amounts);
    }
    session->op.asked_bytes = 0;
    return weir_account_charge(&session->tenant->account, item, bytes)
               ? CUDA_SUCCESS
               : weir_session_over_quota(session, item, bytes);
}

void weir_tenant_release(struct weir_tenant *tenant, uint32_t device, uint64_t bytes)
{
    const struct weir_amounts amounts = weir_account_device_bytes(device, bytes);

    weir_account_release_all(&tenant->account, &amounts);
}

/* Show the tenant's other programs what the session holds. */
static void show_held(const struct weir_session *session)
{
    weir_programs_hold(session->tenant->programs, session->about->number,
                       atomic_load(&session->about->held_bytes));
}

void weir_session_hold(struct weir_session *session, uint32_t device, uint64_t bytes)
{
    atomic_fetch_add(&session->about->held_bytes, bytes);
    atomic_fetch_add(&session->about->device_bytes[device], bytes);
    show_held(session);
}

void weir_session_let_go(struct weir_session *session, uint32_t device, uint64_t bytes)
{
    atomic_fetch_sub(&session->about->held_bytes, bytes);
    atomic_fetch_sub(&session->about->device_bytes[device], bytes);
    show_held(session);
}

void weir_session_opens(struct weir_session *session, uint64_t bytes)
{
    atomic_fetch_add(&session->about->opened_bytes, bytes);
}

void weir_session_closes(struct weir_session *session, uint64_t bytes)
{
    atomic_fetch_sub(&session->about->opened_bytes, bytes);
}

void weir_session_pins(struct weir_session *session, uint64_t bytes)
{
    atomic_fetch_add(&session->about->pinned_bytes, bytes);
}

void weir_session_unpins(struct weir_session *session, uint64_t bytes)
{
    atomic_fetch_sub(&session->about->pinned_bytes, bytes);
}

void weir_session_lacks_room(struct weir_session *session, int64_t bytes)
{
    atomic_fetch_add(&session->about->managed_host_bytes, (uint64_t)bytes);
}

uint64_t weir_session_lacking_room(const struct weir_session *session)
{
    return atomic_load_explicit(&session->about->managed_host_bytes, memory_order_relaxed);
}

/* The memory held by the session's process. A monitor holds none, but NVML in a process must agree
 * with cuMemGetInfo there. */
static uint64_t held_by_process(const struct weir_session *session, uint32_t device)
{
    uint64_t held = 0;

    if (!session->about->monitor) {
        return atomic_load(&session->about->device_bytes[device]);
    }
    for (const struct weir_session *s = weir_sessions_lock(session->worker); s; s = s->next) {
        if (s->tenant == session->tenant && s->about->pid == session->about->pid &&
            !weir_session_has_ended(s)) {
            held += atomic_load(&s->about->device_bytes[device]);
        }
    }
    weir_sessions_unlock(session->worker);
    return held;
}

void weir_session_limit_info(const struct weir_session *session, uint32_t device,
                             uint64_t *free_bytes, uint64_t *total_bytes)
{
    uint64_t limit = session->about->wish.memory_bytes[device];
    uint64_t held, left;

    if (limit == 0) {
        return;
    }
    held = held_by_process(session, device);
    left = held < limit ? limit - held : 0;
    *free_bytes = *free_bytes < left ? *free_bytes : left;
    *total_bytes = *total_bytes < limit ? *total_bytes : limit;
}
