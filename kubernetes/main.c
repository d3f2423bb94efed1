/*
 * weir-dra: gives Kubernetes' pods shares of a Weir host, as a driver of dynamic resource
 * allocation. docs/kubernetes.md.
 */
#include "kubernetes/dra.h"

#include "base/log.h"
#include "base/thread.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_USAGE    2
#define SLOTS_USUAL   4
#define SLOTS_DEVICES 64 /* a slice has so many devices at most, where one has taints */

static struct weir_dra *the_dra; /* for the signals' handler */

static const char help[] =
    "Usage: weir-dra --node NAME [OPTIONS]\n\n"
    "Give Kubernetes' pods shares of the Weir host of this node: docs/kubernetes.md.\n\n"
    "  --node NAME          the node's name in the cluster\n"
    "  --run-dir DIR        where the host's sockets are (default /run/weir)\n"
    "  --state-dir DIR      where prepared claims are kept (default /var/lib/weir/claims)\n"
    "  --kubelet-dir DIR    kubelet's folder (default /var/lib/kubelet)\n"
    "  --max-weight N       the most that a claim's own parameters may ask for (default 100)\n"
    "  --max-priority CLASS likewise: low, normal or high (default normal)\n"
    "  --slots N            slots of a GPU where the cluster does not count capacity (default 4)\n"
    "  --server URL         the API server (default: a pod's service account)\n"
    "  --ca FILE            its certificate authority\n"
    "  --token FILE         a token for it, or\n"
    "  --cert FILE --key FILE   a certificate\n"
    "  --log LEVEL          error, warn, info or debug (default info)\n"
    "  --help, --version\n";

/* Signals do nothing but end the loop. */
static void on_signal(int number)
{
    (void)number;
    weir_grpc_stop(the_dra->server);
}

static bool number(const char *name, const char *text, unsigned long most, uint32_t *ret)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != 0 || value < 1 || value > most) {
        fprintf(stderr, "weir-dra: --%s '%s' is not a number of 1 .. %lu\n", name, text, most);
        return false;
    }
    *ret = (uint32_t)value;
    return true;
}

/* @return false: the exit status is there */
static bool parse(int argc, char **argv, struct weir_dra *dra, const char **ret_log, int *ret_exit)
{
    enum {
        NODE,
        RUN,
        STATE,
        KUBELET,
        WEIGHT,
        PRIORITY,
        SLOTS,
        SERVER,
        CA,
        TOKEN,
        CERT,
        KEY,
        LOG,
        HELP,
        VERSION
    };
    static const struct option options[] = {{"node", 1, NULL, NODE},
                                            {"run-dir", 1, NULL, RUN},
                                            {"state-dir", 1, NULL, STATE},
                                            {"kubelet-dir", 1, NULL, KUBELET},
                                            {"max-weight", 1, NULL, WEIGHT},
                                            {"max-priority", 1, NULL, PRIORITY},
                                            {"slots", 1, NULL, SLOTS},
                                            {"server", 1, NULL, SERVER},
                                            {"ca", 1, NULL, CA},
                                            {"token", 1, NULL, TOKEN},
                                            {"cert", 1, NULL, CERT},
                                            {"key", 1, NULL, KEY},
                                            {"log", 1, NULL, LOG},
                                            {"help", 0, NULL, HELP},
                                            {"version", 0, NULL, VERSION},
                                            {NULL, 0, NULL, 0}};
    const char **texts[] = {[RUN] = &dra->options.run_dir,
                            [STATE] = &dra->options.state_dir,
                            [KUBELET] = &dra->options.kubelet,
                            [SERVER] = &dra->api.server,
                            [CA] = &dra->api.ca,
                            [TOKEN] = &dra->api.token,
                            [CERT] = &dra->api.cert,
                            [KEY] = &dra->api.key,
                            [LOG] = ret_log};
    bool good = true;
    int option;

    *ret_exit = EXIT_USAGE;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == HELP || option == VERSION) {
            fputs(option == HELP ? help : "weir-dra " WEIR_VERSION "\n", stdout);
            *ret_exit = 0;
            return false;
        }
        if (option == NODE) {
            good = (size_t)snprintf(dra->node.name, sizeof dra->node.name, "%s", optarg) <
                   sizeof dra->node.name;
        } else if (option == WEIGHT) {
            good = number("max-weight", optarg, 10000, &dra->node.max_weight);
        } else if (option == SLOTS) {
            good = number("slots", optarg, SLOTS_DEVICES, &dra->options.slots);
        } else if (option == PRIORITY) {
            good = weir_priority_find(optarg, &dra->node.max_priority);
            fputs(good ? "" : "weir-dra: --max-priority is one of: low, normal, high\n", stderr);
        } else if (option == '?') {
            good = false;
        } else {
            *texts[option] = optarg;
        }
    }
    if (good && (optind < argc || dra->node.name[0] == 0)) {
        fputs("weir-dra: --node NAME is wanted, and nothing besides options (--help)\n", stderr);
        good = false;
    }
    return good;
}

/* Make a folder, and those above it. */
static bool make_folders(const char *path, mode_t mode)
{
    char part[256];

    for (size_t i = 1; i < sizeof part && path[i - 1] != 0; i++) {
        if (path[i] != '/' && path[i] != 0) {
            continue;
        }
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, path[i] == 0 ? mode : 0755) != 0 && errno != EEXIST) {
            fprintf(stderr, "weir-dra: %s: %s\n", part, strerror(errno));
            return false;
        }
    }
    return true;
}

static bool listen_there(struct weir_dra *dra)
{
    const char *kubelet = dra->options.kubelet;
    char folder[200], registry[200];

    snprintf(folder, sizeof folder, "%s/plugins/" WEIR_KUBE_DRIVER, kubelet);
    snprintf(registry, sizeof registry, "%s/plugins_registry/" WEIR_KUBE_DRIVER "-reg.sock",
             kubelet);
    snprintf(dra->endpoint, sizeof dra->endpoint, "%s/plugins/" WEIR_KUBE_DRIVER "/dra.sock",
             kubelet);
    /* The registration last: kubelet comes as soon as it sees that socket. */
    if (make_folders(folder, 0750) && weir_grpc_listen(dra->server, dra->endpoint) == WEIR_OK &&
        weir_grpc_listen(dra->server, registry) == WEIR_OK) {
        return true;
    }
    fprintf(stderr,
            "weir-dra: cannot listen in %s/plugins and %s/plugins_registry: is it "
            "kubelet's folder?\n",
            kubelet, kubelet);
    return false;
}

/* Let requests end, which fail soon now. */
static void finish(struct weir_dra *dra)
{
    pthread_mutex_lock(&dra->lock);
    dra->stops = true;
    weir_dra_changed_locked(dra);
    pthread_mutex_unlock(&dra->lock);
}

static bool serve(struct weir_dra *dra)
{
    const struct sigaction action = {.sa_handler = on_signal};
    pthread_t thread;

    if (weir_grpc_create(weir_dra_methods, dra, &dra->server) != WEIR_OK) {
        fputs("weir-dra: out of memory or descriptors\n", stderr);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (!listen_there(dra) || weir_thread_start(&thread, 0, weir_dra_host_thread, dra) != 0 ||
        pthread_detach(thread) != 0 ||
        weir_thread_start(&thread, 0, weir_dra_publish_thread, dra) != 0 ||
        pthread_detach(thread) != 0) {
        weir_grpc_destroy(dra->server);
        return false;
    }
    weir_log_info("weir-dra: serves node=%s", dra->node.name);
    weir_grpc_run(dra->server, weir_dra_tick);
    finish(dra);
    return true;
}

int main(int argc, char **argv)
{
    static struct weir_dra dra = {
        .options = {.state_dir = "/var/lib/weir/claims",
                    .kubelet = "/var/lib/kubelet",
                    .slots = SLOTS_USUAL},
        .node = {.max_weight = 100, .max_priority = WEIR_PRIORITY_NORMAL, .taints = true}};
    const char *log = "info";
    int exit_status;

    the_dra = &dra;
    if (!parse(argc, argv, &dra, &log, &exit_status)) {
        return exit_status;
    }
    if (weir_log_init(log, "weir-dra") != WEIR_OK) {
        fprintf(stderr, "weir-dra: --log '%s' is no level\n", log);
        return EXIT_USAGE;
    }
    if (!weir_api_open(&dra.api)) {
        fputs("weir-dra: no API server: this is no pod, so --server is wanted\n", stderr);
        return EXIT_USAGE;
    }
    pthread_mutex_init(&dra.lock, NULL);
    weir_thread_condition_init(&dra.changed);
    if (!make_folders(dra.options.state_dir, 0700) || !serve(&dra)) {
        return EXIT_FAILURE;
    }
    /* Other threads may wait for the host or the API server: they end with the process. kubelet
     * unregisters a driver whose sockets are gone. */
    weir_grpc_unlink(dra.server);
    _exit(EXIT_SUCCESS);
}
