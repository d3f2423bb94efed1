/*
 * Writes the CDI specification. The JSON is small and has one shape, so it is printed directly;
 * only paths and tenants' names come from outside, and these are escaped or refused.
 *
 * Version: 0.3.0, which has env and mounts, or 0.5.0 if a name begins with a digit. An engine
 * refuses a whole file for one field that its version lacks, so later fields such as a mount's
 * "type" (0.4.0) are not used.
 */
#include "container/cdi.h"
#include "container/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool weir_cdi_name_ok(const char *tenant)
{
    size_t n = strlen(tenant);

    return n > 0 && is_alnum(tenant[0]) && is_alnum(tenant[n - 1]) &&
           !WEIR_ANY(i, n, !is_alnum(tenant[i]) && !strchr("_-.", tenant[i]));
}

static void put_mount(FILE *out, const struct weir_container_mount *mount, const char *indent)
{
    fprintf(out, "%s{\"hostPath\": ", indent);
    weir_json_put(out, mount->source);
    fputs(", \"containerPath\": ", out);
    weir_json_put(out, mount->target);
    fputs(", \"options\": [\"ro\", \"nosuid\", \"nodev\", \"bind\"]}", out);
}

/* Write the hook that an engine executes before the container's first program. @param tenant NULL:
 * the device is a share on demand. */
static void put_hook(FILE *out, const struct weir_cdi_spec *spec, const char *tenant,
                     const char *indent)
{
    fprintf(out, "%s  \"hooks\": [{\"hookName\": \"createRuntime\", \"path\": ", indent);
    weir_json_put(out, spec->hook);
    fputs(", \"args\": [\"weir-oci-hook\", ", out);
    weir_json_put(out, spec->run_dir);
    if (tenant) {
        fputs(", ", out);
        weir_json_put(out, tenant);
    }
    fputs("]}]", out);
}

/* @param hooked specification whose hook is added, for this tenant; NULL: add no hook. */
static void put_edits(FILE *out, const struct weir_container_edits *edits,
                      const struct weir_cdi_spec *hooked, const char *tenant, const char *indent)
{
    fprintf(out, "%s\"containerEdits\": {\n", indent);
    if (edits->n_env != 0) {
        fprintf(out, "%s  \"env\": [", indent);
        for (size_t i = 0; i < edits->n_env; i++) {
            fputs(i == 0 ? "" : ", ", out);
            weir_json_put(out, edits->env[i]);
        }
        fputs("],\n", out);
    }
    fprintf(out, "%s  \"mounts\": [", indent);
    for (size_t i = 0; i < edits->n_mounts; i++) {
        fputs(i == 0 ? "\n" : ",\n", out);
        fprintf(out, "%s    ", indent);
        put_mount(out, &edits->mounts[i], "");
    }
    fprintf(out, "\n%s  ]", indent);
    if (hooked) {
        fputs(",\n", out);
        put_hook(out, hooked, tenant, indent);
    }
    fprintf(out, "\n%s}", indent);
}

/* Write a device. @param tenant NULL: a share on demand. */
static enum weir_status put_device(FILE *out, const struct weir_cdi_spec *spec, const char *name,
                                   const char *tenant, bool *first)
{
    struct weir_container_edits *edits = malloc(sizeof *edits);
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (edits) {
        status = tenant ? weir_container_edits_tenant(spec->run_dir, tenant, edits)
                        : weir_container_edits_new(spec->run_dir, edits);
    }
    if (status == WEIR_OK) {
        fputs(*first ? "\n" : ",\n", out);
        fputs("    {\n      \"name\": ", out);
        weir_json_put(out, name);
        fputs(",\n", out);
        put_edits(out, edits, spec->hook ? spec : NULL, tenant, "      ");
        fputs("\n    }", out);
    }
    *first = false;
    free(edits);
    return status;
}

const char *weir_cdi_all(const struct weir_cdi_spec *spec)
{
    const char *all = NULL;

    for (size_t i = 0; i < spec->n_tenants; i++) {
        if (strcmp(spec->tenants[i], WEIR_CDI_ALL) == 0) {
            return NULL; /* a tenant has this name */
        }
        all = strcmp(spec->tenants[i], WEIR_CDI_ALL_IS) == 0 ? spec->tenants[i] : all;
    }
    return all;
}

/* Before anything is written, count the devices and check that all texts are fit for JSON. */
static enum weir_status check(const struct weir_cdi_spec *spec, const char **ret_version)
{
    bool good = weir_text_ok(spec->run_dir) && (!spec->hook || weir_text_ok(spec->hook));
    size_t n = spec->hook != NULL;

    *ret_version = "0.3.0";
    for (size_t i = 0; i < spec->n_tenants; i++) {
        if (weir_cdi_name_ok(spec->tenants[i])) {
            n++;
            if (spec->tenants[i][0] >= '0' && spec->tenants[i][0] <= '9') {
                *ret_version = "0.5.0";
            }
        }
    }
    for (size_t i = 0; i < spec->common->n_mounts; i++) {
        good &= weir_text_ok(spec->common->mounts[i].source);
    }
    WEIR_FAIL_IF(!good, WEIR_ERR_INVALID);
    return n != 0 ? WEIR_OK : WEIR_ERR_NOT_FOUND;
}

enum weir_status weir_cdi_write(FILE *out, const struct weir_cdi_spec *spec)
{
    const char *version;
    bool first = true;
    WEIR_TRY(check(spec, &version));
    enum weir_status status = WEIR_OK;
    fprintf(out, "{\n  \"cdiVersion\": \"%s\",\n  \"kind\": \"" WEIR_CDI_KIND "\",\n", version);
    fputs("  \"devices\": [", out);
    for (size_t i = 0; i < spec->n_tenants && status == WEIR_OK; i++) {
        if (weir_cdi_name_ok(spec->tenants[i])) {
            status = put_device(out, spec, spec->tenants[i], spec->tenants[i], &first);
        }
    }
    if (status == WEIR_OK && weir_cdi_all(spec)) {
        status = put_device(out, spec, WEIR_CDI_ALL, weir_cdi_all(spec), &first);
    }
    if (status == WEIR_OK && spec->hook) {
        status = put_device(out, spec, WEIR_CDI_NEW, NULL, &first);
    }
    fputs("\n  ],\n", out);
    put_edits(out, spec->common, NULL, NULL, "  ");
    fputs("\n}\n", out);
    return status == WEIR_OK && ferror(out) ? WEIR_ERR_IO : status;
}

/* /var/run exists everywhere; the folder for CDI files below it may not. */
static enum weir_status make_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) {
        return WEIR_OK;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    return mkdir(folder, 0755) == 0 || errno == EEXIST ? WEIR_OK : weir_status_of_errno(errno);
}

static enum weir_status write_file(const char *path, const struct weir_cdi_spec *spec)
{
    FILE *out = fopen(path, "we");

    WEIR_FAIL_IF(!out, weir_status_of_errno(errno));
    enum weir_status status = weir_cdi_write(out, spec);
    if (status == WEIR_OK && fflush(out) != 0) { /* a full disk shows here */
        status = weir_status_of_errno(errno);
    }
    if (fchmod(fileno(out), 0644) != 0 && status == WEIR_OK) {
        status = weir_status_of_errno(errno);
    }
    if (fclose(out) != 0 && status == WEIR_OK) {
        status = WEIR_ERR_IO;
    }
    return status;
}

enum weir_status weir_cdi_store(const char *path, const struct weir_cdi_spec *spec)
{
    char temporary[PATH_MAX];
    /* Engines do not read files whose name ends so. */
    int n = snprintf(temporary, sizeof temporary, "%s.new", path);

    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof temporary, WEIR_ERR_TOO_BIG);
    enum weir_status status = make_folder(path);
    WEIR_THEN(status, write_file(temporary, spec));
    if (status == WEIR_OK && rename(temporary, path) != 0) {
        status = weir_status_of_errno(errno);
    }
    if (status != WEIR_OK) {
        (void)unlink(temporary);
    }
    if (status == WEIR_ERR_NOT_FOUND) {
        (void)unlink(path);
    }
    return status;
}
