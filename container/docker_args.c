/*
 * docker's --mount and not its -v: -v makes a missing source as an empty folder, where --mount says
 * that it is missing.
 */
#include "container/docker_args.h"

#include <string.h>

static bool plain(const char *path)
{
    for (const char *c = path; *c != 0; c++) {
        if ((unsigned char)*c <= 0x20 || *c == 0x7f || strchr(",\"'\\*?[]", *c) != NULL) {
            return false;
        }
    }
    return true;
}

enum weir_status weir_docker_args_write(FILE *out, const struct weir_container_edits *const *edits,
                                        size_t n_edits, const char **ret_wrong)
{
    const char *blank = "";

    for (size_t k = 0; k < n_edits; k++) {
        for (size_t i = 0; i < edits[k]->n_mounts; i++) {
            if (!plain(edits[k]->mounts[i].source)) {
                *ret_wrong = edits[k]->mounts[i].source;
                return WEIR_ERR_INVALID;
            }
        }
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
