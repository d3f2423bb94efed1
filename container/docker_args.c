/*
 * Uses docker's --mount and not -v: for a missing source -v makes an empty folder, while --mount
 * complains.
 */
#include "container/docker_args.h"
#include "container/text.h"

#include <string.h>

/* Find the first path that cannot be written as an argument; NULL: there is none. */
static const char *find_wrong(const struct weir_container_edits *const *edits, size_t n_edits,
                              bool (*good)(const char *path))
{
    for (size_t k = 0; k < n_edits; k++) {
        for (size_t i = 0; i < edits[k]->n_mounts; i++) {
            if (!good(edits[k]->mounts[i].source)) {
                return edits[k]->mounts[i].source;
            }
        }
    }
    return NULL;
}

static bool plain(const char *path)
{
    for (const char *c = path; *c != 0; c++) {
        if ((unsigned char)*c <= 0x20 || *c == 0x7f || strchr(",\"'\\*?[]", *c)) {
            return false;
        }
    }
    return true;
}

enum weir_status weir_docker_args_write(FILE *out, const struct weir_container_edits *const *edits,
                                        size_t n_edits, const char **ret_wrong)
{
    const char *wrong = find_wrong(edits, n_edits, plain);
    const char *blank = "";

    if (wrong) {
        *ret_wrong = wrong;
        return WEIR_ERR_INVALID;
    }
    for (size_t k = 0; k < n_edits; k++) {
        for (size_t i = 0; i < edits[k]->n_mounts; i++) {
            fprintf(out, "%s--mount type=bind,source=%s,target=%s,readonly", blank,
                    edits[k]->mounts[i].source, edits[k]->mounts[i].target);
            blank = " ";
        }
        for (size_t i = 0; i < edits[k]->n_env; i++) {
            fprintf(out, "%s--env %s", blank, edits[k]->env[i]);
            blank = " ";
        }
    }
    putc('\n', out);
    return ferror(out) ? WEIR_ERR_IO : WEIR_OK;
}

static bool fit_for_compose(const char *path)
{
    return weir_text_ok(path) && !strchr(path, '$');
}

static bool service_ok(const char *service)
{
    size_t n = strlen(service);

    return n > 0 && strspn(service, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789._-") == n;
}

enum weir_status weir_docker_compose_write(FILE *out, const char *service,
                                           const struct weir_container_edits *const *edits,
                                           size_t n_edits, const char **ret_wrong)
{
    const char *wrong = service_ok(service) ? find_wrong(edits, n_edits, fit_for_compose) : service;

    if (wrong) {
        *ret_wrong = wrong;
        return WEIR_ERR_INVALID;
    }
    fprintf(out, "services:\n  %s:\n    volumes:\n", service);
    for (size_t k = 0; k < n_edits; k++) {
        for (size_t i = 0; i < edits[k]->n_mounts; i++) {
            fputs("      - type: bind\n        source: ", out);
            weir_json_put(out, edits[k]->mounts[i].source);
            fprintf(out, "\n        target: \"%s\"\n        read_only: true\n",
                    edits[k]->mounts[i].target);
        }
    }
    fputs("    environment:\n", out);
    for (size_t k = 0; k < n_edits; k++) {
        for (size_t i = 0; i < edits[k]->n_env; i++) {
            fputs("      - ", out);
            weir_json_put(out, edits[k]->env[i]);
            putc('\n', out);
        }
    }
    return ferror(out) ? WEIR_ERR_IO : WEIR_OK;
}
