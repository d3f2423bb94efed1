/*
 * Shares on demand: a user requests such a tenant at new.sock, and it ends with a process.
 *
 *   <run_dir>/new.sock mode [default] socket_mode <run_dir>/shares/ 0711 <run_dir>/shares/none/
 *   empty: what containers have at /run/weir until they are given a
 * share <run_dir>/shares/1000/ 0700 and an access list: this user and root may pass
 *   <run_dir>/shares/1000/run-7/ 0755, the share's folder; mounted into its container ..
 *   /run-7/default.sock 0666: any user of a container may connect
 *
 * A request is one packet, its answer another: "run" or "container", then "KEY=VALUE" words with
 * tabs between them; "ok", name and folder, or "error" and why. Descriptors that come with a
 * request are never accepted, since closing one of a foreign file system may block for ever.
 *
 * A share lives as long as its process, on which the supervisor has a pidfd. So no killed program,
 * engine or host leaves a share behind, and no share outlives its host.
 *
 * Only the host's user can write in these folders, so nobody else can put a symbolic link there
 * that leads out of them.
 */
#include "base/fd.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/tenant_row.h"

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
#include <unistd.h>

#define REQUEST_BYTES   4096
#define WORDS_MAX       24
#define REQUEST_WAIT_NS (2 * WEIR_NS_PER_S)
#define ID_SHOWN        12 /* characters of a container's id, as engines show it */
/* The most shares at a time; the other quarter of the tenants is reserved for administrators. */
#define SHARES_MAX (WEIR_CONFIG_TENANTS_MAX - WEIR_CONFIG_TENANTS_MAX / 4)

/* ---------------------------------------------------------------- folders */

/* Make a folder. An existing one keeps its mode: chmod() would also change its access list. */
static bool make_folder(const char *path, mode_t mode)
{
    return mkdir(path, mode) == 0 ? chmod(path, mode) == 0 : errno == EEXIST;
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

/* Is this the folder of a share that was taken over? */
static bool is_taken_over(const struct weir_supervisor *sup, const char *path)
{
    char share[PATH_MAX];
    bool is = false;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX && !is; i++) {
        is = sup->tenants[i].used && sup->tenants[i].source == WEIR_ORIGIN_DEMAND &&
             path_of_share(sup, &sup->tenants[i], share, sizeof share) && strcmp(share, path) == 0;
    }
    return is;
}

/* Remove all entries of the shares' folder, except "none" and shares that were taken over. */
static void sweep(const struct weir_supervisor *sup, const char *folder, bool inner)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);

        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "none") == 0 || n < 0 ||
            (size_t)n >= sizeof path || is_taken_over(sup, path)) {
            continue;
        }
        if (inner) {
            unlink(path); /* the entry is a socket */
        } else {
            sweep(sup, path, strspn(entry->d_name, "0123456789") != strlen(entry->d_name));
        }
        rmdir(path);
    }
    if (dir) {
        closedir(dir);
    }
}

enum weir_status weir_sup_share_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char user[PATH_MAX], folder[PATH_MAX];

    WEIR_FAIL_IF(weir_sup_owner(&tenant->config, &tenant->demand_uid) != WEIR_OK, WEIR_ERR_INVALID);
    if (!path_of_user(sup, tenant->demand_uid, user, sizeof user) ||
        !path_of_share(sup, tenant, folder, sizeof folder)) {
        return WEIR_ERR_TOO_BIG;
    }
    int n = snprintf(tenant->path, sizeof tenant->path, "%s/" WEIR_CONTAINER_SOCKET, folder);
    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof tenant->path, WEIR_ERR_TOO_BIG);
    WEIR_TRY(weir_sup_user_folder(user, tenant->demand_uid));
    WEIR_FAIL_IF(!make_folder(folder, 0755), WEIR_ERR_IO);
    return weir_sup_listen_kept(sup, tenant->path, 0666, &tenant->listen_fd);
}

/* ---------------------------------------------------------------- weights */

static bool is_share(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->source == WEIR_ORIGIN_DEMAND;
}

/* Does the tenant's weight depend on the user's other shares? Not if weir tenant has set it. */
static bool is_divided(const struct weir_sup_tenant *tenant, uint32_t user)
{
    size_t weight = (size_t)weir_setting_find("weight");

    return is_share(tenant) && tenant->demand_user == user &&
           tenant->origins[weight] == WEIR_ORIGIN_DEMAND;
}

/* Divide a weight among a user's shares. */
static void divide(struct weir_supervisor *sup, uint32_t user, uint32_t together)
{
    struct weir_sup_tenant *shares[WEIR_CONFIG_TENANTS_MAX];
    uint32_t asked[WEIR_CONFIG_TENANTS_MAX], weights[WEIR_CONFIG_TENANTS_MAX], n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_divided(&sup->tenants[i], user)) {
            asked[n] = sup->tenants[i].base.weight;
            shares[n++] = &sup->tenants[i];
        }
    }
    weir_demand_divide(together, asked, n, weights);
    for (uint32_t i = 0; i < n; i++) {
        struct weir_tenant_config config = shares[i]->config;

        if (config.weight != weights[i]) {
            config.weight = weights[i];
            weir_sup_tenant_commit(sup, shares[i], &config);
        }
    }
}

/* The heaviest weight asked for by a user's shares that are divided; 0: there are none. */
static uint32_t heaviest(const struct weir_supervisor *sup, uint32_t user)
{
    uint32_t most = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        most = is_divided(t, user) && t->base.weight > most ? t->base.weight : most;
    }
    return most;
}

void weir_sup_shares_weigh(struct weir_supervisor *sup)
{
    uint32_t users[WEIR_USERS_MAX], asked[WEIR_USERS_MAX], together[WEIR_USERS_MAX], n = 0, all = 0;

    for (uint32_t user = 0; user < WEIR_USERS_MAX; user++) {
        uint32_t most = sup->users[user].seen_ns != 0 ? heaviest(sup, user) : 0;

        if (most != 0) {
            all += most;
            asked[n] = most;
            users[n++] = user;
        }
    }
    all = WEIR_MIN(all, sup->config.demand.total_weight);
    weir_demand_divide(all, asked, n, together);
    for (uint32_t i = 0; i < n; i++) {
        divide(sup, users[i], together[i]);
    }
}

/* ---------------------------------------------------------------- requests */

/* A request for a share, without its settings. */
struct wish {
    uint32_t uid;       /* user who may use the share */
    uint32_t user_slot; /* slot of the user for whom the share counts */
    bool by_root;
    pid_t client;
    pid_t pid;             /* the process with which the share ends */
    const char *self;      /* the requester's pid in its own namespace */
    const char *container; /* a container's id; NULL: the share is for a program */
    const char *user;      /* another user for whom root requests the share */
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
    long long number = text ? strtoll(text, &end, 10) : 0;

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

/* Read the words of a request; the wish already has the kernel's credentials of the sender. */
static bool read_wish(char *text, struct wish *wish, struct weir_diag *diag)
{
    const char *pid = NULL;
    char *rest = NULL, *word = strtok_r(text, "\t", &rest);
    bool container = word && strcmp(word, "container") == 0;

    if (!container && (!word || strcmp(word, "run") != 0)) {
        weir_diag_set(diag, 0, 0, "no such request: are host and program of one version?");
        return false;
    }
    while ((word = strtok_r(NULL, "\t", &rest))) {
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
    wish->container = container ? wish->container : NULL;
    if (container && (!read_pid(pid, &wish->pid) || !wish->container || !id_ok(wish->container))) {
        weir_diag_set(diag, 0, 0, "a container has a pid and an id");
        return false;
    }
    return true;
}

/* Does the sender have the same pid on the host? If not, the end of its process cannot be
 * watched. */
static bool has_our_pids(const struct wish *wish, struct weir_diag *diag)
{
    pid_t self;
    bool same = read_pid(wish->self, &self) && self == wish->client;

    if (!same) {
        weir_diag_set(diag, 0, 0,
                      "the host has other pids than this process: one of them is in a container");
    }
    return same;
}

/* Find the user for whom the share counts. */
static bool find_owner(struct weir_supervisor *sup, struct wish *wish, struct weir_diag *diag)
{
    uint32_t own = geteuid();
    pid_t client = !wish->user ? wish->client : 0; /* 0 if root has named another user */

    if (wish->user) {
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
    wish->user_slot =
        (uint32_t)(weir_sup_user(sup, weir_sup_user_owner(wish->uid, client)) - sup->users);
    return true;
}

/* Are there places left for another share of the user? Half of all places are for each user's first
 * share. */
static bool has_place(const struct weir_supervisor *sup, uint32_t user)
{
    uint64_t used[WEIR_USERS_MAX] = {0};
    const struct weir_supply supply = {
        .total = SHARES_MAX, .least = 1, .used = used, .n = WEIR_USERS_MAX};

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        used[t->demand_user] += t->used && t->source == WEIR_ORIGIN_DEMAND; /* also removed ones */
    }
    return weir_supply_allows(&supply, user, 1);
}

static bool has_room(const struct weir_supervisor *sup, uint32_t user, struct weir_diag *diag)
{
    uint32_t n = 0, used = 0, most = sup->config.demand.per_user;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += is_share(&sup->tenants[i]) && sup->tenants[i].demand_user == user;
        used += sup->tenants[i].used;
    }
    if (sup->drain.all) {
        weir_diag_set(diag, 0, 0,
                      "the host is drained (weir drain): it takes no new programs until weir "
                      "undrain");
    } else if (most == 0) {
        weir_diag_set(diag, 0, 0, "this host makes no shares on demand (per_user = 0)");
    } else if (n >= most) {
        weir_diag_set(diag, 0, 0,
                      "user %u has %u shares already, which is the limit (per_user); those of "
                      "subordinate users count",
                      sup->users[user].uid, n);
    } else if (used == WEIR_CONFIG_TENANTS_MAX) {
        weir_diag_set(diag, 0, 0, "the host has %d tenants, and takes no more",
                      WEIR_CONFIG_TENANTS_MAX);
    } else if (!has_place(sup, user)) {
        weir_diag_set(
            diag, 0, 0,
            "the host has places for %d shares on demand, and those that are left are for "
            "users who have none",
            SHARES_MAX);
    } else {
        return true;
    }
    return false;
}

static bool has_ended(int pid_fd)
{
    struct pollfd wait = {pid_fd, POLLIN, 0};

    return poll(&wait, 1, 0) == 1;
}

/* The real user of a process, which a setuid program does not change. -1: no such process. */
static int64_t user_of_process(pid_t pid)
{
    char path[64], line[256];
    unsigned uid;
    int64_t found = -1;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && found < 0 && fgets(line, sizeof line, file)) {
        found = sscanf(line, "Uid: %u", &uid) == 1 ? (int64_t)uid : -1;
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* May the sender tie the share to this process? Another user's process might run for ever, and the
 * share would stay. The process may be the first of a container, of a subordinate user. */
static bool may_name(const struct weir_supervisor *sup, const struct wish *wish)
{
    int64_t uid = user_of_process(wish->pid);

    return wish->by_root || wish->pid == wish->client ||
           (uid >= 0 &&
            weir_sup_user_owner((uint32_t)uid, wish->pid) == sup->users[wish->user_slot].uid);
}

/* Open a descriptor that shows when the share's process has ended. */
static bool watch_process(const struct weir_supervisor *sup, const struct wish *wish, int *ret_fd,
                          struct weir_diag *diag)
{
    *ret_fd = (int)syscall(SYS_pidfd_open, wish->pid, 0); /* a pidfd has close-on-exec by itself */
    if (*ret_fd < 0) {
        weir_diag_set(diag, 0, 0, "process %d: %s", (int)wish->pid, strerror(errno));
        return false;
    }
    if (!may_name(sup, wish) || has_ended(*ret_fd)) { /* the pid may have been reused by now */
        weir_diag_set(diag, 0, 0,
                      "process %d is another user's, or has ended: a share ends with a process of "
                      "whoever asks for it",
                      (int)wish->pid);
        close(*ret_fd);
        return false;
    }
    return true;
}

static bool name_share(struct weir_supervisor *sup, const struct wish *wish,
                       struct weir_tenant_config *config, struct weir_diag *diag)
{
    if (wish->container) {
        snprintf(config->name, sizeof config->name, "ctr-%u-%.*s", wish->uid, ID_SHOWN,
                 wish->container);
    } else {
        snprintf(config->name, sizeof config->name, "run-%llu",
                 (unsigned long long)++sup->demand.n_runs);
    }
    weir_sup_own(config, wish->uid);
    const struct weir_sup_tenant *other = weir_sup_tenant_find(sup, config->name);
    if (other && !other->gone) {
        weir_diag_set(diag, 0, 0, "there is a tenant '%s' already", config->name);
        return false;
    }
    return true;
}

static void look_at_share(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    if (tenant->demand_fd >= 0 && has_ended(tenant->demand_fd)) {
        weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
        weir_sup_tenant_remove(sup, tenant);
        weir_log_limit_thread(NULL, NULL);
    }
}

/* First remove shares whose process has ended, since a container may have been restarted. */
static void remove_ended(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_share(&sup->tenants[i])) {
            look_at_share(sup, &sup->tenants[i]);
        }
    }
}

/* Make the tenant; NULL, and a diagnosis, if that fails. */
static struct weir_sup_tenant *make(struct weir_supervisor *sup, char *text, struct wish *wish,
                                    struct weir_diag *diag)
{
    struct weir_tenant_config config;
    struct weir_sup_tenant *tenant = NULL;
    int pid_fd;

    remove_ended(sup);
    WEIR_FAIL_IF(!read_wish(text, wish, diag) || !has_our_pids(wish, diag), NULL);
    if (!find_owner(sup, wish, diag) || !has_room(sup, wish->user_slot, diag) ||
        weir_demand_take(&sup->config.demand, wish->settings, wish->n_settings,
                         weir_sup_device_bytes(sup, &sup->config.demand.usual), &config,
                         diag) != WEIR_OK ||
        !name_share(sup, wish, &config, diag) || !watch_process(sup, wish, &pid_fd, diag)) {
        return NULL;
    }
    sup->demand.asking_user = wish->user_slot;
    weir_log_limit_thread(&sup->users[wish->user_slot].log_rate, config.name);
    if (weir_sup_tenant_add(sup, &config, WEIR_ORIGIN_DEMAND, diag) == WEIR_OK) {
        tenant = weir_sup_tenant_find(sup, config.name);
        tenant->demand_fd = pid_fd;
        weir_sup_tenant_note(sup, tenant);
        weir_sup_shares_weigh(sup);
        weir_log_info("supervisor: share made tenant=%s uid=%u pid=%d", config.name, wish->uid,
                      (int)wish->pid);
    } else {
        close(pid_fd);
    }
    weir_log_limit_thread(NULL, NULL);
    return tenant;
}

/* ---------------------------------------------------------------- the socket */

static void log_refusal(struct weir_supervisor *sup, const struct weir_peer *peer, const char *why)
{
    struct weir_sup_user *user = weir_sup_user(sup, weir_sup_user_owner(peer->uid, peer->pid));
    char whose[32];

    snprintf(whose, sizeof whose, "(user %u)", user->uid);
    weir_log_limit_thread(&user->log_rate, whose);
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
    wish.by_root = peer.uid == 0;
    wish.client = wish.pid = peer.pid;
    tenant = make(sup, text, &wish, &diag);
    if (tenant && path_of_share(sup, tenant, folder, sizeof folder)) {
        snprintf(reply, sizeof reply, "ok\t%s\t%s", tenant->config.name, folder);
    } else {
        log_refusal(sup, &peer, diag.message);
        snprintf(reply, sizeof reply, "error\t%s", diag.message);
    }
    (void)!send(fd, reply, strlen(reply), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void close_client(struct weir_sup_demand_client *client)
{
    close(client->fd);
    client->fd = -1;
}

static void read_client(struct weir_supervisor *sup, struct weir_sup_demand_client *client)
{
    char text[REQUEST_BYTES + 1];
    ssize_t n = recv(client->fd, text, REQUEST_BYTES, MSG_DONTWAIT); /* passed descriptors close */

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n > 0 && !memchr(text, 0, (size_t)n)) {
        text[n] = 0;
        answer(sup, client->fd, text);
    }
    close_client(client);
}

/* Find a free place for a connection. If there is none, close the oldest connection of the user
 * with most connections. */
static struct weir_sup_demand_client *find_client(struct weir_supervisor *sup)
{
    struct weir_sup_demand_client *found = NULL;
    uint32_t most = 0;

    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        struct weir_sup_demand_client *a = &sup->demand.clients[i];
        uint32_t n = 0;

        if (a->fd < 0) {
            return a;
        }
        for (int k = 0; k < WEIR_DEMAND_CLIENTS_MAX; k++) {
            n += sup->demand.clients[k].fd >= 0 && sup->demand.clients[k].uid == a->uid;
        }
        if (n > most || (n == most && a->deadline_ns < found->deadline_ns)) {
            most = n;
            found = a;
        }
    }
    return found;
}

void weir_sup_demand_accept(struct weir_supervisor *sup)
{
    int fd = weir_sup_accept_guest(sup, sup->demand.fd, NULL, NULL);
    struct weir_peer peer = {0};

    if (fd < 0) {
        return;
    }
    (void)!weir_peer_of(fd, &peer);
    struct weir_sup_demand_client *client = find_client(sup);
    if (client->fd >= 0) {
        close_client(client); /* the oldest connection makes room */
    }
    *client = (struct weir_sup_demand_client){fd, weir_host_clock_ns() + REQUEST_WAIT_NS, peer.uid};
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
        (void)rmdir(path); /* fails unless it is empty */
    }
    tenant->demand_fd = weir_fd_close(tenant->demand_fd);
}

void weir_sup_demand_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        if (sup->demand.clients[i].fd >= 0 && now_ns >= sup->demand.clients[i].deadline_ns) {
            close_client(&sup->demand.clients[i]);
        }
    }
}

static void on_connection(void *user, int index)
{
    (void)index;
    weir_sup_demand_accept(user);
}

static void on_client(void *user, int index)
{
    struct weir_supervisor *sup = user;

    if (sup->demand.clients[index].fd >= 0) {
        read_client(sup, &sup->demand.clients[index]);
    }
}

static void on_process(void *user, int index)
{
    struct weir_supervisor *sup = user;

    look_at_share(sup, &sup->tenants[index]);
}

void weir_sup_demand_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->demand.fd, POLLIN, on_connection, sup, 0);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            weir_host_loop_watch(loop, sup->tenants[i].demand_fd, POLLIN, on_process, sup, i);
        }
    }
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        if (sup->demand.clients[i].fd >= 0) {
            weir_host_loop_watch(loop, sup->demand.clients[i].fd, POLLIN, on_client, sup, i);
            weir_host_loop_wake(loop, sup->demand.clients[i].deadline_ns);
        }
    }
}

void weir_sup_demand_follow(struct weir_supervisor *sup, const struct weir_demand_config *demand)
{
    sup->config.demand = *demand;
    weir_sup_shares_weigh(sup);
    if (sup->demand.fd >= 0 && chmod(sup->demand.path, (mode_t)demand->socket_mode) != 0) {
        weir_log_warn("supervisor: socket_mode is not changed path=%s why=\"%s\"", sup->demand.path,
                      strerror(errno));
    }
}

/* Names of new shares come after those of the last supervisor's. */
static void count_shares(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];
        unsigned long long n = 0;

        if (is_share(t) && sscanf(t->config.name, "run-%llu", &n) == 1 && n > sup->demand.n_runs) {
            sup->demand.n_runs = n;
        }
    }
}

void weir_sup_demand_open(struct weir_supervisor *sup)
{
    char folder[PATH_MAX], none[PATH_MAX];
    int n = snprintf(sup->demand.path, sizeof sup->demand.path, "%s/" WEIR_CONTROL_NEW_SOCKET,
                     sup->config.run_dir);
    enum weir_status status = WEIR_ERR_TOO_BIG;

    snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_SHARES, sup->config.run_dir);
    snprintf(none, sizeof none, "%s/" WEIR_CONTAINER_SHARES "/none", sup->config.run_dir);
    if (n >= 0 && (size_t)n < sizeof sup->demand.path) {
        status = make_folder(folder, 0711) && make_folder(none, 0755) ? WEIR_OK : WEIR_ERR_IO;
    }
    if (status == WEIR_OK) {
        count_shares(sup);
        sweep(sup, folder, false);
        status = weir_sup_listen_kept(sup, sup->demand.path, (mode_t)sup->config.demand.socket_mode,
                                      &sup->demand.fd);
    }
    if (status == WEIR_OK) {
        weir_sup_extra_works(sup, WEIR_EXTRA_SHARES);
    } else {
        weir_sup_extra_fails(sup, WEIR_EXTRA_SHARES, "'%.80s': %s", sup->demand.path,
                             status == WEIR_ERR_IO ? strerror(errno) : weir_status_text(status));
    }
}

void weir_sup_demand_renew(struct weir_supervisor *sup)
{
    char folder[PATH_MAX], none[PATH_MAX];

    snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_SHARES, sup->config.run_dir);
    snprintf(none, sizeof none, "%s/" WEIR_CONTAINER_SHARES "/none", sup->config.run_dir);
    if (sup->demand.fd >= 0 && (!make_folder(folder, 0711) || !make_folder(none, 0755))) {
        weir_log_error("supervisor: no folder of shares path=%s why=\"%s\"", none, strerror(errno));
    }
    if (weir_sup_socket_lost(sup->demand.path, &sup->demand.fd) &&
        weir_sup_listen_kept(sup, sup->demand.path, (mode_t)sup->config.demand.socket_mode,
                             &sup->demand.fd) != WEIR_OK) {
        sup->demand.fd = -1;
    }
}

void weir_sup_demand_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_DEMAND_CLIENTS_MAX; i++) {
        if (sup->demand.clients[i].fd >= 0) {
            close_client(&sup->demand.clients[i]);
        }
    }
    if (sup->demand.fd >= 0) {
        char folder[PATH_MAX];

        close(sup->demand.fd);
        unlink(sup->demand.path);
        snprintf(folder, sizeof folder, "%s/" WEIR_CONTAINER_SHARES "/none", sup->config.run_dir);
        (void)rmdir(folder);
        *strrchr(folder, '/') = 0;
        (void)rmdir(folder);
    }
}
