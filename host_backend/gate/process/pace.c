#include "host_backend/gate/process/pace.h"

#include "base/clock.h"

#define LOOK_NS      (100 * WEIR_NS_PER_US) /* how long to poll after a request */
#define LOOK_LONG_NS (20 * WEIR_NS_PER_MS)  /* how long to poll while requests come often */
#define WINDOW_NS    (20 * WEIR_NS_PER_MS)
#define OFTEN        4u /* more requests in a window count as often: one each 5 ms */

void served_pace_note(struct served_pace *pace, uint32_t n, uint64_t now_ns)
{
    uint64_t past_ns = now_ns - pace->window_ns;

    if (past_ns >= WINDOW_NS) {
        pace->often = pace->n >= OFTEN && past_ns < 2 * WINDOW_NS;
        pace->window_ns = now_ns;
        pace->n = 0;
    }
    if (n != 0) {
        pace->n += n;
        pace->request_ns = pace->looked_ns = now_ns;
    }
}

bool served_pace_is_often(const struct served_pace *pace)
{
    return pace->often || pace->n >= OFTEN;
}

bool served_pace_looks(struct served_pace *pace, bool for_long, uint64_t now_ns)
{
    if (pace->looked_ns != 0 && now_ns - pace->looked_ns > WEIR_PREEMPTED_NS) {
        pace->sleeps = 2; /* sleep without polling now, and the next time */
    }
    pace->looked_ns = now_ns;
    return pace->sleeps == 0 && now_ns - pace->request_ns < (for_long ? LOOK_LONG_NS : LOOK_NS);
}

void served_pace_sleep(struct served_pace *pace)
{
    pace->looked_ns = 0;
    pace->sleeps -= pace->sleeps != 0;
}
