/*
 * What a worker may do to the machine that it runs on: docs/design/confinement.md.
 *
 * The supervisor's child becomes the workers' user and gives up its privileges before it executes
 * the worker. The worker gives up system calls when it has received its settings, before it loads
 * the driver or hears of a guest.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <sys/types.h>

#define WEIR_CONFINE_USER       "weir-worker" /* used if it exists and no user is configured */
#define WEIR_CONFINE_NAME_BYTES 40u
#define WEIR_CONFINE_HOME_BYTES 256u
#define WEIR_CONFINE_GROUPS_MAX 64

/* The user that workers run as. A value type. */
struct weir_confine_user {
    bool is_other; /* another user than this process's; false: nothing below is set */
    uid_t uid;
    gid_t gid;
    char name[WEIR_CONFINE_NAME_BYTES];
    char home[WEIR_CONFINE_HOME_BYTES];
    gid_t groups[WEIR_CONFINE_GROUPS_MAX]; /* supplementary groups and those of the device files */
    int n_groups;
};

/**
 * Find the user that workers run as.
 *
 * @param wanted  name or number; "": weir-worker, if this process is root and there is such a user.
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  there is no user with the wanted name or number.
 * @return WEIR_ERR_DENIED     this process is not root, so it cannot start workers as that user.
 * @return WEIR_ERR_TOO_BIG    the user's name, home or list of groups has no room.
 * @thread main: asks for names with getpwnam()
 */
enum weir_status weir_confine_user_find(const char *wanted,
                                        struct weir_confine_user *ret_user) WEIR_MUST_CHECK;

/**
 * Could a process of that user open a file for reading and writing? Checks owner, groups and mode
 * of the file itself, but not the folders above it or access control lists.
 *
 * @return true also if the user is this process's own.
 * @thread any
 */
bool weir_confine_user_may_open(const struct weir_confine_user *user, const char *path);

/**
 * Become another user, with that user's groups, and set HOME and USER; only in a child of one
 * thread. Does nothing if the user is this process's own.
 *
 * @return false: see errno. The process must end then, since it may be half changed.
 */
bool weir_confine_become(const struct weir_confine_user *user) WEIR_MUST_CHECK;

/**
 * Give up all capabilities for good, those that another program could bring with it, and core
 * dumps; only in a process of one thread. Call it after weir_confine_become(), except that root
 * must have called weir_confine_drop_bounding() before.
 *
 * @return false: see errno. The process must end then.
 */
bool weir_confine_drop_privileges(void) WEIR_MUST_CHECK;

/** Empty the bounding set. Without CAP_SETPCAP it stays as it is. */
void weir_confine_drop_bounding(void);

/* Refused system calls that a process keeps nevertheless. */
enum weir_confine_keeps {
    WEIR_CONFINE_KEEPS_NONE = 0,
    WEIR_CONFINE_KEEPS_EXEC = 1,  /* it may make processes and execute programs */
    WEIR_CONFINE_KEEPS_INET = 2,  /* it may make internet sockets */
    WEIR_CONFINE_KEEPS_OTHERS = 4 /* it may signal and limit other processes, and make groups */
};

/**
 * Have the kernel refuse system calls from now on, in this thread and in all that it starts, and
 * keep other processes of the same user from looking into this one. A refused call fails with
 * EPERM; clone3, whose flags a filter cannot read, with ENOSYS, so that the C library uses clone. A
 * thread may still change its own scheduling, by the number 0.
 *
 * @param keeps  enum weir_confine_keeps, added up. What an earlier call has refused stays refused.
 * @return WEIR_OK, WEIR_ERR_UNSUPPORTED (the kernel or the architecture has no seccomp filters)
 * @thread the only one of its process
 */
enum weir_status weir_confine_refuse_calls(unsigned keeps) WEIR_MUST_CHECK;
