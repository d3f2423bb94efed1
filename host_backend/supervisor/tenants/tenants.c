/*
 * Tenants: each has a listening socket. The socket at which a guest connects identifies the tenant.
 *
 * A slot, and with it the address window, belongs to a tenant until its worker has reported that
 * nothing of the tenant is left. So a window never passes to another tenant while a worker still
 * has the first one's memory there. If a tenant with the same name is added before that, it gets
 * its slot back.
 */
#include "host_backend/supervisor/tenants/tenants.h"
#include "base/file_text.h"
#include "host_backend/supervisor/machines/channels.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/watch/events.h"
#include "host_backend/supervisor/workers/programs.h"
#include "host_backend/supervisor/workers/worker_for.h"
#include "host_backend/supervisor/workers/workers.h"

#include "base/log.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct weir_sup_tenant *find_free(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (!sup->tenants[i].used) {
            sup->tenants[i] = (struct weir_sup_tenant){.index = (uint32_t)i,
                                                       .generation = sup->tenants[i].generation,
                                                       .listen_fd = -1,
                                                       .container_fd = -1,
                                                       .vm_listen_fd = -1,
                                                       .nvdimm = {.fd = -1, .watch = -1},
                                                       .demand_fd = -1,
                                                       .worker = -1};
            weir_log_rate_init(&sup->tenants[i].log_rate);
            return &sup->tenants[i];
        }
    }
    return NULL;
}

static void close_tenant(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    weir_sup_vm_close(sup, tenant);
    if (tenant->listen_fd >= 0) {
        close(tenant->listen_fd);
        unlink(tenant->path);
        weir_book_listens(sup, tenant->path, -1);
        tenant->listen_fd = -1;
    }
    weir_sup_share_gone(sup, tenant);
}

/* Listen at the tenant's path, or take over the last supervisor's socket, with the programs that
 * wait there. */
static enum weir_status listen_at(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                                  mode_t mode)
{
    int fd = weir_book_listener(sup, tenant->path);

    if (fd >= 0) {
        bool owned = weir_sup_tenant_has_user(tenant);

        tenant->listen_fd = fd;
        (void)chmod(tenant->path, owned ? 0600 : mode); /* the mode may have changed */
        return owned ? weir_sup_give_to_user(tenant, tenant->path) : WEIR_OK;
    }
    WEIR_TRY(weir_sup_listen_for(tenant, tenant->path, mode, &tenant->listen_fd));
    weir_book_listens(sup, tenant->path, tenant->listen_fd);
    return WEIR_OK;
}

static enum weir_status open_tenant(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    int n = snprintf(tenant->path, sizeof tenant->path, "%s/%s.sock", sup->config.run_dir,
                     tenant->config.name);
    enum weir_status status;

    if (tenant->source == WEIR_ORIGIN_DEMAND) {
        return weir_sup_share_listen(sup, tenant);
    }
    if (tenant->source == WEIR_ORIGIN_USER) {
        return WEIR_OK; /* its programs connect to another tenant's socket */
    }
    if (n < 0 || (size_t)n >= sizeof tenant->path) {
        status = WEIR_ERR_TOO_BIG;
    } else {
        status = listen_at(sup, tenant, weir_sup_tenant_mode(sup, tenant));
    }
    if (status != WEIR_OK) {
        tenant->listen_fd = -1;
        weir_log_error("supervisor: cannot listen tenant=%s path=%s/%s.sock why=\"%s\"",
                       tenant->config.name, sup->config.run_dir, tenant->config.name,
                       weir_status_text(status));
    } else {
        weir_sup_vm_listen(sup, tenant);
    }
    return status;
}

static enum weir_status listen_again(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    return tenant->source == WEIR_ORIGIN_DEMAND
               ? weir_sup_share_listen(sup, tenant)
               : listen_at(sup, tenant, (mode_t)sup->config.socket_mode);
}

void weir_sup_sockets_renew(struct weir_supervisor *sup)
{
    if (mkdir(sup->config.run_dir, 0711) == 0) {
        weir_log_warn("supervisor: the run directory was removed, and is made again path=%s",
                      sup->config.run_dir);
    }
    weir_sup_demand_renew(sup);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && !tenant->gone) {
            if (weir_sup_socket_lost(tenant->path, &tenant->listen_fd) &&
                listen_again(sup, tenant) != WEIR_OK) {
                tenant->listen_fd = -1;
            }
            weir_sup_vm_renew(sup, tenant);
        }
    }
    weir_sup_containers_follow(sup);
}

/* Write the number of tenants to the workers' pages. */
static void show_count(struct weir_supervisor *sup)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += sup->tenants[i].used && !sup->tenants[i].gone;
    }
    weir_sup_spin_show(sup, n);
}

void weir_sup_tenant_move(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, int worker)
{
    tenant->worker = worker;
    weir_sup_tenant_tell(sup, tenant, WEIR_LINK_TENANT);
    weir_sup_vms_follow(sup, tenant);
}

const char *weir_origin_text(const struct weir_supervisor *sup, enum weir_origin origin)
{
    static const char *const texts[] = {"weir.toml", "weir tenant",
                                        "libvirt",   WEIR_CONTROL_ON_DEMAND,
                                        "kept",      WEIR_CONTROL_OF_USER};

    return origin == WEIR_ORIGIN_FILE && !sup->params.config_path ? "built in" : texts[origin];
}

/* Merge a source's new settings with changes that others have made since. */
static void merge(const struct weir_sup_tenant *tenant, struct weir_tenant_config *merged)
{
    *merged = tenant->base;
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if (tenant->origins[i] != (uint8_t)tenant->source) {
            weir_setting_copy(i, &tenant->config, merged);
        }
    }
}

void weir_sup_tenant_commit(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                            const struct weir_tenant_config *config)
{
    tenant->config = *config;
    weir_sup_tenant_tell(sup, tenant, WEIR_LINK_TENANT);
    weir_sup_vsock_follow(sup);
}

enum weir_status weir_sup_setting_try(const struct weir_supervisor *sup,
                                      const struct weir_sup_tenant *tenant, size_t setting,
                                      const char *text, struct weir_tenant_config *config,
                                      struct weir_diag *ret_diag)
{
    enum weir_status status = WEIR_OK;

    if (!weir_setting_is_live(setting)) {
        weir_diag_set(ret_diag, 0, 0, "'%s' changes with a restart of the host",
                      weir_setting_key(setting));
        return WEIR_ERR_INVALID;
    }
    if (*text == 0) {
        weir_setting_copy(setting, &tenant->base, config);
    } else {
        status = weir_setting_store(setting, text, config, ret_diag);
        if (status == WEIR_OK &&
            !weir_setting_fits(setting, config, weir_sup_device_bytes(sup, config), ret_diag)) {
            status = WEIR_ERR_INVALID;
        }
    }
    for (int i = 0; status == WEIR_OK && i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *other = &sup->tenants[i];

        const char *same = weir_tenants_clash(&other->config, config);

        if (other != tenant && other->used && !other->gone && same) {
            weir_diag_set(ret_diag, 0, 0, "tenant '%s' has the same %s", other->config.name, same);
            status = WEIR_ERR_INVALID;
        }
    }
    return status;
}

/* A slot for a name: the tenant's own, or a free one. */
static struct weir_sup_tenant *slot_for(struct weir_supervisor *sup, const char *name)
{
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, name);

    if (!tenant) {
        tenant = find_free(sup);
        if (!tenant) {
            weir_log_error("supervisor: a host has room for %d tenants, so not for tenant=%s",
                           WEIR_CONFIG_TENANTS_MAX, name);
            return NULL;
        }
        tenant->used = true;
        tenant->gone = true;
    }
    return tenant;
}

/* Add an event: a source has created or changed a tenant. */
static void tell_event(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                       const struct weir_tenant_config *before)
{
    struct weir_sup_event event = {.kind = WEIR_EVENT_TENANT_ADDED, .tenant = tenant};

    if (tenant->gone) {
        bool asked = weir_sup_is_of_user(tenant);

        weir_sup_event(sup, &event, "%s%s", asked ? "" : "by ",
                       weir_origin_text(sup, tenant->source));
        return;
    }
    event.kind = WEIR_EVENT_TENANT_CHANGED;
    for (size_t i = 0; i < weir_setting_count(); i++) {
        char value[WEIR_SETTING_TEXT_BYTES];

        if (!weir_setting_equal(i, before, &tenant->config)) {
            weir_setting_text(i, &tenant->config, value);
            weir_sup_event(sup, &event, "%s=%s by %s", weir_setting_key(i), value,
                           weir_origin_text(sup, tenant->source));
        }
    }
}

/* Apply a source's settings to a tenant, new or known. */
static enum weir_status apply_one(struct weir_supervisor *sup, enum weir_origin source,
                                  const struct weir_tenant_config *config)
{
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, config->name);
    struct weir_tenant_config base = *config, merged;
    /* A tenant that was taken over takes all new settings, unless it has its own worker. */
    bool starts = !sup->life.listening && tenant && tenant->worker < 0;

    if (!tenant) {
        tenant = slot_for(sup, config->name);
        WEIR_FAIL_IF(!tenant, WEIR_ERR_TOO_BIG);
    } else if (!starts && weir_sup_worker_keep(tenant, &base) && !tenant->gone &&
               strcmp(tenant->config.user, config->user) != 0) {
        weir_log_warn("supervisor: the user changes with a restart tenant=%s", config->name);
    }
    for (size_t i = 0; i < WEIR_SETTINGS_MAX; i++) {
        if (tenant->gone || tenant->origins[i] == (uint8_t)tenant->source) {
            tenant->origins[i] = (uint8_t)source;
        }
    }
    tenant->source = source;
    tenant->base = base;
    if (!tenant->gone && !starts) {
        memcpy(tenant->base.user, tenant->config.user, sizeof tenant->base.user);
    } else if (tenant->gone) {
        tenant->faults = (struct weir_sup_faults){0}; /* earlier faults ended with its removal */
        memset(&tenant->refused, 0, sizeof tenant->refused);
    }
    if (tenant->gone && weir_sup_is_of_user(tenant) &&
        (source == WEIR_ORIGIN_USER || weir_sup_owner(config, &tenant->demand_uid) ==
                                           WEIR_OK)) { /* a failure is reported later */
        tenant->demand_user = sup->demand.asking_user;
        weir_sup_quarantine_inherit(sup, tenant); /* decides which worker the tenant gets first */
    }
    merge(tenant, &merged);
    bool changed = !weir_settings_equal(&tenant->config, &merged);
    struct weir_tenant_config before = tenant->config;

    tenant->config = merged;
    if ((!weir_sup_by_program(tenant) || weir_sup_uses_shared_worker(sup, tenant)) &&
        weir_sup_machine_worker(sup, tenant) < 0) {
        return WEIR_ERR_IO;
    }
    if (tenant->gone || changed) {
        tell_event(sup, tenant, &before);
        tenant->gone = false;
        show_count(sup);
        weir_sup_tenant_tell(sup, tenant, WEIR_LINK_TENANT);
    }
    return tenant->listen_fd >= 0 ? WEIR_OK : open_tenant(sup, tenant);
}

/* Update the state that all tenants share. */
static void follow(struct weir_supervisor *sup)
{
    weir_sup_containers_follow(sup);
    weir_sup_vsock_follow(sup);
}

void weir_sup_tenants_follow(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) { /* taken over, and not in weir.toml */
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && !tenant->gone && tenant->listen_fd < 0) {
            (void)!open_tenant(sup, tenant); /* the log has failures */
        } else if (tenant->used && tenant->gone) {
            weir_sup_tenant_worker_gone(sup, tenant->index); /* perhaps nobody has anything of it */
        }
    }
    show_count(sup);
    follow(sup);
}

/* Free the slot of a tenant of which no worker has anything. If its own worker does not run, free
 * that slot, too. */
static void release(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_worker *own = tenant->worker >= 0 ? &sup->workers[tenant->worker] : NULL;

    if (own && own->tenant == (int)tenant->index && own->pid == 0) {
        own->used = false;
    }
    if (tenant->account) {
        munmap(tenant->account, sizeof *tenant->account);
        close(tenant->account_fd);
        tenant->account = NULL;
    }
    tenant->used = false;
    weir_book_drop(sup, WEIR_BOOK_TENANT, tenant->index);
}

/* Does a process still have state of the tenant? */
static bool has_workers(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    bool has = tenant->worker >= 0 && sup->workers[tenant->worker].pid != 0;

    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        has |= weir_sup_is_of_program(&sup->workers[i], tenant);
    }
    return has;
}

static void release_if_free(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    if (!has_workers(sup, tenant)) {
        release(sup, tenant);
    }
}

/* Apply settings as apply_one() does, but free the slot again if the tenant could not be made. */
static enum weir_status apply(struct weir_supervisor *sup, enum weir_origin source,
                              const struct weir_tenant_config *config)
{
    enum weir_status status = apply_one(sup, source, config);
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, config->name);

    if (status != WEIR_OK && tenant && tenant->gone) {
        release_if_free(sup, tenant);
    }
    return status;
}

enum weir_status weir_sup_tenant_set_base(struct weir_supervisor *sup, enum weir_origin source,
                                          const struct weir_tenant_config *config)
{
    return apply(sup, source, config);
}

void weir_sup_tenant_worker_gone(struct weir_supervisor *sup, uint32_t index)
{
    struct weir_sup_tenant *tenant = &sup->tenants[index];

    if (tenant->account && !has_workers(sup, tenant)) {
        weir_account_page_clear(tenant->account);
    }
    if (tenant->used && tenant->gone) {
        release_if_free(sup, tenant);
    }
}

void weir_sup_tenant_remove(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    close_tenant(sup, tenant);
    weir_sup_drain_forget(sup, tenant);
    tenant->gone = true;
    tenant->generation++;
    show_count(sup);
    weir_sup_tenant_tell(sup, tenant, WEIR_LINK_TENANT_GONE);
    weir_log_info("supervisor: tenant removed tenant=%s", tenant->config.name);
    weir_sup_event(sup,
                   &(struct weir_sup_event){.kind = WEIR_EVENT_TENANT_REMOVED, .tenant = tenant},
                   "%s", "");
    follow(sup);
    weir_sup_programs_drop(sup, tenant);
    weir_sup_directory_tenant_gone(sup, tenant);
    if (tenant->source == WEIR_ORIGIN_DEMAND) {
        weir_sup_shares_weigh(sup);
    }
    release_if_free(sup, tenant);
}

void weir_sup_tenant_freed(struct weir_supervisor *sup, uint32_t index, uint32_t generation)
{
    struct weir_sup_tenant *tenant = index < WEIR_CONFIG_TENANTS_MAX ? &sup->tenants[index] : NULL;
    struct weir_link_message stop = {.type = WEIR_LINK_STOP};

    if (!tenant || !tenant->used || !tenant->gone || tenant->generation != generation) {
        return; /* the tenant was added again */
    }
    if (tenant->worker < 0) {
        return; /* its programs' workers stop as whole processes */
    }
    if (weir_sup_has_own_worker(sup, tenant)) {
        (void)weir_sup_worker_send(sup, tenant->worker, &stop, -1); /* weir_sup_tenants_died() */
    } else {
        tenant->worker = -1;
        release_if_free(sup, tenant); /* its programs' workers may still be ending */
    }
}

void weir_sup_tenants_died(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && tenant->gone && tenant->worker == worker) {
            if (sup->workers[worker].tenant == i) {
                sup->workers[worker].used = false; /* no other tenant uses it */
            }
            tenant->worker = -1;
            release_if_free(sup, tenant);
        }
    }
}

enum weir_status weir_sup_tenant_add(struct weir_supervisor *sup,
                                     const struct weir_tenant_config *config,
                                     enum weir_origin source, struct weir_diag *ret_diag)
{
    const struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, config->name);

    if (tenant && !tenant->gone) {
        weir_diag_set(ret_diag, 0, 0, "there is a tenant '%s' already", config->name);
        return WEIR_ERR_EXISTS;
    }
    if (!weir_tenant_group_ok(config)) {
        weir_diag_set(ret_diag, 0, 0, "%s", weir_group_rule);
        return WEIR_ERR_INVALID;
    }
    if (!weir_tenant_devices_ok(config, &sup->config)) {
        weir_diag_set(ret_diag, 0, 0, "'devices' names some that the host has not");
        return WEIR_ERR_INVALID;
    }
    for (size_t i = 0; source != WEIR_ORIGIN_DEMAND && i < weir_setting_count(); i++) {
        WEIR_FAIL_IF(!weir_setting_fits(i, config, weir_sup_device_bytes(sup, config), ret_diag),
                     WEIR_ERR_INVALID);
    }
    enum weir_status status = apply(sup, source, config);
    if (status != WEIR_OK) {
        struct weir_sup_tenant *half = weir_sup_tenant_find(sup, config->name);

        if (half && !half->gone) {
            weir_sup_tenant_remove(sup, half);
        }
        if (status == WEIR_ERR_TOO_BIG && !half) {
            weir_diag_set(ret_diag, 0, 0,
                          "tenant '%s' cannot be made: a host has room for %d tenants",
                          config->name, WEIR_CONFIG_TENANTS_MAX);
        } else {
            weir_diag_set(ret_diag, 0, 0, "tenant '%s' cannot be made: %s", config->name,
                          weir_status_text(status));
        }
        return status;
    }
    weir_log_info("supervisor: tenant added tenant=%s by=\"%s\" labels=\"%s\"", config->name,
                  weir_origin_text(sup, source), config->labels);
    follow(sup);
    return WEIR_OK;
}

enum weir_status weir_sup_tenants_apply(struct weir_supervisor *sup,
                                        const struct weir_host_config *config)
{
    enum weir_status status = WEIR_OK;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];
        bool kept = WEIR_ANY(k, config->n_tenants,
                             strcmp(config->tenants[k].name, tenant->config.name) == 0);

        if (tenant->used && !tenant->gone && !kept && tenant->source == WEIR_ORIGIN_FILE) {
            if (tenant->listen_fd < 0) { /* taken over: open it, to close all of it */
                (void)!open_tenant(sup, tenant);
            }
            weir_sup_tenant_remove(sup, tenant);
        }
    }
    for (uint32_t k = 0; k < config->n_tenants; k++) {
        struct weir_sup_tenant *there = weir_sup_tenant_find(sup, config->tenants[k].name);

        if (there && !there->gone && weir_sup_is_of_user(there)) {
            weir_sup_tenant_remove(sup, there); /* the file may use the name */
        }
        enum weir_status one = apply(sup, WEIR_ORIGIN_FILE, &config->tenants[k]);

        status = status == WEIR_OK ? one : status;
    }
    weir_sup_user_tenants_follow(sup);
    /* At the start kept tenants come first: follow() removes folders of unknown tenants. */
    if (sup->life.listening) {
        follow(sup);
    }
    return status;
}

void weir_sup_tenants_tell(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (!tenant->used || tenant->worker != worker) {
            continue;
        }
        if (tenant->gone) { /* no worker knows it */
            weir_sup_tenant_freed(sup, tenant->index, tenant->generation);
        } else {
            weir_sup_tenant_join(sup, tenant, worker);
        }
    }
    weir_sup_vms_tell(sup, worker);
}

/* Find the program's name, for people; a process can choose its name, and may have none. */
static void program_of(pid_t pid, char *name, size_t bytes)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    (void)weir_file_text(path, name, bytes);
    name[strcspn(name, "\n")] = 0;
}

static void accept_program(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                           int listen_fd)
{
    int fd = weir_sup_accept_guest(sup, listen_fd, NULL, NULL);
    struct weir_link_message message = {.type = WEIR_LINK_GUEST};
    struct weir_peer peer = {0};

    if (fd < 0) {
        return;
    }
    if (weir_peer_of(fd, &peer) == WEIR_OK && peer.pid > 0) {
        program_of(peer.pid, message.guest.program, sizeof message.guest.program);
    }
    if (listen_fd == tenant->listen_fd) { /* a container's socket has users of its own */
        tenant = weir_sup_tenant_of_peer(sup, tenant, &peer, fd);
    }
    if (!tenant) {
        close(fd);
        return;
    }
    message.guest.tenant_index = tenant->index;
    message.guest.generation = tenant->generation;
    message.guest.pid = peer.pid;
    message.guest.uid = peer.uid;
    message.guest.session = ++sup->programs.n_guests;
    if (weir_sup_by_program(tenant)) {
        weir_sup_program_arrived(sup, tenant, fd, &message.guest);
        return;
    }
    /* The worker of a user's new tenant may still be starting. */
    if (!weir_sup_takes_guests(sup, tenant) ||
        !weir_sup_worker_send(sup, tenant->worker, &message, fd)) {
        weir_refuse(fd, WEIR_ERR_AGAIN, CUDA_ERROR_UNKNOWN,
                    tenant->faults.quarantine_end_ns != 0
                        ? "the tenant is in quarantine, and its own worker is not ready"
                        : "the worker is not ready");
    }
    close(fd);
}

static void on_guest(void *user, int index)
{
    struct weir_supervisor *sup = user;

    if (sup->tenants[index].listen_fd >= 0) {
        accept_program(sup, &sup->tenants[index], sup->tenants[index].listen_fd);
    }
}

static void on_container(void *user, int index)
{
    struct weir_supervisor *sup = user;

    if (sup->tenants[index].container_fd >= 0) {
        accept_program(sup, &sup->tenants[index], sup->tenants[index].container_fd);
    }
}

void weir_sup_tenants_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && !t->gone && (weir_sup_by_program(t) || weir_sup_takes_guests(sup, t))) {
            weir_host_loop_watch(loop, t->listen_fd, POLLIN, on_guest, sup, i);
            weir_host_loop_watch(loop, t->container_fd, POLLIN, on_container, sup, i);
        }
    }
}

void weir_sup_tenants_close(struct weir_supervisor *sup)
{
    weir_sup_containers_close(sup);
    weir_sup_vsock_close(sup);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used) {
            close_tenant(sup, &sup->tenants[i]);
        }
    }
    weir_sup_vms_finish(sup);
}
