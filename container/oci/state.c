/* Whoever makes a container chooses these texts, so each is checked before use. */
#include "container/oci/state.h"

#include "base/guess.h"
#include "host_backend/config/request_names.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define WRONG(...) (weir_diag_set(ret_diag, 0, 0, __VA_ARGS__), WEIR_ERR_INVALID)

static enum weir_status parse(const char *what, const char *text, size_t bytes, json_t **ret_object,
                              struct weir_diag *ret_diag)
{
    json_error_t error;

    *ret_object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(*ret_object)) {
        return WEIR_OK;
    }
    weir_diag_set(ret_diag, error.line > 0 ? (uint32_t)error.line : 0,
                  error.column > 0 ? (uint32_t)error.column : 0, "%s: %.100s", what,
                  !*ret_object ? error.text : "not an object");
    json_decref(*ret_object);
    *ret_object = NULL;
    return WEIR_ERR_SYNTAX;
}

static bool take_text(const json_t *value, char *to, size_t bytes)
{
    /* NULL if the value is no string; jansson refuses a NUL inside a string */
    const char *text = json_string_value(value);

    return text && *text != 0 && (size_t)snprintf(to, bytes, "%s", text) < bytes;
}

/* "sm-limit" and "sm_limit" are one key. */
static bool same_key(const char *wish, const char *key, size_t key_bytes)
{
    return !WEIR_ANY(i, key_bytes,
                     (wish[i] == '-' ? '_' : wish[i]) != (key[i] == '-' ? '_' : key[i])) &&
           wish[key_bytes] == '=';
}

/* Add a wish. A second wish with the same key must have the same value. */
static enum weir_status add_wish(struct weir_oci_container *container, const char *key,
                                 const char *value, struct weir_diag *ret_diag)
{
    for (size_t i = 0; i < container->n_wishes; i++) {
        const char *there = container->wishes[i];

        if (same_key(there, key, strlen(key))) {
            return strcasecmp(there + strlen(key) + 1, value) == 0
                       ? WEIR_OK
                       : WRONG("%.60s and %.40s=%.40s contradict each other: ask once, by an "
                               "annotation "
                               "or by a variable (an empty one counts as not set)",
                               there, key, value);
        }
    }
    WEIR_FAIL_IF(strchr(key, '=') || container->n_wishes == WEIR_OCI_WISHES_MAX,
                 WRONG("too many or odd annotations " WEIR_OCI_ANNOTATION "..."));
    int n =
        snprintf(container->wishes[container->n_wishes], WEIR_OCI_WISH_BYTES, "%s=%s", key, value);
    WEIR_FAIL_IF(n < 0 || n >= WEIR_OCI_WISH_BYTES, WRONG("'%.40s' is too long", key));
    container->n_wishes++;
    return WEIR_OK;
}

/* Refuse an annotation whose domain is misspelt, such as "weir/memory" or "wier.dev/memory". The
 * host checks the names behind a correct domain. */
static enum weir_status check_annotation(const char *key, struct weir_diag *ret_diag)
{
    const char *slash = strrchr(key, '/'), *name = slash ? slash + 1 : key;
    struct weir_guess whole = weir_guess_begin(key), last = weir_guess_begin(name);
    bool is_ours = strcasestr(key, "weir") != NULL;

    for (const struct weir_request_name *row = weir_request_names; row->variable; row++) {
        char right[40];

        snprintf(right, sizeof right, WEIR_OCI_ANNOTATION "%s", row->key);
        whole.best = NULL;
        weir_guess_offer(&whole, right);
        last.best = NULL;
        weir_guess_offer(&last, row->key);
        WEIR_FAIL_IF(
            whole.best || (is_ours && last.best),
            WRONG("the annotation '%.60s' is none of Weir's; did you mean '%s'?", key, right));
    }
    return WEIR_OK;
}

static enum weir_status take_annotations(json_t *object, struct weir_oci_container *container,
                                         struct weir_diag *ret_diag)
{
    json_t *annotations = json_object_get(object, "annotations"), *value;
    enum weir_status status = WEIR_OK;
    const char *key;

    json_object_foreach(annotations, key, value)
    {
        size_t n = strlen(WEIR_OCI_ANNOTATION);

        if (status != WEIR_OK) {
            break;
        }
        if (strncmp(key, WEIR_OCI_ANNOTATION, n) != 0) {
            status = check_annotation(key, ret_diag);
        } else {
            status = json_is_string(value)
                         ? add_wish(container, key + n, json_string_value(value), ret_diag)
                         : WRONG("the annotation '%.60s' is no text", key);
        }
    }
    return status;
}

enum weir_status weir_oci_state_read(const char *text, size_t bytes,
                                     struct weir_oci_container *ret_container,
                                     struct weir_diag *ret_diag)
{
    enum weir_status status;
    json_t *state;

    memset(ret_container, 0, sizeof *ret_container);
    WEIR_TRY(parse("the container's state", text, bytes, &state, ret_diag));
    json_int_t pid = json_integer_value(json_object_get(state, "pid"));
    if (pid <= 0 || pid > INT_MAX) {
        status = WRONG("the container's state has no pid");
    } else if (!take_text(json_object_get(state, "id"), ret_container->id,
                          sizeof ret_container->id)) {
        status = WRONG("the container's state has no id");
    } else if (!take_text(json_object_get(state, "bundle"), ret_container->bundle,
                          sizeof ret_container->bundle) ||
               ret_container->bundle[0] != '/') {
        status = WRONG("the container's state has no bundle");
    } else {
        ret_container->pid = (pid_t)pid;
        status = take_annotations(state, ret_container, ret_diag);
    }
    json_decref(state);
    return status;
}

static enum weir_status take_root(json_t *config, struct weir_oci_container *container,
                                  struct weir_diag *ret_diag)
{
    const char *path = json_string_value(json_object_get(json_object_get(config, "root"), "path"));
    int n = -1;

    if (path && path[0] != 0) {
        n = snprintf(container->root, sizeof container->root, "%s%s%s",
                     path[0] == '/' ? "" : container->bundle, path[0] == '/' ? "" : "/", path);
    }
    WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof container->root,
                 WRONG("config.json has no root.path, or a very long one"));
    return WEIR_OK;
}

/* Take the variables. If one occurs twice, the last value counts, as it does for programs. */
static enum weir_status take_variables(const json_t *env, struct weir_oci_container *container,
                                       struct weir_diag *ret_diag)
{
    uint32_t taken = 0;

    for (size_t i = json_array_size(env); i > 0; i--) {
        const char *text = json_string_value(json_array_get(env, i - 1)), *value = NULL;
        const struct weir_request_name *row = NULL;

        WEIR_FAIL_IF(text && weir_request_variable(text, &row, &value, ret_diag) != WEIR_OK,
                     WEIR_ERR_INVALID);
        if (!row || (taken >> (row - weir_request_names) & 1) != 0) {
            continue;
        }
        taken |= 1u << (row - weir_request_names);
        WEIR_FAIL_IF(add_wish(container, row->key, value, ret_diag) != WEIR_OK, WEIR_ERR_INVALID);
    }
    return WEIR_OK;
}

/* Refuse two devices of Weir: the engine would mount the later one over the other. A hook's
 * arguments name its device: a host's folder, and a tenant or none. */
static enum weir_status check_devices(const json_t *hooks, const char **ret_name,
                                      struct weir_diag *ret_diag)
{
    const json_t *rows = json_object_get(hooks, "createRuntime"), *row;
    const char *folder = NULL, *name = NULL;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const json_t *args = json_object_get(row, "args");
        const char *program = json_string_value(json_array_get(args, 0));
        const char *this_folder = json_string_value(json_array_get(args, 1));
        const char *this_name = json_string_value(json_array_get(args, 2));

        if (!program || strcmp(program, WEIR_OCI_HOOK) != 0 || !this_folder) {
            continue;
        }
        this_name = this_name ? this_name : "new";
        WEIR_FAIL_IF(
            name && (strcmp(name, this_name) != 0 || strcmp(folder, this_folder) != 0),
            WRONG("a container has one device of Weir, and not both weir.dev/gpu=%.40s and "
                  "weir.dev/gpu=%.40s",
                  name, this_name));
        folder = this_folder;
        name = this_name;
    }
    *ret_name = name;
    return WEIR_OK;
}

/* Refuse a device together with mounts made by hand, as `weir docker-args` prints them: they would
 * cover the device's mounts and give the container another tenant. */
static enum weir_status check_mounts(const json_t *mounts, const char *name,
                                     struct weir_diag *ret_diag)
{
    const json_t *row;
    size_t i;

    json_array_foreach(mounts, i, row)
    {
        const char *target = json_string_value(json_object_get(row, "destination"));
        const char *source = json_string_value(json_object_get(row, "source"));
        const char *base = source ? strrchr(source, '/') : NULL;

        if (name && base && target && strcmp(target, "/run/weir") == 0 &&
            strcmp(base + 1, strcmp(name, "new") == 0 ? "none" : name) != 0) {
            return WRONG("a container has one device of Weir, and not both weir.dev/gpu=%.40s and "
                         "a mount of %.60s",
                         name, source);
        }
    }
    return WEIR_OK;
}

enum weir_status weir_oci_config_read(const char *text, size_t bytes,
                                      struct weir_oci_container *container,
                                      struct weir_diag *ret_diag)
{
    const char *device = NULL;
    json_t *config, *env;

    WEIR_TRY(parse("config.json", text, bytes, &config, ret_diag));
    env = json_object_get(json_object_get(config, "process"), "env");
    enum weir_status status = take_root(config, container, ret_diag);
    WEIR_THEN(status, check_devices(json_object_get(config, "hooks"), &device, ret_diag));
    WEIR_THEN(status, check_mounts(json_object_get(config, "mounts"), device, ret_diag));
    WEIR_THEN(status, take_variables(env, container, ret_diag));
    json_decref(config);
    return status;
}
