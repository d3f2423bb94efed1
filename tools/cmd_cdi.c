/* weir cdi: print the CDI specification that the host on this machine writes. */
#include "container/cdi.h"
#include "host_backend/config/control.h"
#include "tools/ask.h"
#include "tools/cdi_file.h"
#include "tools/command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void list(FILE *out, const struct weir_cdi_spec *spec)
{
    for (size_t i = 0; i < spec->n_tenants; i++) {
        if (weir_cdi_name_ok(spec->tenants[i])) {
            fprintf(out, WEIR_CDI_KIND "=%s\n", spec->tenants[i]);
        }
    }
    if (weir_cdi_all(spec)) {
        fprintf(out, WEIR_CDI_KIND "=" WEIR_CDI_ALL "\n");
    }
    if (spec->hook) {
        fprintf(out, WEIR_CDI_KIND "=" WEIR_CDI_NEW "\n");
    }
}

enum weir_status weir_cdi_generate(const struct weir_status_report *report, FILE *out,
                                   const char *output, bool names)
{
    char guest_lib[PATH_MAX];
    char run_dir[PATH_MAX];
    const char **tenants = calloc(report->n_tenants + 1, sizeof(*tenants));
    struct weir_container_edits *common = calloc(1, sizeof(*common));
    char hook[PATH_MAX];
    struct weir_cdi_spec spec = {common, run_dir, tenants, 0,
                                 weir_path_oci_hook(hook, sizeof(hook)) ? hook : NULL};
    enum weir_status status = tenants && common ? WEIR_OK : WEIR_ERR_NO_MEMORY;

    for (size_t i = 0; status == WEIR_OK && i < report->n_tenants; i++) {
        if (strcmp(report->tenants[i].source, WEIR_CONTROL_ON_DEMAND) != 0 &&
            strcmp(report->tenants[i].source, WEIR_CONTROL_OF_USER) != 0) {
            tenants[spec.n_tenants++] = report->tenants[i].name;
        }
    }
    if (status == WEIR_OK && !realpath(report->run_dir, run_dir)) {
        status = WEIR_ERR_NOT_FOUND;
    }
    if (status == WEIR_OK && names) {
        list(out, &spec);
    } else if (status == WEIR_OK) {
        status = weir_path_guest_lib(guest_lib, sizeof(guest_lib))
                     ? weir_container_edits_common(guest_lib, WEIR_CONTAINER_NVIDIA_SMI, common)
                     : WEIR_ERR_NOT_FOUND;
        WEIR_THEN(status, output ? weir_cdi_store(output, &spec) : weir_cdi_write(out, &spec));
    }
    free(tenants);
    free(common);
    return status;
}

int weir_cmd_cdi(int argc, char **argv)
{
    const char *run_dir = NULL;
    const char *output = NULL;
    bool names = false;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"output", "FILE", "put it there, at once; default: standard output", &output, NULL},
        {"list", NULL, "only the devices' names", NULL, &names},
        {.name = NULL},
    };
    struct weir_status_report *report;
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Print the CDI specification of the host on this machine.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    enum weir_status status = weir_control_status(run_dir, &report);
    WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("cdi", run_dir, status));
    status = weir_cdi_generate(report, stdout, output, names);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir cdi: %s%s%s%s\n", output ? output : "", output ? ": " : "",
                weir_status_text(status),
                status == WEIR_ERR_NOT_FOUND ? " (the guest's libcuda.so.1, or any device)" : "");
    }
    weir_status_report_destroy(report);
    return status == WEIR_OK ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}
