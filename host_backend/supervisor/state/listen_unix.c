/* Listens on sockets in the run directory, and removes those that a killed host has left there. */
#include "base/fd.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/log.h"
#include "proto/wire/accept.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Does a process listen on the socket? If not, a killed host has left the file. */
static bool is_served(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool served =
        probe >= 0 && (connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ||
                       errno == EAGAIN); /* it is served, but its backlog is full */

    weir_fd_close(probe);
    return served;
}

enum weir_status weir_sup_listen(const char *path, mode_t mode, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    int fd, why;

    WEIR_FAIL_IF(strlen(path) >= sizeof address.sun_path, WEIR_ERR_TOO_BIG);
    strcpy(address.sun_path, path);
    WEIR_FAIL_IF(lstat(path, &info) == 0 && (!S_ISSOCK(info.st_mode) || is_served(&address)),
                 WEIR_ERR_EXISTS);
    WEIR_FAIL_IF(unlink(path) != 0 && (errno == EACCES || errno == EPERM), WEIR_ERR_DENIED);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    WEIR_FAIL_IF(fd < 0, weir_status_of_errno(errno));
    mode_t mask = umask(0777 & ~mode);
    bool good = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0;
    why = errno;
    umask(mask);
    if (!good) {
        close(fd);
        errno = why;
        return why == EACCES ? WEIR_ERR_DENIED : WEIR_ERR_IO;
    }
    *ret_fd = fd;
    return WEIR_OK;
}

enum weir_status weir_sup_listen_kept(struct weir_supervisor *sup, const char *path, mode_t mode,
                                      int *ret_fd)
{
    *ret_fd = weir_book_listener(sup, path);
    if (*ret_fd >= 0) {
        (void)chmod(path, mode); /* the mode may have changed */
        return WEIR_OK;
    }
    WEIR_TRY(weir_listen_unix(path, mode, ret_fd));
    weir_book_listens(sup, path, *ret_fd);
    return WEIR_OK;
}

bool weir_sup_socket_lost(const char *path, int *listen_fd)
{
    struct stat info;

    if (*listen_fd < 0 || lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
        return false;
    }
    weir_log_warn("supervisor: a socket was removed, and is made again path=%s", path);
    close(*listen_fd);
    *listen_fd = -1;
    return true;
}

void weir_sup_sweep_endpoints(const struct weir_supervisor *sup)
{
    DIR *dir = opendir(sup->config.run_dir);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t room = sizeof address.sun_path;
        int n = snprintf(address.sun_path, room, "%s/%s", sup->config.run_dir, entry->d_name);
        struct stat info;

        if (fnmatch("zmq-*.sock", entry->d_name, 0) == 0 && n > 0 && (size_t)n < room &&
            lstat(address.sun_path, &info) == 0 && S_ISSOCK(info.st_mode) && !is_served(&address)) {
            unlink(address.sun_path);
        }
    }
    if (dir) {
        closedir(dir);
    }
}
