/*
 * weir-oci-hook RUN_DIR [TENANT]: the createRuntime hook of the devices weir.dev/gpu=...
 *
 * With TENANT it only refuses what would otherwise be ignored: a second device of Weir in the same
 * container, and settings requested for a tenant that the administrator has made.
 *
 * Without TENANT the device is "new". A runtime executes the hook, with the container's state on
 * standard input, when the mounts are in place and the container's first process waits. The hook
 * asks the host for a share that lives as long as that process, and mounts the share's folder over
 * the empty one at /run/weir. If that fails, the container does not start, and the engine shows the
 * hook's standard error. The container's end needs no hook: the host watches the process.
 */
#include "base/fd.h"
#include "container/edits.h"
#include "container/oci/mount.h"
#include "container/oci/state.h"
#include "host_backend/config/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define TEXT_MAX (16u << 20)

/* Report to the machine's log, too, since crun does not show what a hook prints. */
static int fail(const char *why)
{
    syslog(LOG_ERR, "%s", why);
    fprintf(stderr, "weir: %s\n", why);
    return EXIT_FAILURE;
}

static bool read_state(struct weir_oci_container *container, struct weir_diag *diag)
{
    size_t bytes = 0;
    char *text = weir_fd_text(STDIN_FILENO, TEXT_MAX, &bytes);
    bool good = text && weir_oci_state_read(text, bytes, container, diag) == WEIR_OK;

    if (!text) {
        weir_diag_set(diag, 0, 0, "the container's state cannot be read");
    }
    free(text);
    return good;
}

static bool read_config(struct weir_oci_container *container, struct weir_diag *diag)
{
    char path[PATH_MAX + 16];
    size_t bytes = 0;
    char *text = NULL;

    snprintf(path, sizeof path, "%s/config.json", container->bundle);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        text = weir_fd_text(fd, TEXT_MAX, &bytes);
        close(fd);
    }
    bool good = text && weir_oci_config_read(text, bytes, container, diag) == WEIR_OK;
    if (!text) {
        weir_diag_set(diag, 0, 0, "%.150s cannot be read", path);
    }
    free(text);
    return good;
}

static bool ask(const char *run_dir, const struct weir_oci_container *container,
                struct weir_new_share *share, struct weir_diag *diag)
{
    const char *words[WEIR_OCI_WISHES_MAX];
    enum weir_status status;

    for (size_t i = 0; i < container->n_wishes; i++) {
        words[i] = container->wishes[i];
    }
    status =
        weir_control_new(run_dir, container->id, container->pid, words, container->n_wishes, share);
    if (status == WEIR_ERR_INVALID) {
        weir_diag_set(diag, 0, 0, "%.190s", share->why);
    } else if (status != WEIR_OK) {
        weir_diag_set(diag, 0, 0, "no share of the GPU: %.100s/" WEIR_CONTROL_NEW_SOCKET ": %s",
                      run_dir, weir_status_text(status));
    }
    return status == WEIR_OK;
}

static bool check_tenant(const struct weir_oci_container *container, const char *tenant,
                         struct weir_diag *diag)
{
    if (container->n_wishes != 0) {
        weir_diag_set(diag, 0, 0,
                      "%.80s is asked for, and weir.dev/gpu=%.40s is a tenant whose settings are "
                      "the administrator's: the device new has what is asked for",
                      container->wishes[0], tenant);
    }
    return container->n_wishes == 0;
}

static bool give_share(const char *run_dir, const struct weir_oci_container *container,
                       struct weir_diag *diag)
{
    struct weir_new_share share;
    char none[PATH_MAX];

    snprintf(none, sizeof none, "%s/" WEIR_CONTAINER_SHARES "/none", run_dir);
    return ask(run_dir, container, &share, diag) &&
           weir_oci_mount(share.folder, container->pid, container->root, &WEIR_CONTAINER_RUN_DIR[1],
                          none, diag) == WEIR_OK;
}

int main(int argc, char **argv)
{
    struct weir_oci_container *container = malloc(sizeof *container);
    struct weir_diag diag = {0};

    if ((argc != 2 && argc != 3) || !container) {
        free(container);
        return fail("weir-oci-hook is what container engines execute (see weir-cdi(1))");
    }
    bool good = read_state(container, &diag) && read_config(container, &diag) &&
                (argc == 3 ? check_tenant(container, argv[2], &diag)
                           : give_share(argv[1], container, &diag));
    free(container);
    return good ? EXIT_SUCCESS : fail(diag.message);
}
