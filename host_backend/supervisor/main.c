/*
 * `weir serve`: opens all that it needs, runs the loop, and closes it.
 *
 * The supervisor owns what must outlive a GPU fault: the tenants' sockets, the descriptors of
 * device memory, and the lists of guests and workers. It never loads a CUDA driver, so nothing that
 * happens on the GPU can end it. It sleeps in poll() until something happens.
 */
#include "base/fd.h"
#include "host_backend/config/notify.h"
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/domains/mps.h"
#include "host_backend/supervisor/machines/channels.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/machines/nvdimm.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/claims.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/tenant_row.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCHES_MAX                                                                                \
    (10 + 5 * WEIR_CONFIG_TENANTS_MAX + 2 * WEIR_WORKERS_MAX + WEIR_ADMIN_CLIENTS_MAX +            \
     WEIR_DEMAND_CLIENTS_MAX + WEIR_METRICS_CLIENTS_MAX + WEIR_VMS_MAX + WEIR_PENDING_MAX +        \
     WEIR_FOLLOWERS_MAX + WEIR_CLAIMS_MAX + WEIR_ASKERS_MAX)

#define SLOW_TURN_NS (2 * WEIR_NS_PER_MS)

/* The parts with descriptors to watch, and their work in each turn, in this order. */
static const struct {
    void (*watch)(struct weir_supervisor *sup, struct weir_host_loop *loop);
    void (*tick)(struct weir_supervisor *sup, uint64_t now_ns);
} parts[] = {
    {weir_sup_signals_watch, NULL},
    {weir_sup_ends_watch, weir_sup_ends_tick},
    {weir_sup_workers_watch, weir_sup_workers_tick},
    {weir_sup_gate_watch, weir_sup_gate_tick},
    {weir_mps_watch, weir_mps_tick},
    {weir_sup_programs_watch, weir_sup_programs_tick},
    {weir_sup_moves_watch, weir_sup_moves_tick},
    {weir_sup_admin_watch, weir_sup_admin_tick},
    {weir_sup_why_watch, weir_sup_why_tick},
    {weir_sup_events_watch, NULL},
    {weir_sup_demand_watch, weir_sup_demand_tick},
    {weir_sup_metrics_watch, weir_sup_metrics_tick},
    {weir_sup_libvirt_watch, weir_sup_libvirt_tick},
    {weir_sup_tenants_watch, NULL},
    {weir_sup_user_tenants_watch, weir_sup_user_tenants_tick},
    {weir_sup_channels_watch, NULL},
    {weir_sup_vms_watch, NULL},
    {weir_sup_nvdimm_watch, weir_sup_nvdimm_tick},
    {weir_sup_directory_watch, NULL},
    {weir_sup_spin_watch, weir_sup_spin_tick},
    {weir_sup_faults_watch, weir_sup_faults_tick},
    {NULL, weir_sup_tenants_note_faults},
    {weir_sup_claims_watch, NULL},
    {NULL, weir_sup_restart_tick},
    {weir_sup_extras_watch, weir_sup_extras_tick},
};

/* Log a slow turn of the loop, for which all tenants wait. */
static void remark_slow_turn(uint64_t begin_ns)
{
    uint64_t took_ns = weir_host_clock_ns() - begin_ns;

    if (took_ns >= SLOW_TURN_NS) {
        weir_log_debug("supervisor: a slow turn us=%llu",
                       (unsigned long long)(took_ns / WEIR_NS_PER_US));
    }
}

static bool turn(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t woken_ns, now_ns;

    weir_host_loop_begin(loop, weir_host_clock_ns());
    for (size_t i = 0; i < WEIR_COUNT(parts); i++) {
        if (parts[i].watch) {
            parts[i].watch(sup, loop);
        }
    }
    if (weir_host_loop_turn(loop, &woken_ns) != WEIR_OK) {
        weir_log_error("supervisor: poll failed why=\"%s\"", strerror(errno));
        return false;
    }
    now_ns = weir_host_clock_ns();
    for (size_t i = 0; i < WEIR_COUNT(parts); i++) {
        if (parts[i].tick) {
            parts[i].tick(sup, now_ns);
        }
    }
    weir_sup_reserve_fill(sup);
    remark_slow_turn(woken_ns);
    return true;
}

static void run(struct weir_supervisor *sup)
{
    struct weir_host_loop *loop = NULL;
    bool good = weir_host_loop_create(WATCHES_MAX, &loop) == WEIR_OK;

    while (good && !sup->life.stopping) {
        good = turn(sup, loop);
    }
    sup->life.exit_status = good ? sup->life.exit_status : 1;
    weir_host_loop_destroy(loop);
}

/* Make the tenants. If a tenant's socket cannot be made, the log says so, and a reload tries
 * again. */
static enum weir_status open_tenants(struct weir_supervisor *sup)
{
    enum weir_status status = weir_sup_tenants_apply(sup, &sup->config);

    weir_sup_kept_load(sup);
    weir_sup_tenants_follow(sup);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && sup->tenants[i].listen_fd >= 0) {
            return WEIR_OK;
        }
    }
    return status;
}

/* Take over what the last supervisor has left: first all that its workers' answers are about. */
static void adopt_all(struct weir_supervisor *sup)
{
    weir_sup_gate_adopt(sup);
    weir_mps_adopt(sup);
    weir_sup_tenants_adopt(sup);
    weir_sup_workers_adopt(sup);
    weir_sup_chunks_adopt(sup);
    weir_sup_directory_adopt(sup);
    weir_claims_adopt(sup);
    weir_sup_vms_take_over(sup);
}

/* All is open: bring the processes that were taken over up to date. */
static void resume_all(struct weir_supervisor *sup)
{
    weir_sup_workers_retell(sup);
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        weir_sup_vms_tell(sup, i);
    }
    weir_book_settle(sup);
}

static enum weir_status open_all(struct weir_supervisor *sup)
{
    if (mkdir(sup->config.run_dir, 0711) != 0 && errno != EEXIST) {
        fprintf(stderr, "weir serve: run_dir '%s': %s%s\n", sup->config.run_dir, strerror(errno),
                errno == ENOENT ? " (only its last folder is made)" : "");
        return WEIR_ERR_IO;
    }
    sup->mps.wanted = weir_mps_is_wanted(&sup->config);
    enum weir_status status = weir_sup_signals_open(sup);
    status = status == WEIR_OK ? weir_sup_admin_open(sup) : status;
    if (status == WEIR_OK && !weir_book_open(sup)) {
        status = WEIR_ERR_IO;
    }
    if (status == WEIR_OK) {
        sup->life.took_over = weir_book_has_processes(sup);
    }
    if (status == WEIR_OK && sup->params.end) {
        sup->config.workers.spares = 0;
        if (!sup->life.took_over) {
            return WEIR_OK;
        }
    }
    if (status == WEIR_OK) {
        weir_sup_worker_user_open(sup);
        weir_sup_sweep_endpoints(sup);
    }
    if (status == WEIR_OK && !weir_sup_directory_open(sup)) {
        status = WEIR_ERR_IO;
    }
    if (status == WEIR_OK && !weir_sup_events_open(sup)) {
        status = WEIR_ERR_NO_MEMORY;
    }
    if (status == WEIR_OK) {
        adopt_all(sup);
        status = weir_sup_spin_open(sup);
    }
    if (status == WEIR_OK) {
        weir_sup_workers_resume(sup);
        weir_sup_pending_adopt(sup);
        status = weir_sup_gate_open(sup);
    }
    if (status == WEIR_OK) {
        weir_sup_vm_user_follow(sup);
        weir_sup_tcp_open(sup);
        weir_sup_metrics_open(sup);
        status = open_tenants(sup);
    }
    if (status == WEIR_OK) {
        weir_sup_demand_open(sup);
        weir_sup_drain_load(sup);
        resume_all(sup);
        weir_sup_workers_listen(sup);
        weir_sup_programs_tick(sup, weir_host_clock_ns()); /* starts spares */
        weir_sup_remark_keys(sup);
        weir_sup_libvirt_open(sup);
    }
    return status;
}

/* Raise the limit: each piece of device memory needs a descriptor here, each exported one a
 * descriptor in the worker. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* From now on new programs find no host. */
static void close_doors(struct weir_supervisor *sup)
{
    weir_sup_tenants_close(sup);
    weir_sup_demand_close(sup);
}

/* End, and leave everything to the next supervisor: the keeper has copies of all descriptors. When
 * programs see this process end, they repeat what they have sent to it alone. */
static int leave(struct weir_supervisor *sup)
{
    int exit_status = sup->life.exit_status;

    weir_sup_libvirt_close(sup);
    unlink(sup->admin.path);
    weir_book_close(sup, false);
    free(sup);
    return exit_status;
}

int weir_serve_main(const struct weir_serve_params *params)
{
    struct weir_supervisor *sup = calloc(1, sizeof *sup);
    int exit_status;

    if (!sup) {
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* a program may end while the host writes to it */
    signal(SIGXFSZ, SIG_IGN); /* as in workers: then a write beyond the size limit only fails */
    sup->params = *params;
    sup->listener = &weir_worker_events;
    weir_log_rate_init(&sup->rates.strangers);
    weir_log_rate_init(&sup->rates.starts);
    sup->signal_fd = sup->admin.fd = sup->tcp_fd = sup->libvirt.link = -1;
    sup->demand.fd = -1;
    sup->directory.watch_fd = -1;
    sup->spin.page_fd = sup->spin.loadavg_fd = sup->gate.link = -1;
    sup->life.started_ns = weir_clock_now_ns();
    allow_descriptors();
    weir_sup_reserve_fill(sup);
    weir_sup_chunks_init(sup);
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        sup->admin.clients[i].fd = -1;
    }
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        sup->admin.askers[i].fd = -1;
    }
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        sup->demand.clients[i].fd = -1;
    }
    if (weir_sup_load(params, &sup->config) != WEIR_OK) {
        free(sup);
        return 2;
    }
    if (!weir_sup_open_log(sup)) {
        free(sup);
        return 2;
    }
    weir_crash_init();
    if (!weir_sup_check_names(sup) || !weir_sup_worker_user_find(sup)) {
        free(sup);
        return 2;
    }
    if (params->check_only) {
        exit_status = !params->check_host || weir_sup_check(sup) ? 0 : 1;
        free(sup);
        return exit_status;
    }
    if (!weir_sup_machines_open(sup)) {
        free(sup);
        return 1;
    }
    sup->life.exit_status = open_all(sup) == WEIR_OK ? 0 : 1;
    if (sup->life.exit_status == 0 && !params->end) {
        run(sup);
    } else if (!params->end) { /* running programs may wait for a supervisor that can start */
        sup->life.leaves = sup->life.took_over && sup->config.linger_s != 0;
    }
    weir_notify("STOPPING=1");
    if (sup->life.leaves) {
        return leave(sup);
    }
    weir_sup_pending_close(sup);
    weir_sup_why_close(sup);
    weir_fd_close(sup->tcp_fd); /* new guests find a closed port, and retry until the next host */
    close_doors(sup);
    weir_sup_libvirt_close(sup);
    if (sup->signal_fd >= 0 && sup->book) {
        weir_sup_workers_stop(sup);
        weir_sup_gate_close(sup);
        weir_mps_close(sup);
    }
    weir_sup_admin_close(sup);
    weir_sup_events_close(sup);
    weir_sup_metrics_close(sup);
    weir_sup_spin_close(sup);
    weir_sup_directory_close(sup);
    weir_claims_release(&sup->claims);
    weir_sup_reserve_close(sup);
    weir_fd_close(sup->signal_fd);
    exit_status = sup->life.exit_status;
    weir_sup_machines_close(sup);
    weir_book_close(sup, true);
    free(sup->chunks.kept);
    free(sup);
    return exit_status;
}
