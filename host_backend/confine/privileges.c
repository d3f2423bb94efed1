#include "host_backend/confine/confine.h"

#include <grp.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void weir_confine_drop_bounding(void)
{
    for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0;) {
        capability++;
    }
}

bool weir_confine_become(const struct weir_confine_user *user)
{
    if (!user->is_other) {
        return true;
    }
    if (setgroups((size_t)user->n_groups, user->groups) != 0 ||
        setresgid(user->gid, user->gid, user->gid) != 0 ||
        setresuid(user->uid, user->uid, user->uid) != 0) {
        return false;
    }
    /* This user cannot use root's cache. */
    return setenv("HOME", user->home, 1) == 0 && setenv("USER", user->name, 1) == 0 &&
           setenv("LOGNAME", user->name, 1) == 0 && unsetenv("XDG_CACHE_HOME") == 0;
}

bool weir_confine_drop_privileges(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};
    const struct rlimit no_core = {0, 0};

    return setrlimit(RLIMIT_CORE, &no_core) == 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
           syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}
