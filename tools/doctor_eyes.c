/*
 * Finds out what another user can reach: a child becomes that user and tries. So modes, access
 * lists, groups and mounts count as they do for the user's programs.
 */
#include "base/fd.h"
#include "tools/doctor.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534 /* Linux's overflow user: it owns no files of anybody's */
/* Exit status of a child that cannot become the user, as in a user namespace without that user. The
 * check then reports nothing. */
#define BLIND 126

bool weir_eyes_of(const char *user, struct weir_eyes *ret_eyes)
{
    char *end;
    long number = strtol(user, &end, 10);
    const struct passwd *known = *end || end == user ? getpwnam(user) : getpwuid((uid_t)number);
    *ret_eyes = (struct weir_eyes){.uid = NOBODY, .gid = NOBODY};
    if (known) {
        ret_eyes->uid = known->pw_uid;
        ret_eyes->gid = known->pw_gid;
        snprintf(ret_eyes->name, sizeof ret_eyes->name, "%s", known->pw_name);
    } else if (*end == 0 && end != user) {
        ret_eyes->uid = (uid_t)number; /* a number needs no name */
        ret_eyes->gid = (gid_t)number;
    } else {
        return false;
    }
    snprintf(ret_eyes->whose, sizeof ret_eyes->whose, "user %.60s", user);
    return true;
}

void weir_eyes_of_anybody(gid_t group, struct weir_eyes *ret_eyes)
{
    const struct group *known = group ? getgrgid(group) : NULL;
    *ret_eyes = (struct weir_eyes){.uid = NOBODY, .gid = group ? group : NOBODY};
    if (geteuid() != 0) {
        snprintf(ret_eyes->whose, sizeof ret_eyes->whose, "this user");
    } else if (known) {
        snprintf(ret_eyes->whose, sizeof ret_eyes->whose, "users of the group %.50s",
                 known->gr_name);
    } else {
        snprintf(ret_eyes->whose, sizeof ret_eyes->whose, "users");
    }
}

/* In a child. */
static bool become(const struct weir_eyes *eyes)
{
    if (!eyes || geteuid() != 0 || eyes->uid == 0) {
        return true;
    }
    return (eyes->name[0] ? initgroups(eyes->name, eyes->gid) : setgroups(0, NULL)) == 0 &&
           setgid(eyes->gid) == 0 && setuid(eyes->uid) == 0;
}

/* Find the first folder of a path that the user may not enter; "": there is none. */
static void find_closed(const char *path, char closed[PATH_MAX])
{
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(closed, PATH_MAX, "%.*s", (int)(slash - path), path);
        if (access(closed, X_OK) != 0) {
            return;
        }
    }
    closed[0] = 0;
}

/* Read a child's output to its end, and wait for the child. */
static int collect(pid_t child, int fd, char *text, size_t bytes)
{
    int status;
    text[weir_fd_read(fd, text, bytes - 1)] = 0;
    close(fd);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Start a child as this user, with its standard output in a pipe. 0: this is the child. */
static pid_t look(const struct weir_eyes *eyes, int *ret_fd)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0 || !become(eyes)) {
            _exit(BLIND);
        }
        return 0;
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
    }
    *ret_fd = ends[0];
    return child;
}

int weir_eyes_access(const struct weir_eyes *eyes, const char *path, int mode,
                     char ret_closed[PATH_MAX])
{
    int fd;
    pid_t child = look(eyes, &fd);
    ret_closed[0] = 0;
    if (child < 0) {
        return errno;
    }
    if (child == 0) {
        char closed[PATH_MAX] = "";
        int error = access(path, mode) == 0 ? 0 : errno;
        if (error == EACCES) {
            find_closed(path, closed);
        }
        (void)!write(STDOUT_FILENO, closed, strlen(closed));
        _exit(WEIR_MIN(error, 125));
    }
    int status = collect(child, fd, ret_closed, PATH_MAX);
    return status < 0 ? EIO : status == BLIND ? 0 : status;
}

bool weir_eyes_load(const struct weir_eyes *eyes, const char *library, char *why, size_t bytes)
{
    int fd;
    pid_t child = look(eyes, &fd);
    if (child == 0) {
        const char *error = dlopen(library, RTLD_NOW | RTLD_LOCAL) ? NULL : dlerror();
        if (error) {
            (void)!write(STDOUT_FILENO, error, strlen(error));
        }
        _exit(error ? 1 : 0);
    }
    if (child < 0) {
        return true; /* other checks report a machine that cannot fork */
    }
    int status = collect(child, fd, why, bytes);
    if (status < 0) { /* the library's file is truncated behind its header */
        snprintf(why, bytes, "a process that loads it crashes");
    }
    return status == 0 || status == BLIND;
}

void weir_eyes_load_fails(const char *kind, const struct weir_eyes *eyes, const char *library,
                          const char *why)
{
    const char *file = strrchr(library, '/') + 1;
    if (strstr(why, strerror(EACCES))) {
        weir_doctor_mend_at(kind, "chmod a+rX its folders, and a+r", library,
                            "programs of %s cannot load %s: %s", eyes->whose, file, why);
    } else {
        weir_doctor_mend(kind, "install Weir anew: the file is damaged, or for another machine",
                         "programs of %s cannot load %s: %s", eyes->whose, file, why);
    }
}

int weir_doctor_run(const struct weir_eyes *eyes, const char *const *argv, unsigned limit_s,
                    char *ret_text, size_t bytes)
{
    int fd;
    pid_t child = look(eyes, &fd);
    ret_text[0] = 0;
    if (child == 0) {
        char *words[16];
        size_t n = 0;
        for (; argv[n] && n + 1 < WEIR_COUNT(words); n++) {
            words[n] = strdup(argv[n]);
        }
        words[n] = NULL;
        int none = open("/dev/null", O_RDONLY);
        (void)dup2(none, STDIN_FILENO);
        alarm(limit_s);
        if (words[0]) {
            execvp(words[0], words);
        }
        _exit(127);
    }
    return child < 0 ? -1 : collect(child, fd, ret_text, bytes);
}

bool weir_doctor_is_served(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool served = true;
    if (fd >= 0 && strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
        served = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
                 errno != ECONNREFUSED;
    }
    weir_fd_close(fd);
    return served;
}
