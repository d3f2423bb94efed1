/* Handles the ends of programs in their workers, and the ends of such workers: see programs.h. */
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/workers/program_kinds.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <string.h>
#include <sys/wait.h>

void weir_sup_program_ended(struct weir_supervisor *sup, int worker,
                            const struct weir_link_idle *idle)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->kind != WEIR_WORKER_PROGRAM || idle->n_guests != w->program.n_guests) {
        return; /* the worker will soon get another connection */
    }
    w->program.busy = false;
    w->program.is_alone = false;
    w->program.move = (struct weir_sup_move){0};
    w->program.pid = 0;
    w->program.idle_since_ns = weir_host_clock_ns();
    if (idle->soiled != 0 && !w->program.stopping) {
        weir_sup_program_stop(sup, worker);
    }
}

void weir_sup_program_left_behind(struct weir_supervisor *sup, int worker)
{
    struct weir_sup_worker *w = &sup->workers[worker];

    if (w->kind == WEIR_WORKER_PROGRAM && w->pid > 0) {
        weir_log_warn("supervisor: worker killed for work that its program left behind worker=%d "
                      "tenant=%s",
                      worker, w->tenant >= 0 ? sup->tenants[w->tenant].config.name : "");
        w->program.stopping = true;
        weir_mps_kill(sup, w);
    }
}

/* Do the first workers find no driver? Then the host stops, since nobody might see a log. */
static bool is_hopeless(const struct weir_supervisor *sup, int worker, int status)
{
    return !sup->life.announced && WEIR_WORKER_HAS_NO_DEVICE(status) &&
           !weir_sup_others_may_serve(sup, worker, false);
}

/* Has the worker's end ended the other contexts of its MPS domain? A signal that kills a worker
 * with a program does that, too. */
static bool is_fault(const struct weir_sup_worker *w, int status)
{
    return (WIFSIGNALED(status) && w->program.busy && !w->program.terminated) ||
           (WIFEXITED(status) && WEXITSTATUS(status) == WEIR_WORKER_EXIT_STICKY &&
            !w->program.asserted);
}

static bool is_full(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == WEIR_WORKER_EXIT_FULL;
}

void weir_sup_program_died(struct weir_supervisor *sup, int worker, int status)
{
    struct weir_sup_worker *w = &sup->workers[worker];
    struct weir_sup_mps *domain = weir_mps_of(sup, w);
    const char *name = w->tenant >= 0 ? sup->tenants[w->tenant].config.name : "";
    bool failed = w->row.n_devices == 0 && !w->program.stopping && !sup->life.stopping;
    int tenant = w->tenant;

    weir_log_limit_thread(tenant >= 0 ? weir_sup_log_rate(sup, &sup->tenants[tenant])
                                      : &sup->rates.starts,
                          tenant >= 0 ? name : "-");
    if (failed && domain && !weir_sup_others_may_serve(sup, worker, true) &&
        weir_mps_give_up(sup, "a worker cannot be its client")) {
        failed = false; /* a worker outside MPS may succeed */
        memset(sup->programs.shortages, 0, sizeof sup->programs.shortages);
    } else if (failed && is_hopeless(sup, worker, status)) {
        weir_sup_no_gpu(sup);
    } else if (w->program.stopping || sup->life.stopping) {
        weir_log_info("supervisor: worker of a program ended worker=%d tenant=%s", worker, name);
        weir_sup_shortage_less(sup);
    } else {
        weir_log_error("supervisor: worker of a program died worker=%d tenant=%s program=%d "
                       "status=0x%x",
                       worker, name, (int)w->program.pid, (unsigned)status);
    }
    weir_log_limit_thread(NULL, NULL);
    if (failed && !(is_full(status) && weir_sup_take_spares(sup))) {
        weir_sup_shortage_begin(sup, w->devices, status, weir_host_clock_ns());
    }
    weir_sup_move_worker_gone(sup, worker);
    if (domain && is_fault(w, status)) {
        sup->listener->domain_died(sup, worker, WIFSIGNALED(status));
    }
    *w = (struct weir_sup_worker){.link = -1, .tenant = -1};
    if (tenant >= 0) {
        sup->listener->program_left(sup, (uint32_t)tenant);
    }
}

void weir_sup_programs_drop(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (weir_program_worker_is_there(&sup->workers[i]) &&
            sup->workers[i].tenant == (int)tenant->index) {
            weir_sup_program_stop(sup, i);
        }
    }
}
