#include "host_backend/worker/memory/spare.h"

#include "base/clock.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>

#define AGE_NS     WEIR_NS_PER_S /* a program that reallocates does so within this time */
#define PART       8             /* spares take at most 1/PART of the device or the quota */
#define SPARES_MAX 256           /* most spares: the list is searched linearly */

struct weir_spares {
    pthread_mutex_t lock;          /* guards what follows; held while memory is released */
    struct weir_host_chunk *first; /* list, the newest spare first */
    uint32_t n;
};

struct weir_spares *weir_spares_create(void)
{
    struct weir_spares *spares = calloc(1, sizeof *spares);

    if (spares) {
        pthread_mutex_init(&spares->lock, NULL);
    }
    return spares;
}

void weir_spares_destroy(struct weir_spares *spares)
{
    if (spares) {
        pthread_mutex_destroy(&spares->lock);
    }
    free(spares);
}

static struct weir_spares *spares_of(const struct weir_worker *worker)
{
    return weir_worker_platform(worker)->spares;
}

/* Publish the number of spares on the worker's page. The supervisor reads it when other workers
 * lack memory. */
static void show_locked(const struct weir_worker *worker, const struct weir_spares *spares)
{
    atomic_store(&weir_worker_platform(worker)->spin.page->spares, spares->n);
}

static void release_at_locked(struct weir_spares *spares, struct weir_host_chunk **at)
{
    struct weir_host_chunk *chunk = *at;

    *at = chunk->spare.next;
    spares->n--;
    weir_chunk_release(chunk);
}

/* The most bytes that a session's spares may take: a part of the device's memory, or of its
 * tenant's quota if that is less. */
static uint64_t most_bytes(const struct weir_session *session, uint32_t device)
{
    uint64_t total = session->platform->devices[device].about.total_memory_bytes;
    uint64_t quota = weir_account_limit(&session->tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY);

    return (WEIR_MIN(quota, total)) / PART;
}

/* Release the session's oldest spares until the rest are within both bounds. */
static void trim_locked(struct weir_spares *spares, const struct weir_session *session,
                        uint64_t most)
{
    struct weir_host_chunk **at = &spares->first;
    uint64_t bytes = 0;
    uint32_t n = 0;

    while (*at) {
        bool own = (*at)->spare.session == session;

        bytes += own ? (*at)->bytes : 0;
        n += own;
        if (own && (bytes > most || n > SPARES_MAX)) {
            release_at_locked(spares, at);
        } else {
            at = &(*at)->spare.next;
        }
    }
}

bool weir_spare_keep(struct weir_session *session, struct weir_host_chunk *chunk)
{
    struct weir_spares *spares = spares_of(session->worker);
    uint64_t most = most_bytes(session, chunk->device);

    /* Another process may have mapped a shared chunk, or may find a published one by its key. A
     * managed one has no memory of its own (pieces.h). */
    if (!spares || chunk->pinned || chunk->memory == 0 || chunk->shared || chunk->published ||
        chunk->bytes > most || weir_session_is_unloading(session)) {
        return false;
    }
    weir_account_release_all(&chunk->tenant->account, &chunk->charged);
    chunk->charged = (struct weir_amounts){{0}};
    WEIR_LOCKED(&spares->lock);
    chunk->spare.session = session;
    chunk->spare.since_ns = weir_clock_now_ns();
    chunk->spare.next = spares->first;
    spares->first = chunk;
    spares->n++;
    trim_locked(spares, session, most);
    show_locked(session->worker, spares);
    return true;
}

struct weir_host_chunk *weir_spare_take(struct weir_session *session, uint32_t device,
                                        uint64_t bytes)
{
    struct weir_spares *spares = spares_of(session->worker);
    struct weir_host_chunk *chunk = NULL;

    if (!spares) {
        return NULL;
    }
    WEIR_LOCKED(&spares->lock);
    for (struct weir_host_chunk **at = &spares->first; (chunk = *at); at = &chunk->spare.next) {
        if (chunk->spare.session == session && chunk->device == device && chunk->bytes == bytes) {
            *at = chunk->spare.next;
            spares->n--;
            show_locked(session->worker, spares);
            break;
        }
    }
    return chunk;
}

uint64_t weir_spare_bytes(const struct weir_session *session, uint32_t device)
{
    struct weir_spares *spares = spares_of(session->worker);
    uint64_t bytes = 0;

    if (!spares) {
        return 0;
    }
    WEIR_LOCKED(&spares->lock);
    for (const struct weir_host_chunk *chunk = spares->first; chunk; chunk = chunk->spare.next) {
        if (chunk->device == device &&
            weir_session_pid(chunk->spare.session) == weir_session_pid(session)) {
            bytes += chunk->bytes;
        }
    }
    return bytes;
}

/* @param session NULL: all sessions. @param before_ns release only memory that became spare before
 * this. */
static bool release(struct weir_worker *worker, const struct weir_session *session,
                    uint64_t before_ns)
{
    struct weir_spares *spares = spares_of(worker);
    bool any = false;

    WEIR_FAIL_IF(!spares, false);
    WEIR_LOCKED(&spares->lock);
    for (struct weir_host_chunk **at = &spares->first; *at;) {
        if ((!session || (*at)->spare.session == session) && (*at)->spare.since_ns <= before_ns) {
            release_at_locked(spares, at);
            any = true;
        } else {
            at = &(*at)->spare.next;
        }
    }
    if (any) {
        show_locked(worker, spares);
    }
    return any;
}

void weir_spares_end(struct weir_session *session)
{
    (void)release(session->worker, session, UINT64_MAX);
}

bool weir_spares_release(struct weir_worker *worker)
{
    return release(worker, NULL, UINT64_MAX);
}

bool weir_spares_age(struct weir_worker *worker, uint64_t now_ns)
{
    struct weir_spares *spares = spares_of(worker);

    WEIR_FAIL_IF(!spares, false);
    (void)release(worker, NULL, now_ns - AGE_NS);
    WEIR_LOCKED(&spares->lock);
    return spares->first != NULL;
}
