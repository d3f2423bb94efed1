#include "host_backend/config/control.h"
#include "host_backend/keeper/keep.h"
#include "tools/command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

int weir_cmd_worker(int argc, char **argv)
{
    return weir_worker_main(argc, argv);
}

int weir_cmd_gate(int argc, char **argv)
{
    return weir_gate_main(argc, argv);
}

int weir_cmd_keep(int argc, char **argv)
{
    return weir_keeper_main(argc, argv);
}

int weir_cmd_serve(int argc, char **argv)
{
    struct weir_serve_params params = {.check_only = false};
    const char *window_base = NULL;
    const char *window_bytes = NULL;
    const char *log = getenv("WEIR_LOG");
    const struct weir_option options[] = {
        {"config", "FILE", "tenants and settings (weir.toml(5)); default: one tenant \"default\"",
         &params.config_path, NULL},
        {"run-dir", "DIR", "where the sockets go (default /run/weir)", &params.run_dir, NULL},
        {"listen", "ADDRESS:PORT", "also serve remote guests over TCP", &params.listen_tcp, NULL},
        {"metrics", "WHERE", "serve GET /metrics at ADDRESS:PORT or a socket's path (Prometheus)",
         &params.metrics, NULL},
        {"driver", "NAME", "auto, nvidia, softgpu, or the path of a libcuda.so (default auto)",
         &params.driver, NULL},
        {"policy", "LIST", "of the scheduler, such as fair,corun; or off (default: fair,corun)",
         &params.policy, NULL},
        {"devices", "LIST", "ordinals or UUIDs of the GPUs, such as 0,1 (default: all)",
         &params.devices, NULL},
        {"device", "N", "the same for one GPU", &params.devices, NULL},
        {"cdi", "FILE", "where to write the CDI specification for containers, or none", &params.cdi,
         NULL},
        {"window-base", "ADDRESS", "address of the first tenant's window", &window_base, NULL},
        {"window-bytes", "SIZE", "size of each tenant's window (default 1T)", &window_bytes, NULL},
        {"log", "LEVEL[:FILE]", "error, warn, info (default) or debug", &log, NULL},
        {"no-softgpu", NULL, "with driver auto: fail where there is no NVIDIA GPU", NULL,
         &params.no_softgpu},
        {"check", NULL,
         "look whether configuration, devices and sockets are good, say what is not, and stop",
         NULL, &params.check_only},
        {"end", NULL, "take over what the last host has left running, end it in order, and stop",
         NULL, &params.end},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Own the GPUs and serve tenants until SIGTERM or SIGINT.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    long long number;
    unsigned long long bytes;
    if (window_base) {
        if (!weir_option_number("window-base", window_base, 1 << 21, 1ll << 47, &number)) {
            return WEIR_EXIT_USAGE;
        }
        params.window_base = (uint64_t)number;
    }
    if (window_bytes) {
        if (!weir_option_bytes("window-bytes", window_bytes, &bytes)) {
            return WEIR_EXIT_USAGE;
        }
        params.window_bytes = bytes;
    }
    params.log = log;
    params.check_host = params.check_only;
    char guest_lib[PATH_MAX];
    char softgpu[PATH_MAX];
    params.guest_lib = weir_path_guest_lib(guest_lib, sizeof(guest_lib)) ? guest_lib : NULL;
    params.softgpu = weir_path_softgpu(softgpu, sizeof(softgpu)) ? softgpu : NULL;
    char libvirt[PATH_MAX];
    params.libvirt = weir_path_libvirt(libvirt, sizeof(libvirt)) ? libvirt : NULL;
    char oci_hook[PATH_MAX];
    params.oci_hook = weir_path_oci_hook(oci_hook, sizeof(oci_hook)) ? oci_hook : NULL;
    return weir_serve_main(&params);
}
