/* Executes a gate's orders about runs: see orders.h. */
#include "host_backend/worker/twins/orders.h"

#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/state/hooks.h"
#include <stdio.h>

/* ---------------------------------------------------------------- reports to the gate */

static void on_run_event(void *user, struct weir_run *run, enum weir_run_event event)
{
    struct weir_gate_item *item = user;
    struct weir_run_info info;

    if (event == WEIR_RUN_HAS_FINISHED) {
        return; /* the mark behind the launch shows its end and its time */
    }
    if (event == WEIR_RUN_HAS_STOPPED) {
        weir_run_query(run, &info);
        weir_gate_run_stopped(item, info.done_blocks);
    } else {
        weir_gate_run_goes_on(item, event != WEIR_RUN_DOES_NOT_STOP);
    }
}

static void on_run_ended(void *item)
{
    weir_gate_item_drop(item);
}

static struct weir_run_place run_place(const struct weir_sched_place *place)
{
    return (struct weir_run_place){.sm_first = place->sm_first,
                                   .sm_count = place->sm_count,
                                   .block_limit = place->block_limit};
}

struct weir_forms_order *weir_orders_begin(const struct weir_gate_pass *pass)
{
    if (!pass->item) {
        return NULL;
    }
    struct weir_forms_order *order = weir_gate_item_room(pass->item);
    *order = (struct weir_forms_order){.place = run_place(&pass->place),
                                       .beside_bytes = pass->beside_bytes,
                                       .item = pass->item,
                                       .notify = on_run_event,
                                       .ended = on_run_ended};
    weir_gate_item_hold(pass->item); /* the run's reference: on_run_ended() drops it */
    return order;
}

/* ---------------------------------------------------------------- orders of the gate */

static enum weir_gate_stop stop(void *user, void *room, uint64_t lease_ns)
{
    const struct weir_device_gate *gate = user;
    struct weir_run *run = ((struct weir_forms_order *)room)->run;

    if (!run) { /* the kernel was launched in its original form */
        weir_forms_stop_missed(weir_worker_forms(gate->worker), gate->device);
        return WEIR_GATE_STOPS_NEVER;
    }
    CUresult result = weir_run_stop(run, lease_ns);
    return result == CUDA_SUCCESS           ? WEIR_GATE_STOPS
           : result == CUDA_ERROR_NOT_READY ? WEIR_GATE_STOPS_NOT_NOW
                                            : WEIR_GATE_STOPS_NEVER;
}

static void resize(void *user, void *room, const struct weir_sched_place *place)
{
    struct weir_run *run = ((struct weir_forms_order *)room)->run;
    struct weir_run_place to = run_place(place);

    (void)user;
    if (run) {
        (void)weir_run_resize(run, &to);
    }
}

static void resume(void *user, void *room, const struct weir_sched_place *place)
{
    struct weir_run *run = ((struct weir_forms_order *)room)->run;

    resize(user, room, place);
    if (run) {
        (void)weir_run_resume(run);
    }
}

static void describe(const void *room, char *text, size_t bytes)
{
    struct weir_run *run = ((const struct weir_forms_order *)room)->run;
    struct weir_run_info info;

    if (!run) {
        snprintf(text, bytes, "run=0");
        return;
    }
    weir_run_query(run, &info);
    snprintf(text, bytes,
             "run=1 state=%d begun=%d done=%u total=%u workers=%u grids=%u first_sm=%u sms=%u "
             "block_limit=%u",
             (int)info.state, info.begun, info.done_blocks, info.total, info.workers, info.grids,
             info.place.sm_first, info.place.sm_count, info.place.block_limit);
}

static void item_gone(void *room)
{
    struct weir_forms_order *order = room;

    if (order->run) {
        weir_run_put(order->run);
        order->run = NULL;
    }
}

const struct weir_gate_ops weir_orders_of_runs = {
    .stop = stop, .resume = resume, .resize = resize, .describe = describe, .item_gone = item_gone};
