#include "guest_lib/inside.h"

#include "base/clock.h"
#include "base/status.h"
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS (20 * WEIR_NS_PER_US) /* most calls end within this time */
#define NAP_NS  (50 * WEIR_NS_PER_US)

bool weir_inside_fences;
static struct weir_inside *places; /* atomic; the list of all threads' places, which only grows */

static long membarrier(int command)
{
    int saved = errno;
    long result = syscall(SYS_membarrier, command, 0);
    errno = saved;
    return result;
}

void weir_inside_init(void)
{
    long offers = membarrier(MEMBARRIER_CMD_QUERY);
    weir_inside_fences = offers < 0 || !(offers & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

struct weir_inside *weir_inside_take(void)
{
    struct weir_inside *place = __atomic_load_n(&places, __ATOMIC_ACQUIRE);
    for (; place; place = place->next) {
        uint32_t no = 0;
        if (__atomic_compare_exchange_n(&place->taken, &no, 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
            return place;
        }
    }
    WEIR_FAIL_IF(posix_memalign((void **)&place, sizeof *place, sizeof *place) != 0, NULL);
    *place = (struct weir_inside){.taken = 1, .next = __atomic_load_n(&places, __ATOMIC_RELAXED)};
    while (!__atomic_compare_exchange_n(&places, &place->next, place, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    return place;
}

void weir_inside_give(struct weir_inside *place)
{
    weir_inside_leave(place);
    __atomic_store_n(&place->taken, 0, __ATOMIC_RELEASE);
}

static bool others(const struct weir_inside *mine)
{
    for (const struct weir_inside *p = __atomic_load_n(&places, __ATOMIC_SEQ_CST); p; p = p->next) {
        if (p != mine && __atomic_load_n(&p->taken, __ATOMIC_SEQ_CST)) {
            return true;
        }
    }
    return false;
}

static void barrier_in_all_threads(void)
{
    /* The first time the process must be registered, which takes longer and is a barrier, too. */
    if (!weir_inside_fences && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
        (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
}

static bool is_inside(const struct weir_inside *place, const struct weir_guest_ctx *ctx)
{
    const struct weir_guest_ctx *in = __atomic_load_n(&place->ctx, __ATOMIC_SEQ_CST); /* I1 */
    return in == ctx || in == WEIR_INSIDE_ANY || in == WEIR_INSIDE_ALL;
}

void weir_inside_wait(const struct weir_guest_ctx *ctx, struct weir_inside *mine)
{
    if (mine) {
        weir_inside_leave(mine);
    }
    if (!others(mine)) {
        return;
    }
    barrier_in_all_threads();
    uint64_t spin_end_ns = weir_clock_now_ns() + SPIN_NS;
    for (const struct weir_inside *p = __atomic_load_n(&places, __ATOMIC_SEQ_CST); p; p = p->next) {
        while (p != mine && is_inside(p, ctx)) {
            uint32_t nobody = 0;
            weir_cpu_pause();
            if (weir_clock_now_ns() > spin_end_ns) {
                weir_futex_wait(&nobody, 0, NAP_NS);
            }
        }
    }
}
