/*
 * The folder is cloned as a mount while this process can still reach it, and attached from inside
 * the container's mount namespace. The container's files can redirect neither path: the source is
 * the host's, and the target is resolved below the container's root and must be the empty folder
 * that the engine has mounted there.
 *
 * Linux 5.12 or later.
 */
#include "container/oci/mount.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FAILED(...) (weir_diag_set(ret_diag, 0, 0, __VA_ARGS__), WEIR_ERR_IO)

static int take(const char *folder)
{
    struct mount_attr attributes = {.attr_set =
                                        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    int tree = open_tree(AT_FDCWD, folder, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree >= 0 && mount_setattr(tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0) {
        int why = errno;

        close(tree);
        errno = why;
        tree = -1;
    }
    return tree;
}

static enum weir_status enter(pid_t pid, struct weir_diag *ret_diag)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    int entered = fd >= 0 ? setns(fd, CLONE_NEWNS) : -1;
    int why = errno;

    weir_fd_close(fd);
    return entered == 0 ? WEIR_OK
                        : FAILED("the container's mounts, process %d: %s", (int)pid, strerror(why));
}

/* Returns -1 on failure, with errno. */
static int open_below(const char *root, const char *target)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int below = fd >= 0 ? (int)syscall(SYS_openat2, fd, target, &how, sizeof how) : -1;
    int why = errno;

    weir_fd_close(fd);
    errno = why;
    return below;
}

enum weir_status weir_oci_mount(const char *folder, pid_t pid, const char *root, const char *target,
                                const char *before, struct weir_diag *ret_diag)
{
    struct stat wanted, found;
    int tree, place;

    WEIR_FAIL_IF(stat(before, &wanted) != 0, FAILED("%s: %s", before, strerror(errno)));
    tree = take(folder);
    WEIR_FAIL_IF(tree < 0, FAILED("%s: %s", folder, strerror(errno)));
    enum weir_status status = enter(pid, ret_diag);
    if (status == WEIR_OK) {
        place = open_below(root, target);
        if (place < 0 || fstat(place, &found) != 0) {
            status = FAILED("%s in the container: %s", target, strerror(errno));
        } else if (found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino) {
            status = FAILED("%s in the container is something else than Weir's", target);
        } else if (move_mount(tree, "", place, "",
                              MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
            status = FAILED("%s in the container: mount: %s", target, strerror(errno));
        }
        weir_fd_close(place);
    }
    close(tree);
    return status;
}
