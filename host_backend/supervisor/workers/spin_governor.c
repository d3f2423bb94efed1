/*
 * Decides who may wait by spinning, and writes it to pages, one shared with each worker
 * (host_backend/config/spin.h).
 *
 * While sessions are active the governor counts once in an epoch of 20 ms how many threads of the
 * machine have or want a core. Otherwise it only checks the pages once a second for an active
 * session.
 */
#include "base/fd.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPOCH_NS      (20 * WEIR_NS_PER_MS)
#define IDLE_EPOCH_NS WEIR_NS_PER_S
#define IDLE_AFTER    50u   /* epochs without an active session */
#define ACTIVE_MAX    4096u /* the most active sessions that a worker's page may claim */

/* Count the cores that this process, and so each of its workers, may use. */
static uint32_t count_cores(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

enum weir_status weir_sup_spin_open(struct weir_supervisor *sup)
{
    struct weir_sup_spin *spin = &sup->spin;

    spin->cores = count_cores();
    spin->loadavg_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    spin->idle_epochs = IDLE_AFTER;
    if (spin->page_fd >= 0 && weir_spin_page_map(spin->page_fd, &spin->page) == WEIR_OK) {
        spin->epoch = atomic_load_explicit(&spin->page->epoch, memory_order_relaxed);
        return WEIR_OK; /* the last supervisor's gate process has it */
    }
    return weir_spin_page_create(&spin->page_fd, &spin->page);
}

/* ---------------------------------------------------------------- workers' pages */

static void show(const struct weir_sup_spin *spin, struct weir_spin_page *page)
{
    uint32_t level = spin->governor.n != 0 ? spin->governor.level : WEIR_SPIN_ALL;
    bool gate_may = spin->governor.n == 0 || spin->governor.gate_may;

    atomic_store_explicit(&page->level, level, memory_order_relaxed);
    atomic_store_explicit(&page->gate_may, gate_may, memory_order_relaxed);
    atomic_store_explicit(&page->epoch, spin->epoch, memory_order_relaxed);
    atomic_store_explicit(&page->tenants, spin->tenants, memory_order_relaxed);
}

static void show_all(struct weir_supervisor *sup)
{
    show(&sup->spin, sup->spin.page);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].spin_page) {
            show(&sup->spin, sup->workers[i].spin_page);
        }
    }
}

void weir_sup_spin_show(struct weir_supervisor *sup, uint32_t tenants)
{
    if (sup->spin.page && sup->spin.tenants != tenants) {
        sup->spin.tenants = tenants;
        show_all(sup);
    }
}

enum weir_status weir_sup_spin_worker_starts(struct weir_supervisor *sup,
                                             struct weir_sup_worker *worker, int *ret_fd)
{
    weir_sup_spin_worker_gone(worker);
    WEIR_TRY(weir_spin_page_create(ret_fd, &worker->spin_page));
    show(&sup->spin, worker->spin_page);
    worker->giving.n_syncs = 0; /* the new page counts from 0 */
    return WEIR_OK;
}

void weir_sup_spin_worker_gone(struct weir_sup_worker *worker)
{
    weir_spin_page_unmap(worker->spin_page);
    worker->spin_page = NULL;
}

/* Count the sessions that were active in the epoch that has ended. */
static uint32_t take_active(const struct weir_supervisor *sup, uint32_t epoch)
{
    uint32_t all = 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        struct weir_spin_page *page = sup->workers[i].spin_page;
        uint32_t n =
            page ? atomic_exchange_explicit(&page->active[epoch & 1], 0, memory_order_relaxed) : 0;

        all += n < ACTIVE_MAX ? n : ACTIVE_MAX;
    }
    return all;
}

/* ---------------------------------------------------------------- begin, end */

void weir_sup_spin_close(struct weir_supervisor *sup)
{
    weir_fd_close(sup->spin.loadavg_fd);
    weir_fd_close(sup->spin.page_fd);
}

void weir_sup_spin_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_wake(loop, sup->spin.next_ns);
}

/* Read the number of threads of the machine that run or want a core, without this one, from "0.1
 * 0.2 0.3 RUNNING/ALL PID". */
static bool count_running(int fd, uint32_t *ret_running)
{
    char text[128], *at;
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;

    if (n <= 0) {
        return false;
    }
    text[n] = 0;
    at = strchr(text, '/');
    while (at && at > text && at[-1] != ' ') {
        at--;
    }
    unsigned long running = at ? strtoul(at, NULL, 10) : 0;
    *ret_running = running > 1 ? (uint32_t)running - 1 : 0;
    return at != NULL;
}

void weir_sup_spin_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_spin *spin = &sup->spin;
    struct weir_spin_seen seen = {.cores = spin->cores};
    enum weir_spin_level was_level = spin->governor.level;
    bool gate_might = spin->governor.gate_may;
    uint32_t epoch = spin->epoch;

    if (now_ns < spin->next_ns) {
        return;
    }
    spin->epoch++;
    show_all(sup);
    seen.active = take_active(sup, epoch);
    seen.gate_asks = atomic_exchange_explicit(&spin->page->gate_asks, 0, memory_order_relaxed) != 0;
    spin->idle_epochs = seen.active != 0 ? 0 : spin->idle_epochs + 1;
    spin->next_ns = now_ns + (spin->idle_epochs < IDLE_AFTER ? EPOCH_NS : IDLE_EPOCH_NS);
    if (spin->idle_epochs >= IDLE_AFTER || !count_running(spin->loadavg_fd, &seen.running)) {
        return;
    }
    if (weir_spin_decide(&spin->governor, &seen, now_ns) != was_level ||
        spin->governor.gate_may != gate_might) {
        weir_log_debug("supervisor: spinning level=%d gate=%d running=%u active=%u cores=%u",
                       (int)spin->governor.level, (int)spin->governor.gate_may, seen.running,
                       seen.active, seen.cores);
        show_all(sup);
    }
}
