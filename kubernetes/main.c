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
#define KUBELET_BYTES 64 /* for the path of kubelet's folder: a socket's path has 108 */
#define SLOTS_DEVICES 64 /* most devices of a slice if one of them has taints */

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
    "  --device-plugin      be a device plugin, for clusters without claims: resource "
    "weir.dev/gpu\n"
    "  --server URL         the API server (default: a pod's service account)\n"
    "  --ca FILE            its certificate authority\n"
    "  --token FILE         a token for it\n"
    "  --help, --version\n";

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

/* @return false: the program should end with *ret_exit */
static bool parse(int argc, char **argv, struct weir_dra *dra, int *ret_exit)
{
    enum { RUN, STATE, KUBELET, SERVER, CA, TOKEN, N_TEXTS };
    enum { NODE = N_TEXTS, WEIGHT, PRIORITY, SLOTS, PLUGIN, HELP };
    static const struct option options[] = {{"run-dir", 1, NULL, RUN},
                                            {"state-dir", 1, NULL, STATE},
                                            {"kubelet-dir", 1, NULL, KUBELET},
                                            {"server", 1, NULL, SERVER},
                                            {"ca", 1, NULL, CA},
                                            {"token", 1, NULL, TOKEN},
                                            {"node", 1, NULL, NODE},
                                            {"max-weight", 1, NULL, WEIGHT},
                                            {"max-priority", 1, NULL, PRIORITY},
                                            {"slots", 1, NULL, SLOTS},
                                            {"device-plugin", 0, NULL, PLUGIN},
                                            {"help", 0, NULL, HELP},
                                            {"version", 0, NULL, HELP + 1},
                                            {NULL, 0, NULL, 0}};
    const char **const texts[N_TEXTS] = {&dra->run_dir,    &dra->state_dir, &dra->kubelet,
                                         &dra->api.server, &dra->api.ca,    &dra->api.token};
    bool good = true;
    int option;

    *ret_exit = EXIT_USAGE;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == HELP || option == HELP + 1) {
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
            good = number("slots", optarg, SLOTS_DEVICES, &dra->slots);
        } else if (option == PRIORITY) {
            good = weir_priority_find(optarg, &dra->node.max_priority);
            fputs(good ? "" : "weir-dra: --max-priority is one of: low, normal, high\n", stderr);
        } else if (option == PLUGIN) {
            dra->is_plugin = true;
        } else if (option == '?') {
            good = false;
        } else {
            *texts[option] = optarg;
        }
    }
    if (good && strlen(dra->kubelet) >= KUBELET_BYTES) {
        fputs("weir-dra: --kubelet-dir is too long for the sockets in it\n", stderr);
        good = false;
    }
    if (good && (optind < argc || dra->node.name[0] == 0)) {
        fputs("weir-dra: --node NAME is wanted, and nothing besides options (--help)\n", stderr);
        good = false;
    }
    return good;
}

static bool make_folder(const char *path)
{
    if (mkdir(path, 0700) == 0 || errno == EEXIST) {
        return true;
    }
    fprintf(stderr, "weir-dra: %s: %s\n", path, strerror(errno));
    return false;
}

/* Begin with all threads. */
static bool serve(struct weir_dra *dra)
{
    const char *kubelet = dra->kubelet;
    char folder[KUBELET_BYTES + 40];
    pthread_t thread;

    snprintf(folder, sizeof folder, "%s/plugins/" WEIR_KUBE_DRIVER, kubelet);
    snprintf(dra->endpoint, sizeof dra->endpoint, "%s/%s", kubelet,
             dra->is_plugin ? weir_plugin_endpoint : "plugins/" WEIR_KUBE_DRIVER "/dra.sock");
    snprintf(dra->registry, sizeof dra->registry,
             "%s/plugins_registry/" WEIR_KUBE_DRIVER "-reg.sock", kubelet);
    dra->node.slots = dra->is_plugin ? dra->slots : 0;
    if (!make_folder(dra->state_dir) ||
        weir_thread_start(&thread, 0, weir_dra_host_thread, dra) != 0) {
        return false;
    }
    if (dra->is_plugin) {
        return weir_thread_start(&thread, 0, weir_plugin_thread, dra) == 0;
    }
    /* Open the registration socket last: kubelet connects as soon as it sees it. */
    if (!make_folder(folder) ||
        weir_grpc_listen(dra->endpoint, weir_dra_methods, dra, NULL) != WEIR_OK ||
        weir_grpc_listen(dra->registry, weir_dra_methods, dra, NULL) != WEIR_OK) {
        fprintf(stderr,
                "weir-dra: cannot listen in %s/plugins and plugins_registry: is it kubelet's "
                "folder?\n",
                kubelet);
        return false;
    }
    return weir_thread_start(&thread, 0, weir_dra_publish_thread, dra) == 0;
}

int main(int argc, char **argv)
{
    static struct weir_dra dra = {
        .state_dir = "/var/lib/weir/claims",
        .kubelet = "/var/lib/kubelet",
        .slots = SLOTS_USUAL,
        .node = {.max_weight = 100, .max_priority = WEIR_PRIORITY_NORMAL, .taints = true}};
    sigset_t ends;
    int exit_status, number_of;

    if (!parse(argc, argv, &dra, &exit_status)) {
        return exit_status;
    }
    if (weir_log_init("info", "weir-dra") != WEIR_OK) {
        return EXIT_FAILURE;
    }
    if (!weir_api_open(&dra.api) && !dra.is_plugin) {
        fputs("weir-dra: no API server: this is no pod, so --server is wanted\n", stderr);
        return EXIT_USAGE;
    }
    pthread_mutex_init(&dra.lock, NULL);
    weir_thread_condition_init(&dra.changed);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    if (!serve(&dra)) {
        return EXIT_FAILURE;
    }
    weir_log_info("weir-dra: serves node=%s", dra.node.name);
    sigwait(&ends, &number_of);
    /* Threads may wait for the host or the API server: they end with the process. kubelet
     * unregisters a driver whose sockets are gone. */
    unlink(dra.registry);
    unlink(dra.endpoint);
    _exit(EXIT_SUCCESS);
}
