/*
 * A tenant for each user who names none ([default] user_tenants).
 *
 * Programs that name no tenant come to the socket of the tenant `default`. With user_tenants each
 * user who comes there gets a tenant, uid-1000, with the settings of `default`: so two users are
 * scheduled against each other, and the socket can be open to all. A user to whom weir.toml gives
 * a tenant is that tenant, and not another one beside it. Root, the host's own user and
 * containers stay `default`; a container's users are other people than the machine's.
 *
 * Who comes is the kernel's word (SO_PEERCRED), in the host's user namespace: the root of a
 * rootless container is its user, and subordinate users count as their owner (state/users.c).
 *
 * Such a tenant goes when it has had no program for IDLE_NS. What is to outlive it, such as a
 * quarantine, is the user's (state/users.h).
 */
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"

#include "base/clock.h"
#include "base/log.h"
#include "container/cdi.h"
#include "proto/cuda_abi.h"
#include "proto/wire/accept.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Equal to the default of worker_idle_s, for which a worker waits for a tenant's next program. */
#define IDLE_NS (10 * WEIR_NS_PER_S)
#define LOOK_NS WEIR_NS_PER_S

/* Do users of this tenant get tenants of their own? */
static bool is_divided(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return sup->config.demand.user_tenants != 0 && !weir_sup_is_of_user(tenant) &&
           !weir_sup_tenant_has_user(tenant) && strcmp(tenant->config.name, WEIR_CDI_ALL_IS) == 0;
}

mode_t weir_sup_tenant_mode(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    return is_divided(sup, tenant) ? 0666 : (mode_t)sup->config.socket_mode;
}

/* ---------------------------------------------------------------- users' tenants */

static bool is_users(const struct weir_sup_tenant *tenant)
{
    return tenant->used && !tenant->gone && tenant->source == WEIR_ORIGIN_USER;
}

static struct weir_sup_tenant *find(struct weir_supervisor *sup, uint32_t user)
{
    int at = WEIR_FIRST(i, WEIR_CONFIG_TENANTS_MAX,
                        is_users(&sup->tenants[i]) && sup->tenants[i].demand_user == user);
    return at < WEIR_CONFIG_TENANTS_MAX ? &sup->tenants[at] : NULL;
}

/* The tenant that weir.toml gives a user; NULL: none, or several, so that none can be chosen. */
static struct weir_sup_tenant *given(struct weir_supervisor *sup, uint32_t uid)
{
    struct weir_sup_tenant *found = NULL;
    struct stat info;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        /* Compare the owner of its socket: looking up the user's name could block the host. */
        if (t->used && !t->gone && t->listen_fd >= 0 && !weir_sup_is_of_user(t) &&
            weir_sup_tenant_has_user(t) && stat(t->path, &info) == 0 && info.st_uid == uid) {
            if (found) {
                return NULL;
            }
            found = t;
        }
    }
    return found;
}

/* Has the tenant a program, or one that waits for a worker? */
static bool has_programs(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    struct weir_program program;
    uint32_t last = tenant->account ? weir_programs_last(&tenant->account->programs) : 0;

    for (uint32_t number = 1; number <= last; number++) {
        if (weir_programs_get(&tenant->account->programs, number, &program)) {
            return true;
        }
    }
    return WEIR_ANY(i, WEIR_PENDING_MAX,
                    sup->programs.pending[i].used &&
                        sup->programs.pending[i].guest.tenant_index == tenant->index);
}

static uint32_t count(const struct weir_supervisor *sup)
{
    uint32_t n = 0;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        n += is_users(&sup->tenants[i]);
    }
    return n;
}

/* Remove a tenant whose user has no program. It may have had one a moment ago. */
static bool remove_idle(struct weir_supervisor *sup, uint64_t idle_ns)
{
    uint64_t now_ns = weir_clock_now_ns();
    bool any = false;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        if (is_users(t) && has_programs(sup, t)) {
            t->came_ns = now_ns;
        } else if (is_users(t) && now_ns - t->came_ns >= idle_ns) {
            weir_log_limit_thread(weir_sup_log_rate(sup, t), t->config.name);
            weir_sup_tenant_remove(sup, t);
            weir_log_limit_thread(NULL, NULL);
            any = true;
        }
    }
    return any;
}

/* ---------------------------------------------------------------- a user comes */

/* The settings of a user's tenant: those of the tenant whose socket it uses, without the settings
 * that identify a tenant. */
static struct weir_tenant_config settings_of(const struct weir_sup_tenant *whole, const char *name)
{
    static const char *const own[] = {"name", "key", "vsock_cid", "user"};
    struct weir_tenant_config config;

    weir_tenant_config_default(&config, name);
    for (size_t i = 0; i < weir_setting_count(); i++) {
        size_t k = 0;

        while (k < WEIR_COUNT(own) && strcmp(weir_setting_key(i), own[k]) != 0) {
            k++;
        }
        if (k == WEIR_COUNT(own)) {
            weir_setting_copy(i, &whole->base, &config);
        }
    }
    return config;
}

/* Choose a name that no tenant of an administrator has. */
static void choose_name(struct weir_supervisor *sup, uint32_t uid,
                        char name[WEIR_TENANT_NAME_BYTES])
{
    snprintf(name, WEIR_TENANT_NAME_BYTES, "uid-%u", uid);
    if (weir_sup_tenant_find(sup, name)) {
        snprintf(name, WEIR_TENANT_NAME_BYTES, "uid-%u.user", uid);
    }
}

static struct weir_sup_tenant *make(struct weir_supervisor *sup,
                                    const struct weir_sup_tenant *whole, uint32_t user,
                                    struct weir_diag *diag)
{
    char name[WEIR_TENANT_NAME_BYTES] = "";
    uint32_t most = sup->config.demand.user_tenants;

    if (count(sup) >= most && !remove_idle(sup, LOOK_NS)) {
        weir_diag_set(diag, 0, 0,
                      "the host has tenants for %u users at a time, and as many others use it "
                      "(user_tenants in weir.toml): try again later",
                      most);
        return NULL;
    }
    choose_name(sup, sup->users[user].uid, name);
    struct weir_tenant_config config = settings_of(whole, name);
    sup->demand.asking_user = user;
    return weir_sup_tenant_add(sup, &config, WEIR_ORIGIN_USER, diag) == WEIR_OK
               ? weir_sup_tenant_find(sup, name)
               : NULL;
}

struct weir_sup_tenant *weir_sup_tenant_of_peer(struct weir_supervisor *sup,
                                                struct weir_sup_tenant *tenant,
                                                const struct weir_peer *peer, int fd)
{
    struct weir_diag diag = {0};

    if (!is_divided(sup, tenant) || !peer->known || peer->uid == 0 || peer->uid == geteuid()) {
        return tenant;
    }
    uint32_t user =
        (uint32_t)(weir_sup_user(sup, weir_sup_user_owner(peer->uid, peer->pid)) - sup->users);
    struct weir_sup_tenant *own = given(sup, sup->users[user].uid);
    if (own) {
        return own;
    }
    own = find(sup, user);
    weir_log_limit_thread(&sup->users[user].log_rate, "(a user)");
    own = own ? own : make(sup, tenant, user, &diag);
    if (own) {
        own->came_ns = weir_clock_now_ns();
    } else {
        weir_log_warn("supervisor: guest refused uid=%u pid=%d why=\"%s\"", peer->uid,
                      (int)peer->pid, diag.message);
        weir_refuse(fd, WEIR_ERR_FULL, CUDA_ERROR_OUT_OF_MEMORY, diag.message);
    }
    weir_log_limit_thread(NULL, NULL);
    return own;
}

/* ---------------------------------------------------------------- the configuration, the loop */

void weir_sup_user_tenants_follow(struct weir_supervisor *sup)
{
    const struct weir_sup_tenant *whole = weir_sup_tenant_find(sup, WEIR_CDI_ALL_IS);

    if (!whole || whole->gone || weir_sup_tenant_has_user(whole)) {
        return;
    }
    if (whole->listen_fd >= 0 && chmod(whole->path, weir_sup_tenant_mode(sup, whole)) != 0) {
        weir_log_warn("supervisor: the mode of a socket is not changed path=%s", whole->path);
    }
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (is_users(&sup->tenants[i])) {
            struct weir_tenant_config config = settings_of(whole, sup->tenants[i].config.name);

            (void)!weir_sup_tenant_set_base(sup, WEIR_ORIGIN_USER, &config);
        }
    }
}

void weir_sup_user_tenants_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    if (count(sup) != 0) {
        weir_host_loop_wake(loop, weir_host_loop_now_ns(loop) + LOOK_NS);
    }
}

void weir_sup_user_tenants_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    if (now_ns - sup->demand.looked_ns >= LOOK_NS) {
        sup->demand.looked_ns = now_ns;
        (void)remove_idle(sup, IDLE_NS);
    }
}
