/* Carrying an operation out again that lacked memory: see ending.h. */
#include "host_backend/worker/session/ending.h"

#include "base/log.h"
#include "host_backend/worker/session/admission.h"
#include "host_backend/worker/session/session.h"
#include "host_backend/worker/session/spare.h"
#include "host_backend/worker/session/sticky.h"
#include "host_backend/worker/session/tenant.h"
#include "proto/ops.h"
#include <time.h>

#define SLICE_NS   (50 * WEIR_NS_PER_MS) /* between looks whether its own program is there */
#define TRY_NS     (4 * WEIR_NS_PER_MS)  /* between tries while the device has no memory */
#define FREE_TRIES 3 /* before others are asked: the driver frees what ended a little later */

/* Nobody waits for the answer. */
static bool is_pointless(const struct weir_session *session)
{
    return atomic_load(&session->ending) || weir_session_peer_gone(session) ||
           weir_worker_sticky_error(session->worker) != CUDA_SUCCESS;
}

/* Until one of the tenant's programs has given back what it held, or none is to. */
static void await_end(struct weir_session *session)
{
    struct weir_programs *programs = session->tenant->programs;

    weir_admission_idle(session); /* or others' work would wait behind ours, whose end is unseen */
    while (weir_programs_ends(programs) == session->op.ends && weir_session_may_hope(session) &&
           !is_pointless(session)) {
        weir_programs_await(programs, session->op.ends, SLICE_NS);
    }
}

static bool device_may_have_some(struct weir_session *session)
{
    const struct timespec pause = {0, TRY_NS};

    if (weir_spares_release(session->worker)) {
        return true;
    }
    if (session->op.tries++ >= FREE_TRIES && !weir_memory_may_come(session->worker)) {
        return false;
    }
    (void)nanosleep(&pause, NULL);
    return true;
}

static void say_device_is_full(struct weir_session *session)
{
    char why[WEIR_LINK_WHY_BYTES];

    weir_session_lack_text(session, "the device has no memory", why, sizeof why);
    weir_log_info("session: allocation failed session=%llu tenant=%s call=%s why=\"%s\"",
                  (unsigned long long)session->id, session->tenant->name,
                  weir_ops[session->op.code].name, why);
}

bool weir_session_tries_again(struct weir_session *session, CUresult result)
{
    enum weir_lack lack = session->op.lack;

    if (result != CUDA_ERROR_OUT_OF_MEMORY && lack == WEIR_LACK_NONE) {
        return false;
    }
    if (lack == WEIR_LACK_REFUSED || is_pointless(session)) {
        return false;
    }
    await_end(session);
    if (lack == WEIR_LACK_SOON) { /* the last try says why it is refused */
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
