/*
 * weir-libvirt URI: follows the metadata of libvirt's domains for `weir serve`, which starts it.
 *
 * It is a separate process because libvirt's calls block, and to keep libvirt's libraries and XML
 * out of the supervisor. It connects read-only. It reads all domains when it connects, and a domain
 * again at each of its events, and reports them to the supervisor, which finds out what is new.
 * When it loses the connection (libvirtd restarts while domains live on), it connects again. It
 * ends when the supervisor closes its end of descriptor 3.
 */
#include "base/log.h"
#include "container/libvirt/metadata.h"
#include <errno.h>
#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <libxml/parser.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_FIRST_MS  100
#define RETRY_LAST_MS   5000
#define KEEPALIVE_S     5
#define KEEPALIVE_COUNT 3

struct watch {
    virConnectPtr connection;
    bool lost;   /* the connection to libvirt is lost */
    bool parted; /* the supervisor has closed its end */
};

static void no_print(void *user, virErrorPtr error)
{
    (void)user;
    (void)error; /* otherwise libvirt would print each error to stderr, also "no metadata" */
}

static void tell(struct watch *w, const struct weir_libvirt_message *message)
{
    if (send(WEIR_LIBVIRT_FD, message, sizeof *message, MSG_NOSIGNAL) != (ssize_t)sizeof *message) {
        w->parted = true;
    }
}

/* Read a domain's element and pass it on. */
static void read_domain(struct watch *w, virDomainPtr domain)
{
    struct weir_libvirt_message message;
    struct weir_diag diag = {0};
    const char *name = virDomainGetName(domain);

    memset(&message, 0, sizeof message);
    if (!name) {
        return;
    }
    snprintf(message.domain, sizeof message.domain, "%s", name);
    char *text = virDomainGetMetadata(domain, VIR_DOMAIN_METADATA_ELEMENT, WEIR_LIBVIRT_URI,
                                      VIR_DOMAIN_AFFECT_CURRENT);
    if (!text) {
        int code = virGetLastErrorCode();

        if (code != VIR_ERR_NO_DOMAIN_METADATA && code != VIR_ERR_NO_DOMAIN) {
            return; /* the connection has failed; everything is read again over a new one */
        }
        message.type = code == VIR_ERR_NO_DOMAIN ? WEIR_LIBVIRT_GONE : WEIR_LIBVIRT_NONE;
    } else if (weir_metadata_parse(text, strlen(text), &message.element, &diag) == WEIR_OK) {
        message.type = WEIR_LIBVIRT_ELEMENT;
    } else {
        message.type = WEIR_LIBVIRT_BAD;
        snprintf(message.complaint, sizeof message.complaint, "%s", diag.message);
    }
    free(text);
    tell(w, &message);
}

static void on_metadata(virConnectPtr connection, virDomainPtr domain, int type, const char *uri,
                        void *user)
{
    (void)connection;
    if (type == VIR_DOMAIN_METADATA_ELEMENT && uri && strcmp(uri, WEIR_LIBVIRT_URI) == 0) {
        read_domain(user, domain);
    }
}

/* Read the domain again: a start or an end may have put other metadata into effect. */
static int on_lifecycle(virConnectPtr connection, virDomainPtr domain, int event, int detail,
                        void *user)
{
    (void)connection;
    (void)detail;
    if (event == VIR_DOMAIN_EVENT_DEFINED || event == VIR_DOMAIN_EVENT_UNDEFINED ||
        event == VIR_DOMAIN_EVENT_STARTED || event == VIR_DOMAIN_EVENT_STOPPED) {
        read_domain(user, domain);
    }
    return 0;
}

static void on_close(virConnectPtr connection, int reason, void *user)
{
    struct watch *w = user;

    (void)connection;
    weir_log_warn("libvirt: connection lost reason=%d", reason);
    w->lost = true;
}

static void on_supervisor(int watch, int fd, int events, void *user)
{
    struct watch *w = user;

    (void)watch;
    (void)fd;
    (void)events;
    w->parted =
        true; /* the supervisor never sends, so any event means that it has closed its end */
}

/* libvirt has one type for the callbacks of all events; compilers accept a cast through void
 * (*)(void). */
#define CALLBACK(f) VIR_DOMAIN_EVENT_CALLBACK((void (*)(void))(f))

static bool follow(struct watch *w)
{
    return virConnectRegisterCloseCallback(w->connection, on_close, w, NULL) == 0 &&
           virConnectDomainEventRegisterAny(w->connection, NULL,
                                            VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
                                            CALLBACK(on_metadata), w, NULL) >= 0 &&
           virConnectDomainEventRegisterAny(w->connection, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
                                            CALLBACK(on_lifecycle), w, NULL) >= 0;
}

/* Subscribe to events first, so that no change falls in between. */
static bool read_all(struct watch *w)
{
    virDomainPtr *domains = NULL;

    WEIR_FAIL_IF(!follow(w), false);
    int n = virConnectListAllDomains(w->connection, &domains, 0);
    for (int i = 0; i < n; i++) {
        read_domain(w, domains[i]);
        virDomainFree(domains[i]);
    }
    free(domains);
    return n >= 0;
}

static void part(struct watch *w)
{
    if (w->connection) {
        (void)virConnectUnregisterCloseCallback(w->connection, on_close);
        (void)virConnectClose(w->connection);
        w->connection = NULL;
    }
    w->lost = false;
}

static bool connect_to(struct watch *w, const char *uri, bool complain)
{
    w->connection = virConnectOpenReadOnly(uri);
    if (w->connection) {
        (void)virConnectSetKeepAlive(w->connection, KEEPALIVE_S, KEEPALIVE_COUNT);
        if (read_all(w)) {
            weir_log_info("libvirt: connected uri=%s", uri);
            return true;
        }
    }
    if (complain) {
        const char *why = virGetLastErrorMessage();

        weir_log_warn("libvirt: cannot connect, trying on uri=%s why=\"%.150s\"", uri, why);
    }
    part(w);
    return false;
}

/* Returns true if the supervisor is gone. */
static bool pause_ms(int ms)
{
    struct pollfd link = {WEIR_LIBVIRT_FD, POLLIN, 0};

    return poll(&link, 1, ms) > 0;
}

int main(int argc, char **argv)
{
    struct watch w = {.connection = NULL};
    int wait_ms = RETRY_FIRST_MS;
    bool complain = true;

    if (argc != 3 || weir_log_init(argv[2], "libvirt") != WEIR_OK) {
        fprintf(stderr, "weir-libvirt: weir serve starts this, with [libvirt] uri in weir.toml\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    virSetErrorFunc(NULL, no_print);
    xmlInitParser();
    if (virInitialize() < 0 || virEventRegisterDefaultImpl() < 0 ||
        virEventAddHandle(WEIR_LIBVIRT_FD, VIR_EVENT_HANDLE_READABLE, on_supervisor, &w, NULL) <
            0) {
        weir_log_error("libvirt: cannot begin");
        return 1;
    }
    while (!w.parted) {
        if (!w.connection) {
            if (connect_to(&w, argv[1], complain)) {
                wait_ms = RETRY_FIRST_MS;
                complain = true;
                continue;
            }
            complain = false;
            w.parted |= pause_ms(wait_ms);
            wait_ms = wait_ms * 2 < RETRY_LAST_MS ? wait_ms * 2 : RETRY_LAST_MS;
        } else if (virEventRunDefaultImpl() < 0 || w.lost) {
            part(&w);
        }
    }
    /* Do not call virConnectClose(): the end of this process closes the connection. If the process
     * is killed during that call (PR_SET_PDEATHSIG), two threads of libvirtd 9.0 free the same
     * callbacks, and libvirtd may crash. */
    return 0;
}
