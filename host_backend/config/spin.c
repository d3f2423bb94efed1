/* Decides who may wait by spinning, and makes the shared page. See spin.h. */
#include "host_backend/config/spin.h"

#include "base/clock.h"
#include "host_backend/config/shared_page.h"
#include <assert.h>
#include <sys/mman.h>

#define PAGE_BYTES    4096
#define HOLD_FIRST_NS WEIR_NS_PER_S
#define HOLD_LAST_NS  (16 * WEIR_NS_PER_S)
/* A level that must be lowered within this time of being raised was raised too soon. */
#define SOON_NS (4 * WEIR_NS_PER_S)

enum weir_status weir_spin_page_create(int *ret_fd, struct weir_spin_page **ret_page)
{
    void *page;
    WEIR_TRY(weir_shared_page_create("weir-spin", PAGE_BYTES, ret_fd, &page));
    *ret_page = page;
    atomic_store(&(*ret_page)->level, WEIR_SPIN_ALL);
    atomic_store(&(*ret_page)->gate_may, 1);
    return WEIR_OK;
}

enum weir_status weir_spin_page_map(int fd, struct weir_spin_page **ret_page)
{
    void *page;
    WEIR_TRY(weir_shared_page_map(fd, PAGE_BYTES, &page));
    *ret_page = page;
    return WEIR_OK;
}

void weir_spin_page_unmap(struct weir_spin_page *page)
{
    if (page) {
        (void)munmap(page, PAGE_BYTES);
    }
}

#define EPOCHS (sizeof((struct weir_spin_governor){0}).running / sizeof(uint32_t))

/* The mean, rounded up: one thread that wants a core only sometimes still counts as one. */
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
        most = WEIR_MAX(values[i], most);
    }
    return most;
}

static void lowered(struct weir_spin_hold *hold, uint64_t now_ns)
{
    bool soon = now_ns - hold->raised_ns < SOON_NS;

    hold->hold_ns = hold->hold_ns == 0 || !soon ? HOLD_FIRST_NS : hold->hold_ns * 2;
    hold->hold_ns = WEIR_MIN(hold->hold_ns, HOLD_LAST_NS);
    hold->until_ns = now_ns + hold->hold_ns;
}

/* Change a level, unless it was lowered too recently to rise. @return the level from now on */
static uint32_t moved(struct weir_spin_hold *hold, uint32_t from, uint32_t to, uint64_t now_ns)
{
    if (to < from) {
        lowered(hold, now_ns);
    } else if (to > from && now_ns < hold->until_ns) {
        return from;
    } else if (to > from) {
        hold->raised_ns = now_ns;
    }
    return to;
}

enum weir_spin_level weir_spin_decide(struct weir_spin_governor *g,
                                      const struct weir_spin_seen *seen, uint64_t now_ns)
{
    uint32_t n, running, wanted, gate = seen->gate_asks ? 1 : 0, own, others;

    if (g->n == 0) {
        g->level = WEIR_SPIN_ALL;
        g->gate_may = true;
    }
    g->running[g->n % EPOCHS] = seen->running;
    g->active[g->n % EPOCHS] = seen->active;
    g->n++;
    n = (uint32_t)(WEIR_MIN(g->n, EPOCHS));
    running = mean_up(g->running, n);
    wanted = largest(g->active, n);
    own = 2 * wanted + gate; /* the sessions' and the gate's threads are among the running ones */
    others = running > own ? running - own : 0;
    enum weir_spin_level level = own + others <= seen->cores             ? WEIR_SPIN_ALL
                                 : wanted + gate + others <= seen->cores ? WEIR_SPIN_GUESTS
                                                                         : WEIR_SPIN_NOBODY;
    g->level = (enum weir_spin_level)moved(&g->level_hold, g->level, level, now_ns);
    /* A gate process that spins is among the running threads. */
    g->gate_may = moved(&g->gate_hold, g->gate_may,
                        level != WEIR_SPIN_NOBODY ||
                            running + (g->gate_may && seen->gate_asks ? 0 : 1) <= seen->cores,
                        now_ns) != 0;
    return g->level;
}
