/*
 * The gate process: it handles the supervisor's messages, which come over the same kind of link as
 * a worker's (host_backend/config/link.h).
 *
 * The gate process makes the ports. The supervisor asks for one when it starts a worker, and passes
 * the two descriptors on. So no worker has the port of another.
 */
#include "host_backend/gate/process/process.h"

#include "base/crash.h"
#include "base/log.h"
#include "host_backend/config/control.h"
#include "host_backend/config/link.h"
#include "host_backend/config/status_text.h"
#include "host_backend/confine/confine.h"
#include "host_backend/gate/port.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define WORDS_MAX 8

struct host {
    int link;
    bool stop;
    struct weir_link_config config;
    struct weir_spin_page *spin;
    struct weir_gate_process *process;
};

static void reply(const struct host *host, const struct weir_link_message *message, int fd)
{
    (void)!weir_link_send(host->link, message, fd); /* receive() reports a lost link */
}

/* ---------------------------------------------------------------- ports */

static void on_port(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_gate_port *wanted = &heard->message.gate_port;
    struct weir_link_message message = {.type = WEIR_LINK_GATE_PORT, .gate_port = *wanted};
    int fd, bell;

    enum weir_status status = weir_gate_port_create(&fd, &bell);
    if (status == WEIR_OK) {
        status = weir_gate_process_port_add(host->process, wanted->id, wanted->tenant,
                                            wanted->domain, fd, bell);
        if (status == WEIR_OK) {
            reply(host, &message, fd);
            message.type = WEIR_LINK_GATE_BELL;
            reply(host, &message, bell);
        }
        close(fd);
        close(bell);
    }
    if (status != WEIR_OK) {
        weir_log_error("gate: no port for a worker port=%u why=\"%s\"", wanted->id,
                       weir_status_text(status));
        reply(host, &message, -1);
    }
}

static void on_port_tenant(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_gate_port *port = &heard->message.gate_port;

    weir_gate_process_port_tenant(host->process, port->id, port->tenant);
}

static void on_port_gone(struct host *host, struct weir_link_heard *heard)
{
    weir_gate_process_port_remove(host->process, heard->message.gate_port.id);
}

/* ---------------------------------------------------------------- tenants */

static void on_tenant(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_tenant *tenant = &heard->message.tenant;

    if (tenant->index < WEIR_CONFIG_TENANTS_MAX) {
        weir_gate_process_tenant_set(host->process, tenant->index, &tenant->config);
    }
}

static void on_tenant_gone(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_tenant *tenant = &heard->message.tenant;

    if (tenant->index < WEIR_CONFIG_TENANTS_MAX) {
        weir_gate_process_tenant_remove(host->process, tenant->index);
    }
}

/* Send a file with the rows of weir-stats(1), or none if it could not be made. */
static void on_stats(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_message message = {.type = WEIR_LINK_STATUS_END};
    struct weir_status_prediction row = {0};
    FILE *out = weir_status_text_file();

    (void)heard;
    if (!out) {
        reply(host, &message, -1);
        return;
    }
    for (uint32_t i = 0; weir_gate_process_prediction(host->process, i, &row); i++) {
        weir_status_text_prediction(out, &row);
    }
    fflush(out);
    reply(host, &message, fileno(out));
    fclose(out);
}

static void tell_use(void *user, const struct weir_link_use *use)
{
    const struct weir_link_message message = {.type = WEIR_LINK_USE, .use = *use};

    reply(user, &message, -1);
}

static void on_status(struct host *host, struct weir_link_heard *heard)
{
    struct weir_link_message message = {.type = WEIR_LINK_ROW_DEVICE};

    (void)heard;
    for (uint32_t i = 0; weir_gate_process_device(host->process, i, &message.device_row); i++) {
        reply(host, &message, -1);
    }
    weir_gate_process_uses(host->process, tell_use, host);

    message = (struct weir_link_message){.type = WEIR_LINK_ROW_TENANT};
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (weir_gate_process_usage(host->process, i, &message.tenant_row)) {
            reply(host, &message, -1);
        }
    }
    message = (struct weir_link_message){.type = WEIR_LINK_STATUS_END};
    reply(host, &message, -1);
}

/* ---------------------------------------------------------------- requests */

/* Handle "trace start DEVICE", which comes with a file, and "trace stop". */
static void on_trace(const struct host *host, char **words, size_t n_words,
                     struct weir_link_heard *heard, char *answer, size_t answer_bytes)
{
    char *end;

    if (n_words == 2 && strcmp(words[1], "stop") == 0) {
        weir_gate_process_trace_stop(host->process, answer, answer_bytes);
        return;
    }
    unsigned long device = n_words == 3 ? strtoul(words[2], &end, 10) : 0;
    if (n_words != 3 || strcmp(words[1], "start") != 0 || words[2][0] < '0' || words[2][0] > '9' ||
        *end != 0 || heard->fd < 0) {
        snprintf(answer, answer_bytes, "error: start, a device and a file are wanted, or stop");
        return;
    }
    weir_gate_process_trace_start(host->process, device, weir_link_take_fd(heard), answer,
                                  answer_bytes);
}

static void on_request(struct host *host, struct weir_link_heard *heard)
{
    struct weir_link_text *request = &heard->message.text;
    struct weir_link_message message = {.type = WEIR_LINK_ANSWER};
    char *words[WORDS_MAX], *rest = NULL;
    size_t n = 0;

    request->text[sizeof request->text - 1] = 0;
    message.text.client = request->client;
    for (char *word = strtok_r(request->text, "\t", &rest); word && n < WORDS_MAX;
         word = strtok_r(NULL, "\t", &rest)) {
        words[n++] = word;
    }
    if (n != 0 && strcmp(words[0], "trace") == 0) {
        on_trace(host, words, n, heard, message.text.text, sizeof message.text.text);
    }
    reply(host, &message, -1);
}

/* ---------------------------------------------------------------- the link */

/* Apply a new configuration. main() has read the first one at the start. */
static void on_config(struct host *host, struct weir_link_heard *heard)
{
    const struct weir_link_config *config = &heard->message.config;
    struct weir_policy_set policies;

    if (weir_policy_set_parse(config->scheduler.policy, &policies, NULL) == WEIR_OK) {
        weir_gate_process_policies_set(host->process, &policies);
        weir_log_info("gate: policy=\"%s\"", config->scheduler.policy);
    }
}

static void on_gpu(struct host *host, struct weir_link_heard *heard)
{
    weir_gate_process_gpu(host->process, &heard->message.gpu);
}

static void on_times(struct host *host, struct weir_link_heard *heard)
{
    if (heard->fd >= 0) {
        weir_gate_process_times(host->process, weir_link_take_fd(heard));
    }
}

static void on_ping(struct host *host, struct weir_link_heard *heard)
{
    reply(host, &heard->message, -1);
}

static void on_stop(struct host *host, struct weir_link_heard *heard)
{
    (void)heard;
    host->stop = true;
}

static void (*const handlers[WEIR_LINK_COUNT])(struct host *host, struct weir_link_heard *heard) = {
#define NO NULL
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about)                          \
    [WEIR_LINK_##message] = gate,
#include "host_backend/config/link.def"
#undef WEIR_LINK
#undef NO
};

/* Handle a message of the supervisor. @return false: stop. */
static bool on_message(void *user)
{
    struct host *host = user;
    struct weir_link_heard heard;
    enum weir_status status = weir_link_receive(host->link, &heard.message, &heard.fd);
    uint32_t type = heard.message.type;

    if (status == WEIR_ERR_NO_MEMORY) {
        weir_log_error("gate: no descriptors left, a message came without its own type=%u", type);
    } else if (status != WEIR_OK) {
        return false;
    }
    if (type < WEIR_LINK_COUNT && handlers[type]) {
        handlers[type](host, &heard);
    } else {
        weir_log_warn("gate: unknown message type=%u", type);
    }
    weir_link_finish(&heard);
    return !host->stop;
}

static int open_host(struct host *host)
{
    struct weir_gate_process_params params = {.settings = &host->config.scheduler};
    struct weir_link_message message;
    struct weir_policy_set policies;
    int fd;

    if (weir_link_receive(host->link, &message, &fd) != WEIR_OK ||
        message.type != WEIR_LINK_CONFIG) {
        return WEIR_WORKER_EXIT_USAGE;
    }
    host->config = message.config;
    if (weir_spin_page_map(fd, &host->spin) != WEIR_OK) {
        return WEIR_WORKER_EXIT_USAGE;
    }
    close(fd);
    weir_log_for_reader();
    if (weir_log_init(host->config.log, NULL) != WEIR_OK ||
        weir_policy_set_parse(host->config.scheduler.policy, &policies, NULL) != WEIR_OK) {
        return WEIR_WORKER_EXIT_USAGE;
    }
    if (weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_NONE) != WEIR_OK) {
        weir_log_warn("gate: the kernel does not refuse it system calls");
    }
    params.policies = &policies;
    params.spin = host->spin;
    return weir_gate_process_create(&params, &host->process) == WEIR_OK ? WEIR_WORKER_EXIT_OK
                                                                        : WEIR_WORKER_EXIT_FAILED;
}

int weir_gate_main(int argc, char **argv)
{
    struct host *host = calloc(1, sizeof *host);

    (void)argv;
    if (!host || argc > 1) {
        fprintf(stderr, "weir gate: started by weir serve, not by hand\n");
        free(host);
        return WEIR_WORKER_EXIT_USAGE;
    }
    (void)prctl(PR_SET_NAME, "weir-gate");
    weir_crash_init();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* a terminal and systemd signal all; the supervisor decides */
    signal(SIGTERM, SIG_IGN);
    host->link = WEIR_LINK_FD;
    int result = open_host(host);
    if (result == WEIR_WORKER_EXIT_OK) {
        result = weir_gate_process_run(host->process, host->link, on_message, host) == WEIR_OK
                     ? WEIR_WORKER_EXIT_OK
                     : WEIR_WORKER_EXIT_FAILED;
    }
    weir_gate_process_destroy(host->process);
    free(host);
    return result;
}
