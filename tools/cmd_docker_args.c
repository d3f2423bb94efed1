/* weir docker-args: arguments with which `docker run` gives a container a tenant without CDI. */
#include "container/cdi.h"
#include "container/docker_args.h"
#include "host_backend/config/control.h"
#include "tools/command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A user who may not read the host's folders still gets an answer, since docker's daemon may read
 * them. */
static bool tenant_is_there(const char *run_dir, const char *tenant)
{
    char folder[PATH_MAX], path[PATH_MAX + sizeof("/default.sock")];
    struct stat info;

    if (!weir_cdi_name_ok(tenant) ||
        weir_container_folder(run_dir, tenant, folder, sizeof(folder)) != WEIR_OK) {
        fprintf(stderr, "weir docker-args: '%s' cannot be a container's tenant\n", tenant);
        return false;
    }
    if (stat(folder, &info) != 0 && errno != EACCES &&
        (strcmp(tenant, WEIR_CDI_ALL) == 0 || strcmp(tenant, WEIR_CDI_NEW) == 0)) {
        fprintf(
            stderr,
            "weir docker-args: '%s' is a device that only engines with CDI have (Docker 25, podman "
            "4.1): %s\n",
            tenant,
            strcmp(tenant, WEIR_CDI_ALL) == 0
                ? "name the tenant that it stands for: weir docker-args " WEIR_CDI_ALL_IS
                : "without CDI nothing makes a share for a container: name a tenant");
        return false;
    }
    if (stat(folder, &info) != 0 && errno != EACCES) {
        fprintf(stderr,
                "weir docker-args: %s: no such tenant, or no host that serves containers "
                "(see cdi in weir.toml(5))\n",
                folder);
        return false;
    }
    /* The host leaves the folder behind when it ends. */
    snprintf(path, sizeof(path), "%s/default.sock", folder);
    if (stat(path, &info) != 0 && errno == ENOENT) {
        fprintf(stderr, "weir docker-args: %s: not found (is weir serve running?)\n", path);
        return false;
    }
    return true;
}

static enum weir_status print(const char *guest_lib, const char *run_dir, const char *tenant,
                              const char *service)
{
    struct weir_container_edits *edits = calloc(2, sizeof *edits);
    const struct weir_container_edits *lists[2] = {edits, edits + 1};
    const char *wrong = NULL;
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (edits) {
        status = weir_container_edits_common(guest_lib, WEIR_CONTAINER_NVIDIA_SMI, &edits[0]);
    }
    WEIR_THEN(status, weir_container_edits_tenant(run_dir, tenant, &edits[1]));
    WEIR_THEN(status, service ? weir_docker_compose_write(stdout, service, lists, 2, &wrong)
                              : weir_docker_args_write(stdout, lists, 2, &wrong));
    if (wrong) {
        fprintf(stderr, "weir docker-args: docker could not read '%s' as it is meant\n", wrong);
    } else if (status != WEIR_OK) {
        fprintf(stderr, "weir docker-args: %s\n", weir_status_text(status));
    }
    free(edits);
    return status;
}

int weir_cmd_docker_args(int argc, char **argv)
{
    const char *run_dir = NULL;
    const char *service = NULL;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"compose", "SERVICE", "print a compose file that adds them to a service", &service, NULL},
        {.name = NULL},
    };
    char resolved[PATH_MAX];
    char guest_lib[PATH_MAX];
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] TENANT",
                            "Print the arguments of docker run that give a container a tenant:\n"
                            "docker run $(weir docker-args TENANT) IMAGE",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    run_dir = run_dir ? run_dir : weir_control_default_run_dir();
    if (realpath(run_dir, resolved)) {
        run_dir = resolved;
    }
    if (!tenant_is_there(run_dir, argv[first])) {
        return WEIR_EXIT_FAILED;
    }
    if (!weir_path_guest_lib(guest_lib, sizeof(guest_lib))) {
        fprintf(stderr, "weir docker-args: the guest's libcuda.so.1 is not to be found "
                        "(see weir doctor)\n");
        return WEIR_EXIT_FAILED;
    }
    return print(guest_lib, run_dir, argv[first], service) == WEIR_OK ? WEIR_EXIT_OK
                                                                      : WEIR_EXIT_FAILED;
}
