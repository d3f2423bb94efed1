/*
 * A session's loop: its thread receives records, has them handled, and replies.
 *
 * Nothing a guest sends is believed: a record's operation, flags and form are checked here, handles
 * and addresses by the handlers. A guest that breaks the protocol, or does not read what it is sent
 * for 10 s, loses its session; one log line says why.
 */
#include "base/fd.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/suspend.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/awaited.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/nvml.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/channel.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/segment.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/twins/forms.h"
#include "proto/host_dispatch.h"
#include <string.h>
#include <unistd.h>

#define IDLE_WAIT_NS   WEIR_NS_PER_S
#define WATCH_WAIT_NS  (5 * WEIR_NS_PER_MS)
#define LATER_WAIT_NS  (100 * WEIR_NS_PER_MS) /* longest sleep while calls are deferred */
#define POLL_WAIT_NS   (50 * WEIR_NS_PER_US)
#define START_NS       WEIR_NS_PER_S          /* calls are timed this long after the start */
#define SLOW_CALL_NS   (100 * WEIR_NS_PER_US) /* a timed call that takes longer is logged */
#define GATE_SPIN_NS   (5 * WEIR_NS_PER_US)   /* idle time before it looks for ends of work */
#define SLICE_NS       (50 * WEIR_NS_PER_MS)  /* how often to check whether a waiter still exists */
#define FREE_TRIES     3 /* tries before others are asked: the driver frees memory late */
#define GATE_SHARED_NS (30 * WEIR_NS_PER_US) /* GATE_SPIN_NS, if others share: marks delay */

/* ---------------------------------------------------------------- one record */

static void protocol_error(struct weir_session *s, const struct weir_record *record,
                           const char *what)
{
    weir_log_warn("session: protocol broken, ended session=%llu tenant=%s op=%u why=\"%s\"",
                  (unsigned long long)s->id, s->tenant->name, record->op, what);
    weir_session_end(s);
}

/* Operations in which the driver waits for the device (device_idle.h). */
static bool waits_for_device(uint16_t op)
{
    switch ((int)op) {
    case WEIR_OP_ctx_limit_set:
    case WEIR_OP_library_module:
    case WEIR_OP_module_function: /* these load a kernel's code, and a library into the context */
    case WEIR_OP_library_kernel:
    case WEIR_OP_module_global:
    case WEIR_OP_library_global:
        return true;
    default:
        return false;
    }
}

/* Does the operation destroy something for which the driver waits for the device? Its handler makes
 * the device idle, because the operation cannot fail (put_off.h). */
static bool destroys(uint16_t op)
{
    switch ((int)op) {
    case WEIR_OP_ctx_destroy:
    case WEIR_OP_module_unload:
    case WEIR_OP_library_unload:
    case WEIR_OP_cuArrayDestroy:
    case WEIR_OP_cuMipmappedArrayDestroy:
        return true;
    default:
        return false;
    }
}

/* Does the operation compile before it needs the device? No other session may have to wait for
 * that, so its handler enters the barrier and makes the device idle itself (ops/module.c). */
static bool compiles(uint16_t op)
{
    switch ((int)op) {
    case WEIR_OP_module_load:
    case WEIR_OP_library_load:
    case WEIR_OP_link_add:
    case WEIR_OP_link_complete:
        return true;
    default:
        return false;
    }
}

/* Other operations that wait for the device, but do not block other threads for long. */
static bool waits_for_own_work(uint16_t op)
{
    return waits_for_device(op) || destroys(op) || op == WEIR_OP_module_load ||
           op == WEIR_OP_library_load;
}

static CUresult run_handler(struct weir_session *s, uint16_t op, const union weir_op_any_in *in,
                            union weir_op_any_out *out)
{
    CUresult result;
    uint32_t idle;

    WEIR_FAIL_IF(waits_for_own_work(op) && !weir_awaited_settle(s),
                 CUDA_ERROR_UNKNOWN); /* the session is ending, so nobody reads the error */
    if (compiles(op)) {
        return weir_host_table[op](s, in, out);
    }
    if (waits_for_device(op)) {
        weir_admission_idle(s);
        WEIR_TRY(weir_device_idle_begin_or_fail(s, &idle));
        result = weir_host_table[op](s, in, out);
        weir_device_idle_end(s->worker, idle);
        return result;
    }
    if (destroys(op)) {
        weir_admission_idle(s);
    }
    weir_device_barrier_enter(s);
    result = weir_host_table[op](s, in, out);
    weir_device_barrier_leave(s);
    return result;
}

/*
 * Make the device of a record current if the worker has it open, as it has if the program has a
 * context there. A program opens no device by asking about it, or by a context that is current but
 * was not activated.
 */
static CUresult enter_device_of(struct weir_session *s, const struct weir_record *record)
{
    s->op.device = record->device;
    return s->device == record->device || weir_device_is_open(&s->platform->devices[record->device])
               ? weir_session_enter(s, record->device)
               : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- once more */

/* Wait until one of the tenant's ended programs has released its memory, or none will. */
static void await_end(struct weir_session *session)
{
    struct weir_programs *programs = session->tenant->programs;

    weir_admission_idle(session); /* others' work waits for the end of ours, which needs a mark */
    while (weir_programs_ends(programs) == session->op.ends && weir_session_may_hope(session) &&
           !weir_session_is_over(session)) {
        weir_programs_await(programs, session->op.ends, SLICE_NS);
    }
}

static bool device_may_have_some(struct weir_session *session)
{
    if (weir_spares_release(session->worker)) {
        return true;
    }
    if (session->op.tries++ >= FREE_TRIES) {
        bool hoped = session->op.hoped;

        session->op.hoped = weir_memory_may_come(session->worker, session->op.asked_bytes);
        if (!session->op.hoped && !hoped) {
            return false; /* the last try came after others had given all that they will */
        }
    }
    weir_memory_pause();
    return true;
}

static void say_device_is_full(struct weir_session *session)
{
    char why[WEIR_LINK_WHY_BYTES];

    char caller[WEIR_CALLER_NAME_BYTES];

    weir_session_lack_text(session, "the device has no memory", why, sizeof why);
    weir_log_info("session: allocation failed session=%llu tenant=%s call=%s why=\"%s\"",
                  (unsigned long long)session->id, session->tenant->name,
                  weir_session_caller(session, caller), why);
    weir_session_note_refusal(session, WEIR_ACCOUNT_DEVICE_MEMORY, session->op.asked_bytes, why);
}

/*
 * Handle a failed operation. If the memory that it lacks may be free soon, wait for it, in no
 * handler and with no lock. @return true: execute it again, from the beginning
 */
static bool tries_again(struct weir_session *session, CUresult result)
{
    enum weir_lack lack = session->op.lack;

    if (result != CUDA_ERROR_OUT_OF_MEMORY && lack == WEIR_LACK_NONE) {
        return false;
    }
    if (lack == WEIR_LACK_REFUSED || weir_session_is_over(session)) {
        return false;
    }
    await_end(session);
    if (lack == WEIR_LACK_SOON) { /* if memory still lacks, the last try gives the reason */
        return true;
    }
    if (!weir_session_lacks_long(session) &&
        (weir_programs_ends(session->tenant->programs) != session->op.ends ||
         (lack == WEIR_LACK_DEVICE && device_may_have_some(session)))) {
        return true;
    }
    if (lack == WEIR_LACK_DEVICE) {
        say_device_is_full(session);
    }
    return false;
}

/* Execute an operation. If it lacks memory that recently ended programs may still hold
 * (state/ending.h), try it again. */
static CUresult carry_out(struct weir_session *s, const struct weir_record *record,
                          const union weir_op_any_in *in, union weir_op_any_out *out)
{
    CUresult result;

    do {
        memset(out, 0, weir_ops[record->op].out_struct_bytes);
        s->op.first = s->op.last = NULL;
        weir_session_lacks_nothing(s);
        result = enter_device_of(s, record);
        WEIR_THEN(result, run_handler(s, record->op, in, out));
    } while (__builtin_expect(tries_again(s, result), 0));
    if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY && s->op.lack == WEIR_LACK_NONE, 0)) {
        weir_session_note_refusal(s, WEIR_ACCOUNT_DEVICE_MEMORY, s->op.asked_bytes,
                                  "the host or the driver has no memory or addresses left");
    }
    s->op.fd = weir_fd_close(s->op.fd);
    return result;
}

/* The time until which calls of a session are timed for the log; 0: calls are not timed. */
static uint64_t timed_until_ns(const struct weir_session *s)
{
    return weir_log_level() >= WEIR_LOG_DEBUG ? s->about->started_ns + START_NS : 0;
}

/* Log what makes a program wait at its start. */
static void log_slow_call(const struct weir_session *s, uint16_t op, uint64_t begin_ns)
{
    uint64_t end_ns = weir_clock_now_ns();

    if (end_ns - begin_ns >= SLOW_CALL_NS) {
        weir_log_debug("session: a call of its start session=%llu tenant=%s op=%s us=%llu "
                       "after_us=%llu",
                       (unsigned long long)s->id, s->tenant->name, weir_ops[op].name,
                       (unsigned long long)((end_ns - begin_ns) / WEIR_NS_PER_US),
                       (unsigned long long)((begin_ns - s->about->started_ns) / WEIR_NS_PER_US));
    }
}

/* Log why a kernel cannot launch kernels: MPS is the only cause that the host can see. */
static void tell_of_launches(struct weir_session *s)
{
    if (!s->about->launches_told) {
        s->about->launches_told = true;
        weir_log_error(
            "session: a kernel launches kernels, which is not possible under MPS: have "
            "the tenant's isolation = \"strict\", or mps = \"off\" in [host] session=%llu "
            "tenant=%s program=\"%s\"",
            (unsigned long long)s->id, s->tenant->name, s->about->program);
    }
}

/* Refuse an operation that differs between this release and the guest's. The session goes on. */
static void refuse(struct weir_session *s, const struct weir_record *record)
{
    const char *name = record->op < WEIR_OP_COUNT ? weir_ops[record->op].name : NULL;

    if (!s->about->unknown_told) {
        s->about->unknown_told = true;
        weir_log_error("session: the guest library is of another release and asks for an operation "
                       "that this host (" WEIR_VERSION ") does not have as it has it: install the "
                       "same version session=%llu tenant=%s program=\"%s\" op=%u name=%s",
                       (unsigned long long)s->id, s->tenant->name, s->about->program, record->op,
                       name ? name : "unknown");
    }
    if (record->flags == WEIR_RECORD_POSTED) {
        weir_session_defer(s, CUDA_ERROR_NOT_SUPPORTED);
    } else {
        weir_session_reply_error(s, record->op, record->seq, CUDA_ERROR_NOT_SUPPORTED);
    }
}

/* Execute a record that was checked and decoded, and keep it in the session's book if it is of that
 * kind. */
static CUresult execute(struct weir_session *s, const struct weir_record *record, bool posted,
                        const union weir_op_any_in *in, union weir_op_any_out *out)
{
    s->op.code = record->op;
    s->op.seq = record->seq;
    s->op.caller = record->status;
    s->op.profile = record->profile;
    s->op.posted = posted;
    s->op.tries = 0;
    s->op.hoped = false;
    s->op.lacks_since_ns = 0;
    s->op.asked_bytes = 0;
    s->op.reply_bulk = NULL;
    s->op.reply_bulk_bytes = 0;
    s->op.answer_later = false;
    weir_arena_reset(&s->op.arena);
    struct weir_kept_record *kept =
        weir_session_book_wants(s, record->op) /* handling may overwrite the record */
            ? weir_session_book_begin(s, record, in)
            : NULL;
    CUresult result = carry_out(s, record, in, out);
    if (kept) {
        weir_session_book_note(s, kept, out, result);
    }
    return result;
}

CUresult weir_session_replay(struct weir_session *session, const struct weir_record *record,
                             const uint64_t *names, uint32_t n_names)
{
    struct weir_session_book *book = session->devices.book;
    union weir_op_any_in in;
    union weir_op_any_out out;
    CUresult result;

    if (record->op >= WEIR_OP_COUNT || weir_ops[record->op].book == WEIR_OP_LEAVES_NOTHING ||
        record->device >= session->platform->n_devices ||
        !weir_ops[record->op].in_decode(record + 1, record->len_bytes - sizeof *record, &in)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    book->names = (struct weir_book_names){names, n_names};
    result = execute(session, record, false, &in, &out);
    if (result == CUDA_SUCCESS && book->names.n != 0) { /* this driver shows fewer objects */
        result = CUDA_ERROR_INVALID_VALUE;
    }
    book->names.n = 0;
    return weir_ops[record->op].book == WEIR_OP_ENDS ? CUDA_SUCCESS : result;
}

static void handle(struct weir_session *s, const struct weir_record *record)
{
    bool posted = record->flags == WEIR_RECORD_POSTED;
    union weir_op_any_in in;
    union weir_op_any_out out;

    if (s->about->unknown.any && weir_unknown_ops_has(&s->about->unknown, record->op)) {
        refuse(s, record);
        return;
    }
    if (record->op >= WEIR_OP_COUNT || !weir_host_table[record->op]) {
        protocol_error(s, record, "no such operation");
        return;
    }
    if (s->about->monitor && !weir_nvml_may_ask((enum weir_op)record->op)) {
        protocol_error(s, record, "not of a monitor");
        return;
    }
    if ((record->flags != 0 && !posted) || record->device >= s->platform->n_devices) {
        protocol_error(s, record, "impossible flags or device");
        return;
    }
    if (!weir_ops[record->op].in_decode(record + 1, record->len_bytes - sizeof *record, &in)) {
        protocol_error(s, record, "malformed body");
        return;
    }
    atomic_fetch_add_explicit(&s->about->calls_total, 1, memory_order_relaxed);
    CUresult result = execute(s, record, posted, &in, &out);
    if (__builtin_expect(s->exposures != NULL, 0)) {
        weir_forms_wrote_unseen(s);
    }
    if (result != CUDA_SUCCESS && weir_error_is_sticky(result)) {
        weir_session_fault(s, result);
    }
    if (result == CUDA_ERROR_CDP_NOT_SUPPORTED) {
        tell_of_launches(s);
    }
    if (posted) {
        if (result != CUDA_SUCCESS) {
            weir_session_defer(s, result);
        }
    } else if (!s->op.answer_later || result != CUDA_SUCCESS) {
        weir_session_reply(s, record->op, record->seq, result, &out);
    }
}

/* ---------------------------------------------------------------- between records */

/*
 * How long to spin for the next record. A guest that waits for the GPU sends its next work when it
 * sees the word. If this thread sleeps then, its wake-up costs 0.13 ms (a tenth of a 64 MiB copy,
 * H200, 16 cores, 2026-11-21). So while the GPU has to write a word, spin longer, as the driver
 * would.
 */
static uint64_t spin_for(struct weir_session *s)
{
    uint64_t spin_ns = s->platform->spin.ns;

    if (!weir_spin_host_may(s->platform->spin.page)) {
        return WEIR_MIN(spin_ns, WEIR_SHORT_SPIN_NS);
    }
    if (s->platform->spin.owed_ns > spin_ns && weir_session_words_open(s)) {
        spin_ns = s->platform->spin.owed_ns;
    }
    return spin_ns;
}

/* Count the session as active, and tell its guest whether it may wait by spinning. */
static void note_spin(struct weir_session *s)
{
    enum weir_spin_level level = weir_spin_note(s->platform->spin.page, &s->channel->spin_epoch);
    uint32_t told = level == WEIR_SPIN_NOBODY ? WEIR_SEGMENT_SPIN_NO : WEIR_SEGMENT_SPIN_YES;

    if (s->channel->remote || s->channel->region_end) {
        return; /* the guest's cores are not the host's */
    }
    if (__atomic_load_n(&s->channel->view.header->spin, __ATOMIC_RELAXED) != told) {
        __atomic_store_n(&s->channel->view.header->spin, told, __ATOMIC_RELAXED);
    }
}

void weir_session_run(struct weir_session *session)
{
    struct weir_transport *transport = session->channel->transport;
    uint64_t spin_ns = spin_for(session), timed_ns = timed_until_ns(session);
    bool open = false;
    bool given = false; /* work was given since the last marks */

    while (!atomic_load_explicit(&session->ending, memory_order_relaxed)) {
        const struct weir_record *record;
        uint64_t wait_ns = open                        ? WATCH_WAIT_NS
                           : weir_put_off_any(session) ? LATER_WAIT_NS
                           : weir_session_is_resting(session) && !weir_rebuild_is_due(session)
                               ? IDLE_WAIT_NS
                               : WEIR_REST_NS;

        if (session->channel->n_waits != 0) {
            wait_ns = POLL_WAIT_NS;
        }
        given = given && weir_admission_has_unmarked(session);
        if (given) {
            uint64_t quiet_ns = weir_admission_contends(session) ? GATE_SHARED_NS : GATE_SPIN_NS;

            spin_ns = WEIR_MIN(spin_ns, quiet_ns);
            wait_ns = 0;
        }
        weir_managed_rest(session);
        enum weir_status status = transport->ops->receive(
            transport, &record, &session->op.bulk, &session->op.bulk_bytes, spin_ns, wait_ns);
        weir_managed_resume(session);
        if (status == WEIR_ERR_TIMED_OUT && given) { /* no further record: put marks behind */
            weir_admission_idle(session);
            given = false;
            spin_ns = spin_for(session);
            continue;
        }
        if (status == WEIR_OK) {
            uint64_t begin_ns = timed_ns != 0 ? weir_clock_now_ns() : 0;
            uint16_t op = record->op; /* handling may overwrite the record */

            note_spin(session);
            if (__builtin_expect(weir_session_is_asked(session), 0)) {
                weir_session_wakes(session);
                weir_rebuild_wakes(session);
            }
            if (!atomic_load_explicit(&session->ending, memory_order_relaxed)) {
                handle(session, record);
            }
            if (begin_ns != 0 && op < WEIR_OP_COUNT) {
                log_slow_call(session, op, begin_ns);
                timed_ns = begin_ns < timed_ns ? timed_ns : 0;
            }
            given = true;
            spin_ns = spin_for(session);
            open = true; /* checked when no more records come */
        } else if (status == WEIR_ERR_TIMED_OUT) {
            open = weir_session_words_open(session);
            if (open) { /* no record came for a while, and a word is open */
                weir_session_look_at_contexts(session);
            } else {
                weir_session_rests(session);
                weir_rebuild_rests(session);
                if (weir_rebuild_leaves(session) || weir_rebuild_moves(session)) {
                    return;
                }
            }
            spin_ns = 0;
        } else {
            if (status == WEIR_ERR_PEER) {
                weir_log_warn("session: guest lies in its ring, ended session=%llu tenant=%s",
                              (unsigned long long)session->id, session->tenant->name);
            }
            break;
        }
        if (session->channel->n_waits != 0) {
            (void)weir_session_answer_waits(session);
        }
        weir_host_objects_kept_try(session);
        weir_put_off_try(session);
        if (status == WEIR_OK && weir_rebuild_moves(session)) {
            return;
        }
    }
    weir_session_finish(session);
}
