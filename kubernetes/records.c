/* Files of claims: see dra.h. */
#include "kubernetes/dra.h"

#include "base/replace.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool path_of(const char *folder, const char *uid, char path[PATH_MAX])
{
    return weir_kube_uid_ok(uid) && snprintf(path, PATH_MAX, "%s/%s.json", folder, uid) < PATH_MAX;
}

json_t *weir_records_get(const char *folder, const char *uid)
{
    char path[PATH_MAX];
    json_t *record = path_of(folder, uid, path) ? json_load_file(path, 0, NULL) : NULL;
    const char *said = json_string_value(json_object_get(record, "uid"));

    if (!said || strcmp(said, uid) != 0) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

bool weir_records_put(const char *folder, const json_t *record)
{
    char path[PATH_MAX];
    FILE *file = path_of(folder, json_string_value(json_object_get(record, "uid")), path)
                     ? weir_replace_begin(path)
                     : NULL;

    WEIR_FAIL_IF(!file, false);
    /* No fsync: a power cut ends all pods, and a claim without a file is prepared again. */
    return weir_replace_end(file, path, json_dumpf(record, file, JSON_COMPACT) == 0);
}

bool weir_records_remove(const char *folder, const char *uid)
{
    char path[PATH_MAX];

    return path_of(folder, uid, path) && (unlink(path) == 0 || errno == ENOENT);
}

json_t *weir_records_list(const char *folder)
{
    json_t *uids = json_array();
    char path[PATH_MAX];
    glob_t found = {0};

    snprintf(path, sizeof path, "%s/*.json", folder);
    (void)glob(path, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *uid = strrchr(found.gl_pathv[i], '/') + 1;

        uid[strlen(uid) - strlen(".json")] = 0;
        if (weir_kube_uid_ok(uid)) {
            json_array_append_new(uids, json_string(uid));
        }
    }
    globfree(&found);
    return uids;
}
