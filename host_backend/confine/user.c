#include "host_backend/confine/confine.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Distributions may give these files to a group ("video"), to which the user need not belong. */
static const char *const device_files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"};

static const struct passwd *entry_of(const char *wanted)
{
    char *end;
    unsigned long number = strtoul(wanted, &end, 10);

    return *wanted >= '0' && *wanted <= '9' && *end == 0 ? getpwuid((uid_t)number)
                                                         : getpwnam(wanted);
}

static bool is_member(const struct weir_confine_user *user, gid_t group)
{
    return WEIR_ANY(i, user->n_groups, user->groups[i] == group) || group == user->gid;
}

/* Add the group of a file, but not root's, which would open more than a device. */
static void add_group_of(struct weir_confine_user *user, const char *path)
{
    struct stat info;

    if (stat(path, &info) == 0 && info.st_gid != 0 && (info.st_mode & 0060) == 0060 &&
        !is_member(user, info.st_gid) && user->n_groups < WEIR_CONFINE_GROUPS_MAX) {
        user->groups[user->n_groups++] = info.st_gid;
    }
}

static bool fill(struct weir_confine_user *user, const struct passwd *entry)
{
    int name = snprintf(user->name, sizeof user->name, "%s", entry->pw_name);
    int home = snprintf(user->home, sizeof user->home, "%s", entry->pw_dir);

    user->is_other = true;
    user->uid = entry->pw_uid;
    user->gid = entry->pw_gid;
    user->n_groups = WEIR_CONFINE_GROUPS_MAX;
    if (name < 0 || (size_t)name >= sizeof user->name || home < 0 ||
        (size_t)home >= sizeof user->home ||
        getgrouplist(user->name, user->gid, user->groups, &user->n_groups) < 0) {
        return false;
    }
    for (size_t i = 0; i < WEIR_COUNT(device_files); i++) {
        add_group_of(user, device_files[i]);
    }
    return true;
}

enum weir_status weir_confine_user_find(const char *wanted, struct weir_confine_user *ret_user)
{
    struct weir_confine_user user = {.is_other = false};
    const struct passwd *entry = NULL;

    if (*wanted != 0) {
        entry = entry_of(wanted);
        WEIR_FAIL_IF(!entry, WEIR_ERR_NOT_FOUND);
    } else if (geteuid() == 0) {
        entry = getpwnam(WEIR_CONFINE_USER);
    }
    if (entry && entry->pw_uid != geteuid()) {
        WEIR_FAIL_IF(geteuid() != 0, WEIR_ERR_DENIED);
        WEIR_FAIL_IF(!fill(&user, entry), WEIR_ERR_TOO_BIG);
    }
    *ret_user = user;
    return WEIR_OK;
}

bool weir_confine_user_may_open(const struct weir_confine_user *user, const char *path)
{
    struct stat info;
    mode_t needed = S_IROTH | S_IWOTH;

    if (!user->is_other) {
        return true;
    }
    if (stat(path, &info) != 0) {
        return false;
    }
    if (info.st_uid == user->uid) {
        needed = S_IRUSR | S_IWUSR;
    } else if (is_member(user, info.st_gid)) {
        needed = S_IRGRP | S_IWGRP;
    }
    return (info.st_mode & needed) == needed;
}
