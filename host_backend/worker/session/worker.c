/* What of a worker is handed to those that do not see all of it. */
#include "host_backend/worker/session/worker.h"

#include "host_backend/worker/session/directory.h"
#include "host_backend/worker/session/hooks.h"
#include "host_backend/worker/session/sticky.h"

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
