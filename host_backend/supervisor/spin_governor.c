/*
 * Says on a shared page who may wait by spinning (host_backend/config/spin.h).
 *
 * While sessions are active it looks once in an epoch of 20 ms at how many threads of the machine
 * have or want a core; while none is, once a second whether one has become active, which
 * costs a look at the page.
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPOCH_NS      (20 * WEIR_NS_PER_MS)
#define IDLE_EPOCH_NS WEIR_NS_PER_S
#define IDLE_AFTER    50u /* epochs without an active session */

/* The cores that this process, and so each of its workers, may use. */
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
    return weir_spin_page_create(&spin->page_fd, &spin->page);
}

void weir_sup_spin_close(struct weir_supervisor *sup)
{
    if (sup->spin.loadavg_fd >= 0) {
        close(sup->spin.loadavg_fd);
    }
    if (sup->spin.page_fd >= 0) {
        close(sup->spin.page_fd);
    }
}

int weir_sup_spin_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns)
{
    return weir_poll_ms(sup->spin.next_ns, now_ns);
}

/* Threads of the machine that have or want a core, without this one.
 * "0.1 0.2 0.3 RUNNING/ALL PID" */
static bool count_running(int fd, uint32_t *ret_running)
{
    char text[128], *at;
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    unsigned long running;

    if (n <= 0) {
        return false;
    }
    text[n] = 0;
    at = strchr(text, '/');
    while (at != NULL && at > text && at[-1] != ' ') {
        at--;
    }
    running = at != NULL ? strtoul(at, NULL, 10) : 0;
    *ret_running = running > 1 ? (uint32_t)running - 1 : 0;
    return at != NULL;
}

void weir_sup_spin_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_spin *spin = &sup->spin;
    struct weir_spin_seen seen = {.cores = spin->cores};
    enum weir_spin_level level;
    bool gate_may;
    uint32_t epoch;

    if (now_ns < spin->next_ns) {
        return;
    }
    epoch = atomic_load_explicit(&spin->page->epoch, memory_order_relaxed);
    atomic_store_explicit(&spin->page->epoch, epoch + 1, memory_order_relaxed);
    seen.active = atomic_exchange_explicit(&spin->page->active[epoch & 1], 0, memory_order_relaxed);
    seen.gate_asks = atomic_exchange_explicit(&spin->page->gate_asks, 0, memory_order_relaxed) != 0;
    spin->idle_epochs = seen.active != 0 ? 0 : spin->idle_epochs + 1;
    spin->next_ns = now_ns + (spin->idle_epochs < IDLE_AFTER ? EPOCH_NS : IDLE_EPOCH_NS);
    if (spin->idle_epochs >= IDLE_AFTER || !count_running(spin->loadavg_fd, &seen.running)) {
        return;
    }
    level = weir_spin_decide(&spin->governor, &seen, now_ns);
    gate_may = spin->governor.gate_may;
    if (atomic_load_explicit(&spin->page->level, memory_order_relaxed) != level ||
        weir_spin_gate_is_allowed(spin->page) != gate_may) {
        weir_log_debug("supervisor: spinning level=%d gate=%d running=%u active=%u cores=%u",
                       (int)level, (int)gate_may, seen.running, seen.active, seen.cores);
        atomic_store_explicit(&spin->page->level, level, memory_order_relaxed);
        atomic_store_explicit(&spin->page->gate_may, gate_may, memory_order_relaxed);
    }
}
