/* An event loop: each pass waits with poll(), and then calls the handlers of descriptors that are
 * ready. */
#include "host_backend/loop/loop.h"

#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

/* A process that is stopped or frozen, or that gets no core, sleeps longer than it asked for. The
 * loop sleeps for at most LOOK_MS, so it measures such a pause with this precision. A delay of
 * AWAY_NS is longer than a scheduler's, and than what a handler takes between two looks at the
 * clock. */
#define LOOK_MS 1000
#define AWAY_NS WEIR_NS_PER_S

static uint64_t away_ns;   /* sum of all times in which this process was stopped */
static uint64_t looked_ns; /* when the clock was last read; 0: never */

struct source {
    weir_host_loop_fn handle;
    void *user;
    int index;
};

struct weir_host_loop {
    struct pollfd *fds;
    struct source *sources; /* one for each element of fds */
    size_t n, max;
    uint64_t now_ns, wake_ns;
};

enum weir_status weir_host_loop_create(size_t watches_max, struct weir_host_loop **ret_loop)
{
    struct weir_host_loop *loop = calloc(1, sizeof *loop);

    WEIR_FAIL_IF(!loop, WEIR_ERR_NO_MEMORY);
    loop->fds = calloc(watches_max, sizeof *loop->fds);
    loop->sources = calloc(watches_max, sizeof *loop->sources);
    loop->max = watches_max;
    if (!loop->fds || !loop->sources) {
        weir_host_loop_destroy(loop);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_loop = loop;
    return WEIR_OK;
}

void weir_host_loop_destroy(struct weir_host_loop *loop)
{
    if (loop) {
        free(loop->fds);
        free(loop->sources);
        free(loop);
    }
}

void weir_host_loop_begin(struct weir_host_loop *loop, uint64_t now_ns)
{
    loop->n = 0;
    loop->now_ns = now_ns;
    loop->wake_ns = WEIR_FOREVER;
}

uint64_t weir_host_loop_now_ns(const struct weir_host_loop *loop)
{
    return loop->now_ns;
}

void weir_host_loop_watch(struct weir_host_loop *loop, int fd, short events,
                          weir_host_loop_fn handle, void *user, int index)
{
    if (fd >= 0 && loop->n < loop->max) {
        loop->fds[loop->n] = (struct pollfd){fd, events, 0};
        loop->sources[loop->n++] = (struct source){handle, user, index};
    }
}

void weir_host_loop_wake(struct weir_host_loop *loop, uint64_t at_ns)
{
    loop->wake_ns = WEIR_MIN(at_ns, loop->wake_ns);
}

int weir_host_loop_wait_ms(const struct weir_host_loop *loop)
{
    return weir_poll_ms(loop->wake_ns, loop->now_ns);
}

/* Read the clock. A time since the last look beyond allowed_ns + AWAY_NS counts as a pause. */
static uint64_t look(uint64_t allowed_ns)
{
    uint64_t now_ns = weir_clock_now_ns();

    if (looked_ns != 0 && now_ns - looked_ns > allowed_ns + AWAY_NS) {
        away_ns += now_ns - looked_ns - allowed_ns;
    }
    looked_ns = now_ns;
    return now_ns - away_ns;
}

uint64_t weir_host_clock_ns(void)
{
    return look(0);
}

enum weir_status weir_host_loop_turn(struct weir_host_loop *loop, uint64_t *ret_woken_ns)
{
    int most_ms = weir_host_loop_wait_ms(loop);
    int wait_ms = most_ms < 0 || most_ms > LOOK_MS ? LOOK_MS : most_ms;

    (void)look(0); /* what came before is no part of poll()'s wait */
    int n = poll(loop->fds, loop->n, wait_ms);
    WEIR_FAIL_IF(n < 0 && errno != EINTR, WEIR_ERR_IO);
    *ret_woken_ns = look((uint64_t)wait_ms * WEIR_NS_PER_MS);
    for (size_t i = 0; n > 0 && i < loop->n; i++) {
        if (loop->fds[i].revents != 0) {
            loop->sources[i].handle(loop->sources[i].user, loop->sources[i].index);
        }
    }
    return WEIR_OK;
}
