/*
 * Shares on demand: tenants that a user asks for at new.sock and that end with a process.
 *
 *   <run_dir>/new.sock              [default] socket_mode: who may ask
 *   <run_dir>/shares/               0711
 *   <run_dir>/shares/none/          empty: what containers have at /run/weir until they are given a
 * share <run_dir>/shares/1000/          0700 and an access list: passed by this user and by root
 *   <run_dir>/shares/1000/run-7/    0755, the share's folder; mounted into its container
 *   .. /run-7/default.sock          0666: in a container it may be any user who connects
 *
 * A request is one packet, its answer another: "run" or "container", then "KEY=VALUE" words with
 * tabs between them; "ok", name and folder, or "error" and why. Descriptors that come with a
 * request are never taken: closing one of somebody's file system can take for ever.
 *
 * A share lives as long as its process, on which the supervisor has a pidfd. There is nothing that
 * a killed program, engine or host could forget to do, and nothing of a share outlives its host.
 *
 * Nobody but the host's user can write in these folders, so names in them lead where they say.
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "container/edits.h"
#include "proto/wire/accept.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define REQUEST_BYTES   4096
#define WORDS_MAX       24
#define REQUEST_WAIT_NS (2 * WEIR_NS_PER_S)
#define ID_SHOWN        12 /* of a container's id, as engines show it */

/* ---------------------------------------------------------------- folders */

/* One that is there keeps its mode: chmod() would also change what its access list allows. */
static bool make_folder(const char *path, mode_t mode)
{
    return mkdir(path, mode) == 0 ? chmod(path, mode) == 0 : errno == EEXIST;
}

/* An access list as the kernel takes it (linux/posix_acl_xattr.h), in the machine's byte order,
 * which is little-endian as the list's: the owner all, a user to pass, nobody else anything. */
static bool let_pass(const char *path, uint32_t uid)
{
    const struct {
        uint32_t version;
        struct {
            uint16_t tag, rights;
            uint32_t id;
        } row[5];
    } list = {2,
              {{0x01, 7, UINT32_MAX},
               {0x02, 1, uid},
               {0x04, 0, UINT32_MAX},
               {0x10, 1, UINT32_MAX},
               {0x20, 0, UINT32_MAX}}};

    return setxattr(path, "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

static bool path_of_user(const struct weir_supervisor *sup, uint32_t uid, char *path, size_t bytes)
{
    int n = snprintf(path, bytes, "%s/" WEIR_CONTAINER_SHARES "/%u", sup->config.run_dir, uid);

    return n > 0 && (size_t)n < bytes;
}

static bool path_of_share(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                          char *path, size_t bytes)
{
    int n = snprintf(path, bytes, "%s/" WEIR_CONTAINER_SHARES "/%u/%s", sup->config.run_dir,
                     tenant->demand_uid, tenant->config.name);

    return n > 0 && (size_t)n < bytes;
}

/* Removes what stands in a folder of the shares, but "none". */
static void sweep(const char *folder, bool inner)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);

        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "none") == 0 || n < 0 ||
            (size_t)n >= sizeof path) {
            continue;
        }
        if (inner) {
            unlink(path); /* a socket */
        } else {
            sweep(path, strspn(entry->d_name, "0123456789") != strlen(entry->d_name));
        }
        rmdir(path);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

enum weir_status weir_sup_share_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char user[PATH_MAX], folder[PATH_MAX];
    int n;

    if (weir_user_id(tenant->config.user, &tenant->demand_uid) != WEIR_OK) {
        return WEIR_ERR_INVALID;
    }
    if (!path_of_user(sup, tenant->demand_uid, user, sizeof user) ||
        !path_of_share(sup, tenant, folder, sizeof folder)) {
        return WEIR_ERR_TOO_BIG;
    }
    n = snprintf(tenant->path, sizeof tenant->path, "%s/" WEIR_CONTAINER_SOCKET, folder);
    if (n < 0 || (size_t)n >= sizeof tenant->path) {
        return WEIR_ERR_TOO_BIG;
    }
    if (!make_folder(user, 0700)) {
        return WEIR_ERR_IO;
    }
    if (tenant->demand_uid != geteuid() && !let_pass(user, tenant->demand_uid)) {
        return WEIR_ERR_DENIED; /* a file system without access lists */
    }
    if (!make_folder(folder, 0755)) {
        return WEIR_ERR_IO;
    }
    return weir_listen_unix(tenant->path, 0666, &tenant->listen_fd);
}

/* ---------------------------------------------------------------- weights */

static bool is_share(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->source == WEIR_ORIGIN_DEMAND;
}

/* Does its weight follow from what its user's other shares weigh? Not if weir tenant has set it. */
static bool is_divided(const struct weir_sup_tenant *tenant, uint32_t uid)
{
    size_t weight = (size_t)weir_setting_find("weight");

    return is_share(tenant) && tenant->demand_uid == uid &&
           tenant->origins[weight] == WEIR_ORIGIN_DEMAND;
}

void weir_sup_shares_weigh(struct weir_supervisor *sup, uint32_t uid)
{
    struct weir_sup_tenant *shares[WEIR_CONFIG_TENANTS_MAX];
    uint32_t asked[WEIR_CONFIG_TENANTS_MAX], weights[WEIR_CONFIG_TENANTS_MAX], n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_divided(&sup->tenants[i], uid)) {
            asked[n] = sup->tenants[i].base.weight;
            shares[n++] = &sup->tenants[i];
        }
    }
    if (n == 0 || !weir_demand_divide(asked, n, weights)) {
        return; /* the second was refused before */
    }
    for (uint32_t i = 0; i < n; i++) {
        struct weir_tenant_config config = shares[i]->config;

        if (config.weight != weights[i]) {
            config.weight = weights[i];
            weir_sup_tenant_commit(sup, shares[i], &config);
        }
    }
}

/* Could its user's shares still be divided with one more of this weight? Says why not. */
static bool weighs_enough(const struct weir_supervisor *sup, uint32_t uid, uint32_t weight,
                          struct weir_diag *diag)
{
    uint32_t most = weight, n = 1;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_divided(&sup->tenants[i], uid)) {
            n++;
            most = sup->tenants[i].base.weight > most ? sup->tenants[i].base.weight : most;
        }
    }
    if (most < n) {
        weir_diag_set(diag, 0, 0,
                      "a weight of %u is too little for %u shares: those of a user weigh together "
                      "what the heaviest asked for",
                      most, n);
    }
    return most >= n;
}

/* ---------------------------------------------------------------- what is asked */

/* Of a request, beside the settings. */
struct wish {
    uint32_t uid;
    pid_t asker;
    pid_t pid;             /* the share ends with it */
    const char *self;      /* what the asker takes its own pid for */
    const char *container; /* its id; NULL: a program */
    const char *user;      /* whose share it is to be, by root's wish */
    char *settings[WORDS_MAX];
    size_t n_settings;
};

static bool begins_with(char *word, const char *key, const char **ret_value)
{
    size_t n = strlen(key);

    if (strncmp(word, key, n) != 0) {
        return false;
    }
    *ret_value = word + n;
    return true;
}

static bool read_pid(const char *text, pid_t *ret_pid)
{
    char *end;
    long long number = text != NULL ? strtoll(text, &end, 10) : 0;

    *ret_pid = (pid_t)number;
    return number > 0 && number <= INT32_MAX && *text >= '1' && *text <= '9' && *end == 0;
}

static bool id_ok(const char *id)
{
    return strlen(id) >= 1 && strlen(id) < 256 &&
           strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") ==
               strlen(id) &&
           id[0] != '-' && id[0] != '.' && id[0] != '_';
}

/* The words of a request; what the kernel says of the asker is in the wish already. */
static bool read_wish(char *text, struct wish *wish, struct weir_diag *diag)
{
    const char *pid = NULL;
    char *rest = NULL, *word = strtok_r(text, "\t", &rest);
    bool container = word != NULL && strcmp(word, "container") == 0;

    if (!container && (word == NULL || strcmp(word, "run") != 0)) {
        weir_diag_set(diag, 0, 0, "no such request: are host and program of one version?");
        return false;
    }
    while ((word = strtok_r(NULL, "\t", &rest)) != NULL) {
        if (begins_with(word, "pid=", &pid) || begins_with(word, "self=", &wish->self) ||
            begins_with(word, "id=", &wish->container) || begins_with(word, "user=", &wish->user)) {
            continue;
        }
        if (wish->n_settings == WORDS_MAX) {
            weir_diag_set(diag, 0, 0, "too many settings");
            return false;
        }
        wish->settings[wish->n_settings++] = word;
    }
    if (container &&
        (!read_pid(pid, &wish->pid) || wish->container == NULL || !id_ok(wish->container))) {
        weir_diag_set(diag, 0, 0, "a container has a pid and an id");
        return false;
    }
    return true;
}

/* Pids in a request are the host's, or there is no telling when the process ends. */
static bool has_our_pids(const struct wish *wish, struct weir_diag *diag)
{
    pid_t self;
    bool same = read_pid(wish->self, &self) && self == wish->asker;

    if (!same) {
        weir_diag_set(diag, 0, 0,
                      "the host has other pids than this process: one of them is in a container");
    }
    return same;
}

/* Whose share is it? */
static bool find_owner(struct wish *wish, struct weir_diag *diag)
{
    uint32_t own = geteuid();

    if (wish->user != NULL) {
        if (wish->uid != 0 && wish->uid != own) {
            weir_diag_set(diag, 0, 0, "only root makes shares of other users");
            return false;
        }
        if (weir_user_id(wish->user, &wish->uid) != WEIR_OK) {
            weir_diag_set(diag, 0, 0, "there is no user '%.40s' here", wish->user);
            return false;
        }
    }
    if (own != 0 && wish->uid != own) {
        weir_diag_set(diag, 0, 0, "this host is user %u's and makes shares of that user only", own);
        return false;
    }
    return true;
}

static bool has_room(const struct weir_supervisor *sup, uint32_t uid, struct weir_diag *diag)
{
    uint32_t n = 0, used = 0, most = sup->config.demand.per_user;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += is_share(&sup->tenants[i]) && sup->tenants[i].demand_uid == uid;
        used += sup->tenants[i].used;
    }
    if (most == 0) {
        weir_diag_set(diag, 0, 0, "this host makes no shares on demand (per_user = 0)");
    } else if (n >= most) {
        weir_diag_set(diag, 0, 0, "user %u has %u shares already, which is the limit (per_user)",
                      uid, n);
    } else if (used == WEIR_CONFIG_TENANTS_MAX) {
        weir_diag_set(diag, 0, 0, "the host has %d tenants, and takes no more",
                      WEIR_CONFIG_TENANTS_MAX);
    } else {
        return true;
    }
    return false;
}

/* A descriptor that tells when the share's process has ended. */
static bool watch_process(const struct wish *wish, int *ret_fd, struct weir_diag *diag)
{
    *ret_fd = (int)syscall(SYS_pidfd_open, wish->pid, 0); /* close-on-exec by itself */
    if (*ret_fd < 0) {
        weir_diag_set(diag, 0, 0, "process %d: %s", (int)wish->pid, strerror(errno));
    }
    return *ret_fd >= 0;
}

static bool name_share(struct weir_supervisor *sup, const struct wish *wish,
                       struct weir_tenant_config *config, struct weir_diag *diag)
{
    const struct weir_sup_tenant *other;

    if (wish->container != NULL) {
        snprintf(config->name, sizeof config->name, "ctr-%.*s", ID_SHOWN, wish->container);
    } else {
        snprintf(config->name, sizeof config->name, "run-%llu", (unsigned long long)++sup->n_runs);
    }
    snprintf(config->user, sizeof config->user, "%u", wish->uid);
    other = weir_sup_tenant_find(sup, config->name);
    if (other != NULL && !other->gone) {
        weir_diag_set(diag, 0, 0, "there is a tenant '%s' already", config->name);
        return false;
    }
    return true;
}

/* Those whose process has ended make room first: a container may have been started again. */
static void remove_ended(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_share(&sup->tenants[i])) {
            weir_sup_share_look(sup, &sup->tenants[i]);
        }
    }
}

/* The new tenant, or NULL and why. */
static struct weir_sup_tenant *make(struct weir_supervisor *sup, char *text, struct wish *wish,
                                    struct weir_diag *diag)
{
    struct weir_tenant_config config;
    struct weir_sup_tenant *tenant;
    int pid_fd;

    remove_ended(sup);
    if (!read_wish(text, wish, diag) || !has_our_pids(wish, diag)) {
        return NULL;
    }
    if (!find_owner(wish, diag) || !has_room(sup, wish->uid, diag) ||
        weir_demand_take(&sup->config.demand, wish->settings, wish->n_settings, &config, diag) !=
            WEIR_OK ||
        !weighs_enough(sup, wish->uid, config.weight, diag) ||
        !name_share(sup, wish, &config, diag) || !watch_process(wish, &pid_fd, diag)) {
        return NULL;
    }
    if (weir_sup_tenant_add(sup, &config, WEIR_ORIGIN_DEMAND, diag) != WEIR_OK) {
        close(pid_fd);
        return NULL;
    }
    tenant = weir_sup_tenant_find(sup, config.name);
    tenant->demand_fd = pid_fd;
    weir_sup_shares_weigh(sup, wish->uid);
    weir_log_info("supervisor: share made tenant=%s uid=%u pid=%d", config.name, wish->uid,
                  (int)wish->pid);
    return tenant;
}

/* ---------------------------------------------------------------- the socket */

/* Whose lines it counts. Users who were silent for longest give way; while all were refused just
 * now, further ones share the count of the first, so that users without end are no way around. */
static struct weir_log_rate *rate_of(struct weir_supervisor *sup, uint32_t uid)
{
    uint64_t now_ns = weir_clock_now_ns();
    struct weir_sup_refused_user *user = &sup->refused_users[0];

    for (int i = 0; i < WEIR_REFUSED_USERS_MAX; i++) {
        struct weir_sup_refused_user *other = &sup->refused_users[i];

        if (other->last_ns != 0 && other->uid == uid) {
            other->last_ns = now_ns;
            return &other->rate;
        }
        user = other->last_ns < user->last_ns ? other : user;
    }
    if (user->last_ns == 0 || now_ns - user->last_ns >= WEIR_LOG_RATE_INTERVAL_S * WEIR_NS_PER_S) {
        if (user->last_ns == 0) {
            weir_log_rate_init(&user->rate);
        }
        user->uid = uid;
        user->last_ns = now_ns;
        return &user->rate;
    }
    return &sup->refused_users[0].rate;
}

static void log_refusal(struct weir_supervisor *sup, const struct weir_peer *peer, const char *why)
{
    char whose[32];

    snprintf(whose, sizeof whose, "(user %u)", peer->uid);
    weir_log_limit_thread(rate_of(sup, peer->uid), whose);
    weir_log_info("supervisor: no share uid=%u pid=%d why=\"%s\"", peer->uid, (int)peer->pid, why);
    weir_log_limit_thread(NULL, NULL);
}

static void answer(struct weir_supervisor *sup, int fd, char *text)
{
    struct weir_diag diag = {0};
    struct weir_peer peer = {0};
    struct wish wish = {0};
    const struct weir_sup_tenant *tenant = NULL;
    char folder[PATH_MAX], reply[PATH_MAX + 256];

    if (weir_peer_of(fd, &peer) != WEIR_OK) {
        return;
    }
    wish.uid = peer.uid;
    wish.asker = wish.pid = peer.pid;
    tenant = make(sup, text, &wish, &diag);
    if (tenant != NULL && path_of_share(sup, tenant, folder, sizeof folder)) {
        snprintf(reply, sizeof reply, "ok\t%s\t%s", tenant->config.name, folder);
    } else {
        log_refusal(sup, &peer, diag.message);
        snprintf(reply, sizeof reply, "error\t%s", diag.message);
    }
    (void)!send(fd, reply, strlen(reply), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void close_client(struct weir_sup_asker *asker)
{
    close(asker->fd);
    asker->fd = -1;
}

void weir_sup_demand_read(struct weir_supervisor *sup, struct weir_sup_asker *asker)
{
    char text[REQUEST_BYTES + 1];
    ssize_t n = recv(asker->fd, text, REQUEST_BYTES, MSG_DONTWAIT); /* descriptors fall off */

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n > 0 && memchr(text, 0, (size_t)n) == NULL) {
        text[n] = 0;
        answer(sup, asker->fd, text);
    }
    close_client(asker);
}

void weir_sup_demand_accept(struct weir_supervisor *sup)
{
    struct weir_sup_asker *oldest = &sup->askers[0];
    int fd = weir_sup_accept_guest(sup, sup->demand_fd, NULL, NULL);

    if (fd < 0) {
        return;
    }
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        if (sup->askers[i].fd < 0 || sup->askers[i].deadline_ns < oldest->deadline_ns) {
            oldest = &sup->askers[i];
        }
        if (oldest->fd < 0) {
            break;
        }
    }
    if (oldest->fd >= 0) {
        close_client(oldest); /* it makes room */
    }
    *oldest = (struct weir_sup_asker){fd, weir_clock_now_ns() + REQUEST_WAIT_NS};
}

void weir_sup_share_look(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct pollfd wait = {tenant->demand_fd, POLLIN, 0};

    if (tenant->demand_fd >= 0 && poll(&wait, 1, 0) == 1) {
        weir_sup_tenant_remove(sup, tenant);
    }
}

void weir_sup_share_gone(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char path[PATH_MAX];

    if (tenant->source != WEIR_ORIGIN_DEMAND) {
        return;
    }
    if (path_of_share(sup, tenant, path, sizeof path)) {
        (void)rmdir(path);
    }
    if (path_of_user(sup, tenant->demand_uid, path, sizeof path)) {
        (void)rmdir(path); /* if that was the last */
    }
    if (tenant->demand_fd >= 0) {
        close(tenant->demand_fd);
        tenant->demand_fd = -1;
    }
}

void weir_sup_demand_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        if (sup->askers[i].fd >= 0 && now_ns >= sup->askers[i].deadline_ns) {
            close_client(&sup->askers[i]);
        }
    }
}

int weir_sup_demand_wait_ms(const struct weir_supervisor *sup, uint64_t now_ns)
{
    uint64_t next_ns = WEIR_FOREVER;

    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        if (sup->askers[i].fd >= 0 && sup->askers[i].deadline_ns < next_ns) {
            next_ns = sup->askers[i].deadline_ns;
        }
    }
    return weir_poll_ms(next_ns, now_ns);
}

void weir_sup_demand_follow(struct weir_supervisor *sup, const struct weir_demand_config *demand)
{
    sup->config.demand = *demand;
    if (chmod(sup->demand_path, (mode_t)demand->socket_mode) != 0) {
        weir_log_warn("supervisor: socket_mode is not changed path=%s why=\"%s\"", sup->demand_path,
                      strerror(errno));
    }
}

enum weir_status weir_sup_demand_open(struct weir_supervisor *sup)
{
    char folder[PATH_MAX], none[PATH_MAX];
    int n = snprintf(sup->demand_path, sizeof sup->demand_path, "%s/" WEIR_CONTROL_NEW_SOCKET,
                     sup->config.run_dir);
    enum weir_status status;

    if (n < 0 || (size_t)n >= sizeof sup->demand_path) {
        return WEIR_ERR_TOO_BIG;
    }
    snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_SHARES, sup->config.run_dir);
    snprintf(none, sizeof none, "%s/" WEIR_CONTAINER_SHARES "/none", sup->config.run_dir);
    status = make_folder(folder, 0711) && make_folder(none, 0755) ? WEIR_OK : WEIR_ERR_IO;
    if (status == WEIR_OK) {
        sweep(folder, false);
        status = weir_listen_unix(sup->demand_path, (mode_t)sup->config.demand.socket_mode,
                                  &sup->demand_fd);
    }
    if (status != WEIR_OK) {
        fprintf(stderr, "weir serve: %s: %s\n", sup->demand_path, weir_status_text(status));
    }
    return status;
}

void weir_sup_demand_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_ASKERS_MAX; i++) {
        if (sup->askers[i].fd >= 0) {
            close_client(&sup->askers[i]);
        }
    }
    if (sup->demand_fd >= 0) {
        char folder[PATH_MAX];

        close(sup->demand_fd);
        unlink(sup->demand_path);
        snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_SHARES "/none", sup->config.run_dir);
        (void)rmdir(folder);
        *strrchr(folder, '/') = 0;
        (void)rmdir(folder);
    }
}
