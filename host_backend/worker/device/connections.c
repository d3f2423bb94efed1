/*
 * How many connections to the GPU the worker's contexts have (CUDA_DEVICE_MAX_CONNECTIONS).
 *
 * Kernels of many streams can run side by side over one connection, but a stream that waits for a
 * stopped kernel blocks all streams on the same connection. And their total is limited: of 24
 * contexts with 32 each, 1 to 3 could be made; of 24 with 8 under MPS, 15
 * (docs/measurements/contexts.md). So a worker of many tenants has the maximum, and a worker of one
 * tenant the driver's default. Under the host's MPS servers the supervisor chooses, 8 or 2. Under
 * another server it is 2, and setting it saves a third of the start. A value in the host's
 * environment has precedence.
 *
 * The driver reads the variable in cuInit(), and the worker has called that before a program comes.
 * So when a program wants another number in its tenant's own worker and no other program is there,
 * the worker asks the supervisor to restart it, and asks the guest to connect again. A program gets
 * at most the driver's default, or one tenant could use up all connections.
 */
#include "host_backend/worker/device/connections.h"

#include "host_backend/worker/state/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "host_backend/config/site_mps.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define VARIABLE           "CUDA_DEVICE_MAX_CONNECTIONS"
#define DRIVER_CONNECTIONS 8 /* the driver's default */
#define MPS_CONNECTIONS    2
#define ENDING_WAIT_NS     (300 * WEIR_NS_PER_MS)
#define SETTLED_NS         WEIR_NS_PER_S /* two programs with different wishes take turns */

struct weir_connections {
    uint32_t now;       /* connections of the worker's contexts, as far as it can tell */
    uint32_t most;      /* the most for which a program may have the worker restarted */
    bool bound;         /* the host's environment fixes the number */
    uint64_t opened_ns; /* when the worker's contexts were opened */
    uint32_t n_let_in;  /* guests and sessions; the worker's lock guards the next two, too */
    bool renewing;      /* the supervisor is about to restart the worker for it */
};

enum weir_status weir_connections_choose(struct weir_worker *worker)
{
    struct weir_connections *c = calloc(1, sizeof *c);
    uint32_t connections = worker->config.connections;
    const char *bound = getenv(VARIABLE);
    uint32_t most = weir_site_mps_is_there() ? MPS_CONNECTIONS : DRIVER_CONNECTIONS;
    char text[16];

    WEIR_FAIL_IF(!c, WEIR_ERR_NO_MEMORY);
    c->bound = bound != NULL;
    c->most = most;
    if (worker->config.by_program && !worker->config.under_mps && connections > most) {
        connections = most;
    }
    if (bound) {
        connections = (uint32_t)strtoul(bound, NULL, 10);
    } else if (connections == 0 && most == MPS_CONNECTIONS) {
        connections = most;
    }
    if (!bound && connections != 0) {
        snprintf(text, sizeof text, "%u", connections);
        setenv(VARIABLE, text, 0);
    }
    c->now = connections != 0 ? connections : DRIVER_CONNECTIONS;
    worker->connections = c;
    weir_log_info("worker: connections to the GPU connections=%u", c->now);
    return WEIR_OK;
}

uint32_t weir_connections_count(const struct weir_worker *worker)
{
    return worker->connections->now;
}

void weir_connections_opened(struct weir_worker *worker)
{
    worker->connections->opened_ns = weir_clock_now_ns();
}

void weir_connections_destroy(struct weir_worker *worker)
{
    free(worker->connections);
    worker->connections = NULL;
}

void weir_connections_leave_locked(struct weir_worker *worker)
{
    worker->connections->n_let_in--;
}

/* Can the worker be restarted with another number, and is its start long enough ago? */
static bool can_change(const struct weir_worker *worker)
{
    bool changed_before = worker->config.connections != 0;

    return worker->config.connections_of_guest && !worker->connections->bound &&
           (!changed_before || weir_clock_now_ns() - worker->connections->opened_ns >= SETTLED_NS);
}

/* Wait for sessions that are ending: the end of a program is noticed late, and then its session is
 * cleared. */
static void wait_for_ending_locked(struct weir_worker *worker)
{
    uint64_t end_ns = weir_clock_now_ns() + ENDING_WAIT_NS;

    while (worker->connections->n_let_in != 0 && !worker->connections->renewing &&
           weir_thread_condition_wait(&worker->idle, &worker->lock, end_ns)) {
    }
}

bool weir_connections_admit(struct weir_worker *worker, const char *tenant, uint32_t wanted)
{
    struct weir_connections *c = worker->connections;
    struct weir_link_message message = {.type = WEIR_LINK_CONNECTIONS};
    uint32_t granted = WEIR_MIN(wanted, c->most);
    bool other = wanted != 0 && granted != c->now, ask = false, in;

    pthread_mutex_lock(&worker->lock);
    if (other && can_change(worker)) {
        wait_for_ending_locked(worker);
        ask = c->n_let_in == 0 && !c->renewing;
        c->renewing |= ask;
    }
    in = !c->renewing;
    c->n_let_in += in;
    pthread_mutex_unlock(&worker->lock);
    if (ask) {
        message.connections = granted;
        weir_worker_tell(worker, &message);
    } else if (in && wanted != 0 && wanted != c->now) {
        weir_log_info("guest: connections not as wanted tenant=%s wanted=%u has=%u", tenant, wanted,
                      c->now);
    }
    return in;
}
