/* Who may wait by spinning: the shared page, and the decision. See spin.h. */
#include "host_backend/config/spin.h"

#include "base/clock.h"
#include "host_backend/config/shared_page.h"
#include <assert.h>

#define PAGE_BYTES    4096
#define HOLD_FIRST_NS WEIR_NS_PER_S
#define HOLD_LAST_NS  (16 * WEIR_NS_PER_S)
/* A level that was raised and had to be lowered within this time was raised too soon. */
#define SOON_NS (4 * WEIR_NS_PER_S)

enum weir_status weir_spin_page_create(int *ret_fd, struct weir_spin_page **ret_page)
{
    void *page;
    enum weir_status status = weir_shared_page_create("weir-spin", PAGE_BYTES, ret_fd, &page);

    if (status == WEIR_OK) {
        *ret_page = page;
        atomic_store(&(*ret_page)->level, WEIR_SPIN_ALL);
    }
    return status;
}

enum weir_status weir_spin_page_map(int fd, struct weir_spin_page **ret_page)
{
    void *page;
    enum weir_status status = weir_shared_page_map(fd, PAGE_BYTES, &page);

    if (status == WEIR_OK) {
        *ret_page = page;
    }
    return status;
}

#define EPOCHS (sizeof((struct weir_spin_governor){0}).running / sizeof(uint32_t))

/* The mean, rounded up: one thread that wants a core now and then counts as one. */
static uint32_t mean_up(const uint32_t *values, uint32_t n)
{
    uint64_t sum = 0;

    assert(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        sum += values[i];
    }
    return (uint32_t)((sum + n - 1) / n);
}

static uint32_t largest(const uint32_t *values, uint32_t n)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < n; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static void lower(struct weir_spin_governor *g, enum weir_spin_level level, uint64_t now_ns)
{
    bool soon = now_ns - g->raised_ns < SOON_NS;

    g->hold_ns = g->hold_ns == 0 || !soon ? HOLD_FIRST_NS : g->hold_ns * 2;
    g->hold_ns = g->hold_ns < HOLD_LAST_NS ? g->hold_ns : HOLD_LAST_NS;
    g->held_until_ns = now_ns + g->hold_ns;
    g->level = level;
}

enum weir_spin_level weir_spin_decide(struct weir_spin_governor *g, uint32_t running,
                                      uint32_t active, uint32_t cores, uint64_t now_ns)
{
    uint32_t n, wanted, others;
    enum weir_spin_level level;

    if (g->n == 0) {
        g->level = WEIR_SPIN_ALL;
    }
    g->running[g->n % EPOCHS] = running;
    g->active[g->n % EPOCHS] = active;
    g->n++;
    n = (uint32_t)(g->n < EPOCHS ? g->n : EPOCHS);
    running = mean_up(g->running, n);
    wanted = largest(g->active, n);
    /* Sessions' own threads are among those that run. */
    others = running > 2 * wanted ? running - 2 * wanted : 0;
    level = 2 * wanted + others <= cores ? WEIR_SPIN_ALL
            : wanted + others <= cores   ? WEIR_SPIN_GUESTS
                                         : WEIR_SPIN_NOBODY;
    if (level < g->level) {
        lower(g, level, now_ns);
    } else if (level > g->level && now_ns >= g->held_until_ns) {
        g->raised_ns = now_ns;
        g->level = level;
    }
    return g->level;
}
