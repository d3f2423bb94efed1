/* Handles signals: the end of a child, a reload, the end of the host. */
#include "host_backend/config/notify.h"
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum weir_status weir_sup_signals_open(struct weir_supervisor *sup)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    WEIR_FAIL_IF(sigprocmask(SIG_BLOCK, &set, NULL) != 0, WEIR_ERR_IO);
    sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return sup->signal_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

/* Put the file's policies in force in all schedulers: a policy that stays keeps what it knows. */
static void follow_policy(struct weir_supervisor *sup, const char *policy)
{
    char *now = sup->config.scheduler.policy;

    if (strcmp(policy, now) == 0) {
        return;
    }
    if ((strcmp(policy, "off") == 0) != (strcmp(now, "off") == 0)) {
        weir_log_warn("supervisor: policy not changed why=\"a scheduler begins and ends with its "
                      "host\"");
        return;
    }
    weir_log_info("supervisor: policy changed from=\"%s\" to=\"%s\"", now, policy);
    weir_sup_event(sup, &(struct weir_sup_event){.kind = WEIR_EVENT_POLICY_CHANGED},
                   "from %s to %s", now, policy);
    snprintf(now, sizeof sup->config.scheduler.policy, "%s", policy);
    weir_sup_gate_configure(sup);
}

static void reload(struct weir_supervisor *sup)
{
    struct weir_host_config *config = malloc(sizeof *config);

    weir_notify("RELOADING=1");
    weir_sup_sockets_renew(sup);
    weir_sup_admin_renew(sup);
    if (config && sup->params.config_path && weir_sup_load(&sup->params, config) == WEIR_OK) {
        weir_log_info("supervisor: reloading path=%s", sup->params.config_path);
        weir_sup_remark_restart(sup, config);
        sup->config.demand.user_tenants = config->demand.user_tenants; /* tenants follow */
        (void)!weir_sup_tenants_apply(sup, config);                    /* failures are in the log */
        follow_policy(sup, config->scheduler.policy);
        weir_sup_demand_follow(sup, &config->demand);
        weir_sup_metrics_follow(sup, config->metrics_listen);
        weir_sup_libvirt_again(sup);
        weir_sup_remark_memory(sup);
        weir_sup_remark_keys(sup);
    } else {
        weir_log_warn("supervisor: not reloaded, the previous settings stay");
    }
    sup->extras.again_ns = sup->extras.again_ns != 0 ? 1 : 0; /* at once */
    free(config);
    weir_notify("READY=1");
}

static void on_signals(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct signalfd_siginfo info;

    (void)index;
    while (read(sup->signal_fd, &info, sizeof info) == sizeof info) {
        switch (info.ssi_signo) {
        case SIGCHLD:
            weir_mps_reap(sup);
            weir_sup_libvirt_reap(sup);
            break;
        case SIGHUP:
            reload(sup);
            break;
        default:
            /* The end of a container's first process is the end of all its processes. */
            sup->life.leaves =
                info.ssi_signo == SIGTERM && sup->config.linger_s != 0 && getpid() != 1;
            sup->life.stopping = true;
            weir_log_info("supervisor: %s signal=%u",
                          sup->life.leaves ? "ends, programs go on" : "stopping", info.ssi_signo);
            break;
        }
    }
}

void weir_sup_ends_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    (void)now_ns;
    if (!weir_book_receive(sup)) {
        weir_log_error("supervisor: the keeper has ended, and with it all programs");
        sup->life.stopping = true;
        sup->life.exit_status = 1;
    }
    weir_sup_workers_reap(sup);
    weir_sup_gate_reap(sup);
    weir_mps_reap(sup);
    weir_book_forget_events(sup);
}

static void on_book(void *user, int index)
{
    (void)index;
    weir_sup_ends_tick(user, 0);
}

void weir_sup_ends_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_book_watch(sup, loop, on_book);
}

void weir_sup_signals_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->signal_fd, POLLIN, on_signals, sup, 0);
}
