/* Loads the host's settings at its start and at a reload: weir.toml and the command line. */
#include "host_backend/supervisor/admin.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

/* Replace values of the file by those of the command line. */
static void override(struct weir_host_config *config, const struct weir_serve_params *params)
{
    const struct {
        char *to;
        const char *from;
    } texts[] = {
        {config->run_dir, params->run_dir},        {config->listen_tcp, params->listen_tcp},
        {config->driver, params->driver},          {config->log, params->log},
        {config->metrics_listen, params->metrics}, {config->cdi, params->cdi}};

    for (size_t i = 0; i < WEIR_COUNT(texts); i++) {
        if (texts[i].from) {
            snprintf(texts[i].to, WEIR_CONFIG_PATH_BYTES, "%s", texts[i].from);
        }
    }
    if (params->softgpu && config->softgpu[0] == 0) { /* where it was found is no wish */
        snprintf(config->softgpu, sizeof config->softgpu, "%s", params->softgpu);
    }
    if (params->no_softgpu && strcmp(config->driver, "auto") == 0) {
        snprintf(config->driver, sizeof config->driver, "nvidia");
    }
    if (params->window_base != 0) {
        config->window_base = params->window_base;
    }
    if (params->window_bytes != 0) {
        config->window_bytes = params->window_bytes;
    }
}

enum weir_status weir_sup_load(const struct weir_serve_params *params,
                               struct weir_host_config *config)
{
    struct weir_diag diag = {0};
    enum weir_status status;

    if (!params->config_path) {
        weir_config_default(config);
        status = WEIR_OK;
    } else {
        status = weir_config_load(params->config_path, config, &diag);
    }
    if (status == WEIR_ERR_SYNTAX && diag.line == 0) { /* about several keys, which may be absent */
        fprintf(stderr, "%s: %s\n", params->config_path, diag.message);
    } else if (status == WEIR_ERR_SYNTAX) {
        fprintf(stderr, "%s:%u:%u: %s\n", params->config_path, diag.line, diag.column,
                diag.message);
    } else if (status != WEIR_OK) {
        fprintf(stderr, "%s: %s\n", params->config_path, weir_status_text(status));
    } else {
        override(config, params);
        if (!weir_config_areas_ok(config, &diag)) {
            fprintf(stderr, "weir serve: %s\n", diag.message);
            status = WEIR_ERR_INVALID;
        }
    }
    if (status == WEIR_OK && params->policy) {
        if (strlen(params->policy) >= sizeof config->scheduler.policy ||
            !weir_config_policy_ok(params->policy, &diag)) {
            fprintf(stderr, "weir serve: --policy '%s': %s\n", params->policy, diag.message);
            return WEIR_ERR_INVALID;
        }
        snprintf(config->scheduler.policy, sizeof config->scheduler.policy, "%s", params->policy);
    }
    if (status == WEIR_OK && params->devices &&
        weir_devices_parse(params->devices, config->devices) != WEIR_OK) {
        fprintf(stderr, "weir serve: --devices '%s': a list such as 0,1 or GPU-4a8f is wanted\n",
                params->devices);
        return WEIR_ERR_INVALID;
    }
    for (uint32_t i = 0; status == WEIR_OK && i < config->n_tenants; i++) {
        if (!weir_tenant_devices_ok(&config->tenants[i], config)) {
            fprintf(stderr, "weir serve: tenant '%s' has devices that the host has not\n",
                    config->tenants[i].name);
            return WEIR_ERR_INVALID;
        }
    }
    if (status == WEIR_OK && !weir_config_cdi_ok(config->cdi)) {
        fprintf(stderr,
                "weir serve: cdi must be \"none\" or an absolute path that ends in .json\n");
        return WEIR_ERR_INVALID;
    }
    if (status == WEIR_OK && !weir_sup_metrics_ok(config->metrics_listen)) {
        fprintf(stderr,
                "weir serve: metrics '%s': a socket's path is wanted, or ADDRESS:PORT with a "
                "numeric address, localhost or *\n",
                config->metrics_listen);
        return WEIR_ERR_INVALID;
    }
    if (status == WEIR_OK && config->listen_tcp[0] != 0 &&
        !weir_sup_address_ok(weir_sup_tcp_address(config))) {
        fprintf(stderr,
                "weir serve: listen_tcp '%s': ADDRESS:PORT is wanted, with a numeric address, "
                "localhost or *\n",
                config->listen_tcp);
        return WEIR_ERR_INVALID;
    }
    if (status == WEIR_OK && config->listen_tcp[0] != 0 && config->server_key[0] == 0) {
        fprintf(stderr,
                "weir serve: listen_tcp, or --listen, needs server_key in [host] of weir.toml "
                "(see weir keygen)\n");
        return WEIR_ERR_INVALID;
    }
    return status;
}

bool weir_sup_open_log(struct weir_supervisor *sup)
{
    const char *log = sup->config.log, *path = strchr(log, ':');
    char level[WEIR_CONFIG_PATH_BYTES];
    enum weir_status status = WEIR_OK;

    if (weir_log_level() != WEIR_LOG_NONE && sup->extras.of[WEIR_EXTRA_LOG].why[0] == 0) {
        return true; /* the log is open */
    }
    snprintf(level, sizeof level, "%.*s", (int)strcspn(log, ":"), log);
    status = weir_log_init(sup->params.check_only ? level : log, "weir serve");
    if (status == WEIR_ERR_INVALID) {
        fprintf(
            stderr,
            "weir serve: log '%s': LEVEL or LEVEL:FILE is wanted; levels are none, error, warn, "
            "info and debug\n",
            log);
        return false;
    }
    if (status != WEIR_OK && weir_log_init(level, "weir serve") == WEIR_OK) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_LOG, "'%.80s' cannot be opened for writing", path + 1);
    } else if (path && !sup->params.check_only) {
        weir_sup_extra_works(sup, WEIR_EXTRA_LOG);
    }
    return true;
}
