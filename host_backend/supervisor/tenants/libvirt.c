/*
 * Applies the metadata of domains to tenants.
 *
 * weir-libvirt (container/libvirt/) follows libvirt and sends a domain's <tenant/> element. The
 * supervisor remembers the last element of each domain and ignores the same one, so a wrong value
 * is reported once. When an attribute or the element is removed, the setting gets the value of the
 * tenant's source again. When a domain is removed, the setting stays, because a stopped machine is
 * no reason to change it. The last change of a setting wins, whether it comes from `weir tenant
 * set` or metadata.
 *
 * Like a worker, weir-libvirt is restarted when it dies. No other service depends on it.
 */
#include "host_backend/supervisor/tenants/libvirt.h"

#include "base/fd.h"
#include "base/grow.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/watch/events.h"

#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_FIRST_NS (100 * WEIR_NS_PER_MS)
#define PAUSE_LAST_NS  (10 * WEIR_NS_PER_S)
#define SOUND_AFTER_NS (30 * WEIR_NS_PER_S)

struct weir_sup_domain {
    struct weir_libvirt_message said; /* its last message */
    char tenant[WEIR_TENANT_NAME_BYTES];
    uint32_t set; /* one bit for each setting that the element has set */
    bool missing; /* the tenant does not exist */
};

static struct weir_sup_domain *find_domain(struct weir_supervisor *sup, const char *name)
{
    size_t at = WEIR_FIRST(i, sup->libvirt.n_domains,
                           strcmp(sup->libvirt.domains[i].said.domain, name) == 0);
    return at < sup->libvirt.n_domains ? &sup->libvirt.domains[at] : NULL;
}

static struct weir_sup_domain *add_domain(struct weir_supervisor *sup, const char *name)
{
    struct weir_sup_libvirt *l = &sup->libvirt;

    if (l->n_domains == WEIR_DOMAINS_MAX || !WEIR_GROW_POWER(l->domains, l->n_domains)) {
        return NULL;
    }
    struct weir_sup_domain *d = &l->domains[l->n_domains++];
    memset(d, 0, sizeof *d);
    snprintf(d->said.domain, sizeof d->said.domain, "%s", name);
    return d;
}

static void forget_domain(struct weir_supervisor *sup, struct weir_sup_domain *d)
{
    *d = sup->libvirt.domains[--sup->libvirt.n_domains];
}

static struct weir_sup_tenant *living(struct weir_supervisor *sup, const char *name)
{
    struct weir_sup_tenant *tenant = weir_sup_tenant_find(sup, name);

    return tenant && !tenant->gone ? tenant : NULL;
}

static void complain(const struct weir_sup_domain *d, const char *why)
{
    weir_log_warn("libvirt: domain=\"%s\" %s: the old setting stays", d->said.domain, why);
}

/* Reset a domain's settings in config to those of the tenant's source. */
static void give_back(struct weir_sup_tenant *tenant, uint32_t settings,
                      struct weir_tenant_config *config)
{
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if ((settings >> i & 1) != 0 && tenant->origins[i] == WEIR_ORIGIN_LIBVIRT) {
            weir_setting_copy(i, &tenant->base, config);
            tenant->origins[i] = (uint8_t)tenant->source;
        }
    }
}

static void commit(struct weir_supervisor *sup, struct weir_sup_tenant *tenant,
                   const struct weir_sup_domain *d, const struct weir_tenant_config *config)
{
    const struct weir_tenant_config before = tenant->config;

    if (weir_settings_equal(&before, config)) {
        return;
    }
    weir_sup_tenant_commit(sup, tenant, config);
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if (!weir_setting_equal(i, &before, config)) {
            char value[WEIR_SETTING_TEXT_BYTES];

            weir_setting_text(i, config, value);
            weir_log_info("libvirt: tenant changed tenant=%s domain=\"%s\" %s=%s", config->name,
                          d->said.domain, weir_setting_key(i), value);
            weir_sup_event(
                sup, &(struct weir_sup_event){.kind = WEIR_EVENT_TENANT_CHANGED, .tenant = tenant},
                "%s=%s by libvirt's domain %s", weir_setting_key(i), value, d->said.domain);
        }
    }
}

/* Store a setting in config. @return its number; -1 after an error was reported. */
static int take(const struct weir_supervisor *sup, const struct weir_sup_domain *d,
                const struct weir_sup_tenant *tenant, const struct weir_libvirt_setting *s,
                struct weir_tenant_config *config, bool quiet)
{
    int setting = weir_setting_find(s->key);
    struct weir_diag diag = {0};
    char why[300];

    if (setting < 0) {
        snprintf(why, sizeof why, "unknown attribute '%s'", s->key);
    } else if (s->value[0] == 0) {
        snprintf(why, sizeof why, "attribute '%s' is empty", s->key);
    } else if (weir_sup_setting_try(sup, tenant, (size_t)setting, s->value, config, &diag) ==
               WEIR_OK) {
        return setting;
    } else {
        snprintf(why, sizeof why, "attribute %s (it is \"%s\")", diag.message, s->value);
    }
    if (!quiet) {
        complain(d, why);
    }
    return -1;
}

/*
 * Apply a domain's settings to its tenant.
 * @param again  the settings were applied before, and the tenant is new or was reloaded: later
 *               changes by others stay, and no error is reported again.
 */
static void apply(struct weir_supervisor *sup, struct weir_sup_domain *d,
                  struct weir_sup_tenant *tenant, bool again)
{
    const struct weir_libvirt_element *e = &d->said.element;
    struct weir_tenant_config config = tenant->config;
    uint32_t named = 0, good = 0;

    for (uint32_t i = 0; i < e->n_settings; i++) {
        int setting = weir_setting_find(e->settings[i].key);

        if (setting >= 0) {
            named |= 1u << setting;
        }
        if (again && setting >= 0 && tenant->origins[setting] == WEIR_ORIGIN_COMMAND) {
            continue;
        }
        setting = take(sup, d, tenant, &e->settings[i], &config, again);
        if (setting >= 0) {
            good |= 1u << setting;
        }
    }
    give_back(tenant, d->set & ~named, &config);
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if ((good >> i & 1) != 0) {
            tenant->origins[i] = WEIR_ORIGIN_LIBVIRT;
        }
    }
    d->set = (d->set & named) | good;
    commit(sup, tenant, d, &config);
}

/* Find the domain's tenant, or make it if the configuration allows; NULL: there is none. */
static struct weir_sup_tenant *tenant_of(struct weir_supervisor *sup, struct weir_sup_domain *d)
{
    struct weir_sup_tenant *tenant = living(sup, d->tenant);
    struct weir_tenant_config config;
    struct weir_diag diag = {0};

    if (tenant || !sup->config.libvirt_create || !weir_tenant_name_ok(d->tenant)) {
        return tenant;
    }
    weir_tenant_config_default(&config, d->tenant);
    if (weir_sup_tenant_add(sup, &config, WEIR_ORIGIN_LIBVIRT, &diag) != WEIR_OK) {
        weir_log_warn("libvirt: domain=\"%s\" %s", d->said.domain, diag.message);
        return NULL;
    }
    return living(sup, d->tenant);
}

/* Reset the settings that the domain has made in a tenant that it no longer names. */
static void leave_tenant(struct weir_supervisor *sup, struct weir_sup_domain *d)
{
    struct weir_sup_tenant *tenant = living(sup, d->tenant);

    if (tenant) {
        struct weir_tenant_config config = tenant->config;

        give_back(tenant, d->set, &config);
        commit(sup, tenant, d, &config);
    }
    d->set = 0;
}

static void on_element(struct weir_supervisor *sup, const struct weir_libvirt_message *message)
{
    const char *name = message->element.tenant[0] != 0 ? message->element.tenant : message->domain;
    struct weir_sup_domain *d = find_domain(sup, message->domain);

    if (!d) {
        d = add_domain(sup, message->domain);
        if (!d) {
            weir_log_warn("libvirt: domain=\"%s\" more than %d domains with an element",
                          message->domain, WEIR_DOMAINS_MAX);
            return;
        }
    } else if (memcmp(&d->said, message, sizeof *message) == 0) {
        return;
    }
    d->said = *message;
    if (strcmp(d->tenant, name) != 0) {
        leave_tenant(sup, d);
        memset(d->tenant, 0, sizeof d->tenant);
    }
    if (strlen(name) < sizeof d->tenant) { /* a longer name is no tenant's */
        memcpy(d->tenant, name, strlen(name) + 1);
    }
    struct weir_sup_tenant *tenant = tenant_of(sup, d);
    d->missing = !tenant;
    if (!tenant) {
        weir_log_warn("libvirt: domain=\"%s\" there is no tenant '%s'", message->domain, name);
        return;
    }
    for (size_t i = 0; i < sup->libvirt.n_domains; i++) {
        const struct weir_sup_domain *other = &sup->libvirt.domains[i];

        if (other != d && strcmp(other->tenant, d->tenant) == 0) {
            weir_log_warn("libvirt: domain=\"%s\" sets tenant '%s', as domain \"%s\" does: the "
                          "last change holds",
                          message->domain, d->tenant, other->said.domain);
        }
    }
    apply(sup, d, tenant, false);
}

static void on_bad(struct weir_supervisor *sup, const struct weir_libvirt_message *message)
{
    struct weir_sup_domain *d = find_domain(sup, message->domain);

    if (!d) {
        d = add_domain(sup, message->domain);
    }
    if (d && memcmp(&d->said, message, sizeof *message) != 0) {
        d->said = *message; /* its settings stay */
        complain(d, message->complaint);
    }
}

/* Is this a terminated text without characters that could forge a line of a log? */
static bool is_text(char *text, size_t bytes)
{
    size_t n = 0; /* not strnlen: gcc 14 loses sight of which array it is given, and warns */

    for (; n < bytes && text[n] != 0; n++) {
        if ((unsigned char)text[n] < ' ' || text[n] == 0x7f || text[n] == '"') {
            text[n] = '?';
        }
    }
    return n < bytes;
}

static bool check(struct weir_libvirt_message *message)
{
    struct weir_libvirt_element *e = &message->element;
    bool good = is_text(message->domain, sizeof message->domain) &&
                is_text(message->complaint, sizeof message->complaint) &&
                is_text(e->tenant, sizeof e->tenant) &&
                e->n_settings <= WEIR_LIBVIRT_SETTINGS_MAX && message->domain[0] != 0;

    for (uint32_t i = 0; good && i < e->n_settings; i++) {
        good = is_text(e->settings[i].key, sizeof e->settings[i].key) &&
               is_text(e->settings[i].value, sizeof e->settings[i].value);
    }
    return good;
}

void weir_sup_libvirt_message(struct weir_supervisor *sup, struct weir_libvirt_message *message)
{
    if (!check(message)) {
        weir_log_warn("libvirt: a message that cannot be");
        return;
    }
    struct weir_sup_domain *d = find_domain(sup, message->domain);
    switch (message->type) {
    case WEIR_LIBVIRT_ELEMENT:
        on_element(sup, message);
        break;
    case WEIR_LIBVIRT_BAD:
        on_bad(sup, message);
        break;
    case WEIR_LIBVIRT_NONE:
        if (d) {
            leave_tenant(sup, d);
            forget_domain(sup, d);
        }
        break;
    case WEIR_LIBVIRT_GONE:
        if (d) {
            forget_domain(sup, d);
        }
        break;
    default:
        weir_log_warn("libvirt: a message that cannot be");
        break;
    }
}

void weir_sup_libvirt_again(struct weir_supervisor *sup)
{
    for (size_t i = 0; i < sup->libvirt.n_domains; i++) {
        struct weir_sup_domain *d = &sup->libvirt.domains[i];
        struct weir_sup_tenant *tenant = living(sup, d->tenant);

        if (d->said.type == WEIR_LIBVIRT_ELEMENT && tenant) {
            apply(sup, d, tenant, !d->missing);
            d->missing = false;
        } else {
            d->missing = !tenant;
        }
    }
}

/* In the child: make only async-signal-safe calls until exec. */
static _Noreturn void become(const char *program, char *uri, char *log, int link)
{
    char *argv[] = {(char *)(uintptr_t) "weir-libvirt", uri, log, NULL};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (link == WEIR_LIBVIRT_FD) {
        link = dup(link); /* dup2 to itself would keep close-on-exec */
    }
    if (dup2(link, WEIR_LIBVIRT_FD) < 0) {
        _exit(1);
    }
    execv(program, argv);
    _exit(1);
}

static bool start(struct weir_supervisor *sup)
{
    struct weir_sup_libvirt *l = &sup->libvirt;
    int pair[2];

    if (!sup->params.libvirt || access(sup->params.libvirt, X_OK) != 0) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_LIBVIRT, WEIR_SUP_NO_LIBVIRT);
        return false;
    }
    WEIR_FAIL_IF(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0, false);
    l->pid = fork();
    if (l->pid == 0) {
        become(sup->params.libvirt, sup->config.libvirt_uri, sup->config.log, pair[1]);
    }
    close(pair[1]);
    if (l->pid < 0) {
        l->pid = 0;
        close(pair[0]);
        return false;
    }
    l->link = pair[0];
    l->started_ns = weir_host_clock_ns();
    l->restart_at_ns = 0;
    return true;
}

void weir_sup_libvirt_open(struct weir_supervisor *sup)
{
    struct weir_sup_libvirt *l = &sup->libvirt;
    bool fails = sup->extras.of[WEIR_EXTRA_LIBVIRT].why[0] != 0;

    if (sup->config.libvirt_uri[0] == 0 || (l->pid == 0 && l->restart_at_ns == 0 && !start(sup))) {
        return;
    }
    /* Failures no longer count when weir-libvirt has lived for a while. */
    if (!fails || (l->pid != 0 && weir_clock_now_ns() - l->started_ns >= PAUSE_LAST_NS / 2)) {
        weir_sup_extra_works(sup, WEIR_EXTRA_LIBVIRT);
    }
}

static void close_link(struct weir_sup_libvirt *l)
{
    l->link = weir_fd_close(l->link);
}

static void on_link(void *user, int index)
{
    struct weir_supervisor *sup = user;
    struct weir_libvirt_message message;
    ssize_t n = recv(sup->libvirt.link, &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);

    (void)index;
    if (n == (ssize_t)sizeof message) {
        weir_sup_libvirt_message(sup, &message);
    } else if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        close_link(&sup->libvirt); /* it has ended; SIGCHLD reports that, too */
    }
}

void weir_sup_libvirt_reap(struct weir_supervisor *sup)
{
    struct weir_sup_libvirt *l = &sup->libvirt;
    uint64_t now_ns = weir_host_clock_ns(), pause_ns = PAUSE_FIRST_NS;
    int status;

    if (l->pid <= 0 || waitpid(l->pid, &status, WNOHANG) != l->pid) {
        return;
    }
    l->pid = 0;
    close_link(l);
    weir_sup_extra_fails(sup, WEIR_EXTRA_LIBVIRT, "weir-libvirt ended %s=%d",
                         WIFSIGNALED(status) ? "signal" : "status",
                         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    l->failures = now_ns - l->started_ns > SOUND_AFTER_NS ? 1 : l->failures + 1;
    for (uint32_t i = 1; i < l->failures && pause_ns < PAUSE_LAST_NS; i++) {
        pause_ns *= 2;
    }
    l->restart_at_ns = now_ns + WEIR_MIN(pause_ns, PAUSE_LAST_NS);
}

void weir_sup_libvirt_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    struct weir_sup_libvirt *l = &sup->libvirt;

    if (l->pid == 0 && l->restart_at_ns != 0 && l->restart_at_ns <= now_ns && !start(sup)) {
        l->restart_at_ns = now_ns + PAUSE_LAST_NS;
    }
}

void weir_sup_libvirt_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t at_ns = sup->libvirt.restart_at_ns;

    weir_host_loop_watch(loop, sup->libvirt.link, POLLIN, on_link, sup, 0);
    weir_host_loop_wake(loop, at_ns != 0 ? at_ns : WEIR_FOREVER);
}

/* Kill weir-libvirt at once: it has no state to save, and may be in a call that does not return. */
void weir_sup_libvirt_close(struct weir_supervisor *sup)
{
    struct weir_sup_libvirt *l = &sup->libvirt;

    close_link(l);
    if (l->pid > 0) {
        kill(l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
        l->pid = 0;
    }
    free(l->domains);
    l->domains = NULL;
    l->n_domains = 0;
}
