/* The registry of policies, and reading lists of their names. */
#include "sched/policy.h"
#include <stdio.h>
#include <string.h>

#define WEIR_POLICY(name) extern const struct weir_policy_ops weir_policy_##name;
#include "sched/policies.def"
#undef WEIR_POLICY

static const struct weir_policy_ops *const policies[] = {
#define WEIR_POLICY(name) &weir_policy_##name,
#include "sched/policies.def"
#undef WEIR_POLICY
    NULL,
};

const struct weir_policy_ops *weir_policy_at(uint32_t index)
{
    return index < WEIR_COUNT(policies) ? policies[index] : NULL;
}

static const struct weir_policy_ops *find(const char *name, size_t len)
{
    for (uint32_t i = 0; policies[i]; i++) {
        if (strlen(policies[i]->name) == len && memcmp(policies[i]->name, name, len) == 0) {
            return policies[i];
        }
    }
    return NULL;
}

const struct weir_policy_ops *weir_policy_find(const char *name)
{
    return find(name, strlen(name));
}

const char *weir_policy_kind_text(enum weir_policy_kind kind)
{
    static const char *const text[] = {"next", "together"};

    return (unsigned)kind < WEIR_POLICY_KIND_COUNT ? text[kind] : "?";
}

/* Names that earlier versions knew. */
static const struct {
    const char *name, *advice;
} gone[] = {
    {"overlap", "remove the word, because copies are ordered without a policy"},
    {"complement", "write 'corun', which divides the device between two programs"},
    {"waterfill", "write 'corun', which divides the device between two programs"},
    {"tensor", "write 'corun', which divides the device between two programs"},
};

/* Report an unknown name, with what to write instead or with a list of the known ones. */
static void name_unknown(struct weir_diag *diag, uint32_t column, const char *name, size_t len)
{
    const struct weir_policy_ops *ops;
    char names[120] = "";

    for (size_t i = 0; i < WEIR_COUNT(gone); i++) {
        if (strlen(gone[i].name) == len && memcmp(gone[i].name, name, len) == 0) {
            weir_diag_set(diag, 1, column, "the policy '%s' is gone: %s", gone[i].name,
                          gone[i].advice);
            return;
        }
    }
    for (uint32_t i = 0; (ops = weir_policy_at(i)); i++) {
        size_t n = strlen(names);

        snprintf(names + n, sizeof names - n, "%s%s", n == 0 ? "" : ", ", ops->name);
    }
    weir_diag_set(diag, 1, column, "no policy is called '%.*s': %s", (int)(WEIR_MIN(len, 40)), name,
                  names);
}

enum weir_status weir_policy_set_parse(const char *text, struct weir_policy_set *ret_set,
                                       struct weir_diag *ret_diag)
{
    struct weir_policy_set set = {0};
    const char *at = text;

    for (;;) {
        size_t len = strcspn(at, ",");
        uint32_t column = (uint32_t)(at - text) + 1;
        const struct weir_policy_ops *ops = find(at, len);

        if (len == 0) {
            weir_diag_set(ret_diag, 1, column, "a policy's name is missing");
            return WEIR_ERR_SYNTAX;
        }
        if (!ops) {
            name_unknown(ret_diag, column, at, len);
            return WEIR_ERR_NOT_FOUND;
        }
        if (set.policy[ops->kind]) {
            weir_diag_set(ret_diag, 1, column, "'%s' and '%s' are both of kind %s",
                          set.policy[ops->kind]->name, ops->name, weir_policy_kind_text(ops->kind));
            return WEIR_ERR_EXISTS;
        }
        set.policy[ops->kind] = ops;
        if (at[len] == '\0') {
            break;
        }
        at += len + 1;
    }
    if (!set.policy[WEIR_POLICY_NEXT]) {
        set.policy[WEIR_POLICY_NEXT] = weir_policy_find("fair");
    }
    *ret_set = set;
    return WEIR_OK;
}
