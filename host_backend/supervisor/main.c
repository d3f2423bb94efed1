/*
 * `weir serve`: configuration, sockets, signals, and the loop.
 *
 * The supervisor owns what must outlive a GPU fault: the tenants' sockets, the descriptors of
 * device memory, the knowledge of who is there. It never loads a CUDA driver, so nothing that
 * happens on the GPU can end it. It sleeps in poll() until something happens.
 */
#include "host_backend/supervisor/libvirt.h"
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/supervisor/notify.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WATCHES_MAX                                                                                \
    (10 + 5 * WEIR_CONFIG_TENANTS_MAX + 2 * WEIR_WORKERS_MAX + WEIR_ADMIN_CLIENTS_MAX +            \
     WEIR_ASKERS_MAX + WEIR_METRICS_CLIENTS_MAX + WEIR_VMS_MAX + WEIR_PENDING_MAX +                \
     WEIR_FOLLOWERS_MAX + WEIR_CLAIMS_MAX)

#define SLOW_TURN_NS (2 * WEIR_NS_PER_MS)

/* The command line wins over the file. */
static void override(struct weir_host_config *config, const struct weir_serve_params *params)
{
    const struct {
        char *to;
        const char *from;
    } texts[] = {{config->run_dir, params->run_dir},
                 {config->listen_tcp, params->listen_tcp},
                 {config->driver, params->driver},
                 {config->log, params->log},
                 {config->metrics_listen, params->metrics},
                 {config->softgpu, params->softgpu},
                 {config->cdi, params->cdi}};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i].from != NULL) {
            snprintf(texts[i].to, WEIR_CONFIG_PATH_BYTES, "%s", texts[i].from);
        }
    }
    if (params->no_softgpu && strcmp(config->driver, "auto") == 0) {
        snprintf(config->driver, sizeof config->driver, "nvidia");
    }
    if (params->window_base != 0) {
        config->window_base = params->window_base;
    }
    if (params->window_bytes != 0) {
        config->window_bytes = params->window_bytes;
    }
}

static enum weir_status load(const struct weir_serve_params *params,
                             struct weir_host_config *config)
{
    struct weir_diag diag = {0};
    enum weir_status status;

    if (params->config_path == NULL) {
        weir_config_default(config);
        status = WEIR_OK;
    } else {
        status = weir_config_load(params->config_path, config, &diag);
    }
    if (status == WEIR_ERR_SYNTAX && diag.line == 0) { /* of several keys, which may not be there */
        fprintf(stderr, "%s: %s\n", params->config_path, diag.message);
    } else if (status == WEIR_ERR_SYNTAX) {
        fprintf(stderr, "%s:%u:%u: %s\n", params->config_path, diag.line, diag.column,
                diag.message);
    } else if (status != WEIR_OK) {
        fprintf(stderr, "%s: %s\n", params->config_path, weir_status_text(status));
    } else {
        override(config, params);
        if (!weir_config_areas_ok(config, &diag)) {
            fprintf(stderr, "weir serve: %s\n", diag.message);
            status = WEIR_ERR_INVALID;
        }
    }
    if (status == WEIR_OK && params->policy != NULL) {
        if (strlen(params->policy) >= sizeof config->scheduler.policy ||
            !weir_config_policy_ok(params->policy, &diag)) {
            fprintf(stderr, "weir serve: --policy '%s': %s\n", params->policy, diag.message);
            return WEIR_ERR_INVALID;
        }
        snprintf(config->scheduler.policy, sizeof config->scheduler.policy, "%s", params->policy);
    }
    if (status == WEIR_OK && params->devices != NULL &&
        weir_devices_parse(params->devices, config->devices) != WEIR_OK) {
        fprintf(stderr, "weir serve: --devices '%s': a list such as 0,1 or GPU-4a8f is wanted\n",
                params->devices);
        return WEIR_ERR_INVALID;
    }
    for (uint32_t i = 0; status == WEIR_OK && i < config->n_tenants; i++) {
        if (!weir_tenant_devices_ok(&config->tenants[i], config)) {
            fprintf(stderr, "weir serve: tenant '%s' has devices that the host has not\n",
                    config->tenants[i].name);
            return WEIR_ERR_INVALID;
        }
    }
    if (status == WEIR_OK && !weir_config_cdi_ok(config->cdi)) {
        fprintf(stderr,
                "weir serve: cdi must be \"none\" or an absolute path that ends in .json\n");
        return WEIR_ERR_INVALID;
    }
    if (status == WEIR_OK && config->listen_tcp[0] != 0 && config->server_key[0] == 0) {
        fprintf(stderr,
                "weir serve: listen_tcp, or --listen, needs server_key in [host] of weir.toml "
                "(see weir keygen)\n");
        return WEIR_ERR_INVALID;
    }
    return status;
}

static enum weir_status open_admin(struct weir_supervisor *sup)
{
    int n = snprintf(sup->admin_path, sizeof sup->admin_path, "%s/admin.sock", sup->config.run_dir);

    if (n < 0 || (size_t)n >= sizeof sup->admin_path) {
        return WEIR_ERR_TOO_BIG;
    }
    return weir_sup_listen(sup->admin_path, 0660, &sup->admin_fd); /* owner and group */
}

static enum weir_status open_signals(struct weir_supervisor *sup)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return WEIR_ERR_IO;
    }
    sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return sup->signal_fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

/* What weir policy has set stays until the file says something else than it did. */
static void follow_policy(struct weir_supervisor *sup, const char *policy)
{
    struct weir_diag diag = {0};

    if (strcmp(policy, sup->policy_base) == 0) {
        return;
    }
    snprintf(sup->policy_base, sizeof sup->policy_base, "%s", policy);
    if (!weir_sup_policy_set(sup, policy, &diag)) {
        weir_log_warn("supervisor: policy not changed why=\"%s\"", diag.message);
    }
}

static void reload(struct weir_supervisor *sup)
{
    struct weir_host_config *config = malloc(sizeof *config);

    weir_notify("RELOADING=1");
    if (config != NULL && sup->params.config_path != NULL &&
        load(&sup->params, config) == WEIR_OK) {
        weir_log_info("supervisor: reloading path=%s", sup->params.config_path);
        weir_sup_remark_restart(sup, config);
        (void)!weir_sup_tenants_apply(sup, config); /* what failed is in the log */
        follow_policy(sup, config->scheduler.policy);
        weir_sup_demand_follow(sup, &config->demand);
        weir_sup_libvirt_again(sup);
        weir_sup_remark_memory(sup);
        weir_sup_remark_keys(sup);
    } else {
        weir_log_warn("supervisor: not reloaded, the previous settings stay");
    }
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
            weir_sup_workers_reap(sup);
            weir_sup_gate_reap(sup);
            weir_mps_reap(sup);
            weir_sup_libvirt_reap(sup);
            break;
        case SIGHUP:
            reload(sup);
            break;
        default:
            weir_log_info("supervisor: stopping signal=%u", info.ssi_signo);
            sup->stopping = true;
            break;
        }
    }
}

static void watch_signals(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->signal_fd, POLLIN, on_signals, sup, 0);
}

/* What has descriptors to watch, and what is to be done in each turn, in this order. */
static const struct {
    void (*watch)(struct weir_supervisor *sup, struct weir_host_loop *loop);
    void (*tick)(struct weir_supervisor *sup, uint64_t now_ns);
} parts[] = {
    {watch_signals, NULL},
    {weir_sup_workers_watch, weir_sup_workers_tick},
    {weir_sup_gate_watch, weir_sup_gate_tick},
    {weir_mps_watch, weir_mps_tick},
    {weir_sup_programs_watch, weir_sup_programs_tick},
    {weir_sup_admin_watch, weir_sup_admin_tick},
    {weir_sup_events_watch, NULL},
    {weir_sup_demand_watch, weir_sup_demand_tick},
    {weir_sup_metrics_watch, weir_sup_metrics_tick},
    {weir_sup_libvirt_watch, weir_sup_libvirt_tick},
    {weir_sup_tenants_watch, NULL},
    {weir_sup_channels_watch, NULL},
    {weir_sup_vms_watch, NULL},
    {weir_sup_nvdimm_watch, weir_sup_nvdimm_tick},
    {weir_sup_directory_watch, NULL},
    {weir_sup_spin_watch, weir_sup_spin_tick},
    {weir_sup_faults_watch, weir_sup_faults_tick},
    {weir_sup_claims_watch, NULL},
};

/* Everybody waits for the supervisor meanwhile. */
static void remark_slow_turn(uint64_t begin_ns)
{
    uint64_t took_ns = weir_clock_now_ns() - begin_ns;

    if (took_ns >= SLOW_TURN_NS) {
        weir_log_debug("supervisor: a slow turn us=%llu",
                       (unsigned long long)(took_ns / WEIR_NS_PER_US));
    }
}

static bool turn(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t woken_ns, now_ns;

    weir_host_loop_begin(loop, weir_clock_now_ns());
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        parts[i].watch(sup, loop);
    }
    if (weir_host_loop_turn(loop, &woken_ns) != WEIR_OK) {
        weir_log_error("supervisor: poll failed why=\"%s\"", strerror(errno));
        return false;
    }
    now_ns = weir_clock_now_ns();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].tick != NULL) {
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

    while (good && !sup->stopping) {
        good = turn(sup, loop);
    }
    sup->exit_status = good ? sup->exit_status : 1;
    weir_host_loop_destroy(loop);
}

static enum weir_status open_all(struct weir_supervisor *sup)
{
    enum weir_status status;

    if (mkdir(sup->config.run_dir, 0711) != 0 && errno != EEXIST) {
        fprintf(stderr, "weir serve: run_dir '%s': %s%s\n", sup->config.run_dir, strerror(errno),
                errno == ENOENT ? " (only its last folder is made)" : "");
        return WEIR_ERR_IO;
    }
    sup->mps_wanted = weir_mps_is_wanted(&sup->config);
    status = open_signals(sup);
    status = status == WEIR_OK ? weir_sup_worker_user_open(sup) : status;
    if (status == WEIR_OK) {
        status = open_admin(sup);
        if (status != WEIR_OK) {
            fprintf(stderr, "weir serve: %s: %s\n", sup->admin_path,
                    status == WEIR_ERR_EXISTS ? "a host is running here already (see weir status); "
                                                "another one wants another --run-dir"
                    : status == WEIR_ERR_DENIED
                        ? "permission denied: name a --run-dir that this user may write to"
                        : weir_status_text(status));
        }
    }
    if (status == WEIR_OK) {
        weir_sup_sweep_endpoints(sup);
    }
    if (status == WEIR_OK && !weir_sup_directory_open(sup)) {
        status = WEIR_ERR_IO;
    }
    if (status == WEIR_OK && !weir_sup_events_open(sup)) {
        status = WEIR_ERR_NO_MEMORY;
    }
    status = status == WEIR_OK ? weir_sup_spin_open(sup) : status;
    status = status == WEIR_OK ? weir_sup_gate_open(sup) : status;
    status = status == WEIR_OK ? weir_sup_tcp_open(sup) : status;
    status = status == WEIR_OK ? weir_sup_metrics_open(sup) : status;
    status = status == WEIR_OK ? weir_sup_tenants_apply(sup, &sup->config) : status;
    status = status == WEIR_OK ? weir_sup_demand_open(sup) : status;
    if (status == WEIR_OK) {
        weir_sup_workers_listen(sup);
        weir_sup_programs_tick(sup, weir_clock_now_ns()); /* spares */
        weir_sup_remark_keys(sup);
    }
    return status == WEIR_OK ? weir_sup_libvirt_open(sup) : status;
}

/* Each piece of device memory is a descriptor here,
 * each exported one a descriptor in the worker. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* With --check nothing is made, so not the file of the log either. */
static bool open_log(const struct weir_supervisor *sup)
{
    const char *log = sup->config.log;
    size_t n = sup->params.check_only ? strcspn(log, ":") : strlen(log);
    char spec[WEIR_CONFIG_PATH_BYTES];
    enum weir_status status = WEIR_OK;

    snprintf(spec, sizeof spec, "%.*s", (int)n, log);
    if (weir_log_level() == WEIR_LOG_NONE) {
        status = weir_log_init(spec, "weir serve");
    }
    if (status == WEIR_ERR_INVALID) {
        fprintf(
            stderr,
            "weir serve: log '%s': LEVEL or LEVEL:FILE is wanted; levels are none, error, warn, "
            "info and debug\n",
            log);
    } else if (status != WEIR_OK) {
        fprintf(stderr, "weir serve: log '%s': the file cannot be opened for writing\n", log);
    }
    return status == WEIR_OK;
}

int weir_serve_main(const struct weir_serve_params *params)
{
    struct weir_supervisor *sup = calloc(1, sizeof *sup);
    int exit_status;

    if (sup == NULL) {
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* a program that it talks to may have ended */
    signal(SIGXFSZ, SIG_IGN); /* as in the workers: what is too large fails by itself */
    sup->params = *params;
    weir_log_rate_init(&sup->strangers);
    weir_log_rate_init(&sup->starts);
    sup->signal_fd = sup->admin_fd = sup->tcp_fd = sup->metrics_fd = sup->libvirt.link = -1;
    sup->demand_fd = -1;
    sup->vsock_fd = sup->nvdimm_watch_fd = sup->directory.watch_fd = -1;
    sup->spin.page_fd = sup->spin.loadavg_fd = sup->gate.link = -1;
    sup->started_ns = weir_clock_now_ns();
    allow_descriptors();
    weir_sup_reserve_fill(sup);
    weir_sup_keeper_init(sup);
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        sup->clients[i].fd = -1;
    }
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        sup->askers[i].fd = -1;
    }
    for (int i = 0; i < WEIR_METRICS_CLIENTS_MAX; i++) {
        sup->metrics[i].fd = -1;
    }
    if (load(params, &sup->config) != WEIR_OK) {
        free(sup);
        return 2;
    }
    memcpy(sup->policy_base, sup->config.scheduler.policy, sizeof sup->policy_base);
    if (!open_log(sup)) {
        free(sup);
        return 2;
    }
    if (params->check_only) {
        exit_status = !params->check_host || weir_sup_check(sup) ? 0 : 1;
        free(sup);
        return exit_status;
    }
    sup->exit_status = weir_sup_check_names(sup) && open_all(sup) == WEIR_OK ? 0 : 1;
    if (sup->exit_status == 0) {
        run(sup);
    }
    weir_notify("STOPPING=1");
    weir_sup_pending_close(sup);
    if (sup->tcp_fd >= 0) {
        close(sup->tcp_fd); /* who comes now finds a closed port, and tries for the next host */
    }
    weir_sup_tenants_close(sup);
    weir_sup_demand_close(sup);
    weir_sup_libvirt_close(sup);
    if (sup->signal_fd >= 0) {
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
    if (sup->signal_fd >= 0) {
        close(sup->signal_fd);
    }
    exit_status = sup->exit_status;
    free(sup->kept);
    free(sup);
    return exit_status;
}
