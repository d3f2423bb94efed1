#include "host_backend/worker/state/bus_guard.h"

#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Writers hold the lock; the handler reads without it: so bytes is written last and cleared
 * first. */
static struct {
    atomic_uint_fast64_t base, bytes;
} guards[WEIR_BUS_GUARDS_MAX];
static pthread_mutex_t guards_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint n_used; /* all guards in use have a lower index */
static uint64_t page_bytes;
static _Thread_local volatile sig_atomic_t tolerates;

static bool is_guarded(uint64_t address)
{
    unsigned n = atomic_load_explicit(&n_used, memory_order_acquire);

    for (unsigned i = 0; i < n; i++) {
        /* B1: meets the release in weir_bus_guard(): base belongs to these bytes. */
        uint64_t bytes = atomic_load_explicit(&guards[i].bytes, memory_order_acquire);
        uint64_t base = atomic_load_explicit(&guards[i].base, memory_order_relaxed);

        if (bytes != 0 && address >= base && address - base < bytes) {
            return true;
        }
    }
    return false;
}

/* The handler is async-signal-safe: it reads the table and makes one system call. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    void *page = (void *)(uintptr_t)(address & ~(page_bytes - 1));
    int saved = errno;

    (void)context;
    if (info->si_code != BUS_ADRERR || (!tolerates && !is_guarded(address)) ||
        mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        signal(number, SIG_DFL); /* the access is repeated, and ends the process */
    }
    errno = saved;
}

void weir_bus_guard_init(void)
{
    struct sigaction action;

    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGBUS, &action, NULL);
}

bool weir_bus_guard(uint64_t base, uint64_t bytes)
{
    bool done = false;

    WEIR_LOCKED(&guards_lock);
    for (unsigned i = 0; i < WEIR_BUS_GUARDS_MAX && !done; i++) {
        if (atomic_load_explicit(&guards[i].bytes, memory_order_relaxed) == 0) {
            atomic_store_explicit(&guards[i].base, base, memory_order_relaxed);
            /* B1: publishes base; meets the acquire in is_guarded(). */
            atomic_store_explicit(&guards[i].bytes, bytes, memory_order_release);
            if (i >= atomic_load_explicit(&n_used, memory_order_relaxed)) {
                atomic_store_explicit(&n_used, i + 1, memory_order_release);
            }
            done = true;
        }
    }
    return done;
}

void weir_bus_tolerate(bool on)
{
    tolerates = on;
}

void weir_bus_unguard(uint64_t base, uint64_t bytes)
{
    WEIR_LOCKED(&guards_lock);
    for (unsigned i = 0; i < atomic_load_explicit(&n_used, memory_order_relaxed); i++) {
        if (atomic_load_explicit(&guards[i].bytes, memory_order_relaxed) == bytes &&
            atomic_load_explicit(&guards[i].base, memory_order_relaxed) == base) {
            atomic_store_explicit(&guards[i].bytes, 0, memory_order_release);
            break;
        }
    }
}
