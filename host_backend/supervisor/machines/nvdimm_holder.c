/*
 * Finds the process that has a file mapped: the kernel shows that only in /proc.
 *
 * QEMU has its file open and mapped as long as it has the memory; libvirt also opens the file for a
 * moment, to label it. The process may be in other namespaces, so the search compares device and
 * inode, not names. It takes a few milliseconds on a machine with a thousand processes, once for
 * each start of a virtual machine. QEMU has many mappings, so mappings are only read of processes
 * with such a descriptor.
 */
#include "host_backend/supervisor/machines/nvdimm.h"
#include "host_backend/supervisor/state/supervisor.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_worker(const struct weir_supervisor *sup, pid_t pid)
{
    return WEIR_ANY(i, WEIR_WORKERS_MAX, sup->workers[i].used && sup->workers[i].pid == pid);
}

/* Is the process one of a host's? A killed host may have workers that have not noticed it yet. */
static bool is_host_program(const char *pid)
{
    char path[300];
    struct stat own, other;

    snprintf(path, sizeof path, "/proc/%s/exe", pid);
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 && is_same(&own, &other);
}

static bool has_open(const char *pid, const struct stat *file)
{
    const struct dirent *entry;
    struct statx target;
    struct stat link;
    char path[300];
    bool found = false;

    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *fds = opendir(path);
    while (fds && !found && (entry = readdir(fds))) {
        /* Ask only for what the kernel knows without the file system: a file server that hangs must
         * not block us. The link's mode is the descriptor's access mode. */
        found = statx(dirfd(fds), entry->d_name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_INO,
                      &target) == 0 &&
                target.stx_ino == file->st_ino && target.stx_dev_major == major(file->st_dev) &&
                target.stx_dev_minor == minor(file->st_dev) &&
                fstatat(dirfd(fds), entry->d_name, &link, AT_SYMLINK_NOFOLLOW) == 0 &&
                (link.st_mode & S_IWUSR) != 0;
    }
    if (fds) {
        closedir(fds);
    }
    return found;
}

/* Does the process map pages of the file shared and for writing? */
static bool has_mapped(const char *pid, const struct stat *file)
{
    unsigned long long inode;
    unsigned int major_number, minor_number;
    char path[300], flags[8], line[512];
    bool found = false;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        found = sscanf(line, "%*s %7s %*s %x:%x %llu", flags, &major_number, &minor_number,
                       &inode) == 4 &&
                flags[1] == 'w' && flags[3] == 's' && inode == file->st_ino &&
                major_number == major(file->st_dev) && minor_number == minor(file->st_dev);
    }
    if (maps) {
        fclose(maps);
    }
    return found;
}

/* Does the process hold the file? It may end meanwhile: then the mapping is not found, because it
 * is read from the process of the descriptor. */
static bool holds(const char *pid, const struct stat *file, int *ret_pid_fd)
{
    *ret_pid_fd = has_open(pid, file) && !is_host_program(pid)
                      ? (int)syscall(SYS_pidfd_open, atoi(pid), 0)
                      : -1;
    if (*ret_pid_fd >= 0 && !has_mapped(pid, file)) {
        close(*ret_pid_fd);
        *ret_pid_fd = -1;
    }
    return *ret_pid_fd >= 0;
}

pid_t weir_sup_holder_of(const struct weir_supervisor *sup, int fd, int *ret_pid_fd)
{
    const struct dirent *entry;
    struct stat file;
    pid_t found = 0;

    if (fstat(fd, &file) != 0) {
        return 0;
    }
    DIR *processes = opendir("/proc");
    while (processes && found == 0 && (entry = readdir(processes))) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)atoi(entry->d_name) : 0;

        if (pid > 0 && pid != getpid() && !is_worker(sup, pid) &&
            holds(entry->d_name, &file, ret_pid_fd)) {
            found = pid;
        }
    }
    if (processes) {
        closedir(processes);
    }
    return found;
}
