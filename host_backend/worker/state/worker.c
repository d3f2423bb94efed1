/* Functions for files that do not see all of struct weir_worker. */
#include "host_backend/worker/state/worker.h"

#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/session.h"

#include "base/clock.h"
#include <time.h>

#define SYNC_WAIT_NS  WEIR_NS_PER_S
#define SYNC_PAUSE_NS (50 * WEIR_NS_PER_US) /* about as long as the supervisor's turn */

const struct weir_platform *weir_worker_platform(const struct weir_worker *worker)
{
    return &worker->platform;
}

const struct weir_session_hooks *weir_worker_hooks(const struct weir_worker *worker)
{
    return worker->hooks;
}

struct weir_forms *weir_worker_forms(const struct weir_worker *worker)
{
    return worker->forms;
}

struct weir_directory *weir_worker_directory(const struct weir_worker *worker)
{
    return worker->directory;
}

bool weir_error_is_sticky(CUresult error)
{
    switch ((int)error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return true;
    default:
        return false;
    }
}

struct weir_account_pool *weir_worker_pool(const struct weir_worker *worker)
{
    return worker->counts.pool;
}

CUresult weir_worker_sticky_error(const struct weir_worker *worker)
{
    return (CUresult)atomic_load(&worker->sticky);
}

struct weir_session *weir_sessions_lock(struct weir_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    return worker->sessions;
}

void weir_sessions_unlock(struct weir_worker *worker)
{
    pthread_mutex_unlock(&worker->lock);
}

bool weir_worker_pass(const struct weir_worker *worker, const struct weir_link_message *message,
                      int fd)
{
    return weir_link_send(worker->link, message, fd) == WEIR_OK;
}

void weir_worker_tell(const struct weir_worker *worker, const struct weir_link_message *message)
{
    (void)!weir_link_send(worker->link, message, -1);
}

static bool send_first(struct weir_worker *worker, enum weir_link_type first, unsigned *ret_ticket)
{
    const struct weir_link_message message = {.type = first}, sync = {.type = WEIR_LINK_SYNC};

    WEIR_LOCKED(&worker->counts.sync_lock); /* tickets must have the messages' order */
    *ret_ticket = ++worker->counts.syncs;
    bool sent =
        (first == WEIR_LINK_SYNC || weir_link_send(worker->link, &message, -1) == WEIR_OK) &&
        weir_link_send(worker->link, &sync, -1) == WEIR_OK;
    worker->counts.syncs -= !sent;
    return sent;
}

bool weir_worker_sync(struct weir_worker *worker, enum weir_link_type first)
{
    const struct timespec pause = {0, SYNC_PAUSE_NS};
    const atomic_uint *synced = &worker->platform.spin.page->synced;
    uint64_t end_ns = weir_clock_now_ns() + SYNC_WAIT_NS;
    unsigned ticket;

    WEIR_FAIL_IF(!send_first(worker, first, &ticket), false);
    while ((int)(atomic_load(synced) - ticket) < 0) { /* meets G1 */
        WEIR_FAIL_IF(weir_clock_now_ns() >= end_ns, false);
        (void)nanosleep(&pause, NULL);
    }
    return true;
}
