/* Loads on several GPUs: kernels of jobs, which wait for their peers, and who leads where. */
#include "sched/sim/sim_private.h"

#include <stdlib.h>

/* Jobs are stuck when for so long nothing but a scheduler's timer has been due. A
 * scheduler's watchdog has helped who waits long before that. */
#define STUCK_NS UINT64_C(60000000000)

static bool follows(const struct weir_sim_load *load, uint32_t queue)
{
    return queue < load->n_queues && load->queues[queue].rank != 0;
}

bool weir_sim_job_has(const struct weir_sim_load *load, uint32_t queue)
{
    return follows(load, queue) || follows(load, queue + 1);
}

/* Have the peers of the last kernel that began in a queue begun? Those without such a kernel
 * count as well: a trace may end in the middle. */
static bool has_peers(const struct run *run, uint32_t queue)
{
    const struct weir_sim_load *load = run->load;
    uint32_t first = queue - load->queues[queue].rank, n = run->ranks[queue].begun;
    bool all = true;
    for (uint32_t q = first; q == first || follows(load, q); q++) {
        all = all && (run->ranks[q].begun >= n || load->queues[q].n_kernels < n);
    }
    return all;
}

void weir_sim_job_begun(struct run *run, uint32_t item)
{
    const struct weir_sim_load *load = run->load;
    uint32_t queue = load->items[item].queue, first = queue - load->queues[queue].rank;
    run->ranks[queue].begun++;
    run->ranks[queue].item = item;
    for (uint32_t q = first; q == first || follows(load, q); q++) {
        if (run->ranks[q].begun != 0 && has_peers(run, q)) {
            /* WEIR_ERR_NOT_FOUND: it went on before, and has ended */
            (void)weir_sim_gpu_release(run->devices[load->queues[q].gpu].gpu, run->ranks[q].item);
        }
    }
}

bool weir_sim_jobs_are_stuck(const struct run *run, uint64_t timer_ns)
{
    bool is_due = timer_ns == UINT64_MAX || run->now_ns - run->busy_ns > STUCK_NS;
    bool waits = false;
    for (uint32_t q = 0; is_due && q < run->load->n_queues; q++) {
        waits |= weir_sim_job_has(run->load, q) && !has_peers(run, q);
    }
    return waits;
}

static struct weir_sched_member member_of(void *user, uint32_t device, uint32_t tenant)
{
    const struct device *d = &((const struct run *)user)->devices[device];
    return (struct weir_sched_member){d->sched, d->tenants[tenant]};
}

enum weir_status weir_sim_jobs_make(struct run *run)
{
    uint32_t n = run->load->n_tenants;
    run->spans = (struct weir_sched_spans){.member = member_of,
                                           .user = run,
                                           .tenants = calloc(n + 1u, sizeof *run->spans.tenants),
                                           .n_tenants = n,
                                           .n_devices = run->n_devices,
                                           .next_ns = UINT64_MAX};
    return run->spans.tenants ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

void weir_sim_jobs_come(struct run *run, const struct weir_sim_queue *queue)
{
    if (!run->params->apart &&
        (run->load->items[queue->first].params.flags & WEIR_SCHED_PEERS) != 0) {
        weir_sched_spans_come(&run->spans, run->now_ns, queue->gpu, queue->tenant);
    }
}

void weir_sim_jobs_tick(struct run *run)
{
    weir_sched_spans_tick(&run->spans, run->now_ns);
}
