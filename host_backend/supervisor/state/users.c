/* Users who ask for shares on demand: see users.h. */
#include "host_backend/supervisor/state/users.h"

#include "base/fd.h"
#include "host_backend/supervisor/state/supervisor.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMESPACES_MAX 32 /* how deep user namespaces may be nested in the kernel */

/* ---------------------------------------------------------------- which user owns another */

static bool is_same(int a, int b)
{
    struct stat first, second;

    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* Find the uid that made the outermost user namespace that a process is in and this process is not.
 * false: both are in the same one, or this process may not look. */
static bool owner_of_namespace(pid_t pid, uint32_t *ret_uid)
{
    char path[64];
    int own = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), ns, parent;
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < NAMESPACES_MAX && own >= 0 && ns >= 0 && !found && !is_same(ns, own); i++) {
        parent = ioctl(ns, NS_GET_PARENT);
        found = parent >= 0 && is_same(parent, own) && ioctl(ns, NS_GET_OWNER_UID, ret_uid) == 0;
        close(ns);
        ns = parent;
    }
    weir_fd_close(ns);
    weir_fd_close(own);
    return found;
}

/* Does a line of subuid(5), "NAME_OR_UID:FIRST:COUNT", contain the uid? Gives its owner. */
static bool line_has(char *line, uint32_t uid, uint32_t *ret_owner)
{
    char *rest = NULL, *name = strtok_r(line, ":", &rest), *first = strtok_r(NULL, ":", &rest),
         *count = strtok_r(NULL, ":\n", &rest);
    unsigned long long from, n;

    WEIR_FAIL_IF(!name || !first || !count, false);
    from = strtoull(first, NULL, 10);
    n = strtoull(count, NULL, 10);
    if (uid < from || uid - from >= n) {
        return false;
    }
    if (weir_user_id(name, ret_owner) != WEIR_OK) {
        *ret_owner = (uint32_t)from; /* the range only has a name, such as "containers" */
    }
    return true;
}

static bool owner_of_range(uint32_t uid, uint32_t *ret_uid)
{
    FILE *file = fopen("/etc/subuid", "re");
    bool found = false;
    char *line = NULL;
    size_t room = 0;

    while (file && !found && getline(&line, &room, file) > 0) {
        found = line_has(line, uid, ret_uid);
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return found;
}

uint32_t weir_sup_user_owner(uint32_t uid, pid_t pid)
{
    uint32_t owner = 0;

    if (uid == 0) {
        return 0;
    }
    if (pid <= 0 || !owner_of_namespace(pid, &owner) || owner == 0) {
        owner = uid; /* a user that root has put into a namespace is not root */
    }
    (void)owner_of_range(owner, &owner);
    return owner;
}

/* ---------------------------------------------------------------- the table of users */

static bool has_shares(const struct weir_supervisor *sup, uint32_t user)
{
    bool has = false;

    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_tenant *t = &sup->tenants[i];

        has |= t->used && weir_sup_is_of_user(t) && t->demand_user == user;
    }
    return has;
}

/* When all state about a user has expired. */
static uint64_t calm_from_ns(const struct weir_sup_user *user)
{
    return WEIR_MAX(user->seen_ns, user->quarantine_end_ns);
}

struct weir_sup_user *weir_sup_user(struct weir_supervisor *sup, uint32_t uid)
{
    struct weir_sup_user *calm = NULL;
    uint64_t now_ns = weir_host_clock_ns();

    for (uint32_t i = 0; i < WEIR_USERS_MAX; i++) {
        struct weir_sup_user *user = &sup->users[i];

        if (user->seen_ns != 0 && user->uid == uid) {
            user->seen_ns = now_ns;
            return user;
        }
        if ((!calm || calm_from_ns(user) < calm_from_ns(calm)) && !has_shares(sup, i)) {
            calm = user;
        }
    }
    assert(calm); /* there are fewer shares than users */
    if (calm->seen_ns != 0) {
        weir_log_rate_finish(&calm->log_rate);
    }
    *calm = (struct weir_sup_user){.uid = uid, .seen_ns = now_ns};
    weir_log_rate_init(&calm->log_rate);
    return calm;
}

bool weir_sup_is_of_user(const struct weir_sup_tenant *tenant)
{
    return tenant->source == WEIR_ORIGIN_DEMAND || tenant->source == WEIR_ORIGIN_USER;
}

uint32_t weir_sup_holder(const struct weir_sup_tenant *tenant)
{
    return weir_sup_is_of_user(tenant) ? WEIR_CONFIG_TENANTS_MAX + tenant->demand_user
                                       : tenant->index;
}

void weir_sup_holders(const struct weir_supervisor *sup, uint64_t ret_used[WEIR_HOLDERS_MAX])
{
    for (uint32_t i = 0; i < WEIR_HOLDERS_MAX; i++) {
        ret_used[i] = WEIR_SUPPLY_NOBODY;
    }
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            ret_used[weir_sup_holder(&sup->tenants[i])] = 0;
        }
    }
}

void weir_sup_holder_uses(const struct weir_sup_tenant *tenant, uint64_t used[WEIR_HOLDERS_MAX])
{
    uint64_t *own = &used[weir_sup_holder(tenant)];

    *own = *own == WEIR_SUPPLY_NOBODY ? 1 : *own + 1; /* a tenant being removed may have it, too */
}

struct weir_log_rate *weir_sup_log_rate(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    return weir_sup_is_of_user(tenant) ? &sup->users[tenant->demand_user].log_rate
                                       : &tenant->log_rate;
}

struct weir_sup_tenant *weir_sup_tenant_find(struct weir_supervisor *sup, const char *name)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && strcmp(sup->tenants[i].config.name, name) == 0) {
            return &sup->tenants[i];
        }
    }
    return NULL;
}

int64_t weir_sup_share_user(const struct weir_supervisor *sup, uint32_t tenant)
{
    return tenant < WEIR_CONFIG_TENANTS_MAX && sup->tenants[tenant].used &&
                   weir_sup_is_of_user(&sup->tenants[tenant])
               ? (int64_t)sup->users[sup->tenants[tenant].demand_user].uid
               : -1;
}
