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
#include "host_backend/supervisor/worker_for.h"
#include "host_backend/supervisor/worker_link.h"
#include "host_backend/supervisor/worker_log.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define POLL_MAX                                                                                   \
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

/* Is somebody listening there? A file that nobody listens on is what a killed host left. */
static bool is_served(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool served =
        probe >= 0 && (connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ||
                       errno == EAGAIN); /* its backlog is full */

    if (probe >= 0) {
        close(probe);
    }
    return served;
}

enum weir_status weir_sup_listen(const char *path, mode_t mode, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    mode_t mask;
    bool good;
    int fd, why;

    if (strlen(path) >= sizeof address.sun_path) {
        return WEIR_ERR_TOO_BIG;
    }
    strcpy(address.sun_path, path);
    if (lstat(path, &info) == 0 && (!S_ISSOCK(info.st_mode) || is_served(&address))) {
        return WEIR_ERR_EXISTS;
    }
    if (unlink(path) != 0 && (errno == EACCES || errno == EPERM)) {
        return WEIR_ERR_DENIED;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE ? WEIR_ERR_NO_DESCRIPTOR : WEIR_ERR_IO;
    }
    mask = umask(0777 & ~mode);
    good = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0;
    why = errno;
    umask(mask);
    if (!good) {
        close(fd);
        errno = why;
        return why == EACCES ? WEIR_ERR_DENIED : WEIR_ERR_IO;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

static enum weir_status open_admin(struct weir_supervisor *sup)
{
    int n = snprintf(sup->admin_path, sizeof sup->admin_path, "%s/admin.sock", sup->config.run_dir);

    if (n < 0 || (size_t)n >= sizeof sup->admin_path) {
        return WEIR_ERR_TOO_BIG;
    }
    return weir_sup_listen(sup->admin_path, 0660, &sup->admin_fd); /* owner and group */
}

/* A host that was killed left its workers' sockets, whose names have numbers that no worker of this
 * one need get. Nobody else's are removed: it must be a socket, and none that is served. */
static void sweep_endpoints(const struct weir_supervisor *sup)
{
    DIR *dir = opendir(sup->config.run_dir);
    const struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t room = sizeof address.sun_path;
        int n = snprintf(address.sun_path, room, "%s/%s", sup->config.run_dir, entry->d_name);
        struct stat info;

        if (fnmatch("zmq-*.sock", entry->d_name, 0) == 0 && n > 0 && (size_t)n < room &&
            lstat(address.sun_path, &info) == 0 && S_ISSOCK(info.st_mode) && !is_served(&address)) {
            unlink(address.sun_path);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
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

static void on_signals(struct weir_supervisor *sup)
{
    struct signalfd_siginfo info;

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

/* What a descriptor in the poll set belongs to. */
struct source {
    enum {
        SOURCE_SIGNAL,
        SOURCE_ADMIN,
        SOURCE_TENANT,
        SOURCE_CONTAINER,
        SOURCE_WORKER,
        SOURCE_WORKER_LOG,
        SOURCE_GATE,
        SOURCE_GATE_LOG,
        SOURCE_CLIENT,
        SOURCE_DEMAND,
        SOURCE_CLAIM,
        SOURCE_ASKER,
        SOURCE_SHARE,
        SOURCE_METRICS,
        SOURCE_METRICS_CLIENT,
        SOURCE_FOLLOWER,
        SOURCE_LIBVIRT,
        SOURCE_VM_SOCKET,
        SOURCE_VSOCK,
        SOURCE_NVDIMM,
        SOURCE_PENDING,
        SOURCE_DIRECTORY,
        SOURCE_VM
    } kind;
    int index;
};

struct poll_set {
    struct pollfd fds[POLL_MAX];
    struct source sources[POLL_MAX];
    nfds_t n;
};

static void watch_for(struct poll_set *set, int fd, short events, struct source source)
{
    if (fd >= 0) {
        set->fds[set->n] = (struct pollfd){fd, events, 0};
        set->sources[set->n++] = source;
    }
}

static void watch(struct poll_set *set, int fd, struct source source)
{
    watch_for(set, fd, POLLIN, source);
}

/* Guests of a worker that is not ready, or has others to read about, are not accepted: they wait in
 * the socket's backlog. Where each program gets a worker of its own, guests are accepted and wait
 * in the supervisor. */
static void watch_tenant(const struct weir_supervisor *sup, struct poll_set *set, int i)
{
    const struct weir_sup_tenant *t = &sup->tenants[i];
    bool by_program = weir_sup_by_program(t), ready = t->worker >= 0 &&
                                                      sup->workers[t->worker].ready &&
                                                      sup->workers[t->worker].outbox.n == 0;

    if (!t->used || t->gone) {
        return;
    }
    if (by_program || ready) {
        watch(set, t->listen_fd, (struct source){SOURCE_TENANT, i});
        watch(set, t->container_fd, (struct source){SOURCE_CONTAINER, i});
    }
    watch(set, t->vm_listen_fd, (struct source){SOURCE_VM_SOCKET, i});
    watch(set, t->demand_fd, (struct source){SOURCE_SHARE, i});
}

static void build_set(const struct weir_supervisor *sup, struct poll_set *set, uint64_t now_ns)
{
    set->n = 0;
    watch(set, sup->signal_fd, (struct source){SOURCE_SIGNAL, 0});
    watch(set, sup->admin_fd, (struct source){SOURCE_ADMIN, 0});
    watch(set, sup->demand_fd, (struct source){SOURCE_DEMAND, 0});
    watch(set, sup->metrics_fd, (struct source){SOURCE_METRICS, 0});
    watch(set, sup->libvirt.link, (struct source){SOURCE_LIBVIRT, 0});
    watch(set, weir_sup_log_fd(sup->gate.log, now_ns), (struct source){SOURCE_GATE_LOG, 0});
    watch_for(set, sup->gate.link, weir_outbox_events(&sup->gate.outbox),
              (struct source){SOURCE_GATE, 0});
    watch(set, sup->vsock_fd, (struct source){SOURCE_VSOCK, 0});
    watch(set, sup->nvdimm_watch_fd, (struct source){SOURCE_NVDIMM, 0});
    watch(set, sup->directory.watch_fd, (struct source){SOURCE_DIRECTORY, 0});
    for (int i = 0; i < WEIR_METRICS_CLIENTS_MAX; i++) {
        watch_for(set, sup->metrics[i].fd, weir_sup_metrics_events(&sup->metrics[i]),
                  (struct source){SOURCE_METRICS_CLIENT, i});
    }
    for (uint32_t i = 0; i < WEIR_FOLLOWERS_MAX; i++) {
        short events;
        int fd = weir_sup_follower_fd(sup, i, &events);

        watch_for(set, fd, events, (struct source){SOURCE_FOLLOWER, (int)i});
    }
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        watch_tenant(sup, set, i);
    }
    for (int i = 0; i < WEIR_PENDING_MAX; i++) {
        const struct weir_sup_pending *p = &sup->pending[i];

        if (p->used) { /* of one that has said hello, only the end is of interest */
            watch_for(set, p->fd, p->said_hello ? 0 : POLLIN, (struct source){SOURCE_PENDING, i});
        }
    }
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->vms[i].id != 0) {
            watch(set, sup->vms[i].fd, (struct source){SOURCE_VM, i});
        }
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (sup->workers[i].used) { /* it may say why it sends what it sends */
            watch(set, weir_sup_log_fd(sup->workers[i].log, now_ns),
                  (struct source){SOURCE_WORKER_LOG, i});
            watch_for(set, sup->workers[i].link, weir_outbox_events(&sup->workers[i].outbox),
                      (struct source){SOURCE_WORKER, i});
        }
    }
    for (int i = 0; i < WEIR_ADMIN_CLIENTS_MAX; i++) {
        short events = weir_sup_admin_events(&sup->clients[i]);

        if (events != 0) { /* else its end would wake us again and again */
            watch_for(set, sup->clients[i].fd, events, (struct source){SOURCE_CLIENT, i});
        }
    }
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        watch(set, sup->askers[i].fd, (struct source){SOURCE_ASKER, i});
    }
    for (unsigned i = 0; i < sup->claims.n; i++) {
        watch(set, sup->claims.of[i].fd, (struct source){SOURCE_CLAIM, (int)i});
    }
}

/* A step may have closed what a later source names: each is looked at again before use. */
static void serve(struct weir_supervisor *sup, struct source source)
{
    switch (source.kind) {
    case SOURCE_SIGNAL:
        on_signals(sup);
        break;
    case SOURCE_ADMIN:
        weir_sup_admin_accept(sup);
        break;
    case SOURCE_TENANT:
        if (sup->tenants[source.index].listen_fd >= 0) {
            weir_sup_tenant_accept(sup, &sup->tenants[source.index],
                                   sup->tenants[source.index].listen_fd);
        }
        break;
    case SOURCE_CONTAINER:
        if (sup->tenants[source.index].container_fd >= 0) {
            weir_sup_tenant_accept(sup, &sup->tenants[source.index],
                                   sup->tenants[source.index].container_fd);
        }
        break;
    case SOURCE_VSOCK:
        if (sup->vsock_fd >= 0) {
            weir_sup_vsock_accept(sup);
        }
        break;
    case SOURCE_NVDIMM:
        weir_sup_nvdimm_read(sup);
        break;
    case SOURCE_DIRECTORY:
        weir_sup_directory_look(sup);
        break;
    case SOURCE_VM_SOCKET:
        if (sup->tenants[source.index].vm_listen_fd >= 0) {
            weir_sup_vm_accept(sup, &sup->tenants[source.index]);
        }
        break;
    case SOURCE_PENDING:
        if (sup->pending[source.index].used) {
            weir_sup_pending_look(sup, &sup->pending[source.index]);
        }
        break;
    case SOURCE_VM:
        if (sup->vms[source.index].id != 0) {
            weir_sup_vm_read(sup, &sup->vms[source.index]);
        }
        break;
    case SOURCE_WORKER:
        weir_sup_worker_flush(sup, source.index, weir_clock_now_ns());
        if (sup->workers[source.index].link >= 0) {
            weir_sup_worker_receive(sup, source.index);
        }
        break;
    case SOURCE_WORKER_LOG:
        weir_sup_log_read(sup, &sup->workers[source.index]);
        break;
    case SOURCE_GATE_LOG:
        weir_sup_log_read(sup, NULL);
        break;
    case SOURCE_GATE:
        weir_sup_gate_flush(sup, weir_clock_now_ns());
        if (sup->gate.link >= 0) {
            weir_sup_gate_receive(sup);
        }
        break;
    case SOURCE_CLIENT:
        if (sup->clients[source.index].fd >= 0) {
            weir_sup_admin_serve(sup, &sup->clients[source.index]);
        }
        break;
    case SOURCE_DEMAND:
        weir_sup_demand_accept(sup);
        break;
    case SOURCE_CLAIM:
        weir_sup_claim_answer(sup, (unsigned)source.index);
        break;
    case SOURCE_ASKER:
        if (sup->askers[source.index].fd >= 0) {
            weir_sup_demand_read(sup, &sup->askers[source.index]);
        }
        break;
    case SOURCE_SHARE:
        weir_sup_share_look(sup, &sup->tenants[source.index]);
        break;
    case SOURCE_METRICS:
        weir_sup_metrics_accept(sup);
        break;
    case SOURCE_FOLLOWER:
        weir_sup_follower_look(sup, (uint32_t)source.index);
        break;
    case SOURCE_LIBVIRT:
        if (sup->libvirt.link >= 0) {
            weir_sup_libvirt_receive(sup);
        }
        break;
    case SOURCE_METRICS_CLIENT:
        if (sup->metrics[source.index].fd >= 0) {
            weir_sup_metrics_serve(sup, &sup->metrics[source.index]);
        }
        break;
    }
}

static int sooner(int a, int b)
{
    if (a < 0 || b < 0) {
        return a < 0 ? b : a;
    }
    return a < b ? a : b;
}

/* Everybody waits for the supervisor meanwhile. */
static void remark_slow_turn(uint64_t begin_ns, nfds_t n_watched)
{
    uint64_t took_ns = weir_clock_now_ns() - begin_ns;

    if (took_ns >= SLOW_TURN_NS) {
        weir_log_debug("supervisor: a slow turn us=%llu watched=%u",
                       (unsigned long long)(took_ns / WEIR_NS_PER_US), (unsigned)n_watched);
    }
}

static void loop(struct weir_supervisor *sup)
{
    struct poll_set set;

    while (!sup->stopping) {
        uint64_t now_ns = weir_clock_now_ns(), woken_ns;
        int wait_ms =
            sooner(weir_sup_workers_wait_ms(sup, now_ns), weir_sup_admin_wait_ms(sup, now_ns));

        wait_ms = sooner(wait_ms, weir_sup_metrics_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_libvirt_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_nvdimm_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_spin_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_programs_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_mps_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_gate_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_quarantine_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_demand_wait_ms(sup, now_ns));
        wait_ms = sooner(wait_ms, weir_sup_logs_wait_ms(sup, now_ns));

        build_set(sup, &set, now_ns);
        if (poll(set.fds, set.n, wait_ms) < 0 && errno != EINTR) {
            weir_log_error("supervisor: poll failed why=\"%s\"", strerror(errno));
            sup->exit_status = 1;
            return;
        }
        woken_ns = weir_clock_now_ns();
        for (nfds_t i = 0; i < set.n; i++) {
            if (set.fds[i].revents != 0) {
                serve(sup, set.sources[i]);
            }
        }
        now_ns = weir_clock_now_ns();
        weir_sup_workers_tick(sup, now_ns);
        weir_sup_gate_tick(sup, now_ns);
        weir_mps_tick(sup, now_ns);
        weir_sup_programs_tick(sup, now_ns);
        weir_sup_admin_tick(sup, now_ns);
        weir_sup_demand_tick(sup, now_ns);
        weir_sup_metrics_tick(sup, now_ns);
        weir_sup_libvirt_tick(sup, now_ns);
        weir_sup_nvdimm_tick(sup, now_ns);
        weir_sup_spin_tick(sup, now_ns);
        weir_sup_faults_tick(sup, now_ns);
        weir_sup_reserve_fill(sup);
        remark_slow_turn(woken_ns, set.n);
    }
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
        sweep_endpoints(sup);
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
        loop(sup);
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
